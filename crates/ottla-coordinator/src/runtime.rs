//! What all coordinators have in common: the terms in which one asks for records, replies and timers ([`Coordinator`],
//! [`Outcome`]), and the machine around it ([`CoordinatorRuntime`]), which a shell drives.
//!
//! It knows no group, no transaction and no share partition.
//! Source: `CoordinatorRuntime`, of which the threads, the log and the clock are the shell's.

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
