//! Shared test support: the real broker as a process, and checks of the responses that clients
//! received.
//!
//! Development only: nothing of the product depends on this crate.

mod binary;
mod broker_process;
pub mod certificates;
pub mod client_histories;
mod documented;
pub mod fault_server;
pub mod identity_provider;
mod mounts;
mod old_messages;
pub mod peer;
mod running_tool;
pub mod said;
mod stalling_proxy;
pub mod tokens;
mod tool_output;

pub use binary::{ottla_binary, words};
pub use broker_process::{BrokerBuilder, BrokerProcess, Refusal};
pub use documented::assert_documented;
pub use mounts::{
    give_back, make_read_only, may_mount, mount_small, take_away, this_program_with_mounts,
    unmount, with_mounts,
};
pub use old_messages::old_message;
pub use ottla_ports::{lease_ports, lease_range};
pub use running_tool::RunningTool;
pub use stalling_proxy::StallingProxy;
pub use tool_output::ToolOutput;
