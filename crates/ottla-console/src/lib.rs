//! The console: a web page and its JSON API, for every cluster that speaks Kafka's protocol.
//!
//! `openapi.yaml` is the contract of the API. Everything is done through [`ottla_client`], with the
//! credentials of the console or, with logins, of the user: the cluster's ACLs decide what the user
//! may see and do.
//!
//! - Users that log in at an identity provider act with its access token.
//! - Every request passes the guard, which refuses other sites, and writes the audit log.
//! - Pages that show the cluster are answered from a snapshot, which is taken regularly while a
//!   page is open.
//! - Each stream of records has its own consumer, without groups and commits. Records that name a
//!   schema of the schema registry are decoded.
//! - Runs of `ottla bench` are child processes, and never more than one.
//! - Every list, stream, session and connection is bounded, and so is the memory of all requests
//!   together.

mod assets;
mod audit;
mod from_broker;

mod problem;

mod budget;
mod sampling;

mod registry;

mod kept;
mod list;
mod view;

mod details;

mod rebalancing;
mod visit;

mod attempts;
mod cookie;
mod sessions;

mod host;
mod oidc;

mod measure;

mod config;

mod console;
mod extract;
mod guard;
mod records;

mod api;
mod server;

pub use config::ConsoleConfig;
pub use from_broker::{
    Activity, FromBroker, Latency, ListenerConnections, RequestTimes, SlowRequest,
};
pub use measure::MeasureConfig;
pub use oidc::OidcConfig;
pub use registry::RegistryConfig;
pub use server::{bind, serve, serve_from};
