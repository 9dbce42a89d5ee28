//! Pure: coordination of consumer groups, of transactions and of share groups.
//!
//! A coordinator is the state of one partition of an internal topic: `__consumer_offsets` for groups,
//! `__transaction_state` for transactions, `__share_group_state` for how far share groups are. A request and the state give an [`Outcome`]: records to
//! append to that partition, replies, and changes to timers. Around each is a [`CoordinatorRuntime`], which
//! decides what is appended when and who is answered; its shell has the log, the clock and the threads.
//!
//! Nothing here knows a clock, a socket, a file or randomness: time and random numbers are arguments.
//! Wire versions stay outside too; where an older version behaves differently, the caller says so by
//! the name of the difference.

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

pub mod group;
mod java_collections;
mod java_hash;
pub mod persister;
#[cfg(not(feature = "planted-bugs"))]
mod planted;
#[cfg(feature = "planted-bugs")]
pub mod planted;
mod runtime;
pub mod share_partition;
pub mod share_session;
pub mod share_state;
pub mod transaction;

pub use java_hash::partition_for;
pub use runtime::{
    BATCH_HEADER_BYTES, Coordinator, CoordinatorResult, CoordinatorRuntime, EncodeRecord, LogEntry,
    OutboundBatch, Outcome, PendingWrite, ReplayError, Reply, ReplyId, ReplyTo, StepContext,
    TimerChange, TransactionEnd, TransactionalProducer, Write, WriteId, WriteKind,
    error_after_append,
};
