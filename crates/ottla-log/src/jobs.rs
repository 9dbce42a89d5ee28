//! Blocking work of a log, as objects that a maintenance thread runs.
//!
//! A job owns what it needs (handles, copies of small state) and runs without the log, so that
//! appends and reads continue. Its result is stored by the job itself (the recovery point) or
//! returned through [`Log::on_job_done`](crate::Log::on_job_done) by the holder of the run token.

use ottla_sync::fs::{Writeback, forget_cached, sync_file_range};
use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use ottla_types::{Offset, TopicId};

use crate::checkpoint::{CheckpointedOffset, sync_dir};
use crate::clean_logs::{CleanLog, ClosedLog};
use crate::disk;
use crate::disk_read::DiskWait;
use crate::error::StorageError;
use crate::handles::LogFile;
use crate::index::OpenFile;
use crate::leader_epochs::LeaderEpochs;
use crate::producer_state::PendingSnapshot;
use crate::reader::{Flushed, LogReader, Shared};
use crate::segment::Segment;
use crate::segment_file::SegmentFile;
use crate::spare::{self, SpareSegment};
use crate::swap::Swap;
use crate::unlink::UnlinkJob;

/// A job for a maintenance thread. Jobs may run in any order.
pub enum Job {
    Flush(FlushJob),
    StartWriteback(WritebackJob),
    PrepareSpare(SpareJob),
    Delete(DeleteJob),
}

/// The follow-up of a job.
pub enum JobOutcome {
    Done,
    /// To be passed to [`Log::on_job_done`](crate::Log::on_job_done).
    Spare(SpareSegment),
    /// Pages under writeback, to be dropped from the page cache later.
    WrittenBack(WrittenPages),
    /// To be run after [`UnlinkJob::delay_ms`].
    Unlink(UnlinkJob),
}

impl Job {
    pub fn run(self) -> Result<JobOutcome, StorageError> {
        match self {
            Job::Flush(job) => job.run().map(|_| JobOutcome::Done),
            Job::StartWriteback(job) => job.run().map(JobOutcome::WrittenBack),
            Job::PrepareSpare(job) => job.run().map(JobOutcome::Spare),
            Job::Delete(job) => job.run().map(JobOutcome::Unlink),
        }
    }
}

static FLUSH_OBSERVER: OnceLock<fn(Duration)> = OnceLock::new();

/// Registers an observer for the time that each segment's fsync takes, for all logs of the process.
/// Kafka: `LogFlushStats`. Only the first call has an effect.
pub fn observe_flushes(observer: fn(Duration)) {
    let _ = FLUSH_OBSERVER.set(observer);
}

/// Fsyncs a log up to an offset and advances its recovery point.
pub struct FlushJob {
    pub(crate) shared: Arc<Shared>,
    /// The segments from the one that holds the recovery point to the one that holds the last
    /// record below `end`.
    pub(crate) segments: Vec<Arc<Segment>>,
    /// The end of what the job forces to disk, exclusive.
    pub(crate) end: Offset,
    /// The recovery point after it. Lower than the end while a gap is in doubt.
    pub(crate) up_to: Offset,
    /// The value of [`Shared::truncations`] when the job was made.
    pub(crate) truncations: u64,
    /// Incremented whenever a file is created or renamed.
    pub(crate) dir_version: u32,
    /// The base offset of the active segment. Its offset and time index are not fsynced, because
    /// recovery rebuilds them; `None` to fsync the indexes of all segments.
    pub(crate) active: Option<Offset>,
    pub(crate) state: StateFiles,
}

/// Small files whose content is decided on the append path. A flush writes them before the recovery
/// point passes the records that changed them.
#[derive(Default)]
pub(crate) struct StateFiles {
    pub(crate) leader_epochs: Option<EpochsVersion>,
    pub(crate) snapshots: Vec<Arc<PendingSnapshot>>,
}

/// The leader epochs of a log with a version that grows with every change.
#[derive(Clone)]
pub(crate) struct EpochsVersion {
    pub(crate) epochs: LeaderEpochs,
    pub(crate) version: u32,
}

impl FlushJob {
    /// The offset below which the log is on disk after the job.
    pub fn up_to(&self) -> Offset {
        self.up_to
    }

    /// Waits for a running flush of the same log. Returns `up_to`.
    pub fn run(&self) -> Result<Offset, StorageError> {
        let shared = &self.shared;
        let mut flushed = shared.flushed.lock();
        if let Some(kind) = flushed.failure.or(shared.dir.lost()) {
            // The error keeps the kind of the first failure: that the directory of a deleted log is
            // gone is not a disk failure, however often it is reported.
            let error = io::Error::new(kind, "an earlier flush has failed");
            return Err(StorageError::fsync(&shared.dir.path(), error));
        }
        let result = self.flush(&mut flushed);
        let failed = result.as_ref().err().filter(|error| error.is_failed_fsync);
        flushed.failure = failed.map(|error| error.error.kind());
        result?;
        shared.on_flushed(self.up_to, self.truncations);
        Ok(self.up_to)
    }

    fn flush(&self, flushed: &mut Flushed) -> Result<(), StorageError> {
        let dir = self.shared.dir.path();
        let epochs_version = self.state.write(&dir, flushed)?;
        flushed.has_created |= epochs_version.is_some();
        let recovery_point = self.shared.offset(&self.shared.recovery_point);
        for segment in &self.segments {
            // At a stop, most logs are unchanged since the last flush or the last start.
            if recovery_point >= self.end && segment.is_at_rest() {
                continue;
            }
            let began = Instant::now();
            self.flush_segment(segment, &mut flushed.has_created)?;
            if let Some(observe) = FLUSH_OBSERVER.get() {
                observe(began.elapsed());
            }
        }
        // A log that never had a record is created again if it is missing.
        if self.end == Offset::ZERO && !flushed.has_created {
            return Ok(());
        }
        if flushed.has_created || flushed.dir_version < self.dir_version {
            sync_dir(&dir)?;
            flushed.has_created = false;
            flushed.dir_version = flushed.dir_version.max(self.dir_version);
        }
        if let Some(version) = epochs_version {
            flushed.epochs_version = version;
        }
        if !flushed.is_parent_synced {
            self.shared.dir.sync_name()?;
            flushed.is_parent_synced = true;
        }
        Ok(())
    }

    /// Sets `has_created` before it creates a file, whose directory entry must be fsynced.
    fn flush_segment(&self, segment: &Segment, has_created: &mut bool) -> Result<(), StorageError> {
        let dir = self.shared.dir.path();
        let fsync = |result| unless_deleted(result, |error| StorageError::fsync(&dir, error));
        let write = |result| {
            unless_deleted(result, |error| {
                StorageError::new("write the indexes of", &dir, error)
            })
        };
        // A failed open is not a failed fsync.
        let open = |file: io::Result<Arc<LogFile>>| match file {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StorageError::new("open a segment of", &dir, error)),
        };
        let open_index = |kind| open(segment.opener(kind).open(DiskWait::Allowed));
        if let Some(file) = open(segment.log_file())? {
            fsync(segment.force_log(&file))?;
        }
        // Also for the active segment: once the next segment begins at the recovery point, recovery
        // does not scan this one again, and a missing aborted transaction would go unnoticed.
        let aborted = segment.transaction_index.entries();
        if aborted.is_unforced() {
            *has_created |= !aborted.is_in_file();
            let opener = segment.opener(SegmentFile::TransactionIndex);
            write(aborted.write_tail(opener))?;
            if let Some(file) = open_index(SegmentFile::TransactionIndex)? {
                fsync(aborted.sync(&file))?;
            }
        }
        if self.active == Some(segment.base_offset) {
            return Ok(());
        }
        write(segment.write_index_tails())?;
        // The file of an index without entries is empty. Only its name has to be on disk, and is
        // when the directory is fsynced.
        let has_files = segment.has_index_files.load(Ordering::Acquire);
        let is_needed = |never_had_entries: bool| !(has_files && never_had_entries);
        if is_needed(segment.offset_index.entries().is_untouched())
            && let Some(file) = open_index(SegmentFile::OffsetIndex)?
        {
            fsync(segment.offset_index.entries().sync(&file))?;
        }
        if is_needed(segment.time_index.entries().is_untouched())
            && let Some(file) = open_index(SegmentFile::TimeIndex)?
        {
            fsync(segment.time_index.entries().sync(&file))?;
        }
        let truncations = self.shared.truncations.lock();
        if u64::from(*truncations) == self.truncations {
            segment.are_indexes_flushed.store(true, Ordering::Release);
        }
        Ok(())
    }
}

/// Ignores that the file of a concurrently deleted segment is gone.
fn unless_deleted(
    result: io::Result<()>,
    to_error: impl FnOnce(io::Error) -> StorageError,
) -> Result<(), StorageError> {
    match result {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(to_error(error)),
        _ => Ok(()),
    }
}

impl StateFiles {
    /// Returns the version of the leader epochs if their file was replaced: the directory has to be
    /// fsynced.
    fn write(&self, dir: &Path, flushed: &Flushed) -> Result<Option<u32>, StorageError> {
        let mut replaced = None;
        if let Some(EpochsVersion { epochs, version }) = &self.leader_epochs {
            // Jobs may run in any order: an older list must not replace a newer one.
            if flushed.epochs_version < *version {
                epochs.replace(dir)?;
                replaced = Some(*version);
            }
        }
        for snapshot in &self.snapshots {
            snapshot.write_once(dir)?;
        }
        Ok(replaced)
    }
}

impl Shared {
    /// Advances the recovery point, unless the log was truncated since `truncations` was read.
    pub(crate) fn on_flushed(&self, up_to: Offset, truncations: u64) {
        let current = self.truncations.lock();
        if u64::from(*current) == truncations {
            self.recovery_point.fetch_max(up_to.0, Ordering::AcqRel);
            self.dir.mark_changed(CheckpointedOffset::RecoveryPoint);
        }
    }
}

/// Starts writeback of dirty pages, so that a flush does not have to wait for all of them.
/// Guarantees nothing about the disk.
pub struct WritebackJob {
    pub(crate) shared: Arc<Shared>,
    pub(crate) segment: Arc<Segment>,
    /// A range of the log file, in whole pages.
    pub(crate) range: Range<u64>,
    /// All records in the range are below this offset.
    pub(crate) end_offset: Offset,
    /// The value of [`Shared::truncations`] when the job was made.
    pub(crate) truncations: u64,
}

impl WritebackJob {
    pub fn run(self) -> Result<WrittenPages, StorageError> {
        let len = self.range.end - self.range.start;
        let path = self.shared.dir.path();
        let file = self.segment.log_file();
        let file = file.map_err(|error| StorageError::new("open a segment of", &path, error))?;
        sync_file_range(&file, self.range.start, len, Writeback::Begin).map_err(|error| {
            // The kernel may report a lost write only once, so later flushes must fail too.
            self.shared.flushed.lock().failure = Some(error.kind());
            StorageError::fsync(&path, error)
        })?;
        Ok(WrittenPages {
            log: Arc::downgrade(&self.shared),
            segment: Arc::downgrade(&self.segment),
            range: self.range,
            end_offset: self.end_offset,
            truncations: self.truncations,
        })
    }
}

/// Pages of a log file that an append left in the page cache and that are under writeback.
pub struct WrittenPages {
    log: Weak<Shared>,
    /// Weak, so that the space of a deleted file can be freed.
    pub(crate) segment: Weak<Segment>,
    range: Range<u64>,
    end_offset: Offset,
    truncations: u64,
}

impl WrittenPages {
    pub fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// The log that the pages belong to, if it still exists.
    pub fn log(&self) -> Option<LogReader> {
        let shared = self.log.upgrade()?;
        Some(LogReader { shared })
    }

    /// A reader at this offset or later needs none of the pages.
    pub fn end_offset(&self) -> Offset {
        self.end_offset
    }

    /// The log's [`LogReader::truncations`] when it had the records of the pages. With more, it may
    /// have others at their offsets.
    pub fn truncations(&self) -> u64 {
        self.truncations
    }

    /// Waits for the writeback of the pages and drops them from the page cache; the kernel keeps
    /// dirty pages. Blocks.
    pub fn drop_from_cache(self) -> Result<(), StorageError> {
        let len = NonZeroU64::new(self.bytes());
        let (Some(shared), Some(segment), Some(len)) =
            (self.log.upgrade(), self.segment.upgrade(), len)
        else {
            return Ok(());
        };
        let path = shared.dir.path();
        let file = match segment.log_file() {
            Ok(file) => file,
            // The file was deleted, and its pages with it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(StorageError::new("open a segment of", &path, error)),
        };
        // As above: a concurrent flush must see a failure that the kernel reports only here.
        let mut flushed = shared.flushed.lock();
        let awaited = sync_file_range(&file, self.range.start, len.get(), Writeback::Await);
        awaited.map_err(|error| {
            flushed.failure = Some(error.kind());
            StorageError::fsync(&path, error)
        })?;
        drop(flushed);
        forget_cached(&file, self.range.start, Some(len))
            .map_err(|error| StorageError::fsync(&path, error))
    }
}

/// Creates the log file of the next segment in advance, under a name that a load deletes.
pub struct SpareJob {
    pub(crate) shared: Arc<Shared>,
    /// Makes the file's name unique among the spares.
    pub(crate) number: u64,
    /// `preallocate`: blocks to reserve; the file's size stays 0.
    pub(crate) reserve_bytes: u64,
}

impl SpareJob {
    pub fn run(self) -> Result<SpareSegment, StorageError> {
        let path = self.shared.dir.path();
        spare::create(&self.shared.dir, self.number, self.reserve_bytes)
            .map_err(|error| StorageError::new("create a segment in", &path, error))
    }
}

/// Renames the files of segments that were removed from the log.
pub struct DeleteJob {
    pub(crate) segments: Vec<Arc<Segment>>,
    pub(crate) delay_ms: i64,
}

impl DeleteJob {
    pub fn run(self) -> Result<UnlinkJob, StorageError> {
        for segment in &self.segments {
            let error = |error| StorageError::new("rename segment in", &segment.dir(), error);
            segment.rename_to_deleted().map_err(error)?;
        }
        Ok(UnlinkJob::of(self.segments, self.delay_ms))
    }
}

/// Work of a clean stop: fsyncs everything and completes the indexes.
pub struct CloseJob {
    pub(crate) flush: FlushJob,
    /// The segment whose file has reserved blocks after its end, and its size.
    pub(crate) cut: Option<(Arc<Segment>, u64)>,
    /// Removed segments whose files are not renamed yet.
    pub(crate) retired: Vec<Arc<Segment>>,
    /// Cleaned segments whose swap is not finished.
    pub(crate) swaps: Vec<Arc<Swap>>,
    /// `None` if the next start has to look at the files.
    pub(crate) closed: Option<ClosedLog>,
}

impl CloseJob {
    /// Returns the log end offset, below which everything is on disk. May be run again after an
    /// error caused by a lack of resources.
    pub fn run(&self) -> Result<Offset, StorageError> {
        let dir = self.flush.shared.dir.path();
        for swap in &self.swaps {
            swap.settle()?;
        }
        for segment in &self.retired {
            segment
                .rename_to_deleted()
                .map_err(|error| StorageError::new("rename a segment of", &dir, error))?;
        }
        let end = self.flush.run()?;
        if let Some((segment, size)) = &self.cut {
            let cut = segment.log_file();
            cut.and_then(|file| disk::set_len(&file, *size))
                .map_err(|error| StorageError::new("cut a segment of", &dir, error))?;
        }
        // No longer needed here, and other logs may need the handles.
        let segments = self.flush.segments.iter();
        segments.for_each(|segment| segment.close_files());
        Ok(end)
    }

    /// What the next start can know about the log without reading its files; `None` if it has to
    /// read them. To be called after the job has succeeded. `topic_id` is that of
    /// `partition.metadata`. Lists the directory.
    pub fn clean_log(&self, topic_id: TopicId) -> Option<CleanLog> {
        let topic_partition = self.flush.shared.dir.topic_partition();
        self.closed.as_ref()?.look(topic_partition, topic_id)
    }
}
