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
//! What the shell has to do to serve StreamsGroupHeartbeat and StreamsGroupDescribe:
//!
//! 1. Serve the two requests where `group.coordinator.rebalance.protocols` names `streams` and the feature `streams.version`
//!    is at least 1, and answer UNSUPPORTED_VERSION elsewhere. Set `serves_streams_groups` and the `group_streams_*` settings; without the former the records of streams groups are
//!    left alone (`foreign.rs`).
//! 2. Before a heartbeat comes here: READ on the group; of the topology's topics (sources, repartition sinks and sources,
//!    changelogs) refuse internal and invalid names with STREAMS_INVALID_TOPOLOGY, and ask for DESCRIBE on all of them
//!    (TOPIC_AUTHORIZATION_FAILED); then `validate_streams_heartbeat`.
//! 3. A heartbeat's response comes with `topics_to_create`. If the client may CREATE on the cluster or on each of them, the
//!    shell has the controller create them on its behalf and does not wait. Otherwise it adds
//!    `Unauthorized to CREATE on topics a, b.` to the detail of the status MISSING_INTERNAL_TOPICS, after `; `. A creation that
//!    is under way is not asked for again; one that failed is not for two heartbeat intervals, during which its error is told
//!    in the same place. The members' heartbeats ask until the topics are in the metadata.
//! 4. Timers as for every group; `TimerKey::InitialRebalance` is that of streams groups.
//! 5. To describe a group: DESCRIBE on the group; on a topic of the described topology that the client may not DESCRIBE, the
//!    group is answered by TOPIC_AUTHORIZATION_FAILED; authorized operations are added if asked for.
//!
//! Source: `StreamsGroup`, `streams/**`, `KafkaApis.handleStreamsGroupHeartbeat`.

mod configured_topology;
mod copartitioning;
mod decision;
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
mod timers;
mod topology;
mod topology_error;
mod unwritten;
mod validate;

pub use heartbeat::StreamsHeartbeatContext;
pub use validate::validate_streams_heartbeat;

pub(super) use group::StreamsGroup;
#[cfg(test)]
pub(super) use member::MemberState;
pub(super) use record::{STREAMS_GROUP_VALUE_VERSION, group_tombstones};
pub(super) use replay::{group_of, is_end_of_group};
pub(super) use timers::initial_rebalance;
pub(super) use unwritten::UnwrittenStates;
