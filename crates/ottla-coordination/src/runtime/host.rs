//! State shared by the coordinators of one kind, including the limit of concurrent loads.

use std::sync::Arc;

use ottla_sync::{Semaphore, SemaphorePermit};

use crate::surroundings::Surroundings;

/// Number of partitions loaded concurrently, so that a start with many of them needs little memory
/// and leaves threads to other work. Kafka loads them one after the other.
const CONCURRENT_LOADS: usize = 4;

pub struct CoordinatorHost {
    pub surroundings: Arc<Surroundings>,
    /// Permits for loading a partition.
    loading: Semaphore,
}

impl CoordinatorHost {
    pub(super) fn new(surroundings: Arc<Surroundings>) -> CoordinatorHost {
        CoordinatorHost {
            surroundings,
            loading: Semaphore::new(CONCURRENT_LOADS),
        }
    }

    /// A permit for loading a partition.
    pub(super) async fn load_turn(&self) -> SemaphorePermit<'_> {
        self.loading.acquire().await.expect("never closed")
    }

    /// Blocks loading until the permit is dropped.
    pub async fn hold_loading(&self) -> SemaphorePermit<'_> {
        let turns = self.loading.acquire_many(CONCURRENT_LOADS as u32);
        turns.await.expect("never closed")
    }
}
