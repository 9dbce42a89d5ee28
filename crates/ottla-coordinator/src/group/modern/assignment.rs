//! A set of partitions, by the ids of their topics.
//! Source: `Assignment`.

use std::collections::{BTreeMap, BTreeSet};

use ottla_types::TopicId;

/// Invariant: no topic has an empty set of partitions, so two assignments are equal if they contain
/// the same partitions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Assignment {
    partitions: BTreeMap<TopicId, BTreeSet<i32>>,
}

impl Assignment {
    pub fn is_empty(&self) -> bool {
        self.partitions.is_empty()
    }

    /// The number of partitions.
    pub fn len(&self) -> usize {
        self.partitions.values().map(BTreeSet::len).sum()
    }

    pub fn topics(&self) -> impl Iterator<Item = (TopicId, &BTreeSet<i32>)> {
        self.partitions
            .iter()
            .map(|(topic_id, partitions)| (*topic_id, partitions))
    }

    pub fn of_topic(&self, topic_id: TopicId) -> Option<&BTreeSet<i32>> {
        self.partitions.get(&topic_id)
    }

    pub fn iter(&self) -> impl Iterator<Item = (TopicId, i32)> {
        self.topics().flat_map(|(topic_id, partitions)| {
            partitions.iter().map(move |index| (topic_id, *index))
        })
    }

    pub fn contains(&self, topic_id: TopicId, partition: i32) -> bool {
        self.of_topic(topic_id)
            .is_some_and(|partitions| partitions.contains(&partition))
    }

    pub fn insert(&mut self, topic_id: TopicId, partition: i32) {
        self.partitions
            .entry(topic_id)
            .or_default()
            .insert(partition);
    }

    pub fn remove(&mut self, topic_id: TopicId, partition: i32) {
        if let Some(partitions) = self.partitions.get_mut(&topic_id) {
            partitions.remove(&partition);
            if partitions.is_empty() {
                self.partitions.remove(&topic_id);
            }
        }
    }

    /// A copy with the partitions for which `keep` is true.
    pub fn filtered(&self, mut keep: impl FnMut(TopicId, i32) -> bool) -> Self {
        self.iter()
            .filter(|(topic_id, partition)| keep(*topic_id, *partition))
            .collect()
    }
}

impl FromIterator<(TopicId, i32)> for Assignment {
    fn from_iter<I: IntoIterator<Item = (TopicId, i32)>>(partitions: I) -> Self {
        let mut assignment = Assignment::default();
        for (topic_id, partition) in partitions {
            assignment.insert(topic_id, partition);
        }
        assignment
    }
}

#[cfg(test)]
mod tests {
    use ottla_types::Uuid;

    use super::Assignment;

    #[test]
    fn a_topic_whose_last_partition_goes_is_gone() {
        let (a, b) = (Uuid::from_u128(100), Uuid::from_u128(200));
        let mut assignment: Assignment = [(a, 0), (b, 1), (a, 2)].into_iter().collect();
        assert_eq!(assignment.len(), 3);
        assert!(assignment.contains(a, 2) && !assignment.contains(b, 2));
        assignment.remove(b, 1);
        assert_eq!(assignment, [(a, 0), (a, 2)].into_iter().collect());
        assert_eq!(
            assignment.filtered(|_, partition| partition > 5),
            Assignment::default()
        );
        assert!(assignment.filtered(|_, partition| partition > 5).is_empty());
    }
}
