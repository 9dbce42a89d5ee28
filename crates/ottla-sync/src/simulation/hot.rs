//! The data that every switch point reads, kept apart so that a switch point without a switch costs
//! a few nanoseconds.

use std::cell::Cell;

use corosensei::Yielder;

/// The simulated time of a switch point, so that a loop waiting for a deadline makes progress.
pub(super) const STEP_NANOS: u64 = 100;

/// No simulated thread is running: the call is not part of a simulation.
pub(super) const NONE: u32 = u32::MAX;
/// The simulation is dropping the heap values of a killed host.
pub(super) const UNDERTAKER: u32 = u32::MAX - 1;

pub(super) struct Hot {
    pub(super) current: Cell<u32>,
    pub(super) steps: Cell<u64>,
    /// The step from which a switch point needs the slow path.
    pub(super) next_look: Cell<u64>,
    pub(super) hash: Cell<u64>,
    pub(super) is_recording: Cell<bool>,
    /// Depth of nested sections without switches.
    pub(super) undivided: Cell<u32>,
    pub(super) yielder: Cell<*const Yielder<(), ()>>,
}

thread_local! {
    pub(super) static HOT: Hot = const { Hot {
        current: Cell::new(NONE),
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
    HOT.with(|hot| hot.current.get() != NONE)
}

/// The slot of the running thread.
#[inline]
pub(crate) fn current() -> u32 {
    HOT.with(|hot| hot.current.get())
}
