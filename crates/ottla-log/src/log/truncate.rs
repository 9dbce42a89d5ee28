//! Truncation: removal of records that the leader does not have.
//!
//! Bytes that a network thread may still be sending are not overwritten, and nothing is copied: the
//! segment that contains the offset is truncated there and is not written any more, and the log
//! continues in a new segment. This needs no disk space, and its duration does not depend on the
//! amount of data that is kept.
//!
//! | step | a crash after it leaves |
//! | --- | --- |
//! | the recovery point is lowered, and the owner of the log writes its checkpoint | all records; more of them are scanned |
//! | the segments after the offset are renamed, the last first, and the directory is flushed | the front of the log |
//! | the new, empty segment gets its name | the same as the next step, not truncated: recovery truncates a segment where the next one starts |
//! | readers see the new segment, and the shorter one before it | the same |
//! | the files of the segment before it are truncated, its indexes first | the records that are kept |
//!
//! If no record is kept:
//!
//! | step | a crash after it leaves |
//! | --- | --- |
//! | the recovery point is lowered, as above | all records |
//! | the segments are renamed, the last first, and the directory is flushed | the front of the log, at last an empty log at its start |
//! | the producer snapshots are deleted; those of remote records and their epochs are written, and the directory is flushed | an empty log at its start: what the files hold of epochs and producers after it is dropped |
//! | the new, empty segment gets its name | the log that continues, with the state before it |
//!
//! So no record is ever under epochs of another history, and a log that continues after remote
//! records never lacks their epochs and producers. Kafka writes both after the new segment.
//!
//! Everything that needs memory or a read from disk is done before the first rename, and so is
//! everything that needs a file handle, except the state of remote records. If it fails, nothing
//! has changed, and the truncation can be retried. A later failure is a disk failure.
//!
//! In Kafka, which continues in the truncated segment: `UnifiedLog.truncateTo`,
//! `UnifiedLog.truncateFullyAndStartAt`, `LogSegment.truncateTo`.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ottla_types::{Offset, Timestamp};

use super::pending_jobs::Spare;
use super::{Log, recover};
use crate::batch_scan::ScanError;
use crate::checkpoint::CheckpointedOffset;
use crate::disk::{self, OpenDir};
use crate::disk_read::DiskWait;
use crate::error::{LogError, StorageError};
use crate::leader_epochs::LeaderEpochs;
use crate::producer_state::{ProducerState, snapshot_of_no_producers};
use crate::reader::LogReader;
use crate::segment::{Cut, Segment};
use crate::spare::{self, SpareSegment};

/// The resources that the rest of a truncation needs.
struct Resources {
    dir: OpenDir,
    spare: SpareSegment,
}

/// How a log without local records continues.
pub(super) struct Beginning<'a> {
    /// The local log starts and ends here.
    pub(super) offset: Offset,
    /// Lower if the records before `offset` are in remote storage.
    pub(super) log_start_offset: Offset,
    /// The epochs of the records before `offset`.
    pub(super) leader_epochs: LeaderEpochs,
    /// The content of the producer snapshot at `offset`.
    pub(super) producer_snapshot: Option<&'a [u8]>,
}

impl Log {
    /// The first step of a truncation: lowers the recovery point, and makes running flushes and
    /// cleanings void. The owner of the log then lowers the checkpoints of its directory, and
    /// truncates. Without this, recovery after a crash would start after the truncated offset, and
    /// skip records that were never flushed.
    pub fn announce_truncation(&mut self, offset: Offset) {
        self.jobs.flush_below = None;
        let mut truncations = self.shared.truncations.lock();
        *truncations += 1;
        // Below the offset, and so in the segment that is truncated, because truncated records may
        // reappear after a crash.
        let lowered = offset.plus(-1).max(Offset::ZERO);
        self.shared
            .recovery_point
            .fetch_min(lowered.0, Ordering::AcqRel);
        let dir = &self.shared.dir;
        dir.mark_changed(CheckpointedOffset::RecoveryPoint);
        // Remote storage has other records, if any, at the offsets that are written again.
        self.shared
            .highest_remote_offset
            .fetch_min(offset.0 - 1, Ordering::AcqRel);
    }

    /// The last step of a truncation. A cleaning that was planned since the announcement is void: it
    /// may have read segments that are gone, and would declare records clean that are appended in
    /// their place; or entries of the transaction index that are gone.
    fn conclude_truncation(&self) {
        *self.shared.truncations.lock() += 1;
    }

    /// This log replaces another one, and continues its count of truncations. Otherwise a decision
    /// based on the other log could be carried out after a truncation of this one.
    pub fn continue_truncations_of(&mut self, replaced: &LogReader) {
        let before = *replaced.shared.truncations.lock();
        let mut truncations = self.shared.truncations.lock();
        *truncations = before.max(*truncations);
    }

    /// Removes all records at or after `target`. Returns whether there were any. If the error says
    /// that the process has run out of a resource, the log is unchanged.
    pub fn truncate_to(&mut self, target: Offset, now: Timestamp) -> Result<bool, LogError> {
        assert!(target.0 >= 0, "a log is not truncated to a negative offset");
        let log_end_offset = self.log_end_offset();
        if target >= log_end_offset {
            if self.leader_epochs.truncate_from_end(log_end_offset) {
                self.on_epochs_changed();
            }
            return Ok(false);
        }
        self.settle_swaps()?;
        let list = self.segments();
        let Some(index) = list.floor(target) else {
            self.truncate_below_local_segments(target, now)?;
            return Ok(true);
        };
        self.announce_truncation(target);
        let holder = &list.segments[index];
        let scan_error = |error| self.scan_error(error);
        let kept = holder.locate(target, holder.size(), DiskWait::Allowed);
        let kept = kept.map_err(scan_error)?;
        let kept = kept.map_or(holder.size(), |batch| batch.position);
        let (cut, base_offset) = match kept {
            // No record of the segment is left. The new segment gets its base offset, because the
            // log still starts there.
            0 => (None, holder.base_offset),
            _ => {
                let cut = holder.prepare_cut(target, kept);
                (Some(cut.map_err(scan_error)?), target)
            }
        };
        let mut producers = self.producers_at(&list.segments[..=index], target, now)?;
        let resources = self.gather_resources()?;

        let mut segments = list.segments.clone();
        let removed = segments.split_off(index + usize::from(cut.is_some()));
        let created = self.replace_segments(&removed, base_offset, resources)?;
        if let (Some(cut), Some(last)) = (&cut, segments.last()) {
            last.set_size(cut.position);
            last.set_max_timestamp(cut.max_timestamp);
            last.are_indexes_flushed.store(false, Ordering::Release);
        }
        self.shared
            .log_end_offset
            .store(target.0, Ordering::Release);
        let before = self
            .shared
            .high_watermark
            .fetch_min(target.0, Ordering::AcqRel);
        // Before readers find no entry in the transaction index: transactions whose markers are gone
        // are open again.
        producers.on_high_watermark(target.min(Offset(before)));
        if let Some(unstable) = producers.first_unstable_offset() {
            self.shared
                .first_unstable_offset
                .fetch_min(unstable.0, Ordering::AcqRel);
        }
        self.shared
            .log_start_offset
            .fetch_min(target.0, Ordering::AcqRel);
        self.shared.dir.mark_all_changed();
        let before_new = segments.last().cloned();
        segments.push(Arc::new(created));
        self.start_active(segments, target, now);
        if target <= self.doubtful_from {
            self.keep_gaps();
        }
        self.order_deletion(removed);
        let cut = cut.as_ref().zip(before_new.as_deref());
        let finished = self.finish_truncation(cut, target, producers);
        self.conclude_truncation();
        finished.map(|()| true)
    }

    /// Cuts the segment before the new one, and replaces the epochs and producers by those at the
    /// new log end offset.
    fn finish_truncation(
        &mut self,
        cut: Option<(&Cut, &Segment)>,
        target: Offset,
        producers: ProducerState,
    ) -> Result<(), LogError> {
        if let Some((cut, last)) = cut
            && let Err(error) = last.cut(cut)
        {
            // No flush may vouch for a segment that overlaps the next one.
            self.shared.flushed.lock().failure = Some(error.kind());
            return Err(self.failed("cut a segment of", error).into());
        }
        self.jobs.flush_below = Some(target);
        if self.leader_epochs.truncate_from_end(target) {
            self.on_epochs_changed();
        }
        self.adopt_producers(producers, target)?;
        Ok(())
    }

    /// Removes all records of the local disk. Records of a tiered log that are only in remote
    /// storage and before `target` stay part of it, and so do their epochs: a leader finds the
    /// records by their epochs, and expires those before its start. Kafka forgets both.
    fn truncate_below_local_segments(
        &mut self,
        target: Offset,
        now: Timestamp,
    ) -> Result<(), LogError> {
        if !self.config.remote_storage_enable {
            return self.truncate_fully_and_start_at(target, None, now);
        }
        let start = self.log_start_offset().min(target);
        let mut leader_epochs = self.leader_epochs.clone();
        leader_epochs.truncate_from_end(target);
        let no_producers = snapshot_of_no_producers();
        let beginning = Beginning {
            offset: target,
            log_start_offset: start,
            leader_epochs,
            // Without it, a log could not begin where the local segments of this one do.
            producer_snapshot: (start < target).then_some(no_producers.as_slice()),
        };
        self.begin_anew(beginning, now)
    }

    /// Removes all records and continues the log at `offset`. It starts at `log_start_offset` if
    /// that is given. Errors as those of [`Log::truncate_to`].
    pub fn truncate_fully_and_start_at(
        &mut self,
        offset: Offset,
        log_start_offset: Option<Offset>,
        now: Timestamp,
    ) -> Result<(), LogError> {
        let beginning = Beginning {
            offset,
            log_start_offset: log_start_offset.unwrap_or(offset),
            leader_epochs: LeaderEpochs::default(),
            producer_snapshot: None,
        };
        self.begin_anew(beginning, now)
    }

    /// Removes all records. Errors as those of [`Log::truncate_to`].
    pub(super) fn begin_anew(
        &mut self,
        beginning: Beginning<'_>,
        now: Timestamp,
    ) -> Result<(), LogError> {
        let Beginning {
            offset,
            log_start_offset,
            leader_epochs,
            producer_snapshot,
        } = beginning;
        self.settle_swaps()?;
        self.announce_truncation(offset);
        let resources = self.gather_resources()?;
        let removed = self.segments().segments.clone();
        let spare = self.remove_segments(&removed, resources)?;
        let dir = self.dir();
        for snapshot in self.jobs.take_snapshots() {
            snapshot.cancel();
        }
        let begun = self.producers.truncate_fully_and_start_at(&dir, offset);
        begun.map_err(|error| self.failed(error.action, error.error))?;
        if let Some(snapshot) = producer_snapshot {
            let adopted = self
                .producers
                .adopt_foreign_snapshot(&dir, offset, snapshot, now);
            adopted.map_err(|error| self.failed_write(error))?;
        }
        // After the snapshot, because this flushes the directory.
        if !leader_epochs.entries().is_empty() {
            self.write_epochs_ahead(&leader_epochs)?;
        }
        let created = Segment::from_spare(&self.shared.dir, offset, spare)
            .map_err(|error| self.failed("begin a segment in", error))?;
        self.shared
            .log_end_offset
            .store(offset.0, Ordering::Release);
        self.shared
            .log_start_offset
            .store(log_start_offset.0, Ordering::Release);
        self.shared
            .high_watermark
            .store(offset.0, Ordering::Release);
        self.shared.dir.mark_all_changed();
        self.start_active(vec![Arc::new(created)], offset, now);
        self.keep_gaps();
        self.order_deletion(removed);
        self.leader_epochs = leader_epochs;
        self.on_epochs_changed();
        if producer_snapshot.is_some() {
            self.producers.on_high_watermark(offset);
        }
        self.publish_first_unstable_offset();
        self.conclude_truncation();
        Ok(())
    }

    /// Writes epochs that the log is about to get. Flushes that were ordered before do not replace
    /// them.
    fn write_epochs_ahead(&self, leader_epochs: &LeaderEpochs) -> Result<(), StorageError> {
        let mut flushed = self.shared.flushed.lock();
        let written = leader_epochs.write(&self.dir());
        written.map_err(|error| self.failed_write(error))?;
        flushed.epochs_version = self.jobs.epochs_version + 1;
        Ok(())
    }

    fn gather_resources(&mut self) -> Result<Resources, StorageError> {
        let dir = self.dir();
        let open = disk::open_dir(&dir).map_err(|error| StorageError::new("open", &dir, error))?;
        let ready = match std::mem::take(&mut self.jobs.spare) {
            Spare::Ready(spare) => Some(*spare),
            other => {
                self.jobs.spare = other;
                None
            }
        };
        let spare = match ready {
            Some(spare) => spare,
            None => {
                let number = self.next_random();
                spare::create(&self.shared.dir, number, 0)
                    .map_err(|error| StorageError::new("create a segment in", &dir, error))?
            }
        };
        Ok(Resources { dir: open, spare })
    }

    /// The new segment gets its name only when the removal is on disk; otherwise recovery could find
    /// newer records before older ones.
    fn replace_segments(
        &mut self,
        removed: &[Arc<Segment>],
        base_offset: Offset,
        resources: Resources,
    ) -> Result<Segment, StorageError> {
        let spare = self.remove_segments(removed, resources)?;
        Segment::from_spare(&self.shared.dir, base_offset, spare)
            .map_err(|error| self.failed("begin a segment in", error))
    }

    /// Renames the segments, the last first, so that a crash leaves the front of the log. Returns
    /// the files of the segment that follows.
    fn remove_segments(
        &mut self,
        removed: &[Arc<Segment>],
        resources: Resources,
    ) -> Result<SpareSegment, StorageError> {
        let retired = self.jobs.take_retired();
        // Pending jobs must not rename new files with the same names.
        for segment in removed.iter().rev().chain(&retired) {
            segment
                .rename_to_deleted()
                .map_err(|error| self.failed("rename a segment of", error))?;
        }
        if !removed.is_empty() {
            let synced = resources.dir.sync();
            synced.map_err(|error| StorageError::fsync(&self.dir(), error))?;
        }
        self.jobs.dir_version += 1;
        Ok(resources.spare)
    }

    /// The producer state at `end`, from the newest snapshot before it and the records after that.
    fn producers_at(
        &self,
        segments: &[Arc<Segment>],
        end: Offset,
        now: Timestamp,
    ) -> Result<ProducerState, LogError> {
        let mut producers = ProducerState::new(self.producers.expiration_ms());
        if self.producers.is_empty() && self.producers.map_end_offset() >= end {
            producers.set_map_end_offset(end);
            return Ok(producers);
        }
        recover::producers_at(recover::ProducersAt {
            producers,
            dir: &self.dir(),
            pending: self.jobs.snapshots(),
            segments,
            log_start_offset: self.log_start_offset(),
            end,
            now,
        })
    }

    /// Replaces the producer state with that at the new log end offset, and writes a snapshot of it
    /// at the next flush.
    fn adopt_producers(
        &mut self,
        mut producers: ProducerState,
        end: Offset,
    ) -> Result<(), StorageError> {
        let is_behind = |offset: Offset| offset >= end;
        let (dir, start) = (self.dir(), self.log_start_offset());
        for snapshot in self.jobs.snapshots() {
            if is_behind(snapshot.offset) {
                snapshot.cancel();
                // A flush may have written it after the files of its segment were renamed. It is of
                // records that are gone, and later truncations and recoveries list the files.
                let deleted = producers.delete_snapshot(&dir, snapshot.offset);
                deleted.map_err(|error| self.failed_write(error))?;
            }
        }
        self.jobs
            .retain_snapshots(|snapshot| !is_behind(snapshot.offset));
        let adopted = producers.adopt_snapshots(&self.producers, &dir, start, end);
        adopted.map_err(|error| self.failed_write(error))?;
        self.producers = producers;
        self.order_snapshot();
        self.producers.on_high_watermark(self.high_watermark());
        self.publish_first_unstable_offset();
        Ok(())
    }

    fn scan_error(&self, error: ScanError) -> LogError {
        let error = match error {
            ScanError::Io(error) => error,
            error => io::Error::new(io::ErrorKind::InvalidData, error.to_string()),
        };
        StorageError::new("read a segment of", &self.dir(), error).into()
    }

    /// An error after the log has changed, which is never one that a retry can fix.
    fn failed(&self, action: &'static str, error: io::Error) -> StorageError {
        let error = match error.kind() {
            // The partition is being deleted.
            io::ErrorKind::NotFound => error,
            _ => io::Error::other(error),
        };
        StorageError::new(action, &self.dir(), error)
    }

    /// As [`Log::failed`]; a failed fsync stays one.
    fn failed_write(&self, error: StorageError) -> StorageError {
        match error.is_failed_fsync {
            true => error,
            false => self.failed(error.action, error.error),
        }
    }
}
