//! The settings of the coordinators, out of the broker's.

use ottla_config::BrokerConfig;
use ottla_coordinator::group::GroupCoordinatorConfig;

pub(super) fn from_broker_config(config: &BrokerConfig) -> GroupCoordinatorConfig {
    GroupCoordinatorConfig {
        group_min_session_timeout_ms: config.group_min_session_timeout_ms,
        group_max_session_timeout_ms: config.group_max_session_timeout_ms,
        group_initial_rebalance_delay_ms: config.group_initial_rebalance_delay_ms,
        group_max_size: config.group_max_size,
        offset_metadata_max_bytes: config.offset_metadata_max_bytes,
        offsets_retention_ms: i64::from(config.offsets_retention_minutes) * 60 * 1000,
        offsets_retention_check_interval_ms: config.offsets_retention_check_interval_ms,
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use ottla_config::{BrokerConfig, single_node_properties};

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
    }
}
