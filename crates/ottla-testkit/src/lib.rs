//! What tests of several crates share: the real broker as a process of its own.
//!
//! Development only: nothing of the product depends on this crate.

mod binary;
mod broker_process;

pub use binary::ottla_binary;
pub use broker_process::{BrokerBuilder, BrokerProcess, Refusal};
