//! ConsumerGroupHeartbeat: a member joins, reports changes and receives its partitions, or leaves.
//! Source: `GroupMetadataManager.consumerGroupHeartbeat` and its callees.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytestring::ByteString;
use ottla_protocol::messages::consumer_group_heartbeat_request::TopicPartitions as OwnedPartitions;
use ottla_protocol::messages::consumer_group_heartbeat_response::{Assignment, TopicPartitions};
use ottla_protocol::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};
use ottla_types::{Timestamp, TopicId};

use super::group::ConsumerGroup;
use super::member::{
    ConsumerGroupMember, LEAVE_GROUP_EPOCH, LEAVE_GROUP_STATIC_EPOCH, PartitionsWithEpochs,
};
use super::reconcile::Reconciliation;
use super::record;
use super::regexes::RegexChange;
use crate::group::coordinator::{Deferred, Effects, Group, GroupCoordinator};
use crate::group::member::owned;
use crate::group::membership::{
    change_revocation_timer, check_instance, check_member_epoch, check_room, unknown_member,
    unreleased_instance,
};
use crate::group::modern::GroupError;
use crate::group::outcome::{Outcome, ReplyTo, Requester, TimerKey};
use crate::group::recorded::{Decision, RecordedMember};

/// The inputs of a heartbeat besides its body.
#[derive(Clone, Debug)]
pub struct HeartbeatContext {
    pub client_id: ByteString,
    /// The peer's address as Java prints it: `/192.0.2.1`.
    pub client_host: ByteString,
    /// The member id for a member that has none.
    pub new_member_id: ByteString,
    /// The client on whose behalf topics are matched with a regular expression.
    pub requester: Requester,
}

impl GroupCoordinator {
    /// `request` must have passed `validate_heartbeat`.
    pub fn handle_consumer_group_heartbeat(
        &mut self,
        to: ReplyTo<ConsumerGroupHeartbeatResponse>,
        request: ConsumerGroupHeartbeatRequest,
        context: HeartbeatContext,
        now: Timestamp,
    ) -> Outcome {
        self.answer(to, |groups, effects| match request.member_epoch {
            LEAVE_GROUP_EPOCH | LEAVE_GROUP_STATIC_EPOCH => {
                groups.leave(to, &request, now, effects)
            }
            _ => groups.heartbeat(to, &request, &context, now, effects),
        })
    }

    fn heartbeat(
        &mut self,
        to: ReplyTo<ConsumerGroupHeartbeatResponse>,
        request: &ConsumerGroupHeartbeatRequest,
        context: &HeartbeatContext,
        now: Timestamp,
        effects: &mut Effects,
    ) -> Result<(), GroupError> {
        let is_joining = request.member_epoch == 0;
        let mut decision = match self.group(&request.group_id) {
            Some(Group::Classic(group)) if is_joining => self.upgrade(group, now)?,
            _ => Decision::about(self.group_to_join(&request.group_id, is_joining)?, now),
        };
        self.check_room(&decision.group, &request.member_id)?;
        let member_id = match request.member_id.is_empty() {
            true => &context.new_member_id,
            false => &request.member_id,
        };
        let owned_partitions: Option<Vec<(TopicId, &[i32])>> =
            request.topic_partitions.as_deref().map(owned_by_topic);
        let owned_partitions = owned_partitions.as_deref();

        // Step 1: changes of the member. Most heartbeats change nothing and copy nothing.
        let member = match &request.instance_id {
            None => dynamic_member(&decision.group, member_id, is_joining)?,
            Some(instance_id) => {
                static_member(&mut decision, member_id, instance_id, is_joining, false)?
            }
        };
        let received = request.member_epoch;
        let may_be_behind = || {
            received == member.previous_member_epoch
                && owned_partitions.is_some_and(|owned| is_subset(owned, &member.assigned))
        };
        check_member_epoch::<ConsumerGroup>(
            member.member_epoch,
            received,
            may_be_behind,
            String::new,
        )?;
        let mut updated = match is_as_requested(&member, request, context) {
            true => Arc::clone(&member),
            false => Arc::new(with_request(&member, request, context)),
        };
        let regex_change = RegexChange::of(&decision.group, &member, &updated)?;
        let has_new_names = updated.subscribed_topic_names != member.subscribed_topic_names;
        if updated != member {
            decision.write_member(&updated);
        }
        regex_change.write_tombstone(&mut decision);
        self.refresh_regexes(
            &decision.group,
            &regex_change,
            &context.requester,
            now,
            effects,
        );
        let has_subscription_changed = has_new_names || regex_change.is_change();
        // A new expression that is not resolved yet will raise the epoch when it is.
        let bumps_epoch = has_new_names || regex_change.is_resolved_change();
        self.update_metadata(&mut decision, bumps_epoch);

        // Steps 2 and 3: the target assignment, and the reconciliation of the member.
        let large_target = self.update_target(&mut decision)?;
        updated = self.reconcile(
            &mut decision,
            updated,
            has_subscription_changed,
            owned_partitions,
            effects,
        )?;
        let group_id = decision.group_id();
        effects.set_timer(
            TimerKey::session(&group_id, &updated.member_id),
            self.consumer_session_timeout_ms(&group_id),
        );

        // The response contains the assignment if it has changed, or if the request is a full one,
        // as after a lost response.
        let is_full_request = request.rebalance_timeout_ms != -1
            && (request.subscribed_topic_names.is_some()
                || request.subscribed_topic_regex.is_some())
            && request.topic_partitions.is_some();
        let tells_assignment = is_joining || is_full_request || member.assigned != updated.assigned;
        let response = ConsumerGroupHeartbeatResponse {
            member_id: Some(updated.member_id.clone()),
            member_epoch: updated.member_epoch,
            heartbeat_interval_ms: self.consumer_heartbeat_interval_ms(&group_id),
            assignment: tells_assignment.then(|| assignment_of(&updated.assigned)),
            ..Default::default()
        };
        let reply = Deferred::Reply(to.with(response));
        self.order_target(large_target, effects);
        self.conclude(decision, reply, effects);
        Ok(())
    }

    pub(super) fn check_room(
        &self,
        group: &ConsumerGroup,
        member_id: &ByteString,
    ) -> Result<(), GroupError> {
        let max_size = self.config.group_consumer_max_size;
        check_room(group, max_size, group.has_member(member_id))
    }

    /// Refreshes the topic metadata if it may have changed, and raises the group epoch if it has.
    pub(super) fn update_metadata(
        &mut self,
        decision: &mut Decision<ConsumerGroup>,
        bumps_epoch: bool,
    ) {
        let has_looked = self.look_at_topics(decision, bumps_epoch).is_some();
        if has_looked && decision.group.has_subscription_metadata_record {
            let group_id = decision.group_id();
            decision.write(record::subscription_metadata_tombstone(&group_id));
        }
    }

    /// Reconciles the member with its target.
    pub(super) fn reconcile(
        &self,
        decision: &mut Decision<ConsumerGroup>,
        member: Arc<ConsumerGroupMember>,
        has_subscription_changed: bool,
        owned: Option<&[(TopicId, &[i32])]>,
        effects: &mut Effects,
    ) -> Result<Arc<ConsumerGroupMember>, GroupError> {
        let group = &decision.group;
        if !has_subscription_changed && member.is_reconciled_to(group.target.epoch) {
            return Ok(member);
        }
        let reconciliation = Reconciliation {
            group,
            image: self.metadata.image(),
            has_subscription_changed,
            owned,
        };
        let next = reconciliation.step(&member)?;
        if next == *member {
            return Ok(member);
        }
        decision.write_current_assignment(&next);
        // Members of the classic protocol have timeouts of their own.
        if !next.uses_classic_protocol() {
            change_revocation_timer(&decision.group_id(), &*member, &next, effects);
        }
        Ok(Arc::new(next))
    }
}

/// A dynamic member. Source: `getOrMaybeSubscribeDynamicConsumerGroupMember`.
pub(super) fn dynamic_member(
    group: &ConsumerGroup,
    member_id: &ByteString,
    creates: bool,
) -> Result<Arc<ConsumerGroupMember>, GroupError> {
    match group.member(member_id) {
        Some(member) => Ok(Arc::clone(member)),
        None if creates => Ok(Arc::new(ConsumerGroupMember::new(owned(member_id)))),
        None => Err(unknown_member(member_id, &group.group_id)),
    }
}

/// A static member, which can replace an earlier member with the same instance id. Source:
/// `getOrMaybeSubscribeStaticConsumerGroupMember`.
pub(super) fn static_member(
    decision: &mut Decision<ConsumerGroup>,
    member_id: &ByteString,
    instance_id: &ByteString,
    creates: bool,
    uses_classic_protocol: bool,
) -> Result<Arc<ConsumerGroupMember>, GroupError> {
    let group = &decision.group;
    if !creates {
        let existing = group.static_member(instance_id);
        return check_instance(existing, member_id, instance_id).cloned();
    }
    let Some(existing) = group.static_member(instance_id).cloned() else {
        return dynamic_member(group, member_id, true);
    };
    let is_released = existing.member_epoch == LEAVE_GROUP_STATIC_EPOCH;
    if !uses_classic_protocol && !existing.uses_classic_protocol() && !is_released {
        return Err(unreleased_instance(
            &existing.member_id,
            member_id,
            instance_id,
        ));
    }
    let new = ConsumerGroupMember {
        member_id: owned(member_id),
        member_epoch: 0,
        previous_member_epoch: 0,
        ..ConsumerGroupMember::clone(&existing)
    };
    decision.replace_member(&existing.member_id, &new);
    Ok(Arc::new(new))
}

fn is_subset(owned: &[(TopicId, &[i32])], assigned: &PartitionsWithEpochs) -> bool {
    owned.iter().all(|(topic_id, partitions)| {
        assigned
            .get(topic_id)
            .is_some_and(|epochs| partitions.iter().all(|index| epochs.contains_key(index)))
    })
}

/// Whether the fields of the request equal those of the member.
fn is_as_requested(
    member: &ConsumerGroupMember,
    request: &ConsumerGroupHeartbeatRequest,
    context: &HeartbeatContext,
) -> bool {
    let is_same =
        |said: &Option<ByteString>, former: &Option<ByteString>| said.is_none() || said == former;
    let has_same_names = |names: &Vec<ByteString>| {
        let names: BTreeSet<&ByteString> = names.iter().collect();
        names.into_iter().eq(&member.subscribed_topic_names)
    };
    is_same(&request.instance_id, &member.instance_id)
        && is_same(&request.rack_id, &member.rack_id)
        && is_same(&request.server_assignor, &member.server_assignor)
        && is_same(
            &request.subscribed_topic_regex,
            &member.subscribed_topic_regex,
        )
        && [-1, member.rebalance_timeout_ms].contains(&request.rebalance_timeout_ms)
        && request
            .subscribed_topic_names
            .as_ref()
            .is_none_or(has_same_names)
        && context.client_id == member.client_id
        && context.client_host == member.client_host
        && !member.uses_classic_protocol()
}

/// The member, updated with the fields that the request contains.
fn with_request(
    member: &ConsumerGroupMember,
    request: &ConsumerGroupHeartbeatRequest,
    context: &HeartbeatContext,
) -> ConsumerGroupMember {
    let or_former = |said: &Option<ByteString>, former: &Option<ByteString>| match said {
        Some(said) => Some(owned(said)),
        None => former.clone(),
    };
    ConsumerGroupMember {
        instance_id: or_former(&request.instance_id, &member.instance_id),
        rack_id: or_former(&request.rack_id, &member.rack_id),
        rebalance_timeout_ms: match request.rebalance_timeout_ms {
            -1 => member.rebalance_timeout_ms,
            timeout_ms => timeout_ms,
        },
        server_assignor: or_former(&request.server_assignor, &member.server_assignor),
        subscribed_topic_names: match &request.subscribed_topic_names {
            Some(names) => names.iter().map(owned).collect(),
            None => member.subscribed_topic_names.clone(),
        },
        subscribed_topic_regex: or_former(
            &request.subscribed_topic_regex,
            &member.subscribed_topic_regex,
        ),
        client_id: context.client_id.clone(),
        client_host: context.client_host.clone(),
        classic: None,
        ..member.clone()
    }
}

fn owned_by_topic(topics: &[OwnedPartitions]) -> Vec<(TopicId, &[i32])> {
    topics
        .iter()
        .map(|topic| (topic.topic_id, &*topic.partitions))
        .collect()
}

fn assignment_of(partitions: &PartitionsWithEpochs) -> Assignment {
    let topics = partitions.iter().map(|(topic_id, epochs)| TopicPartitions {
        topic_id: *topic_id,
        partitions: epochs.keys().copied().collect(),
        ..Default::default()
    });
    Assignment {
        topic_partitions: topics.collect(),
        ..Default::default()
    }
}
