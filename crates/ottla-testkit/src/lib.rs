//! What tests of several crates share: the real broker as a process of its own, and a whole cluster in one thread, simulated.
//!
//! Development only: nothing of the product depends on this crate.

mod binary;
mod broker_process;
mod mounts;
pub mod simulation;
mod stalling_proxy;

pub use binary::ottla_binary;
pub use broker_process::{BrokerBuilder, BrokerProcess, Refusal};
pub use mounts::{
    give_back, make_read_only, may_mount, mount_small, take_away, this_program_with_mounts,
    with_mounts,
};
pub use stalling_proxy::StallingProxy;
