//! Simulates whole clusters with a seed: the product's own nodes and the real client on simulated
//! hosts, disks, clocks and links, with faults. Checks the responses that clients have received,
//! the contents of the disks, and the state after the faults are over (`docs/simulation.md`).

/// As the product: the allocator of the C library takes twice as long.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

mod administrator;
mod campaign;
mod checks;
mod clients;
mod cluster;
mod faults;
mod former_leaders;
mod ledger;
mod lockers;
mod logs;
mod movers;
mod node;
mod outcome;
mod owners;
#[cfg(feature = "planted-bugs")]
pub mod planted;
mod quorum_leaders;
mod reassigner;
mod sharers;
mod stories;
mod unclean;
mod uncommitted;
mod world;

pub use campaign::{Campaign, Ran, parse_time};
pub use ledger::Ledger;
pub use outcome::Outcome;
pub use world::{count_switch_points, hashed, run, tell};
