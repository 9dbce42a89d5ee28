//! The settings that group coordination depends on. Fields are Kafka's keys with underscores.
//! Source: `GroupCoordinatorConfig`.

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
}

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
        }
    }
}
