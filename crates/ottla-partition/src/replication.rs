//! Replication between brokers: everything that replicas exchange over the network.
//!
//! Replicas decide in `ottla-replica`, and `partition/execute.rs` carries it out. This module has
//! what no single partition owns: the fetchers that ask leaders for many partitions at once
//! ([`Fetchers`]), the ISR proposals that are batched into one request ([`AlterPartitions`]), and
//! the clock.
//!
//! Never touches a log: every result is an event in the inbox of its partition.
//!
//! Kafka: `ReplicaFetcherManager`, `ReplicaFetcherThread`, `DefaultAlterPartitionManager`, and the
//! tasks scheduled by `ReplicaManager`.

mod alter_partitions;
mod context;
mod fetch_session;
mod fetcher;
mod fetchers;
mod leader_offsets;
mod new_leaderships;
mod orders;
mod throttle;

use std::sync::Arc;
use std::time::Duration;

use ottla_replica::{AlterPartition, Event};

use ottla_node::Node;
use ottla_types::{BrokerId, TopicPartition};

use crate::partition::host::{PartitionHost, Replicate};
use crate::partition::{LeaderFetcher, Partition};
use alter_partitions::AlterPartitions;
use context::ReplicationContext;
use fetchers::Fetchers;
use new_leaderships::NewLeaderships;

pub use fetcher::Fetcher;
pub use throttle::ReplicationThrottle;

/// Replication state shared by the partitions of this broker.
#[derive(Debug)]
pub struct Replication {
    context: Arc<ReplicationContext>,
    pub fetchers: Arc<Fetchers>,
    alter_partitions: Arc<AlterPartitions>,
    /// Traffic to followers.
    pub leader_throttle: ReplicationThrottle,
    pub new_leaderships: NewLeaderships,
}

impl Replication {
    pub fn new(host: Arc<PartitionHost>, node: Arc<Node>) -> Replication {
        Replication {
            context: Arc::new(ReplicationContext::new(host, node)),
            fetchers: Arc::default(),
            alter_partitions: Arc::default(),
            leader_throttle: ReplicationThrottle::default(),
            new_leaderships: NewLeaderships::default(),
        }
    }

    /// Ends fetching and ISR proposals. At a controlled shutdown this is called after the leaders
    /// have been moved: until then this broker is in sync, and others wait for it.
    pub fn end(&self) {
        self.context.end();
    }
}

impl Replicate for Replication {
    fn fetcher(
        self: Arc<Self>,
        leader: BrokerId,
        topic_partition: &TopicPartition,
    ) -> Arc<dyn LeaderFetcher> {
        self.fetchers.of(&self.context, leader, topic_partition)
    }

    fn propose(
        self: Arc<Self>,
        partition: &Arc<Partition>,
        proposal: AlterPartition,
        is_again: bool,
    ) {
        self.alter_partitions
            .submit(&self.context, partition, proposal, is_again);
    }
}

/// Ticks the clock of leaders with followers, twice per `replica.lag.time.max.ms`, so that lagging
/// followers leave the ISR. `led_with_followers` returns these partitions. Kafka:
/// `ReplicaManager.maybeShrinkIsr`. Ends when the broker stops.
pub async fn keep_isr_current(
    host: Arc<PartitionHost>,
    led_with_followers: impl Fn() -> Vec<Arc<Partition>>,
) {
    loop {
        let lag_max_ms = host.context.config().replica_lag_time_max_ms.max(2) as u64;
        ottla_sync::select! {
            () = ottla_sync::time::sleep(Duration::from_millis(lag_max_ms / 2)) => {}
            () = host.context.stopping() => return,
        }
        for partition in led_with_followers() {
            if partition.is_leader() {
                let now_ms = host.context.now_ms();
                partition.notify(&host, Event::ClockTicked { now_ms });
            }
        }
    }
}
