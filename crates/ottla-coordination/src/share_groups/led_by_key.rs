//! The share partitions by key, and the groups of each partition: a change of a replica looks at the
//! share partitions of this replica only, and the lock that fetches take is held no longer.

use std::collections::{BTreeMap, BTreeSet};

use bytestring::ByteString;
use ottla_coordinator::persister::SharePartitionKey;
use ottla_types::{PartitionIndex, TopicId};

/// `L` is the state kept for a share partition.
#[derive(Debug)]
pub struct LedByKey<L> {
    led: BTreeMap<SharePartitionKey, L>,
    groups: BTreeMap<(TopicId, i32), BTreeSet<ByteString>>,
}

impl<L> Default for LedByKey<L> {
    fn default() -> Self {
        LedByKey {
            led: BTreeMap::new(),
            groups: BTreeMap::new(),
        }
    }
}

impl<L> LedByKey<L> {
    pub fn is_empty(&self) -> bool {
        self.led.is_empty()
    }

    pub fn get(&self, key: &SharePartitionKey) -> Option<&L> {
        self.led.get(key)
    }

    pub fn insert(&mut self, key: SharePartitionKey, led: L) {
        let groups = self.groups.entry((key.topic_id, key.partition));
        groups.or_default().insert(key.group_id.clone());
        self.led.insert(key, led);
    }

    pub fn remove(&mut self, key: &SharePartitionKey) {
        if self.led.remove(key).is_none() {
            return;
        }
        let partition = (key.topic_id, key.partition);
        if let Some(groups) = self.groups.get_mut(&partition) {
            groups.remove(&key.group_id);
            if groups.is_empty() {
                self.groups.remove(&partition);
            }
        }
    }

    /// The share partitions of all groups for a partition.
    pub fn of_partition(
        &self,
        topic_id: TopicId,
        partition: PartitionIndex,
    ) -> impl Iterator<Item = &L> {
        let partition = partition.0;
        let groups = self.groups.get(&(topic_id, partition));
        groups.into_iter().flatten().filter_map(move |group_id| {
            self.led.get(&SharePartitionKey {
                group_id: group_id.clone(),
                topic_id,
                partition,
            })
        })
    }

    /// The share partitions of all partitions for a group.
    pub fn of_group(&self, group_id: &str) -> impl Iterator<Item = &L> {
        let first = SharePartitionKey {
            group_id: group_id.to_owned().into(),
            topic_id: TopicId::from_u128(0),
            partition: i32::MIN,
        };
        let from_first = self.led.range(first..);
        let of_group = from_first.take_while(move |(key, _)| *key.group_id == *group_id);
        of_group.map(|(_, led)| led)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(group_id: &'static str, topic: u128, partition: i32) -> SharePartitionKey {
        SharePartitionKey {
            group_id: group_id.into(),
            topic_id: TopicId::from_u128(topic),
            partition,
        }
    }

    #[test]
    fn share_partitions_are_found_by_group_and_by_partition() {
        let mut led = LedByKey::default();
        let keys = [
            key("a", 1, 0),
            key("a", 2, 0),
            key("b", 1, 0),
            key("b", 1, 1),
        ];
        for (number, key) in keys.iter().enumerate() {
            led.insert(key.clone(), number);
        }
        let of_partition = |led: &LedByKey<usize>, topic: u128, partition: i32| -> Vec<usize> {
            let of_partition =
                led.of_partition(TopicId::from_u128(topic), PartitionIndex(partition));
            of_partition.copied().collect()
        };
        let of_group = |led: &LedByKey<usize>, group: &str| -> Vec<usize> {
            led.of_group(group).copied().collect()
        };
        assert_eq!(of_partition(&led, 1, 0), [0, 2]);
        assert_eq!(of_partition(&led, 1, 1), [3]);
        assert_eq!(of_group(&led, "a"), [0, 1]);
        assert_eq!(of_group(&led, "b"), [2, 3]);
        led.remove(&keys[0]);
        led.remove(&keys[0]);
        assert_eq!(led.get(&keys[0]), None);
        assert_eq!(
            of_partition(&led, 1, 0),
            [2],
            "the other group still reads it"
        );
        for key in &keys {
            led.remove(key);
        }
        assert!(led.is_empty() && led.groups.is_empty());
    }
}
