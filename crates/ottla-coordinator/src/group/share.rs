//! The membership of share groups (KIP-932): each member sends heartbeats and receives its
//! partitions in the responses. The partition leaders decide which records it acquires.
//!
//! A heartbeat is handled in three steps as in consumer groups (`heartbeat.rs`), except that a
//! partition can have several members, and a member gets its target assignment at once. Partitions
//! are assigned when their state at the share coordinator is initialized, which heartbeats start
//! (`initialize.rs`). Changes of a group's offsets by administrators work the same way
//! (`offsets.rs`). Source: `GroupMetadataManager`, `ShareGroup`.

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
