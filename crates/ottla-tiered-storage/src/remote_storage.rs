//! The interface between the broker and the store of its remote segments.
//!
//! Kafka: `org.apache.kafka.server.log.remote.storage.RemoteStorageManager`, `LogSegmentData`.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use ottla_tiered::{CustomMetadata, RemoteLogSegmentMetadata};

use crate::blocking::Permit;
use crate::error::RemoteStorageError;

/// The files that are uploaded with a segment, beside its log (`IndexType`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum IndexType {
    Offset,
    Timestamp,
    ProducerSnapshot,
    LeaderEpoch,
    Transaction,
}

impl IndexType {
    /// In the order of upload.
    pub const ALL: [IndexType; 5] = [
        IndexType::Offset,
        IndexType::Timestamp,
        IndexType::ProducerSnapshot,
        IndexType::LeaderEpoch,
        IndexType::Transaction,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            IndexType::Offset => "offset index",
            IndexType::Timestamp => "time index",
            IndexType::ProducerSnapshot => "producer snapshot",
            IndexType::LeaderEpoch => "leader epochs",
            IndexType::Transaction => "transaction index",
        }
    }
}

/// The files uploaded for one segment. They do not change until the upload has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogSegmentData {
    pub log_segment: PathBuf,
    pub offset_index: PathBuf,
    pub time_index: PathBuf,
    /// None if the segment has no aborted transaction.
    pub transaction_index: Option<PathBuf>,
    /// At the first offset after the segment.
    pub producer_snapshot_index: PathBuf,
    /// The text of a `leader-epoch-checkpoint`: all epochs up to the end of the segment.
    pub leader_epoch_index: Bytes,
}

/// An object or file that belongs to a segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredObject {
    /// As messages name it: `s3://bucket/key`, or a path.
    pub name: String,
    /// Size in the store, or why it is not known.
    pub size_bytes: Result<u64, RemoteStorageError>,
    /// The size that the segment's description promises, where it promises one.
    pub expected_size_bytes: Option<u64>,
}

/// Bytes of a segment's log, in order. Dropping it cancels fetches that no other reader shares.
pub type SegmentStream = BoxStream<'static, Result<Bytes, RemoteStorageError>>;

/// Copies segments to a store and reads them back. Calls run in parallel; each is bounded in time
/// and memory by the settings of the store.
#[async_trait]
pub trait RemoteStorageManager: Send + Sync {
    /// The same store, for a piece of work with this permit. Parts of the work that still run after its
    /// caller has gone hold the permit until they end. What several callers share does not.
    fn with_permit(self: Arc<Self>, permit: Permit) -> Arc<dyn RemoteStorageManager>;

    /// Uploads a segment and returns its custom metadata, which the broker keeps in
    /// `__remote_log_metadata`. After an error nothing is left in the store, as far as the store
    /// can be reached.
    async fn copy_log_segment_data(
        &self,
        metadata: &RemoteLogSegmentMetadata,
        data: &LogSegmentData,
    ) -> Result<Option<CustomMetadata>, RemoteStorageError>;

    /// The bytes of the segment's log from `start_position` to `end_position`, inclusive; to the
    /// end of the segment if `end_position` is absent or beyond it.
    async fn fetch_log_segment(
        &self,
        metadata: &RemoteLogSegmentMetadata,
        start_position: u32,
        end_position: Option<u32>,
    ) -> Result<SegmentStream, RemoteStorageError>;

    /// A whole index. A segment that was uploaded without it, as those without an aborted transaction
    /// are, gives [`NoIndex`](crate::RemoteStorageErrorKind::NoIndex). An index that the store has lost
    /// gives [`NotFound`](crate::RemoteStorageErrorKind::NotFound).
    async fn fetch_index(
        &self,
        metadata: &RemoteLogSegmentMetadata,
        index: IndexType,
    ) -> Result<Bytes, RemoteStorageError>;

    /// Deletes all objects of the segment. Missing objects count as deleted.
    async fn delete_log_segment_data(
        &self,
        metadata: &RemoteLogSegmentMetadata,
    ) -> Result<(), RemoteStorageError>;

    /// The objects of the segment with their sizes, for tools. Reads no data but descriptions.
    async fn stored_objects(&self, metadata: &RemoteLogSegmentMetadata) -> Vec<StoredObject>;

    /// The broker stops, and does not use the store any more.
    async fn close(&self) -> Result<(), RemoteStorageError> {
        Ok(())
    }

    /// Where segments are kept, for people: `s3://bucket/prefix`, or a directory.
    fn location(&self) -> String;
}

/// Fails if a store has fewer bytes of a segment's log than were uploaded. Otherwise a reader would go on
/// with the next segment, and its records would be lost silently.
pub fn check_log_size(
    name: &str,
    size: u64,
    metadata: &RemoteLogSegmentMetadata,
) -> Result<(), RemoteStorageError> {
    let expected = u64::try_from(metadata.segment.segment_size_bytes).unwrap_or(0);
    if size >= expected {
        return Ok(());
    }
    let cause = format!("it has {size} bytes instead of {expected}");
    Err(RemoteStorageError::damaged(name, cause))
}

/// Collects a stream.
pub async fn read_all(mut stream: SegmentStream) -> Result<Bytes, RemoteStorageError> {
    use futures_util::StreamExt;
    let mut parts = Vec::new();
    while let Some(part) = stream.next().await {
        parts.push(part?);
    }
    if parts.len() == 1 {
        return Ok(parts.remove(0));
    }
    Ok(parts.concat().into())
}
