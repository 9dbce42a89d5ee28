//! The broker as a whole: its start and stop, the dispatch of requests, and one file per API.
//!
//! It puts the other crates together and starts and stops them in order (`start.rs`); sockets are the
//! network's, files are the log's and the storage's, and a partition belongs to its own task. What a request means is
//! decided in the pure crates wherever state is involved; the code here reads requests, hands them to whoever owns the
//! state, and sends the answers.
//!
//! The way of a request: `ottla-net/src/connection.rs` reads it, `dispatch.rs` finds its handler in
//! the one table of served APIs, `api/<name>.rs` handles it. Produce has a way of its own from
//! `ottla-net/src/connection.rs` on, because it may overtake an unanswered Produce.

// Tests make files and threads of their own.
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_types))]

const _: () = assert!(
    !ottla_sync::IS_SIMULATION_BUILD || cfg!(debug_assertions),
    "a release must not be able to simulate, which costs it speed: build it without the tests' crates (cargo build --release -p ottla)"
);

mod api;
mod api_table;
mod authorization;
mod broker;
mod codec;
mod delegation_tokens;
mod dispatch;
mod endpoint;
mod features;
mod http;
mod metrics;
mod publish;
mod quotas;
mod rights;
mod service;
mod start;
mod telemetry;
mod throttling;

pub use api_table::api_table_markdown;
pub use broker::Broker;
pub use dispatch::served_apis;
pub use endpoint::Endpoint;
pub use features::{Features, SupportedFeature};
pub use ottla_context::{BrokerState, Limits, Shortage, StopStep, meminfo_bytes};
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
