//! The next step of a member towards its target assignment.
//!
//! A member gives up first what it is not to have any more, and stays in its epoch meanwhile. When its heartbeat says that it
//! has, it goes to the epoch of the target and gets what is free. An active task is free if no process works on it; and as
//! the state of a task is in one directory of a process, a process gets none of a task, of whatever kind, before it has given
//! up what it had of it.
//!
//! | state | it leaves the state when |
//! | --- | --- |
//! | `Stable` | there is a newer target |
//! | `UnrevokedTasks` | its heartbeat names none of the tasks that it is to give up |
//! | `UnreleasedTasks` | with any heartbeat, which gives it what has become free |
//! | `Unknown` | it begins anew, without tasks |
//!
//! Source: `CurrentAssignmentBuilder`.

use bytestring::ByteString;
use ottla_types::ErrorCode;

use super::group::StreamsGroup;
use super::member::{MemberState, StreamsGroupMember};
use super::tasks::{self, Tasks, TasksTuple, TasksTupleWithEpochs, TasksWithEpochs};
use crate::group::modern::GroupError;

/// What a step depends on besides the member.
pub(super) struct Reconciliation<'a> {
    pub(super) group: &'a StreamsGroup,
    pub(super) target_epoch: i32,
    pub(super) target: &'a TasksTuple,
    /// What the member says that it has, if it says so.
    pub(super) owned: Option<&'a TasksTuple>,
}

/// What the way from the tasks of a member to its target is made of.
#[derive(Default)]
struct Difference {
    kept: TasksTupleWithEpochs,
    to_revoke: TasksTupleWithEpochs,
    to_assign: TasksTupleWithEpochs,
    has_unreleased: bool,
}

impl Reconciliation<'_> {
    /// The member after the step, or as it is if it can take none.
    pub(super) fn step(
        &self,
        member: &StreamsGroupMember,
    ) -> Result<StreamsGroupMember, GroupError> {
        Ok(match member.state {
            MemberState::Stable if member.member_epoch == self.target_epoch => member.clone(),
            MemberState::Stable | MemberState::UnreleasedTasks => {
                self.next_assignment(member, member.member_epoch)
            }
            MemberState::UnrevokedTasks if self.owns_any_of(&member.pending_revocation) => {
                member.clone()
            }
            MemberState::UnrevokedTasks => {
                self.next_assignment(member, member.member_epoch.saturating_add(1))
            }
            MemberState::Unknown => {
                if self.owned.is_none_or(|owned| !owned.is_empty()) {
                    return Err(GroupError::new(
                        ErrorCode::FencedMemberEpoch,
                        "The streams group member is in a unknown state. \
                         The member must abandon all its tasks and rejoin.",
                    ));
                }
                self.next_assignment(member, self.target_epoch)
            }
        })
    }

    /// A member that does not say what it has is taken to have everything still.
    fn owns_any_of(&self, tasks: &TasksTupleWithEpochs) -> bool {
        self.owned.is_none_or(|owned| owned.contains_any(tasks))
    }

    /// `epoch` is that of the member for as long as it has tasks to give up.
    fn next_assignment(&self, member: &StreamsGroupMember, epoch: i32) -> StreamsGroupMember {
        let Difference {
            mut kept,
            to_revoke,
            to_assign,
            has_unreleased,
        } = self.difference(member);
        if !to_revoke.is_empty() && self.owns_any_of(&to_revoke) {
            return StreamsGroupMember {
                state: MemberState::UnrevokedTasks,
                assigned: kept,
                pending_revocation: to_revoke,
                ..in_epoch(member, epoch)
            };
        }
        kept.merge(to_assign);
        StreamsGroupMember {
            state: if has_unreleased {
                MemberState::UnreleasedTasks
            } else {
                MemberState::Stable
            },
            assigned: kept,
            pending_revocation: TasksTupleWithEpochs::default(),
            ..in_epoch(member, self.target_epoch)
        }
    }

    fn difference(&self, member: &StreamsGroupMember) -> Difference {
        let process_id = &member.process_id;
        let mut difference = Difference::default();
        let is_active_free = |task: (&ByteString, i32)| {
            !self.group.is_active_anywhere(task) && !self.group.is_kept_at(task, process_id)
        };
        difference.add_active(
            &member.assigned.active,
            &self.target.active,
            self.target_epoch,
            is_active_free,
        );
        let is_kept_free = |task: (&ByteString, i32)| {
            !self.group.is_active_at(task, process_id) && !self.group.is_kept_at(task, process_id)
        };
        let (kept, to_revoke, to_assign) =
            difference.split(&member.assigned.standby, &self.target.standby, is_kept_free);
        difference.kept.standby = kept;
        difference.to_revoke.standby = to_revoke;
        difference.to_assign.standby = to_assign;
        let (kept, to_revoke, to_assign) =
            difference.split(&member.assigned.warmup, &self.target.warmup, is_kept_free);
        difference.kept.warmup = kept;
        difference.to_revoke.warmup = to_revoke;
        difference.to_assign.warmup = to_assign;
        difference
    }
}

impl Difference {
    fn add_active(
        &mut self,
        current: &TasksWithEpochs,
        target: &Tasks,
        target_epoch: i32,
        is_free: impl Fn((&ByteString, i32)) -> bool,
    ) {
        let put = |tasks: &mut TasksWithEpochs, (id, index): (&ByteString, i32), epoch: i32| {
            tasks.entry(id.clone()).or_default().insert(index, epoch);
        };
        for (id, epochs) in current {
            for (index, epoch) in epochs {
                let part = if tasks::contains(target, (id, *index)) {
                    &mut self.kept.active
                } else {
                    &mut self.to_revoke.active
                };
                put(part, (id, *index), *epoch);
            }
        }
        for task in tasks::each(target) {
            let has_it = current
                .get(task.0)
                .is_some_and(|epochs| epochs.contains_key(&task.1));
            if has_it {
                continue;
            }
            if is_free(task) {
                put(&mut self.to_assign.active, task, target_epoch)
            } else {
                self.has_unreleased = true
            }
        }
    }

    /// What of `current` is kept and what given up, and what is new.
    fn split(
        &mut self,
        current: &Tasks,
        target: &Tasks,
        is_free: impl Fn((&ByteString, i32)) -> bool,
    ) -> (Tasks, Tasks, Tasks) {
        let (mut kept, mut to_revoke, mut to_assign) = (Tasks::new(), Tasks::new(), Tasks::new());
        for task in tasks::each(current) {
            let part = if tasks::contains(target, task) {
                &mut kept
            } else {
                &mut to_revoke
            };
            tasks::insert(part, task.0, task.1);
        }
        for task in tasks::each(target).filter(|task| !tasks::contains(current, *task)) {
            if is_free(task) {
                tasks::insert(&mut to_assign, task.0, task.1)
            } else {
                self.has_unreleased = true
            }
        }
        (kept, to_revoke, to_assign)
    }
}

fn in_epoch(member: &StreamsGroupMember, epoch: i32) -> StreamsGroupMember {
    StreamsGroupMember {
        member_epoch: epoch,
        previous_member_epoch: member.member_epoch,
        ..member.clone()
    }
}
