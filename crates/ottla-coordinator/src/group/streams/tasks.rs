//! Sets of tasks. A task is one partition number of a subtopology.
//!
//! Each task is run by one member (active). Others can keep its state up to date (standby), or
//! catch up with it in order to take over (warm-up). No assignor of 4.3.1 assigns warm-up tasks,
//! but records and responses have fields for them. Source: `TasksTuple`, `TasksTupleWithEpochs`.

use std::collections::{BTreeMap, BTreeSet};

use bytestring::ByteString;

/// A task: partition `1` of subtopology `0`. In the order of subtopologies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct TaskId<'a>(pub(super) &'a ByteString, pub(super) i32);

/// By subtopology. Invariant: no subtopology has an empty set, so equal sets compare equal.
pub(super) type Tasks = BTreeMap<ByteString, BTreeSet<i32>>;

/// Active tasks with the epochs in which they were assigned.
pub(super) type TasksWithEpochs = BTreeMap<ByteString, BTreeMap<i32, i32>>;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TasksTuple {
    pub(super) active: Tasks,
    pub(super) standby: Tasks,
    pub(super) warmup: Tasks,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct TasksTupleWithEpochs {
    pub(super) active: TasksWithEpochs,
    pub(super) standby: Tasks,
    pub(super) warmup: Tasks,
}

pub(super) fn insert(tasks: &mut Tasks, subtopology_id: &ByteString, partition: i32) {
    tasks
        .entry(subtopology_id.clone())
        .or_default()
        .insert(partition);
}

/// The individual tasks.
pub(super) fn each(tasks: &Tasks) -> impl Iterator<Item = (&ByteString, i32)> {
    tasks.iter().flat_map(|(subtopology_id, partitions)| {
        partitions
            .iter()
            .map(move |partition| (subtopology_id, *partition))
    })
}

/// The individual active tasks.
pub(super) fn each_active(tasks: &TasksWithEpochs) -> impl Iterator<Item = (&ByteString, i32)> {
    tasks.iter().flat_map(|(subtopology_id, epochs)| {
        epochs
            .keys()
            .map(move |partition| (subtopology_id, *partition))
    })
}

pub(super) fn contains(tasks: &Tasks, (subtopology_id, partition): (&ByteString, i32)) -> bool {
    tasks
        .get(subtopology_id)
        .is_some_and(|partitions| partitions.contains(&partition))
}

impl TasksTuple {
    pub(super) fn is_empty(&self) -> bool {
        self.active.is_empty() && self.standby.is_empty() && self.warmup.is_empty()
    }

    /// Whether one of `others` is also in this set, as a task of the same kind.
    pub(super) fn contains_any(&self, others: &TasksTupleWithEpochs) -> bool {
        each_active(&others.active).any(|task| contains(&self.active, task))
            || each(&others.standby).any(|task| contains(&self.standby, task))
            || each(&others.warmup).any(|task| contains(&self.warmup, task))
    }
}

impl TasksTupleWithEpochs {
    pub(super) fn is_empty(&self) -> bool {
        self.active.is_empty() && self.standby.is_empty() && self.warmup.is_empty()
    }

    pub(super) fn merge(&mut self, others: TasksTupleWithEpochs) {
        for (subtopology_id, epochs) in others.active {
            self.active
                .entry(subtopology_id)
                .or_default()
                .extend(epochs);
        }
        for (tasks, others) in [
            (&mut self.standby, others.standby),
            (&mut self.warmup, others.warmup),
        ] {
            for (subtopology_id, partitions) in others {
                tasks.entry(subtopology_id).or_default().extend(partitions);
            }
        }
    }

    /// Whether a member that reports `owned` has only tasks in this set. False if a kind is not
    /// reported.
    pub(super) fn covers(&self, owned: [Option<&Tasks>; 3]) -> bool {
        let [active, standby, warmup] = owned;
        let is_active = |(subtopology_id, partition): (&ByteString, i32)| {
            self.active
                .get(subtopology_id)
                .is_some_and(|epochs| epochs.contains_key(&partition))
        };
        active.is_some_and(|owned| {
            owned.keys().all(|id| self.active.contains_key(id)) && each(owned).all(is_active)
        }) && standby.is_some_and(|owned| is_subset(owned, &self.standby))
            && warmup.is_some_and(|owned| is_subset(owned, &self.warmup))
    }
}

fn is_subset(tasks: &Tasks, of: &Tasks) -> bool {
    tasks.iter().all(|(subtopology_id, partitions)| {
        of.get(subtopology_id)
            .is_some_and(|of| partitions.is_subset(of))
    })
}
