//! Opening a log.
//!
//! 1. Leftovers of interrupted work are removed or completed (`leftovers`).
//! 2. Segments are listed and their indexes checked; an index that cannot be right is rebuilt.
//! 3. After a crash, the segments from the one that holds the recovery point on are scanned, and
//!    the log is cut at the first byte that is not a whole, valid batch (`recover`).
//! 4. Leader epochs are cut to the log's ends; the producer state is loaded from a snapshot and the
//!    records after it.
//!
//! | found | decision |
//! | --- | --- |
//! | `ottla-clean-logs` describes the log, and it has not changed since | opened without its files |
//! | no segment | an empty one at the log start offset |
//! | index missing, of wrong size or contradicting its segment | rebuilt from the segment |
//! | invalid bytes in an index rebuild below the recovery point | kept; reads of them fail |
//! | invalid bytes above the recovery point | cut off, later segments deleted |
//! | above the recovery point, a segment that overlaps the next | cut where the next begins: a truncation replaced the rest |
//! | a segment that ends before the next begins | both kept: compaction leaves such gaps, and nothing distinguishes them from a loss; above the recovery point, a follower fetches again from there on (`Log::doubtful_from`) |
//! | invalid bytes below the recovery point, in the segment that holds it | cut off as in Kafka, reported and logged as an error |
//! | the log ends before its recovery point, and no byte shows why | kept, and logged as an error |
//! | clean stop, but the last segment does not end with a whole batch | recovered as after a crash |
//! | the log ends before its start offset | all segments deleted, an empty one at the start offset |
//!
//! Kafka: `LogLoader`.

use ottla_sync::atomic::{AtomicI64, Ordering};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ottla_config::TopicConfig;
use ottla_sync::ArcSwap;
use ottla_types::{Offset, Timestamp, TopicPartition};

use ottla_sync::Mutex;

use super::leftovers::{self, Found};
use super::pending_jobs::PendingJobs;
use super::recover::{self, IndexFiles, SegmentScan};
use super::recovery_progress::RecoveryProgress;
use super::{ActiveSegment, Log};
use crate::batch_scan::{BatchLocation, BatchScanner, LOOKUP_WINDOW};
use crate::batch_tail::{BatchTail, Boundary};
use crate::checkpoint::CheckpointMarks;
use crate::clean_logs::CleanLog;
use crate::disk;
use crate::error::{LogError, StorageError};
use crate::handles::Handles;
use crate::leader_epochs::LeaderEpochs;
use crate::partition_dir::PartitionDir;
use crate::producer_state::ProducerState;
use crate::reader::{Flushed, SegmentList, Shared};
use crate::segment::{IndexSizes, Segment};
use crate::segment_file::SegmentFile;

/// Parameters of opening a log.
#[derive(Clone, Debug)]
pub struct OpenParams {
    /// The partition's directory; created if it is missing.
    pub dir: PathBuf,
    pub topic_partition: TopicPartition,
    pub config: Arc<TopicConfig>,
    /// From the checkpoint; 0 if it has no entry.
    pub recovery_point: Offset,
    /// From the checkpoint; 0 if it has no entry.
    pub log_start_offset: Offset,
    /// The log directory was stopped cleanly: nothing has to be scanned.
    pub clean_shutdown: bool,
    pub now: Timestamp,
    /// `producer.id.expiration.ms`
    pub producer_id_expiration_ms: i64,
    /// Seed of the roll jitter.
    pub random_seed: u64,
    /// The budget for its file handles.
    pub handles: Arc<Handles>,
    /// Those of the log directory.
    pub checkpoint_marks: Arc<CheckpointMarks>,
}

/// Writeback of appended pages is started after this many bytes, unless
/// [`Log::set_writeback_bytes`] changes it.
pub const DEFAULT_WRITEBACK_BYTES: u64 = 8 * 1024 * 1024;

/// What opening a log did.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RecoveryReport {
    /// Segments that were scanned because they might not have been on disk.
    pub segments_recovered: usize,
    /// Segments whose indexes were rebuilt, not counting `segments_recovered`.
    pub indexes_rebuilt: usize,
    /// Base offset of the first segment with rebuilt indexes.
    pub first_rebuilt: Option<Offset>,
    /// Bytes that were cut off because they were not valid batches.
    pub bytes_truncated: u64,
    /// Segments after a cut that were deleted.
    pub segments_deleted: usize,
    /// The offset at which the log was cut or ends, if it is below the recovery point.
    pub truncated_below_recovery_point: Option<Offset>,
    /// Above the recovery point, the offset at which a segment ends before the next one begins.
    pub first_gap: Option<Offset>,
}

impl Log {
    pub fn open(params: OpenParams) -> Result<(Log, RecoveryReport), LogError> {
        Log::open_with_progress(params, &RecoveryProgress::default())
    }

    /// As [`Log::open`]; other threads can read `progress` during the call.
    pub fn open_with_progress(
        params: OpenParams,
        progress: &RecoveryProgress,
    ) -> Result<(Log, RecoveryReport), LogError> {
        let mut found = match leftovers::clean(&params.dir) {
            // A start opens very many directories, which are there.
            Err(error) if error.error.kind() == std::io::ErrorKind::NotFound => {
                ottla_sync::fs::create_dir_all(&params.dir)
                    .map_err(|error| StorageError::new("create directory", &params.dir, error))?;
                leftovers::clean(&params.dir)?
            }
            found => found?,
        };
        let leader_epochs = match found.may_have_leader_epochs() {
            true => LeaderEpochs::read(&params.dir)?,
            false => LeaderEpochs::default(),
        };
        let base_offsets = std::mem::take(&mut found.base_offsets);
        let mut loader = Loader::new(params, found, leader_epochs.clone(), progress);
        // Most logs have one.
        loader.segments.reserve_exact(base_offsets.len().max(1));
        loader.load_segments(&base_offsets)?;
        let recovered = match loader.params.clean_shutdown && loader.is_last_segment_whole()? {
            true => {
                loader.find_gap_again()?;
                None
            }
            false => {
                loader.params.clean_shutdown = false;
                loader.recover()?
            }
        };
        loader.finish(&leader_epochs, recovered)
    }

    /// Opens a log that is as the last clean stop left it ([`CleanLog::is_unchanged`]), without
    /// reading its files.
    pub fn open_clean(
        params: OpenParams,
        clean: &CleanLog,
    ) -> Result<(Log, RecoveryReport), LogError> {
        let params = OpenParams {
            clean_shutdown: true,
            ..params
        };
        let found = Found::of_clean_log(clean.base_offset, &clean.snapshots);
        let progress = RecoveryProgress::default();
        let mut loader = Loader::new(params, found, clean.leader_epochs.clone(), &progress);
        let segment = loader.with_indexes(clean.base_offset, clean.size, clean.indexes);
        loader.segments.reserve_exact(1);
        loader.segments.push(Arc::new(segment));
        loader.end = Some(clean.log_end_offset);
        loader.first_batch_timestamp = clean.first_batch_timestamp;
        loader.is_clean_log = true;
        loader.finish(&clean.leader_epochs, None)
    }
}

struct Loader<'a> {
    params: OpenParams,
    dir: Arc<PartitionDir>,
    leader_epochs: LeaderEpochs,
    /// The epochs differ from the file.
    epochs_changed: bool,
    segments: Vec<Arc<Segment>>,
    report: RecoveryReport,
    /// The files that existed before recovery, without the segments.
    found: Found,
    /// The log end offset, so that the last segment is read once: found by recovery, or by the
    /// search for the last batch of a log that needs none.
    end: Option<Offset>,
    /// The largest timestamp of the first batch of the last segment, if one of the two has read it.
    first_batch_timestamp: Option<Timestamp>,
    /// Everything is known from a [`CleanLog`].
    is_clean_log: bool,
    progress: &'a RecoveryProgress,
}

/// The end of a segment.
#[derive(Clone, Copy, Default)]
struct LastBatches {
    /// The search for the last batch starts here.
    start: u64,
    first: Option<BatchLocation>,
    last: Option<BatchLocation>,
}

impl<'a> Loader<'a> {
    fn new(
        params: OpenParams,
        found: Found,
        leader_epochs: LeaderEpochs,
        progress: &'a RecoveryProgress,
    ) -> Loader<'a> {
        Loader {
            dir: PartitionDir::new(
                &params.dir,
                params.topic_partition.clone(),
                Arc::clone(&params.handles),
                Arc::clone(&params.checkpoint_marks),
            ),
            leader_epochs,
            epochs_changed: false,
            segments: Vec::new(),
            report: RecoveryReport::default(),
            found,
            end: None,
            first_batch_timestamp: None,
            is_clean_log: false,
            params,
            progress,
        }
    }

    fn path(&self) -> &Path {
        &self.params.dir
    }

    fn storage(&self, action: &'static str) -> impl Fn(std::io::Error) -> StorageError + '_ {
        move |error| StorageError::new(action, self.path(), error)
    }

    fn load_segments(&mut self, base_offsets: &[Offset]) -> Result<(), LogError> {
        let recovery_point = self.params.recovery_point;
        let holder = base_offsets.partition_point(|base_offset| *base_offset <= recovery_point);
        let first_recovered = match self.params.clean_shutdown {
            true => base_offsets.len(),
            false => holder.saturating_sub(1),
        };
        for (index, &base_offset) in base_offsets.iter().enumerate() {
            let log = SegmentFile::Log.path_in(self.path(), base_offset);
            let size = ottla_sync::fs::metadata(&log)
                .map_err(self.storage("look at a segment of"))?
                .len();
            if index >= first_recovered {
                // Recovery rebuilds its indexes, whatever the files hold.
                let segment = self.without_indexes(base_offset, size);
                self.segments.push(Arc::new(segment));
                continue;
            }
            let sizes = recover::check_indexes(
                self.path(),
                base_offset,
                size,
                self.found.may_have_transaction_index(base_offset),
            )
            .map_err(self.storage("read the indexes of"))?;
            let segment = match sizes {
                Some(sizes) => self.with_indexes(base_offset, size, sizes),
                None => self.rebuild_indexes(base_offset, size)?,
            };
            self.segments.push(Arc::new(segment));
        }
        Ok(())
    }

    /// A segment whose index files are complete.
    fn with_indexes(&self, base_offset: Offset, size: u64, sizes: IndexSizes) -> Segment {
        let segment = Segment::new(self.dir.clone(), base_offset, size, sizes, None);
        segment.are_indexes_flushed.store(true, Ordering::Release);
        segment.has_index_files.store(true, Ordering::Release);
        segment
    }

    fn without_indexes(&self, base_offset: Offset, size: u64) -> Segment {
        let sizes = IndexSizes::default();
        Segment::new(self.dir.clone(), base_offset, size, sizes, None)
    }

    /// Rebuilds the indexes of a segment that is not recovered. Its batches are not touched.
    fn rebuild_indexes(&mut self, base_offset: Offset, size: u64) -> Result<Segment, LogError> {
        self.report.indexes_rebuilt += 1;
        self.report.first_rebuilt.get_or_insert(base_offset);
        let segment = self.without_indexes(base_offset, size);
        // The producer state at the segment's start is needed to find the transactions aborted in
        // it.
        let mut producers = recover::producers_at(recover::ProducersAt {
            producers: ProducerState::new(self.params.producer_id_expiration_ms),
            dir: self.path(),
            pending: &[],
            segments: &self.segments,
            log_start_offset: self.params.log_start_offset,
            end: base_offset,
            now: self.params.now,
        })?;
        // The epochs stay those of the file, which a flush writes before the recovery point
        // advances. Epochs assigned from a segment in the middle would make earlier ones be
        // refused.
        let mut leader_epochs = self.leader_epochs.clone();
        let mut scan = SegmentScan {
            segment: &segment,
            index_files: IndexFiles::Stale,
            // Perhaps from an earlier rebuild.
            may_have_transaction_index: true,
            config: &self.params.config,
            leader_epochs: &mut leader_epochs,
            producers: &mut producers,
            next_base_offset: None,
            is_below_recovery_point: true,
        };
        let outcome = scan
            .run()
            .map_err(|error| StorageError::new("recover a segment of", &self.params.dir, error))?;
        if let Some(reason) = outcome.corruption {
            tracing::error!(
                dir = %self.path().display(), %base_offset, position = outcome.valid_bytes, %reason,
                "the segment is corrupt; reads beyond the damage will fail"
            );
        }
        Ok(segment)
    }

    /// Whether the last segment's file ends with a whole batch, as after a clean stop.
    fn is_last_segment_whole(&mut self) -> Result<bool, LogError> {
        let Some(last) = self.segments.last() else {
            return Ok(true);
        };
        let LastBatches {
            start,
            first,
            last: batch,
        } = self.last_batches(last)?;
        let end_position = batch.map_or(start, |batch| batch.end_position());
        let end = batch.map_or(last.base_offset, |batch| batch.next_offset());
        let is_whole = end_position == last.size();
        self.end = is_whole.then_some(end);
        let first = first.filter(|first| is_whole && first.position == 0);
        self.first_batch_timestamp = first.map(|first| first.max_timestamp);
        Ok(is_whole)
    }

    /// Scans the segments that may not be completely on disk, and cuts the log at the first invalid
    /// byte. Returns the producer state at the end of the scan.
    fn recover(&mut self) -> Result<Option<ProducerState>, LogError> {
        let recovery_point = self.params.recovery_point;
        let holder = self
            .segments
            .partition_point(|segment| segment.base_offset <= recovery_point);
        let first = holder.saturating_sub(1);
        let Some(base_offset) = self.segments.get(first).map(|segment| segment.base_offset) else {
            return Ok(None);
        };
        let to_scan = self.segments.len() - first;
        self.progress.set_remaining_segments(to_scan);
        self.complete_indexes(first)?;
        // The file's epochs for the offsets scanned again may date from before a truncation.
        self.leader_epochs.truncate_from_end(base_offset);
        let mut producers = ProducerState::new(self.params.producer_id_expiration_ms);
        let snapshots = &self.found.snapshots;
        let later = snapshots.partition_point(|offset| *offset <= base_offset);
        producers.set_listed_snapshots(&snapshots[..later]);
        self.rebuild_producers(&mut producers, base_offset, false)?;
        for index in first..self.segments.len() {
            let segment = &self.segments[index];
            let (base_offset, size) = (segment.base_offset, segment.size());
            let is_last = index + 1 == self.segments.len();
            // Rebuilding its indexes may have written one since the listing.
            let may_have_transaction_index = self.report.indexes_rebuilt > 0
                || self.found.may_have_transaction_index(base_offset);
            let sparse = match is_last && !may_have_transaction_index {
                true => recover::check_indexes(self.path(), base_offset, size, false)
                    .map_err(self.storage("read the indexes of"))?
                    .filter(|sizes| sizes.offset_entries == 0 && sizes.time_entries <= 1),
                false => None,
            };
            let sizes = sparse.unwrap_or_default();
            let scanned = Segment::new(self.dir.clone(), base_offset, size, sizes, None);
            let mut scan = SegmentScan {
                segment: &scanned,
                index_files: match sparse {
                    Some(sizes) => IndexFiles::Sparse {
                        unconfirmed: sizes.last_time_entry,
                    },
                    None => IndexFiles::Stale,
                },
                may_have_transaction_index,
                config: &self.params.config,
                leader_epochs: &mut self.leader_epochs,
                producers: &mut producers,
                next_base_offset: self.segments.get(index + 1).map(|next| next.base_offset),
                is_below_recovery_point: false,
            };
            let outcome = scan.run().map_err(|error| {
                StorageError::new("recover a segment of", &self.params.dir, error)
            })?;
            // At the end of the log, the next recovery would not use it.
            if !is_last || !producers.is_empty() {
                producers.write_snapshot(&self.params.dir)?;
            }
            self.end = Some(outcome.next_offset);
            self.first_batch_timestamp = outcome.first.map(|first| first.max_timestamp);
            self.report.segments_recovered += 1;
            self.progress.on_segment(size);
            self.segments[index] = Arc::new(scanned);
            if outcome.is_overlapped {
                self.cut_overlap(index, outcome.valid_bytes)?;
            }
            self.note_gap(index, outcome.next_offset);
            let Some(reason) = outcome.corruption else {
                continue;
            };
            self.cut(index, outcome.valid_bytes, outcome.next_offset, &reason)?;
            break;
        }
        self.progress.set_remaining_segments(0);
        let later = &self.found.snapshots[later..];
        producers.keep_confirmed_snapshots(
            &self.params.dir,
            later,
            self.end.unwrap_or(base_offset),
        )?;
        Ok(Some(producers))
    }

    /// Rebuilds the indexes of segments before `first` whose ends are missing: a flush does not
    /// write the indexes of an active segment, and the crash may have come before the next flush.
    fn complete_indexes(&mut self, first: usize) -> Result<(), LogError> {
        for index in 0..first {
            let segment = &self.segments[index];
            let (base_offset, size) = (segment.base_offset, segment.size());
            let is_complete = recover::are_indexes_complete(segment, &self.params.config)
                .map_err(self.storage("read the indexes of"))?;
            if !is_complete {
                self.segments[index] = Arc::new(self.rebuild_indexes(base_offset, size)?);
            }
        }
        Ok(())
    }

    /// Notes that segment `index` ends before the next one begins, at an offset at which a crash may
    /// have taken its end. That is where its last batch ends, also below the recovery point: a leader
    /// has a batch that ends there as well, and records of a follower cannot begin within a batch.
    fn note_gap(&mut self, index: usize, end: Offset) {
        let start = self.params.log_start_offset;
        let on_disk = self.params.recovery_point.max(start);
        if let Some(next) = self.segments.get(index + 1)
            && end.max(on_disk) < next.base_offset
        {
            self.report.first_gap.get_or_insert(end.max(start));
        }
    }

    /// After a clean stop, the recovery point of a log is at its end, except if a gap was in doubt when it
    /// was stopped, or if there is no checkpoint.
    fn find_gap_again(&mut self) -> Result<(), LogError> {
        let recovery_point = self.params.recovery_point;
        let last = self.segments.last();
        let is_in_doubt = last.is_some_and(|last| recovery_point < last.base_offset);
        if !is_in_doubt || recovery_point == Offset::ZERO {
            return Ok(());
        }
        let holder = self
            .segments
            .partition_point(|segment| segment.base_offset <= recovery_point);
        for index in holder.saturating_sub(1)..self.segments.len() {
            let segment = &self.segments[index];
            let last = self.last_batches(segment)?.last;
            let end = last.map_or(segment.base_offset, |batch| batch.next_offset());
            self.note_gap(index, end);
        }
        Ok(())
    }

    /// Cuts segment `index` where the next begins: a truncation had created the next segment, and
    /// the crash came before this one was cut.
    fn cut_overlap(&mut self, index: usize, kept_bytes: u64) -> Result<(), LogError> {
        let segment = &self.segments[index];
        let truncated = segment.size() - kept_bytes;
        tracing::warn!(
            dir = %self.path().display(), segment = %segment.base_offset, position = kept_bytes, truncated,
            next_segment = %self.segments[index + 1].base_offset,
            "cutting the end off a segment that a truncation had replaced"
        );
        self.report.bytes_truncated += truncated;
        self.set_size(segment, kept_bytes)
    }

    /// Cuts a segment's file and fsyncs the cut. If the recovery point is exactly at the cut and
    /// the next segment begins there, no recovery scans this segment again, and bytes that a power
    /// loss brought back would be read.
    fn set_size(&self, segment: &Segment, size: u64) -> Result<(), LogError> {
        let file = segment
            .log_file()
            .map_err(self.storage("open a segment of"))?;
        disk::set_len(&file, size).map_err(self.storage("truncate a segment of"))?;
        disk::sync_data(&file).map_err(|error| StorageError::fsync(self.path(), error))?;
        segment.set_size(size);
        Ok(())
    }

    /// Cuts segment `index` to its valid bytes and deletes the later segments.
    fn cut(
        &mut self,
        index: usize,
        valid_bytes: u64,
        end: Offset,
        reason: &str,
    ) -> Result<(), LogError> {
        let segment = &self.segments[index];
        let dir = self.path().display();
        let truncated = segment.size() - valid_bytes;
        // DeleteRecords may have raised the recovery point over records that were never fsynced and
        // can no longer be read.
        let recovery_point = self.params.recovery_point;
        if end < recovery_point && self.params.log_start_offset < recovery_point {
            tracing::error!(
                %dir, segment = %segment.base_offset, position = valid_bytes, truncated, reason,
                recovery_point = %self.params.recovery_point, log_end_offset = %end,
                "the log is corrupt below its recovery point; cutting off records that were on disk"
            );
            self.report.truncated_below_recovery_point = Some(end);
        } else {
            tracing::warn!(
                %dir, segment = %segment.base_offset, position = valid_bytes, truncated, reason,
                log_end_offset = %end, "cutting off the end of the log"
            );
        }
        self.report.bytes_truncated += truncated;
        self.set_size(segment, valid_bytes)?;
        let deleted = self.segments.split_off(index + 1);
        for segment in &deleted {
            self.report.segments_deleted += 1;
            segment
                .rename_to_deleted()
                .map_err(self.storage("rename a segment of"))?;
        }
        // The next append goes to an existing file. A power loss could then preserve that append
        // while the deleted files come back and are read after it. If this start is killed before,
        // the next one finds the renamed files.
        if !deleted.is_empty() {
            crate::checkpoint::sync_dir(self.path())?;
        }
        for segment in &deleted {
            self.delete_segment(segment)?;
        }
        Ok(())
    }

    /// Deletes the files of a segment at once: there are no readers yet.
    fn delete_segment(&self, segment: &Segment) -> Result<(), LogError> {
        segment
            .rename_to_deleted()
            .map_err(self.storage("rename a segment of"))?;
        for path in segment.deleted_paths() {
            disk::remove_file_if_there(&path)
                .map_err(|error| StorageError::new("delete", &path, error))?;
        }
        Ok(())
    }

    /// The whole batches of a segment from the position at which the index lets the search for the
    /// last one start.
    fn last_batches(&self, last: &Segment) -> Result<LastBatches, LogError> {
        if last.size() == 0 {
            return Ok(LastBatches::default());
        }
        let read = self.storage("read a segment of");
        let file = last.log_file_once().map_err(&read)?;
        let indexed = last
            .offset_index
            .last_entry(last.opener(SegmentFile::OffsetIndex))
            .map_err(&read)?;
        let start = indexed.map_or(0, |entry| entry.position);
        let mut scanner = BatchScanner::new(&file, start, last.size(), LOOKUP_WINDOW);
        let mut found = LastBatches {
            start,
            ..LastBatches::default()
        };
        while let Ok(Some(batch)) = scanner.next_batch() {
            found.first.get_or_insert(batch);
            found.last = Some(batch);
        }
        Ok(found)
    }

    /// The offset after the last batch of the last segment; `None` without segments.
    fn log_end_offset(&self) -> Result<Option<Offset>, LogError> {
        let Some(last) = self.segments.last() else {
            return Ok(None);
        };
        let batch = self.last_batches(last)?.last;
        Ok(Some(
            batch.map_or(last.base_offset, |batch| batch.next_offset()),
        ))
    }

    fn rebuild_producers(
        &self,
        producers: &mut ProducerState,
        end: Offset,
        has_no_producers: bool,
    ) -> Result<(), LogError> {
        recover::rebuild_producers(recover::Rebuild {
            producers,
            dir: self.path(),
            segments: &self.segments,
            log_start_offset: self.params.log_start_offset,
            end,
            now: self.params.now,
            has_no_producers,
        })
    }

    /// Builds the log. `recovered` is the producer state that recovery found.
    fn finish(
        mut self,
        on_disk: &LeaderEpochs,
        recovered: Option<ProducerState>,
    ) -> Result<(Log, RecoveryReport), LogError> {
        let checkpointed_start = self.params.log_start_offset;
        let mut end = match self.end {
            Some(end) => Some(end),
            None => self.log_end_offset()?,
        };
        if end.is_some_and(|end| end < checkpointed_start) {
            tracing::warn!(
                dir = %self.path().display(), log_start_offset = %checkpointed_start,
                "the log ends before its start offset; deleting all segments"
            );
            for segment in std::mem::take(&mut self.segments) {
                self.report.segments_deleted += 1;
                self.delete_segment(&segment)?;
            }
            self.leader_epochs.clear();
            // Otherwise the file would bring them back at the next start.
            self.leader_epochs.write(self.path())?;
            end = None;
        }
        let is_new = end.is_none();
        if is_new {
            let created = Segment::create(&self.dir, checkpointed_start)
                .map_err(self.storage("create segment in"))?;
            self.segments.push(Arc::new(created));
        }
        let end = end.unwrap_or(checkpointed_start);
        let recovery_point = match self.params.clean_shutdown && self.report.first_gap.is_none() {
            true => end,
            false => self.params.recovery_point.min(end),
        };
        self.report_missing_end(end);
        // Earlier segments of a tiered log are in remote storage.
        let start = match self.params.config.remote_storage_enable {
            true => checkpointed_start,
            false => checkpointed_start.max(self.segments[0].base_offset),
        };
        self.leader_epochs.truncate_from_end(end);
        self.leader_epochs.truncate_from_start(checkpointed_start);
        self.epochs_changed = self.leader_epochs != *on_disk;

        let mut producers = match recovered {
            Some(mut producers) => {
                producers.keep_what_snapshots_hold(self.params.now);
                // Otherwise it knows those that it has written and deleted.
                if self.report.segments_deleted > 0 {
                    producers.list_snapshots(self.path())?;
                }
                producers
            }
            None => {
                let mut producers = ProducerState::new(self.params.producer_id_expiration_ms);
                if self.report == RecoveryReport::default() {
                    producers.set_listed_snapshots(&self.found.snapshots);
                } else {
                    producers.list_snapshots(self.path())?;
                }
                producers
            }
        };
        let bases: Vec<Offset> = self.segments.iter().map(|s| s.base_offset).collect();
        producers.remove_stray_snapshots(self.path(), &bases)?;
        if is_new {
            producers.truncate_fully_and_start_at(self.path(), end)?;
        } else if self.is_clean_log {
            producers.resume_without_producers(self.path(), checkpointed_start, end)?;
        } else {
            let has_no_producers = self.params.clean_shutdown && self.found.snapshots.is_empty();
            self.rebuild_producers(&mut producers, end, has_no_producers)?;
        }
        let log = self.build(start, end, recovery_point, producers, is_new)?;
        Ok((log, self.report))
    }

    /// Logs an error if the log ends before its recovery point without invalid bytes: its files
    /// were cut at a batch boundary or are gone. A truncation whose checkpoint was lost in a crash
    /// looks the same and is reported too.
    fn report_missing_end(&mut self, end: Offset) {
        let OpenParams {
            recovery_point,
            log_start_offset,
            ..
        } = self.params;
        let is_told = self.report.truncated_below_recovery_point.is_some();
        if is_told || end >= recovery_point || log_start_offset >= recovery_point {
            return;
        }
        tracing::error!(
            dir = %self.path().display(), %recovery_point, log_end_offset = %end,
            "the log ends before its recovery point: either it was truncated just before the node stopped, or records that were on disk are gone"
        );
        self.report.truncated_below_recovery_point = Some(end);
    }

    fn build(
        &mut self,
        start: Offset,
        end: Offset,
        recovery_point: Offset,
        mut producers: ProducerState,
        is_new: bool,
    ) -> Result<Log, LogError> {
        // Snapshots that recovery wrote without fsync.
        let mut snapshots = producers.take_unforced();
        snapshots.retain(|snapshot| producers.has_snapshot(snapshot.offset));
        let unstable = producers.first_unstable_offset();
        let segment = self.segments.last().expect("there is a segment").clone();
        // Future entries will not be in its index files.
        segment.are_indexes_flushed.store(false, Ordering::Release);
        let first_batch_timestamp = match (segment.size(), self.first_batch_timestamp) {
            (0, _) => None,
            (_, Some(first)) => Some(first),
            (size, None) => {
                let file = segment.log_file_once();
                let file = file.map_err(self.storage("open a segment of"))?;
                let mut scanner = BatchScanner::new(&file, 0, size, LOOKUP_WINDOW);
                let first = scanner.next_batch().ok().flatten();
                first.map(|batch| batch.max_timestamp)
            }
        };
        let position = segment.size();
        let tail = BatchTail::new(Boundary {
            next_offset: end,
            position,
        });
        let list = SegmentList::new(std::mem::take(&mut self.segments), Arc::new(tail));
        let counter = |offset: Offset| AtomicI64::new(offset.0);
        let shared = Arc::new(Shared {
            dir: self.dir.clone(),
            config: ArcSwap::new(self.params.config.clone()),
            segments: ArcSwap::new(Arc::new(list)),
            leader_epochs: ArcSwap::new(self.leader_epochs.shared()),
            log_start_offset: counter(start),
            highest_remote_offset: AtomicI64::new(Offset::UNKNOWN.0),
            log_end_offset: counter(end),
            high_watermark: counter(start),
            first_unstable_offset: counter(unstable.unwrap_or(Offset(i64::MAX))),
            recovery_point: counter(recovery_point),
            truncations: Mutex::new(0),
            flushed: Mutex::new(Flushed {
                epochs_version: u32::from(!self.epochs_changed),
                // The preceding clean stop fsynced them.
                dir_version: u32::from(self.params.clean_shutdown && !is_new),
                is_parent_synced: self.params.clean_shutdown && !is_new,
                ..Flushed::default()
            }),
        });
        let mut log = Log {
            shared,
            active: ActiveSegment {
                segment,
                created: self.params.now,
                first_batch_timestamp,
                roll_jitter_ms: 0,
                bytes_since_last_index_entry: 0,
            },
            config: self.params.config.clone(),
            leader_epochs: std::mem::take(&mut self.leader_epochs),
            producers,
            writeback_bytes: DEFAULT_WRITEBACK_BYTES,
            random: self.params.random_seed,
            doubtful_from: self.report.first_gap.unwrap_or(Offset(i64::MAX)),
            had_topic_id: self.found.has_topic_id,
            jobs: PendingJobs {
                epochs_version: 1,
                dir_version: 1,
                written_back: position,
                ..PendingJobs::default()
            },
        };
        log.jobs.add_snapshots(snapshots);
        let random = log.next_random();
        log.active.roll_jitter_ms = log.config.segment_jitter(random);
        Ok(log)
    }
}
