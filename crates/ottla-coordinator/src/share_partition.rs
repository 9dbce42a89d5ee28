//! Share partitions: which records of one partition the members of one share group have in hand.
//!
//! The leader of a partition keeps one [`SharePartition`] for each share group that reads it (KIP-932).
//! Its state is what the share coordinator has persisted of it plus what members hold at the moment, which
//! nobody persists: locks are lost with the leader, and the records are delivered again.

mod aborted;
mod in_flight;
mod partition;
mod settings;

mod acknowledge;
mod acquire;
mod archive;
mod lock_timeouts;
mod transitions;

mod led;

pub use aborted::{AbortedTransaction, FetchedBatch, aborted_batches};
pub use acknowledge::{AcknowledgeError, AcknowledgeType, AcknowledgementBatch};
pub use acquire::{AcquireMode, AcquireRequest, AcquiredBatch, AcquiredRecords};
pub use in_flight::{MemberId, RecordState, StateWriteId};
pub use led::{LedSharePartition, PersistedWrite, of_persister, request_of, restore};
pub use partition::{PersistedBatch, PersistedState, PersistedStateError, SharePartition};
pub use settings::SharePartitionSettings;
pub use transitions::{StateWrite, WriteResult};

#[cfg(test)]
mod tests;
