//! A classic consumer group: its members, its protocol and its state.
//!
//! Holds the membership and its rules. `rebalance.rs` decides when a rebalance starts or ends. This
//! module does not touch timers or offsets. Invariants: `awaiting_join` is the number of members
//! whose JoinGroup is parked; `static_members` maps each instance id to an existing member;
//! `protocol_support` is the number of members for each protocol name; a member is never both
//! pending and joined. Source: `ClassicGroup`, `ClassicGroupState`.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use bytestring::ByteString;
use indexmap::IndexMap;
use ottla_protocol::coordinator_records::GroupMetadataValue;
use ottla_protocol::messages::ConsumerProtocolSubscription;
use ottla_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use ottla_protocol::messages::join_group_response::JoinGroupResponseMember;
use ottla_protocol::{Message, Reader};
use ottla_types::{ErrorCode, named_enum};

use super::member::{ClassicGroupMember, JoinReply, Protocol, SyncReply, owned};

/// The protocol type of consumers. The metadata of other types (such as Connect's `connect`) is
/// opaque to the coordinator.
pub(crate) const CONSUMER_PROTOCOL_TYPE: &str = "consumer";

named_enum! {
    /// Kafka has a fifth state, `Dead`. Here such a group does not exist.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub enum ClassicGroupState {
        /// No members. The group exists for its offsets, or until it is removed.
        Empty => "Empty",
        /// Members must rejoin; the new generation has not started.
        PreparingRebalance => "PreparingRebalance",
        /// The new generation has started; its members wait for the leader's assignment.
        CompletingRebalance => "CompletingRebalance",
        /// Every member has its assignment.
        Stable => "Stable",
    }
}

impl ClassicGroupState {
    fn may_follow(self, previous: ClassicGroupState) -> bool {
        use ClassicGroupState::{CompletingRebalance, Empty, PreparingRebalance, Stable};
        match self {
            Empty | CompletingRebalance => previous == PreparingRebalance,
            PreparingRebalance => matches!(previous, Stable | CompletingRebalance | Empty),
            Stable => previous == CompletingRebalance,
        }
    }
}

/// The progress of the extra delay of the first rebalance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct InitialDelay {
    /// The delay of the current timer.
    pub(crate) delay_ms: i32,
    /// The remaining rebalance timeout for further extensions.
    pub(crate) remaining_ms: i32,
}

#[derive(Debug)]
pub(crate) struct ClassicGroup {
    group_id: ByteString,
    state: ClassicGroupState,
    /// `None` until the state changes for the first time.
    previous_state: Option<ClassicGroupState>,
    /// When the state was entered; `None` for records of very old brokers.
    current_state_timestamp_ms: Option<i64>,
    /// `None` for a group that only ever had committed offsets.
    protocol_type: Option<ByteString>,
    /// The protocol of this generation.
    protocol_name: Option<ByteString>,
    generation_id: i32,
    leader_id: Option<ByteString>,
    /// By member id, oldest member first.
    members: IndexMap<ByteString, ClassicGroupMember>,
    /// Member id of each instance id.
    static_members: HashMap<ByteString, ByteString>,
    /// Members that received a member ID and must rejoin with it.
    pending_join_members: HashSet<ByteString>,
    /// Members of this generation that have not sent SyncGroup yet.
    pending_sync_members: HashSet<ByteString>,
    protocol_support: HashMap<ByteString, usize>,
    awaiting_join: usize,
    /// The subscribed topics of this generation's consumers, if they are known.
    subscribed_topics: Option<HashSet<ByteString>>,
    /// Whether a member joined during the initial delay, which extends it.
    pub(crate) new_member_added: bool,
    /// Set while the join timer is that of an initial rebalance.
    pub(crate) initial_delay: Option<InitialDelay>,
}

impl ClassicGroup {
    /// A group without members.
    pub(crate) fn empty(group_id: ByteString, now_ms: i64) -> Self {
        Self {
            group_id,
            state: ClassicGroupState::Empty,
            previous_state: None,
            current_state_timestamp_ms: Some(now_ms),
            protocol_type: None,
            protocol_name: None,
            generation_id: 0,
            leader_id: None,
            members: IndexMap::new(),
            static_members: HashMap::new(),
            pending_join_members: HashSet::new(),
            pending_sync_members: HashSet::new(),
            protocol_support: HashMap::new(),
            awaiting_join: 0,
            subscribed_topics: None,
            new_member_added: false,
            initial_delay: None,
        }
    }

    /// The group in a record. `None` if the record is inconsistent.
    pub(crate) fn from_record(group_id: ByteString, value: &GroupMetadataValue) -> Option<Self> {
        let mut group = Self::empty(group_id, 0);
        group.current_state_timestamp_ms =
            (value.current_state_timestamp != -1).then_some(value.current_state_timestamp);
        group.generation_id = value.generation;
        group.protocol_type =
            (!value.protocol_type.is_empty()).then(|| owned(&value.protocol_type));
        group.protocol_name = value.protocol.as_ref().map(owned);
        group.leader_id = value.leader.as_ref().map(owned);
        if value.members.is_empty() {
            group.subscribed_topics = group.compute_subscribed_topics();
            return Some(group);
        }

        // A group with members has a selected protocol.
        let protocol_name = group.protocol_name.clone()?;
        let protocol_type = group.protocol_type.clone()?;
        for member in &value.members {
            let duplicate = group.has_member(&member.member_id)
                || member
                    .group_instance_id
                    .as_ref()
                    .is_some_and(|instance| group.static_members.contains_key(instance));
            if duplicate {
                return None;
            }
            let rebalance_timeout_ms = match member.rebalance_timeout {
                -1 => member.session_timeout,
                timeout => timeout,
            };
            group.add(ClassicGroupMember {
                member_id: owned(&member.member_id),
                group_instance_id: member.group_instance_id.as_ref().map(owned),
                client_id: owned(&member.client_id),
                client_host: owned(&member.client_host),
                rebalance_timeout_ms,
                session_timeout_ms: member.session_timeout,
                protocol_type: protocol_type.clone(),
                supported_protocols: vec![Protocol {
                    name: protocol_name.clone(),
                    metadata: Bytes::copy_from_slice(&member.subscription),
                }],
                assignment: Bytes::copy_from_slice(&member.assignment),
                awaiting_join: None,
                awaiting_sync: None,
                is_new: false,
            });
        }
        group.state = ClassicGroupState::Stable;
        group.subscribed_topics = group.compute_subscribed_topics();
        Some(group)
    }

    /// The classic group that a consumer group is downgraded to. `None` if its members have no
    /// common protocol.
    pub(crate) fn stable(
        group_id: ByteString,
        generation_id: i32,
        members: Vec<ClassicGroupMember>,
        now_ms: i64,
    ) -> Option<Self> {
        let mut group = Self::empty(group_id, now_ms);
        group.generation_id = generation_id;
        group.protocol_type = Some(CONSUMER_PROTOCOL_TYPE.into());
        for member in members {
            group.add(member);
        }
        group.protocol_name = Some(group.select_protocol()?);
        group.state = ClassicGroupState::Stable;
        group.subscribed_topics = group.compute_subscribed_topics();
        Some(group)
    }

    pub(crate) fn group_id(&self) -> &ByteString {
        &self.group_id
    }

    pub(crate) fn state(&self) -> ClassicGroupState {
        self.state
    }

    pub(crate) fn is_in(&self, state: ClassicGroupState) -> bool {
        self.state == state
    }

    pub(crate) fn previous_state(&self) -> Option<ClassicGroupState> {
        self.previous_state
    }

    pub(crate) fn current_state_timestamp_ms(&self) -> Option<i64> {
        self.current_state_timestamp_ms
    }

    pub(crate) fn protocol_type(&self) -> Option<&ByteString> {
        self.protocol_type.as_ref()
    }

    pub(crate) fn protocol_name(&self) -> Option<&ByteString> {
        self.protocol_name.as_ref()
    }

    pub(crate) fn generation_id(&self) -> i32 {
        self.generation_id
    }

    pub(crate) fn leader_id(&self) -> Option<&ByteString> {
        self.leader_id.as_ref()
    }

    pub(crate) fn is_leader(&self, member_id: &str) -> bool {
        self.leader_id.as_deref() == Some(member_id)
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = &ClassicGroupMember> {
        self.members.values()
    }

    pub(crate) fn members_mut(&mut self) -> impl Iterator<Item = &mut ClassicGroupMember> {
        self.members.values_mut()
    }

    pub(crate) fn member(&self, member_id: &str) -> Option<&ClassicGroupMember> {
        self.members.get(member_id)
    }

    pub(crate) fn member_mut(&mut self, member_id: &str) -> Option<&mut ClassicGroupMember> {
        self.members.get_mut(member_id)
    }

    pub(crate) fn has_member(&self, member_id: &str) -> bool {
        self.members.contains_key(member_id)
    }

    pub(crate) fn num_members(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn num_awaiting_join(&self) -> usize {
        self.awaiting_join
    }

    pub(crate) fn static_member_id(&self, group_instance_id: &str) -> Option<&ByteString> {
        self.static_members.get(group_instance_id)
    }

    pub(crate) fn is_pending(&self, member_id: &str) -> bool {
        self.pending_join_members.contains(member_id)
    }

    pub(crate) fn uses_consumer_protocol(&self) -> bool {
        self.protocol_type.as_deref() == Some(CONSUMER_PROTOCOL_TYPE)
    }

    /// The longest rebalance timeout of any member.
    pub(crate) fn rebalance_timeout_ms(&self) -> i32 {
        let timeouts = self.members().map(|member| member.rebalance_timeout_ms);
        timeouts.max().unwrap_or(0).max(0)
    }

    // Membership

    /// Adds a member. The caller must have checked that its protocols are supported, and that
    /// neither its member id nor its instance id is in use.
    pub(crate) fn add(&mut self, member: ClassicGroupMember) {
        let member_id = member.member_id.clone();
        assert!(!self.has_member(&member_id), "a member is added once");
        if let Some(instance_id) = &member.group_instance_id {
            let taken = self
                .static_members
                .insert(instance_id.clone(), member_id.clone());
            assert!(taken.is_none(), "a replaced static member is not added");
        }
        if self.members.is_empty() {
            self.protocol_type = Some(member.protocol_type.clone());
        }
        self.leader_id.get_or_insert_with(|| member_id.clone());
        self.awaiting_join += usize::from(member.awaiting_join.is_some());
        self.count_protocols(&member.supported_protocols);
        self.pending_join_members.remove(&member_id);
        self.members.insert(member_id, member);
    }

    /// Removes a member, joined or pending. A returned member may have a parked request.
    pub(crate) fn remove(&mut self, member_id: &str) -> Option<ClassicGroupMember> {
        let removed = self.members.shift_remove(member_id);
        if let Some(member) = &removed {
            self.uncount_protocols(&member.supported_protocols);
            self.awaiting_join -= usize::from(member.awaiting_join.is_some());
            if let Some(instance_id) = &member.group_instance_id {
                self.static_members.remove(instance_id);
            }
        }
        if self.is_leader(member_id) {
            self.leader_id = self.members.keys().next().cloned();
        }
        self.pending_join_members.remove(member_id);
        self.pending_sync_members.remove(member_id);
        removed
    }

    /// Replaces the member id of a static member. Returns the parked requests of the old id, which
    /// must be answered with `FENCED_INSTANCE_ID`.
    pub(crate) fn replace_static_member(
        &mut self,
        group_instance_id: &ByteString,
        old_member_id: &str,
        new_member_id: &ByteString,
    ) -> (Option<JoinReply>, Option<SyncReply>) {
        let mut member = self
            .members
            .shift_remove(old_member_id)
            .expect("a static member that is replaced exists");
        let awaiting_join = self.take_awaiting_join_of(&mut member);
        let awaiting_sync = member.awaiting_sync.take();
        member.member_id = new_member_id.clone();
        member.is_new = false;
        self.members.insert(new_member_id.clone(), member);
        if self.is_leader(old_member_id) {
            self.leader_id = Some(new_member_id.clone());
        }
        self.static_members
            .insert(group_instance_id.clone(), new_member_id.clone());
        (awaiting_join, awaiting_sync)
    }

    /// Updates an existing member with its JoinGroup, and parks the request if `reply_to` is given.
    /// Returns an earlier JoinGroup of the member that was still parked.
    pub(crate) fn update_member(
        &mut self,
        member_id: &str,
        protocols: Vec<Protocol>,
        rebalance_timeout_ms: i32,
        session_timeout_ms: i32,
        reply_to: Option<JoinReply>,
    ) -> Option<JoinReply> {
        let member = self.members.get_mut(member_id)?;
        let old_protocols = std::mem::replace(&mut member.supported_protocols, protocols.clone());
        member.rebalance_timeout_ms = rebalance_timeout_ms;
        member.session_timeout_ms = session_timeout_ms;
        let replaced = std::mem::replace(&mut member.awaiting_join, reply_to);
        self.awaiting_join -= usize::from(replaced.is_some());
        self.awaiting_join += usize::from(reply_to.is_some());
        self.uncount_protocols(&old_protocols);
        self.count_protocols(&protocols);
        replaced
    }

    pub(crate) fn add_pending_member(&mut self, member_id: ByteString) {
        assert!(
            !self.has_member(&member_id),
            "a member is pending or joined"
        );
        self.pending_join_members.insert(member_id);
    }

    pub(crate) fn clear_pending_join_members(&mut self) {
        self.pending_join_members.clear();
    }

    /// Takes the parked JoinGroup of a member in order to answer it.
    pub(crate) fn take_awaiting_join(&mut self, member_id: &str) -> Option<JoinReply> {
        let taken = self.members.get_mut(member_id)?.awaiting_join.take();
        self.awaiting_join -= usize::from(taken.is_some());
        taken
    }

    fn take_awaiting_join_of(&mut self, member: &mut ClassicGroupMember) -> Option<JoinReply> {
        let taken = member.awaiting_join.take();
        self.awaiting_join -= usize::from(taken.is_some());
        taken
    }

    /// Takes all parked requests of the group: JoinGroups, then SyncGroups.
    pub(crate) fn take_all_parked(&mut self) -> (Vec<(ByteString, JoinReply)>, Vec<SyncReply>) {
        let mut joins = Vec::new();
        let mut syncs = Vec::new();
        for member in self.members.values_mut() {
            if let Some(to) = member.awaiting_join.take() {
                joins.push((member.member_id.clone(), to));
            }
            syncs.extend(member.awaiting_sync.take());
        }
        self.awaiting_join = 0;
        (joins, syncs)
    }

    /// Checks the member id and the instance id of a request. Source:
    /// `ClassicGroup.validateMember`.
    pub(crate) fn validate_member(
        &self,
        member_id: &str,
        group_instance_id: Option<&str>,
    ) -> Result<(), ErrorCode> {
        if let Some(instance_id) = group_instance_id {
            match self.static_member_id(instance_id) {
                None => return Err(ErrorCode::UnknownMemberId),
                Some(existing) if &**existing != member_id => {
                    return Err(ErrorCode::FencedInstanceId);
                }
                Some(_) => {}
            }
        }
        if self.has_member(member_id) {
            Ok(())
        } else {
            Err(ErrorCode::UnknownMemberId)
        }
    }

    /// Checks the member and the generation of a commit. Returns whether the commit names any.
    pub(crate) fn validate_committer(
        &self,
        member_id: &str,
        group_instance_id: Option<&str>,
        generation_id: i32,
    ) -> Result<bool, ErrorCode> {
        let names_member =
            generation_id >= 0 || !member_id.is_empty() || group_instance_id.is_some();
        if names_member {
            self.validate_member(member_id, group_instance_id)?;
            if generation_id != self.generation_id() {
                return Err(ErrorCode::IllegalGeneration);
            }
        }
        Ok(names_member)
    }

    // Protocols

    /// Whether a member with `protocols` can join this group.
    pub(crate) fn supports_protocols(
        &self,
        protocol_type: &str,
        protocols: &[JoinGroupRequestProtocol],
    ) -> bool {
        if self.is_in(ClassicGroupState::Empty) {
            return !protocol_type.is_empty() && !protocols.is_empty();
        }
        self.protocol_type.as_deref() == Some(protocol_type)
            && protocols
                .iter()
                .any(|protocol| self.support_of(&protocol.name) == self.members.len())
    }

    /// The protocol that most members prefer among those that all of them support; in a tie, the
    /// one that got the first vote. `None` only if loaded members have no common protocol.
    pub(crate) fn select_protocol(&self) -> Option<ByteString> {
        let mut votes: IndexMap<&ByteString, usize> = IndexMap::new();
        for member in self.members() {
            let vote = member
                .supported_protocols
                .iter()
                .find(|protocol| self.support_of(&protocol.name) == self.members.len());
            if let Some(protocol) = vote {
                *votes.entry(&protocol.name).or_default() += 1;
            }
        }
        let most = votes.values().copied().max()?;
        votes
            .into_iter()
            .find(|(_, count)| *count == most)
            .map(|(name, _)| name.clone())
    }

    fn support_of(&self, protocol_name: &ByteString) -> usize {
        self.protocol_support
            .get(protocol_name)
            .copied()
            .unwrap_or(0)
    }

    fn count_protocols(&mut self, protocols: &[Protocol]) {
        for protocol in protocols {
            let count = self.protocol_support.entry(protocol.name.clone());
            *count.or_default() += 1;
        }
    }

    fn uncount_protocols(&mut self, protocols: &[Protocol]) {
        for Protocol { name, .. } in protocols {
            if let Some(count) = self.protocol_support.get_mut(name) {
                *count -= 1;
                if *count == 0 {
                    self.protocol_support.remove(name);
                }
            }
        }
    }

    pub(crate) fn subscribed_topics(&self) -> Option<&HashSet<ByteString>> {
        self.subscribed_topics.as_ref()
    }

    /// Whether the group is subscribed to the topic. True for every topic if the subscriptions of a
    /// consumer group are unknown.
    pub(crate) fn is_subscribed_to(&self, topic: &ByteString) -> bool {
        match &self.subscribed_topics {
            Some(topics) => topics.contains(topic),
            None => self.uses_consumer_protocol(),
        }
    }

    fn compute_subscribed_topics(&self) -> Option<HashSet<ByteString>> {
        if !self.uses_consumer_protocol() {
            return None;
        }
        if self.members.is_empty() {
            return Some(HashSet::new());
        }
        let protocol_name = self.protocol_name.as_ref()?;
        let mut topics = HashSet::new();
        for member in self.members() {
            topics.extend(subscribed_topics_in(member.metadata(protocol_name)?)?);
        }
        Some(topics)
    }

    // State

    pub(crate) fn may_rebalance(&self) -> bool {
        ClassicGroupState::PreparingRebalance.may_follow(self.state)
    }

    pub(crate) fn transition_to(&mut self, state: ClassicGroupState, now_ms: i64) {
        assert!(
            state.may_follow(self.state),
            "a group does not go from {} to {}",
            self.state.name(),
            state.name()
        );
        self.previous_state = Some(self.state);
        self.state = state;
        self.current_state_timestamp_ms = Some(now_ms);
    }

    pub(crate) fn have_all_members_joined(&self) -> bool {
        self.members.len() == self.awaiting_join && self.pending_join_members.is_empty()
    }

    /// Makes sure that the leader is among the members that have rejoined. Returns `false` if none
    /// has.
    pub(crate) fn elect_joined_leader(&mut self) -> bool {
        let Some(leader_id) = &self.leader_id else {
            return false;
        };
        let leader_joined = self
            .member(leader_id)
            .is_some_and(|leader| leader.awaiting_join.is_some());
        if leader_joined {
            return true;
        }
        let joined = self.members().find(|member| member.awaiting_join.is_some());
        match joined.map(|member| member.member_id.clone()) {
            Some(member_id) => {
                self.leader_id = Some(member_id);
                true
            }
            None => false,
        }
    }

    /// Starts the next generation with the current members.
    pub(crate) fn init_next_generation(&mut self, now_ms: i64) {
        self.generation_id = self.generation_id.wrapping_add(1);
        self.protocol_name = self.select_protocol();
        self.subscribed_topics = self.compute_subscribed_topics();
        let state = if self.members.is_empty() {
            ClassicGroupState::Empty
        } else {
            ClassicGroupState::CompletingRebalance
        };
        self.transition_to(state, now_ms);
        self.pending_sync_members.clear();
    }

    pub(crate) fn add_pending_sync_member(&mut self, member_id: ByteString) {
        self.pending_sync_members.insert(member_id);
    }

    pub(crate) fn remove_pending_sync_member(&mut self, member_id: &str) {
        self.pending_sync_members.remove(member_id);
    }

    pub(crate) fn clear_pending_sync_members(&mut self) {
        self.pending_sync_members.clear();
    }

    pub(crate) fn has_received_sync_from_all_members(&self) -> bool {
        self.pending_sync_members.is_empty()
    }

    /// Oldest member first.
    pub(crate) fn members_yet_to_sync(&self) -> Vec<ByteString> {
        self.members
            .keys()
            .filter(|member_id| self.pending_sync_members.contains(*member_id))
            .cloned()
            .collect()
    }

    /// The members for the JoinGroup response of the leader.
    pub(crate) fn members_for_leader(&self) -> Vec<JoinGroupResponseMember> {
        self.members()
            .map(|member| JoinGroupResponseMember {
                member_id: member.member_id.clone(),
                group_instance_id: member.group_instance_id.clone(),
                metadata: self
                    .protocol_name
                    .as_ref()
                    .and_then(|name| member.metadata(name))
                    .cloned()
                    .unwrap_or_default(),
                ..Default::default()
            })
            .collect()
    }
}

/// The topics in a member's subscription. It is read in version 0, which is a prefix of all later
/// versions. `None` if it is not a subscription.
fn subscribed_topics_in(metadata: &Bytes) -> Option<Vec<ByteString>> {
    const VERSION_BYTES: usize = 2;
    if metadata.len() < VERSION_BYTES {
        return None;
    }
    let mut reader = Reader::untrusted(metadata.slice(VERSION_BYTES..));
    let subscription = ConsumerProtocolSubscription::decode(&mut reader, 0).ok()?;
    Some(subscription.topics)
}
