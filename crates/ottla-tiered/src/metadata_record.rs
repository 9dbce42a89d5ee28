//! The messages of `__remote_log_metadata`, as values and as bytes.
//!
//! A record of the topic has no key. Its value is a frame (version 1, type and version of the
//! message, as unsigned varints) and one of four messages, all of version 0.
//!
//! Kafka: `RemoteLogMetadataSerde` and its transforms.

use bytes::Bytes;
use ottla_protocol::storage_records::{
    RemoteLogRecord, RemoteLogSegmentMetadataRecord, RemoteLogSegmentMetadataSnapshotRecord,
    RemoteLogSegmentMetadataUpdateRecord, RemotePartitionDeleteMetadataRecord,
    remote_log_segment_metadata_record as segment_record,
    remote_log_segment_metadata_snapshot_record as snapshot_record,
    remote_log_segment_metadata_update_record as update_record,
    remote_partition_delete_metadata_record as delete_record,
};
use ottla_protocol::{DecodeError, EncodeError};
use ottla_types::{BrokerId, Offset, PartitionIndex, Timestamp, Uuid};

use crate::leader_epochs::EpochEntry;
use crate::remote_segment::{
    CustomMetadata, RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata, RemoteSegment, RemoteSegmentError, RemoteSegmentUpdate,
};
use crate::segment_id::RemotePartition;
use crate::segment_state::{RemoteLogSegmentState, RemotePartitionDeleteState};

/// A message of the topic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RemoteLogMetadata {
    /// Type 0: an upload begins.
    Segment(RemoteLogSegmentMetadata),
    /// Type 1: its state changes.
    SegmentUpdate(RemoteLogSegmentMetadataUpdate),
    /// Type 2: a partition is deleted.
    PartitionDelete(RemotePartitionDeleteMetadata),
    /// Type 3: a segment without its partition, for snapshots. The topic-based metadata manager
    /// does not write it.
    SegmentSnapshot(RemoteSegment),
}

/// A record of the topic that could not be read.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum RemoteLogMetadataError {
    #[error(transparent)]
    Decode(#[from] DecodeError),
    #[error(transparent)]
    Segment(#[from] RemoteSegmentError),
    #[error("{0} is no state of a remote segment; 0 to 3 are")]
    UnknownSegmentState(i8),
    #[error("{0} is no state of the deletion of a remote partition; 0 to 2 are")]
    UnknownDeleteState(i8),
}

impl RemoteLogMetadata {
    /// The partition that it is about; none for a snapshot.
    pub fn partition(&self) -> Option<&RemotePartition> {
        match self {
            RemoteLogMetadata::Segment(metadata) => Some(&metadata.partition),
            RemoteLogMetadata::SegmentUpdate(update) => Some(&update.partition),
            RemoteLogMetadata::PartitionDelete(delete) => Some(&delete.partition),
            RemoteLogMetadata::SegmentSnapshot(_) => None,
        }
    }

    /// Reads the value of a record of the topic.
    pub fn decode(value: &Bytes) -> Result<RemoteLogMetadata, RemoteLogMetadataError> {
        Ok(match RemoteLogRecord::decode(value)? {
            RemoteLogRecord::RemoteLogSegmentMetadata(record) => {
                RemoteLogMetadata::Segment(read_segment(record)?)
            }
            RemoteLogRecord::RemoteLogSegmentMetadataUpdate(record) => {
                RemoteLogMetadata::SegmentUpdate(read_update(record)?)
            }
            RemoteLogRecord::RemotePartitionDeleteMetadata(record) => {
                RemoteLogMetadata::PartitionDelete(read_delete(record)?)
            }
            RemoteLogRecord::RemoteLogSegmentMetadataSnapshot(record) => {
                RemoteLogMetadata::SegmentSnapshot(read_snapshot(record)?)
            }
        })
    }

    /// The value of the record of the topic. Fails for a topic name or custom metadata longer than
    /// the format can hold.
    pub fn encode(&self) -> Result<Bytes, EncodeError> {
        let record: RemoteLogRecord = match self {
            RemoteLogMetadata::Segment(metadata) => segment_to_record(metadata).into(),
            RemoteLogMetadata::SegmentUpdate(update) => update_to_record(update).into(),
            RemoteLogMetadata::PartitionDelete(delete) => delete_to_record(delete).into(),
            RemoteLogMetadata::SegmentSnapshot(segment) => snapshot_to_record(segment).into(),
        };
        record.encode()
    }
}

/// The conversions of a partition, whose struct each message has for itself.
macro_rules! partition_entry {
    ($read:ident, $write:ident, $module:ident) => {
        fn $read(entry: $module::TopicIdPartitionEntry) -> RemotePartition {
            RemotePartition {
                topic_id: entry.id,
                topic: entry.name,
                partition: PartitionIndex(entry.partition),
            }
        }

        fn $write(partition: &RemotePartition) -> $module::TopicIdPartitionEntry {
            $module::TopicIdPartitionEntry {
                name: partition.topic.clone(),
                id: partition.topic_id,
                partition: partition.partition.0,
                ..Default::default()
            }
        }
    };
}

partition_entry!(read_segment_partition, segment_partition, segment_record);
partition_entry!(read_update_partition, update_partition, update_record);
partition_entry!(read_delete_partition, delete_partition, delete_record);

/// The conversions of the fields of a segment other than its ID, in the two messages that have them.
macro_rules! segment_fields {
    ($read:ident, $write:ident, $module:ident, $Record:ident) => {
        fn $read(id: Uuid, record: &$Record) -> Result<RemoteSegment, RemoteLogMetadataError> {
            let epochs = record.segment_leader_epochs.iter();
            let segment = RemoteSegment {
                id,
                start_offset: Offset(record.start_offset),
                end_offset: Offset(record.end_offset),
                max_timestamp: Timestamp(record.max_timestamp_ms),
                broker_id: BrokerId(record.broker_id),
                event_timestamp: Timestamp(record.event_timestamp_ms),
                segment_size_bytes: record.segment_size_in_bytes,
                custom_metadata: record.custom_metadata.clone().map(CustomMetadata),
                state: segment_state(record.remote_log_segment_state)?,
                segment_leader_epochs: epochs
                    .map(|entry| EpochEntry::new(entry.leader_epoch, entry.offset))
                    .collect(),
                is_txn_index_empty: record.txn_index_empty,
            };
            segment.check()?;
            Ok(segment)
        }

        fn $write(segment: &RemoteSegment) -> $Record {
            let epochs = segment.segment_leader_epochs.entries().iter();
            let entry = |entry: &EpochEntry| $module::SegmentLeaderEpochEntry {
                leader_epoch: entry.epoch.0,
                offset: entry.start_offset.0,
                ..Default::default()
            };
            $Record {
                start_offset: segment.start_offset.0,
                end_offset: segment.end_offset.0,
                broker_id: segment.broker_id.0,
                max_timestamp_ms: segment.max_timestamp.0,
                event_timestamp_ms: segment.event_timestamp.0,
                segment_leader_epochs: epochs.map(entry).collect(),
                segment_size_in_bytes: segment.segment_size_bytes,
                custom_metadata: to_bytes(segment.custom_metadata.as_ref()),
                remote_log_segment_state: segment.state.id(),
                txn_index_empty: segment.is_txn_index_empty,
                ..Default::default()
            }
        }
    };
}

segment_fields!(
    read_segment_fields,
    segment_fields,
    segment_record,
    RemoteLogSegmentMetadataRecord
);
segment_fields!(
    read_snapshot_fields,
    snapshot_fields,
    snapshot_record,
    RemoteLogSegmentMetadataSnapshotRecord
);

fn segment_state(id: i8) -> Result<RemoteLogSegmentState, RemoteLogMetadataError> {
    RemoteLogSegmentState::from_id(id).ok_or(RemoteLogMetadataError::UnknownSegmentState(id))
}

fn read_segment(
    record: RemoteLogSegmentMetadataRecord,
) -> Result<RemoteLogSegmentMetadata, RemoteLogMetadataError> {
    let segment = read_segment_fields(record.remote_log_segment_id.id, &record)?;
    Ok(RemoteLogSegmentMetadata {
        partition: read_segment_partition(record.remote_log_segment_id.topic_id_partition),
        segment,
    })
}

fn segment_to_record(metadata: &RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadataRecord {
    RemoteLogSegmentMetadataRecord {
        remote_log_segment_id: segment_record::RemoteLogSegmentIdEntry {
            topic_id_partition: segment_partition(&metadata.partition),
            id: metadata.segment.id,
            ..Default::default()
        },
        ..segment_fields(&metadata.segment)
    }
}

fn to_bytes(custom_metadata: Option<&CustomMetadata>) -> Option<Bytes> {
    custom_metadata.map(|CustomMetadata(bytes)| bytes.clone())
}

fn read_update(
    record: RemoteLogSegmentMetadataUpdateRecord,
) -> Result<RemoteLogSegmentMetadataUpdate, RemoteLogMetadataError> {
    Ok(RemoteLogSegmentMetadataUpdate {
        update: RemoteSegmentUpdate {
            id: record.remote_log_segment_id.id,
            event_timestamp: Timestamp(record.event_timestamp_ms),
            custom_metadata: record.custom_metadata.map(CustomMetadata),
            state: segment_state(record.remote_log_segment_state)?,
            broker_id: BrokerId(record.broker_id),
        },
        partition: read_update_partition(record.remote_log_segment_id.topic_id_partition),
    })
}

fn update_to_record(
    metadata: &RemoteLogSegmentMetadataUpdate,
) -> RemoteLogSegmentMetadataUpdateRecord {
    let update = &metadata.update;
    RemoteLogSegmentMetadataUpdateRecord {
        remote_log_segment_id: update_record::RemoteLogSegmentIdEntry {
            topic_id_partition: update_partition(&metadata.partition),
            id: update.id,
            ..Default::default()
        },
        broker_id: update.broker_id.0,
        event_timestamp_ms: update.event_timestamp.0,
        custom_metadata: to_bytes(update.custom_metadata.as_ref()),
        remote_log_segment_state: update.state.id(),
        ..Default::default()
    }
}

fn read_delete(
    record: RemotePartitionDeleteMetadataRecord,
) -> Result<RemotePartitionDeleteMetadata, RemoteLogMetadataError> {
    let id = record.remote_partition_delete_state;
    let state = RemotePartitionDeleteState::from_id(id);
    Ok(RemotePartitionDeleteMetadata {
        partition: read_delete_partition(record.topic_id_partition),
        state: state.ok_or(RemoteLogMetadataError::UnknownDeleteState(id))?,
        event_timestamp: Timestamp(record.event_timestamp_ms),
        broker_id: BrokerId(record.broker_id),
    })
}

fn delete_to_record(delete: &RemotePartitionDeleteMetadata) -> RemotePartitionDeleteMetadataRecord {
    RemotePartitionDeleteMetadataRecord {
        topic_id_partition: delete_partition(&delete.partition),
        broker_id: delete.broker_id.0,
        event_timestamp_ms: delete.event_timestamp.0,
        remote_partition_delete_state: delete.state.id(),
        ..Default::default()
    }
}

/// Kafka does not check the offsets of a snapshot; here they are checked as for any segment.
fn read_snapshot(
    record: RemoteLogSegmentMetadataSnapshotRecord,
) -> Result<RemoteSegment, RemoteLogMetadataError> {
    read_snapshot_fields(record.segment_id, &record)
}

fn snapshot_to_record(segment: &RemoteSegment) -> RemoteLogSegmentMetadataSnapshotRecord {
    RemoteLogSegmentMetadataSnapshotRecord {
        segment_id: segment.id,
        ..snapshot_fields(segment)
    }
}

#[cfg(test)]
mod tests;
