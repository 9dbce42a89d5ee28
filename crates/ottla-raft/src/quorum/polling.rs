//! Time-driven actions of the roles: due requests and timeouts.
//!
//! Every function returns the time until something is due, in milliseconds.
//!
//! Kafka: `KafkaRaftClient.poll*`.

use ottla_types::BrokerId;

use super::Quorum;
use crate::epoch_state::EpochState;
use crate::message::FetchSnapshotRequest;
use crate::{
    AddVoterRequest, BeginQuorumEpochRequest, Effect, EndQuorumEpochRequest, FetchRequest, Node,
    RemoveVoterRequest, ReplicaKey, Request, UpdateVoterRequest, VoteRequest,
};

/// Maximum time that the leader may let a Fetch wait, in milliseconds.
const MAX_FETCH_WAIT_MS: u64 = 500;
/// Maximum number of role changes per event: a single voter goes from unattached to leader in
/// three.
const MAX_TRANSITIONS: usize = 8;
const FOREVER: u64 = u64::MAX;

/// The result of a due request.
struct Sent {
    is_sent: bool,
    wait_ms: u64,
}

impl Quorum {
    pub(super) fn poll(&mut self) {
        self.expire_delayed_fetches();
        self.complete_shutdown();
        if self.is_shut_down {
            self.wake_at_ms = FOREVER;
            return;
        }
        let mut wait_ms = 0;
        for _ in 0..MAX_TRANSITIONS {
            let before = (self.role(), self.epoch);
            wait_ms = self.poll_role();
            if before == (self.role(), self.epoch) {
                break;
            }
            // The new role may have actions due.
            wait_ms = 0;
        }
        let next_fetch_ms = self
            .delayed_fetches
            .iter()
            .map(|fetch| fetch.deadline_ms)
            .min()
            .unwrap_or(FOREVER);
        self.wake_at_ms = self
            .now_ms
            .saturating_add(wait_ms.max(1))
            .min(next_fetch_ms)
            .min(self.shutdown_deadline_ms.unwrap_or(FOREVER));
    }

    fn poll_role(&mut self) -> u64 {
        match &self.state {
            EpochState::Leader(_) => self.poll_leader(),
            EpochState::Candidate(_) | EpochState::Prospective(_) => self.poll_nominee(),
            EpochState::Follower(_) if self.is_voter() => self.poll_follower_as_voter(),
            EpochState::Follower(_) => self.poll_follower_as_observer(),
            EpochState::Unattached(_) => self.poll_unattached(),
            EpochState::Resigned(_) => self.poll_resigned(),
        }
    }

    fn complete_shutdown(&mut self) {
        let Some(deadline_ms) = self.shutdown_deadline_ms else {
            return;
        };
        if self.is_shut_down {
            return;
        }
        let local = self.local.key;
        // No peer waits for a message of this node.
        let is_done = !self.is_voter()
            || self.voters().is_only_voter(local)
            || self.leader().is_some_and(|leader| leader != local.id);
        let timed_out = self.now_ms >= deadline_ms;
        if is_done || timed_out {
            self.is_shut_down = true;
            self.refuse_delayed_fetches();
            self.effects.push(Effect::CompleteShutdown {
                timed_out: !is_done,
            });
        }
    }

    pub(super) fn is_shutting_down(&self) -> bool {
        self.shutdown_deadline_ms.is_some()
    }

    fn remaining_ms(&self, deadline_ms: u64) -> u64 {
        match deadline_ms {
            FOREVER => FOREVER,
            _ => deadline_ms.saturating_sub(self.now_ms),
        }
    }

    // Roles

    fn poll_leader(&mut self) -> u64 {
        let now_ms = self.now_ms;
        let is_shutting_down = self.is_shutting_down();
        let Some(leader) = self.leader_state() else {
            return 0;
        };
        let check_quorum_ms = leader.check_quorum_deadline_ms();
        if is_shutting_down || leader.is_resign_requested || check_quorum_ms <= now_ms {
            let successors = leader.successors();
            self.transition_to_resigned(successors);
            return 0;
        }
        let change_ms = self.expire_pending_voter_change();
        let begin_ms = self.send_begin_quorum_epoch_requests();
        self.remaining_ms(check_quorum_ms)
            .min(self.remaining_ms(change_ms))
            .min(begin_ms)
    }

    fn send_begin_quorum_epoch_requests(&mut self) -> u64 {
        let now_ms = self.now_ms;
        if self.voters().is_only_voter(self.local.key) {
            // A single voter has no timers for other voters.
            return FOREVER;
        }
        let Some(leader) = self.leader_state() else {
            return 0;
        };
        let due_ms = leader.begin_quorum_epoch_deadline_ms;
        if due_ms > now_ms {
            return due_ms - now_ms;
        }
        let voters = leader.need_begin_quorum_epoch(now_ms);
        leader.reset_begin_quorum_epoch_timer(now_ms);
        let next_ms = leader.begin_quorum_epoch_deadline_ms - now_ms;
        let sent_ms = self.send_to_voters(voters, |quorum, voter| {
            Request::BeginQuorumEpoch(BeginQuorumEpochRequest {
                leader: quorum.local.key.id,
                epoch: quorum.epoch,
                endpoints: quorum.local.endpoints.clone(),
                voter: Some(voter),
            })
        });
        next_ms.min(sent_ms)
    }

    fn poll_nominee(&mut self) -> u64 {
        let (deadline_ms, is_rejected, voters) = match &self.state {
            EpochState::Prospective(state) => (
                state.election_deadline_ms,
                state.election.is_vote_rejected(),
                state.election.unrecorded_voters(),
            ),
            EpochState::Candidate(state) => (
                state.election_deadline_ms,
                state.election.is_vote_rejected(),
                state.election.unrecorded_voters(),
            ),
            _ => return 0,
        };
        // A stopping node finishes a running election, so that there is a leader.
        if !self.is_shutting_down() && deadline_ms <= self.now_ms {
            match self.state {
                EpochState::Candidate(_) if self.is_voter() => self.transition_to_prospective(),
                EpochState::Candidate(_) => {}
                _ => self.on_pre_vote_lost(),
            }
            return 0;
        }
        let mut wait_ms = self.remaining_ms(deadline_ms);
        if !is_rejected {
            let pre_vote = matches!(self.state, EpochState::Prospective(_));
            let sent_ms = self.send_to_voters(voters, |quorum, voter| {
                Request::Vote(VoteRequest {
                    epoch: quorum.epoch,
                    candidate: quorum.local.key,
                    voter: Some(voter),
                    log_end: quorum.log.end(),
                    pre_vote,
                })
            });
            wait_ms = wait_ms.min(sent_ms);
        }
        wait_ms
    }

    /// The pre-vote failed: returns to the known leader, or looks for one.
    pub(super) fn on_pre_vote_lost(&mut self) {
        let EpochState::Prospective(state) = &self.state else {
            return;
        };
        let leader = state.leader;
        let endpoints = state.leader_endpoints.clone();
        match leader {
            Some(leader) if Node::at(leader, &endpoints, &self.listener_name).is_some() => {
                self.transition_to_follower(leader, self.epoch, leader, endpoints);
            }
            _ => self.transition_to_unattached(self.epoch, leader),
        }
    }

    fn poll_follower_as_voter(&mut self) -> u64 {
        if self.is_shutting_down() {
            return FOREVER;
        }
        let EpochState::Follower(state) = &self.state else {
            return 0;
        };
        if state.fetch_deadline_ms <= self.now_ms {
            self.transition_to_prospective();
            return 0;
        }
        let fetch_deadline_ms = state.fetch_deadline_ms;
        let has_updated_leader = state.has_updated_leader;
        let wait_ms = if state.update_voter_set_deadline_ms <= self.now_ms {
            // With static voters, the leader learns directories and endpoints only from this
            // request, and needs them to upgrade kraft.version. Each new leader needs the request
            // again.
            let is_update_due = if self.kraft_version().is_reconfig_supported() {
                self.voters().needs_update(&self.local)
            } else {
                !has_updated_leader
            };
            if is_update_due {
                let request = Request::UpdateVoter(UpdateVoterRequest {
                    current_leader_epoch: self.epoch,
                    voter: self.local.clone(),
                });
                self.send_voter_change(request)
            } else {
                self.reset_update_voter_set_period();
                self.send_fetch_to_best_node()
            }
        } else {
            self.send_fetch_to_best_node()
        };
        wait_ms.min(self.remaining_ms(fetch_deadline_ms))
    }

    fn poll_follower_as_observer(&mut self) -> u64 {
        if self.is_shutting_down() {
            return FOREVER;
        }
        let EpochState::Follower(state) = &self.state else {
            return 0;
        };
        let is_join_due = self.kraft_version().is_reconfig_supported()
            && self.can_become_voter
            && self.config.auto_join
            && state.update_voter_set_deadline_ms <= self.now_ms;
        if !is_join_due {
            return self.send_fetch_to_best_node();
        }
        let request = match self.voters().voter(self.local.key.id) {
            // This node with its previous directory must be removed first.
            Some(old) => Request::RemoveVoter(RemoveVoterRequest { voter: old.key }),
            None => Request::AddVoter(AddVoterRequest {
                voter: self.local.key,
                endpoints: self.local.endpoints.clone(),
                // The leader commits the change with this node's fetches, which would be blocked by
                // waiting.
                ack_when_committed: false,
            }),
        };
        self.send_voter_change(request)
    }

    /// Sends a request about this voter to the leader, once per period.
    fn send_voter_change(&mut self, request: Request) -> u64 {
        let Some(leader) = self.leader_node() else {
            return FOREVER;
        };
        let sent = self.send(&leader, |_| request);
        if sent.is_sent {
            self.reset_update_voter_set_period();
        }
        sent.wait_ms
    }

    pub(super) fn reset_update_voter_set_period(&mut self) {
        let deadline_ms = self.now_ms + self.config.fetch_timeout_ms;
        if let Some(state) = self.follower_state() {
            state.update_voter_set_deadline_ms = deadline_ms;
        }
    }

    fn poll_unattached(&mut self) -> u64 {
        let EpochState::Unattached(state) = &self.state else {
            return 0;
        };
        let deadline_ms = state.election_deadline_ms;
        if !self.is_voter() {
            return self.send_fetch_to_any_bootstrap();
        }
        if self.is_shutting_down() {
            return FOREVER;
        }
        if deadline_ms <= self.now_ms {
            self.transition_to_prospective();
            return 0;
        }
        self.send_fetch_to_any_bootstrap()
            .min(self.remaining_ms(deadline_ms))
    }

    fn poll_resigned(&mut self) -> u64 {
        let EpochState::Resigned(state) = &self.state else {
            return 0;
        };
        let deadline_ms = state.election_deadline_ms;
        let preferred_successors = state.preferred_successors.clone();
        let voters = state
            .unacked_voters
            .iter()
            .map(|&id| ReplicaKey {
                id,
                directory_id: None,
            })
            .collect();
        let sent_ms = self.send_to_voters(voters, |quorum, _| {
            Request::EndQuorumEpoch(EndQuorumEpochRequest {
                leader: quorum.local.key.id,
                epoch: quorum.epoch,
                endpoints: quorum.local.endpoints.clone(),
                preferred_successors: preferred_successors.clone(),
            })
        });
        if self.is_shutting_down() {
            return sent_ms;
        }
        if deadline_ms <= self.now_ms {
            // In this epoch it would still count as the leader.
            if self.epoch < super::LAST_EPOCH {
                let next = ottla_types::LeaderEpoch(self.epoch.value() + 1);
                self.transition_to_unattached(next, None);
            }
            return 0;
        }
        self.remaining_ms(deadline_ms).min(sent_ms)
    }

    // Requests

    /// Sends a request if the node is ready.
    fn send(&mut self, to: &Node, request: impl FnOnce(&Quorum) -> Request) -> Sent {
        let now_ms = self.now_ms;
        let backoff_ms = self.requests.remaining_backoff_ms(to.id, now_ms);
        if backoff_ms > 0 {
            return Sent {
                is_sent: false,
                wait_ms: backoff_ms,
            };
        }
        let is_sent = self.requests.is_ready(to.id, now_ms);
        if is_sent {
            let request = request(self);
            let correlation_id = self.requests.on_request_sent(to.id, now_ms);
            self.effects.push(Effect::Send {
                to: to.clone(),
                correlation_id,
                request,
            });
        }
        Sent {
            is_sent,
            wait_ms: self.requests.remaining_request_ms(to.id, now_ms),
        }
    }

    /// Sends a request and returns how long to wait for the response; `None` if it could not be
    /// sent.
    pub(super) fn send_now(&mut self, to: &Node, request: Request) -> Option<u64> {
        let sent = self.send(to, |_| request);
        sent.is_sent.then_some(sent.wait_ms)
    }

    fn send_to_voters(
        &mut self,
        voters: Vec<ReplicaKey>,
        request: impl Fn(&Quorum, ReplicaKey) -> Request,
    ) -> u64 {
        let mut wait_ms = FOREVER;
        for voter in voters {
            let endpoints = self.voters().endpoints(voter.id);
            let Some(node) = Node::at(voter.id, endpoints, &self.listener_name) else {
                continue;
            };
            let sent = self.send(&node, |quorum| request(quorum, voter));
            wait_ms = wait_ms.min(sent.wait_ms);
        }
        wait_ms
    }

    fn fetch_request(&self) -> Request {
        Request::Fetch(FetchRequest {
            replica: self.local.key,
            current_leader_epoch: self.epoch,
            log_end: self.log.end(),
            high_watermark: self.high_watermark().unwrap_or(ottla_types::Offset(-1)),
            max_bytes: self.config.fetch_max_bytes,
            max_wait_ms: MAX_FETCH_WAIT_MS,
        })
    }

    fn send_fetch_to_any_bootstrap(&mut self) -> u64 {
        let start = self.next_random();
        match self
            .requests
            .find_ready_bootstrap_server(start, self.now_ms)
        {
            Some(node) => self.send(&node, Quorum::fetch_request).wait_ms,
            None => self
                .requests
                .backoff_before_available_bootstrap_server_ms(self.now_ms),
        }
    }

    /// Fetches from the leader, or from a bootstrap server while the leader does not respond, to
    /// find out whether there is another leader.
    fn send_fetch_to_best_node(&mut self) -> u64 {
        let EpochState::Follower(state) = &self.state else {
            return 0;
        };
        let fetch_deadline_ms = state.fetch_deadline_ms;
        let leader: BrokerId = state.leader;
        let now_ms = self.now_ms;
        let wait_ms = if self.requests.has_request_timed_out(leader, now_ms) {
            self.requests.reset(leader);
            self.send_fetch_to_any_bootstrap()
        } else if self.requests.is_backing_off(leader, now_ms) {
            self.send_fetch_to_any_bootstrap()
        } else if !self.requests.has_any_inflight_request(now_ms) {
            self.send_fetch_or_fetch_snapshot()
        } else {
            self.requests
                .backoff_before_available_bootstrap_server_ms(now_ms)
        };
        // An observer holds no elections: it continues when the next request is due.
        if self.is_voter() {
            wait_ms.min(self.remaining_ms(fetch_deadline_ms))
        } else {
            wait_ms
        }
    }

    fn send_fetch_or_fetch_snapshot(&mut self) -> u64 {
        let Some(leader) = self.leader_node() else {
            return FOREVER;
        };
        let EpochState::Follower(state) = &self.state else {
            return 0;
        };
        let request = match state.fetching_snapshot {
            Some(download) => Request::FetchSnapshot(FetchSnapshotRequest {
                replica: self.local.key,
                current_leader_epoch: self.epoch,
                snapshot: download.snapshot,
                position: download.position,
                max_bytes: self.config.fetch_snapshot_max_bytes,
            }),
            None => self.fetch_request(),
        };
        self.send(&leader, |_| request).wait_ms
    }
}
