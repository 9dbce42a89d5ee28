//! Transitions between roles.
//!
//! A changed epoch, leader or vote is written to `quorum-state` before any message reveals it.
//! Within an epoch a vote is never forgotten.
//!
//! Kafka: `QuorumState.initialize`, `QuorumState.transitionTo*`, `KafkaRaftClient.onBecome*`.

use ottla_protocol::raft_records::{KRaftVersionRecord, LeaderChangeMessage};
use ottla_types::{BrokerId, ErrorCode, LeaderEpoch};

use super::{LAST_EPOCH, Quorum};
use crate::epoch_state::{
    CandidateState, EpochElection, EpochState, FollowerState, ProspectiveState, ResignedState,
    UnattachedState,
};
use crate::leader_state::LeaderState;
use crate::planted::{self, Bug};
use crate::{
    ControlRecord, ControlRecordHistory, Effect, ElectionState, Node, ReplicaKey, VoterEndpoint,
};

impl Quorum {
    /// Starts in the role in which the node stopped, or in a role that is safe after it.
    pub(super) fn start(&mut self) {
        let found = self.persisted.take();
        let election = found.unwrap_or_else(ElectionState::initial);
        let local = self.local.key;
        let election_deadline_ms = self.now_ms + self.random_election_timeout_ms();
        let unattached = |leader, voted| {
            EpochState::Unattached(UnattachedState {
                leader,
                voted,
                election_deadline_ms,
            })
        };
        self.state = if election.epoch < self.log.last_epoch() {
            // The file was lost or is older than the log: its leader and vote are void.
            unattached(None, None)
        } else if election.leader == Some(local.id) {
            // It voted for itself in this epoch and may have lost records it appended: it neither
            // leads nor votes in it again.
            self.resigned(Vec::new(), election_deadline_ms)
        } else if election.voted.is_some_and(|voted| {
            voted.id == local.id
                && (voted.directory_id.is_none() || voted.directory_id == local.directory_id)
        }) && self.is_voter()
        {
            EpochState::Candidate(CandidateState {
                election: EpochElection::new(self.voters(), local.id),
                election_deadline_ms,
            })
        } else if let Some(leader) = election.leader {
            let endpoints = self.voters().endpoints(leader).to_vec();
            match Node::at(leader, &endpoints, &self.listener_name) {
                Some(_) => self.following(leader, endpoints, election.voted),
                // The leader is not a known voter: it must be looked for.
                None => unattached(Some(leader), election.voted),
            }
        } else {
            unattached(None, election.voted)
        };
        if planted::has(Bug::LeadOnAfterRestart) && matches!(self.state, EpochState::Resigned(_)) {
            self.state = EpochState::Candidate(CandidateState {
                election: EpochElection::new(self.voters(), local.id),
                election_deadline_ms,
            });
        }
        self.persist();
        let is_only_voter = self.voters().is_only_voter(local);
        match &self.state {
            EpochState::Candidate(_) => self.on_become_candidate(),
            _ if is_only_voter => self.transition_to_prospective(),
            _ => self.announce_leader(),
        }
    }

    pub(super) fn random_election_timeout_ms(&mut self) -> u64 {
        match self.config.election_timeout_ms {
            0 => 0,
            timeout_ms => timeout_ms + self.next_random() % timeout_ms,
        }
    }

    fn following(
        &self,
        leader: BrokerId,
        leader_endpoints: Vec<VoterEndpoint>,
        voted: Option<ReplicaKey>,
    ) -> EpochState {
        let deadline_ms = self.now_ms + self.config.fetch_timeout_ms;
        EpochState::Follower(FollowerState {
            leader,
            leader_endpoints,
            voted,
            fetch_deadline_ms: deadline_ms,
            // After a few fetches.
            update_voter_set_deadline_ms: deadline_ms,
            has_fetched_from_leader: false,
            has_updated_leader: false,
            fetching_snapshot: None,
        })
    }

    fn resigned(
        &self,
        preferred_successors: Vec<ReplicaKey>,
        election_deadline_ms: u64,
    ) -> EpochState {
        let mut unacked_voters = self.voters().ids();
        unacked_voters.remove(&self.local.key.id);
        EpochState::Resigned(ResignedState {
            unacked_voters,
            preferred_successors,
            election_deadline_ms,
        })
    }

    /// Writes `quorum-state` if it has changed. Two changes are written as one if no other node
    /// knows of the first.
    pub(super) fn persist(&mut self) {
        let election = ElectionState {
            epoch: self.epoch,
            leader: self.leader(),
            voted: self.state.voted(self.local.key),
            voters: self.voters().ids(),
        };
        if self.persisted.as_ref() == Some(&election) {
            return;
        }
        self.persisted = Some(election.clone());
        let effect = Effect::PersistElectionState(election);
        let known_here = |effect: &&mut Effect| !matches!(effect, Effect::ChangeLeader { .. });
        match self.effects.iter_mut().rev().find(known_here) {
            Some(last @ Effect::PersistElectionState(_)) => *last = effect,
            _ => self.effects.push(effect),
        }
    }

    /// Notifies the shell of the leader. Its own leadership is announced when it may serve.
    fn announce_leader(&mut self) {
        let (leader, epoch) = (self.leader(), self.epoch);
        if self.announced != (leader, epoch) {
            self.announced = (leader, epoch);
            self.effects.push(Effect::ChangeLeader { leader, epoch });
        }
    }

    /// Replaces the state and ends all work of a leader.
    fn enter(&mut self, epoch: LeaderEpoch, state: EpochState) {
        let before_epoch = std::mem::replace(&mut self.epoch, epoch);
        let before = std::mem::replace(&mut self.state, state);
        if let EpochState::Leader(leader) = before {
            self.high_watermark = self.high_watermark.max(leader.high_watermark);
            self.effects.push(Effect::DeactivateLeader(before_epoch));
            if let Some(change) = leader.pending_change {
                self.answer_voter_change(change, ErrorCode::NotLeaderOrFollower, None);
            }
        }
    }

    /// A newer epoch is known, or an election in this epoch has failed.
    pub(super) fn transition_to_unattached(
        &mut self,
        epoch: LeaderEpoch,
        leader: Option<BrokerId>,
    ) {
        let election_deadline_ms = if !self.is_voter() {
            u64::MAX
        } else {
            match &self.state {
                // The election timeout continues, so that a stream of newer epochs cannot postpone
                // this node's election forever.
                EpochState::Candidate(state) => state.election_deadline_ms,
                EpochState::Unattached(state) if state.election_deadline_ms != u64::MAX => {
                    state.election_deadline_ms
                }
                EpochState::Resigned(state) => state.election_deadline_ms,
                EpochState::Prospective(state) if !state.election.is_vote_rejected() => {
                    state.election_deadline_ms
                }
                _ => self.now_ms + self.random_election_timeout_ms(),
            }
        };
        let voted = if epoch == self.epoch {
            self.state.voted(self.local.key)
        } else {
            None
        };
        let state = EpochState::Unattached(UnattachedState {
            leader,
            voted,
            election_deadline_ms,
        });
        self.enter(epoch, state);
        self.persist();
        self.announce_leader();
        self.requests.reset_all();
        self.refuse_delayed_fetches();
    }

    /// Follows a leader with known endpoints. Refuses and reports an impossible leader.
    pub(super) fn transition_to_follower(
        &mut self,
        from: BrokerId,
        epoch: LeaderEpoch,
        leader: BrokerId,
        endpoints: Vec<VoterEndpoint>,
    ) {
        let is_known = epoch == self.epoch
            && (self.is_leader()
                || matches!(&self.state, EpochState::Follower(state)
                    if state.leader_endpoints.len() >= endpoints.len()));
        let node = Node::at(leader, &endpoints, &self.listener_name);
        if leader == self.local.key.id || epoch < self.epoch || is_known || node.is_none() {
            self.report(from, "names a leader that cannot be followed");
            return;
        }
        let voted = if epoch == self.epoch {
            self.state.voted(self.local.key)
        } else {
            None
        };
        let state = self.following(leader, endpoints, voted);
        self.enter(epoch, state);
        self.persist();
        self.announce_leader();
        self.requests.reset_all();
        self.refuse_delayed_fetches();
    }

    /// Starts a pre-vote. No persistent state changes.
    pub(super) fn transition_to_prospective(&mut self) {
        let state = EpochState::Prospective(ProspectiveState {
            leader: self.leader(),
            leader_endpoints: self.leader_endpoints().to_vec(),
            voted: self.state.voted(self.local.key),
            election: EpochElection::new(self.voters(), self.local.key.id),
            election_deadline_ms: self.now_ms + self.random_election_timeout_ms(),
        });
        self.enter(self.epoch, state);
        self.transition_forward();
        if matches!(self.state, EpochState::Prospective(_)) {
            self.requests.reset_all();
        }
    }

    /// From prospective to candidate, or from candidate to leader, once a majority agrees.
    pub(super) fn transition_forward(&mut self) {
        match &self.state {
            EpochState::Prospective(state) if state.election.is_vote_granted() => {
                self.transition_to_candidate();
            }
            EpochState::Candidate(state) if state.election.is_vote_granted() => {
                let granting_voters = state.election.granting_voters();
                self.become_leader(granting_voters);
            }
            _ => {}
        }
    }

    pub(super) fn transition_to_candidate(&mut self) {
        if self.epoch >= LAST_EPOCH {
            self.report(self.local.key.id, "there is no epoch left to lead");
            return;
        }
        let epoch = LeaderEpoch(self.epoch.value() + 1);
        let state = EpochState::Candidate(CandidateState {
            election: EpochElection::new(self.voters(), self.local.key.id),
            election_deadline_ms: self.now_ms + self.random_election_timeout_ms(),
        });
        self.enter(epoch, state);
        if !planted::has(Bug::CandidateIsNotPersisted) {
            self.persist();
        }
        self.on_become_candidate();
    }

    fn on_become_candidate(&mut self) {
        self.transition_forward();
        if matches!(self.state, EpochState::Candidate(_)) {
            self.announce_leader();
            self.requests.reset_all();
        }
    }

    fn become_leader(&mut self, granting_voters: std::collections::BTreeSet<BrokerId>) {
        let start_offset = self.log.end_offset();
        let leader = LeaderState::new(
            self.local.clone(),
            start_offset,
            self.voters(),
            self.kraft_version(),
            granting_voters,
            self.config.fetch_timeout_ms,
            self.now_ms,
        );
        let granting_voters = leader.granting_voters.clone();
        self.enter(self.epoch, EpochState::Leader(Box::new(leader)));
        self.persist();
        self.announced = (self.leader(), self.epoch);
        let records = self.start_of_epoch_records(&granting_voters);
        self.log.assign_epoch(self.epoch);
        self.effects.push(Effect::StartEpoch {
            epoch: self.epoch,
            start_offset,
            records: records.clone(),
        });
        self.on_control_records_appended(&records);
        self.requests.reset_all();
    }

    /// The leader's first batch: the leader, and the voters if the log lacks them or this node's
    /// endpoints changed.
    fn start_of_epoch_records(
        &self,
        granting_voters: &std::collections::BTreeSet<BrokerId>,
    ) -> Vec<ControlRecord> {
        let listed = |ids: &std::collections::BTreeSet<BrokerId>| {
            ids.iter()
                .map(|&id| ReplicaKey::to_leader_change_voter(id))
                .collect()
        };
        let mut records = vec![ControlRecord::LeaderChange(LeaderChangeMessage {
            version: 0,
            leader_id: self.local.key.id.value(),
            voters: listed(&self.voters().ids()),
            granting_voters: listed(granting_voters),
            ..Default::default()
        })];
        if !self.kraft_version().is_reconfig_supported() {
            return records;
        }
        let are_voters_in_log = self
            .control
            .last_voters_offset()
            .is_some_and(|offset| offset != ControlRecordHistory::BOOTSTRAP_OFFSET);
        if are_voters_in_log && !self.voters().needs_update(&self.local) {
            return records;
        }
        let voters = self.voters().updated(self.local.clone());
        let voters = voters.unwrap_or_else(|| self.voters().clone());
        records.push(ControlRecord::KRaftVersion(KRaftVersionRecord {
            version: 0,
            kraft_version: self.kraft_version().feature_level(),
            ..Default::default()
        }));
        records.push(ControlRecord::Voters(voters.to_record()));
        records
    }

    /// The leader resigns: no majority fetches, it was asked to, or it is no longer a voter.
    pub(super) fn transition_to_resigned(&mut self, preferred_successors: Vec<ReplicaKey>) {
        let election_deadline_ms = self.now_ms + self.random_election_timeout_ms();
        let state = self.resigned(preferred_successors, election_deadline_ms);
        self.enter(self.epoch, state);
        self.refuse_delayed_fetches();
        self.requests.reset_all();
    }
}
