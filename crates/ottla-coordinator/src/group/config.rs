//! The settings of group coordination. Fields are Kafka's keys with underscores. Source:
//! `GroupCoordinatorConfig`.

use super::consumer::MigrationPolicy;
use super::modern::Assignor;
use super::modern::assignors::{RangeAssignor, UniformAssignor};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupCoordinatorConfig {
    pub group_min_session_timeout_ms: i32,
    pub group_max_session_timeout_ms: i32,
    /// How long the first rebalance of an empty group waits for more members.
    pub group_initial_rebalance_delay_ms: i32,
    pub group_max_size: i32,
    /// How long the JoinGroup of a new member can be parked before the member is removed. Not a
    /// setting in Kafka either (`CLASSIC_GROUP_NEW_MEMBER_JOIN_TIMEOUT_MS`).
    pub new_member_join_timeout_ms: i32,
    /// The maximum length of the metadata of an offset.
    pub offset_metadata_max_bytes: i32,
    pub offsets_retention_ms: i64,
    pub offsets_retention_check_interval_ms: i64,

    pub group_share_session_timeout_ms: BoundedSetting,
    pub group_share_heartbeat_interval_ms: BoundedSetting,
    pub group_share_assignment_interval_ms: BoundedSetting,
    pub group_share_max_size: i32,
    /// How long an initialization of share group state may take before the state counts as missing
    /// again. Kafka: the internal setting `group.share.initialize.retry.interval.ms`.
    pub group_share_initialize_retry_interval_ms: i32,
    pub group_consumer_session_timeout_ms: BoundedSetting,
    pub group_consumer_heartbeat_interval_ms: BoundedSetting,
    /// The minimum interval between two target assignments of a group.
    pub group_consumer_assignment_interval_ms: BoundedSetting,
    /// Whether large target assignments are computed outside the coordinator.
    pub group_consumer_assignor_offload_enable: bool,
    /// The number of members and partitions up to which a target assignment is not large. Not a
    /// setting in Kafka: 4.3 computes every target inside the coordinator, KIP-1263 every one outside.
    pub group_consumer_inline_assignment_max: usize,
    pub group_consumer_max_size: i32,
    /// The names of the available assignors. The first is the default.
    pub group_consumer_assignors: Vec<String>,
    pub group_consumer_migration_policy: MigrationPolicy,
    pub group_consumer_regex_refresh_interval_ms: i32,

    pub group_streams_session_timeout_ms: BoundedSetting,
    pub group_streams_heartbeat_interval_ms: BoundedSetting,
    pub group_streams_assignment_interval_ms: BoundedSetting,
    /// How long the first assignment of an empty group waits for more members.
    pub group_streams_initial_rebalance_delay_ms: i32,
    pub group_streams_num_standby_replicas: BoundedSetting,
    /// How often members report the offsets of their tasks.
    pub group_streams_task_offset_interval_ms: BoundedSetting,
    /// Told to the members. No assignor depends on it.
    pub group_streams_acceptable_recovery_lag: i64,
    /// The client tags that every member must have.
    pub group_streams_rack_aware_assignment_tags: Vec<String>,
    pub group_streams_max_size: i32,
}

/// A setting that a group can override within bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BoundedSetting {
    pub value: i32,
    pub min: i32,
    pub max: i32,
}

/// The default of assigned groups of every kind.
const SESSION_TIMEOUT_MS: BoundedSetting = BoundedSetting {
    value: 45_000,
    min: 45_000,
    max: 60_000,
};
const HEARTBEAT_INTERVAL_MS: BoundedSetting = BoundedSetting {
    value: 5_000,
    min: 5_000,
    max: 15_000,
};
const ASSIGNMENT_INTERVAL_MS: BoundedSetting = BoundedSetting {
    value: 1_000,
    min: 0,
    max: 15_000,
};

impl Default for GroupCoordinatorConfig {
    fn default() -> Self {
        Self {
            group_min_session_timeout_ms: 6_000,
            group_max_session_timeout_ms: 1_800_000,
            group_initial_rebalance_delay_ms: 3_000,
            group_max_size: i32::MAX,
            new_member_join_timeout_ms: 5 * 60 * 1000,
            offset_metadata_max_bytes: 4096,
            offsets_retention_ms: 7 * 24 * 60 * 60 * 1000,
            offsets_retention_check_interval_ms: 600_000,
            group_share_session_timeout_ms: SESSION_TIMEOUT_MS,
            group_share_heartbeat_interval_ms: HEARTBEAT_INTERVAL_MS,
            group_share_assignment_interval_ms: ASSIGNMENT_INTERVAL_MS,
            group_share_max_size: 200,
            group_share_initialize_retry_interval_ms: 30_000,
            group_consumer_session_timeout_ms: SESSION_TIMEOUT_MS,
            group_consumer_heartbeat_interval_ms: HEARTBEAT_INTERVAL_MS,
            group_consumer_assignment_interval_ms: ASSIGNMENT_INTERVAL_MS,
            group_consumer_assignor_offload_enable: true,
            group_consumer_inline_assignment_max: 1_000,
            group_consumer_max_size: i32::MAX,
            group_consumer_assignors: vec!["uniform".to_owned(), "range".to_owned()],
            group_consumer_migration_policy: MigrationPolicy::Bidirectional,
            group_consumer_regex_refresh_interval_ms: 10 * 60 * 1000,
            group_streams_session_timeout_ms: SESSION_TIMEOUT_MS,
            group_streams_heartbeat_interval_ms: HEARTBEAT_INTERVAL_MS,
            group_streams_assignment_interval_ms: ASSIGNMENT_INTERVAL_MS,
            group_streams_initial_rebalance_delay_ms: 3_000,
            group_streams_num_standby_replicas: BoundedSetting {
                value: 0,
                min: 0,
                max: 2,
            },
            group_streams_task_offset_interval_ms: BoundedSetting {
                value: 60_000,
                min: 15_000,
                max: i32::MAX,
            },
            group_streams_acceptable_recovery_lag: 10_000,
            group_streams_rack_aware_assignment_tags: Vec::new(),
            group_streams_max_size: i32::MAX,
        }
    }
}

impl GroupCoordinatorConfig {
    /// The assignor with this name if it is available, otherwise the first available one.
    pub(super) fn assignor(&self, name: Option<&bytestring::ByteString>) -> &'static dyn Assignor {
        let served = |name: &str| self.group_consumer_assignors.iter().any(|it| it == name);
        let name = name
            .map(|name| &**name)
            .filter(|name| served(name))
            .or(self.group_consumer_assignors.first().map(String::as_str));
        match name {
            Some("range") => &RangeAssignor,
            _ => &UniformAssignor,
        }
    }
}
