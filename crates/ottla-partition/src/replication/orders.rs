//! What one fetcher is to ask its leader for: a standing order for each partition that follows it.
//!
//! An order stands until it is answered, replaced or taken back. Whoever holds the run token of a partition gives and
//! takes its orders; the fetcher looks at what has changed since it looked last, so that a fetch costs what has
//! happened and not how many partitions there are.

use std::sync::Arc;

use ottla_replica::FetchPosition;
use ottla_sync::Mutex;
use ottla_sync::Notify;
use ottla_sync::collections::{HashMap, HashSet};
use ottla_types::TopicIdPartition;

use crate::partition::Partition;

/// The orders that stand, by partition.
#[derive(Debug, Default)]
pub(super) struct Orders {
    state: Mutex<State>,
    /// Raised with each new order. One fetcher waits for it.
    ordered: Notify,
}

#[derive(Debug, Default)]
struct State {
    standing: HashMap<TopicIdPartition, Order>,
    /// Partitions whose order is not what it was when the fetcher looked last.
    changed: HashSet<TopicIdPartition>,
}

/// From where to fetch a partition.
#[derive(Clone, Debug)]
pub(super) struct Order {
    pub(super) partition: Arc<Partition>,
    pub(super) position: FetchPosition,
}

impl Orders {
    /// Takes the place of the order before.
    pub(super) fn put(&self, partition: &Arc<Partition>, position: FetchPosition) {
        let key = partition.topic_id_partition();
        let order = Order {
            partition: Arc::clone(partition),
            position,
        };
        {
            let mut state = self.state.lock();
            state.standing.insert(key, order);
            state.changed.insert(key);
        }
        self.ordered.notify_one();
    }

    pub(super) fn take_back(&self, key: TopicIdPartition) {
        let taken_back = {
            let mut state = self.state.lock();
            state.changed.insert(key);
            state.standing.remove(&key)
        };
        // It may be the last that keeps the partition.
        drop(taken_back);
    }

    /// The partition whose order is answered, and its order with it, unless another order stands by now.
    pub(super) fn answer(
        &self,
        key: TopicIdPartition,
        position: &FetchPosition,
    ) -> Option<Arc<Partition>> {
        let mut state = self.state.lock();
        if state.standing.get(&key)?.position != *position {
            return None;
        }
        let order = state.standing.remove(&key)?;
        state.changed.insert(key);
        Some(order.partition)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.state.lock().standing.is_empty()
    }

    pub(super) fn is_standing(&self, key: &TopicIdPartition) -> bool {
        self.state.lock().standing.contains_key(key)
    }

    /// Ends when an order was given since it ended last.
    pub(super) async fn ordered(&self) {
        self.ordered.notified().await;
    }

    /// Has the fetcher look, though there is no new order.
    pub(super) fn wake(&self) {
        self.ordered.notify_one();
    }

    /// Takes these for changed.
    pub(super) fn look_again(&self, keys: impl Iterator<Item = TopicIdPartition>) {
        self.state.lock().changed.extend(keys);
    }

    /// What has changed since this was asked last: the order, or that there is none any more.
    pub(super) fn take_changed(&self) -> Vec<(TopicIdPartition, Option<Order>)> {
        let mut state = self.state.lock();
        let State { standing, changed } = &mut *state;
        let changed = changed.drain();
        changed
            .map(|key| (key, standing.get(&key).cloned()))
            .collect()
    }

    /// All orders, for a fetch that begins anew.
    pub(super) fn take_all(&self) -> Vec<(TopicIdPartition, Option<Order>)> {
        let mut state = self.state.lock();
        state.changed.clear();
        let standing = state.standing.iter();
        standing
            .map(|(key, order)| (*key, Some(order.clone())))
            .collect()
    }
}
