//! The quota of changes to topics, as the controller sees it while it decides a request.
//!
//! Kafka: `ControllerMutationQuota`.

use std::fmt;

/// Nothing more may be changed now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QuotaExceeded;

/// What the changes of one client count to.
pub trait MutationQuota: fmt::Debug + Send + Sync {
    /// Counts the creation or deletion of so many partitions, unless that is refused. Older versions of a request are
    /// never refused: their client is only slowed down afterwards.
    fn record(&self, partitions: usize) -> Result<(), QuotaExceeded>;

    /// How long the client has to pause for what was recorded or refused, from now on.
    fn throttle_time_ms(&self) -> u64;
}
