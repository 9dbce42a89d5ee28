//! The difference between two images.
//!
//! A delta lists the changed objects and holds both images, so that code acting on it can compare
//! them.
//!
//! In Kafka: `MetadataDelta`, `TopicsDelta`, `LocalReplicaChanges`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ottla_types::{BrokerId, PartitionIndex, TopicId, TopicName, Uuid};

use crate::{ConfigResource, MetadataImage, PartitionRegistration, TopicImage};

/// Topics and partitions that changed. A topic that was both created and deleted is not listed.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TopicsDelta {
    /// Topics that were not in the image before.
    pub created: BTreeSet<TopicId>,
    /// Partitions that were created or changed, including the partitions of created topics.
    pub changed: BTreeMap<TopicId, BTreeSet<PartitionIndex>>,
    /// Topics that are gone, as they were before.
    pub deleted: BTreeMap<TopicId, Arc<TopicImage>>,
}

impl TopicsDelta {
    pub fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.deleted.is_empty()
    }
}

/// The difference between two images.
#[derive(Clone, PartialEq, Debug)]
pub struct MetadataDelta {
    pub before: MetadataImage,
    pub after: MetadataImage,
    pub topics: TopicsDelta,
    /// Resources with a setting that was set or removed, including deleted topics.
    pub configs: BTreeSet<ConfigResource>,
    /// Brokers that registered, changed or are gone.
    pub brokers: BTreeSet<BrokerId>,
    pub controllers: BTreeSet<BrokerId>,
    pub features: bool,
    pub producer_ids: bool,
    pub client_quotas: bool,
    /// ACLs that were added or are gone, by id.
    pub acls: BTreeSet<Uuid>,
    pub scram: bool,
    pub delegation_tokens: bool,
}

impl MetadataDelta {
    pub(crate) fn new(before: MetadataImage) -> MetadataDelta {
        MetadataDelta {
            after: before.clone(),
            before,
            topics: TopicsDelta::default(),
            configs: BTreeSet::new(),
            brokers: BTreeSet::new(),
            controllers: BTreeSet::new(),
            features: false,
            producer_ids: false,
            client_quotas: false,
            acls: BTreeSet::new(),
            scram: false,
            delegation_tokens: false,
        }
    }

    /// The difference between any two images: how a snapshot that replaces an image is published.
    pub fn between(before: MetadataImage, after: MetadataImage) -> MetadataDelta {
        let mut delta = MetadataDelta::new(before);
        let (before, topics) = (&delta.before, &mut delta.topics);
        for topic in after.topics.iter() {
            let old = before.topics.by_id(topic.id);
            if old.is_some_and(|old| Arc::ptr_eq(old, topic)) {
                continue;
            }
            let changed: BTreeSet<PartitionIndex> = topic
                .partitions()
                .filter(|(index, partition)| {
                    old.and_then(|old| old.partition(*index)) != Some(partition)
                })
                .map(|(index, _)| index)
                .collect();
            if old.is_none() {
                topics.created.insert(topic.id);
            }
            if old.is_none() || !changed.is_empty() {
                topics.changed.insert(topic.id, changed);
            }
        }
        for topic in before.topics.iter() {
            if after.topics.by_id(topic.id).is_none() {
                topics.deleted.insert(topic.id, Arc::clone(topic));
            }
        }
        let resources = before.configs.resources().chain(after.configs.resources());
        for (resource, _) in resources {
            if before.configs.resource(resource) != after.configs.resource(resource) {
                delta.configs.insert(resource.clone());
            }
        }
        for broker in before.cluster.brokers().chain(after.cluster.brokers()) {
            if before.cluster.broker(broker.id) != after.cluster.broker(broker.id) {
                delta.brokers.insert(broker.id);
            }
        }
        for controller in before
            .cluster
            .controllers()
            .chain(after.cluster.controllers())
        {
            if before.cluster.controller(controller.id) != after.cluster.controller(controller.id) {
                delta.controllers.insert(controller.id);
            }
        }
        delta.features = before.features != after.features;
        delta.producer_ids = before.next_producer_id != after.next_producer_id;
        delta.client_quotas = before.client_quotas != after.client_quotas;
        delta.acls = before.kept.acls.changes_to(&after.kept.acls);
        delta.scram = before.kept.scram != after.kept.scram;
        delta.delegation_tokens = before.kept.delegation_tokens != after.kept.delegation_tokens;
        delta.after = after;
        delta
    }

    /// Merges this change and the next one into a single change. States between the two are
    /// skipped, as with a snapshot. The cost depends on the number of changes, not on the size of
    /// the cluster.
    pub fn then(self, next: MetadataDelta) -> MetadataDelta {
        assert_eq!(
            self.after.provenance.last_contained_offset,
            next.before.provenance.last_contained_offset,
            "a change follows another where that one ends"
        );
        let (before, after) = (self.before, next.after);
        let mut topics = TopicsDelta::default();
        let gone = self.topics.deleted.keys().chain(next.topics.deleted.keys());
        for id in gone {
            // The topic before both changes, because this broker still has that state.
            if let Some(topic) = before.topics.by_id(*id) {
                topics.deleted.insert(*id, Arc::clone(topic));
            }
        }
        let changed = self.topics.changed.into_iter().chain(next.topics.changed);
        for (id, indexes) in changed.filter(|(id, _)| after.topics.by_id(*id).is_some()) {
            topics.changed.entry(id).or_default().extend(indexes);
            if before.topics.by_id(id).is_none() {
                topics.created.insert(id);
            }
        }
        let (mut configs, mut brokers) = (self.configs, self.brokers);
        let mut controllers = self.controllers;
        let mut acls = self.acls;
        acls.extend(next.acls);
        configs.extend(next.configs);
        brokers.extend(next.brokers);
        controllers.extend(next.controllers);
        MetadataDelta {
            before,
            after,
            topics,
            configs,
            brokers,
            controllers,
            features: self.features || next.features,
            producer_ids: self.producer_ids || next.producer_ids,
            client_quotas: self.client_quotas || next.client_quotas,
            acls,
            scram: self.scram || next.scram,
            delegation_tokens: self.delegation_tokens || next.delegation_tokens,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.topics.is_empty()
            && self.configs.is_empty()
            && self.brokers.is_empty()
            && self.controllers.is_empty()
            && self.acls.is_empty()
            && !(self.features
                || self.producer_ids
                || self.client_quotas
                || self.scram
                || self.delegation_tokens)
    }

    /// The replicas that `broker` must open, change or delete.
    pub fn local_changes(&self, broker: BrokerId) -> LocalReplicaChanges {
        let mut changes = LocalReplicaChanges::default();
        for topic in self.topics.deleted.values() {
            for (index, partition) in topic.partitions() {
                if partition.is_replica(broker) {
                    changes
                        .deleted
                        .push(LocalReplica::new(topic, index, partition));
                }
            }
        }
        for (id, indexes) in &self.topics.changed {
            let Some(topic) = self.after.topics.by_id(*id) else {
                continue;
            };
            let before = self.before.topics.by_id(*id);
            for &index in indexes {
                let Some(partition) = topic.partition(index) else {
                    continue;
                };
                let previous = before.and_then(|before| before.partition(index));
                if !partition.is_replica(broker) {
                    if let Some(previous) = previous.filter(|previous| previous.is_replica(broker))
                    {
                        changes
                            .deleted
                            .push(LocalReplica::new(topic, index, previous));
                    }
                    continue;
                }
                if previous
                    .is_some_and(|previous| previous.partition_epoch == partition.partition_epoch)
                {
                    continue;
                }
                let replica = LocalReplica::new(topic, index, partition);
                if partition.leader == broker {
                    changes.leaders.push(replica);
                } else {
                    changes.followers.push(replica);
                }
            }
        }
        changes
    }
}

/// One replica of a broker.
#[derive(Clone, PartialEq, Debug)]
pub struct LocalReplica {
    pub topic: TopicName,
    pub topic_id: TopicId,
    pub partition: PartitionIndex,
    pub registration: PartitionRegistration,
}

impl LocalReplica {
    fn new(
        topic: &TopicImage,
        partition: PartitionIndex,
        registration: &PartitionRegistration,
    ) -> LocalReplica {
        LocalReplica {
            topic: topic.name.clone(),
            topic_id: topic.id,
            partition,
            registration: registration.clone(),
        }
    }
}

/// The effect of a delta on the replicas of one broker.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct LocalReplicaChanges {
    /// Replicas that the broker no longer has, as they were.
    pub deleted: Vec<LocalReplica>,
    /// Replicas that the broker leads, new or with a new partition epoch.
    pub leaders: Vec<LocalReplica>,
    /// Replicas that the broker follows, new or with a new partition epoch.
    pub followers: Vec<LocalReplica>,
}

impl LocalReplicaChanges {
    pub fn is_empty(&self) -> bool {
        self.deleted.is_empty() && self.leaders.is_empty() && self.followers.is_empty()
    }
}

#[cfg(test)]
mod tests;
