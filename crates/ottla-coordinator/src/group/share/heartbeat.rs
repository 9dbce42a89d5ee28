//! ShareGroupHeartbeat: a member joins, reports changes and receives its partitions, or leaves.
//!
//! Members share partitions and never wait for each other: a member gets its target assignment with
//! its next heartbeat. Source: `GroupMetadataManager.shareGroupHeartbeat` and its callees,
//! `ShareGroupAssignmentBuilder`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytestring::ByteString;
use ottla_metadata::MetadataImage;
use ottla_protocol::messages::share_group_heartbeat_response::{Assignment, TopicPartitions};
use ottla_protocol::messages::{ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse};
use ottla_types::{ErrorCode, Timestamp, TopicId};

use super::group::ShareGroup;
use super::member::{LEAVE_GROUP_EPOCH, ShareGroupMember};
use crate::group::coordinator::{Deferred, Effects, GroupCoordinator};
use crate::group::member::owned;
use crate::group::membership::{check_member_epoch, check_room, is_target_due, unknown_member};
use crate::group::modern::assignors::SimpleAssignor;
use crate::group::modern::{GroupError, GroupSpec, MemberSpec, MemberState, Subscription};
use crate::group::outcome::{Outcome, ReplyTo, TimerKey};
use crate::group::recorded::{Decision, RecordedMember};

/// The inputs of a heartbeat besides its body.
#[derive(Clone, Debug)]
pub struct ShareHeartbeatContext {
    pub client_id: ByteString,
    /// The peer's address as Java prints it: `/192.0.2.1`.
    pub client_host: ByteString,
}

impl GroupCoordinator {
    /// `request` must have passed `validate_share_heartbeat`.
    pub fn handle_share_group_heartbeat(
        &mut self,
        to: ReplyTo<ShareGroupHeartbeatResponse>,
        request: &ShareGroupHeartbeatRequest,
        context: &ShareHeartbeatContext,
        now: Timestamp,
    ) -> Outcome {
        self.answer(to, |groups, effects| match request.member_epoch {
            LEAVE_GROUP_EPOCH => groups.leave_share_group(to, request, now, effects),
            _ => groups.share_heartbeat(to, request, context, now, effects),
        })
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
        let group: ShareGroup = self.group_to_join(&request.group_id, is_joining)?;
        let max_size = self.config.group_share_max_size;
        check_room(&group, max_size, group.has_member(&request.member_id))?;
        let member = match group.member(&request.member_id) {
            Some(member) => ShareGroupMember::clone(member),
            None if is_joining => ShareGroupMember::new(owned(&request.member_id)),
            None => return Err(unknown_member(&request.member_id, &group.group_id)),
        };
        let (known, previous) = (member.member_epoch, member.previous_member_epoch);
        let may_be_behind = || request.member_epoch == previous;
        let besides = || format!(", and it does not match the previous member epoch ({previous})");
        check_member_epoch::<ShareGroup>(known, request.member_epoch, may_be_behind, besides)?;

        // Step 1: changes of the member.
        let mut decision = Decision::about(group, now);
        let group_id = decision.group_id();
        let updated = with_request(&member, request, context);
        let has_new_names = updated.subscribed_topic_names != member.subscribed_topic_names;
        if updated != member {
            decision.write_member(&updated);
        }
        let group = &decision.group;
        // If an assignment is due anyway, it includes the partitions initialized since the last
        // one.
        let is_assigned = group.target.epoch >= group.group_epoch;
        let bumps_epoch = has_new_names || (is_assigned && group.has_unassigned_partitions());
        let bumps_epoch = self.look_at_topics(&mut decision, bumps_epoch) == Some(true);

        // Steps 2 and 3: the target assignment, which the member gets at once.
        self.update_share_target(&mut decision)?;
        let image = self.metadata.image();
        let next = reconciled(&decision.group, &updated, bumps_epoch, image);
        if next != updated {
            decision.write_current_assignment(&next);
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
        self.conclude(decision, deferred, effects);
        Ok(())
    }

    /// Computes a new target assignment if the group epoch is newer than the current one and the
    /// minimum interval is over.
    fn update_share_target(&self, decision: &mut Decision<ShareGroup>) -> Result<(), GroupError> {
        let group = &decision.group;
        let interval_ms = self.share_assignment_interval_ms(&group.group_id);
        if !is_target_due(group, interval_ms, decision.now) {
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
        let changes = group.target.changes(&SimpleAssignor, &spec);
        decision.write_target(changes.map_err(|_| ErrorCode::UnknownServerError)?);
        Ok(())
    }
}

/// The member, updated with the fields that the request contains.
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

/// The member with its target assignment, limited to its subscribed topics.
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
