//! The common parts of all coordinators: their interface ([`Coordinator`], [`Outcome`]), and the
//! state machine around them ([`CoordinatorRuntime`]), which a shell drives.
//!
//! Nothing here depends on groups, transactions or share partitions. Source: `CoordinatorRuntime`,
//! whose threads, log and clock belong to the shell here.

mod outcome;

mod append_error;
mod append_queue;
mod coordinator_runtime;
mod replay_error;
mod timeline;
mod timer_queue;

pub use append_error::error_after_append;
pub use append_queue::{BATCH_HEADER_BYTES, OutboundBatch, PendingWrite};
pub use coordinator_runtime::{CoordinatorRuntime, StepContext};
pub(crate) use outcome::responses;
pub use outcome::{
    Coordinator, CoordinatorResult, EncodeRecord, LogEntry, Outcome, Reply, ReplyId, ReplyTo,
    TimerChange, TransactionEnd, TransactionalProducer, Write, WriteId, WriteKind,
};
pub use replay_error::ReplayError;
pub(crate) use timeline::Timeline;
#[cfg(test)]
pub(crate) use timer_queue::TimerQueue;
