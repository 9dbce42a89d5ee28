//! The fetchers of this broker: `num.replica.fetchers` for each leader that it follows, begun when they are needed, and
//! ended when they have had nothing to do for a while.
//!
//! A partition always goes to the same fetcher of its leader, so that its answers come in order.
//!
//! Kafka: `AbstractFetcherManager`.

use std::sync::Arc;

use ottla_context::NodeContext;
use ottla_sync::Mutex;
use ottla_sync::collections::HashMap;
use ottla_types::{BrokerId, TopicPartition};

use super::Replication;
use super::fetcher::Fetcher;

/// All fetchers, by leader and number.
#[derive(Debug, Default)]
pub struct Fetchers {
    fetchers: Mutex<HashMap<(BrokerId, u32), Arc<Fetcher>>>,
}

impl Fetchers {
    /// The fetcher that asks this leader for a partition.
    pub fn of(
        &self,
        replication: &Arc<Replication>,
        leader: BrokerId,
        topic_partition: &TopicPartition,
    ) -> Arc<Fetcher> {
        let number = self.number_of(&replication.host.context, topic_partition);
        let mut fetchers = self.fetchers.lock();
        let fetcher = fetchers
            .entry((leader, number))
            .or_insert_with(|| Fetcher::start(replication, leader, number));
        Arc::clone(fetcher)
    }

    /// Which of a leader's fetchers asks it for a partition.
    pub fn number_of(&self, context: &NodeContext, topic_partition: &TopicPartition) -> u32 {
        fetcher_number(topic_partition, context.config().num_replica_fetchers)
    }

    /// By leader and number.
    pub fn all(&self) -> Vec<Arc<Fetcher>> {
        let mut all: Vec<_> = self.fetchers.lock().values().cloned().collect();
        all.sort_unstable_by_key(|fetcher| fetcher.key());
        all
    }

    /// Forgets a fetcher that no partition holds, and so none can give an order. Asked by its task, which holds it as well.
    pub(super) fn forget_unused(&self, fetcher: &Arc<Fetcher>) -> bool {
        let mut fetchers = self.fetchers.lock();
        let is_unused = Arc::strong_count(fetcher) == 2;
        if is_unused {
            fetchers.remove(&fetcher.key());
        }
        is_unused
    }
}

/// `AbstractFetcherManager.getFetcherId`.
pub(super) fn fetcher_number(topic_partition: &TopicPartition, fetchers: i32) -> u32 {
    let hash = topic_partition
        .topic
        .encode_utf16()
        .fold(0_i32, |hash, unit| {
            hash.wrapping_mul(31).wrapping_add(i32::from(unit))
        });
    let hash = hash
        .wrapping_mul(31)
        .wrapping_add(topic_partition.partition.0);
    (hash & i32::MAX) as u32 % fetchers.max(1) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_spread_over_fetchers_as_in_kafka() {
        // "orders".hashCode() is -1008770331 in Java; times 31, plus the partition, without the sign.
        let number = |partition| fetcher_number(&TopicPartition::new("orders", partition), 4);
        assert_eq!([0, 1, 2, 3, 4].map(number), [3, 0, 1, 2, 3]);
        assert_eq!(fetcher_number(&TopicPartition::new("orders", 7), 1), 0);
    }
}
