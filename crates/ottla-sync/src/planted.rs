//! Defects planted by simulations in crates that use this one, to show that they are found. Without
//! the feature `planted-bugs` there are none: [`has`] is constantly false.

// A build that can simulate is one for tests, even without debug assertions.
#[cfg(all(
    feature = "planted-bugs",
    not(any(debug_assertions, feature = "simulation"))
))]
compile_error!("bugs are planted only in builds for tests");

/// Whether the named defect is planted.
#[cfg(not(feature = "planted-bugs"))]
#[inline(always)]
pub const fn has(_bug: &'static str) -> bool {
    false
}

#[cfg(feature = "planted-bugs")]
pub use in_simulations::{has, plant};

#[cfg(feature = "planted-bugs")]
mod in_simulations {
    use std::cell::Cell;

    thread_local! {
        static PLANTED: Cell<Option<&'static str>> = const { Cell::new(None) };
    }

    /// Whether the named defect is planted.
    pub fn has(bug: &'static str) -> bool {
        PLANTED.get() == Some(bug)
    }

    /// Plants a defect on this thread, replacing the previous one.
    pub fn plant(bug: Option<&'static str>) {
        PLANTED.set(bug);
    }
}
