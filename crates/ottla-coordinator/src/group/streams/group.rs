//! The state of a streams group. Cheap to clone, so that a decision works on a clone (`decision.rs`).
//!
//! Changed by records alone (`replay.rs`). What a group knows besides, and forgets with its coordinator, is in
//! `unwritten.rs`.
//! Invariant: `active_process`, `standby_processes` and `warmup_processes` have every task that a member has or is to give up,
//! with the process of that member.
//! Source: `StreamsGroup`.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytestring::ByteString;
use rpds::{RedBlackTreeMapSync, RedBlackTreeSetSync};

use super::member::StreamsGroupMember;
use super::tasks::{self, Tasks, TasksTuple, TasksTupleWithEpochs};
use super::topology::StreamsTopology;
use crate::group::modern::TargetAssignment;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::group) enum StreamsGroupState {
    Empty,
    /// The topology does not fit the topics that there are.
    NotReady,
    /// The target assignment is older than the group epoch.
    Assigning,
    /// Not every member has come to the target assignment.
    Reconciling,
    Stable,
}

impl StreamsGroupState {
    /// Kafka's name, as clients see it.
    pub(in crate::group) fn name(self) -> &'static str {
        match self {
            StreamsGroupState::Empty => "Empty",
            StreamsGroupState::NotReady => "NotReady",
            StreamsGroupState::Assigning => "Assigning",
            StreamsGroupState::Reconciling => "Reconciling",
            StreamsGroupState::Stable => "Stable",
        }
    }

    /// The name by which Kafka finds it when groups are listed by their states: with a `_` that clients do not know of.
    pub(in crate::group) fn filter_name(self) -> &'static str {
        match self {
            StreamsGroupState::NotReady => "not_ready",
            state => state.name(),
        }
    }
}

/// Subtopology, partition, process.
type TaskAndProcess = (ByteString, i32, ByteString);

#[derive(Clone, Debug)]
pub(in crate::group) struct StreamsGroup {
    pub(in crate::group) group_id: ByteString,
    /// Grows whenever a new target assignment is needed.
    pub(super) group_epoch: i32,
    /// Of the topics as the group saw them last (`topic_hash.rs`).
    pub(super) metadata_hash: i64,
    /// The epoch of the topology for which all topics were there; -1 if they were not.
    pub(super) validated_topology_epoch: i32,
    /// What the last target assignment was made with.
    pub(super) last_assignment_configs: BTreeMap<ByteString, ByteString>,
    pub(super) topology: Option<Arc<StreamsTopology>>,
    pub(super) target: TargetAssignment<TasksTuple>,
    members: RedBlackTreeMapSync<ByteString, Arc<StreamsGroupMember>>,
    active_process: RedBlackTreeMapSync<(ByteString, i32), ByteString>,
    standby_processes: RedBlackTreeSetSync<TaskAndProcess>,
    warmup_processes: RedBlackTreeSetSync<TaskAndProcess>,
}

impl StreamsGroup {
    pub(in crate::group) fn new(group_id: ByteString) -> Self {
        StreamsGroup {
            group_id,
            group_epoch: 1,
            metadata_hash: 0,
            validated_topology_epoch: 0,
            last_assignment_configs: BTreeMap::new(),
            topology: None,
            target: TargetAssignment::default(),
            members: RedBlackTreeMapSync::new_sync(),
            active_process: RedBlackTreeMapSync::new_sync(),
            standby_processes: RedBlackTreeSetSync::new_sync(),
            warmup_processes: RedBlackTreeSetSync::new_sync(),
        }
    }

    pub(in crate::group) fn state(&self) -> StreamsGroupState {
        let topology_epoch = self.topology.as_ref().map(|topology| topology.epoch);
        if self.is_empty() {
            StreamsGroupState::Empty
        } else if topology_epoch != Some(self.validated_topology_epoch) {
            StreamsGroupState::NotReady
        } else if self.group_epoch > self.target.epoch {
            StreamsGroupState::Assigning
        } else if self
            .members()
            .all(|member| member.is_reconciled_to(self.target.epoch))
        {
            StreamsGroupState::Stable
        } else {
            StreamsGroupState::Reconciling
        }
    }

    /// In the order of their ids.
    pub(super) fn members(&self) -> impl Iterator<Item = &Arc<StreamsGroupMember>> {
        self.members.values()
    }

    pub(in crate::group) fn member(&self, member_id: &str) -> Option<&Arc<StreamsGroupMember>> {
        self.members.get(member_id)
    }

    pub(in crate::group) fn num_members(&self) -> usize {
        self.members.size()
    }

    pub(in crate::group) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Whether the offsets of `topic` are in use.
    pub(in crate::group) fn is_subscribed_to(&self, topic: &str) -> bool {
        let topology = self.topology.as_ref();
        !self.is_empty() && topology.is_some_and(|it| it.reading_from(topic).is_some())
    }

    /// Whether some process works on a task, or has not given it up yet.
    pub(super) fn is_active_anywhere(&self, task: (&ByteString, i32)) -> bool {
        self.active_process.contains_key(&owned_task(task))
    }

    pub(super) fn is_active_at(&self, task: (&ByteString, i32), process_id: &ByteString) -> bool {
        self.active_process.get(&owned_task(task)) == Some(process_id)
    }

    /// Whether a process keeps the state of a task without working on it.
    pub(super) fn is_kept_at(&self, task: (&ByteString, i32), process_id: &ByteString) -> bool {
        let key = at_process(task, process_id);
        self.standby_processes.contains(&key) || self.warmup_processes.contains(&key)
    }

    // Changes, called for records

    pub(super) fn put_member(&mut self, member: StreamsGroupMember) {
        let member = Arc::new(member);
        if let Some(former) = self.members.get(&member.member_id).cloned() {
            self.forget_tasks(&former);
        }
        self.remember_tasks(&member);
        self.members.insert_mut(member.member_id.clone(), member);
    }

    pub(super) fn drop_member(&mut self, member_id: &str) {
        if let Some(removed) = self.members.get(member_id).cloned() {
            self.forget_tasks(&removed);
            self.members.remove_mut(member_id);
        }
    }

    fn remember_tasks(&mut self, member: &StreamsGroupMember) {
        let process_id = &member.process_id;
        for tasks in both(member) {
            for task in tasks::each_active(&tasks.active) {
                self.active_process
                    .insert_mut(owned_task(task), process_id.clone());
            }
            let insert = |processes: &mut RedBlackTreeSetSync<TaskAndProcess>, kept: &Tasks| {
                for task in tasks::each(kept) {
                    processes.insert_mut(at_process(task, process_id));
                }
            };
            insert(&mut self.standby_processes, &tasks.standby);
            insert(&mut self.warmup_processes, &tasks.warmup);
        }
    }

    fn forget_tasks(&mut self, member: &StreamsGroupMember) {
        let process_id = &member.process_id;
        for tasks in both(member) {
            for task in tasks::each_active(&tasks.active) {
                // In a compacted log another may have got it before the record by which this one gave it up.
                if self.is_active_at(task, process_id) {
                    self.active_process.remove_mut(&owned_task(task));
                }
            }
            let remove = |processes: &mut RedBlackTreeSetSync<TaskAndProcess>, kept: &Tasks| {
                for task in tasks::each(kept) {
                    processes.remove_mut(&at_process(task, process_id));
                }
            };
            remove(&mut self.standby_processes, &tasks.standby);
            remove(&mut self.warmup_processes, &tasks.warmup);
        }
    }
}

fn both(member: &StreamsGroupMember) -> [&TasksTupleWithEpochs; 2] {
    [&member.assigned, &member.pending_revocation]
}

fn owned_task((subtopology_id, partition): (&ByteString, i32)) -> (ByteString, i32) {
    (subtopology_id.clone(), partition)
}

fn at_process(
    (subtopology_id, partition): (&ByteString, i32),
    process_id: &ByteString,
) -> TaskAndProcess {
    (subtopology_id.clone(), partition, process_id.clone())
}
