//! The controller mutation quota, as the controller sees it while it processes a request.
//!
//! Kafka: `ControllerMutationQuota`.

use std::fmt;

/// The quota is used up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QuotaExceeded;

/// The quota that the topic changes of one client are charged to.
pub trait MutationQuota: fmt::Debug + Send + Sync {
    /// Charges the creation or deletion of this many partitions, or rejects it. Requests in older
    /// versions are never rejected; their client is only throttled afterwards.
    fn record(&self, partitions: usize) -> Result<(), QuotaExceeded>;

    /// How long the client is throttled from now on for charged or rejected mutations.
    fn throttle_time_ms(&self) -> u64;
}
