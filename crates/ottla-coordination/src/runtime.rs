//! The shell of coordinators: one per partition of an internal topic that this broker leads.
//!
//! Owns the set of partitions coordinated here, their loading, and the appending of their records.
//! Requests are decided in `ottla-coordinator`. What is specific to one kind of coordinator is in
//! `groups.rs`, `share_groups` and `transactions`, which implement [`ShardedCoordinator`].
//!
//! Kafka: `CoordinatorRuntime`, and for transactions `TransactionStateManager`.

mod batch;
mod host;
mod shard;

mod load;
mod outbox;

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use ottla_coordinator::{Outcome, ReplyTo, partition_for};
use ottla_metadata::{LocalReplica, MetadataDelta};
use ottla_sync::RwLock;
use ottla_types::{ErrorCode, LeaderEpoch, PartitionIndex, Timestamp};

use crate::surroundings::Surroundings;
pub(crate) use batch::compression_of;
pub use host::CoordinatorHost;
#[cfg(test)]
pub(crate) use load::read_log;
pub use shard::{Shard, ShardedCoordinator};

/// The coordinators of one kind on this broker.
pub struct Coordinators<C: ShardedCoordinator> {
    host: CoordinatorHost,
    /// By partition index of the topic.
    shards: RwLock<BTreeMap<i32, Arc<Shard<C>>>>,
}

impl<C: ShardedCoordinator> Deref for Coordinators<C> {
    type Target = CoordinatorHost;

    fn deref(&self) -> &CoordinatorHost {
        &self.host
    }
}

impl<C: ShardedCoordinator> Coordinators<C> {
    pub fn new(surroundings: Arc<Surroundings>) -> Self {
        Coordinators {
            host: CoordinatorHost::new(surroundings),
            shards: RwLock::default(),
        }
    }

    /// The partition of the topic that holds a key. Before the topic is created, the partition that
    /// will hold it.
    pub fn partition_of(&self, key: &str) -> i32 {
        let context = &self.surroundings.context;
        let image = context.metadata();
        let existing = image.topics.by_name(C::TOPIC);
        let configured = C::configured_partitions(&context.config());
        let count = existing.map_or(configured, |topic| topic.partition_count() as i32);
        partition_for(key, count.max(1))
    }

    /// The coordinator of a key, if this broker leads its partition.
    pub fn coordinator_of(&self, key: &str) -> Result<Arc<Shard<C>>, ErrorCode> {
        self.shard(self.partition_of(key))
    }

    /// Processes a request at the coordinator of a key and waits for the response.
    ///
    /// # Errors
    /// Those of [`Self::coordinator_of`] and [`Shard::request`].
    pub async fn request<T: TryFrom<C::Response>>(
        &self,
        host: &Arc<C::Host>,
        key: &str,
        decide: impl FnOnce(&mut C, ReplyTo<T>, Timestamp) -> Outcome<C>,
    ) -> Result<T, ErrorCode> {
        self.coordinator_of(key)?.request(host, decide).await
    }

    /// The coordinator of a partition, if this broker leads it.
    pub fn shard(&self, partition: i32) -> Result<Arc<Shard<C>>, ErrorCode> {
        let shards = self.shards.read();
        shards
            .get(&partition)
            .cloned()
            .ok_or(ErrorCode::NotCoordinator)
    }

    pub fn all_shards(&self) -> Vec<Arc<Shard<C>>> {
        self.shards.read().values().cloned().collect()
    }

    /// Called after the replicas of this broker have applied a metadata change: starts coordinators
    /// for partitions it leads now and closes the others.
    pub fn follow_leadership(&self, host: &Arc<C::Host>, delta: &MetadataDelta) {
        let this_broker = host.surroundings.context.broker_id();
        let changes = delta.local_changes(this_broker);
        let gone = changes.deleted.iter().chain(&changes.followers);
        for replica in gone.filter(|replica| *replica.topic == *C::TOPIC) {
            self.resign(replica.partition);
        }
        for replica in &changes.leaders {
            self.on_leader_opened(host, replica);
        }
    }

    /// Called when this broker leads a partition whose log is open.
    pub fn on_leader_opened(&self, host: &Arc<C::Host>, replica: &LocalReplica) {
        if *replica.topic == *C::TOPIC {
            self.elect(host, replica.partition, replica.registration.leader_epoch);
        }
    }

    /// Closes all coordinators: parked requests are answered, so that connections can be drained.
    pub fn stop(&self) {
        let shards = std::mem::take(&mut *self.shards.write());
        shards.values().for_each(|shard| shard.close());
    }

    fn elect(&self, host: &Arc<C::Host>, index: PartitionIndex, leader_epoch: LeaderEpoch) {
        let known = self.shards.read().get(&index.0).cloned();
        if known.is_some_and(|shard| shard.leader_epoch() == leader_epoch) {
            return;
        }
        let Some(partition) = host.surroundings.partitions.get(C::TOPIC, index.0) else {
            // The log directory is offline.
            self.resign(index);
            return;
        };
        let shard = Shard::new(partition, leader_epoch);
        if let Some(earlier) = self.shards.write().insert(index.0, Arc::clone(&shard)) {
            earlier.close();
        }
        shard.load(host);
    }

    fn resign(&self, index: PartitionIndex) {
        if let Some(shard) = self.shards.write().remove(&index.0) {
            shard.close();
        }
    }
}

impl<C: ShardedCoordinator> std::fmt::Debug for Coordinators<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Coordinators({})", C::TOPIC)
    }
}
