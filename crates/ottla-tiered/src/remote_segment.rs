//! The metadata of one segment in remote storage, and its updates.
//!
//! Kafka: `RemoteLogSegmentMetadataSnapshot` (a segment whose partition is known),
//! `RemoteLogSegmentMetadata`, `RemoteLogSegmentMetadataUpdate`.

use std::fmt;

use bytes::Bytes;
use ottla_types::{BrokerId, LeaderEpoch, Offset, Timestamp, Uuid};

use crate::leader_epochs::LeaderEpochs;
use crate::segment_id::{RemoteLogSegmentId, RemotePartition};
use crate::segment_state::{RemoteLogSegmentState, RemotePartitionDeleteState};

/// Bytes that a store gives for a segment and gets back with every call (KIP-917). The broker
/// keeps them without reading them, up to `remote.log.metadata.custom.metadata.max.bytes`.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct CustomMetadata(pub Bytes);

impl fmt::Debug for CustomMetadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CustomMetadata({} bytes)", self.0.len())
    }
}

/// One segment of a partition in remote storage, without the partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemoteSegment {
    pub id: Uuid,
    pub start_offset: Offset,
    /// Inclusive.
    pub end_offset: Offset,
    /// The largest timestamp of its records.
    pub max_timestamp: Timestamp,
    /// The broker that wrote the newest record about it.
    pub broker_id: BrokerId,
    /// When that record was written.
    pub event_timestamp: Timestamp,
    /// The size of its log file.
    pub segment_size_bytes: i32,
    pub custom_metadata: Option<CustomMetadata>,
    pub state: RemoteLogSegmentState,
    /// The epochs of its records, with the first offset of each within the segment. Never empty.
    pub segment_leader_epochs: LeaderEpochs,
    /// Whether its transaction index is empty. Records of before Kafka 3.8 say false.
    pub is_txn_index_empty: bool,
}

/// A segment that no record may describe.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RemoteSegmentError {
    #[error("remote segment {id} starts at offset {start_offset}, which is negative")]
    NegativeStart { id: Uuid, start_offset: Offset },
    #[error("remote segment {id} ends at offset {end_offset}, before its start {start_offset}")]
    EndBeforeStart {
        id: Uuid,
        start_offset: Offset,
        end_offset: Offset,
    },
    #[error("remote segment {id} has no leader epochs")]
    NoLeaderEpochs { id: Uuid },
}

impl RemoteSegment {
    /// Checks what Kafka's constructor checks.
    pub fn check(&self) -> Result<(), RemoteSegmentError> {
        let (id, start_offset, end_offset) = (self.id, self.start_offset, self.end_offset);
        if start_offset.0 < 0 {
            return Err(RemoteSegmentError::NegativeStart { id, start_offset });
        }
        if end_offset < start_offset {
            return Err(RemoteSegmentError::EndBeforeStart {
                id,
                start_offset,
                end_offset,
            });
        }
        if self.segment_leader_epochs.is_empty() {
            return Err(RemoteSegmentError::NoLeaderEpochs { id });
        }
        Ok(())
    }

    /// The size of its log file.
    pub(crate) fn size_bytes(&self) -> u64 {
        u64::try_from(self.segment_size_bytes).unwrap_or(0)
    }

    /// The offset after its last one.
    pub fn next_offset(&self) -> Offset {
        Offset(self.end_offset.0.saturating_add(1))
    }

    /// The last offset of `epoch` within this segment.
    pub fn end_offset_of(&self, epoch: LeaderEpoch) -> Offset {
        self.segment_leader_epochs
            .end_offset_within(epoch, self.end_offset)
    }

    /// The segment after an update of it (`createWithUpdates`).
    pub fn updated(&self, update: &RemoteSegmentUpdate) -> RemoteSegment {
        RemoteSegment {
            broker_id: update.broker_id,
            event_timestamp: update.event_timestamp,
            custom_metadata: update.custom_metadata.clone(),
            state: update.state,
            ..self.clone()
        }
    }

    /// The update that takes this segment to another state and keeps its custom metadata.
    pub fn to_state(
        &self,
        state: RemoteLogSegmentState,
        event_timestamp: Timestamp,
        broker_id: BrokerId,
    ) -> RemoteSegmentUpdate {
        RemoteSegmentUpdate {
            id: self.id,
            event_timestamp,
            custom_metadata: self.custom_metadata.clone(),
            state,
            broker_id,
        }
    }
}

/// A change of the state of a segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemoteSegmentUpdate {
    pub id: Uuid,
    pub event_timestamp: Timestamp,
    pub custom_metadata: Option<CustomMetadata>,
    pub state: RemoteLogSegmentState,
    pub broker_id: BrokerId,
}

/// A segment with its partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemoteLogSegmentMetadata {
    pub partition: RemotePartition,
    pub segment: RemoteSegment,
}

impl RemoteLogSegmentMetadata {
    pub fn id(&self) -> RemoteLogSegmentId {
        RemoteLogSegmentId {
            partition: self.partition.clone(),
            id: self.segment.id,
        }
    }
}

/// An update with its partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemoteLogSegmentMetadataUpdate {
    pub partition: RemotePartition,
    pub update: RemoteSegmentUpdate,
}

/// The deletion of a whole partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemotePartitionDeleteMetadata {
    pub partition: RemotePartition,
    pub state: RemotePartitionDeleteState,
    pub event_timestamp: Timestamp,
    pub broker_id: BrokerId,
}
