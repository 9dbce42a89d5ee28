//! Consumer groups of KIP-848: each member sends heartbeats and is told its partitions in the answers.
//!
//! A heartbeat is one decision in three steps (`heartbeat.rs`): what the member says of itself may raise the group epoch; a
//! group epoch ahead of the target assignment has the target made anew; and the member is brought a step closer to its target
//! (`reconcile.rs`), which for partitions that move takes a step of their former owner first. Members of the classic protocol
//! may be in the same group: their JoinGroup is the heartbeat that changes something, their SyncGroup reads the result
//! (`classic_member.rs`). When the last member of the other protocol goes, the group becomes a group of the remaining one
//! (`conversion.rs`).
//! Source: `GroupMetadataManager`, `ConsumerGroup`.

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
mod topic_regex;
mod validate;

pub use heartbeat::HeartbeatContext;
pub use migration_policy::MigrationPolicy;
pub use regexes::resolve;
pub use topic_regex::ResolvedRegex;
pub use validate::validate_heartbeat;

pub(super) use group::ConsumerGroup;
pub(super) use offsets::Committer;
pub(super) use record::group_tombstones;
