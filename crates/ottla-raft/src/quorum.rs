//! The state machine of one node of the quorum.
//!
//! Owns the election state, the role, the voter set, the high watermark, and a mirror of the log.
//! `step` is the only entry: it handles the event, then takes the actions that are due for the
//! role, as Kafka's loop does before it waits for the next message.
//!
//! Invariants:
//! 1. No vote, candidacy or leadership is acted on before it is in `quorum-state`: the effect that
//!    writes it precedes the effect that sends anything.
//! 2. The leader's high watermark never exceeds the offset that a majority has flushed, and does
//!    not advance before that offset includes a record of the leader's own epoch. It then covers
//!    all records that earlier leaders committed.
//! 3. A voter's Fetch vouches for everything before its offset: fetched records are flushed before
//!    it is sent.
//! 4. A peer's message can be refused, and is then reported; it never undoes a commit and never
//!    ends the node. (Kafka ends the process.)
//!
//! Kafka: `KafkaRaftClient`, `QuorumState`.

mod transitions;

mod polling;

mod elections;
mod follower;
mod leader;
mod voter_changes;

use bytestring::ByteString;
use ottla_types::{BrokerId, ErrorCode, LeaderEpoch, Offset};

use crate::epoch_state::{EpochState, FollowerState, UnattachedState};
use crate::leader_state::{DelayedFetch, LeaderState, ReplicaState};
use crate::request_manager::RequestManager;
use crate::{
    ControlRecordHistory, CurrentLeader, Effect, ElectionState, Event, KRaftVersion, LogEnd,
    LogState, Moment, Node, QuorumConfig, QuorumError, QuorumOptions, ReplicaKey, Request,
    RequestId, Response, Role, Voter, VoterEndpoint, VoterSet,
};

/// The last epoch that a node may lead: one more must fit, and `quorum-state` refuses the maximum.
const LAST_EPOCH: LeaderEpoch = LeaderEpoch(i32::MAX - 1);

/// One node of the quorum.
#[derive(Clone, Debug)]
pub struct Quorum {
    config: QuorumConfig,
    local: Voter,
    can_become_voter: bool,
    listener_name: ByteString,
    epoch: LeaderEpoch,
    state: EpochState,
    /// The high watermark known here, exclusive. Kept across roles.
    high_watermark: Option<Offset>,
    log: LogState,
    control: ControlRecordHistory,
    requests: RequestManager,
    /// Fetches that wait for new records.
    delayed_fetches: Vec<DelayedFetch>,
    /// The content of the last `PersistElectionState`.
    persisted: Option<ElectionState>,
    /// The leader that the shell was last notified of.
    announced: (Option<BrokerId>, LeaderEpoch),
    shutdown_deadline_ms: Option<u64>,
    is_shut_down: bool,
    wake_at_ms: u64,
    /// The time of the event being handled.
    now_ms: u64,
    random: u64,
    effects: Vec<Effect>,
}

impl Quorum {
    pub fn new(options: QuorumOptions) -> Result<Quorum, QuorumError> {
        let QuorumOptions {
            config,
            local,
            can_become_voter,
            listener_name,
            bootstrap_servers,
            control_records: control,
            election,
            log,
        } = options;
        if bootstrap_servers.is_empty() && !control.last_voters().is_only_voter(local.key) {
            return Err(QuorumError::NobodyToAsk);
        }
        let epoch = election
            .as_ref()
            .map_or(LeaderEpoch(0), |election| election.epoch)
            .max(log.last_epoch());
        if epoch > LAST_EPOCH {
            return Err(QuorumError::NoEpochLeft(epoch));
        }
        Ok(Quorum {
            requests: RequestManager::new(
                bootstrap_servers,
                config.retry_backoff_ms,
                config.request_timeout_ms,
            ),
            config,
            local,
            can_become_voter,
            listener_name,
            epoch,
            state: EpochState::Unattached(UnattachedState {
                leader: None,
                voted: None,
                election_deadline_ms: u64::MAX,
            }),
            high_watermark: None,
            log,
            control,
            delayed_fetches: Vec::new(),
            // Until `Started`, the content of the file.
            persisted: election,
            announced: (None, LeaderEpoch(-1)),
            shutdown_deadline_ms: None,
            is_shut_down: false,
            wake_at_ms: 0,
            now_ms: 0,
            random: 0,
            effects: Vec::new(),
        })
    }

    /// The ID of the bootstrap server with this index until it has responded.
    pub fn bootstrap_id(index: usize) -> BrokerId {
        BrokerId(-2 - i32::try_from(index).expect("few servers"))
    }

    /// Handles one event. The caller executes the effects in order before the next event.
    pub fn step(&mut self, moment: Moment, event: Event) -> Vec<Effect> {
        // A clock that goes back is held still, so that timers do not run backwards.
        self.now_ms = self.now_ms.max(moment.now_ms);
        self.random = moment.random;
        match event {
            Event::Started => self.start(),
            Event::Ticked => {}
            Event::RequestReceived {
                request_id,
                request,
            } => self.handle_request(request_id, request),
            Event::ResponseReceived {
                from,
                correlation_id,
                response,
            } => self.handle_response(from, correlation_id, response),
            Event::RequestFailed {
                from,
                correlation_id,
                error,
            } => self.on_request_failed(from, correlation_id, error),
            Event::LogAppended { end_offset } => self.on_log_appended(end_offset),
            Event::LogFlushed { end_offset } => self.on_log_flushed(end_offset),
            Event::SnapshotInstalled {
                snapshot,
                kraft_version,
                voters,
            } => self.on_snapshot_installed(snapshot, kraft_version, voters),
            Event::SnapshotsChanged {
                snapshots,
                log_start_offset,
            } => {
                if let Some(newest) = snapshots.iter().max() {
                    self.control
                        .truncate_old_entries(newest.end_offset.plus(-1));
                }
                self.log.set_snapshots(snapshots, log_start_offset);
            }
            Event::ResignRequested { epoch } => {
                if let EpochState::Leader(leader) = &mut self.state
                    && epoch == self.epoch
                {
                    leader.is_resign_requested = true;
                }
            }
            Event::KRaftVersionUpgradeRequested { epoch, version } => {
                self.upgrade_kraft_version(epoch, version);
            }
            // A repeated request may shorten the timeout, but not extend it.
            Event::ShutdownRequested { timeout_ms } => {
                let deadline_ms = self.now_ms.saturating_add(timeout_ms);
                let before_ms = self.shutdown_deadline_ms.unwrap_or(deadline_ms);
                self.shutdown_deadline_ms = Some(before_ms.min(deadline_ms));
            }
        }
        self.poll();
        std::mem::take(&mut self.effects)
    }

    fn handle_request(&mut self, request_id: RequestId, request: Request) {
        let response = match request {
            Request::Vote(request) => Response::Vote(self.handle_vote_request(request)),
            Request::BeginQuorumEpoch(request) => {
                Response::BeginQuorumEpoch(self.handle_begin_quorum_epoch_request(request))
            }
            Request::EndQuorumEpoch(request) => {
                Response::EndQuorumEpoch(self.handle_end_quorum_epoch_request(request))
            }
            Request::Fetch(request) => return self.handle_fetch_request(request_id, request),
            Request::FetchSnapshot(request) => {
                Response::FetchSnapshot(self.handle_fetch_snapshot_request(request))
            }
            Request::UpdateVoter(request) => {
                Response::UpdateVoter(self.handle_update_voter_request(request))
            }
            Request::AddVoter(request) => {
                return self.handle_add_voter_request(request_id, request);
            }
            Request::RemoveVoter(request) => {
                return self.handle_remove_voter_request(request_id, request);
            }
            // The shell answers this for all listeners.
            Request::ApiVersions => return,
        };
        self.respond(request_id, response);
    }

    fn handle_response(&mut self, from: BrokerId, correlation_id: u64, response: Response) {
        if !self.requests.is_response_expected(from, correlation_id) {
            return;
        }
        let is_handled = match response {
            Response::Vote(response) => self.handle_vote_response(from, response),
            Response::BeginQuorumEpoch(response) => {
                self.handle_begin_quorum_epoch_response(from, response)
            }
            Response::EndQuorumEpoch(response) => {
                self.handle_end_quorum_epoch_response(from, response)
            }
            Response::Fetch(response) => self.handle_fetch_response(from, response),
            Response::FetchSnapshot(response) => {
                self.handle_fetch_snapshot_response(from, response)
            }
            Response::UpdateVoter(response) => self.handle_update_voter_response(from, response),
            Response::AddVoter(response) => {
                self.handle_voter_change_response(from, response, ErrorCode::DuplicateVoter)
            }
            Response::RemoveVoter(response) => {
                self.handle_voter_change_response(from, response, ErrorCode::VoterNotFound)
            }
            Response::ApiVersions(response) => self.handle_api_versions_response(from, response),
        };
        self.requests
            .on_response_result(from, correlation_id, is_handled, self.now_ms);
    }

    fn on_request_failed(&mut self, from: BrokerId, correlation_id: u64, error: ErrorCode) {
        if !self.requests.is_response_expected(from, correlation_id) {
            return;
        }
        if error == ErrorCode::UnsupportedVersion && self.role() == Role::Prospective {
            // The voter does not support pre-votes: the election is held without them.
            self.transition_to_candidate();
        } else if let Some(response) = self.api_versions_failure(from, error) {
            self.handle_api_versions_response(from, response);
        }
        self.requests
            .on_response_result(from, correlation_id, false, self.now_ms);
    }

    // Shared by the files below.

    fn respond(&mut self, request_id: RequestId, response: Response) {
        self.effects.push(Effect::Respond {
            request_id,
            response,
        });
    }

    fn report(&mut self, from: BrokerId, refusal: &'static str) {
        self.effects.push(Effect::Report { from, refusal });
    }

    fn next_random(&mut self) -> u64 {
        // splitmix64: derives as many numbers as an event needs from one number of the caller.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn current_leader(&self) -> CurrentLeader {
        CurrentLeader {
            leader: self.leader(),
            epoch: self.epoch,
            endpoints: self.leader_endpoints().to_vec(),
        }
    }

    fn leader_endpoints(&self) -> &[VoterEndpoint] {
        match &self.state {
            EpochState::Unattached(_) | EpochState::Candidate(_) => &[],
            EpochState::Prospective(state) => &state.leader_endpoints,
            EpochState::Follower(state) => &state.leader_endpoints,
            EpochState::Leader(_) | EpochState::Resigned(_) => &self.local.endpoints,
        }
    }

    fn leader_state(&mut self) -> Option<&mut LeaderState> {
        match &mut self.state {
            EpochState::Leader(leader) => Some(leader),
            _ => None,
        }
    }

    fn follower_state(&mut self) -> Option<&mut FollowerState> {
        match &mut self.state {
            EpochState::Follower(follower) => Some(follower),
            _ => None,
        }
    }

    fn is_leader(&self) -> bool {
        matches!(self.state, EpochState::Leader(_))
    }

    // Queries of the shell.

    pub fn role(&self) -> Role {
        self.state.role()
    }

    /// The state in Kafka's words, as `KafkaRaftMetrics` reports it: `leader`, `prospective`,
    /// `prospective-voted`, `candidate`, `unattached-voted`, `observer`, `follower` or `unattached`.
    pub fn state_name(&self) -> &'static str {
        match (self.role(), self.state.has_voted()) {
            (Role::Leader { .. }, _) => "leader",
            (Role::Prospective, false) => "prospective",
            (Role::Prospective, true) => "prospective-voted",
            (Role::Candidate, _) => "candidate",
            (Role::Unattached, true) => "unattached-voted",
            (Role::Follower, _) if !self.is_voter() => "observer",
            (Role::Follower, _) => "follower",
            (Role::Unattached, false) | (Role::Resigned, _) => "unattached",
        }
    }

    pub fn epoch(&self) -> LeaderEpoch {
        self.epoch
    }

    /// The leader of the epoch, if known.
    pub fn leader(&self) -> Option<BrokerId> {
        self.state.leader(self.local.key.id)
    }

    /// The leader's address.
    pub fn leader_node(&self) -> Option<Node> {
        Node::at(self.leader()?, self.leader_endpoints(), &self.listener_name)
    }

    pub fn local_key(&self) -> ReplicaKey {
        self.local.key
    }

    /// The listener that the nodes of the quorum use among themselves.
    pub fn listener_name(&self) -> &ByteString {
        &self.listener_name
    }

    pub fn is_voter(&self) -> bool {
        self.control.last_voters().is_voter(self.local.key)
    }

    /// The current voters. A change is in effect once it is in the log, committed or not.
    pub fn voters(&self) -> &VoterSet {
        self.control.last_voters()
    }

    pub fn kraft_version(&self) -> KRaftVersion {
        self.control.last_kraft_version()
    }

    /// The voters and `kraft.version` by offset, for writing snapshots.
    pub fn control_records(&self) -> &ControlRecordHistory {
        &self.control
    }

    /// The high watermark, exclusive. A leader knows it once a record of its epoch is committed.
    pub fn high_watermark(&self) -> Option<Offset> {
        match &self.state {
            EpochState::Leader(leader) => leader.high_watermark,
            _ => self.high_watermark,
        }
    }

    pub fn log_end(&self) -> LogEnd {
        self.log.end()
    }

    pub fn log(&self) -> &LogState {
        &self.log
    }

    /// For DescribeQuorum: voters and observers with times of the caller's clock. `None` if this
    /// node does not lead.
    pub fn replicas(&self, now_ms: u64) -> Option<(Vec<&ReplicaState>, Vec<&ReplicaState>)> {
        match &self.state {
            EpochState::Leader(leader) => Some((
                leader.voter_states().collect(),
                leader.observer_states(now_ms).collect(),
            )),
            _ => None,
        }
    }

    /// The latest time for the next `Ticked`; `u64::MAX` for never.
    pub fn wake_at_ms(&self) -> u64 {
        self.wake_at_ms
    }
}

#[cfg(test)]
mod tests;
