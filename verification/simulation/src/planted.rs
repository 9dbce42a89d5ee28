//! Bugs that are planted to show that the checks detect them. Only with the feature `planted-bugs`.

/// A bug, by the crate in which it is planted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Planted {
    Quorum(ottla_raft::planted::Bug),
    Controller(ottla_controller::planted::Bug),
    Coordinator(ottla_coordinator::planted::Bug),
    Replica(ottla_replica::planted::Bug),
    /// A bug of the shell, by its name in the code.
    Shell(&'static str),
}

/// Plants a bug on this thread, and removes the previous one.
pub fn plant(bug: Option<Planted>) {
    ottla_raft::planted::plant(None);
    ottla_controller::planted::plant(None);
    ottla_coordinator::planted::plant(None);
    ottla_replica::planted::plant(None);
    ottla_sync::planted::plant(None);
    match bug {
        Some(Planted::Quorum(bug)) => ottla_raft::planted::plant(Some(bug)),
        Some(Planted::Controller(bug)) => ottla_controller::planted::plant(Some(bug)),
        Some(Planted::Coordinator(bug)) => ottla_coordinator::planted::plant(Some(bug)),
        Some(Planted::Replica(bug)) => ottla_replica::planted::plant(Some(bug)),
        Some(Planted::Shell(bug)) => ottla_sync::planted::plant(Some(bug)),
        None => {}
    }
}
