//! Maintenance work that a log hands out, and the results it takes back.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ottla_types::Offset;

use super::Log;
use super::pending_jobs::Spare;
use crate::clean_logs::ClosedLog;
use crate::error::StorageError;
use crate::handles::retry_lacking;
use crate::jobs::{
    CloseJob, EpochsVersion, FlushJob, Job, JobOutcome, SpareJob, StateFiles, WritebackJob,
};
use crate::reader::SegmentList;
use crate::segment::Segment;

/// Writeback ends at a multiple of this. The next append dirties the page at the log end again, so
/// writing it now would be wasted, and dropping it would cause a read. Also, pages are cached in
/// naturally aligned folios, which are dropped as a whole or not at all.
const WRITEBACK_ALIGNMENT: u64 = 1024 * 1024;

/// The size of the prefix whose pages no append will touch.
fn whole_pages(size: u64) -> u64 {
    size - size % WRITEBACK_ALIGNMENT
}

impl Log {
    /// Whether [`Log::take_jobs`] would return a job. Cheap: called after every append.
    pub fn has_jobs(&self) -> bool {
        self.jobs.has_deletions()
            || self.jobs.flush_below.is_some()
            || self.is_writeback_due()
            || self.is_spare_due()
    }

    /// Work for a maintenance thread.
    pub fn take_jobs(&mut self) -> Vec<Job> {
        let mut jobs: Vec<Job> = Vec::new();
        jobs.extend(self.jobs.take_deletions().into_iter().map(Job::Delete));
        if let Some(up_to) = self.jobs.flush_below.take() {
            jobs.extend(self.flush_job_up_to(up_to).map(Job::Flush));
        }
        if self.is_writeback_due() {
            let start = self.jobs.written_back;
            let end = whole_pages(self.active.segment.size());
            self.jobs.written_back = end;
            let segment = &self.active.segment;
            jobs.push(Job::StartWriteback(WritebackJob {
                shared: self.shared.clone(),
                segment: Arc::clone(segment),
                range: start..end,
                end_offset: self.log_end_offset(),
                truncations: u64::from(*self.shared.truncations.lock()),
            }));
        }
        if self.is_spare_due() {
            self.jobs.spare = Spare::Ordered;
            jobs.push(Job::PrepareSpare(SpareJob {
                shared: self.shared.clone(),
                number: self.next_random(),
                reserve_bytes: self.bytes_to_reserve(),
            }));
        }
        jobs
    }

    /// Takes the result of a job of this log.
    pub fn on_job_done(&mut self, outcome: JobOutcome) {
        if let JobOutcome::Spare(spare) = outcome {
            self.jobs.spare = Spare::Ready(Box::new(spare));
        }
    }

    /// A [`Job::PrepareSpare`] failed. No other is ordered before the next roll, which creates its
    /// own files: on a full disk every attempt would fail.
    pub fn on_spare_refused(&mut self) {
        if matches!(self.jobs.spare, Spare::Ordered) {
            self.jobs.spare = Spare::Refused;
        }
    }

    fn is_writeback_due(&self) -> bool {
        let every = self.writeback_bytes;
        let end = whole_pages(self.active.segment.size());
        every > 0 && end.saturating_sub(self.jobs.written_back) >= every
    }

    /// A spare is created when the segment is half full, so that idle logs have none.
    fn is_spare_due(&self) -> bool {
        matches!(self.jobs.spare, Spare::None)
            && self.active.segment.size() > self.segment_bytes() / 2
    }

    pub(super) fn bytes_to_reserve(&self) -> u64 {
        match self.config.preallocate {
            true => self.segment_bytes(),
            false => 0,
        }
    }

    /// A job that fsyncs everything in the log; `None` if everything is on disk.
    pub fn flush_job(&mut self) -> Option<FlushJob> {
        self.flush_job_up_to(self.log_end_offset())
    }

    fn flush_job_up_to(&mut self, up_to: Offset) -> Option<FlushJob> {
        let recovery_point = self.shared.offset(&self.shared.recovery_point);
        self.jobs.retain_snapshots(|snapshot| !snapshot.is_done());
        // If a flush is running, its result is unknown.
        let has_state = !self.jobs.snapshots().is_empty()
            || (self.shared.flushed.try_lock())
                .is_none_or(|flushed| flushed.epochs_version < self.jobs.epochs_version);
        let is_sealed_unflushed = self.first_unflushed(&self.segments()).is_some();
        (up_to > recovery_point || has_state || is_sealed_unflushed)
            .then(|| self.make_flush_job(up_to, false))
    }

    /// `is_last` is for a clean stop, after which the indexes of the active segment are trusted
    /// too.
    fn make_flush_job(&mut self, up_to: Offset, is_last: bool) -> FlushJob {
        let truncations = u64::from(*self.shared.truncations.lock());
        let recovery_point = self.shared.offset(&self.shared.recovery_point);
        let list = self.segments();
        let first = list.floor(recovery_point).unwrap_or(0);
        let first = self.first_unflushed(&list).unwrap_or(first).min(first);
        let in_range = list.segments[first..]
            .iter()
            .take_while(|segment| segment.base_offset < up_to || is_last);
        let active = list.active().base_offset;
        FlushJob {
            shared: self.shared.clone(),
            segments: in_range.cloned().collect(),
            end: up_to.max(recovery_point),
            up_to: up_to.min(self.doubtful_from).max(recovery_point),
            truncations,
            dir_version: self.jobs.dir_version,
            active: (!is_last).then_some(active),
            state: StateFiles {
                leader_epochs: self.unwritten_epochs(),
                snapshots: self.jobs.snapshots().to_vec(),
            },
        }
    }

    /// The first sealed segment whose indexes were not flushed. The recovery point may be above it
    /// already, if the last flush of the segment while it was active covered all its records.
    pub(super) fn first_unflushed(&self, list: &SegmentList) -> Option<usize> {
        let sealed = &list.segments[..list.segments.len() - 1];
        let is_unflushed =
            |segment: &Arc<Segment>| !segment.are_indexes_flushed.load(Ordering::Acquire);
        sealed.iter().position(is_unflushed)
    }

    /// The leader epochs, unless the file is known to hold them.
    fn unwritten_epochs(&self) -> Option<EpochsVersion> {
        let version = self.jobs.epochs_version;
        let flushed = self.shared.flushed.try_lock();
        let is_written = flushed.is_some_and(|flushed| flushed.epochs_version >= version);
        (!is_written).then(|| EpochsVersion {
            epochs: self.leader_epochs.clone(),
            version,
        })
    }

    /// Takes a producer snapshot at the log end, to be written by the next flush.
    pub(super) fn order_snapshot(&mut self) {
        let taken = self.producers.take_snapshot();
        self.jobs.add_snapshots(taken);
    }

    /// Publishes changed epochs to readers and marks their file as stale.
    pub(super) fn on_epochs_changed(&mut self) {
        self.jobs.epochs_version += 1;
        let epochs = self.leader_epochs.shared();
        self.shared.leader_epochs.store(epochs);
    }

    /// The work of a clean stop, after which a start trusts all files: a producer snapshot at the
    /// log end, everything fsynced, all indexes complete. Nothing may be appended any more.
    pub fn close_job(&mut self) -> CloseJob {
        let active = &self.active.segment;
        if let Some(max) = active.max_timestamp() {
            active.time_index.append_if_younger(max);
        }
        self.order_snapshot();
        let end = self.log_end_offset();
        let is_reserved = self.bytes_to_reserve() > 0;
        let mut flush = self.make_flush_job(end, true);
        let mut leader_epochs = Some(self.leader_epochs.clone());
        if end == self.log_start_offset() && flush.state.leader_epochs.take().is_some() {
            // Epochs without records: as after a crash, the next leader starts an epoch of its own.
            leader_epochs = None;
        }
        let is_simple = self.segments().segments.len() == 1 && self.producers.is_empty();
        let closed = is_simple.then(|| ClosedLog {
            segment: Arc::clone(&self.active.segment),
            log_end_offset: end,
            first_batch_timestamp: self.active.first_batch_timestamp,
            leader_epochs,
        });
        CloseJob {
            flush,
            cut: is_reserved
                .then(|| (Arc::clone(&self.active.segment), self.active.segment.size())),
            retired: self.jobs.take_retired(),
            swaps: self.jobs.take_swaps(),
            closed,
        }
    }

    /// Runs [`Log::close_job`], retrying while handles or memory are short. Returns the log end
    /// offset. Blocks.
    pub fn close(mut self) -> Result<Offset, StorageError> {
        let job = self.close_job();
        retry_lacking(|| job.run())
    }

    /// Starts writeback after every `bytes` bytes appended; 0 for never.
    pub fn set_writeback_bytes(&mut self, bytes: u64) {
        self.writeback_bytes = bytes;
    }
}
