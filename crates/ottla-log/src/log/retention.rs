//! Removing old records: by time, by size and by log start offset.
//!
//! Kafka: `UnifiedLog.deleteOldSegments`, `UnifiedLog.maybeIncrementLogStartOffset`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ottla_types::{Offset, Timestamp};

use super::Log;
use crate::checkpoint::CheckpointedOffset;
use crate::error::{LogError, StorageError};
use crate::jobs::DeleteJob;
use crate::reader::SegmentList;
use crate::segment::Segment;

/// A new log start offset above the high watermark.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the log cannot start at {offset}, beyond its high watermark {high_watermark}")]
pub struct LogStartOffsetError {
    pub offset: Offset,
    pub high_watermark: Offset,
}

impl Log {
    /// Makes records below `offset` unreadable (DeleteRecords). The next retention deletes their
    /// segments. Returns whether the start moved.
    pub fn increment_log_start_offset(
        &mut self,
        offset: Offset,
    ) -> Result<bool, LogStartOffsetError> {
        let high_watermark = self.high_watermark();
        if offset > high_watermark {
            return Err(LogStartOffsetError {
                offset,
                high_watermark,
            });
        }
        if offset <= self.log_start_offset() {
            return Ok(false);
        }
        self.move_log_start_offset(offset);
        Ok(true)
    }

    pub(super) fn move_log_start_offset(&mut self, offset: Offset) {
        let shared = &self.shared;
        shared.log_start_offset.store(offset.0, Ordering::Release);
        // Before the recovery point is raised: a checkpoint that contains the raised one must not
        // skip the log start offset.
        let dir = &shared.dir;
        dir.mark_changed(CheckpointedOffset::LogStartOffset);
        shared.high_watermark.fetch_max(offset.0, Ordering::AcqRel);
        {
            // Only to a segment's base offset: the segment that holds `offset` may have index
            // entries that were not flushed and that recovery must rebuild. And not past a segment
            // with an unflushed cut, whose truncated end may come back after a power loss.
            let list = shared.segments.load();
            let base_of = |index: usize| list.segments[index].base_offset;
            let base = list.floor(offset).map(base_of);
            let unflushed = self.first_unflushed(&list).map(base_of);
            let _guard = shared.truncations.lock();
            let recovery_point = base.unwrap_or(offset).min(unflushed.unwrap_or(offset));
            shared
                .recovery_point
                .fetch_max(recovery_point.0, Ordering::AcqRel);
        }
        dir.mark_all_changed();
        if self.leader_epochs.truncate_from_start(offset) {
            self.on_epochs_changed();
        }
        self.producers.on_log_start_offset(offset);
        self.publish_first_unstable_offset();
    }

    /// Removes the segments that retention allows to delete; the jobs of [`Log::take_jobs`] rename
    /// and unlink their files. Returns the number of segments removed.
    pub fn delete_old_segments(&mut self, now: Timestamp) -> Result<usize, LogError> {
        let mut deleted = self.delete_segments_below_start(now)?;
        if self.config.cleanup_policy.delete {
            deleted += self.delete_by_size(now)?;
            deleted += self.delete_by_time(now)?;
        }
        Ok(deleted)
    }

    /// As [`Log::delete_old_segments`], but removes only segments below the log start offset.
    pub fn delete_segments_below_start(&mut self, now: Timestamp) -> Result<usize, LogError> {
        self.delete_segments_while(now, |log, list, index| {
            let next = list.segments.get(index + 1);
            Ok(next.is_some_and(|next| next.base_offset <= log.log_start_offset()))
        })
    }

    fn delete_by_size(&mut self, now: Timestamp) -> Result<usize, LogError> {
        let size: u64 = self.segments().segments.iter().map(|s| s.size()).sum();
        let Ok(retention_bytes) = u64::try_from(self.config.retention_bytes) else {
            return Ok(0);
        };
        let Some(mut excess) = size.checked_sub(retention_bytes) else {
            return Ok(0);
        };
        self.delete_segments_while(now, |_, list, index| {
            match excess.checked_sub(list.segments[index].size()) {
                Some(rest) => {
                    excess = rest;
                    Ok(true)
                }
                None => Ok(false),
            }
        })
    }

    fn delete_by_time(&mut self, now: Timestamp) -> Result<usize, LogError> {
        let retention_ms = self.config.retention_ms;
        if retention_ms < 0 {
            return Ok(0);
        }
        self.delete_segments_while(now, |log, list, index| {
            let largest = list.segments[index]
                .largest_timestamp()
                .map_err(|error| StorageError::new("look at a segment of", &log.dir(), error))?;
            Ok(now.0.saturating_sub(largest.0) > retention_ms)
        })
    }

    /// Removes segments from the front while `may_go` allows it and they are below the high
    /// watermark. An empty active segment stays; one with records is replaced by an empty one.
    fn delete_segments_while(
        &mut self,
        now: Timestamp,
        mut may_go: impl FnMut(&Log, &SegmentList, usize) -> Result<bool, LogError>,
    ) -> Result<usize, LogError> {
        let list = self.segments();
        let mut count = 0;
        for (index, segment) in list.segments.iter().enumerate() {
            let next = list.segments.get(index + 1);
            let end = next.map_or(self.log_end_offset(), |next| next.base_offset);
            let is_empty_active = next.is_none() && segment.size() == 0;
            if is_empty_active || self.high_watermark() < end || !may_go(self, &list, index)? {
                break;
            }
            count += 1;
        }
        if count == 0 {
            return Ok(0);
        }
        if count == list.segments.len() {
            self.roll_at(self.log_end_offset(), now)?;
        }
        let list = self.segments();
        let (deleted, kept) = list.segments.split_at(count);
        self.move_log_start_offset(self.log_start_offset().max(kept[0].base_offset));
        self.publish_segments(kept.to_vec(), list.tail.clone());
        self.order_deletion(deleted.to_vec());
        Ok(count)
    }

    /// Hands the files of removed segments to a job that renames them.
    pub(super) fn order_deletion(&mut self, segments: Vec<Arc<Segment>>) {
        if segments.is_empty() {
            return;
        }
        for segment in &segments {
            self.forget_snapshot_at(segment.base_offset);
        }
        self.jobs.dir_version += 1;
        let rare = self.jobs.rare();
        rare.retired.retain(|old| Arc::strong_count(old) > 1);
        rare.retired.extend(segments.iter().cloned());
        rare.deletions.push(DeleteJob {
            segments,
            delay_ms: self.config.file_delete_delay_ms,
        });
    }

    /// Forgets the snapshot of a removed segment and cancels writing it.
    pub(super) fn forget_snapshot_at(&mut self, base_offset: Offset) {
        let of_segment = self.jobs.snapshots().iter();
        for snapshot in of_segment.filter(|snapshot| snapshot.offset == base_offset) {
            snapshot.cancel_unless_writing();
        }
        self.producers.forget_snapshot(base_offset);
    }
}
