//! The leader's side of replication: answers fetches, and commits by them.
//!
//! A Fetch without anything to return waits for the log to grow, for the high watermark to advance,
//! for leadership to be lost, or for its timeout. Each is answered exactly once.
//!
//! Kafka: `KafkaRaftClient.handleFetchRequest`, `handleFetchSnapshotRequest`,
//! `updateLeaderEndOffsetAndTimestamp`, `onUpdateLeaderHighWatermark`.

use ottla_types::{ErrorCode, LeaderEpoch, Offset};

use super::Quorum;
use crate::epoch_state::EpochState;
use crate::leader_state::DelayedFetch;
use crate::planted::{self, Bug};
use crate::{
    ControlRecord, Effect, FetchData, FetchRequest, FetchResponse, FetchSnapshotRequest,
    FetchSnapshotResponse, OffsetValidity, RequestId, Response, Role, SnapshotId,
};

impl Quorum {
    // Fetch

    pub(super) fn handle_fetch_request(&mut self, request_id: RequestId, request: FetchRequest) {
        let is_valid = request.log_end.offset >= Offset::ZERO
            && request.log_end.epoch >= LeaderEpoch(0)
            && request.log_end.epoch <= request.current_leader_epoch;
        if !is_valid {
            let response = self.fetch_error(ErrorCode::InvalidRequest);
            return self.respond(request_id, Response::Fetch(response));
        }
        let response = self.try_complete_fetch(&request);
        let is_final = response.error != ErrorCode::None
            || response.data != FetchData::Empty
            || request.max_wait_ms == 0
            || response.high_watermark > Some(request.high_watermark);
        if is_final {
            return self.respond(request_id, Response::Fetch(response));
        }
        // A replica that sends a new Fetch has abandoned its previous one.
        let is_replica = request.replica.id.value() >= 0;
        let position = self
            .delayed_fetches
            .iter()
            .position(|delayed| is_replica && delayed.request.replica == request.replica);
        if let Some(position) = position {
            let delayed = self.delayed_fetches.remove(position);
            let response = self.empty_fetch_response();
            self.respond(delayed.request_id, Response::Fetch(response));
        }
        self.delayed_fetches.push(DelayedFetch {
            request_id,
            deadline_ms: self.now_ms.saturating_add(request.max_wait_ms),
            request,
        });
    }

    /// Answers a Fetch with the available records and notes the replica's position.
    fn try_complete_fetch(&mut self, request: &FetchRequest) -> FetchResponse {
        if let Err(error) = self.validate_leader_only_request(request.current_leader_epoch) {
            return self.fetch_error(error);
        }
        if request.replica.id == self.local.key.id {
            return self.fetch_error(ErrorCode::UnknownServerError);
        }
        let (offset, epoch) = (request.log_end.offset, request.log_end.epoch);
        let data = match self.log.latest_snapshot() {
            // A snapshot is faster for a replica with an empty log.
            Some(snapshot) if offset == Offset::ZERO && snapshot != SnapshotId::BOOTSTRAP => {
                FetchData::Snapshot(snapshot)
            }
            _ => match self.log.validate(offset, epoch) {
                OffsetValidity::Snapshot(snapshot) => FetchData::Snapshot(snapshot),
                OffsetValidity::Diverging(end) => FetchData::Diverging(end),
                OffsetValidity::Valid if offset < self.log.end_offset() => FetchData::ReadFrom {
                    offset,
                    max_bytes: request.max_bytes,
                },
                OffsetValidity::Valid => FetchData::Empty,
            },
        };
        let data = match data {
            FetchData::Diverging(_) if planted::has(Bug::NoTruncation) => FetchData::Empty,
            data => data,
        };
        let is_prefix = matches!(data, FetchData::Empty | FetchData::ReadFrom { .. });
        let (now_ms, end_offset) = (self.now_ms, self.log.end_offset());
        if is_prefix
            && request.replica.id.value() >= 0
            && let Some(leader) = self.leader_state()
            && leader.on_fetch(request.replica, offset, end_offset, now_ms)
        {
            self.on_leader_high_watermark_advanced();
        }
        FetchResponse {
            data,
            ..self.empty_fetch_response()
        }
    }

    fn empty_fetch_response(&self) -> FetchResponse {
        FetchResponse {
            error: ErrorCode::None,
            current_leader: self.current_leader(),
            log_start_offset: self.log.start_offset(),
            high_watermark: self.high_watermark().filter(|_| self.is_leader()),
            data: FetchData::Empty,
        }
    }

    fn fetch_error(&self, error: ErrorCode) -> FetchResponse {
        FetchResponse {
            error,
            high_watermark: None,
            ..self.empty_fetch_response()
        }
    }

    pub(super) fn validate_leader_only_request(&self, epoch: LeaderEpoch) -> Result<(), ErrorCode> {
        if epoch < self.epoch {
            Err(ErrorCode::FencedLeaderEpoch)
        } else if epoch > self.epoch {
            Err(ErrorCode::UnknownLeaderEpoch)
        } else if !self.is_leader() {
            // An observer finds the new leader by asking.
            Err(ErrorCode::NotLeaderOrFollower)
        } else if self.is_shutting_down() {
            Err(ErrorCode::BrokerNotAvailable)
        } else {
            Ok(())
        }
    }

    /// Answers the waiting fetches that are due.
    fn complete_delayed_fetches(&mut self, is_due: impl Fn(&FetchRequest) -> bool) {
        let (due, waiting) = std::mem::take(&mut self.delayed_fetches)
            .into_iter()
            .partition(|delayed| is_due(&delayed.request));
        self.delayed_fetches = waiting;
        for delayed in due {
            let response = self.try_complete_fetch(&delayed.request);
            self.respond(delayed.request_id, Response::Fetch(response));
        }
    }

    pub(super) fn expire_delayed_fetches(&mut self) {
        let now_ms = self.now_ms;
        let (due, waiting): (Vec<DelayedFetch>, Vec<DelayedFetch>) =
            std::mem::take(&mut self.delayed_fetches)
                .into_iter()
                .partition(|delayed| delayed.deadline_ms <= now_ms);
        self.delayed_fetches = waiting;
        for delayed in due {
            // Nothing has changed since the fetch started to wait, and its position is already
            // noted.
            let response = self.empty_fetch_response();
            self.respond(delayed.request_id, Response::Fetch(response));
        }
    }

    /// Leadership was lost: waiting fetches must go elsewhere.
    pub(super) fn refuse_delayed_fetches(&mut self) {
        for delayed in std::mem::take(&mut self.delayed_fetches) {
            let response = self.fetch_error(ErrorCode::NotLeaderOrFollower);
            self.respond(delayed.request_id, Response::Fetch(response));
        }
    }

    // FetchSnapshot

    pub(super) fn handle_fetch_snapshot_request(
        &mut self,
        request: FetchSnapshotRequest,
    ) -> FetchSnapshotResponse {
        let error = |error| FetchSnapshotResponse {
            error,
            current_leader: self.current_leader(),
            snapshot: None,
            size_bytes: 0,
            position: 0,
            length_bytes: 0,
        };
        if let Err(refusal) = self.validate_leader_only_request(request.current_leader_epoch) {
            return error(refusal);
        }
        // The first leader writes the content of the bootstrap snapshot into the log.
        if request.snapshot == SnapshotId::BOOTSTRAP || !self.log.has_snapshot(request.snapshot) {
            return error(ErrorCode::SnapshotNotFound);
        }
        if request.position < 0 || request.replica.id == self.local.key.id {
            return error(ErrorCode::PositionOutOfRange);
        }
        let response = FetchSnapshotResponse {
            snapshot: Some(request.snapshot),
            position: request.position,
            length_bytes: i64::from(request.max_bytes.max(0)),
            ..error(ErrorCode::None)
        };
        let now_ms = self.now_ms;
        if let Some(leader) = self.leader_state() {
            leader.update_check_quorum(request.replica, now_ms);
        }
        response
    }

    // The leader's own log.

    pub(super) fn on_log_appended(&mut self, end_offset: Offset) {
        if !self.is_leader() {
            // Reported after leadership was lost: now only fetched records are appended.
            return;
        }
        self.log.append_up_to(end_offset);
        let end_offset = self.log.end_offset();
        self.complete_delayed_fetches(|request| request.log_end.offset < end_offset);
        if planted::has(Bug::CountUnflushed) {
            self.on_log_flushed(end_offset);
        }
    }

    /// Waiting fetches are answered after the high watermark has advanced: a replica can apply what it
    /// receives at once if this leader needs no other voter, and need not fetch once more to learn that
    /// it is committed.
    pub(super) fn on_log_flushed(&mut self, end_offset: Offset) {
        if self.is_leader() {
            self.log.append_up_to(end_offset);
        }
        self.log.flush_up_to(end_offset.min(self.log.end_offset()));
        let (flushed_offset, now_ms) = (self.log.flushed_offset(), self.now_ms);
        if let Some(leader) = self.leader_state()
            && leader.on_local_flush(flushed_offset, now_ms)
        {
            self.on_leader_high_watermark_advanced();
        }
        let end_offset = self.log.end_offset();
        self.complete_delayed_fetches(|request| request.log_end.offset < end_offset);
    }

    /// Applies control records that the leader appends at the log end.
    pub(super) fn on_control_records_appended(&mut self, records: &[ControlRecord]) {
        let mut offset = self.log.end_offset();
        for record in records {
            self.control
                .add(offset, record)
                .expect("the leader writes only control records that it supports");
            offset = offset.plus(1);
        }
        let voters = self.voters().clone();
        if let Some(leader) = self.leader_state() {
            leader.set_voters(&voters);
        }
        self.on_log_appended(offset);
    }

    /// Appends the leader's control records.
    pub(super) fn append_control_records(&mut self, records: Vec<ControlRecord>) -> Offset {
        let base_offset = self.log.end_offset();
        self.effects.push(Effect::AppendControlRecords {
            epoch: self.epoch,
            base_offset,
            records: records.clone(),
        });
        self.on_control_records_appended(&records);
        self.log.end_offset().plus(-1)
    }

    fn on_leader_high_watermark_advanced(&mut self) {
        let EpochState::Leader(leader) = &self.state else {
            return;
        };
        let Some(high_watermark) = leader.high_watermark else {
            return;
        };
        let was_active = self.high_watermark >= Some(leader.epoch_start_offset.plus(1));
        self.advance_high_watermark(high_watermark);
        if !was_active {
            self.effects.push(Effect::ActivateLeader(self.epoch));
        }
        self.on_voter_change_committed(high_watermark);
        // Waiting fetches learn the new high watermark.
        self.complete_delayed_fetches(|request| request.high_watermark < high_watermark);
    }

    pub(super) fn advance_high_watermark(&mut self, high_watermark: Offset) {
        if self
            .high_watermark
            .is_none_or(|known| known < high_watermark)
        {
            self.high_watermark = Some(high_watermark);
            self.effects
                .push(Effect::AdvanceHighWatermark(high_watermark));
        }
    }

    /// Whether this node leads and may serve requests.
    pub fn is_active_leader(&self) -> bool {
        self.role() == Role::Leader { is_active: true }
    }
}
