//! Rebalances of classic groups: members rejoin, the next generation starts with the members that
//! have joined, and the others are removed.
//!
//! The phases are the group's states. `Empty`, `Stable` or `CompletingRebalance` →
//! `prepare_rebalance` → `PreparingRebalance` → `complete_join` → `CompletingRebalance` (or
//! `Empty`) → the leader's SyncGroup (`sync.rs`) → `Stable`. Source:
//! `GroupMetadataManager.prepareRebalance`, `completeClassicGroupJoin` and their callees.

use bytes::Bytes;
use bytestring::ByteString;
use ottla_protocol::messages::JoinGroupResponse;
use ottla_types::ErrorCode;

use super::classic_group::{ClassicGroup, ClassicGroupState, InitialDelay};
use super::effects::{Context, Deferred, Effects};
use super::outcome::TimerKey;
use super::record::CoordinatorRecord;

impl ClassicGroup {
    /// Called for a group that was loaded. Each member has one session timeout to send a heartbeat.
    pub(super) fn on_loaded(&mut self, cx: Context<'_>, effects: &mut Effects) {
        for member in self.members() {
            effects.set_timer(
                self.session_timer(&member.member_id),
                member.session_timeout_ms,
            );
        }
        if self.num_members() > max_size(cx) && self.may_rebalance() {
            // The size limit was lowered while the broker was down. Members beyond it are refused
            // when they rejoin.
            self.prepare_rebalance(cx, effects);
        }
    }

    /// Called when the log has refused the records with which another kind of group replaced this
    /// one, or with which it was deleted. The timers of its rebalance were cancelled, and those of
    /// its members may have expired without an effect.
    pub(super) fn on_restored(&mut self, effects: &mut Effects) {
        // Nothing would remove them. If they are alive, they join again without a member ID.
        self.clear_pending_join_members();
        self.keep_sessions(effects);
        match self.state() {
            ClassicGroupState::Empty => {}
            ClassicGroupState::PreparingRebalance => {
                let after_ms = match self.initial_delay {
                    Some(delay) => delay.delay_ms,
                    None => self.rebalance_timeout_ms(),
                };
                effects.set_timer_if_absent(self.join_timer(), after_ms);
            }
            ClassicGroupState::CompletingRebalance | ClassicGroupState::Stable => {
                if !self.has_received_sync_from_all_members() {
                    effects.set_timer_if_absent(self.sync_timer(), self.rebalance_timeout_ms());
                }
            }
        }
    }

    /// Gives each member without a session timer one session timeout to send a heartbeat. A timer
    /// that expires while a request of its member is parked has no effect, and is not set again
    /// before that request is answered.
    pub(super) fn keep_sessions(&self, effects: &mut Effects) {
        for member in self.members() {
            effects.set_timer_if_absent(
                self.session_timer(&member.member_id),
                member.session_timeout_ms,
            );
        }
    }

    /// Starts a rebalance if there is none. Otherwise completes it if no other member has to join.
    pub(super) fn rebalance_or_complete_join(&mut self, cx: Context<'_>, effects: &mut Effects) {
        if self.may_rebalance() {
            self.prepare_rebalance(cx, effects);
        } else {
            self.complete_join_if_all_joined(cx, effects);
        }
    }

    /// Completes the join phase early if all have joined, unless it is in the initial delay of a
    /// first rebalance.
    pub(super) fn complete_join_if_all_joined(&mut self, cx: Context<'_>, effects: &mut Effects) {
        let is_waiting = self.is_in(ClassicGroupState::PreparingRebalance)
            && self.previous_state() != Some(ClassicGroupState::Empty);
        if is_waiting && self.have_all_members_joined() {
            self.complete_join(cx, effects);
        }
    }

    /// Makes all members rejoin.
    pub(super) fn prepare_rebalance(&mut self, cx: Context<'_>, effects: &mut Effects) {
        if self.is_in(ClassicGroupState::CompletingRebalance) {
            // Members that wait for an assignment of this generation never get one.
            self.refuse_assignment(ErrorCode::RebalanceInProgress, effects);
        }
        self.clear_pending_sync_members();
        effects.cancel_timer(self.sync_timer());

        let is_initial = self.is_in(ClassicGroupState::Empty);
        if is_initial {
            // The members of a new group join one after the other. A short delay for all of them is
            // cheaper than a rebalance for each.
            let delay_ms = cx.config.group_initial_rebalance_delay_ms;
            let remaining_ms = self.rebalance_timeout_ms().saturating_sub(delay_ms).max(0);
            self.initial_delay = Some(InitialDelay {
                delay_ms,
                remaining_ms,
            });
            effects.set_timer(self.join_timer(), delay_ms);
        }
        self.transition_to(ClassicGroupState::PreparingRebalance, cx.now_ms);
        if is_initial {
            return;
        }
        if self.have_all_members_joined() {
            self.complete_join(cx, effects);
        } else {
            self.wait_for_members(effects);
        }
    }

    /// The join timer has expired.
    pub(super) fn on_join_timeout(&mut self, cx: Context<'_>, effects: &mut Effects) {
        if !self.is_in(ClassicGroupState::PreparingRebalance) {
            return;
        }
        match self.initial_delay {
            Some(InitialDelay {
                delay_ms,
                remaining_ms,
            }) if self.new_member_added && remaining_ms != 0 => {
                // Another member joined during the delay, and more may follow.
                self.new_member_added = false;
                let next_delay_ms = cx.config.group_initial_rebalance_delay_ms.min(remaining_ms);
                self.initial_delay = Some(InitialDelay {
                    delay_ms: next_delay_ms,
                    remaining_ms: remaining_ms.saturating_sub(delay_ms).max(0),
                });
                effects.set_timer(self.join_timer(), next_delay_ms);
            }
            _ => self.complete_join(cx, effects),
        }
    }

    /// Starts the next generation with the members that have joined.
    pub(super) fn complete_join(&mut self, cx: Context<'_>, effects: &mut Effects) {
        self.initial_delay = None;
        effects.cancel_timer(self.join_timer());
        self.drop_dynamic_members_yet_to_join(effects);

        let somebody_joined = self.elect_joined_leader();
        if !somebody_joined && self.num_members() > 0 {
            // Only static members are left and none has joined. They stay until their sessions
            // expire.
            self.wait_for_members(effects);
            return;
        }
        self.init_next_generation(cx.now_ms);
        if self.is_in(ClassicGroupState::Empty) {
            let record = CoordinatorRecord::group_metadata(self, |_| Bytes::new());
            effects.write(vec![record], Deferred::Nothing);
        } else {
            self.announce_generation(effects);
        }
    }

    /// Answers every JoinGroup with the new generation, and waits for the SyncGroup of each member.
    fn announce_generation(&mut self, effects: &mut Effects) {
        let member_ids: Vec<ByteString> = self
            .members()
            .map(|member| member.member_id.clone())
            .collect();
        for member_id in member_ids {
            let response = self.generation_for(&member_id);
            if let Some(to) = self.take_awaiting_join(&member_id) {
                effects.reply(to, response);
            }
            let session_timer = self.session_timer(&member_id);
            if let Some(member) = self.member_mut(&member_id) {
                member.is_new = false;
                effects.set_timer(session_timer, member.session_timeout_ms);
            }
            self.add_pending_sync_member(member_id);
        }
        effects.set_timer(self.sync_timer(), self.rebalance_timeout_ms());
    }

    /// The JoinGroup response for a member of the current generation. Only the leader gets the list
    /// of members.
    pub(super) fn generation_for(&self, member_id: &ByteString) -> JoinGroupResponse {
        let members = if self.is_leader(member_id) {
            self.members_for_leader()
        } else {
            Vec::new()
        };
        JoinGroupResponse {
            generation_id: self.generation_id(),
            protocol_type: self.protocol_type().cloned(),
            protocol_name: self.protocol_name().cloned(),
            leader: self.leader_id().cloned().unwrap_or_default(),
            member_id: member_id.clone(),
            members,
            ..Default::default()
        }
    }

    /// The sync timer has expired.
    pub(super) fn on_sync_timeout(&mut self, cx: Context<'_>, effects: &mut Effects) {
        let is_after_join = matches!(
            self.state(),
            ClassicGroupState::CompletingRebalance | ClassicGroupState::Stable
        );
        if !is_after_join || self.has_received_sync_from_all_members() {
            return;
        }
        for member_id in self.members_yet_to_sync() {
            self.drop_member(&member_id, effects);
            effects.cancel_timer(self.session_timer(&member_id));
        }
        self.prepare_rebalance(cx, effects);
    }

    /// A member's session has expired.
    pub(super) fn on_session_expired(
        &mut self,
        member_id: &ByteString,
        cx: Context<'_>,
        effects: &mut Effects,
    ) {
        if self.is_pending(member_id) {
            self.remove(member_id);
            self.complete_join_without_member(cx, effects);
            return;
        }
        let has_failed = self
            .member(member_id)
            .is_some_and(|member| !member.has_satisfied_heartbeat());
        if !has_failed {
            return;
        }
        self.drop_member(member_id, effects);
        match self.state() {
            ClassicGroupState::Stable | ClassicGroupState::CompletingRebalance => {
                self.rebalance_or_complete_join(cx, effects);
            }
            _ => self.complete_join_without_member(cx, effects),
        }
    }

    /// Continues without a member that is gone. Unlike a joining member, this can also end the
    /// initial delay of a first rebalance.
    fn complete_join_without_member(&mut self, cx: Context<'_>, effects: &mut Effects) {
        if self.is_in(ClassicGroupState::PreparingRebalance) && self.have_all_members_joined() {
            self.complete_join(cx, effects);
        }
    }

    /// Removes a member and answers its parked requests, so that a client that is still alive
    /// rejoins.
    pub(super) fn drop_member(&mut self, member_id: &str, effects: &mut Effects) {
        let Some(member) = self.remove(member_id) else {
            return;
        };
        if let Some(to) = member.awaiting_join {
            effects.refuse_join(to, &ByteString::new(), ErrorCode::UnknownMemberId);
        }
        if let Some(to) = member.awaiting_sync {
            effects.refuse(to, ErrorCode::UnknownMemberId);
        }
    }

    fn drop_dynamic_members_yet_to_join(&mut self, effects: &mut Effects) {
        let late: Vec<ByteString> = self
            .members()
            .filter(|member| member.awaiting_join.is_none() && !member.is_static())
            .map(|member| member.member_id.clone())
            .collect();
        for member_id in late {
            self.drop_member(&member_id, effects);
            effects.cancel_timer(self.session_timer(&member_id));
        }
    }

    /// Clears the assignments, and answers every parked SyncGroup with `error`.
    pub(super) fn refuse_assignment(&mut self, error: ErrorCode, effects: &mut Effects) {
        let group_id = self.group_id().clone();
        for member in self.members_mut() {
            member.assignment = Bytes::new();
            if let Some(to) = member.awaiting_sync.take() {
                effects.refuse(to, error);
                // A session timeout is ignored while a request is parked, so the session starts
                // again here.
                let key = TimerKey::session(&group_id, &member.member_id);
                effects.set_timer(key, member.session_timeout_ms);
            }
        }
    }

    fn wait_for_members(&mut self, effects: &mut Effects) {
        self.initial_delay = None;
        effects.set_timer(self.join_timer(), self.rebalance_timeout_ms());
    }

    pub(super) fn session_timer(&self, member_id: &ByteString) -> TimerKey {
        TimerKey::session(self.group_id(), member_id)
    }

    pub(super) fn join_timer(&self) -> TimerKey {
        TimerKey::Join {
            group_id: self.group_id().clone(),
        }
    }

    pub(super) fn sync_timer(&self) -> TimerKey {
        TimerKey::Sync {
            group_id: self.group_id().clone(),
        }
    }
}

pub(super) fn max_size(cx: Context<'_>) -> usize {
    usize::try_from(cx.config.group_max_size).unwrap_or(0)
}
