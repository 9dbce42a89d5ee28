//! Changes of the voters: by AddRaftVoter, RemoveRaftVoter and UpdateRaftVoter, and by raising
//! `kraft.version` from 0 to 1 (KIP-853).
//!
//! Majorities of consecutive voter sets overlap, because at most one voter differs, and because no
//! change starts before the previous one, of this leader or an earlier one, is committed.
//!
//! Kafka: `AddVoterHandler`, `RemoveVoterHandler`, `UpdateVoterHandler`,
//! `LeaderState.maybeAppendUpgradedKRaftVersion`.

use ottla_protocol::raft_records::KRaftVersionRecord;
use ottla_types::{BrokerId, ErrorCode, LeaderEpoch, Offset};

use super::Quorum;
use crate::epoch_state::EpochState;
use crate::leader_state::{KRaftVersionUpgrade, PendingVoterChange, VoterChange};
use crate::planted::{self, Bug};
use crate::{
    AddVoterRequest, ApiVersionsResponse, ControlRecord, KRaftVersion, Node, QuorumEpochResponse,
    RemoveVoterRequest, Request, RequestId, Response, UpdateVoterRequest, UpgradeError, Voter,
    VoterChangeResponse, VoterSet,
};

impl Quorum {
    // Add

    pub(super) fn handle_add_voter_request(
        &mut self,
        request_id: RequestId,
        request: AddVoterRequest,
    ) {
        if let Err((error, message)) = self.begin_adding_voter(request_id, request) {
            self.respond(
                request_id,
                Response::AddVoter(VoterChangeResponse { error, message }),
            );
        }
    }

    fn begin_adding_voter(
        &mut self,
        request_id: RequestId,
        request: AddVoterRequest,
    ) -> Result<(), (ErrorCode, Option<String>)> {
        let refuse = |error, message: String| Err((error, Some(message)));
        self.validate_leader_only_request(self.epoch)
            .map_err(|error| (error, None))?;
        let voter = request.voter;
        if voter.id.value() < 0 || voter.directory_id.is_none() {
            let message = "Add voter request didn't include a valid voter";
            return refuse(ErrorCode::InvalidRequest, message.to_owned());
        }
        let Some(node) = Node::at(voter.id, &request.endpoints, &self.listener_name) else {
            let message = format!(
                "Add voter request didn't include an endpoint for the default listener {}",
                self.listener_name
            );
            return refuse(ErrorCode::InvalidRequest, message);
        };
        let voters = self.changeable_voters("adding")?;
        if voters.voter(voter.id).is_some() {
            let message = format!(
                "The voter id {} is already part of the set of voters",
                voter.id
            );
            return refuse(ErrorCode::DuplicateVoter, message);
        }
        let Some(timeout_ms) = self.send_now(&node, Request::ApiVersions) else {
            let message = format!("New voter {} is not ready to receive requests", voter.id);
            return refuse(ErrorCode::RequestTimedOut, message);
        };
        self.set_pending_change(PendingVoterChange {
            kind: VoterChange::AddAsked {
                voter,
                endpoints: request.endpoints,
                ack_when_committed: request.ack_when_committed,
            },
            request_id: Some(request_id),
            deadline_ms: self.now_ms + timeout_ms,
        });
        Ok(())
    }

    /// The new voter has reported its versions: it is added if they fit, and if its log is close
    /// enough to the end that a majority with it makes progress.
    pub(super) fn handle_api_versions_response(
        &mut self,
        from: BrokerId,
        response: ApiVersionsResponse,
    ) -> bool {
        let now_ms = self.now_ms;
        let kraft_version = self.kraft_version();
        let Some(leader) = self.leader_state() else {
            return true;
        };
        let (voter, endpoints, ack_when_committed) = match &leader.pending_change {
            Some(PendingVoterChange {
                kind:
                    VoterChange::AddAsked {
                        voter,
                        endpoints,
                        ack_when_committed,
                    },
                ..
            }) if voter.id == from => (*voter, endpoints.clone(), *ack_when_committed),
            _ => return true,
        };
        let is_caught_up = leader.is_caught_up(voter, now_ms);
        if response.error != ErrorCode::None {
            let message = format!(
                "Aborted add voter operation since API_VERSIONS returned an error {}",
                response.error.name()
            );
            self.finish_voter_change(ErrorCode::RequestTimedOut, Some(message));
            return false;
        }
        let level = kraft_version.feature_level();
        let supported = response
            .kraft_versions
            .filter(|&(min, max)| (min..=max).contains(&level));
        let Some(supported_kraft_versions) = supported else {
            let message = format!(
                "Aborted add voter operation for {} since it doesn't support the finalized \
                 kraft.version {level}",
                voter.id
            );
            self.finish_voter_change(ErrorCode::InvalidRequest, Some(message));
            return true;
        };
        if !is_caught_up {
            let message = format!(
                "Aborted add voter operation for {} since it is lagging behind",
                voter.id
            );
            self.finish_voter_change(ErrorCode::RequestTimedOut, Some(message));
            return true;
        }
        let voters = self.voters().with(Voter {
            key: voter,
            endpoints,
            supported_kraft_versions,
        });
        let Some(voters) = voters else {
            self.finish_voter_change(ErrorCode::DuplicateVoter, None);
            return true;
        };
        let offset = self.append_voters(&voters);
        if let Some(leader) = self.leader_state()
            && let Some(pending) = &mut leader.pending_change
        {
            pending.kind = VoterChange::AddAppended { offset };
            if !ack_when_committed && let Some(request_id) = pending.request_id.take() {
                self.respond(
                    request_id,
                    Response::AddVoter(VoterChangeResponse {
                        error: ErrorCode::None,
                        message: None,
                    }),
                );
            }
        }
        true
    }

    /// Handles the failure of a request to `from` if it was the request to a new voter.
    pub(super) fn api_versions_failure(
        &mut self,
        from: BrokerId,
        error: ErrorCode,
    ) -> Option<ApiVersionsResponse> {
        let leader = self.leader_state()?;
        let pending = leader.pending_change.as_ref()?;
        matches!(&pending.kind, VoterChange::AddAsked { voter, .. } if voter.id == from).then_some(
            ApiVersionsResponse {
                error,
                kraft_versions: None,
            },
        )
    }

    // Remove

    pub(super) fn handle_remove_voter_request(
        &mut self,
        request_id: RequestId,
        request: RemoveVoterRequest,
    ) {
        if let Err((error, message)) = self.begin_removing_voter(request_id, request) {
            self.respond(
                request_id,
                Response::RemoveVoter(VoterChangeResponse { error, message }),
            );
        }
    }

    fn begin_removing_voter(
        &mut self,
        request_id: RequestId,
        request: RemoveVoterRequest,
    ) -> Result<(), (ErrorCode, Option<String>)> {
        self.validate_leader_only_request(self.epoch)
            .map_err(|error| (error, None))?;
        let voter = request.voter;
        if voter.id.value() < 0 || voter.directory_id.is_none() {
            let message = "Remove voter request didn't include a valid voter";
            return Err((ErrorCode::InvalidRequest, Some(message.to_owned())));
        }
        let Some(voters) = self.changeable_voters("removing")?.without(voter) else {
            let message = format!("Cannot remove voter {} from the set of voters", voter.id);
            return Err((ErrorCode::VoterNotFound, Some(message)));
        };
        let offset = self.append_voters(&voters);
        self.set_pending_change(PendingVoterChange {
            kind: VoterChange::RemoveAppended { offset },
            request_id: Some(request_id),
            deadline_ms: self.now_ms + self.config.request_timeout_ms,
        });
        Ok(())
    }

    // Update

    pub(super) fn handle_update_voter_request(
        &mut self,
        request: UpdateVoterRequest,
    ) -> QuorumEpochResponse {
        let error = match self.update_voter(request) {
            Ok(()) => ErrorCode::None,
            Err(error) => error,
        };
        self.epoch_response(error)
    }

    fn update_voter(&mut self, request: UpdateVoterRequest) -> Result<(), ErrorCode> {
        self.validate_leader_only_request(request.current_leader_epoch)?;
        let voter = request.voter;
        let (min, max) = voter.supported_kraft_versions;
        let is_valid = voter.key.id.value() >= 0
            && voter.key.directory_id.is_some()
            && Node::at(voter.key.id, &voter.endpoints, &self.listener_name).is_some()
            && min >= 0
            && min <= max;
        if !is_valid {
            return Err(ErrorCode::InvalidRequest);
        }
        let key = voter.key;
        let kraft_version = self.kraft_version();
        let is_supported = voter.supports_version(kraft_version);
        if kraft_version.is_reconfig_supported() {
            let voters = self.changeable_voters("updating");
            let voters = voters.map_err(|(error, _)| error)?;
            if !is_supported {
                return Err(ErrorCode::InvalidRequest);
            }
            let voters = voters.updated(voter).ok_or(ErrorCode::VoterNotFound)?;
            self.append_voters(&voters);
        } else {
            let now_ms = self.now_ms;
            let leader = self.leader_state().ok_or(ErrorCode::NotLeaderOrFollower)?;
            if leader.pending_change.is_some() || leader.high_watermark.is_none() {
                return Err(ErrorCode::RequestTimedOut);
            }
            // The data of static voters cannot be in the log yet.
            let KRaftVersionUpgrade::Voters(voters) = &leader.kraft_version_upgrade else {
                return Err(ErrorCode::RequestTimedOut);
            };
            if !is_supported {
                return Err(ErrorCode::InvalidRequest);
            }
            let voters = voters
                .updated_ignoring_directory_id(voter)
                .ok_or(ErrorCode::VoterNotFound)?;
            leader.kraft_version_upgrade = KRaftVersionUpgrade::Voters(voters);
            leader.update_check_quorum(key, now_ms);
            return Ok(());
        }
        let now_ms = self.now_ms;
        if let Some(leader) = self.leader_state() {
            leader.update_check_quorum(key, now_ms);
        }
        Ok(())
    }

    pub(super) fn handle_update_voter_response(
        &mut self,
        from: BrokerId,
        response: QuorumEpochResponse,
    ) -> bool {
        let common = self.handle_common_response(from, response.error, response.current_leader);
        if let Some(handled) = common {
            return handled;
        }
        let is_handled = matches!(
            response.error,
            // A leader that does not support it need not be asked again.
            ErrorCode::None | ErrorCode::UnsupportedVersion
        );
        if is_handled {
            if let Some(state) = self.follower_state() {
                state.has_updated_leader = true;
            }
            self.on_successful_fetch();
        }
        is_handled
    }

    pub(super) fn handle_voter_change_response(
        &mut self,
        _from: BrokerId,
        response: VoterChangeResponse,
        done_already: ErrorCode,
    ) -> bool {
        // Done, or not possible now: repeated after the period.
        let is_handled =
            [ErrorCode::None, ErrorCode::RequestTimedOut, done_already].contains(&response.error);
        if is_handled {
            self.reset_update_voter_set_period();
        }
        is_handled
    }

    // Shared by the changes.

    /// The voters, if they may be changed now; `doing` names the change in a refusal.
    fn changeable_voters(&mut self, doing: &str) -> Result<VoterSet, (ErrorCode, Option<String>)> {
        let refuse = |error, message: &str| Err((error, Some(message.to_owned())));
        self.expire_pending_voter_change();
        let Some(leader) = self.leader_state() else {
            return Err((ErrorCode::NotLeaderOrFollower, None));
        };
        if leader.pending_change.is_some() && !planted::has(Bug::ChangesOverlap) {
            return refuse(
                ErrorCode::RequestTimedOut,
                "Request timed out waiting for leader to handle previous voter change request",
            );
        }
        let Some(high_watermark) = self.high_watermark() else {
            return refuse(
                ErrorCode::RequestTimedOut,
                "Request timed out waiting for leader to establish HWM and fence previous voter \
                 changes",
            );
        };
        let kraft_version = self.kraft_version();
        if !kraft_version.is_reconfig_supported() {
            let message = format!(
                "Cluster doesn't support {doing} voter because the kraft.version feature is {}",
                kraft_version.feature_level()
            );
            return refuse(ErrorCode::UnsupportedVersion, &message);
        }
        let is_committed = self
            .control
            .last_voters_offset()
            .is_some_and(|offset| offset < high_watermark);
        if !is_committed && !planted::has(Bug::ChangesOverlap) {
            return refuse(
                ErrorCode::RequestTimedOut,
                "Request timed out waiting for voters to commit the latest voter change",
            );
        }
        Ok(self.voters().clone())
    }

    fn append_voters(&mut self, voters: &VoterSet) -> Offset {
        self.append_control_records(vec![ControlRecord::Voters(voters.to_record())])
    }

    fn set_pending_change(&mut self, change: PendingVoterChange) {
        if let Some(leader) = self.leader_state()
            && let Some(before) = leader.pending_change.replace(change)
        {
            self.answer_voter_change(before, ErrorCode::UnknownServerError, None);
        }
    }

    pub(super) fn answer_voter_change(
        &mut self,
        change: PendingVoterChange,
        error: ErrorCode,
        message: Option<String>,
    ) {
        let Some(request_id) = change.request_id else {
            return;
        };
        let response = VoterChangeResponse { error, message };
        let response = match change.kind {
            VoterChange::AddAsked { .. } | VoterChange::AddAppended { .. } => {
                Response::AddVoter(response)
            }
            VoterChange::RemoveAppended { .. } => Response::RemoveVoter(response),
        };
        self.respond(request_id, response);
    }

    fn finish_voter_change(&mut self, error: ErrorCode, message: Option<String>) {
        if let Some(leader) = self.leader_state()
            && let Some(change) = leader.pending_change.take()
        {
            self.answer_voter_change(change, error, message);
        }
    }

    /// Ends a change that takes too long. If it is in the log, it may still be committed. Returns
    /// the time until the next timeout.
    pub(super) fn expire_pending_voter_change(&mut self) -> u64 {
        let now_ms = self.now_ms;
        let deadline_ms = self
            .leader_state()
            .and_then(|leader| leader.pending_change.as_ref())
            .map_or(u64::MAX, |change| change.deadline_ms);
        if deadline_ms > now_ms {
            return deadline_ms;
        }
        self.finish_voter_change(ErrorCode::RequestTimedOut, None);
        u64::MAX
    }

    pub(super) fn on_voter_change_committed(&mut self, high_watermark: Offset) {
        let local = self.local.key;
        let are_voters_committed = self
            .control
            .last_voters_offset()
            .is_some_and(|offset| offset < high_watermark);
        let has_left = are_voters_committed && !self.voters().is_voter(local);
        let Some(leader) = self.leader_state() else {
            return;
        };
        // The leader has completed its own removal, whether or not a request waits for it.
        leader.is_resign_requested |= has_left;
        let is_committed = match leader.pending_change.as_ref().map(|change| &change.kind) {
            None | Some(VoterChange::AddAsked { .. }) => false,
            Some(VoterChange::AddAppended { offset } | VoterChange::RemoveAppended { offset }) => {
                *offset < high_watermark
            }
        };
        if is_committed {
            self.finish_voter_change(ErrorCode::None, None);
        }
    }

    // kraft.version

    /// Whether raising `kraft.version` in this epoch would change anything.
    ///
    /// # Errors
    /// Why it cannot be raised.
    ///
    /// Kafka: `LeaderState.maybeAppendUpgradedKRaftVersion` with `validateOnly`.
    pub fn check_kraft_version_upgrade(
        &self,
        epoch: LeaderEpoch,
        version: KRaftVersion,
    ) -> Result<bool, UpgradeError> {
        Ok(self.voters_of_upgrade(epoch, version)?.is_some())
    }

    /// Appends the new level and the voters as they have reported themselves; from there on the
    /// voter set is in the log. No effect if `check_kraft_version_upgrade` refuses it or finds
    /// nothing to do.
    pub(super) fn upgrade_kraft_version(&mut self, epoch: LeaderEpoch, version: KRaftVersion) {
        let Ok(Some(voters)) = self.voters_of_upgrade(epoch, version) else {
            return;
        };
        let mut records = vec![ControlRecord::KRaftVersion(KRaftVersionRecord {
            version: 0,
            kraft_version: version.feature_level(),
            ..Default::default()
        })];
        if voters != self.voters() {
            records.push(ControlRecord::Voters(voters.to_record()));
        }
        if let Some(leader) = self.leader_state() {
            leader.kraft_version_upgrade = KRaftVersionUpgrade::Requested(version);
        }
        self.append_control_records(records);
    }

    /// The voters once `kraft.version` is raised; `None` if it already has that level.
    fn voters_of_upgrade(
        &self,
        epoch: LeaderEpoch,
        version: KRaftVersion,
    ) -> Result<Option<&VoterSet>, UpgradeError> {
        let leader = match &self.state {
            EpochState::Leader(leader) if epoch == self.epoch => leader,
            _ => return Err(UpgradeError::NotLeader(epoch)),
        };
        let from = self.kraft_version();
        if from == version
            || leader.kraft_version_upgrade == KRaftVersionUpgrade::Requested(version)
        {
            return Ok(None);
        }
        let voters = match &leader.kraft_version_upgrade {
            KRaftVersionUpgrade::Voters(voters) if from < version => voters,
            _ => return Err(UpgradeError::Invalid { from, to: version }),
        };
        if !voters.supports_version(version) {
            return Err(UpgradeError::Unsupported(version));
        }
        let unknown = voters
            .voters()
            .find(|voter| voter.key.directory_id.is_none());
        match unknown {
            Some(voter) => Err(UpgradeError::UnknownDirectory(voter.key.id)),
            None => Ok(Some(voters)),
        }
    }
}
