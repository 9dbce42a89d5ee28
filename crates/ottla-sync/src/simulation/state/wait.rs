//! The reason for which a thread or task waits, and its wake-up.

use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

/// One wait of one thread. Waking it twice, or after the wait has ended, has no effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Token {
    pub(crate) slot: u32,
    pub(crate) epoch: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
    Lock {
        holder: Holder,
    },
    Condition,
    Future,
    /// A worker waiting for a task.
    Task,
    Sleep,
    Disk,
}

/// The last holder of a lock, and where it was taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holder {
    pub(crate) slot: u32,
    pub(crate) since: &'static Location<'static>,
}

pub(crate) enum Timer {
    Thread(Token),
    Task(Waker),
}

/// A number for an object that threads wait for. It is never printed or used for ordering, so it
/// does not influence a run.
pub(crate) fn new_object() -> u64 {
    static OBJECTS: AtomicU64 = AtomicU64::new(1);
    OBJECTS.fetch_add(1, Ordering::Relaxed)
}
