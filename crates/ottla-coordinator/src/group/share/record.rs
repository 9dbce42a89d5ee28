//! The records of share groups, in the versions that Kafka 4.3.1 writes.
//! Source: `GroupCoordinatorRecordHelpers`.

use bytestring::ByteString;
use ottla_metadata::MetadataImage;
use ottla_protocol::coordinator_records::GroupRecordKey;
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
use crate::group::record::CoordinatorRecord;
use crate::group::recorded::{GroupRecords, record_keys, records_with_topics};

impl GroupRecords<ShareGroupMember> for ShareGroup {
    record_keys! {
        group: ShareGroupMetadataKey,
        member: ShareGroupMemberMetadataKey,
        current: ShareGroupCurrentMemberAssignmentKey,
        target: ShareGroupTargetAssignmentMemberKey,
        target_metadata: ShareGroupTargetAssignmentMetadataKey => ShareGroupTargetAssignmentMetadataValue,
    }

    records_with_topics! {
        target: ShareGroupTargetAssignmentMemberValue of TopicPartition,
        group: ShareGroupMetadataValue,
    }

    fn member_metadata(group_id: &ByteString, member: &ShareGroupMember) -> CoordinatorRecord {
        CoordinatorRecord::new(
            Self::member_key(group_id, &member.member_id),
            ShareGroupMemberMetadataValue {
                rack_id: member.rack_id.clone(),
                client_id: member.client_id.clone(),
                client_host: member.client_host.clone(),
                subscribed_topic_names: member.subscribed_topic_names.iter().cloned().collect(),
                ..Default::default()
            },
        )
    }

    fn current_assignment(group_id: &ByteString, member: &ShareGroupMember) -> CoordinatorRecord {
        let topics = member.assigned.topics();
        let topics = topics.map(|(topic_id, partitions)| TopicPartitions {
            topic_id,
            partitions: partitions.iter().copied().collect(),
            ..Default::default()
        });
        CoordinatorRecord::new(
            Self::current_key(group_id, &member.member_id),
            ShareGroupCurrentMemberAssignmentValue {
                member_epoch: member.member_epoch,
                previous_member_epoch: member.previous_member_epoch,
                state: member.state.code(),
                assigned_partitions: topics.collect(),
                ..Default::default()
            },
        )
    }
}

fn state_partitions_key(group_id: &ByteString) -> ShareGroupStatePartitionMetadataKey {
    let group_id = group_id.clone();
    ShareGroupStatePartitionMetadataKey { group_id }
}

pub(super) fn state_partitions(
    group_id: &ByteString,
    partitions: &StatePartitions,
    image: &MetadataImage,
) -> CoordinatorRecord {
    CoordinatorRecord::new(state_partitions_key(group_id), partitions.to_record(image))
}

/// Deletes the group with all its members.
pub(in crate::group) fn share_group_tombstones(group: &ShareGroup) -> Vec<CoordinatorRecord> {
    let group_id = &group.group_id;
    let mut records = ShareGroup::tombstones_of_members(group);
    records.push(CoordinatorRecord::tombstone(state_partitions_key(group_id)));
    records.push(CoordinatorRecord::tombstone(ShareGroup::group_key(
        group_id,
    )));
    records
}
