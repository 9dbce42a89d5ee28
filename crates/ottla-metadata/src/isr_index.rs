//! The partitions for which each broker is in sync, so that an event of a broker is decided by
//! looking at these partitions only instead of all partitions of the cluster.
//!
//! A broker is listed with the partitions whose ISR or eligible leader replicas contain it, and
//! `BrokerId::NONE` with the partitions without a leader. The partition numbers of each broker and
//! topic are in one array of four bytes per partition, which is replaced when one of them changes.
//!
//! In Kafka: `BrokersToIsrs`.

use std::collections::BTreeMap;
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

    /// Updates the index for changed, new and deleted partitions of a topic, each given with its
    /// old and its new registration.
    pub(crate) fn on_changed<'a>(
        &mut self,
        topic: TopicId,
        changed: impl Iterator<
            Item = (
                PartitionIndex,
                Option<&'a PartitionRegistration>,
                Option<&'a PartitionRegistration>,
            ),
        >,
    ) {
        let mut changes: BTreeMap<BrokerId, Change> = BTreeMap::new();
        for (index, before, after) in changed {
            let (old, new) = (listed(before), listed(after));
            for &broker in old.iter().filter(|broker| !new.contains(broker)) {
                changes.entry(broker).or_default().removed.push(index);
            }
            for &broker in new.iter().filter(|broker| !old.contains(broker)) {
                changes.entry(broker).or_default().added.push(index);
            }
        }
        for (broker, mut change) in changes {
            change.removed.sort_unstable();
            let mut topics = self.by_broker.get(&broker).cloned().unwrap_or_default();
            let present = topics.get(&topic).map_or(&[][..], |present| &present[..]);
            let kept = present.iter().copied();
            let kept = kept.filter(|index| change.removed.binary_search(index).is_err());
            let mut partitions: Vec<PartitionIndex> = kept.chain(change.added).collect();
            partitions.sort_unstable();
            match partitions.is_empty() {
                true => topics.remove_mut(&topic),
                false => {
                    topics.insert_mut(topic, partitions.into());
                    true
                }
            };
            match topics.is_empty() {
                true => {
                    self.by_broker.remove_mut(&broker);
                }
                false => self.by_broker.insert_mut(broker, topics),
            }
        }
    }
}

#[derive(Default)]
struct Change {
    removed: Vec<PartitionIndex>,
    added: Vec<PartitionIndex>,
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
