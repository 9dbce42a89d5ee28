//! Removal of members: they leave or time out.
//! Source: `GroupMetadataManager.streamsGroupLeave`, `streamsGroupFenceMember`.

use std::sync::Arc;

use ottla_protocol::messages::{StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse};
use ottla_types::Timestamp;

use super::group::StreamsGroup;
use super::member::{LEAVE_GROUP_STATIC_EPOCH, StreamsGroupMember};
use super::tasks::TasksTupleWithEpochs;
use crate::group::coordinator::{Deferred, Effects, GroupCoordinator};
use crate::group::membership::existing_member;
use crate::group::modern::GroupError;
use crate::group::outcome::{ReplyTo, StreamsHeartbeat, TimerKey};
use crate::group::recorded::Decision;

impl GroupCoordinator {
    pub(super) fn streams_leave(
        &mut self,
        to: ReplyTo<StreamsHeartbeat>,
        request: &StreamsGroupHeartbeatRequest,
        now: Timestamp,
        effects: &mut Effects,
    ) -> Result<(), GroupError> {
        let group_id = &request.group_id;
        let group = self.existing_group::<StreamsGroup>(group_id)?.clone();
        if request.shutdown_application {
            // Kafka accepts this from any sender, even from one that is not a member.
            self.unwritten
                .of(&group.group_id)
                .shutdown_requested_by
                .get_or_insert_with(|| crate::group::member::owned(&request.member_id));
        }
        let instance_id = request.instance_id.as_ref();
        let member = Arc::clone(existing_member(&group, &request.member_id, instance_id)?);
        let response = StreamsGroupHeartbeatResponse {
            member_id: member.member_id.clone(),
            member_epoch: request.member_epoch,
            status: Some(Vec::new()),
            ..Default::default()
        };
        let heartbeat = StreamsHeartbeat {
            response: Box::new(response),
            ..Default::default()
        };
        let reply = Deferred::Reply(to.with(heartbeat));
        let comes_back =
            request.instance_id.is_some() && request.member_epoch == LEAVE_GROUP_STATIC_EPOCH;
        if comes_back {
            let mut decision = Decision::about(group, now);
            decision.write_current_assignment(&away(&member));
            self.conclude(decision, reply, effects);
        } else {
            self.fence_streams_member(group, &member, reply, now, effects);
        }
        Ok(())
    }

    /// Removes a member.
    pub(in crate::group) fn fence_streams_member(
        &mut self,
        group: StreamsGroup,
        member: &Arc<StreamsGroupMember>,
        deferred: Deferred,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let mut decision = Decision::about(group, now);
        decision.remove_member(&member.member_id);
        let group_id = decision.group_id();
        // The next heartbeat refreshes the topics.
        decision.bump_group_epoch(decision.group.metadata_hash);
        effects.cancel_timer(TimerKey::session(&group_id, &member.member_id));
        let left_epoch = member.member_epoch;
        effects.cancel_timer(TimerKey::revocation(
            &group_id,
            &member.member_id,
            left_epoch,
        ));
        if let Some(unwritten) = self.unwritten.get_mut(&group_id) {
            unwritten.task_offsets.forget(&member.member_id);
            if decision.group.is_empty() {
                unwritten.shutdown_requested_by = None;
            }
        }
        self.conclude(decision, deferred, effects);
    }
}

/// A static member that left temporarily. Its tasks are kept for the member id with which it
/// returns.
fn away(member: &StreamsGroupMember) -> StreamsGroupMember {
    let mut assigned = member.assigned.clone();
    for epochs in assigned.active.values_mut() {
        for epoch in epochs.values_mut() {
            *epoch = 0;
        }
    }
    StreamsGroupMember {
        member_epoch: LEAVE_GROUP_STATIC_EPOCH,
        assigned,
        pending_revocation: TasksTupleWithEpochs::default(),
        ..member.clone()
    }
}
