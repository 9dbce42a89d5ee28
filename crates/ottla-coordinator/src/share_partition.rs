//! Share partitions: the state of one partition's records for the members of one share group.
//!
//! The leader of a partition has one [`SharePartition`] for each share group that reads it
//! (KIP-932). Its state consists of the state that the share coordinator has persisted and of the
//! records that members currently hold. Acquisition locks are not persisted: they are lost with the
//! leader, and the records are delivered again.

mod aborted;
mod dead_letters;
mod in_flight;
mod partition;
mod settings;

mod acknowledge;
mod acquire;
mod archive;
mod archiving;
mod lock_timeouts;
mod transitions;

mod led;

pub use aborted::{AbortedTransaction, FetchedBatch, aborted_batches};
pub use acknowledge::{AcknowledgeError, AcknowledgeType, AcknowledgementBatch};
pub use acquire::{AcquireMode, AcquireRequest, AcquiredBatch, AcquiredRecords};
pub use dead_letters::{DeadLetterCause, DeadLetters};
pub use in_flight::{MemberId, RecordState, StateWriteId};
pub use led::{LedSharePartition, PersistedWrite, of_persister, request_of, restore};
pub use partition::{PersistedBatch, PersistedState, PersistedStateError, SharePartition};
pub use settings::SharePartitionSettings;
pub use transitions::{StateWrite, WriteResult};

#[cfg(test)]
mod tests;
