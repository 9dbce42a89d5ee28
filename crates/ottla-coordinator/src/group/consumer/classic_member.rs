//! Members of the classic protocol in a consumer group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.
//!
//! The generation of such a member is its member epoch. The member never waits for others: its
//! JoinGroup is answered as soon as its records are committed, and a Heartbeat tells it to rejoin
//! when its assignment changes. Source: `GroupMetadataManager.classicGroupJoinToConsumerGroup` and
//! its counterparts.

use std::sync::Arc;

use bytestring::ByteString;
use ottla_protocol::messages::leave_group_request::MemberIdentity;
use ottla_protocol::messages::leave_group_response::MemberResponse;
use ottla_protocol::messages::{
    ConsumerProtocolSubscription, HeartbeatRequest, HeartbeatResponse, JoinGroupRequest,
    JoinGroupResponse, LeaveGroupRequest, LeaveGroupResponse, SyncGroupRequest, SyncGroupResponse,
};
use ottla_types::{ErrorCode, Timestamp, TopicId};

use super::conversion::Downgrade;
use super::embedded_protocol::{by_topic_id, read_subscription, version_of, write_assignment};
use super::group::ConsumerGroup;
use super::heartbeat::{dynamic_member, static_member};
use super::member::{ClassicMemberMetadata, ConsumerGroupMember, partitions};
use super::migration_policy::MigrationPolicy;
use super::regexes::RegexChange;
use crate::group::classic_group::CONSUMER_PROTOCOL_TYPE;
use crate::group::coordinator::{Deferred, Effects, GroupCoordinator};
use crate::group::join::JoinContext;
use crate::group::member::{owned, owned_protocols};
use crate::group::membership::existing_member;
use crate::group::modern::{Assignment, GroupError, MemberState};
use crate::group::outcome::{ReplyTo, TimerChange, TimerKey};
use crate::group::recorded::Decision;
use crate::group::refused::Refused;

impl GroupCoordinator {
    /// The group must have members.
    pub(in crate::group) fn join_consumer_group(
        &mut self,
        to: ReplyTo<JoinGroupResponse>,
        group: ConsumerGroup,
        request: &JoinGroupRequest,
        context: &JoinContext,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        if let Err(error) = self.classic_join(to, group, request, context, now, effects) {
            effects.refuse_join(to, &request.member_id, error.error);
        }
    }

    fn classic_join(
        &mut self,
        to: ReplyTo<JoinGroupResponse>,
        group: ConsumerGroup,
        request: &JoinGroupRequest,
        context: &JoinContext,
        now: Timestamp,
        effects: &mut Effects,
    ) -> Result<(), GroupError> {
        if self.config.group_consumer_migration_policy == MigrationPolicy::Disabled {
            return Err(ErrorCode::InconsistentGroupProtocol.into());
        }
        let is_unknown_member = request.member_id.is_empty();
        let member_id = if is_unknown_member {
            context.kafka_uuid()
        } else {
            owned(&request.member_id)
        };
        self.check_room(&group, &member_id)?;
        let names = request.protocols.iter().map(|protocol| &protocol.name);
        if !group.supports_classic_protocols(&request.protocol_type, names) {
            return Err(ErrorCode::InconsistentGroupProtocol.into());
        }
        let instance_id = request.group_instance_id.as_ref();
        if is_unknown_member && instance_id.is_none() && context.requires_known_member_id {
            effects.refuse_join(to, &member_id, ErrorCode::MemberIdRequired);
            return Ok(());
        }
        let subscription = first_subscription(request)?;
        let owned_partitions = self.owned_by(&subscription);
        let replaced = instance_id.and_then(|id| group.static_member(id)).cloned();
        let downgrades = replaced
            .as_ref()
            .is_some_and(|replaced| self.may_downgrade_with(&group, replaced));
        let former_epoch = group.group_epoch;

        let mut decision = Decision::about(group, now);
        let member = match instance_id {
            None => dynamic_member(&decision.group, &member_id, true)?,
            Some(instance_id) => static_member(
                &mut decision,
                &member_id,
                instance_id,
                is_unknown_member,
                true,
            )?,
        };
        let updated = Arc::new(with_join(&member, request, &subscription, context));
        let regex_change = RegexChange::of(&decision.group, &member, &updated)?;
        let has_new_names = updated.subscribed_topic_names != member.subscribed_topic_names;
        if updated != member {
            decision.write_member(&updated);
        }
        regex_change.write_tombstone(&mut decision);
        let requester = &context.requester;
        self.refresh_regexes(&decision.group, &regex_change, requester, now, effects);
        let bumps_epoch = has_new_names || regex_change.is_change();
        self.update_metadata(&mut decision, bumps_epoch);

        let rebalances = decision.group.target.epoch < decision.group.group_epoch;
        let large_target = match downgrades {
            true => None,
            false => self.update_target(&mut decision)?,
        };
        let updated = if downgrades && rebalances {
            // The members will be assigned again in any case.
            updated
        } else {
            let owned = owned_partitions.iter();
            let owned: Vec<(TopicId, &[i32])> =
                owned.map(|(id, partitions)| (*id, &**partitions)).collect();
            self.reconcile(
                &mut decision,
                updated,
                bumps_epoch,
                Some(&owned[..]),
                effects,
            )?
        };
        let response = JoinGroupResponse {
            generation_id: updated.member_epoch,
            protocol_type: Some(CONSUMER_PROTOCOL_TYPE.into()),
            protocol_name: first_protocol(&updated),
            member_id: updated.member_id.clone(),
            ..Default::default()
        };
        let reply = to.with(response);
        let group_id = decision.group_id();
        let cancel_rejoin = TimerChange::Cancel {
            key: TimerKey::rejoin(&group_id, &updated.member_id),
        };
        if downgrades {
            let Decision { group, records, .. } = decision;
            let downgrade = Downgrade {
                group,
                generation_id: former_epoch,
                leaving: Vec::new(),
                rebalances,
                records,
            };
            let classic = self
                .classic_group_of(&downgrade, now)
                .map_err(|_| GroupError::from(ErrorCode::GroupIdNotFound))?;
            let deferred = Deferred::ReplyAndTimers(reply, vec![cancel_rejoin]);
            self.conclude_downgrade(downgrade, classic, deferred, now, effects);
            return Ok(());
        }
        let set = |key, after_ms: i32| TimerChange::Set {
            key,
            after_ms: u64::try_from(after_ms).unwrap_or(0),
        };
        let session = TimerKey::session(&group_id, &updated.member_id);
        let sync = TimerKey::member_sync(&group_id, &updated.member_id);
        let timers = vec![
            cancel_rejoin,
            set(session, request.session_timeout_ms),
            set(sync, request.rebalance_timeout_ms),
        ];
        let deferred = Deferred::ReplyAndTimers(reply, timers);
        self.order_target(large_target, effects);
        self.conclude(decision, deferred, effects);
        Ok(())
    }

    fn owned_by(&self, subscription: &ConsumerProtocolSubscription) -> Vec<(TopicId, Vec<i32>)> {
        let topics = subscription.owned_partitions.iter();
        let topics = topics.map(|topic| (&*topic.topic, &*topic.partitions));
        by_topic_id(topics, self.metadata.image())
    }

    /// SyncGroup: a member requests its assignment.
    pub(in crate::group) fn sync_consumer_group(
        &mut self,
        to: ReplyTo<SyncGroupResponse>,
        group: &ConsumerGroup,
        request: &SyncGroupRequest,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        match self.classic_sync(to, group, request, effects) {
            Ok(deferred) => self.defer_until_committed(deferred, now, effects),
            Err(error) => effects.refuse(to, error.error),
        }
    }

    fn classic_sync(
        &self,
        to: ReplyTo<SyncGroupResponse>,
        group: &ConsumerGroup,
        request: &SyncGroupRequest,
        effects: &mut Effects,
    ) -> Result<Deferred, GroupError> {
        let instance_id = request.group_instance_id.as_ref();
        let member = existing_member(group, &request.member_id, instance_id)?;
        let classic = classic_of(member)?;
        if request.generation_id != member.member_epoch {
            return Err(ErrorCode::IllegalGeneration.into());
        }
        let protocol = classic.supported_protocols.first();
        let differs = |said: &Option<ByteString>, is: Option<&str>| {
            said.as_deref().is_some_and(|said| Some(said) != is)
        };
        if differs(&request.protocol_type, Some(CONSUMER_PROTOCOL_TYPE))
            || differs(&request.protocol_name, protocol.map(|it| &*it.name))
        {
            return Err(ErrorCode::InconsistentGroupProtocol.into());
        }
        // A member that is still revoking partitions has rejoined already. It receives another
        // request to rejoin when the revocation is complete.
        if group.target.epoch > member.member_epoch
            && member.state != MemberState::UnrevokedPartitions
        {
            let timer = TimerKey::rejoin(&group.group_id, &member.member_id);
            effects.set_timer_if_absent(timer, member.rebalance_timeout_ms);
            return Err(ErrorCode::RebalanceInProgress.into());
        }
        let assigned: Assignment = partitions(&member.assigned).collect();
        let assignment = protocol
            .map(|protocol| &protocol.metadata)
            .ok_or(ErrorCode::UnknownServerError)
            .and_then(|subscription| {
                version_of(subscription)
                    .and_then(|version| write_assignment(&assigned, version, self.metadata.image()))
                    .map_err(|_| ErrorCode::UnknownServerError)
            })?;
        let response = SyncGroupResponse {
            protocol_type: request.protocol_type.clone(),
            protocol_name: request.protocol_name.clone(),
            assignment,
            ..Default::default()
        };
        let timers = vec![
            TimerChange::Cancel {
                key: TimerKey::member_sync(&group.group_id, &member.member_id),
            },
            TimerChange::Set {
                key: TimerKey::session(&group.group_id, &member.member_id),
                after_ms: u64::try_from(classic.session_timeout_ms).unwrap_or(0),
            },
        ];
        let reply = to.with(response);
        Ok(Deferred::ReplyAndTimers(reply, timers))
    }

    pub(in crate::group) fn heartbeat_in_consumer_group(
        &mut self,
        to: ReplyTo<HeartbeatResponse>,
        group: &ConsumerGroup,
        request: &HeartbeatRequest,
        effects: &mut Effects,
    ) {
        let result = classic_heartbeat(group, request, effects);
        let is_rejected = result.is_err();
        let error = result.err().map_or(ErrorCode::None, |error| error.error);
        let is_answer = !is_rejected || error == ErrorCode::RebalanceInProgress;
        let response = HeartbeatResponse::refused(error);
        if is_answer {
            self.reply_when_committed(to, response, effects)
        } else {
            effects.reply(to, response)
        }
    }

    pub(in crate::group) fn leave_consumer_group(
        &mut self,
        to: ReplyTo<LeaveGroupResponse>,
        group: ConsumerGroup,
        request: &LeaveGroupRequest,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let mut going: Vec<Arc<ConsumerGroupMember>> = Vec::new();
        let mut members = Vec::with_capacity(request.members.len());
        for identity in &request.members {
            let found = leaving_member(&group, identity);
            let error = match &found {
                Ok(_) => ErrorCode::None,
                Err(error) => error.error,
            };
            members.push(MemberResponse {
                member_id: identity.member_id.clone(),
                group_instance_id: identity.group_instance_id.clone(),
                error_code: error.code(),
                ..Default::default()
            });
            if let Ok(member) = found
                && !going.iter().any(|it| it.member_id == member.member_id)
            {
                going.push(Arc::clone(member));
            }
        }
        let response = LeaveGroupResponse {
            members,
            ..Default::default()
        };
        let reply = Deferred::Reply(to.with(response));
        self.fence(group, &going, reply, now, effects);
    }
}

fn classic_heartbeat(
    group: &ConsumerGroup,
    request: &HeartbeatRequest,
    effects: &mut Effects,
) -> Result<(), GroupError> {
    let instance_id = request.group_instance_id.as_ref();
    let member = existing_member(group, &request.member_id, instance_id)?;
    let classic = classic_of(member)?;
    if request.generation_id != member.member_epoch {
        return Err(ErrorCode::IllegalGeneration.into());
    }
    let session = TimerKey::session(&group.group_id, &member.member_id);
    effects.set_timer(session, classic.session_timeout_ms);
    let has_something_new = member.member_epoch < group.target.epoch
        || match member.state {
            MemberState::UnrevokedPartitions => true,
            MemberState::UnreleasedPartitions => !group.waits_for_unreleased_partition(member),
            MemberState::Stable | MemberState::Unknown => false,
        };
    if has_something_new {
        let timer = TimerKey::rejoin(&group.group_id, &member.member_id);
        effects.set_timer_if_absent(timer, member.rebalance_timeout_ms);
        return Err(ErrorCode::RebalanceInProgress.into());
    }
    Ok(())
}

fn leaving_member<'a>(
    group: &'a ConsumerGroup,
    identity: &MemberIdentity,
) -> Result<&'a Arc<ConsumerGroupMember>, GroupError> {
    let instance_id = identity.group_instance_id.as_ref();
    let owner = instance_id.and_then(|instance_id| group.static_member(instance_id));
    let member_id = match owner {
        // An administrator removes members by instance id only.
        Some(owner) if identity.member_id.is_empty() => &owner.member_id,
        _ => &identity.member_id,
    };
    existing_member(group, member_id, instance_id)
}

fn classic_of(member: &ConsumerGroupMember) -> Result<&ClassicMemberMetadata, GroupError> {
    let not_classic = || {
        let message = format!(
            "Member {} does not use the classic protocol.",
            member.member_id
        );
        GroupError::new(ErrorCode::UnknownMemberId, message)
    };
    member.classic.as_ref().ok_or_else(not_classic)
}

fn first_subscription(
    request: &JoinGroupRequest,
) -> Result<ConsumerProtocolSubscription, GroupError> {
    let first = request.protocols.first();
    first
        .and_then(|protocol| read_subscription(&protocol.metadata).ok())
        .ok_or_else(|| ErrorCode::UnknownServerError.into())
}

fn first_protocol(member: &ConsumerGroupMember) -> Option<ByteString> {
    let first = member.classic.as_ref()?.supported_protocols.first()?;
    Some(first.name.clone())
}

/// The member, updated with its JoinGroup.
fn with_join(
    member: &ConsumerGroupMember,
    request: &JoinGroupRequest,
    subscription: &ConsumerProtocolSubscription,
    context: &JoinContext,
) -> ConsumerGroupMember {
    let instance_id = request.group_instance_id.as_ref().map(owned);
    let rack_id = subscription
        .rack_id
        .as_ref()
        .filter(|rack| !rack.is_empty());
    ConsumerGroupMember {
        instance_id: instance_id.or_else(|| member.instance_id.clone()),
        rack_id: rack_id.map(owned).or_else(|| member.rack_id.clone()),
        rebalance_timeout_ms: match request.rebalance_timeout_ms {
            -1 => member.rebalance_timeout_ms,
            timeout_ms => timeout_ms,
        },
        subscribed_topic_names: subscription.topics.iter().map(owned).collect(),
        subscribed_topic_regex: Some(ByteString::new()),
        client_id: context.client_id.clone(),
        client_host: context.client_host.clone(),
        classic: Some(ClassicMemberMetadata {
            session_timeout_ms: request.session_timeout_ms,
            supported_protocols: owned_protocols(&request.protocols),
        }),
        ..member.clone()
    }
}
