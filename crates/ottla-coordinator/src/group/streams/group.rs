//! The state of a streams group. Cheap to clone, so that a decision works on a clone (`recorded.rs`).
//!
//! Changed only by records (`replay.rs`). State that is not written to the log and is lost with the
//! coordinator is in `unwritten.rs`. Invariant: `active_process`, `standby_processes` and
//! `warmup_processes` contain every task that a member owns or revokes, with the process of that
//! member.
//! Source: `StreamsGroup`.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytestring::ByteString;
use ottla_types::named_enum;
use rpds::{RedBlackTreeMapSync, RedBlackTreeSetSync};

use super::member::StreamsGroupMember;
use super::tasks::{self, Tasks, TasksTupleWithEpochs};
use super::topology::StreamsTopology;
use crate::group::modern::ModernGroup;
use crate::group::recorded::{CountsMembers, deref_to_base};

named_enum! {
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(in crate::group) enum StreamsGroupState {
        Empty => "Empty",
        /// The topology does not match the existing topics.
        NotReady => "NotReady",
        /// The target assignment is older than the group epoch.
        Assigning => "Assigning",
        /// Some members have not reached the target assignment.
        Reconciling => "Reconciling",
        Stable => "Stable",
    }
}

impl StreamsGroupState {
    /// The name in the state filter of Kafka's ListGroups, which has a `_` that clients do not
    /// know.
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
    base: ModernGroup<StreamsGroupMember>,
    /// The topology epoch for which all topics existed; -1 if some did not.
    pub(super) validated_topology_epoch: i32,
    /// The settings of the last target assignment.
    pub(super) last_assignment_configs: BTreeMap<ByteString, ByteString>,
    pub(super) topology: Option<Arc<StreamsTopology>>,
    active_process: RedBlackTreeMapSync<(ByteString, i32), ByteString>,
    standby_processes: RedBlackTreeSetSync<TaskAndProcess>,
    warmup_processes: RedBlackTreeSetSync<TaskAndProcess>,
}

deref_to_base!(StreamsGroup, StreamsGroupMember);

impl StreamsGroup {
    pub(in crate::group) fn new(group_id: ByteString) -> Self {
        StreamsGroup {
            base: ModernGroup::new(group_id),
            validated_topology_epoch: 0,
            last_assignment_configs: BTreeMap::new(),
            topology: None,
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

    /// Whether the offsets of `topic` are in use.
    pub(in crate::group) fn is_subscribed_to(&self, topic: &str) -> bool {
        let topology = self.topology.as_ref();
        !self.is_empty() && topology.is_some_and(|it| it.reading_from(topic).is_some())
    }

    /// Whether some process runs the task, or has not given it up yet.
    pub(super) fn is_active_anywhere(&self, task: (&ByteString, i32)) -> bool {
        self.active_process.contains_key(&owned_task(task))
    }

    pub(super) fn is_active_at(&self, task: (&ByteString, i32), process_id: &ByteString) -> bool {
        self.active_process.get(&owned_task(task)) == Some(process_id)
    }

    /// Whether the process has the task as a standby or warm-up task.
    pub(super) fn is_kept_at(&self, task: (&ByteString, i32), process_id: &ByteString) -> bool {
        let key = at_process(task, process_id);
        self.standby_processes.contains(&key) || self.warmup_processes.contains(&key)
    }
}

impl CountsMembers<StreamsGroupMember> for StreamsGroup {
    fn count(&mut self, member: &StreamsGroupMember) {
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

    fn uncount(&mut self, member: &StreamsGroupMember) {
        let process_id = &member.process_id;
        for tasks in both(member) {
            for task in tasks::each_active(&tasks.active) {
                // In a compacted log the record that assigns the task to another process can
                // precede the record with which this one gave it up.
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
