//! Consumer groups of KIP-848: each member sends heartbeats and receives its partitions in the
//! responses.
//!
//! A heartbeat is handled in three steps (`heartbeat.rs`). Changes of the member may raise the
//! group epoch. If the group epoch is newer than the target assignment, a new target assignment is
//! computed. Then the member is reconciled with its target (`reconcile.rs`); a partition that moves
//! must first be given up by its former owner. The group can contain members of the classic
//! protocol: their JoinGroup is the heartbeat that can change something, and their SyncGroup reads
//! the result (`classic_member.rs`). When the last member of one protocol leaves, the group is
//! converted to the other protocol (`conversion.rs`). Source: `GroupMetadataManager`,
//! `ConsumerGroup`.

mod classic_member;
mod conversion;
mod counts;
mod describe;
mod embedded_protocol;
mod fence;
mod group;
mod heartbeat;
mod member;
mod migration_policy;
mod offsets;
mod reconcile;
mod record;
mod regexes;
mod replay;
mod target;
mod target_computation;
mod topic_regex;
mod validate;

pub use heartbeat::HeartbeatContext;
pub use migration_policy::MigrationPolicy;
pub use regexes::resolve;
pub use target_computation::{ComputeTarget, ComputedTarget, TargetOrder};
pub use topic_regex::ResolvedRegex;
pub use validate::validate_heartbeat;

pub(super) use group::ConsumerGroup;
pub(super) use offsets::Committer;
pub(super) use record::group_tombstones;
