//! The partitions of a topic, by number.
//!
//! A clone shares everything with its original. Nearly all partitions are in one array, which no
//! change copies: changes go to a small tree beside it, and become part of a new array when they are
//! a quarter of it. A change therefore costs a logarithm of the changes since then, and reads nothing
//! of the partitions that do not change. A tree of all partitions would be copied along each path
//! from its root, and all nodes beside these paths would be touched to count their owners.

use std::sync::Arc;

use ottla_types::PartitionIndex;
use rpds::RedBlackTreeMapSync;

use crate::PartitionRegistration;

/// An array is replaced when more than one in this many of its partitions have changed: a change costs
/// as many copies of a registration, and partitions in the tree take the memory of nearly three.
const CHANGED_PART: usize = 4;

#[derive(Clone, Debug, Default)]
pub(crate) struct PartitionTable {
    /// The partitions from 0, as far as there is no gap in their numbers.
    array: Arc<Vec<PartitionRegistration>>,
    /// Partitions that have changed since the array was made, or are not in it.
    changed: RedBlackTreeMapSync<PartitionIndex, PartitionRegistration>,
    len: usize,
}

impl PartitionTable {
    pub fn get(&self, index: PartitionIndex) -> Option<&PartitionRegistration> {
        self.changed.get(&index).or_else(|| {
            let place = usize::try_from(index.value()).ok()?;
            self.array.get(place)
        })
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// In the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (PartitionIndex, &PartitionRegistration)> {
        let mut array = (0..).map(PartitionIndex).zip(self.array.iter()).peekable();
        let changed = self.changed.iter();
        let mut changed = changed.map(|(&index, it)| (index, it)).peekable();
        std::iter::from_fn(move || {
            let (old, new) = (
                array.peek().map(|(index, _)| *index),
                changed.peek().map(|(index, _)| *index),
            );
            match (old, new) {
                (Some(old), Some(new)) if new <= old => {
                    if new == old {
                        array.next();
                    }
                    changed.next()
                }
                (Some(_), _) => array.next(),
                (None, _) => changed.next(),
            }
        })
    }

    pub fn insert(&mut self, index: PartitionIndex, partition: PartitionRegistration) {
        let is_new = self.get(index).is_none();
        self.len += usize::from(is_new);
        let is_next = is_new && usize::try_from(index.value()) == Ok(self.array.len());
        // The array of a topic that is being created is not shared yet.
        let unshared = match is_next {
            true => Arc::get_mut(&mut self.array),
            false => None,
        };
        match unshared {
            Some(array) => array.push(partition),
            None => self.changed.insert_mut(index, partition),
        }
    }

    /// Makes a new array if many partitions have changed. Called at the end of a batch.
    pub fn settle(&mut self) {
        if self.changed.size() * CHANGED_PART <= self.array.len() {
            if let Some(unshared) = Arc::get_mut(&mut self.array) {
                unshared.shrink_to_fit();
            }
            return;
        }
        let mut array = Vec::with_capacity(self.len);
        let mut changed = RedBlackTreeMapSync::new_sync();
        for (index, partition) in self.iter() {
            match usize::try_from(index.value()) == Ok(array.len()) {
                true => array.push(partition.clone()),
                false => changed.insert_mut(index, partition.clone()),
            }
        }
        self.array = Arc::new(array);
        self.changed = changed;
    }
}

/// Tables with the same partitions are equal, wherever the partitions are.
impl PartialEq for PartitionTable {
    fn eq(&self, other: &PartitionTable) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ottla_types::{BrokerId, PartitionEpoch};

    use super::*;

    fn registration(epoch: i32) -> PartitionRegistration {
        PartitionRegistration {
            replicas: vec![BrokerId(1)].into(),
            partition_epoch: PartitionEpoch(epoch),
            ..Default::default()
        }
    }

    fn check(table: &PartitionTable, model: &BTreeMap<i32, i32>) {
        assert_eq!(table.len(), model.len());
        let listed = table.iter();
        let listed = listed.map(|(index, it)| (index.value(), it.partition_epoch.value()));
        assert!(listed.eq(model.iter().map(|(&index, &epoch)| (index, epoch))));
        for index in -1..70 {
            let found = table.get(PartitionIndex(index));
            let found = found.map(|it| it.partition_epoch.value());
            assert_eq!(found.as_ref(), model.get(&index), "{index}");
        }
    }

    /// Numbers with gaps, in any order, with batches of several sizes; a clone keeps what it had.
    #[test]
    fn a_table_does_as_a_map() {
        for (count, step) in [(64, 1), (64, 27), (30, 7), (3, 1)] {
            for of_batch in [1, 3, 64] {
                let (mut table, mut model) = (PartitionTable::default(), BTreeMap::new());
                let mut copies = Vec::new();
                for change in 0..3 * count {
                    let index = (change * step) % 64;
                    table.insert(PartitionIndex(index), registration(change));
                    model.insert(index, change);
                    if change % of_batch == 0 {
                        check(&table, &model);
                        table.settle();
                        copies.push((table.clone(), model.clone()));
                    }
                }
                check(&table, &model);
                for (table, model) in &copies {
                    check(table, model);
                }
            }
        }
    }

    #[test]
    fn a_table_is_equal_to_one_that_was_made_otherwise() {
        let (mut one, mut other) = (PartitionTable::default(), PartitionTable::default());
        for index in 0..10 {
            one.insert(PartitionIndex(index), registration(0));
            other.insert(PartitionIndex(9 - index), registration(0));
        }
        assert_eq!(one, other);
        other.settle();
        assert_eq!(one, other);
        let before = one.clone();
        one.insert(PartitionIndex(4), registration(1));
        assert_ne!(one, other);
        assert_ne!(one, before);
        assert_eq!(before, other);
        one.insert(PartitionIndex(4), registration(0));
        assert_eq!(one, other);
    }

    #[test]
    fn few_changes_leave_the_array_where_it_is() {
        let mut table = PartitionTable::default();
        for index in 0..100 {
            table.insert(PartitionIndex(index), registration(0));
        }
        table.settle();
        assert!(table.changed.is_empty(), "a new topic has no tree");
        assert_eq!(table.array.capacity(), 100);
        let before = table.clone();
        for index in 0..25 {
            table.insert(PartitionIndex(index), registration(1));
            table.settle();
        }
        assert!(Arc::ptr_eq(&table.array, &before.array));
        table.insert(PartitionIndex(25), registration(1));
        table.settle();
        assert!(table.changed.is_empty());
        assert_eq!(table.array[25].partition_epoch, PartitionEpoch(1));
        assert_eq!(before.array[25].partition_epoch, PartitionEpoch(0));
    }
}
