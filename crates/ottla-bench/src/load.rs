//! A load generator whose own cost is so low that a run measures the broker.
//!
//! It speaks the protocol over blocking sockets, with or without TLS, one or two threads per connection: requests are prepared before the
//! clock starts, and fetched data is received into one buffer and dropped. It works against any broker that speaks
//! Kafka's protocol, and can measure the process of a broker on the same machine.

pub mod access;
pub mod bare_loop;
pub mod cluster;
pub mod connect;
pub mod connections;
pub mod consumer_member;
pub mod fetch;
pub mod groups;
pub mod heartbeats;
pub mod large_group;
pub mod latency;
pub mod offsets;
pub mod partitions;
pub mod prepared;
pub mod process_usage;
pub mod produce;
pub mod report;
pub mod rest_of_machine;
pub mod security;
mod tls_socket;
pub mod topic;
pub mod wire;
