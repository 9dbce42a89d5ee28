//! Bugs that simulations plant, to show that their checkers find them. Without the feature `planted-bugs` there are none:
//! `has` is constantly false.

/// What can be broken on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// Partitions are added to the transaction of a producer, whatever its epoch.
    TakeAnyProducerEpoch,
    /// A partition counts as ended, whether or not its marker could be written.
    CompleteWithoutMarkers,
    /// The offsets of a transaction count, however it ends.
    CommitOffsetsOfAborted,
    /// A member is given partitions that others have not given up.
    AssignWhatOthersHave,
    /// What a member is told to give up is free before it says that it has given it up.
    RevokeAtOnce,
    /// Offsets are taken from whoever was a member once.
    TakeCommitsOfFormerMembers,
    /// With a member of a share group goes what any member holds.
    ReleaseWhatOthersHold,
    /// A new leader takes for settled what the persisted state of a share partition does not tell of.
    ForgetGaps,
    /// Records are given back to be delivered again, however often they were.
    DeliverWithoutLimit,
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
