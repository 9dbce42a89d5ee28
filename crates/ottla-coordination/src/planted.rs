//! Defects planted by simulations, to show that their checkers find them. Without the feature
//! `planted-bugs` there are none: `has` is constantly false.

/// The defects.
#[cfg_attr(not(feature = "planted-bugs"), expect(dead_code))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// Processes the result of an append in two steps.
    AnswerForAppendsInTwoSteps,
    /// The same for an append that was refused.
    RefuseAppendsInTwoSteps,
    /// Appends transaction records while the ISR is below `min.insync.replicas`.
    AppendUnderMinIsr,
    /// Checks the leadership of a share partition before taking the lock that its closing takes.
    LookBeforeTheLock,
}

#[cfg(not(feature = "planted-bugs"))]
pub(crate) const fn has(_: Bug) -> bool {
    false
}

#[cfg(feature = "planted-bugs")]
pub(crate) use in_simulations::has;
#[cfg(feature = "planted-bugs")]
pub use in_simulations::plant;

#[cfg(feature = "planted-bugs")]
mod in_simulations {
    use std::cell::Cell;

    use super::Bug;

    thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    pub(crate) fn has(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }

    /// Plants a defect on this thread, replacing the previous one. All simulated threads run on one
    /// thread.
    pub fn plant(bug: Option<Bug>) {
        PLANTED.set(bug);
    }
}
