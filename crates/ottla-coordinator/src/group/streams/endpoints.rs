//! Maps endpoints to partitions, for interactive queries of the applications' state
//! (`application.server`).
//!
//! Kafka fails the heartbeat if the topology is not configured yet or a topic was deleted. Here,
//! such a member has no partitions in the result.
//! here simply has none of those partitions.
//! Source: `StreamsGroup.buildEndpointToPartitions`, `EndpointToPartitionsManager`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytestring::ByteString;
use ottla_metadata::MetadataImage;
use ottla_protocol::messages::streams_group_heartbeat_response::{
    Endpoint, EndpointToPartitions, TopicPartition,
};

use super::configured_topology::{ConfiguredSubtopology, ConfiguredTopology};
use super::group::StreamsGroup;
use super::member::StreamsGroupMember;

type Subtopologies = BTreeMap<ByteString, ConfiguredSubtopology>;

/// For all members with an endpoint. `updated`, which comes last, is the state after this
/// heartbeat.
pub(super) fn endpoints_to_partitions(
    group: &StreamsGroup,
    updated: &StreamsGroupMember,
    configured: &ConfiguredTopology,
    image: &MetadataImage,
) -> Vec<EndpointToPartitions> {
    let nothing = Subtopologies::new();
    let subtopologies = configured.subtopologies.as_ref().unwrap_or(&nothing);
    group
        .members()
        .map(Arc::as_ref)
        .filter(|member| member.member_id != updated.member_id)
        .chain([updated])
        .filter_map(|member| of_member(member, subtopologies, image))
        .collect()
}

fn of_member(
    member: &StreamsGroupMember,
    subtopologies: &Subtopologies,
    image: &MetadataImage,
) -> Option<EndpointToPartitions> {
    let endpoint = member.user_endpoint.as_ref()?;
    let mut active = Vec::new();
    for (id, epochs) in &member.assigned.active {
        let partitions = epochs.keys().copied().collect();
        add_topics(&mut active, subtopologies.get(id), &partitions, image);
    }
    let mut standby = Vec::new();
    for (id, partitions) in &member.assigned.standby {
        add_topics(&mut standby, subtopologies.get(id), partitions, image);
    }
    Some(EndpointToPartitions {
        user_endpoint: Endpoint {
            host: endpoint.host.clone(),
            port: endpoint.port,
            ..Default::default()
        },
        active_partitions: active,
        standby_partitions: standby,
        ..Default::default()
    })
}

/// The source partitions that the subtopology's tasks read. A topic can have fewer partitions than
/// there are tasks.
fn add_topics(
    topics: &mut Vec<TopicPartition>,
    subtopology: Option<&ConfiguredSubtopology>,
    partitions: &BTreeSet<i32>,
    image: &MetadataImage,
) {
    let Some(subtopology) = subtopology else {
        return;
    };
    let repartitioned = subtopology.repartition_source_topics.keys();
    let sources: BTreeSet<&ByteString> = subtopology
        .source_topics
        .iter()
        .chain(repartitioned)
        .collect();
    for name in sources {
        let Some(topic) = image.topics.by_name(name) else {
            continue;
        };
        topics.push(TopicPartition {
            topic: name.clone(),
            // The first partitions, even if the topic has others.
            partitions: partitions
                .iter()
                .copied()
                .take(topic.partition_count())
                .collect(),
            ..Default::default()
        });
    }
}
