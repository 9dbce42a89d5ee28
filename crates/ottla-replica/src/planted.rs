//! Defects planted by simulations, to show that their checkers find them. Without the feature
//! `planted-bugs`, and outside this crate's tests, there are none: `has` is constantly false.

/// The defects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// The high watermark uses the committed ISR without the member being added.
    CommittedIsrForHighWatermark,
    /// A registration with unchanged epochs drops the pending proposal.
    ForgetPendingOnSameEpoch,
    /// A proposal to shrink takes effect before it is committed.
    ShrinkBeforeItIsCommitted,
    /// A proposal that may have been applied is dropped when the controller refuses it as outdated.
    ForgetPendingOnInvalidVersion,
    /// A replica joins the ISR at the high watermark although it lacks records from before this
    /// leader epoch.
    JoinBelowLeaderEpochStart,
    /// A replica joins the ISR with the registered broker epoch, whichever process fetched.
    IgnoreBrokerEpoch,
    /// acks=all is released when the leader has the records.
    AcknowledgeWhenWritten,
    /// The high watermark advances below `min.insync.replicas`.
    AdvanceUnderMinIsr,
    /// A follower does not truncate a diverging log.
    KeepDivergingRecords,
    /// A follower accepts a response of another leader epoch.
    TakeStaleAnswers,
    /// A follower accepts a response for a different log with the same end offset.
    TakeAnswersByOffset,
    /// A follower's fetch offset is accepted without the divergence check.
    TrustFetchOffset,
    /// A follower fetches before the flush that `flush.messages` requires.
    FetchBeforeFlush,
    /// The high watermark decreases with the followers.
    LowerHighWatermark,
}

ottla_types::plantable_bugs!(any(test, feature = "planted-bugs"));
