//! Coordinators of groups, transactions and share groups as pure state machines.
//!
//! A coordinator is the state of one partition of an internal topic: `__consumer_offsets` for
//! groups, `__transaction_state` for transactions, `__share_group_state` for the state of share
//! groups. A request and the state give an [`Outcome`]: records to append to that partition,
//! replies, and timer changes. Each coordinator is inside a [`CoordinatorRuntime`], which decides
//! the order of appends and when each request is answered. Its shell has the log, the clock and the
//! threads.
//!
//! This crate uses no clock, socket, file or random number generator: time and random numbers are
//! arguments. Request versions are not visible here either; if an older version behaves
//! differently, the caller passes a named flag.

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

pub mod dead_letter_queue;
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
