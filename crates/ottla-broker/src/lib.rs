//! The broker as a whole: start and stop, request dispatch, and one file per API.
//!
//! This crate connects the other crates and starts and stops them in order (`start.rs`). Sockets
//! belong to ottla-net, files to ottla-log and ottla-storage, and partitions to ottla-partition.
//! The pure crates make all decisions that involve state; the code here decodes requests, passes
//! them to the owner of the state, and encodes the responses.
//!
//! The path of a request: `ottla-net/src/connection.rs` reads it, `dispatch.rs` finds its handler
//! in the table of served APIs, and `api/<name>.rs` handles it. Produce has a separate path from
//! `ottla-net/src/connection.rs` on, because it may start before earlier Produces are answered.

// Tests create files and threads.
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_types))]

mod api;
mod api_table;
mod audit_topic;
mod authorization;
mod broker;
mod codec;
mod delegation_tokens;
mod dispatch;
mod endpoint;
mod features;
mod follow_listeners;
mod http;
mod listeners;
mod metrics;
mod publish;
mod quotas;
mod rights;
mod service;
mod start;
mod start_problems;
mod telemetry;
mod throttling;

// Measured by verification/growth.
#[doc(hidden)]
pub use api::fetch::sessions::{FetchContext, FetchSessions, PartitionKey};
pub use api_table::api_table_markdown;
pub use broker::Broker;
pub use dispatch::served_apis;
pub use endpoint::Endpoint;
pub use features::{Features, SupportedFeature};
pub use metrics::{RequestActivity, RequestLatency};
pub use ottla_context::{BrokerState, Limits, Shortage, StopStep, meminfo_bytes};
pub use ottla_net::{
    Authorizer, Connection, ListenerInfo, Operation, RequestContext, ResourceType, check_kerberos,
};
pub use ottla_partition::Partition;
pub use start::{RunningBroker, StartError};
pub use start_problems::{StartProblem, start_problems};

/// Whether the topic is internal (`Topic.isInternal`).
pub fn is_internal_topic(name: &str) -> bool {
    matches!(
        name,
        "__consumer_offsets" | "__transaction_state" | "__share_group_state"
    )
}

#[cfg(test)]
mod tests;
