//! The records of streams groups, in the versions that Kafka 4.3.1 writes.
//! Source: `StreamsCoordinatorRecordHelpers`.

use std::collections::BTreeMap;

use bytestring::ByteString;
use ottla_protocol::coordinator_records::GroupRecordKey;
use ottla_protocol::coordinator_records::streams_group_current_member_assignment_value as current;
use ottla_protocol::coordinator_records::streams_group_member_metadata_value::{
    Endpoint, KeyValue,
};
use ottla_protocol::coordinator_records::streams_group_metadata_value::LastAssignmentConfig;
use ottla_protocol::coordinator_records::streams_group_target_assignment_member_value as target;
use ottla_protocol::coordinator_records::{
    StreamsGroupCurrentMemberAssignmentKey, StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataKey, StreamsGroupMemberMetadataValue, StreamsGroupMetadataKey,
    StreamsGroupMetadataValue, StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue, StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue, StreamsGroupTopologyKey, StreamsGroupTopologyValue,
};

use super::group::StreamsGroup;
use super::member::StreamsGroupMember;
use super::tasks::{Tasks, TasksTuple, TasksWithEpochs};
use crate::group::record::CoordinatorRecord;
use crate::group::recorded::{GroupRecords, record_keys};

impl GroupRecords<StreamsGroupMember> for StreamsGroup {
    record_keys! {
        group: StreamsGroupMetadataKey,
        member: StreamsGroupMemberMetadataKey,
        current: StreamsGroupCurrentMemberAssignmentKey,
        target: StreamsGroupTargetAssignmentMemberKey,
        target_metadata: StreamsGroupTargetAssignmentMetadataKey => StreamsGroupTargetAssignmentMetadataValue,
    }

    fn member_metadata(group_id: &ByteString, member: &StreamsGroupMember) -> CoordinatorRecord {
        let tags = member.client_tags.iter();
        CoordinatorRecord::new(
            Self::member_key(group_id, &member.member_id),
            StreamsGroupMemberMetadataValue {
                instance_id: member.instance_id.clone(),
                rack_id: member.rack_id.clone(),
                client_id: member.client_id.clone(),
                client_host: member.client_host.clone(),
                rebalance_timeout_ms: member.rebalance_timeout_ms,
                topology_epoch: member.topology_epoch,
                process_id: member.process_id.clone(),
                user_endpoint: member.user_endpoint.as_ref().map(|endpoint| Endpoint {
                    host: endpoint.host.clone(),
                    port: endpoint.port,
                    ..Default::default()
                }),
                client_tags: tags
                    .map(|(key, value)| KeyValue {
                        key: key.clone(),
                        value: value.clone(),
                        ..Default::default()
                    })
                    .collect(),
                ..Default::default()
            },
        )
    }

    fn current_assignment(group_id: &ByteString, member: &StreamsGroupMember) -> CoordinatorRecord {
        let (assigned, revoked) = (&member.assigned, &member.pending_revocation);
        CoordinatorRecord::new(
            Self::current_key(group_id, &member.member_id),
            StreamsGroupCurrentMemberAssignmentValue {
                member_epoch: member.member_epoch,
                previous_member_epoch: member.previous_member_epoch,
                state: member.state.code(),
                active_tasks: with_epochs(&assigned.active),
                standby_tasks: without_epochs(&assigned.standby),
                warmup_tasks: without_epochs(&assigned.warmup),
                active_tasks_pending_revocation: with_epochs(&revoked.active),
                standby_tasks_pending_revocation: without_epochs(&revoked.standby),
                warmup_tasks_pending_revocation: without_epochs(&revoked.warmup),
                ..Default::default()
            },
        )
    }

    fn target_assignment(
        group_id: &ByteString,
        member_id: &ByteString,
        tasks: &TasksTuple,
    ) -> CoordinatorRecord {
        let task_ids = |tasks: &Tasks| {
            let tasks = tasks.iter();
            tasks
                .map(|(subtopology_id, partitions)| target::TaskIds {
                    subtopology_id: subtopology_id.clone(),
                    partitions: partitions.iter().copied().collect(),
                    ..Default::default()
                })
                .collect()
        };
        CoordinatorRecord::new(
            Self::target_key(group_id, member_id),
            StreamsGroupTargetAssignmentMemberValue {
                active_tasks: task_ids(&tasks.active),
                standby_tasks: task_ids(&tasks.standby),
                warmup_tasks: task_ids(&tasks.warmup),
                ..Default::default()
            },
        )
    }

    fn in_epoch(&self, epoch: i32, metadata_hash: i64) -> CoordinatorRecord {
        group_metadata(
            &self.group_id,
            epoch,
            metadata_hash,
            self.validated_topology_epoch,
            &self.last_assignment_configs,
        )
    }
}

fn topology_key(group_id: &ByteString) -> StreamsGroupTopologyKey {
    let group_id = group_id.clone();
    StreamsGroupTopologyKey { group_id }
}

pub(super) fn topology(
    group_id: &ByteString,
    value: StreamsGroupTopologyValue,
) -> CoordinatorRecord {
    CoordinatorRecord::new(topology_key(group_id), value)
}

pub(super) fn group_metadata(
    group_id: &ByteString,
    epoch: i32,
    metadata_hash: i64,
    validated_topology_epoch: i32,
    assignment_configs: &BTreeMap<ByteString, ByteString>,
) -> CoordinatorRecord {
    let configs = assignment_configs.iter();
    CoordinatorRecord::new(
        StreamsGroup::group_key(group_id),
        StreamsGroupMetadataValue {
            epoch,
            metadata_hash,
            validated_topology_epoch,
            last_assignment_configs: Some(
                configs
                    .map(|(key, value)| LastAssignmentConfig {
                        key: key.clone(),
                        value: value.clone(),
                        ..Default::default()
                    })
                    .collect(),
            ),
            ..Default::default()
        },
    )
}

fn with_epochs(tasks: &TasksWithEpochs) -> Vec<current::TaskIds> {
    let tasks = tasks.iter();
    tasks
        .map(|(subtopology_id, epochs)| current::TaskIds {
            subtopology_id: subtopology_id.clone(),
            partitions: epochs.keys().copied().collect(),
            assignment_epochs: Some(epochs.values().copied().collect()),
            ..Default::default()
        })
        .collect()
}

fn without_epochs(tasks: &Tasks) -> Vec<current::TaskIds> {
    let tasks = tasks.iter();
    tasks
        .map(|(subtopology_id, partitions)| current::TaskIds {
            subtopology_id: subtopology_id.clone(),
            partitions: partitions.iter().copied().collect(),
            ..Default::default()
        })
        .collect()
}

/// Deletes the group with all its members.
pub(in crate::group) fn group_tombstones(group: &StreamsGroup) -> Vec<CoordinatorRecord> {
    let group_id = &group.group_id;
    let mut records = StreamsGroup::tombstones_of_members(group);
    records.push(CoordinatorRecord::tombstone(StreamsGroup::group_key(
        group_id,
    )));
    records.push(CoordinatorRecord::tombstone(topology_key(group_id)));
    records
}
