//! This node in its cluster: its part in the metadata quorum, the controller while it leads, and the way to the active
//! controller wherever that is.
//!
//! From below: `quorum` holds the edges of the thread that takes part in the metadata quorum (what it is asked and asks
//! others), `controller_thread` is that thread, `open` and `quorum_handle` start it and talk to it. `controller` decides
//! or forwards requests to the controller. `membership` keeps the node registered. [`Node`] is what the rest of the
//! process holds; the files beside it are what a broker asks the controller for on its own.
//!
//! What is decided is decided by `ottla-raft` and `ottla-controller`.
//!
//! Kafka: `KafkaRaftManager`, `QuorumController`, `NodeToControllerChannelManager`, `BrokerLifecycleManager`.

// Tests make files and threads of their own.
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_types))]

pub mod quorum;

pub mod controller_thread;

pub mod open;
pub mod quorum_handle;

pub mod controller;

pub mod membership;

pub mod node;

pub mod auto_topic_creation;
pub mod dir_assignments;
pub mod dir_reports;
pub mod lost_brokers;
pub mod own_settings;
pub mod producer_id_blocks;

pub use controller::handle::ControllerHandle;
pub use controller::requests::{ControllerRequest, Facts};
pub use membership::Membership;
pub use node::Node;
pub use quorum::status::QuorumStatus;
pub use quorum_handle::QuorumHandle;
