//! Applies records to an image. The result is the next image and the delta between the two.
//!
//! Kafka: `MetadataDelta.replay` and the `replay` methods of its parts.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_protocol::metadata_records::MetadataRecord;
use ottla_types::{BrokerEpoch, BrokerId, PartitionIndex, ProducerId, TopicId};

use crate::delta::{MetadataDelta, TopicsDelta};
use crate::image::{MetadataImage, Provenance};
use crate::isr_index::IsrChanges;
use crate::{ConfigResource, PartitionRegistration, ReplayError, TopicImage};

/// Changes of the ISR index that are collected before they are made.
const MOST_ISR_CHANGES: usize = 10_000;

impl MetadataImage {
    /// The image after `records`, whose offsets are in `provenance`. On an error nothing is
    /// applied: as in Kafka, a node that cannot replay the log must stop.
    pub fn apply(
        &self,
        records: &[MetadataRecord],
        provenance: Provenance,
    ) -> Result<(MetadataImage, MetadataDelta), ReplayError> {
        let mut replay = Replay {
            image: self.clone(),
            changed_topics: BTreeMap::new(),
            delta: MetadataDelta::new(self.clone()),
        };
        for record in records {
            replay.replay(record)?;
        }
        Ok(replay.finish(provenance))
    }
}

/// An image while records are applied to it. Topics that change are taken out of the maps and put back
/// at the end, so that a batch that creates many partitions copies their topic once.
struct Replay {
    image: MetadataImage,
    changed_topics: BTreeMap<TopicId, TopicImage>,
    delta: MetadataDelta,
}

impl Replay {
    fn replay(&mut self, record: &MetadataRecord) -> Result<(), ReplayError> {
        match record {
            MetadataRecord::RegisterBroker(record) => {
                self.image.cluster.register_broker(record);
                self.delta.brokers.insert(BrokerId(record.broker_id));
            }
            MetadataRecord::UnregisterBroker(record) => {
                self.image
                    .cluster
                    .unregister_broker(BrokerId(record.broker_id));
                self.delta.brokers.insert(BrokerId(record.broker_id));
            }
            MetadataRecord::FenceBroker(record) => {
                self.set_fenced(record.id, record.epoch, true)?;
            }
            MetadataRecord::UnfenceBroker(record) => {
                self.set_fenced(record.id, record.epoch, false)?;
            }
            MetadataRecord::BrokerRegistrationChange(record) => {
                if self.image.cluster.change_broker(record)? {
                    self.delta.brokers.insert(BrokerId(record.broker_id));
                }
            }
            MetadataRecord::RegisterController(record) => {
                self.image.cluster.register_controller(record);
                self.delta
                    .controllers
                    .insert(BrokerId(record.controller_id));
            }
            MetadataRecord::UnregisterController(record) => {
                let id = BrokerId(record.controller_id);
                self.image.cluster.unregister_controller(id);
                self.delta.controllers.insert(id);
            }
            MetadataRecord::Topic(record) => {
                let topic = TopicImage::new(record.name.clone(), record.topic_id);
                self.changed_topics.insert(record.topic_id, topic);
                self.delta.topics.created.insert(record.topic_id);
                self.delta
                    .topics
                    .changed
                    .entry(record.topic_id)
                    .or_default();
            }
            MetadataRecord::Partition(record) => {
                let partition = PartitionRegistration::from_record(record)?;
                self.insert_partition(
                    record.topic_id,
                    PartitionIndex(record.partition_id),
                    partition,
                )?;
            }
            MetadataRecord::PartitionChange(record) => {
                let index = PartitionIndex(record.partition_id);
                let partition = self
                    .topic(record.topic_id)?
                    .partition(index)
                    .ok_or(ReplayError::UnknownPartition {
                        topic_id: record.topic_id,
                        partition: record.partition_id,
                    })?
                    .merge(record)?;
                self.insert_partition(record.topic_id, index, partition)?;
            }
            MetadataRecord::RemoveTopic(record) => self.remove_topic(record.topic_id)?,
            MetadataRecord::ClearElr(record) => self.clear_elr(&record.topic_name)?,
            MetadataRecord::Config(record) => {
                let resource = self.image.configs.change(record)?;
                self.delta.configs.insert(resource);
            }
            MetadataRecord::FeatureLevel(record) => {
                self.image.features.change(record)?;
                self.delta.features = true;
            }
            MetadataRecord::ProducerIds(record) => {
                self.image.next_producer_id = Some(ProducerId(record.next_producer_id));
                self.delta.producer_ids = true;
            }
            MetadataRecord::ClientQuota(record) => {
                self.image.client_quotas.change(record);
                self.delta.client_quotas = true;
            }
            MetadataRecord::AccessControlEntry(record) => {
                self.image.kept.acls.insert(record);
                self.delta.acls.insert(record.id);
            }
            MetadataRecord::RemoveAccessControlEntry(record) => {
                self.image.kept.acls.remove(record)?;
                self.delta.acls.insert(record.id);
            }
            MetadataRecord::UserScramCredential(record) => {
                self.image.kept.scram.insert(record);
                self.delta.scram = true;
            }
            MetadataRecord::RemoveUserScramCredential(record) => {
                self.image.kept.scram.remove(record);
                self.delta.scram = true;
            }
            MetadataRecord::DelegationToken(record) => {
                self.image.kept.delegation_tokens.insert(record);
                self.delta.delegation_tokens = true;
            }
            MetadataRecord::RemoveDelegationToken(record) => {
                self.image.kept.delegation_tokens.remove(record);
                self.delta.delegation_tokens = true;
            }
            // The ZooKeeper migration is complete in every cluster that 4.3 supports.
            MetadataRecord::ZkMigrationState(_) | MetadataRecord::NoOp(_) => {}
            // The loader handles transactions, so their markers never reach an image.
            MetadataRecord::BeginTransaction(_)
            | MetadataRecord::EndTransaction(_)
            | MetadataRecord::AbortTransaction(_) => {
                return Err(ReplayError::TransactionMarker);
            }
        }
        Ok(())
    }

    fn set_fenced(&mut self, id: i32, epoch: i64, fenced: bool) -> Result<(), ReplayError> {
        let id = BrokerId(id);
        self.image
            .cluster
            .set_fenced(id, BrokerEpoch(epoch), fenced)?;
        self.delta.brokers.insert(id);
        Ok(())
    }

    /// The topic with the changes so far.
    fn topic(&self, id: TopicId) -> Result<&TopicImage, ReplayError> {
        match self.changed_topics.get(&id) {
            Some(topic) => Ok(topic),
            None => match self.image.topics.by_id(id) {
                Some(topic) => Ok(topic),
                None => Err(ReplayError::UnknownTopic(id)),
            },
        }
    }

    fn insert_partition(
        &mut self,
        topic_id: TopicId,
        index: PartitionIndex,
        partition: PartitionRegistration,
    ) -> Result<(), ReplayError> {
        if !self.changed_topics.contains_key(&topic_id) {
            let topic = self.topic(topic_id)?.clone();
            self.changed_topics.insert(topic_id, topic);
        }
        if let Some(topic) = self.changed_topics.get_mut(&topic_id) {
            topic.insert(index, partition);
        }
        self.delta
            .topics
            .changed
            .entry(topic_id)
            .or_default()
            .insert(index);
        Ok(())
    }

    fn remove_topic(&mut self, id: TopicId) -> Result<(), ReplayError> {
        let name = self.topic(id)?.name.clone();
        self.changed_topics.remove(&id);
        self.image.topics.remove(id);
        let configs = ConfigResource::topic(name);
        if self.image.configs.remove(&configs) {
            self.delta.configs.insert(configs);
        }
        let TopicsDelta {
            created,
            changed,
            deleted,
        } = &mut self.delta.topics;
        created.remove(&id);
        changed.remove(&id);
        if let Some(topic) = self.delta.before.topics.by_id(id) {
            deleted.insert(id, topic.clone());
        }
        Ok(())
    }

    /// Clears the eligible leader replicas of the named topic, or of all when the name is empty.
    fn clear_elr(&mut self, name: &str) -> Result<(), ReplayError> {
        let mut ids: Vec<TopicId> = self.changed_topics.keys().copied().collect();
        ids.extend(self.image.topics.iter().map(|topic| topic.id));
        if !name.is_empty() {
            ids.retain(|&id| self.topic(id).is_ok_and(|topic| &*topic.name == name));
            if ids.is_empty() {
                return Err(ReplayError::UnknownTopicName(name.to_owned()));
            }
        }
        for id in ids {
            let cleared: Vec<_> = self
                .topic(id)?
                .partitions()
                .filter(|(_, partition)| {
                    !partition.elr().is_empty() || !partition.last_known_elr().is_empty()
                })
                .map(|(index, partition)| {
                    let mut partition = partition.clone();
                    partition.clear_elr();
                    partition.partition_epoch.0 = partition.partition_epoch.0.wrapping_add(1);
                    (index, partition)
                })
                .collect();
            for (index, partition) in cleared {
                self.insert_partition(id, index, partition)?;
            }
        }
        Ok(())
    }

    fn finish(mut self, provenance: Provenance) -> (MetadataImage, MetadataDelta) {
        let before = &self.delta.before.topics;
        let mut isr_changes = IsrChanges::default();
        for (id, topic) in &self.delta.topics.deleted {
            for (index, before) in topic.partitions() {
                isr_changes.add(*id, index, Some(before), None);
            }
        }
        for (id, mut topic) in std::mem::take(&mut self.changed_topics) {
            let old = before.by_id(id).map(Arc::as_ref);
            for &index in self.delta.topics.changed.get(&id).into_iter().flatten() {
                let before = old.and_then(|old| old.partition(index));
                isr_changes.add(id, index, before, topic.partition(index));
            }
            // A snapshot has changes for all partitions of the cluster.
            if isr_changes.len() >= MOST_ISR_CHANGES {
                let in_sync = &mut self.image.topics.in_sync;
                in_sync.apply(std::mem::take(&mut isr_changes));
            }
            topic.settle();
            self.image.topics.insert(topic);
        }
        self.image.topics.in_sync.apply(isr_changes);
        self.image.provenance = provenance;
        self.delta.after = self.image.clone();
        (self.image, self.delta)
    }
}

#[cfg(test)]
mod tests;
