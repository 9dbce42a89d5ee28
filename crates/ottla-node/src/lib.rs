//! This node as a member of its cluster: the metadata quorum, the active controller, and the
//! channel to a remote active controller.
//!
//! From the bottom up: `quorum` holds the interfaces of the thread of the metadata quorum (requests
//! to it and requests that it sends), `controller_thread` is that thread, `open` and
//! `quorum_handle` start it and communicate with it. `controller` decides controller requests or
//! forwards them. `membership` keeps the node registered. The rest of the process uses [`Node`].
//! The other modules send requests to the controller that the broker itself starts.
//!
//! The decisions themselves are made in `ottla-raft` and `ottla-controller`.
//!
//! Kafka: `KafkaRaftManager`, `QuorumController`, `NodeToControllerChannelManager`, `BrokerLifecycleManager`.

// Tests make files and threads of their own.
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_types))]

// In this crate, because the profile of simulations keeps its debug assertions.
const _: () = assert!(
    !ottla_sync::IS_SIMULATION_BUILD || cfg!(debug_assertions),
    "a release must not be able to simulate, which costs it speed: build it without the tests' crates (cargo build --release -p ottla)"
);

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
