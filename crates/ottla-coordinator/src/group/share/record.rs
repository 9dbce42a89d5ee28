//! The records of share groups, in the versions that Kafka 4.3.1 writes.
//! Source: `GroupCoordinatorRecordHelpers`.

use bytestring::ByteString;
use ottla_metadata::MetadataImage;
use ottla_protocol::coordinator_records::share_group_current_member_assignment_value::TopicPartitions;
use ottla_protocol::coordinator_records::share_group_target_assignment_member_value::TopicPartition;
use ottla_protocol::coordinator_records::{
    GroupRecordKey, GroupRecordValue, ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue, ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue, ShareGroupMetadataKey, ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey, ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue, ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
};

use super::group::ShareGroup;
use super::member::ShareGroupMember;
use super::state_partitions::StatePartitions;
use crate::group::CoordinatorRecord;
use crate::group::modern::Assignment;

/// All values of share groups are written in this version.
pub(in crate::group) const SHARE_GROUP_VALUE_VERSION: i16 = 0;

fn record(key: impl Into<GroupRecordKey>, value: impl Into<GroupRecordValue>) -> CoordinatorRecord {
    CoordinatorRecord {
        key: key.into(),
        value: Some(value.into()),
    }
}

fn tombstone(key: impl Into<GroupRecordKey>) -> CoordinatorRecord {
    CoordinatorRecord {
        key: key.into(),
        value: None,
    }
}

fn member_metadata_key(
    group_id: &ByteString,
    member_id: &ByteString,
) -> ShareGroupMemberMetadataKey {
    ShareGroupMemberMetadataKey {
        group_id: group_id.clone(),
        member_id: member_id.clone(),
    }
}

fn target_key(
    group_id: &ByteString,
    member_id: &ByteString,
) -> ShareGroupTargetAssignmentMemberKey {
    ShareGroupTargetAssignmentMemberKey {
        group_id: group_id.clone(),
        member_id: member_id.clone(),
    }
}

fn target_metadata_key(group_id: &ByteString) -> ShareGroupTargetAssignmentMetadataKey {
    ShareGroupTargetAssignmentMetadataKey {
        group_id: group_id.clone(),
    }
}

fn current_key(
    group_id: &ByteString,
    member_id: &ByteString,
) -> ShareGroupCurrentMemberAssignmentKey {
    ShareGroupCurrentMemberAssignmentKey {
        group_id: group_id.clone(),
        member_id: member_id.clone(),
    }
}

fn group_key(group_id: &ByteString) -> ShareGroupMetadataKey {
    ShareGroupMetadataKey {
        group_id: group_id.clone(),
    }
}

fn state_partitions_key(group_id: &ByteString) -> ShareGroupStatePartitionMetadataKey {
    ShareGroupStatePartitionMetadataKey {
        group_id: group_id.clone(),
    }
}

/// What the member says of itself.
pub(super) fn member_metadata(
    group_id: &ByteString,
    member: &ShareGroupMember,
) -> CoordinatorRecord {
    record(
        member_metadata_key(group_id, &member.member_id),
        ShareGroupMemberMetadataValue {
            rack_id: member.rack_id.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            subscribed_topic_names: member.subscribed_topic_names.iter().cloned().collect(),
            ..Default::default()
        },
    )
}

pub(super) fn group_epoch(
    group_id: &ByteString,
    epoch: i32,
    metadata_hash: i64,
) -> CoordinatorRecord {
    record(
        group_key(group_id),
        ShareGroupMetadataValue {
            epoch,
            metadata_hash,
            ..Default::default()
        },
    )
}

pub(super) fn target_assignment(
    group_id: &ByteString,
    member_id: &ByteString,
    assignment: &Assignment,
) -> CoordinatorRecord {
    let topics = assignment.topics();
    let topics = topics.map(|(topic_id, partitions)| TopicPartition {
        topic_id,
        partitions: partitions.iter().copied().collect(),
        ..Default::default()
    });
    record(
        target_key(group_id, member_id),
        ShareGroupTargetAssignmentMemberValue {
            topic_partitions: topics.collect(),
            ..Default::default()
        },
    )
}

pub(super) fn target_metadata(
    group_id: &ByteString,
    epoch: i32,
    timestamp_ms: i64,
) -> CoordinatorRecord {
    record(
        target_metadata_key(group_id),
        ShareGroupTargetAssignmentMetadataValue {
            assignment_epoch: epoch,
            assignment_timestamp: timestamp_ms,
            ..Default::default()
        },
    )
}

pub(super) fn current_assignment(
    group_id: &ByteString,
    member: &ShareGroupMember,
) -> CoordinatorRecord {
    let topics = member.assigned.topics();
    let topics = topics.map(|(topic_id, partitions)| TopicPartitions {
        topic_id,
        partitions: partitions.iter().copied().collect(),
        ..Default::default()
    });
    record(
        current_key(group_id, &member.member_id),
        ShareGroupCurrentMemberAssignmentValue {
            member_epoch: member.member_epoch,
            previous_member_epoch: member.previous_member_epoch,
            state: member.state.code(),
            assigned_partitions: topics.collect(),
            ..Default::default()
        },
    )
}

pub(super) fn state_partitions(
    group_id: &ByteString,
    partitions: &StatePartitions,
    image: &MetadataImage,
) -> CoordinatorRecord {
    record(state_partitions_key(group_id), partitions.to_record(image))
}

/// The end of a member, in Kafka's order.
pub(super) fn member_tombstones(
    group_id: &ByteString,
    member_id: &ByteString,
) -> [CoordinatorRecord; 3] {
    [
        tombstone(current_key(group_id, member_id)),
        tombstone(target_key(group_id, member_id)),
        tombstone(member_metadata_key(group_id, member_id)),
    ]
}

/// The end of a group, in Kafka's order.
pub(in crate::group) fn share_group_tombstones(group: &ShareGroup) -> Vec<CoordinatorRecord> {
    let id = &group.group_id;
    let mut tombstones = Vec::new();
    for member in group.members() {
        tombstones.push(tombstone(current_key(id, &member.member_id)));
    }
    for member in group.members() {
        tombstones.push(tombstone(target_key(id, &member.member_id)));
    }
    tombstones.push(tombstone(target_metadata_key(id)));
    for member in group.members() {
        tombstones.push(tombstone(member_metadata_key(id, &member.member_id)));
    }
    tombstones.push(tombstone(state_partitions_key(id)));
    tombstones.push(tombstone(group_key(id)));
    tombstones
}
