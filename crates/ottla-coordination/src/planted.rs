//! Bugs that simulations plant, to show that their checkers find them. Without the feature `planted-bugs` there are none:
//! `has` is constantly false.

/// What can be broken on purpose.
#[cfg_attr(not(feature = "planted-bugs"), expect(dead_code))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// That the log has answered for a batch is one step, and what comes of it another.
    AnswerForAppendsInTwoSteps,
    /// The same, where the log has refused the batch.
    RefuseAppendsInTwoSteps,
    /// The records of transactions are appended while too few replicas are in sync.
    AppendUnderMinIsr,
    /// Whether a share partition is led here is looked at before the lock that its closing takes.
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

    /// Plants a bug on this thread, in place of the one before. All simulated threads are on one.
    pub fn plant(bug: Option<Bug>) {
        PLANTED.set(bug);
    }
}
