//! Who is put out of a streams group because something took too long.
//! Source: `GroupMetadataManager.scheduleStreamsGroupSessionTimeout`, `scheduleStreamsGroupRebalanceTimeout`.

use bytestring::ByteString;
use ottla_types::Timestamp;

use super::group::StreamsGroup;
use super::member::{MemberState, StreamsGroupMember};
use crate::group::coordinator::{Deferred, Effects, GroupCoordinator};
use crate::group::outcome::TimerKey;

impl GroupCoordinator {
    /// A timer of a member of a streams group is due.
    pub(in crate::group) fn on_streams_member_timer(
        &mut self,
        key: &TimerKey,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let (group_id, member_id, left_epoch) = match key {
            TimerKey::Session {
                group_id,
                member_id,
            } => (group_id, member_id, None),
            TimerKey::Revocation {
                group_id,
                member_id,
                member_epoch,
            } => (group_id, member_id, Some(*member_epoch)),
            _ => return,
        };
        let Some(group) = self.streams_group(group_id) else {
            return;
        };
        let Some(member) = group.member(member_id) else {
            return;
        };
        // That the member was to give something up may have been taken back.
        let is_revoking =
            |epoch| member.member_epoch == epoch && member.state == MemberState::UnrevokedTasks;
        if left_epoch.is_some_and(|epoch| !is_revoking(epoch)) {
            return;
        }
        let (group, member) = (group.clone(), member.clone());
        self.fence_streams_member(group, &member, Deferred::Timer(key.clone()), now, effects);
    }

    pub(in crate::group) fn set_timers_of_loaded_streams_group(
        &self,
        group: &StreamsGroup,
        effects: &mut Effects,
    ) {
        let group_id = &group.group_id;
        let session_timeout_ms = self.streams_session_timeout_ms(group_id);
        for member in group.members() {
            effects.set_timer(
                TimerKey::session(group_id, &member.member_id),
                session_timeout_ms,
            );
            if member.state == MemberState::UnrevokedTasks {
                effects.set_timer(
                    TimerKey::revocation(group_id, &member.member_id, member.member_epoch),
                    member.rebalance_timeout_ms,
                );
            }
        }
    }
}

pub(super) fn cancel_all(
    group_id: &ByteString,
    member: &StreamsGroupMember,
    effects: &mut Effects,
) {
    effects.cancel_timer(TimerKey::session(group_id, &member.member_id));
    effects.cancel_timer(TimerKey::revocation(
        group_id,
        &member.member_id,
        member.member_epoch,
    ));
}
