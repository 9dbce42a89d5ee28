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

ottla_types::plantable_bugs!(feature = "planted-bugs");
