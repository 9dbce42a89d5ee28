//! A member of a streams group: one stream thread, or one process, of an application.
//! Source: `StreamsGroupMember`, `MemberState`.

use std::collections::{BTreeMap, BTreeSet};

use bytestring::ByteString;
use ottla_protocol::coordinator_records::streams_group_current_member_assignment_value::TaskIds;
use ottla_protocol::coordinator_records::{
    StreamsGroupCurrentMemberAssignmentValue, StreamsGroupMemberMetadataValue,
};

use super::tasks::{Tasks, TasksTuple, TasksTupleWithEpochs, TasksWithEpochs};
use crate::group::member::owned;
use crate::group::modern::ModernMember;
use crate::group::recorded::RecordedMember;

/// The epoch of a member that leaves, and of a member whose assignment has a tombstone in the log.
pub(super) const LEAVE_GROUP_EPOCH: i32 = -1;
/// The epoch of a static member that has left and will return.
pub(super) const LEAVE_GROUP_STATIC_EPOCH: i32 = -2;

/// The progress of a member toward its target assignment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::group) enum MemberState {
    /// The member has its target assignment in the epoch of that assignment.
    Stable = 1,
    /// The member must revoke tasks before it moves to the next epoch.
    UnrevokedTasks = 2,
    /// The member is in the newest epoch, and waits for tasks that others have not given up.
    UnreleasedTasks = 3,
    /// A state of a newer Kafka version, read from the log.
    Unknown = 127,
}

impl MemberState {
    pub(in crate::group) fn from_code(code: i8) -> Self {
        match code {
            1 => MemberState::Stable,
            2 => MemberState::UnrevokedTasks,
            3 => MemberState::UnreleasedTasks,
            _ => MemberState::Unknown,
        }
    }

    /// The value in a record.
    pub(in crate::group) fn code(self) -> i8 {
        self as i8
    }
}

/// Where a process answers interactive queries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Endpoint {
    pub(super) host: ByteString,
    pub(super) port: u16,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::group) struct StreamsGroupMember {
    pub(super) member_id: ByteString,
    pub(super) member_epoch: i32,
    /// The previous epoch, which a member that missed a response still has.
    pub(super) previous_member_epoch: i32,
    pub(super) state: MemberState,
    /// Of a static member, which returns with another member id.
    pub(super) instance_id: Option<ByteString>,
    pub(super) rack_id: Option<ByteString>,
    pub(super) client_id: ByteString,
    pub(super) client_host: ByteString,
    pub(super) rebalance_timeout_ms: i32,
    /// The epoch of the member's topology. Older than the group's during an upgrade of the
    /// application.
    pub(super) topology_epoch: i32,
    /// The process of the member. Members of a process share their state directory.
    pub(super) process_id: ByteString,
    pub(super) user_endpoint: Option<Endpoint>,
    pub(super) client_tags: BTreeMap<ByteString, ByteString>,
    pub(super) assigned: TasksTupleWithEpochs,
    /// Tasks to revoke, until a heartbeat shows that the member has given them up.
    pub(super) pending_revocation: TasksTupleWithEpochs,
}

/// Members of a streams group have no subscriptions; their topology has the topics.
static NO_TOPICS: BTreeSet<ByteString> = BTreeSet::new();

impl ModernMember for StreamsGroupMember {
    type Assignment = TasksTuple;

    fn member_id(&self) -> &ByteString {
        &self.member_id
    }

    fn instance_id(&self) -> Option<&ByteString> {
        self.instance_id.as_ref()
    }

    fn subscribed_topic_names(&self) -> &BTreeSet<ByteString> {
        &NO_TOPICS
    }
}

impl RecordedMember for StreamsGroupMember {
    fn new(member_id: ByteString) -> Self {
        StreamsGroupMember {
            member_id,
            member_epoch: 0,
            previous_member_epoch: 0,
            state: MemberState::Stable,
            instance_id: None,
            rack_id: None,
            client_id: ByteString::new(),
            client_host: ByteString::new(),
            rebalance_timeout_ms: -1,
            topology_epoch: -1,
            process_id: ByteString::new(),
            user_endpoint: None,
            client_tags: BTreeMap::new(),
            assigned: TasksTupleWithEpochs::default(),
            pending_revocation: TasksTupleWithEpochs::default(),
        }
    }

    fn without_current_assignment(&self) -> Self {
        StreamsGroupMember {
            member_epoch: LEAVE_GROUP_EPOCH,
            previous_member_epoch: LEAVE_GROUP_EPOCH,
            assigned: TasksTupleWithEpochs::default(),
            pending_revocation: TasksTupleWithEpochs::default(),
            ..self.clone()
        }
    }

    fn revocation(&self) -> Option<(i32, i32)> {
        (self.state == MemberState::UnrevokedTasks)
            .then_some((self.member_epoch, self.rebalance_timeout_ms))
    }
}

impl StreamsGroupMember {
    pub(super) fn is_reconciled_to(&self, target_epoch: i32) -> bool {
        self.state == MemberState::Stable && self.member_epoch == target_epoch
    }

    /// The epoch in which an active task was assigned that the member owns or revokes.
    pub(super) fn assignment_epoch(&self, subtopology_id: &str, partition: i32) -> Option<i32> {
        let epoch_in = |tasks: &TasksTupleWithEpochs| {
            let epochs = tasks.active.get(subtopology_id)?;
            epochs.get(&partition).copied()
        };
        epoch_in(&self.assigned).or_else(|| epoch_in(&self.pending_revocation))
    }

    pub(super) fn with_metadata(&self, value: &StreamsGroupMemberMetadataValue) -> Self {
        StreamsGroupMember {
            instance_id: value.instance_id.as_ref().map(owned),
            rack_id: value.rack_id.as_ref().map(owned),
            client_id: owned(&value.client_id),
            client_host: owned(&value.client_host),
            rebalance_timeout_ms: value.rebalance_timeout_ms,
            topology_epoch: value.topology_epoch,
            process_id: owned(&value.process_id),
            user_endpoint: value.user_endpoint.as_ref().map(|endpoint| Endpoint {
                host: owned(&endpoint.host),
                port: endpoint.port,
            }),
            client_tags: value
                .client_tags
                .iter()
                .map(|tag| (owned(&tag.key), owned(&tag.value)))
                .collect(),
            ..self.clone()
        }
    }

    pub(super) fn with_current_assignment(
        &self,
        value: &StreamsGroupCurrentMemberAssignmentValue,
    ) -> Self {
        let epoch = value.member_epoch;
        StreamsGroupMember {
            member_epoch: epoch,
            previous_member_epoch: value.previous_member_epoch,
            state: MemberState::from_code(value.state),
            assigned: TasksTupleWithEpochs {
                active: with_epochs(&value.active_tasks, epoch),
                standby: without_epochs(&value.standby_tasks),
                warmup: without_epochs(&value.warmup_tasks),
            },
            pending_revocation: TasksTupleWithEpochs {
                active: with_epochs(&value.active_tasks_pending_revocation, epoch),
                standby: without_epochs(&value.standby_tasks_pending_revocation),
                warmup: without_epochs(&value.warmup_tasks_pending_revocation),
            },
            ..self.clone()
        }
    }
}

/// If the epochs do not match the tasks, the member's epoch is used for all of them.
fn with_epochs(task_ids: &[TaskIds], member_epoch: i32) -> TasksWithEpochs {
    let mut tasks = TasksWithEpochs::new();
    for task_ids in task_ids {
        let partitions = task_ids.partitions.iter().copied();
        let epochs = task_ids.assignment_epochs.as_ref();
        let epochs: BTreeMap<i32, i32> =
            match epochs.filter(|epochs| epochs.len() == task_ids.partitions.len()) {
                Some(epochs) => partitions.zip(epochs.iter().copied()).collect(),
                None => partitions.map(|index| (index, member_epoch)).collect(),
            };
        if !epochs.is_empty() {
            tasks.insert(owned(&task_ids.subtopology_id), epochs);
        }
    }
    tasks
}

fn without_epochs(task_ids: &[TaskIds]) -> Tasks {
    let tasks = task_ids.iter().map(|task_ids| {
        let partitions: BTreeSet<i32> = task_ids.partitions.iter().copied().collect();
        (owned(&task_ids.subtopology_id), partitions)
    });
    tasks
        .filter(|(_, partitions)| !partitions.is_empty())
        .collect()
}
