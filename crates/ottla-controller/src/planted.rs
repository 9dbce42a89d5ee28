//! Bugs that simulations plant, to show that their checkers find them. Without the feature `planted-bugs` there are none:
//! `has` is constantly false.

/// What can be broken on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// Where nobody is in sync, any replica is elected, whatever `unclean.leader.election.enable` says.
    AlwaysElectUncleanly,
    /// A change of the ISR is taken from who leads no more.
    TakeIsrOfAnyEpoch,
    /// Producer ids are given out twice.
    RepeatProducerIds,
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

    /// Plants a bug on this thread, in place of the one before.
    pub fn plant(bug: Option<Bug>) {
        PLANTED.set(bug);
    }
}
