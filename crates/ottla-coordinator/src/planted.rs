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

ottla_types::plantable_bugs!(feature = "planted-bugs");
