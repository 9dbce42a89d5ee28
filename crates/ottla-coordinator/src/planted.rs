//! Bugs that simulations plant to show that their checkers detect them. Without the feature
//! `planted-bugs`, `has` always returns false.

/// A bug that can be planted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// Adds partitions to a producer's transaction without a check of the epoch.
    TakeAnyProducerEpoch,
    /// Treats a partition as completed even if its marker could not be written.
    CompleteWithoutMarkers,
    /// Commits the offsets of a transaction even if it is aborted.
    CommitOffsetsOfAborted,
    /// Assigns partitions that other members have not given up.
    AssignWhatOthersHave,
    /// Frees partitions when their revocation is requested instead of when the member confirms it.
    RevokeAtOnce,
    /// Accepts offsets from former members.
    TakeCommitsOfFormerMembers,
    /// Releases the records of all members when one member of a share group leaves.
    ReleaseWhatOthersHold,
    /// A new leader treats records without persisted state as settled.
    ForgetGaps,
    /// Ignores the limit on the delivery count.
    DeliverWithoutLimit,
}

ottla_types::plantable_bugs!(feature = "planted-bugs");
