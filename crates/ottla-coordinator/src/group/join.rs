//! JoinGroup: checks whether the member can join, and starts a rebalance if necessary.
//!
//! The reply is sent at once if the group does not change, and parked in the member if a rebalance
//! must complete first. Source: `GroupMetadataManager.classicGroupJoin` and its callees; KIP-394
//! (member id required), KIP-345 (static members), KIP-814 (skipped assignment).

use bytes::Bytes;
use bytestring::ByteString;
use ottla_protocol::messages::{JoinGroupRequest, JoinGroupResponse};
use ottla_types::{ErrorCode, Timestamp, Uuid};

use super::classic_group::{ClassicGroup, ClassicGroupState};
use super::consumer::group_tombstones;
use super::coordinator::{Context, Deferred, Effects, Group, GroupCoordinator};
use super::effects::StaticMemberReplaced;
use super::member::{ClassicGroupMember, JoinReply, Protocol, owned, owned_protocols};
use super::outcome::{Outcome, Requester, TimerKey};
use super::rebalance::max_size;
use super::record::CoordinatorRecord;
use super::streams;

/// The inputs of a JoinGroup besides its body.
#[derive(Clone, Debug)]
pub struct JoinContext {
    pub client_id: ByteString,
    /// The peer's address as Java prints it: `/192.0.2.1`.
    pub client_host: ByteString,
    /// Whether a client without a member id is given one and must rejoin with it.
    pub requires_known_member_id: bool,
    /// Whether the client supports that a replaced static leader keeps the old assignment.
    pub supports_skipping_assignment: bool,
    /// 16 random bytes for the id of a new member.
    pub random: [u8; 16],
    pub requester: Requester,
}

impl JoinContext {
    /// A random id in the format of Kafka's `Uuid`, for a member of a consumer group.
    pub(super) fn kafka_uuid(&self) -> ByteString {
        Uuid(self.random).to_string().into()
    }
}

impl GroupCoordinator {
    pub fn handle_join(
        &mut self,
        to: JoinReply,
        request: JoinGroupRequest,
        context: JoinContext,
        now: Timestamp,
    ) -> Outcome {
        let mut effects = self.effects();
        if request.group_id.is_empty() {
            effects.refuse_join(to, &request.member_id, ErrorCode::InvalidGroupId);
            return self.finish(effects);
        }
        let session_timeouts =
            self.config.group_min_session_timeout_ms..=self.config.group_max_session_timeout_ms;
        if !session_timeouts.contains(&request.session_timeout_ms) {
            effects.refuse_join(to, &request.member_id, ErrorCode::InvalidSessionTimeout);
            return self.finish(effects);
        }
        if self.share_group(&request.group_id).is_some() {
            let no_member_id = ByteString::new();
            effects.refuse_join(to, &no_member_id, ErrorCode::InconsistentGroupProtocol);
            return self.finish(effects);
        }

        let is_unknown_member = request.member_id.is_empty();
        if let Some(group) = self.streams_group(&request.group_id).cloned() {
            if !group.is_empty() {
                let no_member_id = ByteString::new();
                effects.refuse_join(to, &no_member_id, ErrorCode::InconsistentGroupProtocol);
                return self.finish(effects);
            }
            if is_unknown_member {
                self.put_group(effects.next_write(), &group.group_id, None);
                effects.write(streams::group_tombstones(&group), Deferred::Nothing);
                effects.cancel_timer(TimerKey::initial_rebalance(&group.group_id));
            }
        }
        match self.consumer_group(&request.group_id).cloned() {
            Some(group) if !group.is_empty() => {
                self.join_consumer_group(to, group, &request, &context, now, &mut effects);
                return self.finish(effects);
            }
            // The group is empty, so it can be converted to the other protocol.
            Some(group) if request.member_id.is_empty() => {
                let group_id = group.group_id.clone();
                self.put_group(effects.next_write(), &group_id, None);
                effects.write(group_tombstones(&group), Deferred::Nothing);
            }
            _ => {}
        }
        let group_id = match self.classic_group(&request.group_id) {
            Some(group) => group.group_id().clone(),
            None => owned(&request.group_id),
        };
        let before = effects.next_write();
        let is_new_group =
            is_unknown_member && self.create_group(&group_id, effects.next_write(), now);
        if self.classic_group(&group_id).is_none() {
            effects.refuse_join(to, &request.member_id, ErrorCode::UnknownMemberId);
            return self.finish(effects);
        }
        self.with_classic_group(&group_id, now, &mut effects, |group, cx, effects| {
            let mut join = Join {
                to,
                request: &request,
                context: &context,
                cx,
                effects,
            };
            join.enter(group);
            if is_new_group && effects.next_write() == before {
                // The record makes the commit of the group's creation known. As in Kafka, neither
                // this reply nor later ones before the first assignment wait for it: if it is lost,
                // the next coordinator does not know the member, which then rejoins.
                let record = CoordinatorRecord::empty_group_metadata(group);
                effects.write(vec![record], Deferred::Nothing);
            }
        });
        self.finish(effects)
    }

    /// Refuses a JoinGroup that was not looked at.
    pub fn refuse_join(
        &mut self,
        to: JoinReply,
        request: &JoinGroupRequest,
        error: ErrorCode,
    ) -> Outcome {
        let mut effects = self.effects();
        effects.refuse_join(to, &request.member_id, error);
        self.finish(effects)
    }

    /// Whether a JoinGroup would add a member to its group, or make longer what the group keeps of
    /// one. A static member that returns without its member ID takes its former place.
    pub fn grows_with_join(&self, request: &JoinGroupRequest) -> bool {
        let member_id = &request.member_id;
        let instance_id = request.group_instance_id.as_deref();
        let returning = instance_id.filter(|_| member_id.is_empty());
        let kept = match self.group(&request.group_id) {
            Some(Group::Classic(group)) => {
                let known_id = match returning {
                    Some(instance_id) => group.static_member_id(instance_id),
                    None => Some(member_id),
                };
                let member = known_id.and_then(|member_id| group.member(member_id));
                member.map(|member| member.supported_protocols.as_slice())
            }
            Some(Group::Consumer(group)) => {
                let member = match returning {
                    Some(instance_id) => group.static_member(instance_id),
                    None => group.member(member_id),
                };
                member.and_then(|member| member.classic_protocols())
            }
            Some(Group::Share(_) | Group::Streams(_)) | None => None,
        };
        let asked = request.protocols.iter();
        let asked = asked.map(|it| kept_bytes(&it.name, &it.metadata));
        let asked: usize = asked.sum();
        kept.is_none_or(|kept| {
            let kept = kept.iter().map(|it| kept_bytes(&it.name, &it.metadata));
            asked > kept.sum::<usize>()
        })
    }
}

/// The memory that a group needs for a protocol of a member.
fn kept_bytes(name: &ByteString, metadata: &Bytes) -> usize {
    size_of::<Protocol>() + name.len() + metadata.len()
}

/// One JoinGroup that is being handled.
struct Join<'a> {
    to: JoinReply,
    request: &'a JoinGroupRequest,
    context: &'a JoinContext,
    cx: Context<'a>,
    effects: &'a mut Effects,
}

impl Join<'_> {
    fn enter(&mut self, group: &mut ClassicGroup) {
        let request = self.request;
        if !self.is_accepted(group) {
            group.drop_member(&request.member_id, self.effects);
            self.refuse(&ByteString::new(), ErrorCode::GroupMaxSizeReached);
        } else if !group.supports_protocols(&request.protocol_type, &request.protocols) {
            self.refuse(&request.member_id, ErrorCode::InconsistentGroupProtocol);
        } else if request.member_id.is_empty() {
            self.as_unknown_member(group);
        } else if group.is_pending(&request.member_id) {
            self.as_pending_member(group);
        } else {
            self.as_known_member(group);
        }
    }

    /// Whether there is room for the member. During a rebalance, the members that rejoin first are
    /// accepted.
    fn is_accepted(&self, group: &ClassicGroup) -> bool {
        let member = group.member(&self.request.member_id);
        match group.state() {
            ClassicGroupState::Empty => true,
            ClassicGroupState::PreparingRebalance => {
                member.is_some_and(|member| member.awaiting_join.is_some())
                    || group.num_awaiting_join() < max_size(self.cx)
            }
            ClassicGroupState::CompletingRebalance | ClassicGroupState::Stable => {
                member.is_some() || group.num_members() < max_size(self.cx)
            }
        }
    }

    fn as_unknown_member(&mut self, group: &mut ClassicGroup) {
        let instance_id = self.request.group_instance_id.as_ref().map(owned);
        let prefix = instance_id.as_ref().unwrap_or(&self.context.client_id);
        let new_member_id =
            ByteString::from(format!("{prefix}-{}", java_uuid(self.context.random)));
        match instance_id {
            Some(instance_id) => match group.static_member_id(&instance_id).cloned() {
                Some(old_member_id) => {
                    self.replace_static_member(group, instance_id, old_member_id, new_member_id);
                }
                None => self.add_member(group, new_member_id),
            },
            None if self.context.requires_known_member_id => {
                // A client that gives up and retries would leave a dead member each time. A pending
                // member is removed after its session timeout.
                let timer = group.session_timer(&new_member_id);
                self.effects
                    .set_timer(timer, self.request.session_timeout_ms);
                self.refuse(&new_member_id, ErrorCode::MemberIdRequired);
                group.add_pending_member(new_member_id);
            }
            None => self.add_member(group, new_member_id),
        }
    }

    fn as_pending_member(&mut self, group: &mut ClassicGroup) {
        if self.request.group_instance_id.is_some() {
            // Static members are never pending. Kafka's answer comes from an exception.
            self.refuse(&ByteString::new(), ErrorCode::UnknownServerError);
            return;
        }
        let member_id = owned(&self.request.member_id);
        self.add_member(group, member_id);
    }

    fn as_known_member(&mut self, group: &mut ClassicGroup) {
        let member_id = &self.request.member_id;
        let instance_id = self.request.group_instance_id.as_deref();
        let Some(member) = group.member(member_id) else {
            let error = match group.validate_member(member_id, instance_id) {
                Err(error) => error,
                Ok(()) => ErrorCode::UnknownMemberId,
            };
            self.refuse_known(member_id, error);
            return;
        };
        if let Err(error) = group.validate_member(member_id, instance_id) {
            self.refuse_known(member_id, error);
            return;
        }
        let has_same_protocols = member.matches(&self.request.protocols);
        match group.state() {
            ClassicGroupState::PreparingRebalance => self.update_member_and_rebalance(group),
            // The member may have missed the response to its first JoinGroup.
            ClassicGroupState::CompletingRebalance if has_same_protocols => {
                self.effects.reply(self.to, group.generation_for(member_id));
            }
            ClassicGroupState::CompletingRebalance => self.update_member_and_rebalance(group),
            // The leader rejoins when something has changed that only it sees, such as topics.
            ClassicGroupState::Stable if group.is_leader(member_id) || !has_same_protocols => {
                self.update_member_and_rebalance(group);
            }
            ClassicGroupState::Stable => {
                self.effects.reply(self.to, group.generation_for(member_id));
            }
            ClassicGroupState::Empty => {
                self.refuse(member_id, ErrorCode::UnknownMemberId);
            }
        }
    }

    fn add_member(&mut self, group: &mut ClassicGroup, member_id: ByteString) {
        let request = self.request;
        if group.is_in(ClassicGroupState::PreparingRebalance)
            && group.previous_state() == Some(ClassicGroupState::Empty)
        {
            group.new_member_added = true;
        }
        group.add(ClassicGroupMember {
            member_id: member_id.clone(),
            group_instance_id: request.group_instance_id.as_ref().map(owned),
            client_id: owned(&self.context.client_id),
            client_host: owned(&self.context.client_host),
            rebalance_timeout_ms: request.rebalance_timeout_ms,
            session_timeout_ms: request.session_timeout_ms,
            protocol_type: owned(&request.protocol_type),
            supported_protocols: owned_protocols(&request.protocols),
            assignment: Default::default(),
            awaiting_join: Some(self.to),
            awaiting_sync: None,
            is_new: true,
        });
        // A new member cannot send heartbeats while its JoinGroup is parked, and a lost connection
        // is not noticed. If the member is still alive, it sends the request again.
        let timer = group.session_timer(&member_id);
        self.effects
            .set_timer(timer, self.cx.config.new_member_join_timeout_ms);
        group.rebalance_or_complete_join(self.cx, self.effects);
    }

    fn update_member_and_rebalance(&mut self, group: &mut ClassicGroup) {
        self.update_member(group, &self.request.member_id);
        group.rebalance_or_complete_join(self.cx, self.effects);
    }

    /// Updates the member with the request, and parks the request.
    fn update_member(&mut self, group: &mut ClassicGroup, member_id: &ByteString) {
        let replaced = group.update_member(
            member_id,
            owned_protocols(&self.request.protocols),
            self.request.rebalance_timeout_ms,
            self.request.session_timeout_ms,
            Some(self.to),
        );
        if let Some(earlier) = replaced {
            // Kafka never answers a JoinGroup that is replaced by a later one of the same member.
            // Normally no client waits for it; if one does, this error makes the member rejoin.
            self.effects
                .refuse_join(earlier, member_id, ErrorCode::RebalanceInProgress);
        }
    }

    /// Replaces a static member that has returned without its member id.
    fn replace_static_member(
        &mut self,
        group: &mut ClassicGroup,
        group_instance_id: ByteString,
        old_member_id: ByteString,
        new_member_id: ByteString,
    ) {
        let Some(old_member) = group.member(&old_member_id) else {
            return;
        };
        let replaced = StaticMemberReplaced {
            group_id: group.group_id().clone(),
            group_instance_id: group_instance_id.clone(),
            old_member_id: old_member_id.clone(),
            new_member_id: new_member_id.clone(),
            old_protocols: old_member.supported_protocols.clone(),
            old_rebalance_timeout_ms: old_member.rebalance_timeout_ms,
            old_session_timeout_ms: old_member.session_timeout_ms,
            old_leader: group.leader_id().cloned().unwrap_or_default(),
            supports_skipping_assignment: self.context.supports_skipping_assignment,
        };
        let timer = group.session_timer(&new_member_id);
        self.effects.set_timer(timer, old_member.session_timeout_ms);
        fence(
            group,
            &group_instance_id,
            &old_member_id,
            &new_member_id,
            self.effects,
        );
        self.update_member(group, &new_member_id);

        match group.state() {
            ClassicGroupState::Stable => {
                if group.select_protocol().as_ref() == group.protocol_name() {
                    // Nothing changes for the other members, so there is no rebalance.
                    let record = CoordinatorRecord::group_metadata(group, |member_id| {
                        group
                            .member(member_id)
                            .map(|member| member.assignment.clone())
                            .unwrap_or_default()
                    });
                    let deferred = Deferred::StaticMemberReplaced(replaced);
                    self.effects.write(vec![record], deferred);
                } else {
                    group.rebalance_or_complete_join(self.cx, self.effects);
                }
            }
            // The leader may be computing an assignment for the old member id.
            ClassicGroupState::CompletingRebalance => {
                group.prepare_rebalance(self.cx, self.effects);
            }
            _ => group.complete_join_if_all_joined(self.cx, self.effects),
        }
    }

    fn refuse(&mut self, member_id: &ByteString, error: ErrorCode) {
        self.effects.refuse_join(self.to, member_id, error);
    }

    fn refuse_known(&mut self, member_id: &ByteString, error: ErrorCode) {
        self.effects.reply(
            self.to,
            JoinGroupResponse {
                member_id: member_id.clone(),
                protocol_type: None,
                protocol_name: None,
                error_code: error.code(),
                ..Default::default()
            },
        );
    }
}

impl ClassicGroup {
    /// Handles the commit or the failure of the record of a replaced static member.
    pub(super) fn on_static_member_settled(
        &mut self,
        replaced: StaticMemberReplaced,
        result: Result<(), ErrorCode>,
        effects: &mut Effects,
    ) {
        let new_member_id = &replaced.new_member_id;
        let Some(to) = self.take_awaiting_join(new_member_id) else {
            // A rebalance has answered the request, or the member was replaced again.
            return;
        };
        if let Err(error) = result {
            let response = JoinGroupResponse {
                leader: replaced.old_leader.clone(),
                member_id: ByteString::new(),
                members: Vec::new(),
                error_code: error.code(),
                ..self.generation_for(new_member_id)
            };
            effects.reply(to, response);
            self.restore_static_member(replaced, effects);
            return;
        }
        let response = self.generation_for(new_member_id);
        let response = if replaced.supports_skipping_assignment {
            JoinGroupResponse {
                skip_assignment: self.is_leader(new_member_id),
                ..response
            }
        } else {
            // With the id of the previous leader, the client does not consider itself leader, and
            // does not compute an assignment from a member list that it did not get.
            JoinGroupResponse {
                leader: replaced.old_leader,
                members: Vec::new(),
                ..response
            }
        };
        effects.reply(to, response);
    }

    fn restore_static_member(&mut self, replaced: StaticMemberReplaced, effects: &mut Effects) {
        self.update_member(
            &replaced.new_member_id,
            replaced.old_protocols,
            replaced.old_rebalance_timeout_ms,
            replaced.old_session_timeout_ms,
            None,
        );
        fence(
            self,
            &replaced.group_instance_id,
            &replaced.new_member_id,
            &replaced.old_member_id,
            effects,
        );
        let timer = self.session_timer(&replaced.old_member_id);
        effects.set_timer(timer, replaced.old_session_timeout_ms);
    }
}

/// Replaces `old_member_id` with `new_member_id`, and refuses the parked requests of the old id.
fn fence(
    group: &mut ClassicGroup,
    group_instance_id: &ByteString,
    old_member_id: &ByteString,
    new_member_id: &ByteString,
    effects: &mut Effects,
) {
    let (join, sync) = group.replace_static_member(group_instance_id, old_member_id, new_member_id);
    if let Some(to) = join {
        effects.reply(
            to,
            JoinGroupResponse {
                member_id: old_member_id.clone(),
                protocol_type: None,
                protocol_name: None,
                error_code: ErrorCode::FencedInstanceId.code(),
                ..Default::default()
            },
        );
    }
    if let Some(to) = sync {
        effects.refuse(to, ErrorCode::FencedInstanceId);
    }
}

/// A random UUID in the format of Java's `UUID.randomUUID().toString()`.
fn java_uuid(mut random: [u8; 16]) -> String {
    random[6] = (random[6] & 0x0f) | 0x40;
    random[8] = (random[8] & 0x3f) | 0x80;
    let hex = format!("{:032x}", u128::from_be_bytes(random));
    format!(
        "{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    )
}
