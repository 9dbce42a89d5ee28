//! Bugs that are planted to show that the checkers find them: those that the pure crates have places for, and those of
//! the simulated shells. Only with the feature `planted-bugs`.

/// What can be broken in the simulated shells, where a checker's subject is not a pure crate's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// Consumers are given what is not committed.
    ReadPastHighWatermark,
    /// A leader takes for committed what it has written.
    CommitWhatIsWritten,
    /// Nobody looks at a producer's sequence numbers.
    TakeEveryBatch,
    /// The controller answers when its records are in its own log.
    AnswerBeforeCommit,
    /// A follower whose leader could not be reached once does not ask it again.
    GiveUpFetching,
    /// A broker acts by the metadata from before its registration: it may lead on where it led before a crash.
    ServeBeforeRegistration,
    /// `read_committed` consumers are given what is not decided.
    ReadPastLastStableOffset,
    /// Transactions that were committed are given to consumers among the aborted ones.
    CountCommitsAsAborts,
    /// A coordinator answers, and goes on, when its records are in its own log.
    AnswerBeforeReplication,
}

#[cfg(not(feature = "planted-bugs"))]
pub(crate) const fn has(_: Bug) -> bool {
    false
}

#[cfg(feature = "planted-bugs")]
pub(crate) use in_simulations::has;
#[cfg(feature = "planted-bugs")]
pub use in_simulations::{Planted, plant};

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

    /// A bug, and where it is planted.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Planted {
        Quorum(ottla_raft::planted::Bug),
        Controller(ottla_controller::planted::Bug),
        Coordinator(ottla_coordinator::planted::Bug),
        Replica(ottla_replica::planted::Bug),
        Shell(Bug),
    }

    /// Plants a bug on this thread, in place of the one before.
    pub fn plant(bug: Option<Planted>) {
        let (mut quorum, mut controller, mut replica, mut shell) = (None, None, None, None);
        let mut coordinator = None;
        match bug {
            Some(Planted::Quorum(bug)) => quorum = Some(bug),
            Some(Planted::Controller(bug)) => controller = Some(bug),
            Some(Planted::Coordinator(bug)) => coordinator = Some(bug),
            Some(Planted::Replica(bug)) => replica = Some(bug),
            Some(Planted::Shell(bug)) => shell = Some(bug),
            None => {}
        }
        ottla_raft::planted::plant(quorum);
        ottla_controller::planted::plant(controller);
        ottla_coordinator::planted::plant(coordinator);
        ottla_replica::planted::plant(replica);
        PLANTED.set(shell);
    }
}
