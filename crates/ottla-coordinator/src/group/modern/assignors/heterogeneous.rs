//! `uniform` for members with different subscriptions: unassigned partitions go topic by topic to
//! the members with the fewest partitions, and then partitions are moved topic by topic until no
//! move improves the balance. Source: `UniformHeterogeneousAssignmentBuilder`.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytestring::ByteString;
use ottla_types::TopicId;

use super::load_levels::LoadLevels;
use crate::group::modern::GroupSpec;
use crate::group::modern::assignor::GroupAssignment;

/// Members with partially overlapping subscriptions can take many rounds to balance; each round
/// halves the imbalance.
const MAX_ROUNDS: usize = 16;

struct Topic {
    id: TopicId,
    /// In the order of the members. Never empty.
    subscribers: Vec<usize>,
    /// The owner of each partition.
    owners: Vec<Option<usize>>,
}

struct Builder<'a> {
    member_ids: Vec<&'a ByteString>,
    target: Vec<Arc<crate::group::modern::Assignment>>,
    /// The number of partitions in `target`, by member.
    loads: Vec<usize>,
    topics: Vec<Topic>,
}

pub(super) fn assign(spec: &GroupSpec<'_>) -> GroupAssignment {
    let mut builder = Builder::new(spec);
    let mut levels = LoadLevels::default();
    for topic in 0..builder.topics.len() {
        builder.hand_out(topic, &mut levels);
    }
    builder.balance(&mut levels);
    builder
        .member_ids
        .into_iter()
        .cloned()
        .zip(builder.target)
        .collect()
}

impl<'a> Builder<'a> {
    /// The previous assignment without topics that the members are no longer subscribed to.
    fn new(spec: &'a GroupSpec<'_>) -> Self {
        let mut subscribers: BTreeMap<TopicId, Vec<usize>> = BTreeMap::new();
        for (index, member) in spec.members.values().enumerate() {
            for topic_id in member.subscription.topic_ids(spec.image) {
                subscribers.entry(topic_id).or_default().push(index);
            }
        }
        let mut topics: Vec<Topic> = subscribers
            .into_iter()
            .map(|(id, subscribers)| Topic {
                id,
                subscribers,
                owners: vec![None; spec.num_partitions(id)],
            })
            .collect();
        let by_id: BTreeMap<TopicId, usize> = topics
            .iter()
            .enumerate()
            .map(|(index, topic)| (topic.id, index))
            .collect();

        let mut target = Vec::with_capacity(spec.members.len());
        for (index, member) in spec.members.values().enumerate() {
            let mut keeps_all = true;
            let kept = member.assignment.filtered(|topic_id, partition| {
                let slot = by_id
                    .get(&topic_id)
                    .filter(|_| member.subscription.contains(topic_id, spec.image))
                    .zip(usize::try_from(partition).ok())
                    .and_then(|(topic, partition)| topics[*topic].owners.get_mut(partition));
                let keeps = match slot {
                    Some(owner @ None) => {
                        *owner = Some(index);
                        true
                    }
                    _ => false,
                };
                keeps_all &= keeps;
                keeps
            });
            target.push(if keeps_all {
                Arc::clone(&member.assignment)
            } else {
                Arc::new(kept)
            });
        }
        topics.sort_by(by_partitions_per_subscriber);
        Builder {
            member_ids: spec.members.keys().collect(),
            loads: target.iter().map(|assignment| assignment.len()).collect(),
            target,
            topics,
        }
    }

    /// Assigns the unassigned partitions of a topic to those of its subscribers with the fewest
    /// partitions.
    fn hand_out(&mut self, topic: usize, levels: &mut LoadLevels) {
        let owners = &self.topics[topic].owners;
        let free: Vec<usize> = (0..owners.len())
            .filter(|partition| owners[*partition].is_none())
            .collect();
        if free.is_empty() {
            return;
        }
        levels.reset(&self.topics[topic].subscribers, &self.loads);
        for partition in free {
            self.give(topic, partition, levels.take_least_loaded());
        }
    }

    /// Repeats over the topics until a full round has changed nothing.
    fn balance(&mut self, levels: &mut LoadLevels) {
        let shared: Vec<usize> = (0..self.topics.len())
            .filter(|topic| self.topics[*topic].subscribers.len() >= 2)
            .collect();
        let mut last_changed = None;
        for _ in 0..MAX_ROUNDS {
            for &topic in &shared {
                if last_changed == Some(topic) {
                    return;
                }
                if self.balance_topic(topic, levels) || last_changed.is_none() {
                    last_changed = Some(topic);
                }
            }
        }
    }

    /// Moves partitions of a topic from the members with the most to those with the fewest. Returns
    /// whether any was moved.
    fn balance_topic(&mut self, topic: usize, levels: &mut LoadLevels) -> bool {
        if levels.reset(&self.topics[topic].subscribers, &self.loads) <= 1 {
            return false;
        }
        // The partitions that each member can give up, the last one first.
        let mut owned: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (partition, owner) in self.topics[topic].owners.iter().enumerate() {
            if let Some(owner) = owner {
                owned.entry(*owner).or_default().push(partition);
            }
        }
        let mut has_moved = false;
        while !levels.is_balanced() {
            let has_some = |member: usize| owned.get(&member).is_some_and(|it| !it.is_empty());
            let Some(from) = levels.take_most_loaded(has_some) else {
                break;
            };
            let Some(partition) = owned.get_mut(&from).and_then(Vec::pop) else {
                break;
            };
            let to = levels.take_least_loaded();
            if levels.is_balanced() {
                break;
            }
            self.give(topic, partition, to);
            has_moved = true;
        }
        has_moved
    }

    fn give(&mut self, topic: usize, partition: usize, to: usize) {
        let Topic { id, owners, .. } = &mut self.topics[topic];
        if let Some(from) = owners[partition].replace(to) {
            Arc::make_mut(&mut self.target[from]).remove(*id, partition as i32);
            self.loads[from] -= 1;
        }
        Arc::make_mut(&mut self.target[to]).insert(*id, partition as i32);
        self.loads[to] += 1;
    }
}

/// Orders topics with many partitions per subscriber first, while the later topics can still
/// balance them.
fn by_partitions_per_subscriber(a: &Topic, b: &Topic) -> Ordering {
    let products = |of: &Topic, other: &Topic| of.owners.len() * other.subscribers.len();
    products(b, a)
        .cmp(&products(a, b))
        .then(a.subscribers.len().cmp(&b.subscribers.len()))
        .then(a.id.cmp(&b.id))
}
