//! The partitions for which each broker is in sync, so that an event of a broker is decided by
//! looking at these partitions only instead of all partitions of the cluster.
//!
//! A broker is listed with the partitions whose ISR or eligible leader replicas contain it, and
//! `BrokerId::NONE` with the partitions without a leader. The partition numbers of each broker and
//! topic are in one array of four bytes per partition, which is replaced when one of them changes.
//!
//! In Kafka: `BrokersToIsrs`.

use std::sync::Arc;

use ottla_types::{BrokerId, PartitionIndex, TopicId};
use rpds::RedBlackTreeMapSync;

use crate::PartitionRegistration;

type PartitionsByTopic = RedBlackTreeMapSync<TopicId, Arc<[PartitionIndex]>>;

/// Updated together with the topics.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct IsrIndex {
    /// Has no brokers without topics, and no topics without partitions.
    by_broker: RedBlackTreeMapSync<BrokerId, PartitionsByTopic>,
}

impl IsrIndex {
    /// The partitions of a broker, by topic.
    pub(crate) fn of(
        &self,
        broker: BrokerId,
    ) -> impl Iterator<Item = (TopicId, &Arc<[PartitionIndex]>)> {
        let topics = self.by_broker.get(&broker).into_iter();
        topics.flat_map(|topics| {
            topics
                .iter()
                .map(|(&topic, partitions)| (topic, partitions))
        })
    }

    /// Updates the index. The changes of a broker are made together, because a fenced broker leaves
    /// nearly all of its topics.
    pub(crate) fn apply(&mut self, changes: IsrChanges) {
        let mut changes = changes.0;
        changes.sort_unstable();
        for of_broker in changes.chunk_by(|a, b| a.broker == b.broker) {
            let broker = of_broker[0].broker;
            let topics = self.by_broker.get(&broker).cloned().unwrap_or_default();
            let changed_topics = || of_broker.chunk_by(|a, b| a.topic == b.topic);
            let is_changed = |topic: &TopicId| {
                let found = of_broker.binary_search_by_key(topic, |it| it.topic);
                found.is_ok()
            };
            let mut next: PartitionsByTopic = if changed_topics().count() * 2 > topics.size() {
                // Cheaper than to remove most of them from the tree one by one.
                let rest = topics.iter().filter(|&(topic, _)| !is_changed(topic));
                let rest = rest.map(|(&topic, partitions)| (topic, Arc::clone(partitions)));
                rest.collect()
            } else {
                topics.clone()
            };
            for of_topic in changed_topics() {
                let topic = of_topic[0].topic;
                let present = topics.get(&topic).map_or(&[][..], |present| &present[..]);
                let partitions = changed_partitions(present, of_topic);
                match partitions.is_empty() {
                    true => drop(next.remove_mut(&topic)),
                    false => next.insert_mut(topic, partitions.into()),
                }
            }
            match next.is_empty() {
                true => drop(self.by_broker.remove_mut(&broker)),
                false => self.by_broker.insert_mut(broker, next),
            }
        }
    }
}

/// Changes of the index that are made together.
#[derive(Default)]
pub(crate) struct IsrChanges(Vec<IsrChange>);

/// Sorted by broker, topic and partition. An index changes once for each of these.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct IsrChange {
    broker: BrokerId,
    topic: TopicId,
    index: PartitionIndex,
    is_added: bool,
}

impl IsrChanges {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds a changed, new or deleted partition, with its old and its new registration.
    pub(crate) fn add(
        &mut self,
        topic: TopicId,
        index: PartitionIndex,
        before: Option<&PartitionRegistration>,
        after: Option<&PartitionRegistration>,
    ) {
        let change = |broker, is_added| IsrChange {
            broker,
            topic,
            index,
            is_added,
        };
        let (old, new) = (listed(before), listed(after));
        let removed = old.iter().filter(|broker| !new.contains(broker));
        self.0.extend(removed.map(|&broker| change(broker, false)));
        let added = new.iter().filter(|broker| !old.contains(broker));
        self.0.extend(added.map(|&broker| change(broker, true)));
    }
}

/// The partitions of a broker and a topic after their changes, sorted. Those that are present and
/// change are removed.
fn changed_partitions(present: &[PartitionIndex], changes: &[IsrChange]) -> Vec<PartitionIndex> {
    let kept = present.iter().copied();
    let kept = kept.filter(|index| changes.binary_search_by_key(index, |it| it.index).is_err());
    let added = changes.iter().filter(|change| change.is_added);
    let mut partitions: Vec<_> = kept.chain(added.map(|change| change.index)).collect();
    partitions.sort_unstable();
    partitions
}

/// The brokers under which a partition is listed.
fn listed(partition: Option<&PartitionRegistration>) -> Vec<BrokerId> {
    let Some(partition) = partition else {
        return Vec::new();
    };
    let mut brokers = partition.isr.to_vec();
    let eligible = partition.elr().iter();
    brokers.extend(eligible.filter(|broker| !partition.isr.contains(broker)));
    if !partition.has_leader() {
        brokers.push(BrokerId::NONE);
    }
    brokers
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const TOPICS: u128 = 6;
    const PARTITIONS: i32 = 5;
    const BROKERS: i32 = 4;

    fn registration(isr: Vec<BrokerId>) -> PartitionRegistration {
        PartitionRegistration {
            leader: isr.first().copied().unwrap_or(BrokerId::NONE),
            isr: isr.into(),
            ..Default::default()
        }
    }

    /// After batches of any size, also those with which a broker leaves all of its topics.
    #[test]
    fn the_index_is_that_of_a_look_at_every_partition() {
        let mut random = 7_u64;
        let mut number = |below: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) % below
        };
        let mut index = IsrIndex::default();
        let mut all: BTreeMap<(TopicId, PartitionIndex), PartitionRegistration> = BTreeMap::new();
        for round in 0..500 {
            let mut changes = IsrChanges::default();
            let (changed_of_8, fenced) = (1 + number(8), number(BROKERS as u64) as i32);
            for topic in 0..TOPICS {
                for partition in 0..PARTITIONS {
                    if number(8) >= changed_of_8 {
                        continue;
                    }
                    let key = (TopicId::from_u128(topic), PartitionIndex(partition));
                    let is_deleted = number(6) == 0;
                    let isr = (0..BROKERS).filter(|&broker| broker != fenced && number(2) == 0);
                    let isr: Vec<BrokerId> = isr.map(BrokerId).collect();
                    let after = (!is_deleted).then(|| registration(isr));
                    changes.add(key.0, key.1, all.get(&key), after.as_ref());
                    match after {
                        Some(after) => drop(all.insert(key, after)),
                        None => drop(all.remove(&key)),
                    }
                }
            }
            index.apply(changes);
            for broker in (BrokerId::NONE.value()..BROKERS).map(BrokerId) {
                let found = index.of(broker).flat_map(|(topic, partitions)| {
                    partitions.iter().map(move |&partition| (topic, partition))
                });
                let expected = all.iter();
                let expected = expected.filter(|&(_, it)| listed(Some(it)).contains(&broker));
                assert!(
                    found.eq(expected.map(|(key, _)| *key)),
                    "{broker} in round {round}"
                );
            }
            assert!(index.by_broker.values().all(|topics| !topics.is_empty()));
        }
    }
}
