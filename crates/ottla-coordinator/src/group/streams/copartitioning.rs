//! Enforces copartitioning: topics that are joined must have the same number of partitions.
//!
//! Repartition topics get the number of the topics that they are joined with. If all are
//! repartition topics, they get the number that the application sets for some of them, otherwise
//! the largest number.
//! Source: `CopartitionedTopicsEnforcer`.

use std::collections::{BTreeMap, BTreeSet};

use bytestring::ByteString;

use super::partition_counts::PartitionCounts;
use super::topology::StreamsTopology;
use super::topology_error::{TopicConfigurationError, TopologyError};
use crate::java_collections::{default_hash_map_order, string_hash_code};

/// Topics that must have the same number of partitions.
pub(super) type CopartitionGroup<'a> = BTreeSet<&'a ByteString>;

/// The copartition groups of a topology in Kafka's order. Each group refers to topics by their
/// index in the lists of its subtopology; the index may be invalid.
pub(super) fn copartition_groups(
    topology: &StreamsTopology,
) -> Result<Vec<CopartitionGroup<'_>>, TopologyError> {
    let mut groups = Vec::new();
    for subtopology in topology.in_hash_order() {
        for group in &subtopology.copartition_groups {
            let at = |index: &i16| usize::try_from(*index).ok();
            let sources = group
                .source_topics
                .iter()
                .map(|index| subtopology.source_topics.get(at(index)?));
            let repartitioned = group.repartition_source_topics.iter().map(|index| {
                let topic = subtopology.repartition_source_topics.get(at(index)?);
                topic.map(|topic| &topic.name)
            });
            let topics: Option<CopartitionGroup<'_>> = sources.chain(repartitioned).collect();
            groups.push(topics.ok_or_else(TopologyError::unknown)?);
        }
    }
    Ok(groups)
}

/// The names of the repartition topics of a topology.
pub(super) struct RepartitionTopicNames<'a> {
    /// Those with a partition count that the application sets.
    fixed: BTreeSet<&'a ByteString>,
    flexible: BTreeSet<&'a ByteString>,
}

impl<'a> RepartitionTopicNames<'a> {
    pub(super) fn of(topology: &'a StreamsTopology) -> Self {
        let topics = || {
            topology
                .subtopologies()
                .flat_map(|it| &it.repartition_source_topics)
        };
        let named = |is_fixed: bool| {
            topics()
                .filter(move |topic| (topic.partitions != 0) == is_fixed)
                .map(|topic| &topic.name)
                .collect()
        };
        RepartitionTopicNames {
            fixed: named(true),
            flexible: named(false),
        }
    }

    fn contains(&self, topic: &ByteString) -> bool {
        self.fixed.contains(topic) || self.flexible.contains(topic)
    }

    /// Sets the required number of partitions on the repartition topics of `group`.
    pub(super) fn enforce(
        &self,
        group: &CopartitionGroup<'_>,
        counts: &mut PartitionCounts<'_>,
    ) -> Result<(), TopologyError> {
        if group.is_empty() {
            return Ok(());
        }
        let mut repartitioned: BTreeMap<&ByteString, i32> = BTreeMap::new();
        let mut others: BTreeMap<&ByteString, i32> = BTreeMap::new();
        for topic in group {
            let count = counts.of(topic).ok_or_else(TopologyError::unknown)?;
            let kind = if self.contains(topic) {
                &mut repartitioned
            } else {
                &mut others
            };
            kind.insert(topic, count);
        }
        let needed = match others.values().next() {
            Some(first) if others.values().all(|count| count == first) => *first,
            Some(_) => return Err(TopicConfigurationError::unequal(&others).into()),
            None if self.fixed.is_empty() => largest(&repartitioned)?,
            None => self.count_of_fixed(&repartitioned, counts)?,
        };
        let in_order = default_hash_map_order(&repartitioned, |(topic, _)| string_hash_code(topic));
        for (topic, count) in in_order {
            if self.fixed.contains(topic) && *count != needed {
                let detail = format!(
                    "Number of partitions [{count}] of repartition topic [{topic}] doesn't match \
                     number of partitions [{needed}] of the source topic."
                );
                return Err(TopicConfigurationError::incorrectly_partitioned(detail).into());
            }
        }
        for topic in repartitioned.keys() {
            counts.decide(topic, needed);
        }
        Ok(())
    }

    /// The partition count that the application sets. All topics of the topology with such a count
    /// must have the same, whether or not they are in the group of `repartitioned`.
    fn count_of_fixed(
        &self,
        repartitioned: &BTreeMap<&ByteString, i32>,
        counts: &PartitionCounts<'_>,
    ) -> Result<i32, TopologyError> {
        let mut found = None;
        for topic in &self.fixed {
            let count = counts.of(topic).ok_or_else(TopologyError::unknown)?;
            if found.is_some_and(|found| found != count) {
                return Err(TopicConfigurationError::unequal(repartitioned).into());
            }
            found = Some(count);
        }
        found.ok_or_else(TopologyError::unknown)
    }
}

fn largest(repartitioned: &BTreeMap<&ByteString, i32>) -> Result<i32, TopologyError> {
    match repartitioned.values().max() {
        Some(count) if *count > 0 => Ok(*count),
        _ => {
            let topics =
                default_hash_map_order(repartitioned.keys(), |topic| string_hash_code(topic));
            let topics: Vec<&str> = topics.into_iter().map(|topic| &***topic).collect();
            Err(TopologyError::invalid(format!(
                "All topics in the copartition group had undefined partition number: [{}]",
                topics.join(", ")
            )))
        }
    }
}
