//! Pure: coordination of consumer groups.
//!
//! A coordinator is the state of one partition of `__consumer_offsets`. A request and the state give
//! an [`Outcome`]: records to append to that partition, replies, and changes to timers. The shell
//! around it (in `ottla-broker`) appends the records, tells the coordinator when they are committed
//! or could not be written, and calls it when a timer is due.
//!
//! Nothing here knows a clock, a socket, a file or randomness: time and random numbers are arguments.
//! Wire versions stay outside too; where an older version behaves differently, the caller says so by
//! the name of the difference.

#![forbid(unsafe_code)]

pub mod group;
mod java_hash;
mod outcome;
mod timeline;
mod timer_queue;

pub use java_hash::partition_for;
pub use outcome::{
    Outcome, Reply, ReplyTo, Response, TimerChange, TimerKey, Write, WriteId, error_after_append,
};
pub use timer_queue::TimerQueue;
