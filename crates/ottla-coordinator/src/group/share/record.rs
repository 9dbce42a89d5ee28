//! The records of share groups, in the versions that Kafka 4.3.1 writes.
//! Source: `GroupCoordinatorRecordHelpers`.

use bytestring::ByteString;
use ottla_metadata::MetadataImage;
use ottla_protocol::coordinator_records::share_group_current_member_assignment_value::TopicPartitions;
use ottla_protocol::coordinator_records::share_group_target_assignment_member_value::TopicPartition;
use ottla_protocol::coordinator_records::{
    ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue, ShareGroupMetadataKey,
    ShareGroupMetadataValue, ShareGroupStatePartitionMetadataKey,
    ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue,
};

use super::group::ShareGroup;
use super::member::ShareGroupMember;
use super::state_partitions::StatePartitions;
use crate::group::modern::Assignment;
use crate::group::record::{CoordinatorRecord, record_keys};

record_keys! {
    member_metadata_key: ShareGroupMemberMetadataKey { group_id, member_id };
    target_key: ShareGroupTargetAssignmentMemberKey { group_id, member_id };
    target_metadata_key: ShareGroupTargetAssignmentMetadataKey { group_id };
    current_key: ShareGroupCurrentMemberAssignmentKey { group_id, member_id };
    group_key: ShareGroupMetadataKey { group_id };
    state_partitions_key: ShareGroupStatePartitionMetadataKey { group_id };
}

/// What the member says of itself.
pub(super) fn member_metadata(
    group_id: &ByteString,
    member: &ShareGroupMember,
) -> CoordinatorRecord {
    CoordinatorRecord::new(
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
    CoordinatorRecord::new(
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
    CoordinatorRecord::new(
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
    CoordinatorRecord::new(
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
    CoordinatorRecord::new(
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
    CoordinatorRecord::new(state_partitions_key(group_id), partitions.to_record(image))
}

/// The end of a member, in Kafka's order.
pub(super) fn member_tombstones(
    group_id: &ByteString,
    member_id: &ByteString,
) -> [CoordinatorRecord; 3] {
    [
        CoordinatorRecord::tombstone(current_key(group_id, member_id)),
        CoordinatorRecord::tombstone(target_key(group_id, member_id)),
        CoordinatorRecord::tombstone(member_metadata_key(group_id, member_id)),
    ]
}

/// The end of a group, in Kafka's order.
pub(in crate::group) fn share_group_tombstones(group: &ShareGroup) -> Vec<CoordinatorRecord> {
    let id = &group.group_id;
    let mut tombstones = Vec::new();
    for member in group.members() {
        tombstones.push(CoordinatorRecord::tombstone(current_key(
            id,
            &member.member_id,
        )));
    }
    for member in group.members() {
        tombstones.push(CoordinatorRecord::tombstone(target_key(
            id,
            &member.member_id,
        )));
    }
    tombstones.push(CoordinatorRecord::tombstone(target_metadata_key(id)));
    for member in group.members() {
        tombstones.push(CoordinatorRecord::tombstone(member_metadata_key(
            id,
            &member.member_id,
        )));
    }
    tombstones.push(CoordinatorRecord::tombstone(state_partitions_key(id)));
    tombstones.push(CoordinatorRecord::tombstone(group_key(id)));
    tombstones
}
