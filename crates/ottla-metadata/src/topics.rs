//! Topics and their partitions, by id and by name.
//!
//! Both maps contain the same topics.
//!
//! In Kafka: `TopicsImage`, `TopicImage`.

use std::sync::Arc;

use ottla_protocol::metadata_records::{MetadataRecord, TopicRecord};
use ottla_types::{BrokerId, PartitionIndex, TopicId, TopicName};
use rpds::RedBlackTreeMapSync;

use crate::isr_index::IsrIndex;
use crate::partition_table::PartitionTable;
use crate::{MetadataVersion, PartitionRegistration};

/// One topic.
#[derive(Clone, PartialEq, Debug)]
pub struct TopicImage {
    pub name: TopicName,
    pub id: TopicId,
    partitions: PartitionTable,
}

impl TopicImage {
    pub fn new(name: TopicName, id: TopicId) -> TopicImage {
        TopicImage {
            name,
            id,
            partitions: PartitionTable::default(),
        }
    }

    pub fn partition(&self, partition: PartitionIndex) -> Option<&PartitionRegistration> {
        self.partitions.get(partition)
    }

    /// In the order of their numbers.
    pub fn partitions(&self) -> impl Iterator<Item = (PartitionIndex, &PartitionRegistration)> {
        self.partitions.iter()
    }

    pub fn partition_count(&self) -> usize {
        self.partitions.len()
    }

    pub(crate) fn insert(&mut self, index: PartitionIndex, partition: PartitionRegistration) {
        self.partitions.insert(index, partition);
    }

    /// Called when all changes of a batch are in the topic.
    pub(crate) fn settle(&mut self) {
        self.partitions.settle();
    }

    fn write(
        &self,
        metadata_version: MetadataVersion,
        is_elr_enabled: bool,
        records: &mut Vec<MetadataRecord>,
    ) {
        records.push(MetadataRecord::Topic(TopicRecord {
            name: self.name.clone(),
            topic_id: self.id,
            ..Default::default()
        }));
        for (index, partition) in self.partitions() {
            records.push(MetadataRecord::Partition(partition.to_record(
                self.id,
                index,
                metadata_version,
                is_elr_enabled,
            )));
        }
    }
}

/// All topics.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TopicsImage {
    by_id: RedBlackTreeMapSync<TopicId, Arc<TopicImage>>,
    by_name: RedBlackTreeMapSync<TopicName, Arc<TopicImage>>,
    pub(crate) in_sync: IsrIndex,
}

impl TopicsImage {
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    pub fn len(&self) -> usize {
        self.by_id.size()
    }

    pub fn by_id(&self, id: TopicId) -> Option<&Arc<TopicImage>> {
        self.by_id.get(&id)
    }

    pub fn by_name(&self, name: &str) -> Option<&Arc<TopicImage>> {
        self.by_name.get(name)
    }

    pub fn partition(
        &self,
        name: &str,
        partition: PartitionIndex,
    ) -> Option<&PartitionRegistration> {
        self.by_name(name)?.partition(partition)
    }

    /// In the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<TopicImage>> {
        self.by_name.values()
    }

    /// In the order of their names, from the first that is not less than `name`.
    pub fn iter_from(&self, name: &TopicName) -> impl Iterator<Item = &Arc<TopicImage>> {
        self.by_name.range(name.clone()..).map(|(_, topic)| topic)
    }

    /// The partitions whose ISR or eligible leader replicas contain the broker; for
    /// `BrokerId::NONE`, the partitions without a leader. The cost depends on the number of these
    /// partitions, not on the size of the cluster.
    pub fn in_sync_of(
        &self,
        broker: BrokerId,
    ) -> impl Iterator<Item = (&Arc<TopicImage>, PartitionIndex, &PartitionRegistration)> {
        self.in_sync.of(broker).flat_map(move |(topic, indexes)| {
            let topic = self.by_id(topic);
            let indexes = indexes.iter();
            indexes.filter_map(move |&index| {
                let topic = topic?;
                Some((topic, index, topic.partition(index)?))
            })
        })
    }

    pub fn partition_count(&self) -> usize {
        self.iter().map(|topic| topic.partition_count()).sum()
    }

    pub(crate) fn insert(&mut self, topic: TopicImage) {
        let topic = Arc::new(topic);
        self.by_name
            .insert_mut(topic.name.clone(), Arc::clone(&topic));
        self.by_id.insert_mut(topic.id, topic);
    }

    pub(crate) fn remove(&mut self, id: TopicId) {
        let Some(topic) = self.by_id.get(&id).cloned() else {
            return;
        };
        self.by_id.remove_mut(&id);
        // A topic of the same name may have been created since, under another id.
        if self
            .by_name
            .get(&topic.name)
            .is_some_and(|current| current.id == id)
        {
            self.by_name.remove_mut(&topic.name);
        }
    }

    /// Topics in the order of their ids, each followed by its partitions.
    pub(crate) fn write(
        &self,
        metadata_version: MetadataVersion,
        is_elr_enabled: bool,
        records: &mut Vec<MetadataRecord>,
    ) {
        for topic in self.by_id.values() {
            topic.write(metadata_version, is_elr_enabled, records);
        }
    }
}
