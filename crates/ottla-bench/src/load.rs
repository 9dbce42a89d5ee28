//! A load generator that costs so little that the broker is what is measured.
//!
//! It speaks the protocol itself over blocking sockets, one or two threads per connection: requests are prepared
//! before the clock starts, and what is fetched is received into one buffer and dropped. It works against any broker
//! that speaks Kafka's protocol; the process of a broker on the same machine can be watched from outside.

pub mod bare_loop;
pub mod cluster;
pub mod fetch;
pub mod groups;
pub mod latency;
pub mod offsets;
pub mod prepared;
pub mod process_usage;
pub mod produce;
pub mod report;
pub mod topic;
pub mod wire;
