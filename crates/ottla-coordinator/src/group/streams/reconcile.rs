//! Reconciles a member with its target assignment, one step per heartbeat.
//!
//! A member first revokes the tasks that are not in its target, and stays in its epoch until its
//! heartbeat shows that it has. Then it moves to the epoch of the target and gets the free tasks.
//! An active task is free if no process runs it. Because the state of a task is in one directory of
//! a process, a process gets a task in any role only after it has given up its other role for that
//! task.
//!
//! | state | the member leaves the state when |
//! | --- | --- |
//! | `Stable` | there is a newer target |
//! | `UnrevokedTasks` | its heartbeat contains none of the tasks to revoke |
//! | `UnreleasedTasks` | it sends a heartbeat, which gives it the tasks that have become free |
//! | `Unknown` | it starts again without tasks |
//!
//! Source: `CurrentAssignmentBuilder`.

use bytestring::ByteString;
use ottla_types::ErrorCode;

use super::group::StreamsGroup;
use super::member::{MemberState, StreamsGroupMember};
use super::tasks::{self, Tasks, TasksTuple, TasksTupleWithEpochs, TasksWithEpochs};
use crate::group::modern::GroupError;

/// The inputs of a step besides the member.
pub(super) struct Reconciliation<'a> {
    pub(super) group: &'a StreamsGroup,
    pub(super) target_epoch: i32,
    pub(super) target: &'a TasksTuple,
    /// The tasks that the member reports to own, if it reports any.
    pub(super) owned: Option<&'a TasksTuple>,
}

/// The difference between the tasks of a member and its target.
#[derive(Default)]
struct Difference {
    kept: TasksTupleWithEpochs,
    to_revoke: TasksTupleWithEpochs,
    to_assign: TasksTupleWithEpochs,
    has_unreleased: bool,
}

impl Reconciliation<'_> {
    /// The member after the step; unchanged if no step is possible.
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

    /// Without a report, the member is assumed to own everything still.
    fn owns_any_of(&self, tasks: &TasksTupleWithEpochs) -> bool {
        self.owned.is_none_or(|owned| owned.contains_any(tasks))
    }

    /// `epoch` is the member's own while it still has tasks to revoke.
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

    /// Splits `current` into kept and revoked tasks, and finds the new ones.
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
