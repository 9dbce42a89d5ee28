//! Removal of members: they leave or time out.
//! Source: `GroupMetadataManager.shareGroupLeave`, `shareGroupFenceMember`, `scheduleShareGroupSessionTimeout`.

use ottla_protocol::messages::{ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse};
use ottla_types::Timestamp;

use super::group::ShareGroup;
use super::member::ShareGroupMember;
use crate::group::coordinator::{Deferred, Effects, GroupCoordinator};
use crate::group::membership::unknown_member;
use crate::group::modern::GroupError;
use crate::group::outcome::{ReplyTo, TimerKey};
use crate::group::recorded::Decision;

impl GroupCoordinator {
    pub(super) fn leave_share_group(
        &mut self,
        to: ReplyTo<ShareGroupHeartbeatResponse>,
        request: &ShareGroupHeartbeatRequest,
        now: Timestamp,
        effects: &mut Effects,
    ) -> Result<(), GroupError> {
        let group_id = &request.group_id;
        let group = self.existing_group::<ShareGroup>(group_id)?.clone();
        let member = group
            .member(&request.member_id)
            .cloned()
            .ok_or_else(|| unknown_member(&request.member_id, group_id))?;
        let response = ShareGroupHeartbeatResponse {
            member_id: Some(request.member_id.clone()),
            member_epoch: request.member_epoch,
            ..Default::default()
        };
        let reply = Deferred::Reply(to.with(response));
        self.fence_share_member(group, &member, reply, now, effects);
        Ok(())
    }

    /// Removes a member.
    pub(in crate::group) fn fence_share_member(
        &mut self,
        group: ShareGroup,
        member: &ShareGroupMember,
        deferred: Deferred,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let mut decision = Decision::about(group, now);
        let group_id = decision.group_id();
        decision.remove_member(&member.member_id);
        let topics = decision.group.subscribed_topics();
        let hash = self.metadata.look(&group_id, topics);
        decision.bump_group_epoch(hash);
        effects.cancel_timer(TimerKey::session(&group_id, &member.member_id));
        self.conclude(decision, deferred, effects);
    }
}
