//! The orders of one fetcher: the fetch position of each partition that follows its leader.
//!
//! An order remains until it is answered, replaced or removed. The holder of a partition's run
//! token sets and removes its order. The fetcher processes only the changes since its last look, so
//! the cost of a fetch depends on the changes and not on the number of partitions.

use std::sync::{Arc, Weak};

use ottla_replica::FetchPosition;
use ottla_sync::Mutex;
use ottla_sync::Notify;
use ottla_sync::collections::{HashMap, HashSet};
use ottla_types::TopicIdPartition;

use crate::partition::Partition;

/// The standing orders, by partition.
#[derive(Debug, Default)]
pub(super) struct Orders {
    state: Mutex<State>,
    /// Notified with each new order. Only one fetcher waits for it.
    ordered: Notify,
}

#[derive(Debug, Default)]
struct State {
    standing: HashMap<TopicIdPartition, StandingOrder>,
    /// Partitions whose order has changed since the fetcher's last look.
    changed: HashSet<TopicIdPartition>,
}

#[derive(Debug)]
struct StandingOrder {
    /// Weak, because the partition holds its fetcher, which holds this order.
    partition: Weak<Partition>,
    position: FetchPosition,
}

impl StandingOrder {
    /// `None` if the partition is gone.
    fn order(&self) -> Option<Order> {
        Some(Order {
            partition: self.partition.upgrade()?,
            position: self.position,
        })
    }
}

/// The position to fetch a partition from.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) partition: Arc<Partition>,
    pub(super) position: FetchPosition,
}

impl Orders {
    /// Replaces the previous order.
    pub(super) fn put(&self, partition: &Arc<Partition>, position: FetchPosition) {
        let key = partition.topic_id_partition();
        let order = StandingOrder {
            partition: Arc::downgrade(partition),
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
        let mut state = self.state.lock();
        state.changed.insert(key);
        state.standing.remove(&key);
    }

    /// Removes the answered order and returns its partition; `None` if the order was replaced.
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
        order.partition.upgrade()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.state.lock().standing.is_empty()
    }

    pub(super) fn is_standing(&self, key: &TopicIdPartition) -> bool {
        self.state.lock().standing.contains_key(key)
    }

    /// Returns when an order was added since the last return.
    pub(super) async fn ordered(&self) {
        self.ordered.notified().await;
    }

    /// Wakes the fetcher without a new order.
    pub(super) fn wake(&self) {
        self.ordered.notify_one();
    }

    /// Marks these partitions as changed.
    pub(super) fn look_again(&self, keys: impl Iterator<Item = TopicIdPartition>) {
        self.state.lock().changed.extend(keys);
    }

    /// The changes since the last call: new orders, and `None` for removed ones.
    pub(super) fn take_changed(&self) -> Vec<(TopicIdPartition, Option<Order>)> {
        let mut state = self.state.lock();
        let State { standing, changed } = &mut *state;
        let changed = changed.drain().map(|key| {
            let order = standing.get(&key).and_then(StandingOrder::order);
            if order.is_none() {
                standing.remove(&key);
            }
            (key, order)
        });
        changed.collect()
    }

    /// All orders, for a full fetch request.
    pub(super) fn take_all(&self) -> Vec<(TopicIdPartition, Option<Order>)> {
        let mut state = self.state.lock();
        state.changed.clear();
        let mut orders = Vec::with_capacity(state.standing.len());
        state.standing.retain(|key, standing| {
            let order = standing.order();
            let is_there = order.is_some();
            if is_there {
                orders.push((*key, order));
            }
            is_there
        });
        orders
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ottla_types::{BrokerId, LeaderEpoch, Offset};

    use super::*;
    use crate::test_host::TestHost;

    fn at(offset: i64) -> FetchPosition {
        FetchPosition {
            leader: BrokerId(2),
            leader_epoch: LeaderEpoch(1),
            fetch_offset: Offset(offset),
            last_fetched_epoch: None,
            is_in_sync: true,
        }
    }

    /// The fetch offsets of changed orders.
    fn offsets(changed: Vec<(TopicIdPartition, Option<Order>)>) -> Vec<Option<i64>> {
        let orders = changed.into_iter().map(|(_, order)| order);
        orders
            .map(|order| order.map(|it| it.position.fetch_offset.0))
            .collect()
    }

    /// Its records are for a position at which the log no longer ends.
    #[tokio::test]
    async fn the_answer_to_a_replaced_order_does_not_count() {
        let host = TestHost::start();
        let partition = host.lead(&[]);
        let (orders, key) = (Orders::default(), partition.topic_id_partition());
        orders.put(&partition, at(5));
        orders.put(&partition, at(3));
        assert!(orders.answer(key, &at(5)).is_none());
        assert!(orders.is_standing(&key));
        assert!(orders.answer(key, &at(3)).is_some());
        assert!(orders.answer(key, &at(3)).is_none(), "it was answered");
        assert!(orders.is_empty());
    }

    #[tokio::test]
    async fn a_fetcher_sees_each_change_once() {
        let host = TestHost::start();
        let partition = host.lead(&[]);
        let (orders, key) = (Orders::default(), partition.topic_id_partition());
        orders.put(&partition, at(5));
        assert_eq!(offsets(orders.take_changed()), [Some(5)]);
        assert!(orders.take_changed().is_empty());
        orders.take_back(key);
        assert_eq!(offsets(orders.take_changed()), [None]);
        orders.put(&partition, at(7));
        assert_eq!(offsets(orders.take_all()), [Some(7)]);
        assert!(orders.take_changed().is_empty(), "a full request has it");
        orders.look_again(std::iter::once(key));
        assert_eq!(offsets(orders.take_changed()), [Some(7)]);
    }

    #[tokio::test]
    async fn an_order_wakes_a_fetcher_that_waits_later() {
        let host = TestHost::start();
        let orders = Orders::default();
        orders.put(&host.lead(&[]), at(0));
        let waited = ottla_sync::time::timeout(Duration::from_secs(10), orders.ordered()).await;
        assert!(waited.is_ok());
    }
}
