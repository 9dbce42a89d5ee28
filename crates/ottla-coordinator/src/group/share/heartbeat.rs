//! ShareGroupHeartbeat: a member joins, says what has changed, and is told its partitions; or it leaves.
//!
//! Members share partitions, so that nobody waits for anybody: a member has its target assignment as soon as it asks.
//! Source: `GroupMetadataManager.shareGroupHeartbeat` and what it calls, `ShareGroupAssignmentBuilder`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytestring::ByteString;
use ottla_metadata::MetadataImage;
use ottla_protocol::messages::share_group_heartbeat_response::{Assignment, TopicPartitions};
use ottla_protocol::messages::{ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse};
use ottla_types::{ErrorCode, Timestamp, TopicId};

use super::decision::Decision;
use super::group::ShareGroup;
use super::member::{LEAVE_GROUP_EPOCH, ShareGroupMember};
use super::record;
use crate::group::coordinator::{Deferred, Effects, Group, GroupCoordinator};
use crate::group::member::owned;
use crate::group::modern::assignors::SimpleAssignor;
use crate::group::modern::{
    GroupError, GroupSpec, MemberSpec, MemberState, Subscription, may_assign_now,
};
use crate::group::outcome::{Outcome, ReplyTo, TimerKey};

/// What a heartbeat depends on besides its body.
#[derive(Clone, Debug)]
pub struct ShareHeartbeatContext {
    pub client_id: ByteString,
    /// The peer's address as Java prints it: `/192.0.2.1`.
    pub client_host: ByteString,
}

impl GroupCoordinator {
    /// `request` has passed `validate_share_heartbeat`.
    pub fn handle_share_group_heartbeat(
        &mut self,
        to: ReplyTo<ShareGroupHeartbeatResponse>,
        request: &ShareGroupHeartbeatRequest,
        context: &ShareHeartbeatContext,
        now: Timestamp,
    ) -> Outcome {
        let mut effects = self.effects();
        let result = match request.member_epoch {
            LEAVE_GROUP_EPOCH => self.leave_share_group(to, request, now, &mut effects),
            _ => self.share_heartbeat(to, request, context, now, &mut effects),
        };
        if let Err(error) = result {
            effects.refuse(to, error);
        }
        self.finish(effects)
    }

    fn share_heartbeat(
        &mut self,
        to: ReplyTo<ShareGroupHeartbeatResponse>,
        request: &ShareGroupHeartbeatRequest,
        context: &ShareHeartbeatContext,
        now: Timestamp,
        effects: &mut Effects,
    ) -> Result<(), GroupError> {
        let is_joining = request.member_epoch == 0;
        let group = self.share_group_to_join(&request.group_id, is_joining)?;
        self.check_room_in_share_group(&group, &request.member_id)?;
        let member = match group.member(&request.member_id) {
            Some(member) => ShareGroupMember::clone(member),
            None if is_joining => ShareGroupMember::new(owned(&request.member_id)),
            None => return Err(unknown_member(&request.member_id, &group.group_id)),
        };
        check_member_epoch(&member, request.member_epoch)?;

        // 1. What the member says of itself.
        let mut decision = Decision::about(group, now);
        let group_id = decision.group_id();
        let updated = with_request(&member, request, context);
        let has_new_names = updated.subscribed_topic_names != member.subscribed_topic_names;
        if updated != member {
            decision.write(record::member_metadata(&group_id, &updated));
        }
        let group = &decision.group;
        // While an assignment is due anyway, what has been initialized meanwhile is in it.
        let is_assigned = group.target.epoch >= group.group_epoch;
        let bumps_epoch = has_new_names || (is_assigned && group.has_unassigned_partitions());
        let bumps_epoch = self.update_share_metadata(&mut decision, bumps_epoch, now);

        // 2. and 3. The target assignment, which is the member's.
        self.update_share_target(&mut decision, now)?;
        let image = self.metadata.image();
        let next = reconciled(&decision.group, &updated, bumps_epoch, image);
        if next != updated {
            decision.write(record::current_assignment(&group_id, &next));
        }
        effects.set_timer(
            TimerKey::session(&group_id, &next.member_id),
            self.share_session_timeout_ms(&group_id),
        );

        let tells_assignment = is_joining
            || request.subscribed_topic_names.is_some()
            || member.assigned != next.assigned;
        let response = ShareGroupHeartbeatResponse {
            member_id: Some(next.member_id.clone()),
            member_epoch: next.member_epoch,
            heartbeat_interval_ms: self.share_heartbeat_interval_ms(&group_id),
            assignment: tells_assignment.then(|| assignment_of(&next)),
            ..Default::default()
        };
        let reply = to.with(response);
        let deferred = match self.begin_to_initialize(&mut decision, now) {
            Some(initialize) => Deferred::ReplyAndInitialize(reply, initialize),
            None => Deferred::Reply(reply),
        };
        self.conclude_share(decision, deferred, now, effects);
        Ok(())
    }

    /// Source: `getOrMaybeCreateShareGroup`.
    pub(super) fn share_group_to_join(
        &self,
        group_id: &ByteString,
        creates: bool,
    ) -> Result<ShareGroup, GroupError> {
        let not_found = |message: String| GroupError::new(ErrorCode::GroupIdNotFound, message);
        match self.group(group_id) {
            Some(Group::Share(group)) => Ok(group.clone()),
            Some(_) => Err(not_found(format!("Group {group_id} is not a share group."))),
            None if creates => Ok(ShareGroup::new(owned(group_id))),
            None => Err(not_found(format!("Share group {group_id} not found."))),
        }
    }

    fn check_room_in_share_group(
        &self,
        group: &ShareGroup,
        member_id: &ByteString,
    ) -> Result<(), GroupError> {
        let max_size = self.config.group_share_max_size;
        let is_full = group.num_members() >= usize::try_from(max_size).unwrap_or(0);
        if is_full && !group.has_member(member_id) {
            return Err(GroupError::new(
                ErrorCode::GroupMaxSizeReached,
                format!("The share group has reached its maximum capacity of {max_size} members."),
            ));
        }
        Ok(())
    }

    /// Looks at the topics if they may have changed, and goes to the next epoch if they have; says whether it did.
    fn update_share_metadata(
        &mut self,
        decision: &mut Decision,
        bumps_epoch: bool,
        now: Timestamp,
    ) -> bool {
        let group_id = decision.group_id();
        let group_epoch = decision.group.group_epoch;
        let metadata = &mut self.metadata;
        if !bumps_epoch && !metadata.is_look_due(&group_id, now.value(), group_epoch) {
            return false;
        }
        let hash = metadata.look(&group_id, decision.group.subscribed_topics());
        let bumps_epoch = bumps_epoch || hash != decision.group.metadata_hash;
        if bumps_epoch {
            decision.bump_group_epoch(hash);
        }
        metadata.has_looked(&group_id, now.value(), decision.group.group_epoch);
        bumps_epoch
    }

    /// Has the target assignment made anew if the group's epoch is ahead of it, and the last time is long enough ago.
    fn update_share_target(
        &self,
        decision: &mut Decision,
        now: Timestamp,
    ) -> Result<(), GroupError> {
        let group = &decision.group;
        let interval_ms = self.share_assignment_interval_ms(&group.group_id);
        if group.target.epoch >= group.group_epoch
            || !may_assign_now(group.target.timestamp_ms, interval_ms, now.value())
        {
            return Ok(());
        }
        let image = self.metadata.image();
        let members: BTreeMap<ByteString, MemberSpec<'_>> = group
            .members()
            .map(|member| {
                let subscription = subscription(member);
                let target = group.target.of(&member.member_id);
                let rack_id = member.rack_id.as_ref();
                let spec = MemberSpec::new(None, rack_id, subscription, target, image);
                (member.member_id.clone(), spec)
            })
            .collect();
        let assignable = group.state_partitions().assignable();
        let spec = GroupSpec {
            members,
            subscription_type: group.subscription_type(),
            image,
            assignable: Some(&assignable),
        };
        let epoch = group.group_epoch;
        let changes = group
            .target
            .changes(&SimpleAssignor, &spec)
            .map_err(|_| GroupError::from(ErrorCode::UnknownServerError))?;
        let group_id = decision.group_id();
        for (member_id, assignment) in changes {
            decision.write(record::target_assignment(
                &group_id,
                &member_id,
                &assignment,
            ));
        }
        decision.write(record::target_metadata(&group_id, epoch, now.value()));
        Ok(())
    }

    /// Writes what was decided, and puts the group as it is now in the place of what it was.
    pub(super) fn conclude_share(
        &mut self,
        decision: Decision,
        deferred: Deferred,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let Decision { group, records, .. } = decision;
        if records.is_empty() {
            self.defer_until_committed(deferred, now, effects);
            return;
        }
        let group_id = group.group_id.clone();
        self.put_group(effects.next_write(), &group_id, Some(Group::Share(group)));
        effects.write(records, deferred);
    }
}

pub(super) fn unknown_member(member_id: &str, group_id: &str) -> GroupError {
    GroupError::new(
        ErrorCode::UnknownMemberId,
        format!("Member {member_id} is not a member of group {group_id}."),
    )
}

/// A member that missed an answer may be an epoch behind.
fn check_member_epoch(member: &ShareGroupMember, received: i32) -> Result<(), GroupError> {
    let (known, previous) = (member.member_epoch, member.previous_member_epoch);
    if received == 0 || received == known || (received < known && received == previous) {
        return Ok(());
    }
    let relation = if received > known {
        "greater"
    } else {
        "smaller"
    };
    let besides = if received > known {
        String::new()
    } else {
        format!(", and it does not match the previous member epoch ({previous})")
    };
    Err(GroupError::new(
        ErrorCode::FencedMemberEpoch,
        format!(
            "The share group member has a {relation} member epoch ({received}) than the one known \
             by the group coordinator ({known}){besides}. The member must abandon all its \
             partitions and rejoin."
        ),
    ))
}

/// The member with what the request says; what it does not say stays.
fn with_request(
    member: &ShareGroupMember,
    request: &ShareGroupHeartbeatRequest,
    context: &ShareHeartbeatContext,
) -> ShareGroupMember {
    ShareGroupMember {
        rack_id: match &request.rack_id {
            Some(rack_id) => Some(owned(rack_id)),
            None => member.rack_id.clone(),
        },
        subscribed_topic_names: match &request.subscribed_topic_names {
            Some(names) => names.iter().map(owned).collect(),
            None => member.subscribed_topic_names.clone(),
        },
        client_id: context.client_id.clone(),
        client_host: context.client_host.clone(),
        ..member.clone()
    }
}

/// The member with its target, of which it gets what it is subscribed to.
fn reconciled(
    group: &ShareGroup,
    member: &ShareGroupMember,
    has_subscription_changed: bool,
    image: &MetadataImage,
) -> ShareGroupMember {
    let epoch = group.target.epoch;
    if !has_subscription_changed && member.is_reconciled_to(epoch) {
        return member.clone();
    }
    let wanted = subscription(member);
    let target = group
        .target
        .of(&member.member_id)
        .cloned()
        .unwrap_or_default();
    let is_wanted = |(topic_id, _): (TopicId, &BTreeSet<i32>)| wanted.contains(topic_id, image);
    let is_all_wanted = target.topics().all(is_wanted);
    let assigned = if is_all_wanted {
        target
    } else {
        Arc::new(target.filtered(|topic_id, _| wanted.contains(topic_id, image)))
    };
    let mut next = ShareGroupMember {
        assigned,
        ..member.clone()
    };
    if epoch != member.member_epoch {
        next.state = MemberState::Stable;
        next.previous_member_epoch = member.member_epoch;
        next.member_epoch = epoch;
    }
    next
}

fn subscription(member: &ShareGroupMember) -> Subscription<'_> {
    Subscription {
        names: &member.subscribed_topic_names,
        matches: None,
    }
}

fn assignment_of(member: &ShareGroupMember) -> Assignment {
    let topics = member.assigned.topics();
    let topics = topics.map(|(topic_id, partitions)| TopicPartitions {
        topic_id,
        partitions: partitions.iter().copied().collect(),
        ..Default::default()
    });
    Assignment {
        topic_partitions: topics.collect(),
        ..Default::default()
    }
}
