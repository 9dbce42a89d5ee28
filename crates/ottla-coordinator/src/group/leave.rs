//! LeaveGroup: members leave, or an administrator removes static members by instance id.
//! Source: `GroupMetadataManager.classicGroupLeave`; KIP-345 (by instance id), KIP-800 (reasons).

use ottla_protocol::messages::leave_group_request::MemberIdentity;
use ottla_protocol::messages::leave_group_response::MemberResponse;
use ottla_protocol::messages::{LeaveGroupRequest, LeaveGroupResponse};
use ottla_types::{ErrorCode, Timestamp};

use super::classic_group::{ClassicGroup, ClassicGroupState};
use super::coordinator::{Effects, GroupCoordinator};
use super::outcome::{Outcome, ReplyTo};

impl GroupCoordinator {
    /// `request.members` must contain the leaving member also if an older version has it in another
    /// field.
    pub fn handle_leave(
        &mut self,
        to: ReplyTo<LeaveGroupResponse>,
        request: LeaveGroupRequest,
        now: Timestamp,
    ) -> Outcome {
        let mut effects = self.effects();
        if request.group_id.is_empty() {
            effects.refuse(to, ErrorCode::InvalidGroupId);
            return self.finish(effects);
        }
        if let Some(group) = self.consumer_group(&request.group_id).cloned() {
            self.leave_consumer_group(to, group, &request, now, &mut effects);
            return self.finish(effects);
        }
        if self.classic_group(&request.group_id).is_none() {
            let members = request.members.iter();
            let members = members.map(|member| result_of(member, ErrorCode::UnknownMemberId));
            let response = LeaveGroupResponse {
                members: members.collect(),
                ..Default::default()
            };
            effects.reply(to, response);
            return self.finish(effects);
        }

        let mut members = Vec::with_capacity(request.members.len());
        self.with_classic_group(
            &request.group_id,
            now,
            &mut effects,
            |group, cx, effects| {
                let mut have_left = false;
                for member in &request.members {
                    let result = leave(group, member, effects);
                    have_left |= result.is_ok();
                    let error = result.err().unwrap_or(ErrorCode::None);
                    members.push(result_of(member, error));
                }
                if have_left && !group.is_in(ClassicGroupState::Empty) {
                    group.rebalance_or_complete_join(cx, effects);
                }
            },
        );
        let response = LeaveGroupResponse {
            members,
            ..Default::default()
        };
        self.reply_when_committed(to, response, &mut effects);
        self.finish(effects)
    }
}

fn leave(
    group: &mut ClassicGroup,
    member: &MemberIdentity,
    effects: &mut Effects,
) -> Result<(), ErrorCode> {
    let instance_id = member.group_instance_id.as_deref();
    let member_id = if member.member_id.is_empty() {
        // An administrator removes members by instance id only.
        instance_id
            .and_then(|instance_id| group.static_member_id(instance_id))
            .ok_or(ErrorCode::UnknownMemberId)?
            .clone()
    } else if group.is_pending(&member.member_id) {
        group.remove(&member.member_id);
        effects.cancel_timer(group.session_timer(&member.member_id));
        return Ok(());
    } else {
        group.validate_member(&member.member_id, instance_id)?;
        member.member_id.clone()
    };
    effects.cancel_timer(group.session_timer(&member_id));
    group.drop_member(&member_id, effects);
    Ok(())
}

fn result_of(member: &MemberIdentity, error: ErrorCode) -> MemberResponse {
    MemberResponse {
        member_id: member.member_id.clone(),
        group_instance_id: member.group_instance_id.clone(),
        error_code: error.code(),
        ..Default::default()
    }
}
