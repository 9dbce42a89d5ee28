//! Common checks of members of consumer, share and streams groups: the size limit of the group, the
//! member epoch, instance ids, and timeouts.

use std::sync::Arc;

use bytestring::ByteString;
use ottla_types::{ErrorCode, Timestamp};

use super::effects::Effects;
use super::modern::{GroupError, ModernGroup, ModernMember, may_assign_now};
use super::outcome::TimerKey;
use super::recorded::{RecordedGroup, RecordedMember};

/// `is_in` says whether the member is in the group already.
pub(super) fn check_room<G: RecordedGroup>(
    group: &G,
    max_size: i32,
    is_in: bool,
) -> Result<(), GroupError> {
    if is_in || group.num_members() < usize::try_from(max_size).unwrap_or(0) {
        return Ok(());
    }
    Err(GroupError::new(
        ErrorCode::GroupMaxSizeReached,
        format!(
            "The {} group has reached its maximum capacity of {max_size} members.",
            G::KIND
        ),
    ))
}

/// Checks the member epoch of a request. With `may_be_behind`, a member that missed a response may
/// send its previous epoch. `besides` is appended to the error message for other older epochs.
pub(super) fn check_member_epoch<G: RecordedGroup>(
    known: i32,
    received: i32,
    may_be_behind: impl FnOnce() -> bool,
    besides: impl FnOnce() -> String,
) -> Result<(), GroupError> {
    if received == 0 || received == known || (received < known && may_be_behind()) {
        return Ok(());
    }
    let (relation, besides) = if received > known {
        ("greater", String::new())
    } else {
        ("smaller", besides())
    };
    Err(GroupError::new(
        ErrorCode::FencedMemberEpoch,
        format!(
            "The {} group member has a {relation} member epoch ({received}) than the one known by \
             the group coordinator ({known}){besides}. The member must abandon all its partitions \
             and rejoin.",
            G::KIND
        ),
    ))
}

/// The member with this member id, and this instance id if it is static.
pub(super) fn existing_member<'a, M: ModernMember>(
    group: &'a ModernGroup<M>,
    member_id: &str,
    instance_id: Option<&ByteString>,
) -> Result<&'a Arc<M>, GroupError> {
    let Some(instance_id) = instance_id else {
        let member = group.member(member_id);
        return member.ok_or_else(|| unknown_member(member_id, &group.group_id));
    };
    check_instance(group.static_member(instance_id), member_id, instance_id)
}

/// The static member with this instance id, which no other member id may use. Source:
/// `throwIfStaticMemberIsUnknown`, `throwIfInstanceIdIsFenced`.
pub(super) fn check_instance<'a, M: ModernMember>(
    existing: Option<&'a Arc<M>>,
    member_id: &str,
    instance_id: &str,
) -> Result<&'a Arc<M>, GroupError> {
    let existing = existing.ok_or_else(|| {
        let message = format!("Instance id {instance_id} is unknown.");
        GroupError::new(ErrorCode::UnknownMemberId, message)
    })?;
    let owner: &str = existing.member_id();
    if owner == member_id {
        return Ok(existing);
    }
    Err(GroupError::new(
        ErrorCode::FencedInstanceId,
        format!(
            "Static member {member_id} with instance id {instance_id} was fenced by member {owner}."
        ),
    ))
}

/// The error for a static member that joins before the owner of its instance id has left.
pub(super) fn unreleased_instance(owner: &str, member_id: &str, instance_id: &str) -> GroupError {
    GroupError::new(
        ErrorCode::UnreleasedInstanceId,
        format!(
            "Static member {member_id} with instance id {instance_id} cannot join the group \
             because the instance id is owned by {owner} member."
        ),
    )
}

pub(super) fn unknown_member(member_id: &str, group_id: &str) -> GroupError {
    GroupError::new(
        ErrorCode::UnknownMemberId,
        format!("Member {member_id} is not a member of group {group_id}."),
    )
}

/// Whether the target assignment is older than the group epoch, and the minimum interval since the
/// last one is over.
pub(super) fn is_target_due<G: RecordedGroup>(group: &G, interval_ms: i32, now: Timestamp) -> bool {
    group.target.epoch < group.group_epoch
        && may_assign_now(group.target.timestamp_ms, interval_ms, now.value())
}

// Its timers

/// `Effects::set_timer` or `Effects::set_timer_if_absent`.
pub(super) type SetTimer = fn(&mut Effects, TimerKey, i32);

/// Sets the timers of all members of a group that was loaded or restored. Each member has one
/// session timeout to send a heartbeat.
pub(super) fn set_member_timers<G: RecordedGroup>(
    group: &G,
    session_timeout_ms: i32,
    set: SetTimer,
    effects: &mut Effects,
) {
    let group_id = &group.group_id;
    for member in group.members() {
        let member_id = member.member_id();
        set(
            effects,
            TimerKey::session(group_id, member_id),
            session_timeout_ms,
        );
        if let Some((epoch, timeout_ms)) = member.revocation() {
            let key = TimerKey::revocation(group_id, member_id, epoch);
            set(effects, key, timeout_ms);
        }
    }
}

/// Updates the timer of revocations after a step from `former` to `next`.
pub(super) fn change_revocation_timer<M: RecordedMember>(
    group_id: &ByteString,
    former: &M,
    next: &M,
    effects: &mut Effects,
) {
    let timer = |epoch: i32| TimerKey::revocation(group_id, next.member_id(), epoch);
    if let Some((epoch, timeout_ms)) = next.revocation() {
        effects.set_timer(timer(epoch), timeout_ms);
    } else if let Some((epoch, _)) = former.revocation() {
        effects.cancel_timer(timer(epoch));
    }
}
