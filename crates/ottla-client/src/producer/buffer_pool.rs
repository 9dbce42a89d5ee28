//! The memory of a producer: `buffer.memory` bytes, granted per batch
//! (`org.apache.kafka.clients.producer.internals.BufferPool`).
//!
//! Waiters are served in order. Buffers of `batch.size` are reused, so that a running producer
//! touches no new memory. As in Kafka, a batch counts with its initial size.

use ottla_sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use ottla_records::RecordBatchBuilder;
use ottla_sync::Mutex;
use ottla_sync::Semaphore;

/// The right to use this many bytes, which are returned when it is dropped.
#[derive(Debug)]
pub(super) struct Grant {
    pool: Arc<BufferPool>,
    bytes: usize,
}

#[derive(Debug)]
pub(super) struct BufferPool {
    total: usize,
    poolable_size: usize,
    available: Semaphore,
    waiting: AtomicUsize,
    free: Mutex<Vec<Vec<u8>>>,
}

impl BufferPool {
    pub(super) fn new(total: usize, poolable_size: usize) -> Arc<BufferPool> {
        // A semaphore supports 32-bit numbers of permits.
        let total = total.min(u32::MAX as usize);
        Arc::new(BufferPool {
            total,
            poolable_size,
            available: Semaphore::new(total),
            waiting: AtomicUsize::new(0),
            free: Mutex::default(),
        })
    }

    pub(super) fn total(&self) -> usize {
        self.total
    }

    pub(super) fn available(&self) -> usize {
        self.available.available_permits()
    }

    /// The number of waiters.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Whether there are waiters, in which case batches should be sent as they are.
    pub(super) fn is_exhausted(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    pub(super) fn try_grant(self: &Arc<Self>, bytes: usize) -> Option<Grant> {
        self.available.try_acquire_many(bytes as u32).ok()?.forget();
        Some(Grant {
            pool: self.clone(),
            bytes,
        })
    }

    /// Waits for memory. `on_wait` is called once if none is available.
    pub(super) async fn grant(self: &Arc<Self>, bytes: usize, on_wait: impl FnOnce()) -> Grant {
        if let Some(grant) = self.try_grant(bytes) {
            return grant;
        }
        struct Waiting<'a>(&'a AtomicUsize);
        impl Drop for Waiting<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(&self.waiting);
        on_wait();
        let permit = self.available.acquire_many(bytes as u32).await;
        permit.expect("the semaphore is never closed").forget();
        Grant {
            pool: self.clone(),
            bytes,
        }
    }
}

impl Grant {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// An empty buffer of the granted size.
    pub(super) fn buffer(&self) -> Vec<u8> {
        if self.bytes == self.pool.poolable_size
            && let Some(buffer) = self.pool.free.lock().pop()
        {
            return buffer;
        }
        Vec::with_capacity(self.bytes + RecordBatchBuilder::SPARE_CAPACITY)
    }

    /// Returns the memory, and keeps the buffer for the next batch.
    pub(super) fn recycle(self, buffer: Vec<u8>) {
        let poolable = self.pool.poolable_size;
        // A buffer that has grown a lot would hold more memory than is accounted for.
        let most = 2 * poolable + RecordBatchBuilder::SPARE_CAPACITY;
        if self.bytes == poolable && (poolable..=most).contains(&buffer.capacity()) {
            self.pool.free.lock().push(buffer);
        }
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.pool.available.add_permits(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn memory_is_bounded_and_buffers_are_reused() {
        let pool = BufferPool::new(250, 100);
        let first = pool.try_grant(100).unwrap();
        let second = pool.try_grant(100).unwrap();
        assert!(pool.try_grant(100).is_none());
        let mut buffer = first.buffer();
        buffer.push(1);
        let place = buffer.as_ptr();
        let waiting = ottla_sync::task::spawn({
            let pool = pool.clone();
            async move { pool.grant(100, || ()).await }
        });
        while !pool.is_exhausted() {
            ottla_sync::task::yield_now().await;
        }
        first.recycle(buffer);
        let third = waiting.await.unwrap();
        assert!(!pool.is_exhausted());
        let buffer = third.buffer();
        assert_eq!(buffer.as_ptr(), place);
        drop((second, third));
        assert_eq!(pool.available(), 250);
    }
}
