//! StreamsGroupDescribe: a group with its topology and its members, with their current and target
//! assignments.
//! Source: `StreamsGroup.asDescribedGroup`, `StreamsGroupMember.asStreamsGroupDescribeMember`,
//! `ConfiguredTopology.asStreamsGroupDescribeTopology`, `StreamsTopology.asStreamsGroupDescribeTopology`.

use std::collections::BTreeMap;

use bytestring::ByteString;
use ottla_protocol::coordinator_records::streams_group_topology_value as persisted;
use ottla_protocol::messages::streams_group_describe_response::{
    Assignment, DescribedGroup, Endpoint, KeyValue, Member, Subtopology, TaskIds, TopicInfo,
    Topology,
};

use super::configured_topology::{
    ConfiguredInternalTopic, ConfiguredSubtopology, ConfiguredTopology,
};
use super::group::StreamsGroup;
use super::member::StreamsGroupMember;
use super::tasks::{Tasks, TasksTuple};
use super::topology::StreamsTopology;
use crate::group::coordinator::GroupCoordinator;
use crate::group::refused::Refused;

/// The name of the only assignor.
const STICKY_ASSIGNOR: &str = "sticky";

impl GroupCoordinator {
    /// Describes the committed state of the group.
    pub fn describe_streams_group(&self, group_id: &ByteString) -> DescribedGroup {
        let configured = self.unwritten.get(group_id);
        let configured = configured.and_then(|it| it.configured.as_deref());
        match self.committed_group_of(group_id) {
            Ok(group) => described(group, configured),
            Err(error) => DescribedGroup {
                group_id: group_id.clone(),
                ..Refused::refused(error)
            },
        }
    }
}

fn described(group: &StreamsGroup, configured: Option<&ConfiguredTopology>) -> DescribedGroup {
    let topology = configured
        .and_then(configured_topology)
        .or_else(|| group.topology.as_deref().map(topology_as_said));
    DescribedGroup {
        group_id: group.group_id.clone(),
        group_state: group.state().name().into(),
        group_epoch: group.group_epoch,
        assignment_epoch: group.target.epoch,
        topology,
        assignor_name: Some(ByteString::from_static(STICKY_ASSIGNOR)),
        members: group
            .members()
            .map(|member| {
                let target = group.target.of(&member.member_id);
                described_member(member, target.map(AsRef::as_ref))
            })
            .collect(),
        ..Default::default()
    }
}

/// With the computed partition counts of internal topics.
fn configured_topology(configured: &ConfiguredTopology) -> Option<Topology> {
    let subtopologies = configured.ready()?.iter();
    Some(Topology {
        epoch: configured.topology_epoch,
        subtopologies: Some(
            subtopologies
                .map(|(id, subtopology)| configured_subtopology(id, subtopology))
                .collect(),
        ),
        ..Default::default()
    })
}

fn configured_subtopology(id: &ByteString, subtopology: &ConfiguredSubtopology) -> Subtopology {
    let topics = |topics: &BTreeMap<ByteString, ConfiguredInternalTopic>| {
        let topics = topics.iter();
        topics
            .map(|(name, topic)| TopicInfo {
                name: name.clone(),
                partitions: topic.number_of_partitions,
                replication_factor: topic.replication_factor.unwrap_or(0),
                topic_configs: key_values(topic.topic_configs.iter()),
                ..Default::default()
            })
            .collect()
    };
    Subtopology {
        subtopology_id: id.clone(),
        source_topics: subtopology.source_topics.iter().cloned().collect(),
        repartition_sink_topics: subtopology
            .repartition_sink_topics
            .iter()
            .cloned()
            .collect(),
        state_changelog_topics: topics(&subtopology.state_changelog_topics),
        repartition_source_topics: topics(&subtopology.repartition_source_topics),
        ..Default::default()
    }
}

/// If topics are missing, the topology is shown as the application sent it.
fn topology_as_said(topology: &StreamsTopology) -> Topology {
    let sorted = |names: &[ByteString]| {
        let mut names = names.to_vec();
        names.sort();
        names
    };
    let topics = |topics: &[persisted::TopicInfo]| {
        let mut infos: Vec<TopicInfo> = topics
            .iter()
            .map(|topic| {
                let configs = topic.topic_configs.iter();
                TopicInfo {
                    name: topic.name.clone(),
                    partitions: topic.partitions,
                    replication_factor: topic.replication_factor,
                    topic_configs: key_values(configs.map(|it| (&it.key, &it.value))),
                    ..Default::default()
                }
            })
            .collect();
        infos.sort_by(|one, other| one.name.cmp(&other.name));
        infos
    };
    let subtopologies = topology.subtopologies();
    Topology {
        epoch: topology.epoch,
        subtopologies: Some(
            subtopologies
                .map(|it| Subtopology {
                    subtopology_id: it.subtopology_id.clone(),
                    source_topics: sorted(&it.source_topics),
                    repartition_sink_topics: sorted(&it.repartition_sink_topics),
                    state_changelog_topics: topics(&it.state_changelog_topics),
                    repartition_source_topics: topics(&it.repartition_source_topics),
                    ..Default::default()
                })
                .collect(),
        ),
        ..Default::default()
    }
}

fn described_member(member: &StreamsGroupMember, target: Option<&TasksTuple>) -> Member {
    let active = member.assigned.active.iter();
    let active = active.map(|(id, epochs)| (id.clone(), epochs.keys().copied().collect()));
    Member {
        member_id: member.member_id.clone(),
        member_epoch: member.member_epoch,
        instance_id: member.instance_id.clone(),
        rack_id: member.rack_id.clone(),
        client_id: member.client_id.clone(),
        client_host: member.client_host.clone(),
        topology_epoch: member.topology_epoch,
        process_id: member.process_id.clone(),
        user_endpoint: member.user_endpoint.as_ref().map(|endpoint| Endpoint {
            host: endpoint.host.clone(),
            port: endpoint.port,
            ..Default::default()
        }),
        client_tags: key_values(member.client_tags.iter()),
        // Tasks that are being revoked are not shown.
        assignment: Assignment {
            active_tasks: task_ids(&active.collect()),
            standby_tasks: task_ids(&member.assigned.standby),
            warmup_tasks: task_ids(&member.assigned.warmup),
            ..Default::default()
        },
        target_assignment: target.map_or_else(Assignment::default, |target| Assignment {
            active_tasks: task_ids(&target.active),
            standby_tasks: task_ids(&target.standby),
            warmup_tasks: task_ids(&target.warmup),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn task_ids(tasks: &Tasks) -> Vec<TaskIds> {
    let tasks = tasks.iter();
    tasks
        .map(|(subtopology_id, partitions)| TaskIds {
            subtopology_id: subtopology_id.clone(),
            partitions: partitions.iter().copied().collect(),
            ..Default::default()
        })
        .collect()
}

fn key_values<'a>(pairs: impl Iterator<Item = (&'a ByteString, &'a ByteString)>) -> Vec<KeyValue> {
    pairs
        .map(|(key, value)| KeyValue {
            key: key.clone(),
            value: value.clone(),
            ..Default::default()
        })
        .collect()
}
