//! The metadata quorum over a network: who is asked and answered, and how the rest of the node reaches the thread
//! that takes part in it.
//!
//! The state machine is `ottla-raft`; the thread that drives it is `controller::controller_thread`. Here are its
//! edges: `open` is what it begins with, `network` sends its requests and `outgoing` decodes what comes back, `served` is
//! what it gives to other nodes, `work`, `handle` and `status` are how the node asks it.
//!
//! In Kafka: `KafkaRaftManager`, `KafkaNetworkChannel`, `RaftUtil`.

mod open;

pub(crate) mod outgoing;

pub(crate) mod network;

pub(crate) mod served;

pub(crate) mod work;

pub(crate) mod status;

mod handle;

pub(crate) use handle::{QuorumHandle, start};
pub(crate) use open::{bootstrap_servers, open, static_voters};
pub use status::QuorumStatus;

#[cfg(test)]
mod tests;
