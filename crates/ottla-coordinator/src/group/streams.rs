//! Streams groups of KIP-1071: the members of a Kafka Streams application tell their topology, and are told their tasks in
//! the answers to their heartbeats.
//!
//! A topology is what the application is made of (`topology.rs`). Together with the cluster's topics it says how many tasks
//! there are, and which internal topics have to exist with how many partitions, or why that cannot be said
//! (`configured_topology.rs`). The assignor says who is to have which task (`sticky_assignor.rs`), and each member is brought
//! to that by its heartbeats, at its own pace (`heartbeat.rs`, `target.rs`, `reconcile.rs`). An empty classic group becomes a
//! streams group when a member joins it so, and the other way round; there is no other way between kinds of groups.
//!
//! Kafka 4.3.1 has no static members in streams groups, no warm-up tasks, no offsets of tasks, no regular expressions for
//! source topics, and does not let a topology change: what asks for them is refused (`validate.rs`). Its assignor looks
//! neither at racks nor at client tags, which are kept and shown all the same.
//!
//! A heartbeat's response comes with the internal topics that are to be created. The shell has the controller create them
//! on the member's behalf and does not wait: the members' heartbeats ask until the topics are in the metadata.
//!
//! Source: `StreamsGroup`, `streams/**`.

mod configured_topology;
mod copartitioning;
mod describe;
mod endpoints;
mod fence;
mod group;
mod heartbeat;
mod member;
mod offsets;
mod partition_counts;
mod process_state;
mod reconcile;
mod record;
mod replay;
mod settings;
mod sticky_assignor;
mod target;
mod tasks;
mod topology;
mod topology_error;
mod unwritten;
mod validate;

pub use heartbeat::StreamsHeartbeatContext;
pub use topology_error::StreamsStatus;
pub use validate::validate_streams_heartbeat;

pub(super) use group::StreamsGroup;
#[cfg(test)]
pub(super) use member::MemberState;
pub(super) use record::group_tombstones;
pub(super) use unwritten::UnwrittenStates;
