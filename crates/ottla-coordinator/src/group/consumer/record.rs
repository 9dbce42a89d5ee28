//! The records of consumer groups, in the versions that Kafka 4.3.1 writes.
//! Source: `GroupCoordinatorRecordHelpers`.

use bytestring::ByteString;
use ottla_protocol::coordinator_records::GroupRecordKey;
use ottla_protocol::coordinator_records::consumer_group_member_metadata_value::{
    ClassicMemberMetadata, ClassicProtocol,
};
use ottla_protocol::coordinator_records::consumer_group_target_assignment_member_value::TopicPartition;
use ottla_protocol::coordinator_records::{
    ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue, ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue, ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue,
};

use super::group::ConsumerGroup;
use super::member::{ConsumerGroupMember, to_record};
use super::topic_regex::ResolvedRegex;
use crate::group::modern::Assignment;
use crate::group::record::CoordinatorRecord;
use crate::group::recorded::{GroupRecords, record_keys, records_with_topics};

impl GroupRecords<ConsumerGroupMember> for ConsumerGroup {
    record_keys! {
        group: ConsumerGroupMetadataKey,
        member: ConsumerGroupMemberMetadataKey,
        current: ConsumerGroupCurrentMemberAssignmentKey,
        target: ConsumerGroupTargetAssignmentMemberKey,
        target_metadata: ConsumerGroupTargetAssignmentMetadataKey => ConsumerGroupTargetAssignmentMetadataValue,
    }

    records_with_topics! {
        target: ConsumerGroupTargetAssignmentMemberValue of TopicPartition,
        group: ConsumerGroupMetadataValue,
    }

    fn member_metadata(group_id: &ByteString, member: &ConsumerGroupMember) -> CoordinatorRecord {
        let classic = member.classic.as_ref().map(|classic| {
            let protocols = classic
                .supported_protocols
                .iter()
                .map(|protocol| ClassicProtocol {
                    name: protocol.name.clone(),
                    metadata: protocol.metadata.clone(),
                    ..Default::default()
                });
            ClassicMemberMetadata {
                session_timeout_ms: classic.session_timeout_ms,
                supported_protocols: protocols.collect(),
                ..Default::default()
            }
        });
        CoordinatorRecord::new(
            Self::member_key(group_id, &member.member_id),
            ConsumerGroupMemberMetadataValue {
                instance_id: member.instance_id.clone(),
                rack_id: member.rack_id.clone(),
                client_id: member.client_id.clone(),
                client_host: member.client_host.clone(),
                subscribed_topic_names: member.subscribed_topic_names.iter().cloned().collect(),
                subscribed_topic_regex: member.subscribed_topic_regex.clone(),
                rebalance_timeout_ms: member.rebalance_timeout_ms,
                server_assignor: member.server_assignor.clone(),
                classic_member_metadata: classic,
                ..Default::default()
            },
        )
    }

    fn current_assignment(
        group_id: &ByteString,
        member: &ConsumerGroupMember,
    ) -> CoordinatorRecord {
        CoordinatorRecord::new(
            Self::current_key(group_id, &member.member_id),
            ConsumerGroupCurrentMemberAssignmentValue {
                member_epoch: member.member_epoch,
                previous_member_epoch: member.previous_member_epoch,
                state: member.state.code(),
                assigned_partitions: to_record(&member.assigned),
                partitions_pending_revocation: to_record(&member.pending_revocation),
                ..Default::default()
            },
        )
    }
}

fn regex_key(group_id: &ByteString, regex: &ByteString) -> ConsumerGroupRegularExpressionKey {
    ConsumerGroupRegularExpressionKey {
        group_id: group_id.clone(),
        regular_expression: regex.clone(),
    }
}

pub(super) fn resolved_regex(
    group_id: &ByteString,
    regex: &ByteString,
    resolved: &ResolvedRegex,
) -> CoordinatorRecord {
    CoordinatorRecord::new(
        regex_key(group_id, regex),
        ConsumerGroupRegularExpressionValue {
            topics: resolved.topics.iter().cloned().collect(),
            version: resolved.version,
            timestamp: resolved.timestamp_ms,
            ..Default::default()
        },
    )
}

pub(super) fn regex_tombstone(group_id: &ByteString, regex: &ByteString) -> CoordinatorRecord {
    CoordinatorRecord::tombstone(regex_key(group_id, regex))
}

pub(super) fn subscription_metadata_tombstone(group_id: &ByteString) -> CoordinatorRecord {
    CoordinatorRecord::tombstone(ConsumerGroupPartitionMetadataKey {
        group_id: group_id.clone(),
    })
}

/// Deletes the group with all its members.
pub(in crate::group) fn group_tombstones(group: &ConsumerGroup) -> Vec<CoordinatorRecord> {
    let group_id = &group.group_id;
    let mut records = ConsumerGroup::tombstones_of_members(group);
    let regexes = group.resolved_regexes();
    records.extend(regexes.map(|(regex, _)| regex_tombstone(group_id, regex)));
    records.push(subscription_metadata_tombstone(group_id));
    records.push(CoordinatorRecord::tombstone(ConsumerGroup::group_key(
        group_id,
    )));
    records
}
