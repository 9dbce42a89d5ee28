//! The broker: sockets, dispatch, one file per API, and the shell that drives the pure crates.
//!
//! Owns every thread, task, clock and random number of a running broker. What a request means is decided
//! in the pure crates wherever state is involved; the code here reads requests, gives events to whoever
//! owns the state, executes the effects, and sends the answers.
//!
//! The way of a request: `net/connection.rs` reads it, `dispatch.rs` decodes it and finds its handler in
//! the one table of served APIs, `api/<name>.rs` handles it. Produce has a way of its own from
//! `net/connection.rs` on, because it may overtake an unanswered Produce.

mod api;
mod api_table;
mod at_once;
mod authorizer;
mod broker;
mod complaints;
pub mod controller;
mod coordination;
mod dispatch;
mod groups;
mod http;
mod log_dirs;
mod metadata;
mod metrics;
mod net;
mod partition;
mod preflight;
mod quorum;
mod replication;
mod request_context;
mod request_memory;
mod share_groups;
mod stalls;
mod start;
mod telemetry;
mod throttle;
mod transactions;

pub use api_table::api_table_markdown;
pub use authorizer::{Authorizer, Operation, ResourceType};
pub use broker::{Broker, BrokerState};
pub use dispatch::{Endpoint, served_apis};
pub use log_dirs::THREADS_PER_DIRECTORY;
pub use metrics::{Metric, Metrics};
pub use net::{Connection, ListenerInfo};
pub use partition::Partition;
pub use preflight::{Facts, Finding, Preflight, Severity, Unformatted, Unserved};
pub use request_context::RequestContext;
pub use start::{RunningBroker, StartError};

/// Whether Kafka keeps the topic for itself (`Topic.isInternal`).
pub fn is_internal_topic(name: &str) -> bool {
    matches!(
        name,
        "__consumer_offsets" | "__transaction_state" | "__share_group_state"
    )
}

#[cfg(test)]
mod tests;
