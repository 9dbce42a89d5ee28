//! The settings that transactions depend on. Fields are Kafka's keys with underscores.
//! Source: `TransactionStateManagerConfig`.

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TransactionCoordinatorConfig {
    /// The longest timeout that a producer may ask for.
    pub transaction_max_timeout_ms: i32,
    /// How long an id may be without a transaction before it is forgotten.
    pub transactional_id_expiration_ms: i32,
    /// How often transactions are looked for that have run longer than their timeout.
    pub transaction_abort_timed_out_transaction_cleanup_interval_ms: i32,
    /// How often ids are looked for that have expired.
    pub transaction_remove_expired_transaction_cleanup_interval_ms: i32,
    /// Whether producers may ask for transactions without a timeout (KIP-939).
    pub transaction_two_phase_commit_enable: bool,
}

impl Default for TransactionCoordinatorConfig {
    fn default() -> Self {
        Self {
            transaction_max_timeout_ms: 15 * 60 * 1000,
            transactional_id_expiration_ms: 7 * 24 * 60 * 60 * 1000,
            transaction_abort_timed_out_transaction_cleanup_interval_ms: 10_000,
            transaction_remove_expired_transaction_cleanup_interval_ms: 3_600_000,
            transaction_two_phase_commit_enable: false,
        }
    }
}
