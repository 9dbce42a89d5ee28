//! The broker: sockets, dispatch, one file per API, and the shell that drives the pure crates.
//!
//! Owns every thread, task, clock and random number of a running broker. What a request means is decided
//! in the pure crates wherever state is involved; the code here reads requests, gives events to whoever
//! owns the state, executes the effects, and sends the answers.
//!
//! The way of a request: `ottla-net/src/connection.rs` reads it, `dispatch.rs` decodes it and finds its handler in
//! the one table of served APIs, `api/<name>.rs` handles it. Produce has a way of its own from
//! `ottla-net/src/connection.rs` on, because it may overtake an unanswered Produce.

mod api;
mod api_table;
mod broker;
mod dispatch;
mod features;
mod http;
mod metrics;
mod publish;
mod service;
mod start;
mod telemetry;
mod throttle;

pub use api_table::api_table_markdown;
pub use broker::Broker;
pub use dispatch::{Endpoint, served_apis};
pub use features::{Features, SupportedFeature};
pub use ottla_context::BrokerState;
pub use ottla_net::{
    Authorizer, Connection, ListenerInfo, Operation, RequestContext, ResourceType,
};
pub use ottla_partition::Partition;
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
