//! A follower of a partition: fetches from its leader, writes what comes, and cuts its log where the leader's
//! has left it.
//!
//! ```text
//!            ┌──────────── Fetch ordered ◄───────────────┐
//!   records  ▼                                           │
//!   Fetching ──► Appending ── LogWritten ────────────────┤
//!     │ diverging, or no epoch in the log                │
//!     ├────────► Truncating ── LogTruncated ─────────────┤
//!     │ flush.messages are not on the disk               │
//!     ├────────► Flushing ── Flushed ────────────────────┤
//!     │ out of range                                     │
//!     ├────────► OutOfRange ── LeaderOffsetsListed ──────┘  (by way of Truncating, if need be)
//!     │ fenced
//!     └────────► Failed, until a newer leader epoch
//! ```
//!
//! One fetch is under way at a time, always from the log end. By that the leader takes all before it for safe here, so
//! where `flush.messages` asks for a flush, the fetch is ordered when it is done. An answer counts only in the leader epoch and for
//! the log, named by its end and the epoch there, for which it was asked, so that late and repeated ones come
//! to nothing. What fails is tried again after `replica.fetch.backoff.ms`, and sooner at first where the leader does not
//! know yet that it leads.
//!
//! Brokers of metadata.version 3.3 and newer, which are all that 4.x knows, answer a fetch with where the logs
//! diverge. So OffsetsForLeaderEpoch is never asked before fetching, as older versions had to.
//!
//! Kafka: `AbstractFetcherThread`, `ReplicaFetcherThread.processPartitionData`, `PartitionFetchState`.

use ottla_records::legacy::AnyBatch;
use ottla_types::{BrokerId, ErrorCode, LeaderEpoch, Offset, PartitionEpoch};

use crate::log_state::LogState;
use crate::planted::{self, Bug};
use crate::truncation::truncation_offset;
use crate::{Effect, FetchPosition, Fetched, LeaderOffsets, ReplicaConfig, ReplicaSettings};

#[cfg(test)]
mod tests;

/// How long a follower waits at first for a leader that does not know yet that it leads. Each wait is twice the one before,
/// up to `replica.fetch.backoff.ms`.
const FIRST_BACKOFF_MS: u64 = 5;
const MAX_DOUBLINGS: u32 = 16;

#[derive(Debug)]
pub(crate) struct Follower {
    config: ReplicaConfig,
    settings: ReplicaSettings,
    leader: BrokerId,
    leader_epoch: LeaderEpoch,
    partition_epoch: PartitionEpoch,
    state: FetchState,
    /// When to try again, where something failed. Nothing is under way until then.
    retry_at_ms: Option<u64>,
    /// How often in a row the leader did not know yet that it leads.
    leader_behind: u32,
    /// How far the log is behind the leader's high watermark; `None` before the first answer.
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
        /// The end of each batch that is being written, and its epoch where its format has one.
        ends: Vec<(Offset, Option<LeaderEpoch>)>,
    },
    Truncating {
        /// To be written when that is done.
        then: Option<(Vec<AnyBatch>, LeaderProgress)>,
        /// What the log ended with before.
        before: (Offset, Option<LeaderEpoch>),
    },
    /// The log could not be cut yet. What is to be done about the leader is found out once more.
    Restarting,
    /// The next fetch waits for what is in the file to reach the disk.
    Flushing,
    OutOfRange,
    Failed,
}

/// How far the leader had come when it answered.
#[derive(Clone, Copy, Debug)]
struct LeaderProgress {
    high_watermark: Offset,
    /// Where the leader's log starts, if the log here starts before.
    log_start_offset: Option<Offset>,
}

impl Follower {
    pub(crate) fn new<Ack>(
        config: ReplicaConfig,
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

    /// Whether the leader's fencing has ended the fetching in this leader epoch.
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
        match result {
            // The leader was elected uncleanly, and does not have what is here.
            Ok(leader) if leader.log_end_offset < log.log_end_offset => {
                self.truncate(log, None);
                effects.push(Effect::TruncateLog {
                    to: leader.log_end_offset.max(Offset::ZERO),
                });
            }
            // The leader has deleted what comes next here, and so all that is here.
            Ok(leader) if leader.log_start_offset > log.log_end_offset => {
                self.truncate(log, None);
                effects.push(Effect::TruncateLogFully {
                    start_at: leader.log_start_offset,
                });
            }
            // It was out of range and is not any more.
            Ok(_) => self.retry_later(),
            Err(error) => self.on_error(error),
        }
    }

    /// The log has been cut; `log` says what is left.
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
            // The leader would answer the same again.
            self.retry_later();
        } else {
            self.order_fetch(log, effects);
        }
    }

    /// The log could not be cut, and is as it was.
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
            // What was being written when this replica led.
            FetchState::Fetching if self.retry_at_ms.is_none() => self.order_fetch(log, effects),
            state => self.state = state,
        }
    }

    /// More of the log is on the disk. What was written behind that, or in the place of what was cut off while it was being
    /// flushed, is waited for once more.
    pub(crate) fn on_flushed<Ack>(&mut self, log: &LogState, effects: &mut Vec<Effect<Ack>>) {
        if matches!(self.state, FetchState::Flushing) {
            self.order_fetch(log, effects);
        }
    }

    /// The disk is full, or will not have it. It is fetched again later.
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

    /// Whether an answer is about the log as it is. An offset alone does not say that: a log may be cut, and
    /// reach the same offset again with other records, and what the leader said about the first would cut
    /// the second.
    fn is_current(&self, order: &FetchPosition, log: &LogState) -> bool {
        let is_of_epoch =
            order.leader_epoch == self.leader_epoch || planted::has(Bug::TakeStaleAnswers);
        let is_of_log = order.last_fetched_epoch == log.latest_epoch
            || planted::has(Bug::TakeAnswersByOffset)
            || planted::has(Bug::KeepDivergingRecords);
        is_of_epoch && is_of_log && order.fetch_offset == log.log_end_offset
    }

    /// Begins to follow. A log without leader epochs cannot be compared with the leader's: all that may not be
    /// committed goes.
    fn start<Ack>(&mut self, log: &LogState, effects: &mut Vec<Effect<Ack>>) {
        self.state = FetchState::Fetching;
        if log.latest_epoch.is_none() && log.log_end_offset > log.high_watermark {
            self.truncate(log, None);
            effects.push(Effect::TruncateLog {
                to: log.high_watermark,
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
        // The leader may have been elected again after the request was sent, and truncated before. What it
        // wrote since is fetched, and checked, in its new epoch (KAFKA-18723).
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
        // Where the format changes in the log, what is of the other one is fetched next.
        let is_legacy = |batch: &AnyBatch| matches!(batch, AnyBatch::Legacy(_));
        let begins_legacy = is_legacy(first);
        let of_other_format = batches
            .iter()
            .position(|batch| is_legacy(batch) != begins_legacy);
        batches.truncate(of_other_format.unwrap_or(batches.len()));
        if first_offset >= log.log_end_offset {
            return self.append(batches, progress, effects);
        }
        // The leader's log starts in the middle of a batch (DeleteRecords). An empty log here can only go on
        // with the whole batch, and has to start where that does.
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

    /// Takes over the leader's high watermark and log start, and fetches on.
    ///
    /// The high watermark may fall with the first answer of a new leader, which knows of less than its
    /// predecessor did, and not after that: an answer that comes late does not take back a newer one.
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
        let unflushed = log.log_end_offset.since(log.flushed_end);
        let is_flush_due = unflushed > 0 && unflushed >= self.settings.flush_messages;
        if is_flush_due && !planted::has(Bug::FetchBeforeFlush) {
            self.state = FetchState::Flushing;
            effects.push(Effect::Flush {
                up_to: log.log_end_offset,
            });
            return;
        }
        self.state = FetchState::Fetching;
        let last_fetched_epoch = match planted::has(Bug::KeepDivergingRecords) {
            true => None,
            false => log.latest_epoch,
        };
        effects.push(Effect::Fetch(FetchPosition {
            leader: self.leader,
            leader_epoch: self.leader_epoch,
            fetch_offset: log.log_end_offset,
            last_fetched_epoch,
            is_in_sync: self.lag == Some(0),
        }));
    }

    /// Waits for the log to be cut. The effect that asks for it follows.
    fn truncate(&mut self, log: &LogState, then: Option<(Vec<AnyBatch>, LeaderProgress)>) {
        self.state = FetchState::Truncating {
            then,
            before: (log.log_end_offset, log.latest_epoch),
        };
    }

    fn on_error(&mut self, error: ErrorCode) {
        match error {
            // This broker's metadata lags behind the leader's, and will bring the newer epoch.
            ErrorCode::FencedLeaderEpoch => self.state = FetchState::Failed,
            // The leader's metadata lags behind this broker's, as a rule by milliseconds. Kafka waits for all of
            // `replica.fetch.backoff.ms`, and so does the first write to a new topic.
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

/// `None` in the formats that know of none.
fn leader_epoch_of(batch: &AnyBatch) -> Option<LeaderEpoch> {
    match batch {
        AnyBatch::Current(batch) => Some(batch.header.partition_leader_epoch),
        AnyBatch::Legacy(_) => None,
    }
}

/// Of compressed messages of an old format, which do not say where they begin, the last one.
fn first_offset_of(batch: &AnyBatch) -> Offset {
    match batch {
        AnyBatch::Current(batch) => batch.header.base_offset,
        AnyBatch::Legacy(message) => message.offset,
    }
}

/// The epoch of the last batch that is in the log. A message without one has the log forget those before it.
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

/// Whether each batch lies behind the one before it. Offsets near the end of their range are nonsense, and
/// their sums would overflow.
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
