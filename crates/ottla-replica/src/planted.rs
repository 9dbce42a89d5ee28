//! Bugs that simulations plant, to show that their checkers find them. Without the feature `planted-bugs`, and outside of
//! this crate's tests, there are none: `has` is constantly false.

/// What can be broken on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// The high watermark counts the committed ISR, without the member that is being added.
    CommittedIsrForHighWatermark,
    /// A registration that says nothing new makes the leader forget what it proposed.
    ForgetPendingOnSameEpoch,
    /// A proposal to shrink counts before it is committed.
    ShrinkBeforeItIsCommitted,
    /// A proposal that may have been applied is forgotten when the controller refuses it as out of date.
    ForgetPendingOnInvalidVersion,
    /// A replica joins the ISR at the high watermark, though it lacks records from before this leader's epoch.
    JoinBelowLeaderEpochStart,
    /// A replica joins the ISR with the broker epoch of the registration, whichever instance fetched.
    IgnoreBrokerEpoch,
    /// acks=all is released when the leader has the records.
    AcknowledgeWhenWritten,
    /// The high watermark moves though too few replicas are in sync.
    AdvanceUnderMinIsr,
    /// A follower does not truncate when the leader's log diverges.
    KeepDivergingRecords,
    /// A follower takes an answer that belongs to another leader epoch.
    TakeStaleAnswers,
    /// A follower takes an answer that belongs to another log of the same end.
    TakeAnswersByOffset,
    /// A follower's log end offset is taken from a fetch without checking that its log agrees.
    TrustFetchOffset,
    /// A follower fetches on while `flush.messages` waits for the disk.
    FetchBeforeFlush,
    /// The high watermark follows the followers back.
    LowerHighWatermark,
}

ottla_types::plantable_bugs!(any(test, feature = "planted-bugs"));
