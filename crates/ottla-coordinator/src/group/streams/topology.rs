//! The topology of a Kafka Streams application: subtopologies with the topics that they read from,
//! write to and store their state in. All members of a group have the same topology. Source:
//! `StreamsTopology`, `StreamsCoordinatorRecordHelpers.convertToStreamsGroupTopologyRecord`.

use std::collections::{BTreeMap, BTreeSet};

use bytestring::ByteString;
use ottla_protocol::coordinator_records::StreamsGroupTopologyValue;
use ottla_protocol::coordinator_records::streams_group_topology_value::{
    CopartitionGroup, Subtopology, TopicConfig, TopicInfo,
};
use ottla_protocol::messages::streams_group_heartbeat_request as request;

use crate::group::member::owned;
use crate::java_collections::{default_hash_map_order, string_hash_code};

#[derive(Clone, PartialEq, Debug)]
pub(in crate::group) struct StreamsTopology {
    pub(super) epoch: i32,
    /// By id.
    subtopologies: BTreeMap<ByteString, Subtopology>,
    /// The subtopology that reads from each topic.
    readers: BTreeMap<ByteString, ByteString>,
}

impl StreamsTopology {
    /// `None` if two subtopologies have the same id.
    pub(super) fn from_record(value: &StreamsGroupTopologyValue) -> Option<Self> {
        let mut subtopologies = BTreeMap::new();
        for subtopology in &value.subtopologies {
            let subtopology = owned_subtopology(subtopology);
            let id = subtopology.subtopology_id.clone();
            if subtopologies.insert(id, subtopology).is_some() {
                return None;
            }
        }
        let mut topology = StreamsTopology {
            epoch: value.epoch,
            subtopologies,
            readers: BTreeMap::new(),
        };
        let mut readers = BTreeMap::new();
        for subtopology in topology.in_hash_order() {
            // Of several readers, the last one counts, as in Kafka.
            for topic in sources(subtopology) {
                readers.insert(topic.clone(), subtopology.subtopology_id.clone());
            }
        }
        topology.readers = readers;
        Some(topology)
    }

    /// In the order of their ids.
    pub(super) fn subtopologies(&self) -> impl Iterator<Item = &Subtopology> {
        self.subtopologies.values()
    }

    /// In the iteration order of Kafka's hash map, where the order matters.
    pub(super) fn in_hash_order(&self) -> Vec<&Subtopology> {
        default_hash_map_order(self.subtopologies(), |it| {
            string_hash_code(&it.subtopology_id)
        })
    }

    /// The id of the subtopology that reads from `topic`.
    pub(super) fn reading_from(&self, topic: &str) -> Option<&ByteString> {
        self.readers.get(topic)
    }

    /// The topics that must exist. Topics that are only written to are read by another subtopology,
    /// or by none.
    pub(super) fn required_topics(&self) -> BTreeSet<ByteString> {
        self.subtopologies()
            .flat_map(|it| sources(it).chain(it.state_changelog_topics.iter().map(|it| &it.name)))
            .cloned()
            .collect()
    }
}

/// The topics that a subtopology reads from, its own repartition topics last.
pub(super) fn sources(subtopology: &Subtopology) -> impl Iterator<Item = &ByteString> {
    let repartitioned = &subtopology.repartition_source_topics;
    subtopology
        .source_topics
        .iter()
        .chain(repartitioned.iter().map(|topic| &topic.name))
}

/// The record of the topology in a request.
pub(super) fn to_record(topology: &request::Topology) -> StreamsGroupTopologyValue {
    StreamsGroupTopologyValue {
        epoch: topology.epoch,
        subtopologies: topology.subtopologies.iter().map(to_subtopology).collect(),
        ..Default::default()
    }
}

fn to_subtopology(subtopology: &request::Subtopology) -> Subtopology {
    let topics = |topics: &[request::TopicInfo]| topics.iter().map(to_topic_info).collect();
    let groups = subtopology.copartition_groups.iter();
    Subtopology {
        subtopology_id: subtopology.subtopology_id.clone(),
        source_topics: subtopology.source_topics.clone(),
        source_topic_regex: subtopology.source_topic_regex.clone(),
        state_changelog_topics: topics(&subtopology.state_changelog_topics),
        repartition_sink_topics: subtopology.repartition_sink_topics.clone(),
        repartition_source_topics: topics(&subtopology.repartition_source_topics),
        copartition_groups: groups
            .map(|group| CopartitionGroup {
                source_topics: group.source_topics.clone(),
                source_topic_regex: group.source_topic_regex.clone(),
                repartition_source_topics: group.repartition_source_topics.clone(),
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    }
}

fn to_topic_info(topic: &request::TopicInfo) -> TopicInfo {
    let configs = topic.topic_configs.iter();
    TopicInfo {
        name: topic.name.clone(),
        partitions: topic.partitions,
        replication_factor: topic.replication_factor,
        topic_configs: configs
            .map(|config| TopicConfig {
                key: config.key.clone(),
                value: config.value.clone(),
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    }
}

/// A copy that does not keep the buffer of the request in memory.
fn owned_subtopology(subtopology: &Subtopology) -> Subtopology {
    let names = |names: &[ByteString]| names.iter().map(owned).collect();
    let topics = |topics: &[TopicInfo]| topics.iter().map(owned_topic_info).collect();
    Subtopology {
        subtopology_id: owned(&subtopology.subtopology_id),
        source_topics: names(&subtopology.source_topics),
        source_topic_regex: names(&subtopology.source_topic_regex),
        state_changelog_topics: topics(&subtopology.state_changelog_topics),
        repartition_sink_topics: names(&subtopology.repartition_sink_topics),
        repartition_source_topics: topics(&subtopology.repartition_source_topics),
        ..subtopology.clone()
    }
}

fn owned_topic_info(topic: &TopicInfo) -> TopicInfo {
    let configs = topic.topic_configs.iter();
    TopicInfo {
        name: owned(&topic.name),
        topic_configs: configs
            .map(|config| TopicConfig {
                key: owned(&config.key),
                value: owned(&config.value),
                ..config.clone()
            })
            .collect(),
        ..topic.clone()
    }
}
