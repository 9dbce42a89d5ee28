//! The group coordinators' settings from the broker's configuration.

use ottla_config::BrokerConfig;
use ottla_coordinator::group::{BoundedSetting, GroupCoordinatorConfig, MigrationPolicy};

/// Some of them are dynamic.
pub(super) fn from_broker_config(config: &BrokerConfig) -> GroupCoordinatorConfig {
    GroupCoordinatorConfig {
        group_share_session_timeout_ms: BoundedSetting {
            value: config.group_share_session_timeout_ms,
            min: config.group_share_min_session_timeout_ms,
            max: config.group_share_max_session_timeout_ms,
        },
        group_share_heartbeat_interval_ms: BoundedSetting {
            value: config.group_share_heartbeat_interval_ms,
            min: config.group_share_min_heartbeat_interval_ms,
            max: config.group_share_max_heartbeat_interval_ms,
        },
        group_share_assignment_interval_ms: BoundedSetting {
            value: config.group_share_assignment_interval_ms,
            min: config.group_share_min_assignment_interval_ms,
            max: config.group_share_max_assignment_interval_ms,
        },
        group_share_max_size: config.group_share_max_size,
        group_share_initialize_retry_interval_ms: config.group_share_initialize_retry_interval_ms,
        group_min_session_timeout_ms: config.group_min_session_timeout_ms,
        group_max_session_timeout_ms: config.group_max_session_timeout_ms,
        group_initial_rebalance_delay_ms: config.group_initial_rebalance_delay_ms,
        group_max_size: config.group_max_size,
        offset_metadata_max_bytes: config.offset_metadata_max_bytes,
        offsets_retention_ms: i64::from(config.offsets_retention_minutes) * 60 * 1000,
        offsets_retention_check_interval_ms: config.offsets_retention_check_interval_ms,
        group_consumer_session_timeout_ms: BoundedSetting {
            value: config.group_consumer_session_timeout_ms,
            min: config.group_consumer_min_session_timeout_ms,
            max: config.group_consumer_max_session_timeout_ms,
        },
        group_consumer_heartbeat_interval_ms: BoundedSetting {
            value: config.group_consumer_heartbeat_interval_ms,
            min: config.group_consumer_min_heartbeat_interval_ms,
            max: config.group_consumer_max_heartbeat_interval_ms,
        },
        group_consumer_assignment_interval_ms: BoundedSetting {
            value: config.group_consumer_assignment_interval_ms,
            min: config.group_consumer_min_assignment_interval_ms,
            max: config.group_consumer_max_assignment_interval_ms,
        },
        group_consumer_assignor_offload_enable: config.group_consumer_assignor_offload_enable,
        group_consumer_max_size: config.group_consumer_max_size,
        group_consumer_assignors: config.group_consumer_assignors.clone(),
        group_consumer_migration_policy: MigrationPolicy::from_name(
            &config.group_consumer_migration_policy,
        )
        .unwrap_or(MigrationPolicy::Bidirectional),
        group_consumer_regex_refresh_interval_ms: config.group_consumer_regex_refresh_interval_ms,
        group_streams_session_timeout_ms: BoundedSetting {
            value: config.group_streams_session_timeout_ms,
            min: config.group_streams_min_session_timeout_ms,
            max: config.group_streams_max_session_timeout_ms,
        },
        group_streams_heartbeat_interval_ms: BoundedSetting {
            value: config.group_streams_heartbeat_interval_ms,
            min: config.group_streams_min_heartbeat_interval_ms,
            max: config.group_streams_max_heartbeat_interval_ms,
        },
        group_streams_assignment_interval_ms: BoundedSetting {
            value: config.group_streams_assignment_interval_ms,
            min: config.group_streams_min_assignment_interval_ms,
            max: config.group_streams_max_assignment_interval_ms,
        },
        group_streams_initial_rebalance_delay_ms: config.group_streams_initial_rebalance_delay_ms,
        group_streams_num_standby_replicas: BoundedSetting {
            value: config.group_streams_num_standby_replicas,
            min: 0,
            max: config.group_streams_max_standby_replicas,
        },
        group_streams_task_offset_interval_ms: BoundedSetting {
            value: config.group_streams_task_offset_interval_ms,
            min: config.group_streams_min_task_offset_interval_ms,
            max: i32::MAX,
        },
        group_streams_acceptable_recovery_lag: config.group_streams_acceptable_recovery_lag,
        group_streams_rack_aware_assignment_tags: config
            .group_streams_rack_aware_assignment_tags
            .clone(),
        group_streams_max_size: config.group_streams_max_size,
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use ottla_config::{BrokerConfig, single_node_properties};

    use ottla_coordinator::group::{BoundedSetting, MigrationPolicy};

    use super::from_broker_config;

    #[test]
    fn each_setting_comes_to_the_coordinator() {
        let mut properties = single_node_properties("data", "127.0.0.1:0", "127.0.0.1:0");
        for (key, value) in [
            ("group.min.session.timeout.ms", "11"),
            ("group.max.session.timeout.ms", "12"),
            ("group.initial.rebalance.delay.ms", "13"),
            ("group.max.size", "14"),
            ("offset.metadata.max.bytes", "15"),
            ("offsets.retention.minutes", "2147483647"),
            ("offsets.retention.check.interval.ms", "17"),
            ("group.consumer.session.timeout.ms", "50001"),
            ("group.consumer.min.session.timeout.ms", "46002"),
            ("group.consumer.max.session.timeout.ms", "61003"),
            ("group.consumer.heartbeat.interval.ms", "6004"),
            ("group.consumer.min.heartbeat.interval.ms", "5005"),
            ("group.consumer.max.heartbeat.interval.ms", "15006"),
            ("group.consumer.assignment.interval.ms", "27"),
            ("group.consumer.min.assignment.interval.ms", "8"),
            ("group.consumer.max.assignment.interval.ms", "39"),
            ("group.consumer.assignor.offload.enable", "false"),
            ("group.consumer.max.size", "40"),
            ("group.consumer.assignors", "range"),
            ("group.consumer.migration.policy", "Upgrade"),
            ("group.consumer.regex.refresh.interval.ms", "10041"),
            ("group.streams.session.timeout.ms", "50081"),
            ("group.streams.min.session.timeout.ms", "46082"),
            ("group.streams.max.session.timeout.ms", "61083"),
            ("group.streams.heartbeat.interval.ms", "6084"),
            ("group.streams.min.heartbeat.interval.ms", "5085"),
            ("group.streams.max.heartbeat.interval.ms", "15086"),
            ("group.streams.assignment.interval.ms", "87"),
            ("group.streams.min.assignment.interval.ms", "8"),
            ("group.streams.max.assignment.interval.ms", "99"),
            ("group.streams.initial.rebalance.delay.ms", "90"),
            ("group.streams.num.standby.replicas", "1"),
            ("group.streams.max.standby.replicas", "3"),
            ("group.streams.max.size", "91"),
            ("group.share.session.timeout.ms", "50051"),
            ("group.share.min.session.timeout.ms", "46052"),
            ("group.share.max.session.timeout.ms", "61053"),
            ("group.share.heartbeat.interval.ms", "6054"),
            ("group.share.min.heartbeat.interval.ms", "5055"),
            ("group.share.max.heartbeat.interval.ms", "15056"),
            ("group.share.assignment.interval.ms", "57"),
            ("group.share.min.assignment.interval.ms", "8"),
            ("group.share.max.assignment.interval.ms", "69"),
            ("group.share.max.size", "70"),
            ("group.share.initialize.retry.interval.ms", "71"),
        ] {
            properties.set(key, value);
        }
        let (config, _) = BrokerConfig::from_properties(&properties).expect("good settings");
        let config = from_broker_config(&config);
        assert_eq!(config.group_min_session_timeout_ms, 11);
        assert_eq!(config.group_max_session_timeout_ms, 12);
        assert_eq!(config.group_initial_rebalance_delay_ms, 13);
        assert_eq!(config.group_max_size, 14);
        assert_eq!(config.offset_metadata_max_bytes, 15);
        assert_eq!(config.offsets_retention_ms, 2_147_483_647 * 60_000);
        assert_eq!(config.offsets_retention_check_interval_ms, 17);
        let bounded = |setting: BoundedSetting| (setting.value, setting.min, setting.max);
        let session = config.group_consumer_session_timeout_ms;
        assert_eq!(bounded(session), (50_001, 46_002, 61_003));
        let heartbeat = config.group_consumer_heartbeat_interval_ms;
        assert_eq!(bounded(heartbeat), (6_004, 5_005, 15_006));
        let assignment = config.group_consumer_assignment_interval_ms;
        assert_eq!(bounded(assignment), (27, 8, 39));
        assert!(!config.group_consumer_assignor_offload_enable);
        assert_eq!(config.group_consumer_max_size, 40);
        assert_eq!(config.group_consumer_assignors, ["range"]);
        let policy = config.group_consumer_migration_policy;
        assert_eq!(policy, MigrationPolicy::Upgrade);
        assert_eq!(config.group_consumer_regex_refresh_interval_ms, 10_041);
        let session = config.group_streams_session_timeout_ms;
        assert_eq!(bounded(session), (50_081, 46_082, 61_083));
        let heartbeat = config.group_streams_heartbeat_interval_ms;
        assert_eq!(bounded(heartbeat), (6_084, 5_085, 15_086));
        let assignment = config.group_streams_assignment_interval_ms;
        assert_eq!(bounded(assignment), (87, 8, 99));
        assert_eq!(config.group_streams_initial_rebalance_delay_ms, 90);
        let standby = config.group_streams_num_standby_replicas;
        assert_eq!(bounded(standby), (1, 0, 3));
        assert_eq!(config.group_streams_max_size, 91);
        let session = config.group_share_session_timeout_ms;
        assert_eq!(bounded(session), (50_051, 46_052, 61_053));
        let heartbeat = config.group_share_heartbeat_interval_ms;
        assert_eq!(bounded(heartbeat), (6_054, 5_055, 15_056));
        let assignment = config.group_share_assignment_interval_ms;
        assert_eq!(bounded(assignment), (57, 8, 69));
        assert_eq!(config.group_share_max_size, 70);
        assert_eq!(config.group_share_initialize_retry_interval_ms, 71);
    }
}
