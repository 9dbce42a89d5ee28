//! Bugs that simulations plant, to show that their checkers find them. Without the feature `planted-bugs`, and outside of
//! this crate's tests, there are none: `has` is constantly false.

/// What can be broken on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// A vote is given before it is in `quorum-state`: after a crash it is given again, to another.
    VoteIsNotPersisted,
    /// So is the vote for oneself.
    CandidateIsNotPersisted,
    /// Votes are given to nodes that lack records.
    VoteForAnyLog,
    /// The leader counts what it has not flushed as its share of the majority.
    CountUnflushed,
    /// Voters fetch on without having flushed what they got.
    FollowerDoesNotFlush,
    /// Records of earlier epochs count as committed before one of the leader's own is.
    CommitEarlierEpochs,
    /// A leader that was restarted stands for election in its epoch once more.
    LeadOnAfterRestart,
    /// A follower whose log has diverged is not told to cut it.
    NoTruncation,
    /// A voter set that was cut off with the log goes on being in force.
    VotersSurviveTruncation,
    /// Voters are changed before the last change is committed.
    ChangesOverlap,
}

ottla_types::plantable_bugs!(any(test, feature = "planted-bugs"));
