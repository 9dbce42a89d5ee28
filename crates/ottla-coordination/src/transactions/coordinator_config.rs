//! The transaction coordinators' settings from the broker's configuration.

use ottla_config::BrokerConfig;
use ottla_coordinator::transaction::TransactionCoordinatorConfig;

pub(super) fn from_broker_config(config: &BrokerConfig) -> TransactionCoordinatorConfig {
    TransactionCoordinatorConfig {
        transaction_max_timeout_ms: config.transaction_max_timeout_ms,
        transactional_id_expiration_ms: config.transactional_id_expiration_ms,
        transaction_abort_timed_out_transaction_cleanup_interval_ms: config
            .transaction_abort_timed_out_transaction_cleanup_interval_ms,
        transaction_remove_expired_transaction_cleanup_interval_ms: config
            .transaction_remove_expired_transaction_cleanup_interval_ms,
        transaction_two_phase_commit_enable: config.transaction_two_phase_commit_enable,
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
            ("transaction.max.timeout.ms", "11"),
            ("transactional.id.expiration.ms", "12"),
            (
                "transaction.abort.timed.out.transaction.cleanup.interval.ms",
                "13",
            ),
            (
                "transaction.remove.expired.transaction.cleanup.interval.ms",
                "14",
            ),
            ("transaction.two.phase.commit.enable", "true"),
        ] {
            properties.set(key, value);
        }
        let (config, _) = BrokerConfig::from_properties(&properties).expect("good settings");
        let config = from_broker_config(&config);
        assert_eq!(config.transaction_max_timeout_ms, 11);
        assert_eq!(config.transactional_id_expiration_ms, 12);
        assert_eq!(
            config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            13
        );
        assert_eq!(
            config.transaction_remove_expired_transaction_cleanup_interval_ms,
            14
        );
        assert!(config.transaction_two_phase_commit_enable);
    }
}
