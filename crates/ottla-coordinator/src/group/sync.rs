//! SyncGroup: the leader sends the assignment of a generation, and the other members wait for
//! theirs.
//!
//! Members receive the assignment only after it is committed, because a new coordinator must know
//! what they received. Source: `GroupMetadataManager.classicGroupSync` and its callees.

use std::collections::HashMap;

use bytes::Bytes;
use bytestring::ByteString;
use ottla_protocol::messages::{SyncGroupRequest, SyncGroupResponse};
use ottla_types::{ErrorCode, Timestamp};

use super::classic_group::{ClassicGroup, ClassicGroupState};
use super::coordinator::{Context, Deferred, Effects, GroupCoordinator};
use super::member::SyncReply;
use super::outcome::Outcome;
use super::record::CoordinatorRecord;

impl GroupCoordinator {
    pub fn handle_sync(
        &mut self,
        to: SyncReply,
        request: SyncGroupRequest,
        now: Timestamp,
    ) -> Outcome {
        let mut effects = self.effects();
        if request.group_id.is_empty() {
            effects.refuse(to, ErrorCode::InvalidGroupId);
            return self.finish(effects);
        }
        if let Some(group) = self.consumer_group(&request.group_id).cloned()
            && !group.is_empty()
        {
            self.sync_consumer_group(to, &group, &request, now, &mut effects);
            return self.finish(effects);
        }
        match self.classic_group(&request.group_id) {
            Some(group) if !group.is_in(ClassicGroupState::Empty) => {
                self.with_classic_group(
                    &request.group_id,
                    now,
                    &mut effects,
                    |group, _, effects| {
                        sync(group, to, &request, effects);
                    },
                );
            }
            _ => effects.refuse(to, ErrorCode::UnknownMemberId),
        }
        self.finish(effects)
    }
}

fn sync(
    group: &mut ClassicGroup,
    to: SyncReply,
    request: &SyncGroupRequest,
    effects: &mut Effects,
) {
    if let Err(error) = validate(group, request) {
        effects.refuse(to, error);
        return;
    }
    match group.state() {
        ClassicGroupState::Empty => effects.refuse(to, ErrorCode::UnknownMemberId),
        ClassicGroupState::PreparingRebalance => {
            effects.refuse(to, ErrorCode::RebalanceInProgress);
        }
        ClassicGroupState::CompletingRebalance => {
            group.park_sync(&request.member_id, to, effects);
            group.note_sync(&request.member_id, effects);
            if group.is_leader(&request.member_id) {
                let assignments = assignments_of_all_members(group, request);
                let record = record_with(group, &assignments);
                let deferred = Deferred::Assignment {
                    group_id: group.group_id().clone(),
                    generation_id: group.generation_id(),
                    assignments,
                };
                effects.write(vec![record], deferred);
            }
        }
        ClassicGroupState::Stable => {
            group.note_sync(&request.member_id, effects);
            let assignment = group
                .member(&request.member_id)
                .map(|member| member.assignment.clone())
                .unwrap_or_default();
            effects.reply(to, group.assignment_response(assignment));
        }
    }
}

fn validate(group: &ClassicGroup, request: &SyncGroupRequest) -> Result<(), ErrorCode> {
    group.validate_member(&request.member_id, request.group_instance_id.as_deref())?;
    if request.generation_id != group.generation_id() {
        return Err(ErrorCode::IllegalGeneration);
    }
    let differs = |asked: &Option<ByteString>, agreed: Option<&ByteString>| matches!((asked, agreed), (Some(asked), Some(agreed)) if asked != agreed);
    if differs(&request.protocol_type, group.protocol_type())
        || differs(&request.protocol_name, group.protocol_name())
    {
        return Err(ErrorCode::InconsistentGroupProtocol);
    }
    Ok(())
}

/// The leader's assignment of each member. A member that it omitted gets an empty one.
fn assignments_of_all_members(
    group: &ClassicGroup,
    request: &SyncGroupRequest,
) -> Vec<(ByteString, Bytes)> {
    let mut given: HashMap<&str, &Bytes> = HashMap::with_capacity(group.num_members());
    for assignment in &request.assignments {
        given.insert(&assignment.member_id, &assignment.assignment);
    }
    group
        .members()
        .map(|member| {
            let assignment = given
                .get(&*member.member_id)
                .map(|assignment| Bytes::copy_from_slice(assignment))
                .unwrap_or_default();
            (member.member_id.clone(), assignment)
        })
        .collect()
}

/// The record of the group with assignments that are not in the members yet, in the order of the
/// members.
fn record_with(group: &ClassicGroup, assignments: &[(ByteString, Bytes)]) -> CoordinatorRecord {
    let mut in_order = assignments.iter().map(|(_, assignment)| assignment.clone());
    CoordinatorRecord::group_metadata(group, |_| in_order.next().unwrap_or_default())
}

impl ClassicGroup {
    fn park_sync(&mut self, member_id: &str, to: SyncReply, effects: &mut Effects) {
        let Some(member) = self.member_mut(member_id) else {
            return;
        };
        if let Some(earlier) = member.awaiting_sync.replace(to) {
            // As for a JoinGroup that is replaced by a later one: Kafka would never answer it.
            effects.refuse(earlier, ErrorCode::RebalanceInProgress);
        }
    }

    /// A member has sent its SyncGroup. After the last one the timer is cancelled.
    fn note_sync(&mut self, member_id: &str, effects: &mut Effects) {
        self.remove_pending_sync_member(member_id);
        if self.has_received_sync_from_all_members() {
            effects.cancel_timer(self.sync_timer());
        }
    }

    fn assignment_response(&self, assignment: Bytes) -> SyncGroupResponse {
        SyncGroupResponse {
            protocol_type: self.protocol_type().cloned(),
            protocol_name: self.protocol_name().cloned(),
            assignment,
            ..Default::default()
        }
    }

    /// The record with the leader's assignment was committed, or failed. If the group is in another
    /// generation by then, all members have been answered.
    pub(super) fn on_assignment_settled(
        &mut self,
        generation_id: i32,
        assignments: Vec<(ByteString, Bytes)>,
        result: Result<(), ErrorCode>,
        cx: Context<'_>,
        effects: &mut Effects,
    ) {
        let is_current = self.is_in(ClassicGroupState::CompletingRebalance)
            && self.generation_id() == generation_id;
        if !is_current {
            return;
        }
        if let Err(error) = result {
            self.refuse_assignment(error, effects);
            self.rebalance_or_complete_join(cx, effects);
            return;
        }
        for member in self.members_mut() {
            member.assignment = Bytes::new();
        }
        for (member_id, assignment) in assignments {
            if let Some(member) = self.member_mut(&member_id) {
                member.assignment = assignment;
            }
        }
        let parked: Vec<_> = self
            .members_mut()
            .filter_map(|member| {
                let to = member.awaiting_sync.take()?;
                Some((
                    to,
                    member.member_id.clone(),
                    member.session_timeout_ms,
                    member.assignment.clone(),
                ))
            })
            .collect();
        for (to, member_id, session_timeout_ms, assignment) in parked {
            effects.reply(to, self.assignment_response(assignment));
            // A session timeout is ignored while a request is parked, so the session starts again
            // here.
            effects.set_timer(self.session_timer(&member_id), session_timeout_ms);
        }
        self.transition_to(ClassicGroupState::Stable, cx.now_ms);
    }
}
