//! A follower of a partition: fetches from its leader, writes the records, and truncates its log
//! where it diverges.
//!
//! ```text
//!            ┌──────────── Fetch ordered ◄───────────────┐
//!   records  ▼                                           │
//!   Fetching ──► Appending ── LogWritten ────────────────┤
//!     │ diverging, in doubt, or no epoch in the log      │
//!     ├────────► Truncating ── LogTruncated ─────────────┤
//!     │ flush.messages are not on the disk               │
//!     ├────────► Flushing ── Flushed ────────────────────┤
//!     │ out of range                                     │
//!     ├────────► OutOfRange ── LeaderOffsetsListed ──────┘  (by way of Truncating, if need be)
//!     │ the leader has the records only in remote storage
//!     ├────────► BehindRemote ── RemoteStateFetched ──► Truncating
//!     │ fenced
//!     └────────► Failed, until a newer leader epoch
//! ```
//!
//! One fetch is in flight at a time, from the log end offset. The leader takes everything before it as
//! durable here, so if `flush.messages` requires a flush, the fetch follows it. If a crash may have
//! taken records before the end, the first fetch is from there, and the log is truncated to there when
//! the leader has answered: otherwise a leader that is gone for good would cost what is left. A
//! response is accepted only in the leader epoch and for the log (identified by its end offset and
//! latest epoch) that it was requested for; late and repeated responses are ignored. Errors are
//! retried after `replica.fetch.backoff.ms`, and sooner at first if the leader does not know of its
//! election yet.
//!
//! Brokers of metadata.version 3.3 and newer, the only ones that 4.x supports, report divergence in
//! the fetch response. OffsetsForLeaderEpoch, which older versions needed, is never sent.
//!
//! Kafka: `AbstractFetcherThread`, `ReplicaFetcherThread.processPartitionData`, `PartitionFetchState`.

use std::sync::Arc;

use ottla_records::legacy::AnyBatch;
use ottla_types::{BrokerId, ErrorCode, LeaderEpoch, Offset, PartitionEpoch};

use crate::log_state::LogState;
use crate::planted::{self, Bug};
use crate::truncation::truncation_offset;
use crate::{Effect, FetchPosition, Fetched, LeaderOffsets, ReplicaConfig, ReplicaSettings};

#[cfg(test)]
mod tests;

/// Initial backoff for a leader that does not know of its election yet. It doubles up to
/// `replica.fetch.backoff.ms`.
const FIRST_BACKOFF_MS: u64 = 5;
const MAX_DOUBLINGS: u32 = 16;

#[derive(Debug)]
pub(crate) struct Follower {
    config: Arc<ReplicaConfig>,
    settings: ReplicaSettings,
    leader: BrokerId,
    leader_epoch: LeaderEpoch,
    partition_epoch: PartitionEpoch,
    state: FetchState,
    /// The time of the next attempt after an error. Nothing is in flight until then.
    retry_at_ms: Option<u64>,
    /// Consecutive responses of a leader that did not know of its election.
    leader_behind: u32,
    /// The lag behind the leader's high watermark, in records; `None` before the first response.
    lag: Option<i64>,
    now_ms: u64,
}

#[derive(Debug)]
enum FetchState {
    /// There is no leader.
    Leaderless,
    Fetching,
    Appending {
        progress: LeaderProgress,
        /// The end offset of each batch being written, and its leader epoch if its format has one.
        ends: Vec<(Offset, Option<LeaderEpoch>)>,
    },
    Truncating {
        /// Records to write after the truncation.
        then: Option<(Vec<AnyBatch>, LeaderProgress)>,
        /// The log end offset and latest epoch before the truncation.
        before: (Offset, Option<LeaderEpoch>),
    },
    /// The truncation was refused. Following starts again after the backoff.
    Restarting,
    /// The next fetch waits for a flush.
    Flushing,
    OutOfRange,
    /// The state before the leader's local records is being fetched.
    BehindRemote,
    Failed,
}

/// The leader's state at its last response.
#[derive(Clone, Copy, Debug)]
struct LeaderProgress {
    high_watermark: Offset,
    /// The leader's log start offset, if it is above this log's.
    log_start_offset: Option<Offset>,
}

impl Follower {
    pub(crate) fn new<Ack>(
        config: Arc<ReplicaConfig>,
        settings: ReplicaSettings,
        leader: BrokerId,
        leader_epoch: LeaderEpoch,
        partition_epoch: PartitionEpoch,
        log: &LogState,
        effects: &mut Vec<Effect<Ack>>,
    ) -> Follower {
        let mut follower = Follower {
            config,
            settings,
            leader,
            leader_epoch,
            partition_epoch,
            state: FetchState::Leaderless,
            retry_at_ms: None,
            leader_behind: 0,
            lag: None,
            now_ms: 0,
        };
        if leader != BrokerId::NONE {
            follower.start(log, effects);
        }
        follower
    }

    pub(crate) fn leader(&self) -> BrokerId {
        self.leader
    }

    pub(crate) fn leader_epoch(&self) -> LeaderEpoch {
        self.leader_epoch
    }

    pub(crate) fn partition_epoch(&self) -> PartitionEpoch {
        self.partition_epoch
    }

    pub(crate) fn set_partition_epoch(&mut self, partition_epoch: PartitionEpoch) {
        self.partition_epoch = partition_epoch;
    }

    pub(crate) fn set_settings(&mut self, settings: ReplicaSettings) {
        self.settings = settings;
    }

    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        self.retry_at_ms
    }

    pub(crate) fn lag(&self) -> Option<i64> {
        self.lag
    }

    /// Whether fetching ended in this leader epoch because the leader fenced this replica.
    pub(crate) fn has_failed(&self) -> bool {
        matches!(self.state, FetchState::Failed)
    }

    pub(crate) fn is_truncating(&self) -> bool {
        matches!(self.state, FetchState::Truncating { .. })
    }

    pub(crate) fn on_fetch_answered<Ack>(
        &mut self,
        order: &FetchPosition,
        result: Result<Fetched, ErrorCode>,
        now_ms: u64,
        log: &mut LogState,
        effects: &mut Vec<Effect<Ack>>,
    ) {
        self.see_time(now_ms);
        let is_fetching = matches!(self.state, FetchState::Fetching) && self.retry_at_ms.is_none();
        if !is_fetching || !self.is_current(order, log) {
            return;
        }
        if result.is_ok() {
            self.leader_behind = 0;
        }
        match result {
            // Kafka keeps what is around a gap.
            Ok(_) if log.is_in_doubt() => {
                let to = log.doubtful_from;
                self.truncate(log, None);
                effects.push(Effect::TruncateLog { to });
            }
            Ok(Fetched::Records {
                batches,
                high_watermark,
                log_start_offset,
                local_log_start_offset,
            }) => {
                let progress = LeaderProgress {
                    high_watermark,
                    log_start_offset: Some(log_start_offset)
                        .filter(|&start| start > local_log_start_offset),
                };
                self.on_records(batches, progress, local_log_start_offset, log, effects);
            }
            Ok(Fetched::Diverging { leader, local }) => {
                let end = log.log_end_offset;
                let to = truncation_offset(leader, local, end, end);
                self.truncate(log, None);
                effects.push(Effect::TruncateLog { to });
            }
            Err(ErrorCode::OffsetOutOfRange) => {
                self.state = FetchState::OutOfRange;
                effects.push(Effect::ListLeaderOffsets {
                    leader: self.leader,
                    leader_epoch: self.leader_epoch,
                });
            }
            Err(ErrorCode::OffsetMovedToTieredStorage) => {
                self.state = FetchState::BehindRemote;
                effects.push(Effect::FetchRemoteState {
                    leader: self.leader,
                    leader_epoch: self.leader_epoch,
                });
            }
            Err(error) => self.on_error(error),
        }
    }

    /// The log is truncated only after the state was fetched.
    pub(crate) fn on_remote_state_fetched<Ack>(
        &mut self,
        leader_epoch: LeaderEpoch,
        result: Result<(), ErrorCode>,
        now_ms: u64,
        log: &LogState,
        effects: &mut Vec<Effect<Ack>>,
    ) {
        self.see_time(now_ms);
        if !matches!(self.state, FetchState::BehindRemote) || leader_epoch != self.leader_epoch {
            return;
        }
        self.state = FetchState::Fetching;
        match result {
            Ok(()) => {
                self.truncate(log, None);
                effects.push(Effect::StartAfterRemoteLog);
            }
            Err(error) => self.on_error(error),
        }
    }

    pub(crate) fn on_leader_offsets_listed<Ack>(
        &mut self,
        leader_epoch: LeaderEpoch,
        result: Result<LeaderOffsets, ErrorCode>,
        now_ms: u64,
        log: &LogState,
        effects: &mut Vec<Effect<Ack>>,
    ) {
        self.see_time(now_ms);
        if !matches!(self.state, FetchState::OutOfRange) || leader_epoch != self.leader_epoch {
            return;
        }
        self.state = FetchState::Fetching;
        let (position, _) = log.fetch_position();
        match result {
            // The leader was elected uncleanly and lacks records of this log.
            Ok(leader) if leader.log_end_offset < position => {
                self.truncate(log, None);
                effects.push(Effect::TruncateLog {
                    to: leader.log_end_offset.max(Offset::ZERO),
                });
            }
            // The leader has deleted everything up to the end of this log, or to its gap.
            Ok(leader) if leader.log_start_offset > position => {
                self.truncate(log, None);
                effects.push(Effect::TruncateLogFully {
                    start_at: leader.log_start_offset,
                });
            }
            // The position is in range again.
            Ok(_) => self.retry_later(),
            Err(error) => self.on_error(error),
        }
    }

    /// The log was truncated; `log` has the new state.
    pub(crate) fn on_log_truncated<Ack>(
        &mut self,
        log: &mut LogState,
        effects: &mut Vec<Effect<Ack>>,
    ) {
        let state = std::mem::replace(&mut self.state, FetchState::Fetching);
        let FetchState::Truncating { then, before } = state else {
            self.state = state;
            return;
        };
        if let Some((batches, progress)) = then {
            return self.append(batches, progress, effects);
        }
        if before == (log.log_end_offset, log.latest_epoch) {
            // The leader would give the same response again.
            self.retry_later();
        } else {
            self.order_fetch(log, effects);
        }
    }

    /// The log could not be truncated and is unchanged.
    pub(crate) fn on_truncation_refused(&mut self) {
        if self.is_truncating() {
            self.retry_later();
            self.state = FetchState::Restarting;
        }
    }

    pub(crate) fn on_log_written<Ack>(
        &mut self,
        log: &mut LogState,
        effects: &mut Vec<Effect<Ack>>,
    ) {
        match std::mem::replace(&mut self.state, FetchState::Fetching) {
            FetchState::Appending { progress, ends } => {
                note_latest_epoch(&ends, log);
                self.follow_leader(progress, log, effects);
            }
            // A write from the time when this replica led.
            FetchState::Fetching if self.retry_at_ms.is_none() => self.order_fetch(log, effects),
            state => self.state = state,
        }
    }

    /// More of the log is on disk. If records were written after the flush started, or replaced
    /// truncated ones, another flush is needed.
    pub(crate) fn on_flushed<Ack>(&mut self, log: &LogState, effects: &mut Vec<Effect<Ack>>) {
        if matches!(self.state, FetchState::Flushing) {
            self.order_fetch(log, effects);
        }
    }

    /// The write was refused, for example because the disk is full. The records are fetched again
    /// later.
    pub(crate) fn on_write_refused<Ack>(
        &mut self,
        log: &mut LogState,
        effects: &mut Vec<Effect<Ack>>,
    ) {
        if let FetchState::Appending { ends, .. } = &self.state {
            note_latest_epoch(ends, log);
            self.state = FetchState::Fetching;
            self.retry_later();
        } else {
            self.on_log_written(log, effects);
        }
    }

    pub(crate) fn on_clock_ticked<Ack>(
        &mut self,
        now_ms: u64,
        log: &LogState,
        effects: &mut Vec<Effect<Ack>>,
    ) {
        self.see_time(now_ms);
        if self.retry_at_ms.is_some_and(|at_ms| at_ms <= now_ms) {
            self.retry_at_ms = None;
            match self.state {
                FetchState::Restarting => self.start(log, effects),
                _ => self.order_fetch(log, effects),
            }
        }
    }

    /// Whether a response concerns the current log. The offset alone is not enough: the log may
    /// have been truncated and have reached the same offset with different records, which the
    /// response would then truncate wrongly.
    fn is_current(&self, order: &FetchPosition, log: &LogState) -> bool {
        let is_of_epoch =
            order.leader_epoch == self.leader_epoch || planted::has(Bug::TakeStaleAnswers);
        let (fetch_offset, last_fetched_epoch) = log.fetch_position();
        let is_of_log = order.last_fetched_epoch == last_fetched_epoch
            || planted::has(Bug::TakeAnswersByOffset)
            || planted::has(Bug::KeepDivergingRecords);
        is_of_epoch && is_of_log && order.fetch_offset == fetch_offset
    }

    /// Starts to follow. A log without leader epochs cannot be compared with the leader's:
    /// everything above the high watermark is truncated.
    fn start<Ack>(&mut self, log: &LogState, effects: &mut Vec<Effect<Ack>>) {
        self.state = FetchState::Fetching;
        if log.latest_epoch.is_none() && log.log_end_offset > log.high_watermark {
            self.truncate(log, None);
            effects.push(Effect::TruncateLog {
                to: log.high_watermark.min(log.doubtful_from),
            });
        } else {
            self.order_fetch(log, effects);
        }
    }

    fn on_records<Ack>(
        &mut self,
        mut batches: Vec<AnyBatch>,
        progress: LeaderProgress,
        local_log_start_offset: Offset,
        log: &mut LogState,
        effects: &mut Vec<Effect<Ack>>,
    ) {
        // The leader may have been re-elected after the request was sent, having truncated before.
        // Its later records are fetched, and checked, in its new epoch (KAFKA-18723).
        let of_later_epoch = batches
            .iter()
            .position(|batch| leader_epoch_of(batch) > Some(self.leader_epoch));
        if !planted::has(Bug::TakeStaleAnswers) {
            batches.truncate(of_later_epoch.unwrap_or(batches.len()));
        }
        let Some(first) = batches.first() else {
            return self.follow_leader(progress, log, effects);
        };
        if !are_in_order(&batches) {
            return self.retry_later();
        }
        let (first_offset, first_end) = (first_offset_of(first), first.last_offset().plus(1));
        // Records after a change of the format are fetched next.
        let is_legacy = |batch: &AnyBatch| matches!(batch, AnyBatch::Legacy(_));
        let begins_legacy = is_legacy(first);
        let of_other_format = batches
            .iter()
            .position(|batch| is_legacy(batch) != begins_legacy);
        batches.truncate(of_other_format.unwrap_or(batches.len()));
        if first_offset >= log.log_end_offset {
            return self.append(batches, progress, effects);
        }
        // The leader's log starts inside a batch (DeleteRecords). An empty log can only continue
        // with the whole batch, and has to start at its base offset.
        if log.log_end_offset == local_log_start_offset && first_end > log.log_end_offset {
            self.truncate(log, Some((batches, progress)));
            effects.push(Effect::TruncateLogFully {
                start_at: first_offset,
            });
        } else {
            self.retry_later();
        }
    }

    fn append<Ack>(
        &mut self,
        batches: Vec<AnyBatch>,
        progress: LeaderProgress,
        effects: &mut Vec<Effect<Ack>>,
    ) {
        let ends = batches
            .iter()
            .map(|batch| (batch.last_offset().plus(1), leader_epoch_of(batch)));
        self.state = FetchState::Appending {
            progress,
            ends: ends.collect(),
        };
        effects.extend(batches.into_iter().map(|batch| match batch {
            AnyBatch::Current(batch) => Effect::WriteLog { batch },
            AnyBatch::Legacy(message) => Effect::WriteLegacy { message },
        }));
    }

    /// Takes over the leader's high watermark and log start offset, and continues to fetch.
    ///
    /// The high watermark may decrease with the first response of a new leader, which knows less
    /// than its predecessor, but not later: a delayed response does not undo a newer one.
    fn follow_leader<Ack>(
        &mut self,
        progress: LeaderProgress,
        log: &mut LogState,
        effects: &mut Vec<Effect<Ack>>,
    ) {
        let mut high_watermark = progress.high_watermark.min(log.log_end_offset);
        if self.lag.is_some() {
            high_watermark = high_watermark.max(log.high_watermark);
        }
        if high_watermark != log.high_watermark && high_watermark >= Offset::ZERO {
            log.high_watermark = high_watermark;
            effects.push(Effect::FollowHighWatermark { high_watermark });
        }
        if let Some(log_start_offset) = progress.log_start_offset
            && log_start_offset <= log.high_watermark
        {
            effects.push(Effect::IncrementLogStartOffset { log_start_offset });
        }
        let lag = progress
            .high_watermark
            .0
            .saturating_sub(log.log_end_offset.0);
        self.lag = Some(lag.max(0));
        self.order_fetch(log, effects);
    }

    fn order_fetch<Ack>(&mut self, log: &LogState, effects: &mut Vec<Effect<Ack>>) {
        let (fetch_offset, latest_epoch) = log.fetch_position();
        let unflushed = fetch_offset.since(log.flushed_end);
        let is_flush_due = unflushed > 0 && unflushed >= self.settings.flush_messages;
        if is_flush_due && !planted::has(Bug::FetchBeforeFlush) {
            self.state = FetchState::Flushing;
            effects.push(Effect::Flush {
                up_to: fetch_offset,
            });
            return;
        }
        self.state = FetchState::Fetching;
        let last_fetched_epoch = match planted::has(Bug::KeepDivergingRecords) {
            true => None,
            false => latest_epoch,
        };
        effects.push(Effect::Fetch(FetchPosition {
            leader: self.leader,
            leader_epoch: self.leader_epoch,
            fetch_offset,
            last_fetched_epoch,
            is_in_sync: self.lag == Some(0),
        }));
    }

    /// Waits for a truncation. The caller adds the effect.
    fn truncate(&mut self, log: &LogState, then: Option<(Vec<AnyBatch>, LeaderProgress)>) {
        self.state = FetchState::Truncating {
            then,
            before: (log.log_end_offset, log.latest_epoch),
        };
    }

    fn on_error(&mut self, error: ErrorCode) {
        match error {
            // This broker's metadata is older than the leader's and will bring the newer epoch.
            ErrorCode::FencedLeaderEpoch => self.state = FetchState::Failed,
            // The leader's metadata is older than this broker's, usually by milliseconds. Kafka
            // waits for a whole `replica.fetch.backoff.ms`, which also delays the first write to a
            // new topic.
            ErrorCode::UnknownLeaderEpoch
            | ErrorCode::NotLeaderOrFollower
            | ErrorCode::UnknownTopicId
            | ErrorCode::UnknownTopicOrPartition => {
                let doublings = self.leader_behind.min(MAX_DOUBLINGS);
                self.leader_behind += 1;
                let backoff_ms = FIRST_BACKOFF_MS << doublings;
                self.retry_after(backoff_ms.min(self.config.replica_fetch_backoff_ms));
            }
            _ => self.retry_later(),
        }
    }

    fn retry_later(&mut self) {
        self.retry_after(self.config.replica_fetch_backoff_ms);
    }

    fn retry_after(&mut self, backoff_ms: u64) {
        self.state = FetchState::Fetching;
        self.retry_at_ms = Some(self.now_ms.saturating_add(backoff_ms));
    }

    fn see_time(&mut self, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
    }
}

/// `None` for formats without leader epochs.
fn leader_epoch_of(batch: &AnyBatch) -> Option<LeaderEpoch> {
    match batch {
        AnyBatch::Current(batch) => Some(batch.header.partition_leader_epoch),
        AnyBatch::Legacy(_) => None,
    }
}

/// For a compressed message of an old format, whose first offset is unknown, the last offset.
fn first_offset_of(batch: &AnyBatch) -> Offset {
    match batch {
        AnyBatch::Current(batch) => batch.header.base_offset,
        AnyBatch::Legacy(message) => message.offset,
    }
}

/// Sets the epoch of the last batch in the log. A message without an epoch clears it.
fn note_latest_epoch(ends: &[(Offset, Option<LeaderEpoch>)], log: &mut LogState) {
    let mut written = ends.iter().rev();
    match written.find(|(end, _)| *end <= log.log_end_offset) {
        Some((_, None)) => log.latest_epoch = None,
        Some(&(_, Some(leader_epoch))) if leader_epoch != LeaderEpoch::UNKNOWN => {
            log.latest_epoch = Some(leader_epoch);
        }
        Some(_) | None => {}
    }
}

/// Whether each batch starts after the previous one. Offsets near the maximum are invalid; adding
/// to them would overflow.
fn are_in_order(batches: &[AnyBatch]) -> bool {
    let mut end = Offset::ZERO;
    batches.iter().all(|batch| {
        let first_offset = first_offset_of(batch);
        let has_records = match batch {
            AnyBatch::Current(batch) => batch.header.last_offset_delta >= 0,
            AnyBatch::Legacy(_) => true,
        };
        let is_sane = has_records && first_offset.0 < i64::MAX - (1 << 32);
        let is_behind = first_offset >= end;
        if is_sane {
            end = batch.last_offset().plus(1);
        }
        is_sane && is_behind
    })
}
