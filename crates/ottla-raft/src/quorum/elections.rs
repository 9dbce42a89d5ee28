//! Votes, and the leader's messages at the start and the end of its epoch.
//!
//! Kafka: `KafkaRaftClient.handleVote*`, `handleBeginQuorumEpoch*`, `handleEndQuorumEpoch*`,
//! `maybeHandleCommonResponse`, `maybeTransition`.

use ottla_types::{BrokerId, ErrorCode, LeaderEpoch, Offset};

use super::{LAST_EPOCH, Quorum};
use crate::epoch_state::{EpochElection, EpochState};
use crate::planted::{self, Bug};
use crate::{
    BeginQuorumEpochRequest, CurrentLeader, EndQuorumEpochRequest, QuorumEpochResponse, ReplicaKey,
    Role, VoteRequest, VoteResponse, VoterEndpoint,
};

impl Quorum {
    // Requests

    pub(super) fn handle_vote_request(&mut self, request: VoteRequest) -> VoteResponse {
        let (epoch, candidate, log_end) = (request.epoch, request.candidate, request.log_end);
        // A candidate has incremented its epoch above any epoch in its log; a prospective candidate
        // has not.
        let is_illegal_epoch = if request.pre_vote {
            log_end.epoch > epoch
        } else {
            log_end.epoch >= epoch
        };
        if log_end.offset < Offset::ZERO || log_end.epoch < LeaderEpoch(0) || is_illegal_epoch {
            return self.vote_response(ErrorCode::InvalidRequest, false);
        }
        if let Err(error) = self.validate_voter_only_request(candidate.id, epoch) {
            return self.vote_response(error, false);
        }
        if epoch > self.epoch {
            self.transition_to_unattached(epoch, None);
        }
        if !self.is_meant_for_this_node(request.voter) {
            return self.vote_response(ErrorCode::InvalidVoterKey, false);
        }
        let is_log_up_to_date =
            log_end.is_up_to_date_with(self.log.end()) || planted::has(Bug::VoteForAnyLog);
        let is_granted = candidate.id != self.local.key.id
            && self
                .state
                .can_grant_vote(candidate, is_log_up_to_date, request.pre_vote);
        if is_granted && !request.pre_vote {
            self.record_own_vote(candidate);
        }
        self.vote_response(ErrorCode::None, is_granted)
    }

    /// The vote is persisted before the response is sent, and the election timeout restarts,
    /// because the candidate is as good as this node.
    fn record_own_vote(&mut self, candidate: ReplicaKey) {
        let deadline_ms = self.now_ms + self.random_election_timeout_ms();
        let is_voter = self.is_voter();
        let election = EpochElection::new(self.voters(), self.local.key.id);
        match &mut self.state {
            EpochState::Unattached(state) if state.voted.is_none() => {
                state.voted = Some(candidate);
                if is_voter {
                    state.election_deadline_ms = deadline_ms;
                }
            }
            EpochState::Prospective(state) if state.voted.is_none() => {
                state.voted = Some(candidate);
                state.election = election;
                state.election_deadline_ms = deadline_ms;
            }
            _ => return,
        }
        if !planted::has(Bug::VoteIsNotPersisted) {
            self.persist();
        }
    }

    fn vote_response(&self, error: ErrorCode, is_granted: bool) -> VoteResponse {
        VoteResponse {
            error,
            current_leader: self.current_leader(),
            is_granted,
        }
    }

    pub(super) fn handle_begin_quorum_epoch_request(
        &mut self,
        request: BeginQuorumEpochRequest,
    ) -> QuorumEpochResponse {
        let announced = (request.leader, request.epoch);
        if let Err(error) = self.follow_announced(announced, request.endpoints) {
            return self.epoch_response(error);
        }
        if self.is_meant_for_this_node(request.voter) {
            self.epoch_response(ErrorCode::None)
        } else {
            self.epoch_response(ErrorCode::InvalidVoterKey)
        }
    }

    pub(super) fn handle_end_quorum_epoch_request(
        &mut self,
        request: EndQuorumEpochRequest,
    ) -> QuorumEpochResponse {
        let announced = (request.leader, request.epoch);
        if let Err(error) = self.follow_announced(announced, request.endpoints) {
            return self.epoch_response(error);
        }
        let backoff_ms = self.end_epoch_election_backoff_ms(&request.preferred_successors);
        let deadline_ms = self.now_ms + backoff_ms;
        if let EpochState::Follower(state) = &mut self.state
            && state.leader == request.leader
        {
            state.fetch_deadline_ms = deadline_ms;
        }
        self.epoch_response(ErrorCode::None)
    }

    /// The first successor starts at once, each further one later, and voters not listed last, so
    /// that the voter with the longest log is likely to win.
    fn end_epoch_election_backoff_ms(&self, successors: &[ReplicaKey]) -> u64 {
        let max_ms = self.config.election_backoff_max_ms;
        let local = self.local.key;
        let position = successors.iter().position(|key| {
            key.id == local.id
                && (key.directory_id.is_none() || key.directory_id == local.directory_id)
        });
        match position {
            Some(0) => 0,
            Some(position) => {
                // Shifts beyond the width saturate.
                let shift = |by: usize| u32::try_from(by).unwrap_or(u32::MAX);
                let base_ms = max_ms.checked_shr(shift(successors.len() - 1)).unwrap_or(0);
                let doublings = shift(position - 1).min(32);
                base_ms.saturating_mul(1 << doublings).min(max_ms)
            }
            None => max_ms,
        }
    }

    pub(super) fn epoch_response(&self, error: ErrorCode) -> QuorumEpochResponse {
        QuorumEpochResponse {
            error,
            current_leader: self.current_leader(),
        }
    }

    /// Follows the sender of a request that only leaders send to voters.
    fn follow_announced(
        &mut self,
        (leader, epoch): (BrokerId, LeaderEpoch),
        endpoints: Vec<VoterEndpoint>,
    ) -> Result<(), ErrorCode> {
        self.validate_voter_only_request(leader, epoch)?;
        let named = self.with_known_endpoints(CurrentLeader {
            leader: Some(leader),
            epoch,
            endpoints,
        });
        self.transition_to_leader_of(leader, named);
        Ok(())
    }

    fn validate_voter_only_request(
        &self,
        remote: BrokerId,
        epoch: LeaderEpoch,
    ) -> Result<(), ErrorCode> {
        if epoch < self.epoch {
            Err(ErrorCode::FencedLeaderEpoch)
        } else if remote.value() < 0 || epoch > LAST_EPOCH {
            Err(ErrorCode::InvalidRequest)
        } else {
            Ok(())
        }
    }

    /// Whether the request is meant for this node with this directory.
    fn is_meant_for_this_node(&self, key: Option<ReplicaKey>) -> bool {
        let local = self.local.key;
        key.is_none_or(|key| {
            key.id == local.id
                && (key.directory_id.is_none() || key.directory_id == local.directory_id)
        })
    }

    // Responses. Each handler returns whether the next request may be sent to the node at once.

    pub(super) fn handle_vote_response(&mut self, from: BrokerId, response: VoteResponse) -> bool {
        if let Some(handled) =
            self.handle_common_response(from, response.error, response.current_leader)
        {
            return handled;
        }
        if response.error != ErrorCode::None {
            return false;
        }
        let is_granted = response.is_granted;
        match &mut self.state {
            EpochState::Prospective(state) => {
                state.election.record_vote(from, is_granted);
                if state.election.is_vote_rejected() {
                    self.on_pre_vote_lost();
                } else {
                    self.transition_forward();
                }
            }
            EpochState::Candidate(state) => {
                state.election.record_vote(from, is_granted);
                // After a lost election the node waits; the next starts with a pre-vote.
                self.transition_forward();
            }
            _ => {}
        }
        true
    }

    pub(super) fn handle_begin_quorum_epoch_response(
        &mut self,
        from: BrokerId,
        response: QuorumEpochResponse,
    ) -> bool {
        self.handle_common_response(from, response.error, response.current_leader)
            .unwrap_or(response.error == ErrorCode::None)
    }

    pub(super) fn handle_end_quorum_epoch_response(
        &mut self,
        from: BrokerId,
        response: QuorumEpochResponse,
    ) -> bool {
        if let Some(handled) =
            self.handle_common_response(from, response.error, response.current_leader)
        {
            return handled;
        }
        if response.error != ErrorCode::None {
            return false;
        }
        if let EpochState::Resigned(state) = &mut self.state {
            state.unacked_voters.remove(&from);
        }
        true
    }

    /// Handles epoch and leader, which every response contains. `None` if the caller continues;
    /// otherwise whether the response was handled or the node backs off.
    pub(super) fn handle_common_response(
        &mut self,
        from: BrokerId,
        error: ErrorCode,
        leader: CurrentLeader,
    ) -> Option<bool> {
        let leader = self.with_known_endpoints(leader);
        if leader.epoch > LAST_EPOCH {
            self.report(from, "names an epoch without a successor");
            return Some(false);
        }
        if leader.epoch < self.epoch || error == ErrorCode::UnknownLeaderEpoch {
            return Some(true);
        }
        if leader.epoch > self.epoch
            || error == ErrorCode::FencedLeaderEpoch
            || error == ErrorCode::NotLeaderOrFollower
        {
            return Some(self.transition_to_leader_of(from, leader));
        }
        // At start, only the ID of the leader may be known.
        let is_looking = self.leader().is_none() || matches!(self.state, EpochState::Unattached(_));
        if let Some(id) = leader.leader
            && is_looking
        {
            self.transition_to_follower(from, leader.epoch, id, leader.endpoints);
            // A Fetch that looked for the leader may have received its first records.
            return match error {
                ErrorCode::None if self.role() == Role::Follower => None,
                _ => Some(true),
            };
        }
        match error {
            ErrorCode::BrokerNotAvailable => Some(false),
            ErrorCode::InvalidVoterKey => Some(true),
            ErrorCode::InvalidRequest => {
                self.report(from, "calls a request invalid");
                Some(false)
            }
            _ => None,
        }
    }

    /// Follows a newer epoch and leader. Returns whether they can be valid.
    fn transition_to_leader_of(&mut self, from: BrokerId, named: CurrentLeader) -> bool {
        let is_consistent = match (named.leader, self.leader()) {
            (Some(leader), _) if leader == self.local.key.id => {
                self.is_leader() && named.epoch == self.epoch
            }
            (Some(leader), Some(known)) => named.epoch != self.epoch || leader == known,
            _ => true,
        };
        if !is_consistent {
            self.report(from, "names another leader of the same epoch");
            return false;
        }
        match named.leader {
            _ if named.epoch < self.epoch => {}
            None if named.epoch > self.epoch => self.transition_to_unattached(named.epoch, None),
            None => {}
            Some(leader) if named.epoch > self.epoch => {
                if named.endpoints.is_empty() {
                    // The epoch is new nevertheless; the leader will send its endpoints.
                    self.transition_to_unattached(named.epoch, None);
                } else {
                    self.transition_to_follower(from, named.epoch, leader, named.endpoints);
                }
            }
            Some(leader) => {
                let is_news = self.leader().is_none()
                    || named.endpoints.len() > self.leader_endpoints().len();
                let is_reachable = !named.endpoints.is_empty();
                if is_news && is_reachable && leader != self.local.key.id {
                    self.transition_to_follower(from, named.epoch, leader, named.endpoints);
                }
            }
        }
        true
    }

    /// Adds the endpoints of the voter set for a leader that was named without any, as by nodes
    /// without reconfiguration.
    fn with_known_endpoints(&self, mut leader: CurrentLeader) -> CurrentLeader {
        if let Some(id) = leader.leader
            && leader.endpoints.is_empty()
        {
            leader.endpoints = self.voters().endpoints(id).to_vec();
        }
        leader
    }
}
