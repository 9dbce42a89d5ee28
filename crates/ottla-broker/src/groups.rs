//! The shell around the group coordinators: one for each partition of `__consumer_offsets` that this
//! broker leads.
//!
//! Owns which partitions are coordinated here and their loading; what requests mean is decided in
//! `ottla-coordinator`. A request goes to the coordinator of its group's partition, which gives records,
//! replies and timers: the records go through the partition like a Produce, the replies to the handlers
//! that wait for them, the timers to a task of the coordinator.
//!
//! Kafka does the same in `CoordinatorRuntime` and `GroupCoordinatorService`.

mod coordinator_config;
mod load;
mod outbox;
mod shard;

use std::collections::HashMap;
use std::sync::Arc;

use bytestring::ByteString;
use ottla_config::BrokerConfig;
use ottla_coordinator::group::GroupCoordinatorConfig;
use ottla_coordinator::partition_for;
use ottla_metadata::{LocalReplica, MetadataDelta};
use ottla_types::{ErrorCode, LeaderEpoch, PartitionIndex, TopicId, TopicName};
use parking_lot::RwLock;
use tokio::sync::Semaphore;

use crate::Broker;

pub(crate) use shard::Shard;

/// The topic whose partitions hold the groups; created when a group is first looked for.
pub(crate) const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// The group coordinators of this broker.
#[derive(Debug)]
pub(crate) struct Groups {
    config: Arc<GroupCoordinatorConfig>,
    /// Turns to read a partition back.
    loading: Semaphore,
    /// By partition of `__consumer_offsets`.
    shards: RwLock<HashMap<i32, Arc<Shard>>>,
}

impl Groups {
    pub(crate) fn new(config: &BrokerConfig) -> Self {
        Groups {
            config: Arc::new(coordinator_config::from_broker_config(config)),
            loading: Semaphore::new(load::CONCURRENT_LOADS),
            shards: RwLock::default(),
        }
    }

    /// The partition of `__consumer_offsets` that holds a group. Before the topic exists, the one that
    /// will hold it.
    pub(crate) fn partition_of(&self, broker: &Broker, group_id: &str) -> i32 {
        let image = broker.metadata();
        let existing = image.topics.by_name(OFFSETS_TOPIC);
        let configured = broker.config().offsets_topic_num_partitions;
        let count = existing.map_or(configured, |topic| topic.partition_count() as i32);
        partition_for(group_id, count.max(1))
    }

    /// The coordinator of a group, if it is here.
    pub(crate) fn coordinator_of(
        &self,
        broker: &Broker,
        group_id: &str,
    ) -> Result<Arc<Shard>, ErrorCode> {
        self.shard(self.partition_of(broker, group_id))
    }

    /// The coordinator of a partition, if it is here.
    pub(crate) fn shard(&self, partition: i32) -> Result<Arc<Shard>, ErrorCode> {
        let shards = self.shards.read();
        shards
            .get(&partition)
            .cloned()
            .ok_or(ErrorCode::NotCoordinator)
    }

    pub(crate) fn all_shards(&self) -> Vec<Arc<Shard>> {
        self.shards.read().values().cloned().collect()
    }

    /// Groups by the partition that holds them, each group once, in the order given.
    pub(crate) fn by_partition(
        &self,
        broker: &Broker,
        group_ids: impl IntoIterator<Item = ByteString>,
    ) -> Vec<(i32, Vec<ByteString>)> {
        let mut by_partition: Vec<(i32, Vec<ByteString>)> = Vec::new();
        let mut index_of: HashMap<i32, usize> = HashMap::new();
        for group_id in group_ids {
            let partition = self.partition_of(broker, &group_id);
            let index = *index_of.entry(partition).or_insert_with(|| {
                by_partition.push((partition, Vec::new()));
                by_partition.len() - 1
            });
            by_partition[index].1.push(group_id);
        }
        by_partition
    }

    /// The metadata has changed, and the replicas of this broker have followed: takes up the partitions
    /// that it leads now and gives up the others.
    pub(crate) fn follow_leadership(&self, broker: &Arc<Broker>, delta: &MetadataDelta) {
        let this_broker = broker.broker_id();
        let changes = delta.local_changes(this_broker);
        let gone = changes.deleted.iter().chain(&changes.followers);
        for replica in gone.filter(|replica| is_offsets_topic(&replica.topic)) {
            self.resign(replica.partition);
        }
        for replica in &changes.leaders {
            if is_offsets_topic(&replica.topic) {
                self.elect(broker, replica.partition, replica.registration.leader_epoch);
            }
        }
    }

    /// A partition that this broker leads could be opened after all.
    pub(crate) fn on_leader_opened(&self, broker: &Arc<Broker>, replica: &LocalReplica) {
        if is_offsets_topic(&replica.topic) {
            self.elect(broker, replica.partition, replica.registration.leader_epoch);
        }
    }

    /// Forgets the offsets of deleted topics. Called when nobody finds these topics any more, or an
    /// offset committed meanwhile would stay.
    pub(crate) fn forget_deleted_topics(&self, broker: &Arc<Broker>, delta: &MetadataDelta) {
        if !delta.topics.deleted.is_empty() {
            let deleted: Vec<(TopicName, TopicId)> = delta
                .topics
                .deleted
                .values()
                .map(|topic| (topic.name.clone(), topic.id))
                .collect();
            for shard in self.all_shards() {
                shard.on_topics_deleted(broker, &deleted);
            }
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
        let Some(partition) = broker.partitions.get(OFFSETS_TOPIC, index.0) else {
            // The log directory is offline: nobody can be coordinated from what is not there.
            self.resign(index);
            return;
        };
        let shard = Shard::new(partition, leader_epoch);
        if let Some(earlier) = self.shards.write().insert(index.0, Arc::clone(&shard)) {
            earlier.close();
        }
        shard.load(broker, Arc::clone(&self.config));
    }

    fn resign(&self, index: PartitionIndex) {
        if let Some(shard) = self.shards.write().remove(&index.0) {
            shard.close();
        }
    }
}

fn is_offsets_topic(topic: &TopicName) -> bool {
    &**topic == OFFSETS_TOPIC
}
