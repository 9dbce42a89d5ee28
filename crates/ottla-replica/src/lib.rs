//! The roles of one replica of a partition, as a pure state machine: an event goes in, effects come out.
//!
//! Owns: what a replica knows beyond the log itself. A leader: its epoch, its followers, the in-sync replicas
//! and what was proposed about them, the next offset to assign, the high watermark, and the acknowledgements
//! that wait for them. A follower: where it fetches, and what it does when the leader's log has left its own.
//! Never touches: the log, a clock, a socket, a thread. Time comes in as milliseconds of a clock that
//! only moves forward, and acknowledgements are handles of the caller's own type, handed back when they
//! are due. What has to be looked up in the log (a producer's sequence, the end of a leader epoch) comes with
//! the event that needs it.
//!
//! Invariants:
//! 1. Offsets are assigned in the order of the `Append` events and never twice: a write that failed
//!    takes everything assigned behind it along.
//! 2. Nothing is acknowledged but through `Effect::ReleaseAck`, and each `Append` is released exactly
//!    once. A refusal that was decided by looking at appends not yet acknowledged waits for them.
//! 3. The high watermark never moves back while the replica leads, and stands still while fewer
//!    replicas are in sync than `min.insync.replicas` asks for.
//! 4. What is below the high watermark is on every replica that the controller may elect from the ISR: on all
//!    that it has committed, and on all that it may have committed without this leader's knowing.
//! 5. A follower's log holds what the leader's does, up to where they were compared by leader epochs; behind
//!    that it is cut before anything is added.
//! 6. A replica that lost its log never leads again: no event leads out of that.
//!
//! The simulation among the tests holds several replicas, a controller and a network that loses, repeats and
//! reorders against 3 to 5, and shows that it finds the bugs that `planted` names.
//!
//! Kafka does the same in `kafka.cluster.Partition`, `DelayedProduce` and the purgatory around it, and in
//! `AbstractFetcherThread`.

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

#[cfg(all(feature = "planted-bugs", not(debug_assertions)))]
compile_error!("planted-bugs are for simulations: no build with optimisations may have them");

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
