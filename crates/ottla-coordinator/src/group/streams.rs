//! Streams groups (KIP-1071): the members of a Kafka Streams application send their topology, and
//! receive their tasks in the responses to their heartbeats.
//!
//! A topology describes the parts of the application (`topology.rs`). Together with the cluster's
//! topics it determines the number of tasks and the internal topics with their partition counts, or
//! a reason why these cannot be determined (`configured_topology.rs`). The assignor distributes the
//! tasks (`sticky_assignor.rs`), and the heartbeats of each member reconcile it with its target at
//! its own pace (`heartbeat.rs`, `target.rs`, `reconcile.rs`). An empty classic group is replaced
//! by a streams group when a member joins with that protocol, and vice versa. There is no other
//! conversion.
//!
//! As in Kafka 4.4, a member with an instance id is static: it can leave and return with another
//! member id, and gets its tasks back. No assignor of Kafka assigns warm-up tasks so far
//! (`AssignmentRefiner` of 4.4.0 returns the target as it is), so those of a member are taken back.
//! The offsets that members report choose the successor of a task's owner (`task_offsets.rs`).
//! Regular expressions for source topics and topology changes are refused (`validate.rs`). The
//! assignor ignores racks and client tags, which are still stored and shown.
//!
//! The response of a heartbeat contains the missing internal topics. The shell asks the controller
//! to create them on the member's behalf and does not wait: the members' heartbeats check until the
//! topics are in the metadata.
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
mod task_offsets;
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
