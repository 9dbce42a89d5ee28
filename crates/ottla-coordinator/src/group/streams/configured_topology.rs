//! A topology applied to the existing topics: its tasks, its internal topics, and which of them are
//! missing.
//!
//! It is computed for a member's heartbeat. Missing topics are created on that member's behalf.
//! Source: `InternalTopicManager`, `ConfiguredTopology`, `ConfiguredSubtopology`, `ConfiguredInternalTopic`.

use std::collections::{BTreeMap, BTreeSet};

use bytestring::ByteString;
use indexmap::IndexMap;
use ottla_metadata::MetadataImage;
use ottla_protocol::coordinator_records::streams_group_topology_value::{Subtopology, TopicInfo};
use ottla_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};

use super::copartitioning::{RepartitionTopicNames, copartition_groups};
use super::partition_counts::PartitionCounts;
use super::topology::StreamsTopology;
use super::topology_error::{StreamsStatus, TopicConfigurationError, TopologyError};
use crate::group::modern::GroupError;
use crate::java_collections::{
    DEFAULT_CAPACITY, default_hash_map_order, hash_map_order, string_hash_code,
};

/// The maximum number of topics that a message to a member names.
const MAX_TOPICS_IN_SUMMARY: usize = 3;
/// "The cluster's default."
const DEFAULT_REPLICATION_FACTOR: i16 = -1;

#[derive(Clone, PartialEq, Debug)]
pub(in crate::group) struct ConfiguredTopology {
    pub(super) topology_epoch: i32,
    /// The hash of the topics from which it was computed.
    pub(super) metadata_hash: i64,
    /// By id. `None` if the source topics do not allow them to be computed.
    pub(super) subtopologies: Option<BTreeMap<ByteString, ConfiguredSubtopology>>,
    pub(super) internal_topics_to_create: Vec<CreatableTopic>,
    pub(super) error: Option<TopicConfigurationError>,
}

#[derive(Clone, PartialEq, Debug)]
pub(super) struct ConfiguredSubtopology {
    pub(super) number_of_tasks: i32,
    pub(super) source_topics: BTreeSet<ByteString>,
    pub(super) repartition_source_topics: BTreeMap<ByteString, ConfiguredInternalTopic>,
    pub(super) repartition_sink_topics: BTreeSet<ByteString>,
    pub(super) state_changelog_topics: BTreeMap<ByteString, ConfiguredInternalTopic>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ConfiguredInternalTopic {
    pub(super) number_of_partitions: i32,
    /// `None` for the cluster's default.
    pub(super) replication_factor: Option<i16>,
    pub(super) topic_configs: BTreeMap<ByteString, ByteString>,
}

impl ConfiguredTopology {
    /// An error is one of the topology itself. Problems with the cluster's topics are in the
    /// result.
    pub(super) fn configure(
        topology: &StreamsTopology,
        metadata_hash: i64,
        image: &MetadataImage,
    ) -> Result<Self, GroupError> {
        let of_topics = match configure_topics(topology, image) {
            Ok((subtopologies, missing)) => {
                let names = missing.iter().map(|topic| &topic.name);
                let error = (!missing.is_empty()).then(|| TopicConfigurationError {
                    status: StreamsStatus::MissingInternalTopics,
                    detail: format!("Internal topics are missing: {}", summary(names)),
                });
                return Ok(ConfiguredTopology {
                    topology_epoch: topology.epoch,
                    metadata_hash,
                    subtopologies: Some(subtopologies),
                    internal_topics_to_create: missing,
                    error,
                });
            }
            Err(TopologyError::Topology(error)) => return Err(error),
            Err(TopologyError::Topics(error)) => error,
        };
        Ok(ConfiguredTopology {
            topology_epoch: topology.epoch,
            metadata_hash,
            subtopologies: None,
            internal_topics_to_create: Vec::new(),
            error: Some(of_topics),
        })
    }

    /// The subtopologies, if all topics exist as required.
    pub(super) fn ready(&self) -> Option<&BTreeMap<ByteString, ConfiguredSubtopology>> {
        match self.error {
            None => self.subtopologies.as_ref(),
            Some(_) => None,
        }
    }
}

impl ConfiguredSubtopology {
    /// Whether its tasks have state, so that they can have standby tasks.
    pub(super) fn is_stateful(&self) -> bool {
        !self.state_changelog_topics.is_empty()
    }
}

type Configured = (
    BTreeMap<ByteString, ConfiguredSubtopology>,
    Vec<CreatableTopic>,
);

fn configure_topics(
    topology: &StreamsTopology,
    image: &MetadataImage,
) -> Result<Configured, TopologyError> {
    let copartition_groups = copartition_groups(topology)?;
    refuse_missing_sources(topology, image)?;

    let mut counts = PartitionCounts::new(image);
    counts.decide_repartition_topics(topology)?;
    let repartition_topics = RepartitionTopicNames::of(topology);
    for group in &copartition_groups {
        repartition_topics.enforce(group, &mut counts)?;
    }
    counts.decide_changelog_topics(topology)?;

    let mut subtopologies = BTreeMap::new();
    for subtopology in topology.subtopologies() {
        let configured = configure_subtopology(subtopology, &counts)?;
        subtopologies.insert(subtopology.subtopology_id.clone(), configured);
    }
    let missing = missing_internal_topics(topology, &subtopologies, &counts)?;
    Ok((subtopologies, missing))
}

fn refuse_missing_sources(
    topology: &StreamsTopology,
    image: &MetadataImage,
) -> Result<(), TopologyError> {
    let missing: BTreeSet<&ByteString> = topology
        .subtopologies()
        .flat_map(|it| &it.source_topics)
        .filter(|topic| image.topics.by_name(topic).is_none())
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(TopologyError::Topics(TopicConfigurationError {
        status: StreamsStatus::MissingSourceTopics,
        detail: format!(
            "Source topics {} are missing.",
            summary(missing.into_iter())
        ),
    }))
}

fn configure_subtopology(
    subtopology: &Subtopology,
    counts: &PartitionCounts<'_>,
) -> Result<ConfiguredSubtopology, TopologyError> {
    let tasks = counts.of_sources(subtopology)?;
    let internal = |topics: &[TopicInfo]| {
        let mut configured = BTreeMap::new();
        for topic in topics {
            let former = configured.insert(topic.name.clone(), configure_topic(topic, counts)?);
            if former.is_some() {
                return Err(TopologyError::unknown());
            }
        }
        Ok(configured)
    };
    Ok(ConfiguredSubtopology {
        number_of_tasks: tasks
            .filter(|tasks| *tasks > 0)
            .ok_or_else(TopologyError::unknown)?,
        source_topics: subtopology.source_topics.iter().cloned().collect(),
        repartition_source_topics: internal(&subtopology.repartition_source_topics)?,
        repartition_sink_topics: subtopology
            .repartition_sink_topics
            .iter()
            .cloned()
            .collect(),
        state_changelog_topics: internal(&subtopology.state_changelog_topics)?,
    })
}

fn configure_topic(
    topic: &TopicInfo,
    counts: &PartitionCounts<'_>,
) -> Result<ConfiguredInternalTopic, TopologyError> {
    let partitions = match topic.partitions {
        0 => counts.decided(&topic.name),
        said => Some(said),
    };
    let mut topic_configs = BTreeMap::new();
    for config in &topic.topic_configs {
        let former = topic_configs.insert(config.key.clone(), config.value.clone());
        if former.is_some() {
            return Err(TopologyError::unknown());
        }
    }
    Ok(ConfiguredInternalTopic {
        number_of_partitions: partitions
            .filter(|partitions| *partitions > 0)
            .ok_or_else(TopologyError::unknown)?,
        replication_factor: (topic.replication_factor != 0).then_some(topic.replication_factor),
        topic_configs,
    })
}

/// In the order in which Kafka lists them.
fn missing_internal_topics(
    topology: &StreamsTopology,
    subtopologies: &BTreeMap<ByteString, ConfiguredSubtopology>,
    counts: &PartitionCounts<'_>,
) -> Result<Vec<CreatableTopic>, TopologyError> {
    let mut expected: IndexMap<&ByteString, &ConfiguredInternalTopic> = IndexMap::new();
    for subtopology in topology.subtopologies() {
        let configured = subtopologies.get(&subtopology.subtopology_id);
        let configured = configured.ok_or_else(TopologyError::unknown)?;
        for (said, topics) in [
            (
                &subtopology.repartition_source_topics,
                &configured.repartition_source_topics,
            ),
            (
                &subtopology.state_changelog_topics,
                &configured.state_changelog_topics,
            ),
        ] {
            for topic in default_hash_map_order(said, |topic| string_hash_code(&topic.name)) {
                expected.extend(topics.get_key_value(&topic.name));
            }
        }
    }
    let num_internal = expected.len();
    let required = topology.required_topics();
    for topic in default_hash_map_order(&required, |topic| string_hash_code(topic)) {
        let Some(found) = counts.existing(topic) else {
            continue;
        };
        match expected.shift_remove(topic) {
            Some(expected) if expected.number_of_partitions != found => {
                let detail = format!(
                    "Existing topic {topic} has different number of partitions: expected {}, \
                     found {found}",
                    expected.number_of_partitions
                );
                return Err(TopicConfigurationError::incorrectly_partitioned(detail).into());
            }
            _ => {}
        }
    }
    let missing = hash_map_order(
        expected,
        |(name, _)| string_hash_code(name),
        DEFAULT_CAPACITY,
        num_internal,
    );
    Ok(missing
        .into_iter()
        .map(|(name, topic)| to_create(name, topic))
        .collect())
}

fn to_create(name: &ByteString, topic: &ConfiguredInternalTopic) -> CreatableTopic {
    let configs = topic.topic_configs.iter();
    CreatableTopic {
        name: name.clone(),
        num_partitions: topic.number_of_partitions,
        replication_factor: topic
            .replication_factor
            .unwrap_or(DEFAULT_REPLICATION_FACTOR),
        configs: configs
            .map(|(key, value)| CreatableTopicConfig {
                name: key.clone(),
                value: Some(value.clone()),
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    }
}

fn summary<'a>(topics: impl ExactSizeIterator<Item = &'a ByteString>) -> String {
    let more = topics.len().saturating_sub(MAX_TOPICS_IN_SUMMARY);
    let shown: Vec<&str> = topics
        .take(MAX_TOPICS_IN_SUMMARY)
        .map(|topic| &**topic)
        .collect();
    let shown = shown.join(", ");
    match more {
        0 => shown,
        more => format!("{shown} and {more} additional topics"),
    }
}

#[cfg(test)]
mod tests;
