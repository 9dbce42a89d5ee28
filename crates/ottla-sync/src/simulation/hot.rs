//! What every switch point reads, apart from the rest so that one without a switch costs a few nanoseconds.

use std::cell::Cell;

use corosensei::Yielder;

/// What a switch point costs in simulated time, so that a loop that waits for a deadline gets there.
pub(super) const STEP_NANOS: u64 = 100;

/// No simulated thread runs: what is called is not part of a simulation.
pub(super) const NOBODY: u32 = u32::MAX;
/// The simulation drops what a killed host leaves on the heap.
pub(super) const UNDERTAKER: u32 = u32::MAX - 1;

pub(super) struct Hot {
    pub(super) current: Cell<u32>,
    pub(super) steps: Cell<u64>,
    /// From this step on, a switch point has to be looked at closely.
    pub(super) next_look: Cell<u64>,
    pub(super) hash: Cell<u64>,
    pub(super) is_recording: Cell<bool>,
    /// Nested sections in which no switch happens.
    pub(super) undivided: Cell<u32>,
    pub(super) yielder: Cell<*const Yielder<(), ()>>,
}

thread_local! {
    pub(super) static HOT: Hot = const { Hot {
        current: Cell::new(NOBODY),
        steps: Cell::new(0),
        next_look: Cell::new(0),
        hash: Cell::new(0),
        is_recording: Cell::new(false),
        undivided: Cell::new(0),
        yielder: Cell::new(std::ptr::null()),
    } };
}

/// Whether the caller runs in a simulation.
#[inline]
pub(crate) fn is_simulated() -> bool {
    HOT.with(|hot| hot.current.get() != NOBODY)
}

/// The slot of the thread that runs.
#[inline]
pub(crate) fn current() -> u32 {
    HOT.with(|hot| hot.current.get())
}
