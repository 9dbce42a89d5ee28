//! The partition counts of the internal topics of a topology.
//!
//! A repartition topic without a count from the application gets that of the largest source topic
//! of the subtopology that writes to it. That source may be another repartition topic, so the
//! counts are computed in order from the sources. A changelog topic gets one partition per task.
//! Source: `RepartitionTopics`, `ChangelogTopics`.

use std::collections::BTreeMap;

use bytestring::ByteString;
use ottla_metadata::MetadataImage;
use ottla_protocol::coordinator_records::streams_group_topology_value::Subtopology;

use super::topology::{StreamsTopology, sources};
use super::topology_error::TopologyError;

/// The partition counts of the existing topics, and those decided for the others.
pub(super) struct PartitionCounts<'a> {
    image: &'a MetadataImage,
    decided: BTreeMap<ByteString, i32>,
}

impl<'a> PartitionCounts<'a> {
    pub(super) fn new(image: &'a MetadataImage) -> Self {
        PartitionCounts {
            image,
            decided: BTreeMap::new(),
        }
    }

    /// The partitions of a topic that exists.
    pub(super) fn existing(&self, topic: &str) -> Option<i32> {
        let topic = self.image.topics.by_name(topic)?;
        i32::try_from(topic.partition_count()).ok()
    }

    /// The decided count, whether or not the topic exists.
    pub(super) fn decided(&self, topic: &str) -> Option<i32> {
        self.decided.get(topic).copied()
    }

    pub(super) fn of(&self, topic: &str) -> Option<i32> {
        self.existing(topic).or_else(|| self.decided(topic))
    }

    pub(super) fn decide(&mut self, topic: &ByteString, partitions: i32) {
        self.decided.insert(topic.clone(), partitions);
    }

    /// The number of tasks of a subtopology, which is the partition count of its largest source
    /// topic.
    pub(super) fn of_sources(
        &self,
        subtopology: &Subtopology,
    ) -> Result<Option<i32>, TopologyError> {
        let mut most = None;
        for topic in sources(subtopology) {
            most = most.max(Some(self.of(topic).ok_or_else(TopologyError::unknown)?));
        }
        Ok(most)
    }

    pub(super) fn decide_repartition_topics(
        &mut self,
        topology: &StreamsTopology,
    ) -> Result<(), TopologyError> {
        let subtopologies = topology.in_hash_order();
        let mut counts: BTreeMap<&ByteString, i32> = BTreeMap::new();
        for topic in subtopologies
            .iter()
            .flat_map(|it| &it.repartition_source_topics)
            .filter(|topic| topic.partitions != 0)
        {
            counts.insert(&topic.name, topic.partitions);
        }
        // Each iteration finds one more count, or is the last.
        loop {
            let mut is_one_missing = false;
            let mut has_found_one = false;
            for subtopology in &subtopologies {
                for sink in &subtopology.repartition_sink_topics {
                    if counts.contains_key(sink) {
                        continue;
                    }
                    match self.most_known(subtopology, &counts) {
                        Some(partitions) => {
                            counts.insert(sink, partitions);
                            has_found_one = true;
                        }
                        None => is_one_missing = true,
                    }
                }
            }
            if !is_one_missing {
                break;
            }
            if !has_found_one {
                return Err(TopologyError::invalid(
                    "Failed to compute number of partitions for all repartition topics. There may \
                     be loops in the topology that cannot be resolved.",
                ));
            }
        }
        let mut sources = subtopologies
            .iter()
            .flat_map(|it| &it.repartition_source_topics);
        if sources.any(|topic| !counts.contains_key(&topic.name)) {
            return Err(TopologyError::invalid(
                "Failed to compute number of partitions for all repartition topics, because a \
                 repartition source topic is never used as a sink topic.",
            ));
        }
        for (topic, partitions) in counts {
            self.decide(topic, partitions);
        }
        Ok(())
    }

    /// The largest partition count among the topics whose count is known so far.
    fn most_known(
        &self,
        subtopology: &Subtopology,
        counts: &BTreeMap<&ByteString, i32>,
    ) -> Option<i32> {
        let repartitioned = subtopology
            .repartition_source_topics
            .iter()
            .filter_map(|topic| counts.get(&topic.name).copied());
        let external = subtopology
            .source_topics
            .iter()
            .filter_map(|topic| self.of(topic));
        repartitioned.chain(external).max()
    }

    pub(super) fn decide_changelog_topics(
        &mut self,
        topology: &StreamsTopology,
    ) -> Result<(), TopologyError> {
        let mut counts = Vec::new();
        for subtopology in topology.in_hash_order() {
            let Some(tasks) = self.of_sources(subtopology)? else {
                return Err(TopologyError::invalid(format!(
                    "No source topics found for subtopology {}",
                    subtopology.subtopology_id
                )));
            };
            let changelogs = subtopology.state_changelog_topics.iter();
            counts.extend(changelogs.map(|topic| (&topic.name, tasks)));
        }
        for (topic, partitions) in counts {
            self.decide(topic, partitions);
        }
        Ok(())
    }
}
