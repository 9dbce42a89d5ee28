//! The follower's side of replication: appends the leader's records, truncates records that the
//! leader does not have, downloads its snapshot if needed, and takes over its high watermark.
//!
//! Kafka: `KafkaRaftClient.handleFetchResponse`, `handleFetchSnapshotResponse`, `appendAsFollower`.

use ottla_types::{BrokerId, ErrorCode, Offset};

use super::Quorum;
use crate::epoch_state::{EpochState, SnapshotDownload};
use crate::planted::{self, Bug};
use crate::{
    Effect, FetchData, FetchResponse, FetchSnapshotResponse, KRaftVersion, LogBatch, LogEnd,
    SnapshotId, VoterSet,
};

impl Quorum {
    pub(super) fn handle_fetch_response(
        &mut self,
        from: BrokerId,
        response: FetchResponse,
    ) -> bool {
        let known = (self.epoch, self.leader());
        let common = self.handle_common_response(from, response.error, response.current_leader);
        if let Some(is_handled) = common {
            // A node without news is not asked again at once. Kafka's nodes repeat the request as
            // fast as the network allows until there is a leader.
            return is_handled && known != (self.epoch, self.leader());
        }
        if !matches!(self.state, EpochState::Follower(_)) {
            // Leadership changed while the request was in flight.
            return true;
        }
        if response.error != ErrorCode::None {
            return false;
        }
        let is_handled = match response.data {
            FetchData::Diverging(diverging) => self.truncate(from, diverging),
            FetchData::Snapshot(snapshot) => self.begin_snapshot_download(from, snapshot),
            FetchData::Batches(batches) => {
                let is_whole = self.append_fetched(from, &batches);
                self.update_follower_high_watermark(response.high_watermark);
                is_whole
            }
            FetchData::Empty => {
                self.update_follower_high_watermark(response.high_watermark);
                true
            }
            // Never in a received response.
            FetchData::ReadFrom { .. } => false,
        };
        if is_handled {
            self.on_successful_fetch();
        }
        is_handled
    }

    /// The leader responded: the fetch timeout restarts.
    pub(super) fn on_successful_fetch(&mut self) {
        let deadline_ms = self.now_ms + self.config.fetch_timeout_ms;
        if let Some(state) = self.follower_state() {
            state.fetch_deadline_ms = deadline_ms;
            state.has_fetched_from_leader = true;
        }
    }

    fn truncate(&mut self, from: BrokerId, diverging: LogEnd) -> bool {
        let end_offset = self.log.truncation_offset(diverging);
        if diverging.offset < Offset::ZERO
            || self
                .high_watermark
                .is_some_and(|committed| end_offset < committed)
            || end_offset < self.log.start_offset()
        {
            self.report(from, "requests a truncation of committed records");
            return false;
        }
        if end_offset < self.log.end_offset() {
            self.effects.push(Effect::TruncateLog { end_offset });
            self.log.truncate_to(end_offset);
            if !planted::has(Bug::VotersSurviveTruncation) {
                self.control.truncate_new_entries(end_offset);
            }
        }
        true
    }

    /// Appends the batches that continue the log. Returns whether that is all of them.
    fn append_fetched(&mut self, from: BrokerId, batches: &[LogBatch]) -> bool {
        let mut end_offset = self.log.end_offset();
        let mut is_whole = true;
        for batch in batches {
            let continues = batch.base_offset == end_offset
                && batch.last_offset >= batch.base_offset
                && batch.last_offset < Offset(i64::MAX)
                && batch.epoch >= self.log.last_epoch();
            if !continues {
                self.report(from, "sends records that do not continue the log");
                is_whole = false;
                break;
            }
            if batch.epoch > self.epoch {
                // Batches of a leader that is not known yet; they come again in its epoch.
                break;
            }
            // The records of a batch take effect together or not at all.
            let mut control = self.control.clone();
            let is_understood = batch.control_records.iter().all(|(offset, record)| {
                (batch.base_offset..=batch.last_offset).contains(offset)
                    && control.add(*offset, record).is_ok()
            });
            if !is_understood {
                self.report(from, "sends control records that cannot be acted by");
                is_whole = false;
                break;
            }
            self.control = control;
            self.log.assign_epoch(batch.epoch);
            end_offset = batch.last_offset.plus(1);
            self.log.append_up_to(end_offset);
        }
        if !batches.is_empty() && end_offset > batches[0].base_offset {
            // An observer that is being made a voter counts before it knows.
            let flush = (self.is_voter() || self.can_become_voter)
                && !planted::has(Bug::FollowerDoesNotFlush);
            self.effects
                .push(Effect::AppendFetched { end_offset, flush });
            if flush {
                self.log.flush_up_to(end_offset);
            }
        }
        is_whole
    }

    fn update_follower_high_watermark(&mut self, high_watermark: Option<Offset>) {
        // Records below the leader's high watermark may not be here yet.
        if let Some(high_watermark) = high_watermark {
            self.advance_high_watermark(high_watermark.min(self.log.end_offset()));
        }
    }

    // Snapshots

    fn begin_snapshot_download(&mut self, from: BrokerId, snapshot: SnapshotId) -> bool {
        if snapshot.end_offset < Offset::ZERO
            || snapshot.epoch.value() < 0
            || snapshot == SnapshotId::BOOTSTRAP
            || !self.log.is_behind(snapshot)
        {
            // The log is already beyond the snapshot: the response makes no sense.
            self.report(from, "names a snapshot that is of no use");
            return false;
        }
        if self.log.has_snapshot(snapshot) {
            self.install_snapshot(snapshot);
            return true;
        }
        self.effects.push(Effect::CreateSnapshot(snapshot));
        if let Some(state) = self.follower_state() {
            state.fetching_snapshot = Some(SnapshotDownload {
                snapshot,
                position: 0,
            });
        }
        true
    }

    pub(super) fn handle_fetch_snapshot_response(
        &mut self,
        from: BrokerId,
        response: FetchSnapshotResponse,
    ) -> bool {
        let common = self.handle_common_response(from, response.error, response.current_leader);
        if let Some(handled) = common {
            return handled;
        }
        let Some(state) = self.follower_state() else {
            return true;
        };
        let download = state.fetching_snapshot;
        if response.error == ErrorCode::SnapshotNotFound
            || (response.error == ErrorCode::None && response.snapshot.is_none())
        {
            // The leader has deleted the snapshot. The next Fetch names another.
            state.fetching_snapshot = None;
            self.on_successful_fetch();
            return true;
        }
        if response.error != ErrorCode::None {
            return false;
        }
        let is_continued = download.is_some_and(|download| {
            response.snapshot == Some(download.snapshot)
                && response.position == download.position
                && response.length_bytes > 0
                && response
                    .position
                    .checked_add(response.length_bytes)
                    .is_some_and(|end| end <= response.size_bytes)
        });
        let Some(download) = download.filter(|_| is_continued) else {
            state.fetching_snapshot = None;
            self.report(from, "sends a part of a snapshot that does not continue it");
            return false;
        };
        let position = download.position + response.length_bytes;
        let snapshot = download.snapshot;
        let is_finished = position == response.size_bytes;
        state.fetching_snapshot = (!is_finished).then_some(SnapshotDownload { snapshot, position });
        self.effects.push(Effect::AppendSnapshot {
            snapshot,
            position: download.position,
            length_bytes: response.length_bytes,
        });
        if is_finished {
            self.install_snapshot(snapshot);
        }
        self.on_successful_fetch();
        true
    }

    /// Restarts the log after the snapshot. The shell reports its voters after reading it.
    fn install_snapshot(&mut self, snapshot: SnapshotId) {
        self.effects.push(Effect::InstallSnapshot(snapshot));
        self.log.restart_at(snapshot);
    }

    pub(super) fn on_snapshot_installed(
        &mut self,
        snapshot: SnapshotId,
        kraft_version: KRaftVersion,
        voters: Option<VoterSet>,
    ) {
        self.control.clear();
        let offset = snapshot.end_offset.plus(-1);
        self.control.set_kraft_version(offset, kraft_version);
        if let Some(voters) = voters {
            self.control.set_voters(offset, voters);
        }
        // A snapshot holds only committed records.
        self.advance_high_watermark(snapshot.end_offset);
    }
}
