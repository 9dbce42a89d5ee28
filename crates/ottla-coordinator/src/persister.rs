//! What leaders of partitions and coordinators of groups ask of share coordinators, and what they are answered. Neither
//! side needs the other for it.
//! Source: the package `org.apache.kafka.server.share.persister`.

use bytestring::ByteString;
use ottla_protocol::coordinator_records::{share_snapshot_value, share_update_value};
use ottla_protocol::messages::{read_share_group_state_response, write_share_group_state_request};
use ottla_types::{ErrorCode, LeaderEpoch, Offset, TopicId};

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct SharePartitionKey {
    pub group_id: ByteString,
    pub topic_id: TopicId,
    pub partition: i32,
}

impl SharePartitionKey {
    /// What decides about the partition of `__share_group_state`: [`crate::partition_for`] takes it.
    /// Source: `SharePartitionKey.asCoordinatorKey`.
    pub fn coordinator_key(&self) -> String {
        format!("{}:{}:{}", self.group_id, self.topic_id, self.partition)
    }
}

/// A range of records with their state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StateBatch {
    pub first_offset: Offset,
    /// Inclusive.
    pub last_offset: Offset,
    /// As `RecordState` of a share partition has it.
    pub delivery_state: i8,
    pub delivery_count: i16,
}

/// A batch has the same fields in records and in requests.
macro_rules! batches_on_the_wire {
    ($($Batch:ty),+ $(,)?) => {$(
        impl From<&$Batch> for StateBatch {
            fn from(batch: &$Batch) -> Self {
                StateBatch {
                    first_offset: Offset(batch.first_offset),
                    last_offset: Offset(batch.last_offset),
                    delivery_state: batch.delivery_state,
                    delivery_count: batch.delivery_count,
                }
            }
        }

        impl From<&StateBatch> for $Batch {
            fn from(batch: &StateBatch) -> Self {
                Self {
                    first_offset: batch.first_offset.0,
                    last_offset: batch.last_offset.0,
                    delivery_state: batch.delivery_state,
                    delivery_count: batch.delivery_count,
                    ..Default::default()
                }
            }
        }
    )+};
}

batches_on_the_wire!(
    share_snapshot_value::StateBatch,
    share_update_value::StateBatch,
    read_share_group_state_response::StateBatch,
    write_share_group_state_request::StateBatch,
);

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InitializeState {
    pub key: SharePartitionKey,
    /// -1 for whichever there is.
    pub state_epoch: i32,
    /// `Offset::UNKNOWN` where the group's configuration is to decide when the first record is read.
    pub start_offset: Offset,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadState {
    pub key: SharePartitionKey,
    /// `LeaderEpoch::UNKNOWN` for one who only looks.
    pub leader_epoch: LeaderEpoch,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StateRead {
    pub state_epoch: i32,
    pub start_offset: Offset,
    pub batches: Vec<StateBatch>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StateSummary {
    pub state_epoch: i32,
    pub leader_epoch: LeaderEpoch,
    pub start_offset: Offset,
    pub delivery_complete_count: i32,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WriteState {
    pub key: SharePartitionKey,
    /// -1 for whichever there is.
    pub state_epoch: i32,
    /// `LeaderEpoch::UNKNOWN` for whichever there is.
    pub leader_epoch: LeaderEpoch,
    /// `Offset::UNKNOWN` where it stays.
    pub start_offset: Offset,
    pub delivery_complete_count: i32,
    pub batches: Vec<StateBatch>,
}

/// Why a request is refused: by the coordinator, or because it is not here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StateFailure {
    pub code: ErrorCode,
    pub message: ByteString,
}

impl From<ErrorCode> for StateFailure {
    fn from(code: ErrorCode) -> Self {
        StateFailure {
            code,
            message: ByteString::from_static(code.message()),
        }
    }
}
