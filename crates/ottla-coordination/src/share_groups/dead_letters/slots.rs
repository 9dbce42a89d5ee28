//! How many batches are written at the same time, and on which connections.
//!
//! A batch is in memory from when it has a slot until it is answered. A slow queue keeps its slots, so
//! it gets a few only. Each slot has connections of its own, because a leader answers the requests of
//! a connection one after the other: one that waits for replicas would hold up those after it, and
//! when it timed out, they would fail with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_net::BrokerPeers;
use ottla_sync::{Mutex, OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use ottla_types::TopicId;

/// Number of batches in memory. A batch with several letters has at most 1 MiB, and so have the
/// originals that are read for it.
const SLOTS: usize = 64;
/// For one queue.
const SLOTS_OF_QUEUE: usize = 8;

#[derive(Debug)]
pub(super) struct Slots {
    all: Semaphore,
    /// The queues that have slots, or wait for one.
    of_queues: Mutex<BTreeMap<TopicId, Arc<Semaphore>>>,
    /// The connections of free slots. The last used one comes first, so that there are only as many as there were
    /// concurrent batches.
    idle: Mutex<Vec<BrokerPeers>>,
}

/// The right to write a batch, until it is dropped.
pub(super) struct Slot<'a> {
    slots: &'a Slots,
    peers: BrokerPeers,
    _of_queue: (Arc<Semaphore>, OwnedSemaphorePermit),
    _of_all: SemaphorePermit<'a>,
}

impl Slots {
    pub(super) fn new() -> Slots {
        Slots {
            all: Semaphore::new(SLOTS),
            of_queues: Mutex::default(),
            idle: Mutex::default(),
        }
    }

    /// Waits for a slot, in the order of the calls.
    pub(super) async fn take(&self, queue: TopicId) -> Slot<'_> {
        let of_queue = self.of_queue(queue);
        let permit = Arc::clone(&of_queue).acquire_owned();
        let permit = permit.await.expect("never closed");
        let of_all = self.all.acquire().await.expect("never closed");
        let idle = self.idle.lock().pop();
        Slot {
            slots: self,
            peers: idle.unwrap_or_default(),
            _of_queue: (of_queue, permit),
            _of_all: of_all,
        }
    }

    fn of_queue(&self, queue: TopicId) -> Arc<Semaphore> {
        let mut of_queues = self.of_queues.lock();
        of_queues.retain(|_, slots| Arc::strong_count(slots) > 1);
        let slots = of_queues.entry(queue);
        Arc::clone(slots.or_insert_with(|| Arc::new(Semaphore::new(SLOTS_OF_QUEUE))))
    }
}

impl Slot<'_> {
    pub(super) fn peers(&self) -> &BrokerPeers {
        &self.peers
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        let peers = std::mem::take(&mut self.peers);
        self.slots.idle.lock().push(peers);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn a_slow_queue_does_not_take_all_slots() {
        let slots = Slots::new();
        let queue = TopicId::from_u128;
        let take = |id| slots.take(queue(id)).now_or_never();
        let slow: Vec<_> = (0..SLOTS_OF_QUEUE).map(|_| take(1)).collect();
        assert!(slow.iter().all(Option::is_some));
        assert!(take(1).is_none(), "the queue has all its slots");
        assert!(take(2).is_some());
        assert_eq!(slots.idle.lock().len(), 1, "the connections of the last");
        drop(slow);
        assert!(take(1).is_some());
        assert_eq!(slots.idle.lock().len(), SLOTS_OF_QUEUE + 1);
        drop(take(3));
        assert_eq!(slots.of_queues.lock().len(), 1, "others are forgotten");
    }

    #[test]
    fn all_queues_together_have_a_limit() {
        let slots = Slots::new();
        let queues = 0..(SLOTS / SLOTS_OF_QUEUE) as u128;
        let queues = queues.flat_map(|id| [id; SLOTS_OF_QUEUE]);
        let take = |id| slots.take(TopicId::from_u128(id)).now_or_never();
        let taken: Vec<_> = queues.map(take).collect();
        assert!(taken.iter().all(Option::is_some));
        assert!(take(1_000).is_none());
    }
}
