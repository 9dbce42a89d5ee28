//! The share coordinators' settings from the broker's configuration.

use ottla_config::BrokerConfig;
use ottla_coordinator::share_state::ShareCoordinatorConfig;

pub(super) fn from_broker_config(config: &BrokerConfig) -> ShareCoordinatorConfig {
    let interval = |ms: i32| ms.max(1) as u64;
    ShareCoordinatorConfig {
        snapshot_update_records_per_snapshot: config
            .share_coordinator_snapshot_update_records_per_snapshot,
        state_topic_prune_interval_ms: interval(
            config.share_coordinator_state_topic_prune_interval_ms,
        ),
        cold_partition_snapshot_interval_ms: interval(
            config.share_coordinator_cold_partition_snapshot_interval_ms,
        ),
    }
}

#[cfg(test)]
mod tests {
    use ottla_config::{BrokerConfig, single_node_properties};
    use ottla_coordinator::share_state::ShareCoordinatorConfig;

    use super::from_broker_config;

    #[test]
    fn each_setting_comes_to_the_coordinator() {
        let mut properties = single_node_properties("data", "127.0.0.1:0", "127.0.0.1:0");
        for (key, value) in [
            (
                "share.coordinator.snapshot.update.records.per.snapshot",
                "11",
            ),
            ("share.coordinator.state.topic.prune.interval.ms", "12"),
            (
                "share.coordinator.cold.partition.snapshot.interval.ms",
                "13",
            ),
        ] {
            properties.set(key, value);
        }
        let (config, _) = BrokerConfig::from_properties(&properties).expect("good settings");
        let expected = ShareCoordinatorConfig {
            snapshot_update_records_per_snapshot: 11,
            state_topic_prune_interval_ms: 12,
            cold_partition_snapshot_interval_ms: 13,
        };
        assert_eq!(from_broker_config(&config), expected);
    }
}
