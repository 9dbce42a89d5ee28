//! `tokio::sync::Semaphore` with switch points when a permit is acquired.

use std::ops::Deref;
use std::sync::Arc;

use tokio::sync::{AcquireError, TryAcquireError};
pub use tokio::sync::{OwnedSemaphorePermit, SemaphorePermit};

use crate::simulation::trace::Op;
use crate::simulation::world;

/// Holds an `Arc`, because tokio's owned permits need one.
#[derive(Debug)]
pub struct Semaphore(Arc<tokio::sync::Semaphore>);

impl Semaphore {
    pub const MAX_PERMITS: usize = tokio::sync::Semaphore::MAX_PERMITS;

    pub fn new(permits: usize) -> Semaphore {
        Semaphore(Arc::new(tokio::sync::Semaphore::new(permits)))
    }

    pub async fn acquire(&self) -> Result<SemaphorePermit<'_>, AcquireError> {
        world::switch_point(Op::Lock);
        self.0.acquire().await
    }

    pub async fn acquire_many(&self, count: u32) -> Result<SemaphorePermit<'_>, AcquireError> {
        world::switch_point(Op::Lock);
        self.0.acquire_many(count).await
    }

    #[track_caller]
    pub fn try_acquire(&self) -> Result<SemaphorePermit<'_>, TryAcquireError> {
        world::switch_point(Op::Lock);
        self.0.try_acquire()
    }

    pub async fn acquire_owned(self: Arc<Self>) -> Result<OwnedSemaphorePermit, AcquireError> {
        world::switch_point(Op::Lock);
        self.0.clone().acquire_owned().await
    }

    pub async fn acquire_many_owned(
        self: Arc<Self>,
        count: u32,
    ) -> Result<OwnedSemaphorePermit, AcquireError> {
        world::switch_point(Op::Lock);
        self.0.clone().acquire_many_owned(count).await
    }

    #[track_caller]
    pub fn try_acquire_many_owned(
        self: Arc<Self>,
        count: u32,
    ) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        world::switch_point(Op::Lock);
        self.0.clone().try_acquire_many_owned(count)
    }

    #[track_caller]
    pub fn try_acquire_owned(self: Arc<Self>) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        world::switch_point(Op::Lock);
        self.0.clone().try_acquire_owned()
    }
}

/// Methods without a switch point: `add_permits`, `available_permits`, `close`.
impl Deref for Semaphore {
    type Target = tokio::sync::Semaphore;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}
