//! The records of group coordination, in the versions that Kafka 4.3.1 writes.
//!
//! Source: `GroupCoordinatorRecordHelpers`, `GroupCoordinatorRecordSerde`.

use bytes::Bytes;
use bytestring::ByteString;
use ottla_protocol::EncodeError;
use ottla_protocol::coordinator_records::group_metadata_value::MemberMetadata;
use ottla_protocol::coordinator_records::{
    GroupMetadataKey, GroupMetadataValue, GroupRecordKey, GroupRecordValue, OffsetCommitKey,
    OffsetCommitValue,
};

use super::classic_group::ClassicGroup;
use super::offsets::OffsetAndMetadata;
use crate::runtime::EncodeRecord;

/// The version that 4.3.1 writes. It knows version 4 but does not write it, so that a downgrade
/// stays possible.
const GROUP_METADATA_VALUE_VERSION: i16 = 3;
/// The only version with an expiry timestamp.
const OFFSET_COMMIT_VALUE_VERSION_WITH_EXPIRY: i16 = 1;
const OFFSET_COMMIT_VALUE_VERSION: i16 = 4;
/// The version of all values of consumer, share and streams groups.
const MODERN_GROUP_VALUE_VERSION: i16 = 0;

/// One record of `__consumer_offsets`. Without a value it is a tombstone.
#[derive(Clone, PartialEq, Debug)]
pub struct CoordinatorRecord {
    pub key: GroupRecordKey,
    pub value: Option<GroupRecordValue>,
}

impl CoordinatorRecord {
    pub(super) fn new(key: impl Into<GroupRecordKey>, value: impl Into<GroupRecordValue>) -> Self {
        Self {
            key: key.into(),
            value: Some(value.into()),
        }
    }

    pub(super) fn tombstone(key: impl Into<GroupRecordKey>) -> Self {
        Self {
            key: key.into(),
            value: None,
        }
    }

    pub(crate) fn offset_commit(
        group_id: &ByteString,
        topic: &ByteString,
        partition: i32,
        offset: &OffsetAndMetadata,
    ) -> Self {
        Self {
            key: offset_key(group_id, topic, partition),
            value: Some(GroupRecordValue::OffsetCommit(OffsetCommitValue {
                offset: offset.committed_offset,
                leader_epoch: offset.leader_epoch,
                metadata: offset.metadata.clone(),
                commit_timestamp: offset.commit_timestamp_ms,
                expire_timestamp: offset.expire_timestamp_ms.unwrap_or(-1),
                topic_id: offset.topic_id,
                ..Default::default()
            })),
        }
    }

    pub(crate) fn offset_tombstone(
        group_id: &ByteString,
        topic: &ByteString,
        partition: i32,
    ) -> Self {
        Self {
            key: offset_key(group_id, topic, partition),
            value: None,
        }
    }

    /// The current group, with the assignments of `assignment_of` instead of those that the members
    /// have.
    pub(crate) fn group_metadata(
        group: &ClassicGroup,
        mut assignment_of: impl FnMut(&ByteString) -> Bytes,
    ) -> Self {
        let members = group
            .members()
            .map(|member| MemberMetadata {
                member_id: member.member_id.clone(),
                group_instance_id: member.group_instance_id.clone(),
                client_id: member.client_id.clone(),
                client_host: member.client_host.clone(),
                rebalance_timeout: member.rebalance_timeout_ms,
                session_timeout: member.session_timeout_ms,
                subscription: group
                    .protocol_name()
                    .and_then(|name| member.metadata(name))
                    .cloned()
                    .unwrap_or_default(),
                assignment: assignment_of(&member.member_id),
                ..Default::default()
            })
            .collect();
        Self {
            key: group_key(group.group_id()),
            value: Some(GroupRecordValue::GroupMetadata(GroupMetadataValue {
                protocol_type: group.protocol_type().cloned().unwrap_or_default(),
                generation: group.generation_id(),
                protocol: group.protocol_name().cloned(),
                leader: group.leader_id().cloned(),
                current_state_timestamp: group.current_state_timestamp_ms().unwrap_or(-1),
                members,
                ..Default::default()
            })),
        }
    }

    /// A new group without members.
    pub(crate) fn empty_group_metadata(group: &ClassicGroup) -> Self {
        Self {
            key: group_key(group.group_id()),
            value: Some(GroupRecordValue::GroupMetadata(GroupMetadataValue {
                protocol: None,
                leader: None,
                current_state_timestamp: group.current_state_timestamp_ms().unwrap_or(-1),
                ..Default::default()
            })),
        }
    }

    pub(crate) fn group_tombstone(group_id: &ByteString) -> Self {
        Self {
            key: group_key(group_id),
            value: None,
        }
    }
}

impl EncodeRecord for CoordinatorRecord {
    fn encode(&self) -> Result<(Bytes, Option<Bytes>), EncodeError> {
        let key = self.key.encode()?;
        let value = match &self.value {
            None => None,
            Some(value) => Some(value.encode(value_version(value))?),
        };
        Ok((key, value))
    }
}

/// The version that Kafka 4.3.1 writes for this value.
fn value_version(value: &GroupRecordValue) -> i16 {
    match value {
        GroupRecordValue::OffsetCommit(value) if value.expire_timestamp != -1 => {
            OFFSET_COMMIT_VALUE_VERSION_WITH_EXPIRY
        }
        GroupRecordValue::OffsetCommit(_) => OFFSET_COMMIT_VALUE_VERSION,
        GroupRecordValue::GroupMetadata(_) => GROUP_METADATA_VALUE_VERSION,
        _ => MODERN_GROUP_VALUE_VERSION,
    }
}

fn offset_key(group_id: &ByteString, topic: &ByteString, partition: i32) -> GroupRecordKey {
    GroupRecordKey::OffsetCommit(OffsetCommitKey {
        group: group_id.clone(),
        topic: topic.clone(),
        partition,
    })
}

fn group_key(group_id: &ByteString) -> GroupRecordKey {
    GroupRecordKey::GroupMetadata(GroupMetadataKey {
        group: group_id.clone(),
    })
}
