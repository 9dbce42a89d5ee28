//! The shell around a coordinator: one for each partition of an internal topic that this broker leads.
//!
//! Owns which partitions are coordinated here, their loading, and the way of their records into the log;
//! what requests mean is decided in `ottla-coordinator`. What is particular to groups or transactions is
//! in `groups.rs` and `transactions.rs`, which say it by the trait [`Served`].
//!
//! Kafka does the same in `CoordinatorRuntime`, and for transactions in `TransactionStateManager`.

mod load;
mod outbox;
mod shard;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ottla_coordinator::{Coordinator, partition_for};
use ottla_metadata::{LocalReplica, MetadataDelta};
use ottla_records::Compression;
use ottla_types::{ErrorCode, LeaderEpoch, PartitionIndex};
use parking_lot::RwLock;
use tokio::sync::Semaphore;

use crate::Broker;

pub(crate) use shard::Shard;

/// What the shell has to know of a kind of coordinator besides its state machine.
pub(crate) trait Served:
    Coordinator<Record: Send, Response: Send + 'static, TimerKey: Send + Sync, Command: Send>
    + Send
    + Sized
    + 'static
{
    /// The topic whose partitions hold the state.
    const TOPIC: &'static str;
    /// What cannot be coordinated when a partition cannot be read: for people.
    const WHAT: &'static str;

    /// All coordinators of this kind on this broker.
    fn coordinators(broker: &Broker) -> &Coordinators<Self>;

    /// How many partitions the topic has when it is created.
    fn configured_partitions(broker: &Broker) -> i32;

    /// A coordinator that knows nothing yet.
    fn new(broker: &Broker, leader_epoch: LeaderEpoch) -> Self;

    /// The log has been read, and requests are going to come in.
    fn begin(&mut self, _broker: &Broker) {}

    fn compression(broker: &Broker) -> Compression;

    /// How long whoever waits for a record is kept waiting.
    fn commit_timeout(broker: &Broker) -> Duration;

    /// Carries out what only this kind of shell can do.
    fn execute(shard: &Arc<Shard<Self>>, broker: &Arc<Broker>, command: Self::Command);
}

/// The coordinators of one kind on this broker.
pub(crate) struct Coordinators<C: Served> {
    /// Turns to read a partition back.
    loading: Semaphore,
    /// By partition of the topic.
    shards: RwLock<HashMap<i32, Arc<Shard<C>>>>,
}

impl<C: Served> Default for Coordinators<C> {
    fn default() -> Self {
        Coordinators {
            loading: Semaphore::new(load::CONCURRENT_LOADS),
            shards: RwLock::default(),
        }
    }
}

impl<C: Served> Coordinators<C> {
    /// The partition of the topic that holds a key. Before the topic exists, the one that will hold it.
    pub(crate) fn partition_of(&self, broker: &Broker, key: &str) -> i32 {
        let image = broker.metadata();
        let existing = image.topics.by_name(C::TOPIC);
        let configured = C::configured_partitions(broker);
        let count = existing.map_or(configured, |topic| topic.partition_count() as i32);
        partition_for(key, count.max(1))
    }

    /// The coordinator of a key, if it is here.
    pub(crate) fn coordinator_of(
        &self,
        broker: &Broker,
        key: &str,
    ) -> Result<Arc<Shard<C>>, ErrorCode> {
        self.shard(self.partition_of(broker, key))
    }

    /// The coordinator of a partition, if it is here.
    pub(crate) fn shard(&self, partition: i32) -> Result<Arc<Shard<C>>, ErrorCode> {
        let shards = self.shards.read();
        shards
            .get(&partition)
            .cloned()
            .ok_or(ErrorCode::NotCoordinator)
    }

    /// Nothing is loaded until what this gives is dropped.
    #[cfg(test)]
    pub(crate) async fn hold_loading(&self) -> tokio::sync::SemaphorePermit<'_> {
        let turns = self.loading.acquire_many(load::CONCURRENT_LOADS as u32);
        turns.await.expect("never closed")
    }

    pub(crate) fn all_shards(&self) -> Vec<Arc<Shard<C>>> {
        self.shards.read().values().cloned().collect()
    }

    /// The metadata has changed, and the replicas of this broker have followed: takes up the partitions
    /// that it leads now and gives up the others.
    pub(crate) fn follow_leadership(&self, broker: &Arc<Broker>, delta: &MetadataDelta) {
        let this_broker = broker.broker_id();
        let changes = delta.local_changes(this_broker);
        let gone = changes.deleted.iter().chain(&changes.followers);
        for replica in gone.filter(|replica| *replica.topic == *C::TOPIC) {
            self.resign(replica.partition);
        }
        for replica in &changes.leaders {
            self.on_leader_opened(broker, replica);
        }
    }

    /// This broker leads a partition, whose log is open.
    pub(crate) fn on_leader_opened(&self, broker: &Arc<Broker>, replica: &LocalReplica) {
        if *replica.topic == *C::TOPIC {
            self.elect(broker, replica.partition, replica.registration.leader_epoch);
        }
    }

    /// Gives everything up: what is parked is answered, so that connections can be drained.
    pub(crate) fn stop(&self) {
        for (_, shard) in self.shards.write().drain() {
            shard.close();
        }
    }

    fn elect(&self, broker: &Arc<Broker>, index: PartitionIndex, leader_epoch: LeaderEpoch) {
        let known = self.shards.read().get(&index.0).cloned();
        if known.is_some_and(|shard| shard.leader_epoch() == leader_epoch) {
            return;
        }
        let Some(partition) = broker.partitions.get(C::TOPIC, index.0) else {
            // The log directory is offline: nobody can be coordinated from what is not there.
            self.resign(index);
            return;
        };
        let shard = Shard::new(partition, leader_epoch);
        if let Some(earlier) = self.shards.write().insert(index.0, Arc::clone(&shard)) {
            earlier.close();
        }
        shard.load(broker);
    }

    fn resign(&self, index: PartitionIndex) {
        if let Some(shard) = self.shards.write().remove(&index.0) {
            shard.close();
        }
    }
}

impl<C: Served> std::fmt::Debug for Coordinators<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Coordinators({})", C::TOPIC)
    }
}
