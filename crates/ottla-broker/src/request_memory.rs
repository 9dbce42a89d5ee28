//! The memory that requests not yet read completely may take, over all connections.
//!
//! Kafka bounds it with `queued.max.request.bytes` and leaves it unbounded by default; here the default
//! is a bound too, so that many clients with large requests cannot exhaust the machine. A connection
//! that finds no room is not read until there is some.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// One permit of the semaphore stands for so many bytes.
const UNIT_BYTES: usize = 1024;
/// What `queued.max.request.bytes=-1` comes to.
const DEFAULT_BYTES: usize = 512 * 1024 * 1024;

#[derive(Debug)]
pub(crate) struct RequestMemory {
    units: Arc<Semaphore>,
    total_units: usize,
}

impl RequestMemory {
    /// From `queued.max.request.bytes`.
    pub(crate) fn new(queued_max_request_bytes: i64) -> Self {
        let bytes = match usize::try_from(queued_max_request_bytes) {
            Ok(bytes @ 1..) => bytes,
            _ => DEFAULT_BYTES,
        };
        let total_units = bytes.div_ceil(UNIT_BYTES).min(u32::MAX as usize);
        RequestMemory {
            units: Arc::new(Semaphore::new(total_units)),
            total_units,
        }
    }

    /// What nobody has taken.
    pub(crate) fn available_bytes(&self) -> usize {
        self.units.available_permits().saturating_mul(UNIT_BYTES)
    }

    /// A request larger than everything gets everything, or it could never be read.
    fn units_for(&self, bytes: usize) -> u32 {
        bytes.div_ceil(UNIT_BYTES).min(self.total_units) as u32
    }

    pub(crate) fn try_take(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let units = self.units_for(bytes);
        Arc::clone(&self.units).try_acquire_many_owned(units).ok()
    }

    pub(crate) async fn take(&self, bytes: usize) -> OwnedSemaphorePermit {
        let units = self.units_for(bytes);
        let taken = Arc::clone(&self.units).acquire_many_owned(units).await;
        taken.expect("the semaphore is never closed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_full_budget_makes_requests_wait() {
        let memory = RequestMemory::new(10 * 1024);
        let taken = memory.try_take(8 * 1024).expect("there is room");
        assert!(memory.try_take(4 * 1024).is_none());
        drop(taken);
        let everything = memory.take(1024 * 1024).await;
        assert!(memory.try_take(1).is_none());
        drop(everything);
    }
}
