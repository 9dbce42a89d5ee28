//! The partitions with a replica on this broker, by topic name and topic ID.
//!
//! The map is immutable and replaced as a whole when the metadata changes, so lookups take no lock.
//! A map shares all topics that did not change with the one that it replaces, so that a change takes
//! time for its own topics only and not for all topics of the broker.

use std::sync::Arc;

use ottla_context::NodeContext;
use ottla_metadata::PartitionRegistration;
use ottla_sync::Mutex;
use ottla_sync::atomic::AtomicBool;
use ottla_sync::collections::RandomState;
use ottla_sync::{ArcSwap, Guard};
use ottla_types::{ErrorCode, PartitionIndex, TopicId, TopicName, TopicPartition};
use rpds::HashTrieMapSync;

use crate::partition::Partition;

#[derive(Debug, Default)]
pub struct Partitions {
    map: ArcSwap<PartitionMap>,
    /// Held while the map is read and then changed.
    pub changing: Mutex<()>,
    /// A replica of this broker could not be opened and is not in the map.
    pub is_incomplete: AtomicBool,
}

/// Cloning takes constant time.
#[derive(Clone, Debug, Default)]
pub struct PartitionMap {
    by_name: HashTrieMapSync<TopicName, Arc<LocalTopic>, RandomState>,
    by_id: HashTrieMapSync<TopicId, Arc<LocalTopic>, RandomState>,
}

/// The local partitions of one topic.
#[derive(Clone, Debug)]
pub struct LocalTopic {
    pub name: TopicName,
    pub id: TopicId,
    /// By partition index; `None` for partitions that are not local.
    partitions: Vec<Option<Arc<Partition>>>,
}

impl LocalTopic {
    /// The local partitions.
    pub fn partitions(&self) -> impl Iterator<Item = &Arc<Partition>> {
        self.partitions.iter().flatten()
    }

    pub fn partition(&self, index: i32) -> Option<&Arc<Partition>> {
        self.partitions.get(usize::try_from(index).ok()?)?.as_ref()
    }
}

impl PartitionMap {
    pub fn topic(&self, name: &str) -> Option<&Arc<LocalTopic>> {
        self.by_name.get(name)
    }

    pub fn topic_by_id(&self, id: TopicId) -> Option<&Arc<LocalTopic>> {
        self.by_id.get(&id)
    }

    /// A local partition of a topic.
    pub fn partition_by_id(&self, id: TopicId, index: PartitionIndex) -> Option<&Arc<Partition>> {
        self.topic_by_id(id)?.partition(index.0)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Partition>> {
        self.by_name.values().flat_map(|topic| topic.partitions())
    }

    pub fn topics(&self) -> impl Iterator<Item = &Arc<LocalTopic>> {
        self.by_name.values()
    }

    /// Adds partitions. The entries of a topic are changed once for partitions that follow each
    /// other.
    pub fn insert_all(&mut self, partitions: impl IntoIterator<Item = Arc<Partition>>) {
        let mut changed: Option<LocalTopic> = None;
        for partition in partitions {
            let topic = match changed.take() {
                Some(topic) if topic.id == partition.topic_id => topic,
                other => {
                    if let Some(done) = other {
                        self.put(done);
                    }
                    self.take_out_for(&partition)
                }
            };
            let topic = changed.insert(topic);
            let index = partition.topic_partition.partition.0.max(0) as usize;
            if topic.partitions.len() <= index {
                topic.partitions.resize(index + 1, None);
            }
            topic.partitions[index] = Some(partition);
        }
        if let Some(done) = changed {
            self.put(done);
        }
    }

    /// The topic of a partition, to be changed and put back: a new one if it is not here.
    fn take_out_for(&mut self, partition: &Partition) -> LocalTopic {
        let name = &partition.topic_partition.topic;
        let known = self.by_name.get(name);
        let taken = match known.is_some_and(|topic| topic.id == partition.topic_id) {
            true => self.take_out(partition.topic_id),
            false => None,
        };
        taken.unwrap_or_else(|| LocalTopic {
            name: name.clone(),
            id: partition.topic_id,
            partitions: Vec::new(),
        })
    }

    /// Removes a partition and returns it.
    pub fn remove(&mut self, id: TopicId, index: PartitionIndex) -> Option<Arc<Partition>> {
        let mut topic = self.take_out(id)?;
        let place = usize::try_from(index.0).ok();
        let place = place.and_then(|index| topic.partitions.get_mut(index));
        let removed = place.and_then(Option::take);
        if topic.partitions.iter().any(Option::is_some) {
            self.put(topic);
        }
        removed
    }

    /// Removes a topic, to be changed and put back. It is copied only if another map shares it, so
    /// that a topic with thousands of partitions is copied once and not once per partition.
    fn take_out(&mut self, id: TopicId) -> Option<LocalTopic> {
        let topic = Arc::clone(self.by_id.get(&id)?);
        self.by_id.remove_mut(&id);
        if self.by_name.get(&topic.name).is_some_and(|it| it.id == id) {
            self.by_name.remove_mut(&topic.name);
        }
        Some(Arc::unwrap_or_clone(topic))
    }

    fn put(&mut self, mut topic: LocalTopic) {
        topic.partitions.shrink_to_fit();
        let topic = Arc::new(topic);
        self.by_id.insert_mut(topic.id, Arc::clone(&topic));
        self.by_name.insert_mut(topic.name.clone(), topic);
    }
}

impl Partitions {
    /// The current map.
    pub fn load(&self) -> Guard<Arc<PartitionMap>> {
        self.map.load()
    }

    pub fn get(&self, topic: &str, index: i32) -> Option<Arc<Partition>> {
        self.load().topic(topic)?.partition(index).cloned()
    }

    /// A local partition, or the error code for requests about a partition that is not local.
    pub fn local(
        &self,
        context: &NodeContext,
        topic: &str,
        index: i32,
    ) -> Result<Arc<Partition>, ErrorCode> {
        if let Some(partition) = self.get(topic, index) {
            return Ok(partition);
        }
        let metadata = context.metadata();
        let known = metadata.topics.by_name(topic);
        Err(
            match known.and_then(|topic| topic.partition(index.into())) {
                Some(registration) => why_missing(context, registration),
                None => ErrorCode::UnknownTopicOrPartition,
            },
        )
    }

    pub fn find(&self, topic_partition: &TopicPartition) -> Option<Arc<Partition>> {
        self.get(&topic_partition.topic, topic_partition.partition.0)
    }

    pub fn replace(&self, map: PartitionMap) {
        self.map.store(Arc::new(map));
    }
}

/// A map being changed. Most metadata changes concern existing partitions, and leave it as it is.
pub(crate) struct ChangedMap {
    current: Arc<PartitionMap>,
    changed: Option<PartitionMap>,
}

impl ChangedMap {
    pub(crate) fn new(partitions: &Partitions) -> ChangedMap {
        ChangedMap {
            current: partitions.map.load_full(),
            changed: None,
        }
    }

    pub(crate) fn get(&self) -> &PartitionMap {
        self.changed.as_ref().unwrap_or(&self.current)
    }

    pub(crate) fn get_mut(&mut self) -> &mut PartitionMap {
        let current = &self.current;
        self.changed
            .get_or_insert_with(|| PartitionMap::clone(current))
    }

    /// Publishes the changed map.
    pub(crate) fn publish(self, partitions: &Partitions) {
        if let Some(changed) = self.changed {
            partitions.replace(changed);
        }
    }
}

/// The error code for a partition that is not in the map. A replica of this broker is missing only
/// if it could not be opened.
pub fn why_missing(context: &NodeContext, registration: &PartitionRegistration) -> ErrorCode {
    if registration.replicas.contains(&context.broker_id()) {
        ErrorCode::KafkaStorageError
    } else {
        ErrorCode::NotLeaderOrFollower
    }
}

#[cfg(test)]
mod tests {
    use ottla_types::Uuid;

    use super::*;
    use crate::test_host::{TestHost, led_topic};

    fn indexes(map: &PartitionMap) -> Vec<i32> {
        let partitions = map.iter().map(|it| it.topic_partition.partition.0);
        let mut indexes: Vec<i32> = partitions.collect();
        indexes.sort_unstable();
        indexes
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn partitions_of_several_topics_are_added_in_any_order() {
        let host = TestHost::start();
        host.lead(&[]);
        let mut records = led_topic("a", Uuid::from_u128(101), 3);
        records.extend(led_topic("b", Uuid::from_u128(102), 3));
        host.apply(records);
        let partitions: Vec<_> = host.partitions.load().iter().map(Arc::clone).collect();
        assert_eq!(partitions.len(), 7);
        let mut sorted = partitions.clone();
        sorted.sort_by_key(|it| (it.topic_partition.partition, it.topic_id));
        let mut map = PartitionMap::default();
        map.insert_all(sorted);
        for partition in &partitions {
            let (id, index) = (partition.topic_id, partition.topic_partition.partition);
            let found = map.partition_by_id(id, index);
            assert!(found.is_some_and(|it| Arc::ptr_eq(it, partition)));
        }
        assert_eq!(map.iter().count(), partitions.len());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_changed_map_leaves_the_one_that_it_replaces_as_it_is() {
        let host = TestHost::start();
        let partitions = host.lead_topics(2);
        let (first, second) = (&partitions[0], &partitions[1]);
        let (first_id, second_id) = (first.topic_id, second.topic_id);
        let before = PartitionMap::clone(&host.partitions.load());
        let mut changed = before.clone();
        let removed = changed.remove(first_id, PartitionIndex(0));
        assert!(removed.is_some_and(|it| Arc::ptr_eq(&it, first)));
        assert!(changed.topic_by_id(first_id).is_none());
        assert!(changed.topic(&first.topic_partition.topic).is_none());
        assert!(changed.remove(first_id, PartitionIndex(0)).is_none());
        assert!(changed.remove(second_id, PartitionIndex(5)).is_none());
        assert_eq!(indexes(&changed), [0], "the second topic is still there");
        assert_eq!(indexes(&before), [0, 0]);
        changed.insert_all([Arc::clone(first)]);
        let found = changed.partition_by_id(first_id, PartitionIndex(0));
        assert!(found.is_some_and(|it| Arc::ptr_eq(it, first)));
        assert_eq!(indexes(&changed), [0, 0]);
        let mut without_first = before.clone();
        without_first.remove(first_id, PartitionIndex(0));
        let kept = |map: &PartitionMap| Arc::as_ptr(map.topic_by_id(second_id).expect("kept"));
        assert_eq!(kept(&without_first), kept(&before), "it is shared");
    }
}
