//! Share groups of KIP-932, as far as it is about their members: each sends heartbeats and is told its partitions in the
//! answers. Which records of them it gets is between it and the partitions' leaders.
//!
//! A heartbeat is one decision in three steps, as with consumer groups (`heartbeat.rs`), but that a partition may have
//! several members and a member gets its target at once. Partitions are assigned when the share coordinator has state of
//! them, for which heartbeats see to (`initialize.rs`).
//! What administrators change of how far a group is goes the same way (`offsets.rs`).
//! Source: `GroupMetadataManager`, `ShareGroup`.

mod describe;
mod group;
mod heartbeat;
mod initialize;
mod leave;
mod member;
mod offsets;
mod record;
mod replay;
mod state_partitions;
mod validate;

pub use heartbeat::ShareHeartbeatContext;
pub use state_partitions::PartitionsOfTopics;
pub use validate::validate_share_heartbeat;

pub(super) use group::ShareGroup;
pub(super) use record::share_group_tombstones;
