//! The roles of one replica of a partition, as a pure state machine: an event goes in, effects come out.
//!
//! Owns: what the leader knows beyond the log itself: leader epoch, in-sync replicas, the next offset
//! to assign, the high watermark, and the acknowledgements that wait for them.
//! Never touches: the log, a clock, a socket, a thread. Time comes in as milliseconds of a clock that
//! only moves forward, and acknowledgements are handles of the caller's own type, handed back when they
//! are due.
//!
//! Invariants:
//! 1. Offsets are assigned in the order of the `Append` events and never twice: a write that failed
//!    takes everything assigned behind it along.
//! 2. Nothing is acknowledged but through `Effect::ReleaseAck`, and each `Append` is released exactly
//!    once. A refusal that was decided by looking at appends not yet acknowledged waits for them.
//! 3. The high watermark never moves back while the replica leads, and stands still while fewer
//!    replicas are in sync than `min.insync.replicas` asks for.
//! 4. A replica that lost its log never leads again: no event leads out of that.
//!
//! Kafka does the same in `kafka.cluster.Partition`, `DelayedProduce` and the purgatory around it.

#![forbid(unsafe_code)]

mod ack;
mod event;
mod leader;
mod replica;

pub use ack::{AckOutcome, RequiredAcks};
pub use event::{Append, Effect, Event, Leadership, ProducerVerdict, ReplicaSettings};
pub use replica::Replica;
