//! The fetchers of this broker: `num.replica.fetchers` per leader, started on demand and ended when
//! idle.
//!
//! A partition always uses the same fetcher of its leader, so that its responses arrive in order.
//!
//! Kafka: `AbstractFetcherManager`.

use std::sync::Arc;

use ottla_context::NodeContext;
use ottla_sync::Mutex;
use ottla_sync::collections::HashMap;
use ottla_types::{BrokerId, TopicPartition};

use super::context::ReplicationContext;
use super::fetcher::{Fetcher, fetcher_number};

/// All fetchers, by leader and number.
#[derive(Debug, Default)]
pub struct Fetchers {
    fetchers: Mutex<HashMap<(BrokerId, u32), Arc<Fetcher>>>,
}

impl Fetchers {
    /// The fetcher of this leader for a partition.
    pub fn of(
        self: &Arc<Self>,
        context: &Arc<ReplicationContext>,
        leader: BrokerId,
        topic_partition: &TopicPartition,
    ) -> Arc<Fetcher> {
        let number = self.number_of(&context.host.context, topic_partition);
        let mut fetchers = self.fetchers.lock();
        let fetcher = fetchers
            .entry((leader, number))
            .or_insert_with(|| self.start(context, leader, number));
        Arc::clone(fetcher)
    }

    /// Starts a fetcher without orders. It ends with replication, or when no partition needs it.
    fn start(
        self: &Arc<Self>,
        context: &Arc<ReplicationContext>,
        leader: BrokerId,
        number: u32,
    ) -> Arc<Fetcher> {
        let fetcher = Arc::new(Fetcher::new(&context.host.context, leader, number));
        let (running, all, context) = (Arc::clone(&fetcher), Arc::clone(self), Arc::clone(context));
        ottla_sync::task::spawn(async move {
            ottla_sync::select! {
                () = running.fetch_on_order(&context, || all.forget_unused(&running)) => {}
                () = context.ended() => {}
            }
        });
        fetcher
    }

    /// The number of the leader's fetcher for a partition.
    pub fn number_of(&self, context: &NodeContext, topic_partition: &TopicPartition) -> u32 {
        fetcher_number(topic_partition, context.config().num_replica_fetchers)
    }

    /// Sorted by leader and number.
    pub fn all(&self) -> Vec<Arc<Fetcher>> {
        let mut all: Vec<_> = self.fetchers.lock().values().cloned().collect();
        all.sort_unstable_by_key(|fetcher| fetcher.key());
        all
    }

    /// Removes a fetcher that no partition holds and that therefore cannot get an order. Called by
    /// its task, which holds a reference too.
    fn forget_unused(&self, fetcher: &Arc<Fetcher>) -> bool {
        let mut fetchers = self.fetchers.lock();
        let is_unused = Arc::strong_count(fetcher) == 2;
        if is_unused {
            fetchers.remove(&fetcher.key());
        }
        is_unused
    }
}
