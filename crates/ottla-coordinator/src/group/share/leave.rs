//! Members go: because they say so, or because nobody has heard of them.
//! Source: `GroupMetadataManager.shareGroupLeave`, `shareGroupFenceMember`, `scheduleShareGroupSessionTimeout`.

use bytestring::ByteString;
use ottla_protocol::messages::{ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse};
use ottla_types::Timestamp;

use super::decision::Decision;
use super::group::ShareGroup;
use super::heartbeat::unknown_member;
use super::record;
use crate::group::coordinator::{Deferred, Effects, GroupCoordinator};
use crate::group::modern::GroupError;
use crate::group::outcome::{ReplyTo, TimerKey};

impl GroupCoordinator {
    pub(super) fn leave_share_group(
        &mut self,
        to: ReplyTo<ShareGroupHeartbeatResponse>,
        request: &ShareGroupHeartbeatRequest,
        now: Timestamp,
        effects: &mut Effects,
    ) -> Result<(), GroupError> {
        let group_id = &request.group_id;
        let group = self.existing_share_group(group_id)?.clone();
        if !group.has_member(&request.member_id) {
            return Err(unknown_member(&request.member_id, group_id));
        }
        let response = ShareGroupHeartbeatResponse {
            member_id: Some(request.member_id.clone()),
            member_epoch: request.member_epoch,
            ..Default::default()
        };
        let reply = Deferred::Reply(to.with(response));
        self.fence_share_member(group, &request.member_id, reply, now, effects);
        Ok(())
    }

    /// Source: `GroupMetadataManager.shareGroup`.
    pub(super) fn existing_share_group(
        &self,
        group_id: &ByteString,
    ) -> Result<&ShareGroup, GroupError> {
        self.share_group(group_id)
            .ok_or_else(|| self.not_a_group(group_id, "share"))
    }

    fn fence_share_member(
        &mut self,
        group: ShareGroup,
        member_id: &ByteString,
        deferred: Deferred,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let mut decision = Decision::about(group, now);
        let group_id = decision.group_id();
        for tombstone in record::member_tombstones(&group_id, member_id) {
            decision.write(tombstone);
        }
        let topics = decision.group.subscribed_topics();
        let hash = self.metadata.look(&group_id, topics);
        decision.bump_group_epoch(hash);
        effects.cancel_timer(TimerKey::session(&group_id, member_id));
        self.conclude_share(decision, deferred, now, effects);
    }

    /// The session of a member of a share group has ended.
    pub(in crate::group) fn on_share_session_expired(
        &mut self,
        group: ShareGroup,
        key: TimerKey,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let TimerKey::Session { member_id, .. } = &key else {
            return;
        };
        if group.has_member(member_id) {
            let member_id = member_id.clone();
            self.fence_share_member(group, &member_id, Deferred::Timer(key), now, effects);
        }
    }

    pub(in crate::group) fn set_timers_of_loaded_share_group(
        &self,
        group: &ShareGroup,
        effects: &mut Effects,
    ) {
        let timeout_ms = self.share_session_timeout_ms(&group.group_id);
        for member in group.members() {
            effects.set_timer(
                TimerKey::session(&group.group_id, &member.member_id),
                timeout_ms,
            );
        }
    }
}
