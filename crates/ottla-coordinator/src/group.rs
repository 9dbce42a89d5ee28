//! The state machine of `__consumer_offsets`: consumer groups of the classic protocol and of
//! KIP-848, share groups (KIP-932), streams groups (KIP-1071), and committed offsets.

mod config;
mod coordinator;
mod effects;
mod groups;
mod outcome;
mod record;
mod recorded;
mod recorded_kind;
mod refused;
mod replay;

mod heartbeat;
mod join;
mod leave;
mod rebalance;
mod sync;

mod group_config;

mod expiry;
mod offset_commit;
mod offset_delete;
mod offset_fetch;
mod transactional_offsets;

mod delete;
mod describe;

mod assigned;
mod classic_group;
mod consumer;
mod member;
mod membership;
pub mod modern;
mod offsets;
mod share;
mod streams;

pub use classic_group::ClassicGroupState;
pub use config::{BoundedSetting, GroupCoordinatorConfig};
pub use consumer::{
    ComputeTarget, ComputedTarget, HeartbeatContext, MigrationPolicy, ResolvedRegex, TargetOrder,
    resolve, validate_heartbeat,
};
pub use coordinator::GroupCoordinator;
pub use join::JoinContext;
pub use modern::GroupError;
pub use outcome::{
    AlteredShareOffsets, Command, DeletedShareGroups, DeletedShareOffsets, InitializeShareState,
    Outcome, Reply, Requester, ResolveRegexes, Response, StreamsHeartbeat, TimerChange, TimerKey,
    Write,
};
pub use record::CoordinatorRecord;
pub use refused::Refused;
pub use share::{PartitionsOfTopics, ShareHeartbeatContext, validate_share_heartbeat};
pub use streams::{StreamsHeartbeatContext, StreamsStatus, validate_streams_heartbeat};

#[cfg(test)]
mod tests;
