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
