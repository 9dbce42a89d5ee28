//! The partitions of a share group whose state at the share coordinator is initialized, and those
//! that are being initialized or deleted. Immutable: a change creates a new value, which is written
//! as one record.
//!
//! A partition is assigned to members only when its state is initialized. After a while, an
//! unfinished initialization counts as missing again, because the node that requested it may be
//! gone. Source: `ShareGroupStatePartitionMetadataInfo`,
//! `GroupMetadataManager.subscribedTopicsChangeMap`, `combineInitMaps`.

use std::collections::{BTreeMap, BTreeSet};

use bytestring::ByteString;
use ottla_metadata::MetadataImage;
use ottla_protocol::coordinator_records::ShareGroupStatePartitionMetadataValue;
use ottla_protocol::coordinator_records::share_group_state_partition_metadata_value::{
    TopicInfo, TopicPartitionsInfo,
};
use ottla_types::TopicId;

use crate::group::member::owned;
use crate::group::modern::Assignment;

const UNKNOWN_NAME: &str = "<UNKNOWN>";

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct StateTopic {
    pub(super) name: ByteString,
    pub(super) partitions: BTreeSet<i32>,
    /// When the record was written or loaded.
    pub(super) since_ms: i64,
}

pub(super) type StateTopics = BTreeMap<TopicId, StateTopic>;

/// Partitions by topic, for requests and results.
pub type PartitionsOfTopics = BTreeMap<TopicId, BTreeSet<i32>>;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(in crate::group) struct StatePartitions {
    pub(super) initializing: StateTopics,
    pub(super) initialized: StateTopics,
    pub(super) deleting: BTreeSet<TopicId>,
}

impl StatePartitions {
    pub(super) const NONE: StatePartitions = StatePartitions {
        initializing: StateTopics::new(),
        initialized: StateTopics::new(),
        deleting: BTreeSet::new(),
    };

    pub(super) fn from_record(value: &ShareGroupStatePartitionMetadataValue, now_ms: i64) -> Self {
        let topics = |topics: &[TopicPartitionsInfo]| -> StateTopics {
            let topics = topics.iter().map(|topic| {
                let state = StateTopic {
                    name: owned(&topic.topic_name),
                    partitions: topic.partitions.iter().copied().collect(),
                    since_ms: now_ms,
                };
                (topic.topic_id, state)
            });
            topics.collect()
        };
        StatePartitions {
            initializing: topics(&value.initializing_topics),
            initialized: topics(&value.initialized_topics),
            deleting: value.deleting_topics.iter().map(|it| it.topic_id).collect(),
        }
    }

    pub(super) fn to_record(&self, image: &MetadataImage) -> ShareGroupStatePartitionMetadataValue {
        let topics = |topics: &StateTopics| -> Vec<TopicPartitionsInfo> {
            let topics = topics.iter().map(|(topic_id, topic)| TopicPartitionsInfo {
                topic_id: *topic_id,
                topic_name: topic.name.clone(),
                partitions: topic.partitions.iter().copied().collect(),
                ..Default::default()
            });
            topics.collect()
        };
        let deleting = self.deleting.iter().map(|topic_id| TopicInfo {
            topic_id: *topic_id,
            topic_name: name_of(*topic_id, image),
            ..Default::default()
        });
        ShareGroupStatePartitionMetadataValue {
            initializing_topics: topics(&self.initializing),
            initialized_topics: topics(&self.initialized),
            deleting_topics: deleting.collect(),
            ..Default::default()
        }
    }

    /// The partitions that can be assigned to members.
    pub(super) fn assignable(&self) -> Assignment {
        let topics = self.initialized.iter();
        topics
            .flat_map(|(topic_id, topic)| topic.partitions.iter().map(|index| (*topic_id, *index)))
            .collect()
    }

    /// The partitions of these topics that still have to be initialized.
    pub(super) fn missing<'a>(
        &self,
        names: impl Iterator<Item = &'a ByteString>,
        image: &MetadataImage,
        retry_interval_ms: i32,
        now_ms: i64,
    ) -> PartitionsOfTopics {
        let mut missing = PartitionsOfTopics::new();
        for topic in names.filter_map(|name| image.topics.by_name(name)) {
            let may_go_on =
                |state: &&StateTopic| is_recent(state.since_ms, now_ms, retry_interval_ms);
            let initializing = self.initializing.get(&topic.id).filter(may_go_on);
            let known = self.initialized.get(&topic.id).into_iter();
            let known: BTreeSet<i32> = known
                .chain(initializing)
                .flat_map(|state| state.partitions.iter().copied())
                .collect();
            let all = 0..topic.partition_count() as i32;
            let partitions: BTreeSet<i32> = all.filter(|index| !known.contains(index)).collect();
            if !partitions.is_empty() {
                missing.insert(topic.id, partitions);
            }
        }
        missing
    }

    /// The initialization of these partitions has started.
    pub(super) fn with_initializing(
        &self,
        partitions: &PartitionsOfTopics,
        image: &MetadataImage,
        now_ms: i64,
    ) -> Self {
        let mut changed = self.clone();
        add(&mut changed.initializing, partitions, image, now_ms);
        // Also from the partitions to delete, which are initialized again.
        let initializing = &changed.initializing;
        changed
            .deleting
            .retain(|topic_id| !initializing.contains_key(topic_id));
        changed
    }

    pub(super) fn with_initialized(
        &self,
        partitions: &PartitionsOfTopics,
        image: &MetadataImage,
        now_ms: i64,
    ) -> Self {
        let mut changed = self.without_initializing(partitions);
        add(&mut changed.initialized, partitions, image, now_ms);
        changed
    }

    /// The initialization of these partitions has failed.
    pub(super) fn without_initializing(&self, partitions: &PartitionsOfTopics) -> Self {
        let mut changed = self.clone();
        for (topic_id, partitions) in partitions {
            if let Some(topic) = changed.initializing.get_mut(topic_id) {
                topic.partitions.retain(|index| !partitions.contains(index));
                if topic.partitions.is_empty() {
                    changed.initializing.remove(topic_id);
                }
            }
        }
        changed
    }

    /// All partitions that have state or may have it, including state that an earlier deletion may
    /// have left.
    pub(super) fn all(&self, image: &MetadataImage) -> PartitionsOfTopics {
        let mut all = PartitionsOfTopics::new();
        for (topic_id, topic) in self.initialized.iter().chain(&self.initializing) {
            let partitions = all.entry(*topic_id).or_default();
            partitions.extend(&topic.partitions);
        }
        let deleting = self.deleting.iter();
        for topic in deleting.filter_map(|topic_id| image.topics.by_id(*topic_id)) {
            all.entry(topic.id)
                .or_default()
                .extend(0..topic.partition_count() as i32);
        }
        all
    }

    pub(super) fn has_topic(&self, topic_id: TopicId) -> bool {
        self.initializing.contains_key(&topic_id)
            || self.initialized.contains_key(&topic_id)
            || self.deleting.contains(&topic_id)
    }

    pub(super) fn without_topics(&self, is_gone: impl Fn(TopicId) -> bool) -> Self {
        let mut changed = self.clone();
        changed
            .initializing
            .retain(|topic_id, _| !is_gone(*topic_id));
        changed
            .initialized
            .retain(|topic_id, _| !is_gone(*topic_id));
        changed.deleting.retain(|topic_id| !is_gone(*topic_id));
        changed
    }
}

/// Whether what began at `since_ms` began less than `limit_ms` ago. That was on another node perhaps, and
/// clocks are set back: neither may hold up a group for longer. Kafka waits until the clock has caught up.
pub(super) fn is_recent(since_ms: i64, now_ms: i64, limit_ms: i32) -> bool {
    now_ms.abs_diff(since_ms) < u64::try_from(limit_ms).unwrap_or(0)
}

fn add(
    topics: &mut StateTopics,
    partitions: &PartitionsOfTopics,
    image: &MetadataImage,
    now_ms: i64,
) {
    for (topic_id, partitions) in partitions {
        let topic = topics.entry(*topic_id).or_insert_with(|| StateTopic {
            name: ByteString::default(),
            partitions: BTreeSet::new(),
            since_ms: 0,
        });
        topic.name = name_of(*topic_id, image);
        topic.partitions.extend(partitions);
        topic.since_ms = now_ms;
    }
}

fn name_of(topic_id: TopicId, image: &MetadataImage) -> ByteString {
    let topic = image.topics.by_id(topic_id);
    topic.map_or_else(|| UNKNOWN_NAME.into(), |topic| topic.name.clone())
}
