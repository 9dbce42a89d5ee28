//! Bugs that simulations plant to show that their checkers detect them. Without the feature
//! `planted-bugs`, `has` always returns false.

/// A bug that can be planted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// If no replica is in sync, any replica is elected, regardless of
    /// `unclean.leader.election.enable`.
    AlwaysElectUncleanly,
    /// Accepts ISR changes from former leaders.
    TakeIsrOfAnyEpoch,
    /// Assigns the same producer ids twice.
    RepeatProducerIds,
}

ottla_types::plantable_bugs!(feature = "planted-bugs");
