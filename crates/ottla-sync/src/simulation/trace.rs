//! The record of switch points.

use std::fmt;
use std::panic::Location;

/// The operation of a thread at a switch point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    Lock,
    Unlock,
    Notify,
    Atomic,
    Swap,
    Send,
    Receive,
    Spawn,
    Poll,
    Yield,
    Clock,
    Disk,
    Net,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(super) nanos: u64,
    pub(super) thread: u64,
    pub(super) op: Op,
    pub(super) at: &'static Location<'static>,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (nanos, thread, op, at) = (self.nanos, self.thread, self.op, self.at);
        write!(
            f,
            "{nanos:>12} #{thread} {op:?} {}:{}",
            at.file(),
            at.line()
        )
    }
}
