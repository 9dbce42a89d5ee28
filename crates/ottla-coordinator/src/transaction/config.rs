//! The settings of transactions. Fields are Kafka's keys with underscores.
//! Source: `TransactionStateManagerConfig`.

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TransactionCoordinatorConfig {
    /// The maximum transaction timeout of producers.
    pub transaction_max_timeout_ms: i32,
    /// How long an id without a transaction is kept.
    pub transactional_id_expiration_ms: i32,
    /// The interval of the check for transactions that have exceeded their timeout.
    pub transaction_abort_timed_out_transaction_cleanup_interval_ms: i32,
    /// The interval of the check for expired ids.
    pub transaction_remove_expired_transaction_cleanup_interval_ms: i32,
    /// Whether producers can use transactions without a timeout (KIP-939).
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
