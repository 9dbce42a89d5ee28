//! Replication between brokers: what the replicas of this broker have to be told and fetched over the network.
//!
//! What a replica does is decided in `ottla-replica` and carried out in `partition/execute.rs`; here is what no single
//! partition owns: the fetchers that ask leaders for many partitions at once ([`Fetchers`]), the proposals to the
//! controller that go in one request ([`AlterPartitions`]), and the clock.
//!
//! Never touches: a log. Everything that comes back is an event in the inbox of its partition.
//!
//! Kafka: `ReplicaFetcherManager`, `ReplicaFetcherThread`, `DefaultAlterPartitionManager`, and the tasks that
//! `ReplicaManager` schedules.

mod alter_partitions;
mod fetch_session;
mod fetcher;
mod fetchers;
mod leader_offsets;
mod new_leaderships;
mod orders;
mod throttle;

use std::sync::Arc;
use std::time::Duration;

use ottla_replica::Event;
use tokio::sync::watch;

use crate::Broker;

pub(crate) use alter_partitions::AlterPartitions;
pub(crate) use fetcher::{Answered, Fetcher, LeaderAnswer};
pub(crate) use fetchers::Fetchers;
use new_leaderships::NewLeaderships;
pub(crate) use throttle::ReplicationThrottle;

/// What the partitions of this broker share about replication.
#[derive(Debug, Default)]
pub(crate) struct Replication {
    pub(crate) fetchers: Fetchers,
    pub(crate) alter_partitions: AlterPartitions,
    /// What goes to followers.
    pub(crate) leader_throttle: ReplicationThrottle,
    /// What comes from leaders.
    pub(crate) follower_throttle: ReplicationThrottle,
    pub(crate) new_leaderships: NewLeaderships,
    /// Becomes true when nothing is to be fetched any more.
    ended: watch::Sender<bool>,
}

impl Replication {
    /// Ends fetching and asking the controller. A broker that stops in order does so when it has given its partitions
    /// away: until then it is in sync, and others wait for it.
    pub(crate) fn end(&self) {
        self.ended.send_replace(true);
    }

    /// Waits for the end.
    async fn ended(&self) {
        let mut ended = self.ended.subscribe();
        // The sender lives as long as the broker, so waiting cannot fail.
        let _ = ended.wait_for(|&ended| ended).await;
    }
}

/// Tells the leaders that have followers what time it is, twice within `replica.lag.time.max.ms`, so that those that
/// lag leave the ISR (Kafka: `ReplicaManager.maybeShrinkIsr`). Ends when the broker stops.
pub(crate) async fn keep_isr_current(broker: Arc<Broker>) {
    loop {
        let lag_max_ms = broker.config().replica_lag_time_max_ms.max(2) as u64;
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(lag_max_ms / 2)) => {}
            () = broker.stopping() => return,
        }
        let (image, partitions) = (broker.metadata().clone(), broker.partitions.load());
        for partition in partitions.iter().filter(|partition| partition.is_leader()) {
            let topic = image.topics.by_id(partition.topic_id);
            let registration =
                topic.and_then(|topic| topic.partition(partition.topic_partition.partition));
            if registration.is_some_and(|registration| registration.replicas.len() > 1) {
                let now_ms = broker.now_ms();
                partition.notify(&broker, Event::ClockTicked { now_ms });
            }
        }
    }
}
