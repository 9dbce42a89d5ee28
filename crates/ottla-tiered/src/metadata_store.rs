//! The metadata caches of the partitions that this broker leads or follows.
//!
//! Kafka: `RemotePartitionMetadataStore`.

use std::collections::BTreeMap;

use ottla_types::TopicIdPartition;

use crate::metadata_cache::{NotApplied, RemoteLogMetadataCache};
use crate::metadata_record::RemoteLogMetadata;
use crate::segment_state::RemotePartitionDeleteState;

#[derive(Default)]
pub struct RemotePartitionMetadataStore {
    caches: BTreeMap<TopicIdPartition, RemoteLogMetadataCache>,
    deletions: BTreeMap<TopicIdPartition, RemotePartitionDeleteState>,
}

/// A record of the topic that changed nothing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StoreError {
    #[error(
        "partition {} of topic ID {} is not assigned to this broker",
        .0.partition,
        .0.topic_id
    )]
    NotAssigned(TopicIdPartition),
    #[error(transparent)]
    NotApplied(#[from] NotApplied),
    #[error("a snapshot names no partition, and does not belong into the topic")]
    Snapshot,
}

impl RemotePartitionMetadataStore {
    pub fn new() -> RemotePartitionMetadataStore {
        RemotePartitionMetadataStore::default()
    }

    /// Begins to keep the metadata of a partition, unless it is kept already. It answers no
    /// questions before `mark_initialized`.
    pub fn load(&mut self, partition: TopicIdPartition) {
        self.caches.entry(partition).or_default();
    }

    /// The topic has been read up to where it ended when the partition was loaded.
    pub fn mark_initialized(&mut self, partition: TopicIdPartition) {
        if let Some(cache) = self.caches.get_mut(&partition) {
            cache.mark_initialized();
        }
    }

    pub fn is_initialized(&self, partition: TopicIdPartition) -> bool {
        let cache = self.caches.get(&partition);
        cache.is_some_and(RemoteLogMetadataCache::is_initialized)
    }

    /// Forgets a partition that this broker no longer has.
    pub fn clear(&mut self, partition: TopicIdPartition) {
        self.caches.remove(&partition);
    }

    /// The metadata of a partition, if it has been read far enough; otherwise the caller answers
    /// with a retriable error.
    pub fn get(&self, partition: TopicIdPartition) -> Option<&RemoteLogMetadataCache> {
        let cache = self.caches.get(&partition)?;
        cache.is_initialized().then_some(cache)
    }

    /// The state of the deletion of a partition, if a record announced one.
    pub fn deletion(&self, partition: TopicIdPartition) -> Option<RemotePartitionDeleteState> {
        self.deletions.get(&partition).copied()
    }

    /// Applies a record of the topic. On an error nothing has changed, and the reader continues.
    pub fn apply(&mut self, metadata: &RemoteLogMetadata) -> Result<(), StoreError> {
        let partition = metadata.partition().ok_or(StoreError::Snapshot)?;
        let partition = partition.topic_id_partition();
        if let RemoteLogMetadata::PartitionDelete(delete) = metadata {
            if delete.state == RemotePartitionDeleteState::DeletePartitionFinished {
                self.caches.remove(&partition);
                self.deletions.remove(&partition);
            } else {
                self.deletions.insert(partition, delete.state);
            }
            return Ok(());
        }
        let cache = self.caches.get_mut(&partition);
        let cache = cache.ok_or(StoreError::NotAssigned(partition))?;
        match metadata {
            RemoteLogMetadata::Segment(metadata) => cache.add(&metadata.segment)?,
            RemoteLogMetadata::SegmentUpdate(metadata) => cache.update(&metadata.update)?,
            RemoteLogMetadata::PartitionDelete(_) | RemoteLogMetadata::SegmentSnapshot(_) => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ottla_types::{BrokerId, LeaderEpoch, Offset, PartitionIndex, Timestamp, Uuid};

    use super::{RemotePartitionMetadataStore, StoreError};
    use crate::{
        LeaderEpochs, RemoteLogMetadata, RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate,
        RemoteLogSegmentState, RemotePartition, RemotePartitionDeleteMetadata,
        RemotePartitionDeleteState, RemoteSegment,
    };

    #[test]
    fn records_reach_the_cache_of_their_partition() {
        let partition = RemotePartition {
            topic_id: Uuid::from_u128(7),
            topic: "t".into(),
            partition: PartitionIndex(1),
        };
        let key = partition.topic_id_partition();
        let segment = RemoteSegment {
            id: Uuid::from_u128(9),
            start_offset: Offset(0),
            end_offset: Offset(9),
            max_timestamp: Timestamp(1),
            broker_id: BrokerId(1),
            event_timestamp: Timestamp(1),
            segment_size_bytes: 10,
            custom_metadata: None,
            state: RemoteLogSegmentState::CopySegmentStarted,
            segment_leader_epochs: LeaderEpochs::from([(0, 0)]),
            is_txn_index_empty: true,
        };
        let finished = segment.to_state(
            RemoteLogSegmentState::CopySegmentFinished,
            Timestamp(2),
            BrokerId(1),
        );
        let added = RemoteLogMetadata::Segment(RemoteLogSegmentMetadata {
            partition: partition.clone(),
            segment,
        });
        let finished = RemoteLogMetadata::SegmentUpdate(RemoteLogSegmentMetadataUpdate {
            partition: partition.clone(),
            update: finished,
        });

        let mut store = RemotePartitionMetadataStore::new();
        assert_eq!(store.apply(&added), Err(StoreError::NotAssigned(key)));
        store.load(key);
        store.apply(&added).unwrap();
        store.apply(&finished).unwrap();
        assert!(store.get(key).is_none(), "not read to the end");
        store.mark_initialized(key);
        let found = store.get(key).unwrap().segment(LeaderEpoch(0), Offset(5));
        assert_eq!(found.unwrap().id, Uuid::from_u128(9));

        let delete = |state| {
            RemoteLogMetadata::PartitionDelete(RemotePartitionDeleteMetadata {
                partition: partition.clone(),
                state,
                event_timestamp: Timestamp(3),
                broker_id: BrokerId(1),
            })
        };
        let marked = RemotePartitionDeleteState::DeletePartitionMarked;
        store.apply(&delete(marked)).unwrap();
        assert_eq!(store.deletion(key), Some(marked));
        let finished = RemotePartitionDeleteState::DeletePartitionFinished;
        store.apply(&delete(finished)).unwrap();
        assert_eq!(store.deletion(key), None);
        assert!(!store.is_initialized(key));
    }
}
