//! The settings that group coordination depends on. Fields are Kafka's keys with underscores.
//! Source: `GroupCoordinatorConfig`.

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
    /// How long a JoinGroup of a new member may be parked before the member is dropped. Not a
    /// setting in Kafka either (`CLASSIC_GROUP_NEW_MEMBER_JOIN_TIMEOUT_MS`).
    pub new_member_join_timeout_ms: i32,
    /// The longest metadata string that may be committed with an offset.
    pub offset_metadata_max_bytes: i32,
    pub offsets_retention_ms: i64,
    pub offsets_retention_check_interval_ms: i64,

    pub group_share_session_timeout_ms: BoundedSetting,
    pub group_share_heartbeat_interval_ms: BoundedSetting,
    pub group_share_assignment_interval_ms: BoundedSetting,
    pub group_share_max_size: i32,
    /// After how long state that is being initialized counts as missing once more. Kafka:
    /// `group.share.initialize.retry.interval.ms`, an internal setting.
    pub group_share_initialize_retry_interval_ms: i32,
    pub group_consumer_session_timeout_ms: BoundedSetting,
    pub group_consumer_heartbeat_interval_ms: BoundedSetting,
    /// How far apart two target assignments of one group are at least.
    pub group_consumer_assignment_interval_ms: BoundedSetting,
    pub group_consumer_max_size: i32,
    /// The names of those that members may ask for. The first is for members that ask for none.
    pub group_consumer_assignors: Vec<String>,
    pub group_consumer_migration_policy: MigrationPolicy,
    pub group_consumer_regex_refresh_interval_ms: i32,

    pub group_streams_session_timeout_ms: BoundedSetting,
    pub group_streams_heartbeat_interval_ms: BoundedSetting,
    pub group_streams_assignment_interval_ms: BoundedSetting,
    /// How long the first assignment of an empty group waits for more members.
    pub group_streams_initial_rebalance_delay_ms: i32,
    pub group_streams_num_standby_replicas: BoundedSetting,
    pub group_streams_max_size: i32,
}

/// A setting that a group may have a value of its own for, within bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BoundedSetting {
    pub value: i32,
    pub min: i32,
    pub max: i32,
}

/// What a group of any kind whose members are assigned has by default.
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
            group_streams_max_size: i32::MAX,
        }
    }
}

impl GroupCoordinatorConfig {
    /// The assignor of this name if it is served, and otherwise the first of those that are.
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
