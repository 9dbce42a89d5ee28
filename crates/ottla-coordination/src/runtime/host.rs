//! What coordinators of one kind reach, and the turns in which their partitions are read back.

use std::sync::Arc;

use ottla_sync::{Semaphore, SemaphorePermit};

use crate::surroundings::Surroundings;

/// How many partitions are read at once, so that a start with many of them needs little memory and
/// leaves threads to others. Kafka reads them one after the other.
const CONCURRENT_LOADS: usize = 4;

pub struct CoordinatorHost {
    pub surroundings: Arc<Surroundings>,
    /// Turns to read a partition back.
    loading: Semaphore,
}

impl CoordinatorHost {
    pub(super) fn new(surroundings: Arc<Surroundings>) -> CoordinatorHost {
        CoordinatorHost {
            surroundings,
            loading: Semaphore::new(CONCURRENT_LOADS),
        }
    }

    /// A turn to read a partition back.
    pub(super) async fn load_turn(&self) -> SemaphorePermit<'_> {
        self.loading.acquire().await.expect("never closed")
    }

    /// Nothing is loaded until what this gives is dropped.
    pub async fn hold_loading(&self) -> SemaphorePermit<'_> {
        let turns = self.loading.acquire_many(CONCURRENT_LOADS as u32);
        turns.await.expect("never closed")
    }
}
