//! Who is put out of a consumer group because something took too long.
//! Source: `GroupMetadataManager.scheduleConsumerGroupSessionTimeout` and its like.

use bytestring::ByteString;
use ottla_types::Timestamp;

use super::group::ConsumerGroup;
use super::member::ConsumerGroupMember;
use crate::group::coordinator::{Deferred, Effects, GroupCoordinator};
use crate::group::modern::MemberState;
use crate::group::outcome::TimerKey;

impl GroupCoordinator {
    /// A timer of a member of a consumer group is due.
    pub(in crate::group) fn on_member_timer(
        &mut self,
        key: TimerKey,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let (group_id, member_id, left_epoch) = match &key {
            TimerKey::Session {
                group_id,
                member_id,
            }
            | TimerKey::Rejoin {
                group_id,
                member_id,
            }
            | TimerKey::MemberSync {
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
        let Some(group) = self.consumer_group(group_id) else {
            return;
        };
        let Some(member) = group.member(member_id).cloned() else {
            return;
        };
        // That the member was to give something up may have been taken back.
        let is_revoking = |epoch| {
            member.member_epoch == epoch && member.state == MemberState::UnrevokedPartitions
        };
        if left_epoch.is_some_and(|epoch| !is_revoking(epoch)) {
            return;
        }
        let group = group.clone();
        self.fence(group, &[member], Deferred::Timer(key.clone()), now, effects);
    }

    pub(in crate::group) fn set_timers_of_loaded(
        &self,
        group: &ConsumerGroup,
        effects: &mut Effects,
    ) {
        let session_timeout_ms = self.consumer_session_timeout_ms(&group.group_id);
        for member in group.members() {
            effects.set_timer(
                TimerKey::session(&group.group_id, &member.member_id),
                session_timeout_ms,
            );
            if member.state == MemberState::UnrevokedPartitions {
                effects.set_timer(
                    TimerKey::revocation(&group.group_id, &member.member_id, member.member_epoch),
                    member.rebalance_timeout_ms,
                );
            }
        }
    }
}

pub(super) fn cancel_all(
    group_id: &ByteString,
    member: &ConsumerGroupMember,
    effects: &mut Effects,
) {
    let member_id = &member.member_id;
    effects.cancel_timer(TimerKey::session(group_id, member_id));
    effects.cancel_timer(TimerKey::revocation(
        group_id,
        member_id,
        member.member_epoch,
    ));
    effects.cancel_timer(TimerKey::rejoin(group_id, member_id));
    effects.cancel_timer(TimerKey::member_sync(group_id, member_id));
}
