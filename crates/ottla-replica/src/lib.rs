//! The roles of one replica of a partition, as a pure state machine: events in, effects out.
//!
//! Owns the state of a replica beyond the log itself. For a leader: its epoch, its followers, the
//! in-sync replicas and proposals about them, the next offset, the high watermark, and parked
//! acknowledgements. For a follower: its fetch position, and the handling of diverging logs. Never
//! touches the log, a clock, a socket or a thread. Time is given as milliseconds of a monotonic
//! clock; acknowledgements are handles of a caller's type, returned when they are due. Information
//! from the log (a producer's sequence, the end of a leader epoch) comes with the event that needs
//! it.
//!
//! Invariants:
//! 1. Offsets are assigned in the order of the `Append` events and never twice: a failed write also
//!    fails everything assigned after it.
//! 2. Acknowledgements are sent only through `Effect::ReleaseAck`, exactly once per `Append`. A
//!    refusal that depends on unacknowledged appends waits for them.
//! 3. The high watermark of a leader never decreases, and does not advance while the ISR is below
//!    `min.insync.replicas`.
//! 4. Records below the high watermark are on every replica that the controller may elect from the
//!    ISR: on the committed ISR, and on replicas that it may have committed without this leader's
//!    knowledge.
//! 5. A follower's log equals the leader's up to where they were compared by leader epochs; it is
//!    truncated there before anything is appended.
//! 6. A replica that lost its log never leads again: no event leaves that state.
//!
//! The simulation in the tests checks 3 to 5 with several replicas, a controller and a network that
//! loses, repeats and reorders, and finds the defects in `planted`.
//!
//! Kafka: `kafka.cluster.Partition`, `DelayedProduce` and its purgatory, `AbstractFetcherThread`.

#![forbid(unsafe_code)]
#![warn(clippy::iter_over_hash_type)]
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        clippy::iter_over_hash_type
    )
)]

mod ack;
mod event;
mod follower;
mod follower_fetch;
mod isr;
mod leader;
mod log_state;
mod parked_acks;
#[cfg(not(any(test, feature = "planted-bugs")))]
mod planted;
#[cfg(any(test, feature = "planted-bugs"))]
pub mod planted;
mod read_replica;
mod registration;
mod remote_replica;
mod replica;
mod throttle;
mod truncation;

#[cfg(test)]
mod simulation;

#[cfg(test)]
mod test_batches;

pub use ack::{AckOutcome, RequiredAcks};
pub use event::{Append, Effect, Event, FetchPosition, Fetched, LeaderOffsets, ProducerVerdict};
pub use follower_fetch::{FetchRefusal, FollowerFetch};
pub use isr::{AlterPartition, AlteredPartition, IsrMember};
pub use read_replica::{ReadCandidate, ReplicaSelector, select_read_replica};
pub use registration::{EpochEnd, Leadership, ReplicaBroker, ReplicaConfig, ReplicaSettings};
pub use replica::Replica;
pub use throttle::{ThrottledReplicas, is_replication_throttled};
