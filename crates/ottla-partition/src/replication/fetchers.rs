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

use super::context::ReplicationContext;
use super::fetcher::{Fetcher, fetcher_number};

/// All fetchers, by leader and number.
#[derive(Debug, Default)]
pub struct Fetchers {
    fetchers: Mutex<HashMap<(BrokerId, u32), Arc<Fetcher>>>,
}

impl Fetchers {
    /// The fetcher that asks this leader for a partition.
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

    /// Begins with nothing to fetch. The fetcher ends with the replication, or when nobody needs it.
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
    fn forget_unused(&self, fetcher: &Arc<Fetcher>) -> bool {
        let mut fetchers = self.fetchers.lock();
        let is_unused = Arc::strong_count(fetcher) == 2;
        if is_unused {
            fetchers.remove(&fetcher.key());
        }
        is_unused
    }
}
