//! A whole cluster in one thread: a seed decides everything that happens in it.
//!
//! It drives the pure machines that the product runs, `ottla_raft::Quorum`, the decisions of `ottla_controller`, the images of
//! `ottla_metadata`, `ottla_replica::Replica`, the coordinators of groups, of transactions and of the state of share groups and the share
//! partitions of `ottla-coordinator`, and the state of producers and leader epochs of `ottla-log`. What stands around them here
//! (`quorum_shell`, `deciding`, `broker_shell`, `controller_calls`, `replica_shell`, `coordinators`, `coordinator_shell`,
//! `share_partitions`) does what the shell of `ottla-broker` does, in the same
//! order; each file names the functions that it mirrors. Time, network and disks are simulated.
//!
//! First faults (`faults`), then peace, in which everything has to come together. `checkers` looks on, one property a file. A
//! seed that fails is run again with its `history`. `docs/simulation.md` says how to read one.

#[cfg(all(feature = "planted-bugs", not(debug_assertions)))]
compile_error!("planted-bugs are for simulations: no build with optimisations may have them");

mod checkers;
mod history;
pub mod planted;

mod clock;
mod random;

mod message;
mod network;

mod metadata_log;
mod partition_log;

mod node;

mod deciding;
mod quorum_shell;
mod quorum_wire;

mod broker_shell;
mod controller_calls;
mod replica_shell;

mod coordinator_shell;
mod coordinators;
mod share_partitions;

mod admin;
mod clients;
mod group_clients;
mod membership;
mod movers;
mod sharers;

mod faults;
mod healed;
mod outcome;
mod setup;
mod world;

pub use outcome::Outcome;
pub use random::Random;
pub use setup::Groups;

/// Who works together in the run of a seed, without running it.
pub fn groups_of(seed: u64) -> Groups {
    setup::Setup::draw(&mut Random::new(seed)).groups
}

/// Runs a seed to its end, or to the first finding. An assertion of the product that fails is a finding too.
pub fn run(seed: u64) -> Outcome {
    run_with(seed, history::History::default).0
}

/// The same, with all that happened.
pub fn replay(seed: u64) -> (Outcome, Vec<String>) {
    run_with(seed, history::History::kept)
}

fn run_with(seed: u64, history: fn() -> history::History) -> (Outcome, Vec<String>) {
    world::World::new(seed, history()).run(seed)
}
