//! The bytes of a remote segment from a position on, for a read that knows approximately how many
//! it needs.
//!
//! A store prefetches chunks for a reader of a long range, and cancels the prefetches of a reader
//! that stops before the end of its range. So the range covers the bytes that a read needs in most
//! cases, and only a read that needs more requests the rest of the segment.

use std::sync::Arc;

use futures_util::{StreamExt, TryFutureExt};
use ottla_tiered::RemoteLogSegmentMetadata;
use ottla_tiered_storage::{RemoteStorageError, RemoteStorageManager, SegmentStream};

/// From an entry of the offset index to the batch that is searched, in most segments.
const BEFORE_THE_BATCH: u64 = 64 << 10;

/// The segment from `position`, which its offset index has given, to its end. `wanted` bytes or a few
/// more are fetched at first.
pub async fn fetch_from(
    store: &Arc<dyn RemoteStorageManager>,
    metadata: &RemoteLogSegmentMetadata,
    position: u32,
    wanted: usize,
) -> Result<SegmentStream, RemoteStorageError> {
    let size = u64::try_from(metadata.segment.segment_size_bytes).unwrap_or(0);
    if position > 0 && u64::from(position) >= size {
        let index = format!("the offset index of remote segment {}", metadata.segment.id);
        let cause = format!("it names position {position} of a log of {size} bytes");
        return Err(RemoteStorageError::damaged(&index, cause));
    }
    let end = u64::from(position) + wanted as u64 + BEFORE_THE_BATCH;
    let end = u32::try_from(end).ok().filter(|_| end < size);
    let last = end.map(|end| end - 1);
    let first = store.fetch_log_segment(metadata, position, last).await?;
    let Some(end) = end else {
        return Ok(first);
    };
    let (store, metadata) = (store.clone(), metadata.clone());
    let rest = async move { store.fetch_log_segment(&metadata, end, None).await };
    Ok(first.chain(rest.try_flatten_stream()).boxed())
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use bytes::Bytes;
    use futures_util::stream;
    use ottla_sync::Mutex;
    use ottla_tiered::{
        CustomMetadata, LeaderEpochs, RemoteLogSegmentState, RemotePartition, RemoteSegment,
    };
    use ottla_tiered_storage::{
        IndexType, LogSegmentData, Permit, RemoteStorageErrorKind, StoredObject, read_all,
    };
    use ottla_types::{BrokerId, Offset, PartitionIndex, Timestamp, TopicName, Uuid};

    use super::*;

    const SIZE: usize = 300_000;

    /// Returns bytes that count up in 251 steps, and records the requested ranges.
    #[derive(Default)]
    struct Counting(Mutex<Vec<(u32, Option<u32>)>>);

    fn byte(at: usize) -> u8 {
        (at % 251) as u8
    }

    #[async_trait]
    impl RemoteStorageManager for Counting {
        fn with_permit(self: Arc<Self>, _: Permit) -> Arc<dyn RemoteStorageManager> {
            self
        }

        async fn copy_log_segment_data(
            &self,
            _: &RemoteLogSegmentMetadata,
            _: &LogSegmentData,
        ) -> Result<Option<CustomMetadata>, RemoteStorageError> {
            unreachable!("nothing is copied")
        }

        async fn fetch_log_segment(
            &self,
            _: &RemoteLogSegmentMetadata,
            start_position: u32,
            end_position: Option<u32>,
        ) -> Result<SegmentStream, RemoteStorageError> {
            self.0.lock().push((start_position, end_position));
            let end = end_position.map_or(SIZE, |last| SIZE.min(last as usize + 1));
            let part: Bytes = (start_position as usize..end).map(byte).collect();
            Ok(stream::iter([Ok(part)]).boxed())
        }

        async fn fetch_index(
            &self,
            _: &RemoteLogSegmentMetadata,
            _: IndexType,
        ) -> Result<Bytes, RemoteStorageError> {
            unreachable!("no index is read")
        }

        async fn delete_log_segment_data(
            &self,
            _: &RemoteLogSegmentMetadata,
        ) -> Result<(), RemoteStorageError> {
            unreachable!("nothing is deleted")
        }

        async fn stored_objects(&self, _: &RemoteLogSegmentMetadata) -> Vec<StoredObject> {
            Vec::new()
        }

        fn location(&self) -> String {
            String::new()
        }
    }

    fn metadata() -> RemoteLogSegmentMetadata {
        RemoteLogSegmentMetadata {
            partition: RemotePartition {
                topic_id: Uuid::from_u128(1),
                topic: TopicName::from("orders"),
                partition: PartitionIndex(0),
            },
            segment: RemoteSegment {
                id: Uuid::from_u128(2),
                start_offset: Offset(0),
                end_offset: Offset(99),
                max_timestamp: Timestamp(0),
                broker_id: BrokerId(1),
                event_timestamp: Timestamp(0),
                segment_size_bytes: SIZE as i32,
                custom_metadata: None,
                state: RemoteLogSegmentState::CopySegmentFinished,
                segment_leader_epochs: LeaderEpochs::from([(0, 0)]),
                is_txn_index_empty: true,
            },
        }
    }

    #[tokio::test]
    async fn the_rest_is_fetched_only_by_reads_that_need_it() {
        let counting = Arc::new(Counting::default());
        let store: Arc<dyn RemoteStorageManager> = counting.clone();
        let ranges = || std::mem::take(&mut *counting.0.lock());
        let last = 1000 + 100_000 + 65_536 - 1;

        let mut stream = fetch_from(&store, &metadata(), 1000, 100_000)
            .await
            .unwrap();
        let part = stream.next().await.unwrap().unwrap();
        assert_eq!(part.len(), last + 1 - 1000);
        drop(stream);
        assert_eq!(ranges(), [(1000, Some(last as u32))]);

        let stream = fetch_from(&store, &metadata(), 1000, 100_000)
            .await
            .unwrap();
        let all = read_all(stream).await.unwrap();
        assert!(all == (1000..SIZE).map(byte).collect::<Vec<u8>>());
        assert_eq!(
            ranges(),
            [(1000, Some(last as u32)), (last as u32 + 1, None)]
        );

        // A reader that found nothing there would go on with the next segment.
        let after_the_end = fetch_from(&store, &metadata(), SIZE as u32, 1000).await;
        let error = after_the_end.err().expect("no batch begins there");
        assert_eq!(error.kind, RemoteStorageErrorKind::Damaged);

        let stream = fetch_from(&store, &metadata(), 1000, SIZE).await.unwrap();
        assert_eq!(read_all(stream).await.unwrap().len(), SIZE - 1000);
        assert_eq!(ranges(), [(1000, None)], "it has no rest");
    }
}
