//! The effects of the tasks of a partition, and the answers to them.
//!
//! A task has at most one unanswered effect. An answer carries the number of its effect, so that a
//! late one for a task that was cancelled is ignored.

use ottla_types::{BrokerId, Offset, Timestamp, Uuid};

use crate::leader_epochs::LeaderEpochs;
use crate::metadata_record::RemoteLogMetadata;
use crate::remote_segment::{
    CustomMetadata, RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate, RemoteSegment,
    RemoteSegmentUpdate,
};
use crate::segment_id::RemotePartition;
use crate::segment_state::RemoteLogSegmentState;

/// The number of an effect of one task.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Operation(pub u64);

/// The time of both clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaskTime {
    /// The wall clock, for the times in records and the age of segments.
    pub timestamp: Timestamp,
    /// Milliseconds of a clock that does not go back, by which runs are due.
    pub now_ms: u64,
}

/// How a store failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreFailure {
    /// Trying again may help (`RetriableRemoteStorageException`).
    Retriable,
    /// `RemoteStorageException`.
    Permanent,
}

/// A record was not written to the topic, or it is not known whether it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PublishFailure;

/// The answer to an effect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TaskEvent {
    /// To `AwaitCopyQuota`: the copy may begin, with a random ID.
    CopyPermitted { segment_id: Uuid },
    /// To `Publish`: the record is in the topic, and this broker has read it back.
    Published(Result<(), PublishFailure>),
    /// To `Upload`, with the bytes that the store wants to keep.
    Uploaded(Result<Option<CustomMetadata>, StoreFailure>),
    /// To `DeleteData`.
    DataDeleted(Result<(), StoreFailure>),
}

/// A segment to upload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Upload {
    pub metadata: RemoteLogSegmentMetadata,
    /// All leader epochs of the log below the end of the segment; their checkpoint text is the
    /// leader epoch index.
    pub leader_epochs: LeaderEpochs,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TaskEffect {
    /// Wait until the copy quota allows this many bytes, and count them.
    AwaitCopyQuota { operation: Operation, bytes: u64 },
    /// Write a record to the topic, and wait until this broker has read it back.
    Publish {
        operation: Operation,
        metadata: RemoteLogMetadata,
    },
    /// Upload log, indexes, the producer snapshot at the end of the segment, and leader epochs.
    Upload {
        operation: Operation,
        upload: Upload,
    },
    /// Delete all objects of a segment. Objects that do not exist are deleted.
    DeleteData {
        operation: Operation,
        metadata: RemoteLogSegmentMetadata,
    },
    /// Moves the log start offset forward, unless it is already this far.
    IncrementLogStartOffset { log_start_offset: Offset },
    /// Local segments up to this offset may be deleted. It may be lower than before, and a
    /// truncation lowers it too: Kafka keeps the highest one, and after an unclean election deletes
    /// local records that remote storage has only of another history.
    SetHighestRemoteOffset { offset: Offset },
    /// The next run is due after `remote.log.manager.task.interval.ms`.
    RunEnded(RunOutcome),
}

impl TaskEffect {
    /// The number to answer with, if the effect has an answer.
    pub fn operation(&self) -> Option<Operation> {
        match self {
            TaskEffect::AwaitCopyQuota { operation, .. }
            | TaskEffect::Publish { operation, .. }
            | TaskEffect::Upload { operation, .. }
            | TaskEffect::DeleteData { operation, .. } => Some(*operation),
            TaskEffect::IncrementLogStartOffset { .. }
            | TaskEffect::SetHighestRemoteOffset { .. }
            | TaskEffect::RunEnded(_) => None,
        }
    }
}

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RunOutcome {
    #[error("nothing is left to do")]
    Done,
    #[error("the store failed, and may work the next time")]
    Retriable,
    #[error("the store failed")]
    StoreFailed,
    #[error("a record could not be written to __remote_log_metadata")]
    PublishFailed,
    #[error("the producer snapshot at the end of the segment is missing")]
    NoProducerSnapshot,
    #[error("the segment has no leader epochs")]
    NoLeaderEpochs,
    /// Copying stops until the leader changes.
    #[error(
        "the custom metadata of the store exceeds remote.log.metadata.custom.metadata.max.bytes; \
         raise it, and restart the broker or move the leader"
    )]
    CustomMetadataTooLarge,
}

impl From<StoreFailure> for RunOutcome {
    fn from(failure: StoreFailure) -> RunOutcome {
        match failure {
            StoreFailure::Retriable => RunOutcome::Retriable,
            StoreFailure::Permanent => RunOutcome::StoreFailed,
        }
    }
}

/// The partition of a task, and the broker that it runs on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    pub partition: RemotePartition,
    pub broker_id: BrokerId,
}

impl Origin {
    pub(crate) fn metadata(&self, segment: &RemoteSegment) -> RemoteLogSegmentMetadata {
        RemoteLogSegmentMetadata {
            partition: self.partition.clone(),
            segment: segment.clone(),
        }
    }

    pub(crate) fn update(&self, update: RemoteSegmentUpdate) -> RemoteLogMetadata {
        RemoteLogMetadata::SegmentUpdate(RemoteLogSegmentMetadataUpdate {
            partition: self.partition.clone(),
            update,
        })
    }

    pub(crate) fn to_state(
        &self,
        segment: &RemoteSegment,
        state: RemoteLogSegmentState,
        now: Timestamp,
    ) -> RemoteLogMetadata {
        self.update(segment.to_state(state, now, self.broker_id))
    }
}

/// Numbers the effects of a task.
#[derive(Debug, Default)]
pub(crate) struct Operations(u64);

impl Operations {
    pub(crate) fn next(&mut self) -> Operation {
        self.0 += 1;
        Operation(self.0)
    }

    pub(crate) fn is_current(&self, operation: Operation) -> bool {
        operation == Operation(self.0)
    }
}
