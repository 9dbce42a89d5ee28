//! Defects planted by simulations, to show that their checkers find them. Without the feature
//! `planted-bugs`, and outside this crate's tests, there are none: `has` is constantly false.

/// The defects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// A vote is granted before it is in `quorum-state`: after a crash it is granted again, to
    /// another candidate.
    VoteIsNotPersisted,
    /// The same for the vote for itself.
    CandidateIsNotPersisted,
    /// Votes are granted to candidates that lack records.
    VoteForAnyLog,
    /// The leader counts its unflushed records towards the majority.
    CountUnflushed,
    /// Voters fetch without flushing the previous records.
    FollowerDoesNotFlush,
    /// Records of earlier epochs are committed before a record of the leader's own epoch.
    CommitEarlierEpochs,
    /// A restarted leader stands for election in its old epoch.
    LeadOnAfterRestart,
    /// The leader does not report a diverging log to the follower, so the follower does not
    /// truncate it.
    NoTruncation,
    /// A voter set stays in force after it was truncated.
    VotersSurviveTruncation,
    /// Voters are changed before the previous change is committed.
    ChangesOverlap,
}

ottla_types::plantable_bugs!(any(test, feature = "planted-bugs"));
