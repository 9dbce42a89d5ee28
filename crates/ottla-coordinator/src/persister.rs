//! The requests of partition leaders and group coordinators to share coordinators, and the
//! responses. Both sides use these types. Source: the package
//! `org.apache.kafka.server.share.persister`.

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
    /// The key for [`crate::partition_for`], which determines the partition of
    /// `__share_group_state`. Source: `SharePartitionKey.asCoordinatorKey`.
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
    /// The id of a `RecordState` of a share partition.
    pub delivery_state: i8,
    pub delivery_count: i16,
}

/// Batches have the same fields in records and in requests.
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
    /// -1 for any.
    pub state_epoch: i32,
    /// `Offset::UNKNOWN` if the group's configuration determines the first offset.
    pub start_offset: Offset,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadState {
    pub key: SharePartitionKey,
    /// `LeaderEpoch::UNKNOWN` for a read by a node that is not the leader.
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
    /// -1 for any.
    pub state_epoch: i32,
    /// `LeaderEpoch::UNKNOWN` for any.
    pub leader_epoch: LeaderEpoch,
    /// `Offset::UNKNOWN` to leave it unchanged.
    pub start_offset: Offset,
    pub delivery_complete_count: i32,
    pub batches: Vec<StateBatch>,
}

/// Why the coordinator refused a request, or that it is not the coordinator.
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
