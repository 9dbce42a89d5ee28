//! One partition's log: its owner appends, rolls, truncates and hands out maintenance work.
//!
//! A [`Log`] is stepped by one thread at a time, the holder of the partition's run token. Its state
//! (log end offset, producers, epochs, indexes) changes only after the bytes that cause the change
//! are in the file. The append path never fsyncs, unlinks or waits: such work is handed out as
//! [`jobs`](crate::jobs) for a maintenance thread.
//!
//! Kafka: `UnifiedLog`, `LocalLog`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ottla_config::TopicConfig;
use ottla_records::RecordBatch;
use ottla_types::{LeaderEpoch, Offset, ProducerId, Timestamp, TopicPartition};

use crate::batch_tail::BatchTail;
use crate::checkpoint::CheckpointedOffset;
use crate::leader_epochs::LeaderEpochs;
use crate::producer_state::{
    AppendOrigin, ProducerError, ProducerStage, ProducerState, ProducerStateEntry, ProducerVerdict,
    TransactionVersion,
};
use crate::reader::{LogReader, SegmentList, Shared};
use crate::segment::Segment;

mod append;
mod append_legacy;
mod damage;
mod leftovers;
mod maintain;
mod open;
mod pending_jobs;
mod recover;
mod recovery_progress;
mod replace;
mod retention;
mod roll;
#[cfg(test)]
mod tests;
mod tiered;
mod truncate;

pub use append::AppendInfo;
pub use damage::{DamagedLog, WholeSegment, whole_segments};
pub use open::{DEFAULT_WRITEBACK_BYTES, OpenParams, RecoveryReport};
use pending_jobs::PendingJobs;
pub use recovery_progress::RecoveryProgress;
pub use retention::LogStartOffsetError;
pub use tiered::{ClosedSegmentFiles, LocalSegment, RemoteState};

pub struct Log {
    shared: Arc<Shared>,
    config: Arc<TopicConfig>,
    active: ActiveSegment,
    leader_epochs: LeaderEpochs,
    producers: ProducerState,
    jobs: PendingJobs,
    /// Writeback is started after this many bytes; 0 for never.
    writeback_bytes: u64,
    /// Random state for the roll jitter of the next segments; seeded by
    /// [`OpenParams::random_seed`].
    random: u64,
    /// `i64::MAX` without doubt. The recovery point is not raised over it, so that the next start finds
    /// the gap again.
    doubtful_from: Offset,
    had_topic_id: bool,
}

/// State of the active segment that only the appender needs.
struct ActiveSegment {
    segment: Arc<Segment>,
    /// Creation time, for rolling segments whose records have no timestamp.
    created: Timestamp,
    /// The largest timestamp of the first batch, from which the segment's age is counted.
    first_batch_timestamp: Option<Timestamp>,
    /// The segment rolls this much earlier than `segment.ms`.
    roll_jitter_ms: i64,
    bytes_since_last_index_entry: u64,
}

impl Log {
    /// A view for readers.
    pub fn reader(&self) -> LogReader {
        LogReader {
            shared: self.shared.clone(),
        }
    }

    pub fn topic_partition(&self) -> &TopicPartition {
        self.shared.dir.topic_partition()
    }

    pub fn dir(&self) -> PathBuf {
        self.shared.dir.path()
    }

    pub fn config(&self) -> &Arc<TopicConfig> {
        &self.config
    }

    /// Whether its directory had `partition.metadata` when it was opened.
    pub fn had_topic_id(&self) -> bool {
        self.had_topic_id
    }

    /// Applies changed settings from the next operation on. A log that is no longer tiered starts
    /// with its local segments.
    pub fn set_config(&mut self, config: Arc<TopicConfig>) {
        // A start claims each loaded log with the settings that it was loaded with.
        if Arc::ptr_eq(&config, &self.config) {
            return;
        }
        let is_untiered = self.config.remote_storage_enable && !config.remote_storage_enable;
        self.shared.config.store(config.clone());
        // The start of every tiered log is in the checkpoint.
        let dir = &self.shared.dir;
        dir.mark_changed(CheckpointedOffset::LogStartOffset);
        self.config = config;
        if is_untiered {
            self.start_at_local_segments();
            // If it is tiered again, remote storage has none of its records.
            self.set_highest_remote_offset(Offset::UNKNOWN);
        }
    }

    pub fn log_start_offset(&self) -> Offset {
        self.shared.offset(&self.shared.log_start_offset)
    }

    /// The offset from which on the log may lack records although it has later ones: recovery found a
    /// gap above the recovery point. A loss of power can take the end of a segment and leave the next
    /// one. Compaction leaves such gaps too, so only a replica that can fetch the records again
    /// should act on it.
    pub fn doubtful_from(&self) -> Option<Offset> {
        Some(self.doubtful_from).filter(|offset| *offset < self.log_end_offset())
    }

    /// The log stays as it is: nothing is in doubt any more.
    pub fn keep_gaps(&mut self) {
        self.doubtful_from = Offset(i64::MAX);
    }

    pub fn log_end_offset(&self) -> Offset {
        self.shared.offset(&self.shared.log_end_offset)
    }

    pub fn high_watermark(&self) -> Offset {
        self.shared.offset(&self.shared.high_watermark)
    }

    pub fn leader_epochs(&self) -> &LeaderEpochs {
        &self.leader_epochs
    }

    pub fn latest_epoch(&self) -> Option<LeaderEpoch> {
        self.leader_epochs.latest().map(|entry| entry.epoch)
    }

    fn segments(&self) -> Arc<SegmentList> {
        self.shared.segments.load_full()
    }

    fn next_random(&mut self) -> u64 {
        // SplitMix64: enough to spread rolls, and reproducible from the seed.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Closes the file handles; they are reopened on demand.
    pub fn close_files(&self) {
        let list = self.segments();
        list.segments
            .iter()
            .for_each(|segment| segment.close_files());
    }

    /// Adds a leader epoch that starts at `start_offset`. A leader does so when it is elected,
    /// before it has records of the epoch. It keeps what it has, with the gaps.
    pub fn assign_leader_epoch(&mut self, epoch: LeaderEpoch, start_offset: Offset) {
        self.keep_gaps();
        if self.leader_epochs.assign(epoch, start_offset) {
            self.on_epochs_changed();
        }
    }

    /// Sets the high watermark, clamped to the log. Returns the clamped value.
    pub fn set_high_watermark(&mut self, high_watermark: Offset) -> Offset {
        let high_watermark = high_watermark
            .max(self.log_start_offset())
            .min(self.log_end_offset());
        if high_watermark != self.high_watermark() {
            let shared = &self.shared;
            let published = &shared.high_watermark;
            published.store(high_watermark.0, Ordering::Release);
            let dir = &shared.dir;
            dir.mark_changed(CheckpointedOffset::HighWatermark);
        }
        self.producers.on_high_watermark(high_watermark);
        self.publish_first_unstable_offset();
        high_watermark
    }

    /// The producer state, for DescribeProducers.
    pub fn producers(&self) -> &ProducerState {
        &self.producers
    }

    /// Checks whether a batch with an assigned offset may be appended after those in `stage`.
    pub fn check_producer(
        &self,
        stage: &mut ProducerStage,
        batch: &RecordBatch,
        origin: AppendOrigin,
        transaction_version: TransactionVersion,
    ) -> Result<ProducerVerdict, ProducerError> {
        self.producers
            .check(stage, batch, origin, transaction_version)
    }

    /// The state of a producer, including the batches in `stage`.
    pub fn staged_producer<'a>(
        &'a self,
        stage: &'a ProducerStage,
        producer_id: ProducerId,
    ) -> Option<&'a ProducerStateEntry> {
        self.producers.staged_producer(stage, producer_id)
    }

    /// Removes producers that have not written for `producer.id.expiration.ms`. Returns how many.
    pub fn remove_expired_producers(&mut self, now: Timestamp) -> usize {
        self.producers.remove_expired(now)
    }

    pub fn set_producer_id_expiration_ms(&mut self, expiration_ms: i64) {
        self.producers.set_expiration_ms(expiration_ms);
    }

    fn publish_first_unstable_offset(&self) {
        let unstable = self.producers.first_unstable_offset();
        let unstable = unstable.map_or(Offset(i64::MAX), |o| o.max(self.log_start_offset()));
        self.shared
            .first_unstable_offset
            .store(unstable.0, Ordering::Release);
    }

    fn publish_segments(&self, segments: Vec<Arc<Segment>>, tail: Arc<BatchTail>) {
        let list = SegmentList::new(segments, tail);
        self.shared.segments.store(Arc::new(list));
        let dir = &self.shared.dir;
        dir.mark_changed(CheckpointedOffset::LogStartOffset);
    }

    fn set_log_end_offset(&self, offset: Offset) {
        self.shared
            .log_end_offset
            .store(offset.0, Ordering::Release);
    }

    /// Redirects the next appends to another file.
    #[cfg(test)]
    fn swap_active_file(&mut self, file: ottla_sync::fs::File) {
        self.active.segment.replace_log(file);
    }

    /// Makes the next append open the segment's own file again.
    #[cfg(test)]
    fn swap_active_file_back(&mut self) {
        self.active.segment.close_files();
    }
}
