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
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use ottla_config::BrokerConfig;
use ottla_coordinator::{Coordinator, partition_for};
use ottla_metadata::{LocalReplica, MetadataDelta};
use ottla_records::Compression;
use ottla_types::{ErrorCode, LeaderEpoch, PartitionIndex};
use parking_lot::RwLock;
use tokio::sync::Semaphore;

use crate::surroundings::Surroundings;
pub use shard::Shard;

/// What the shell has to know of a kind of coordinator besides its state machine.
pub trait Served:
    Coordinator<Record: Send, Response: Send + 'static, TimerKey: Send + Sync, Command: Send>
    + Send
    + Sized
    + 'static
{
    /// What it belongs to: its coordinators, and what its commands need.
    type Host: Deref<Target = Coordinators<Self>> + Send + Sync + 'static;

    /// The topic whose partitions hold the state.
    const TOPIC: &'static str;
    /// What cannot be coordinated when a partition cannot be read: for people.
    const WHAT: &'static str;

    /// How many partitions the topic has when it is created.
    fn configured_partitions(config: &BrokerConfig) -> i32;

    /// A coordinator that knows nothing yet.
    fn new(host: &Self::Host, leader_epoch: LeaderEpoch) -> Self;

    /// The log has been read, and requests are going to come in.
    fn begin(&mut self, _host: &Self::Host) {}

    fn compression(host: &Self::Host) -> Compression;

    /// How long whoever waits for a record is kept waiting.
    fn commit_timeout(host: &Self::Host) -> Duration;

    /// Carries out what only this kind of shell can do.
    fn execute(shard: &Arc<Shard<Self>>, host: &Arc<Self::Host>, command: Self::Command);
}

/// The coordinators of one kind on this broker.
pub struct Coordinators<C: Served> {
    pub surroundings: Arc<Surroundings>,
    /// Turns to read a partition back.
    loading: Semaphore,
    /// By partition of the topic.
    shards: RwLock<HashMap<i32, Arc<Shard<C>>>>,
}

impl<C: Served> Coordinators<C> {
    pub fn new(surroundings: Arc<Surroundings>) -> Self {
        Coordinators {
            surroundings,
            loading: Semaphore::new(load::CONCURRENT_LOADS),
            shards: RwLock::default(),
        }
    }

    /// The partition of the topic that holds a key. Before the topic exists, the one that will hold it.
    pub fn partition_of(&self, key: &str) -> i32 {
        let context = &self.surroundings.context;
        let image = context.metadata();
        let existing = image.topics.by_name(C::TOPIC);
        let configured = C::configured_partitions(&context.config());
        let count = existing.map_or(configured, |topic| topic.partition_count() as i32);
        partition_for(key, count.max(1))
    }

    /// The coordinator of a key, if it is here.
    pub fn coordinator_of(&self, key: &str) -> Result<Arc<Shard<C>>, ErrorCode> {
        self.shard(self.partition_of(key))
    }

    /// The coordinator of a partition, if it is here.
    pub fn shard(&self, partition: i32) -> Result<Arc<Shard<C>>, ErrorCode> {
        let shards = self.shards.read();
        shards
            .get(&partition)
            .cloned()
            .ok_or(ErrorCode::NotCoordinator)
    }

    /// Nothing is loaded until what this gives is dropped.
    pub async fn hold_loading(&self) -> tokio::sync::SemaphorePermit<'_> {
        let turns = self.loading.acquire_many(load::CONCURRENT_LOADS as u32);
        turns.await.expect("never closed")
    }

    pub fn all_shards(&self) -> Vec<Arc<Shard<C>>> {
        self.shards.read().values().cloned().collect()
    }

    /// The metadata has changed, and the replicas of this broker have followed: takes up the partitions
    /// that it leads now and gives up the others.
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

    /// This broker leads a partition, whose log is open.
    pub fn on_leader_opened(&self, host: &Arc<C::Host>, replica: &LocalReplica) {
        if *replica.topic == *C::TOPIC {
            self.elect(host, replica.partition, replica.registration.leader_epoch);
        }
    }

    /// Gives everything up: what is parked is answered, so that connections can be drained.
    pub fn stop(&self) {
        for (_, shard) in self.shards.write().drain() {
            shard.close();
        }
    }

    fn elect(&self, host: &Arc<C::Host>, index: PartitionIndex, leader_epoch: LeaderEpoch) {
        let known = self.shards.read().get(&index.0).cloned();
        if known.is_some_and(|shard| shard.leader_epoch() == leader_epoch) {
            return;
        }
        let Some(partition) = host.surroundings.partitions.get(C::TOPIC, index.0) else {
            // The log directory is offline: nobody can be coordinated from what is not there.
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

impl<C: Served> std::fmt::Debug for Coordinators<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Coordinators({})", C::TOPIC)
    }
}
