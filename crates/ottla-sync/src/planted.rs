//! Bugs that simulations plant in the crates that use this one, to show that they find them. Without the feature
//! `planted-bugs` there are none: [`has`] is constantly false.

#[cfg(all(feature = "planted-bugs", not(debug_assertions)))]
compile_error!("bugs are planted only in builds for tests");

/// Whether the code is to be wrong in the way that goes by this name.
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

    /// Whether the code is to be wrong in the way that goes by this name.
    pub fn has(bug: &'static str) -> bool {
        PLANTED.get() == Some(bug)
    }

    /// Plants a bug on this thread, in place of the one before.
    pub fn plant(bug: Option<&'static str>) {
        PLANTED.set(bug);
    }
}
