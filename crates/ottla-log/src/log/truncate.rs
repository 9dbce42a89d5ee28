//! Taking back records that the leader does not have.
//!
//! Bytes that readers may have handed to the network are not overwritten: the part of a segment that is
//! kept is copied to a new file, which takes the name. Blocks for the time of the copy; followers
//! truncate rarely, and never while they lead.
//!
//! 1. The segments behind are renamed, the last first, to be deleted.
//! 2. The copy is written under a `.deleted` name and forced to disk.
//! 3. It is renamed over the `.log` file; the indexes are replaced in the same way.
//!
//! A crash between the steps leaves a log that recovery cuts or that the leader truncates again.
//!
//! Kafka: `UnifiedLog.truncateTo`, `UnifiedLog.truncateFullyAndStartAt`, `LogSegment.truncateTo`.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ottla_types::{Offset, Timestamp};

use super::{Log, recover};
use crate::batch_scan::{BatchScanner, LOOKUP_WINDOW, ScanError};
use crate::batch_tail::{BatchTail, Boundary};
use crate::disk;
use crate::disk_read::DiskWait;
use crate::error::{LogError, StorageError};
use crate::file_names::{DELETED_SUFFIX, file_name};
use crate::index::TimestampOffset;
use crate::segment::{IndexSizes, Segment, SegmentFile};

impl Log {
    /// Removes all records at or behind `target`. Returns whether there were any.
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
            self.truncate_fully_and_start_at(target, None, now)?;
            return Ok(true);
        };
        let mut segments = list.segments.clone();
        let removed = segments.split_off(index + 1);
        let last = &segments[index];
        let kept = match last.locate(target, last.size(), DiskWait::Allowed) {
            Ok(Some(batch)) => batch.position,
            Ok(None) => last.size(),
            Err(error) => return Err(self.scan_error(error)),
        };
        self.rename_from_the_end(&removed)?;
        if kept < last.size() {
            let copy = self.copy_front(last, target, kept)?;
            segments[index] = Arc::new(copy);
        }
        self.lower_recovery_point(target);
        self.shared
            .log_end_offset
            .store(target.0, Ordering::Release);
        self.shared
            .high_watermark
            .fetch_min(target.0, Ordering::AcqRel);
        self.shared
            .log_start_offset
            .fetch_min(target.0, Ordering::AcqRel);
        self.resume_active(segments, target, now)?;
        self.order_deletion(removed);
        self.rename_retired()?;
        if self.leader_epochs.truncate_from_end(target) {
            self.on_epochs_changed();
        }
        self.reload_producers(target, now)?;
        Ok(true)
    }

    /// Removes all records and lets the log go on at `offset`; it starts at `log_start_offset` where one
    /// is given.
    pub fn truncate_fully_and_start_at(
        &mut self,
        offset: Offset,
        log_start_offset: Option<Offset>,
        now: Timestamp,
    ) -> Result<(), LogError> {
        self.settle_swaps()?;
        let removed = self.segments().segments.clone();
        self.rename_from_the_end(&removed)?;
        self.order_deletion(removed);
        self.rename_retired()?;
        let created = Segment::create(&self.shared.dir, offset)
            .map_err(|error| StorageError::new("create a segment in", &self.dir(), error))?;
        self.lower_recovery_point(offset);
        let start = log_start_offset.unwrap_or(offset);
        self.shared
            .log_end_offset
            .store(offset.0, Ordering::Release);
        self.shared
            .log_start_offset
            .store(start.0, Ordering::Release);
        self.shared
            .high_watermark
            .store(offset.0, Ordering::Release);
        self.start_active(vec![Arc::new(created)], now)?;
        self.leader_epochs.clear();
        self.on_epochs_changed();
        let dir = self.dir();
        for snapshot in self.jobs.snapshots.drain(..) {
            snapshot.cancel();
        }
        self.producers.truncate_fully_and_start_at(&dir, offset)?;
        self.publish_first_unstable_offset();
        Ok(())
    }

    /// Takes the names of segments away, the last first: a crash leaves the front of the log. Before anything
    /// is written in the place of the others, or recovery would find newer records before older ones.
    fn rename_from_the_end(&self, segments: &[Arc<Segment>]) -> Result<(), StorageError> {
        for segment in segments.iter().rev() {
            segment
                .rename_to_deleted()
                .map_err(|error| StorageError::new("rename a segment of", &self.dir(), error))?;
        }
        Ok(())
    }

    /// Lowers the recovery point, and keeps flushes that are under way from raising it again.
    fn lower_recovery_point(&mut self, offset: Offset) {
        self.jobs.flush_below = None;
        let mut truncations = self.shared.truncations.lock();
        *truncations += 1;
        self.shared
            .recovery_point
            .fetch_min(offset.0, Ordering::AcqRel);
    }

    /// A new segment of the first `kept` bytes of `old`, in the place of `old`.
    fn copy_front(
        &mut self,
        old: &Segment,
        target: Offset,
        kept: u64,
    ) -> Result<Segment, LogError> {
        self.copy_log(old, kept)?;
        let sizes = self
            .copy_indexes(old, target, kept)
            .map_err(|error| StorageError::new("truncate a segment of", &self.dir(), error))?;
        self.jobs.dir_version += 1;
        let shared_dir = self.shared.dir.clone();
        let copy = Segment::new(shared_dir, old.base_offset, kept, sizes, None);
        let max_timestamp = max_timestamp(&copy).map_err(|error| self.scan_error(error))?;
        copy.set_max_timestamp(max_timestamp);
        Ok(copy)
    }

    /// Under what name a file of a segment is written before it takes its place.
    fn temporary_path(&self, base_offset: Offset, kind: SegmentFile) -> PathBuf {
        let name = format!("{}.truncated{DELETED_SUFFIX}", kind.suffix());
        self.shared.dir.join(&file_name(base_offset, &name))
    }

    fn copy_log(&self, old: &Segment, kept: u64) -> Result<(), StorageError> {
        let path = self.temporary_path(old.base_offset, SegmentFile::Log);
        let copy = || {
            let copy = disk::create(&path)?;
            disk::copy_front(&*old.log_file()?, &copy, kept)?;
            Ok(copy)
        };
        let copy = copy().map_err(|error| StorageError::new("write", &path, error))?;
        disk::sync_data(&copy).map_err(|error| StorageError::fsync(&path, error))
    }

    /// Copies the entries for what is kept, and puts the copies of all files into place.
    fn copy_indexes(&self, old: &Segment, target: Offset, kept: u64) -> io::Result<IndexSizes> {
        let temporary = |kind| self.temporary_path(old.base_offset, kind);
        let offsets =
            old.offset_index
                .entries_below(target, kept, old.opener(SegmentFile::OffsetIndex))?;
        disk::write(&temporary(SegmentFile::OffsetIndex), &offsets.concat())?;
        let times = old
            .time_index
            .entries_below(target, old.opener(SegmentFile::TimeIndex))?;
        disk::write(&temporary(SegmentFile::TimeIndex), &times.concat())?;
        let aborted: Vec<_> = old
            .transaction_index
            .all(old.opener(SegmentFile::TransactionIndex))?
            .into_iter()
            .filter(|txn| txn.last_offset < target)
            .map(|txn| txn.to_bytes())
            .collect();
        let has_transactions = !aborted.is_empty();
        if has_transactions {
            let bytes = aborted.concat();
            disk::write(&temporary(SegmentFile::TransactionIndex), &bytes)?;
        }
        // From here on readers that still hold `old` use only the handles they have.
        let paths: Vec<_> = SegmentFile::ALL
            .into_iter()
            .map(|kind| Ok((kind, old.path(kind)?)))
            .collect::<io::Result<_>>()?;
        old.mark_replaced();
        for (kind, path) in paths {
            if kind == SegmentFile::TransactionIndex && !has_transactions {
                disk::remove_file_if_there(&path)?;
                continue;
            }
            disk::rename(&temporary(kind), &path)?;
        }
        let last = times.last();
        Ok(IndexSizes {
            offset_entries: offsets.len() as u32,
            time_entries: times.len() as u32,
            last_time_entry: last.map(|entry| old.time_index.parse(entry)),
            transaction_entries: aborted.len() as u32,
        })
    }

    /// Makes the last of `segments`, which may hold records, the active one.
    fn resume_active(
        &mut self,
        segments: Vec<Arc<Segment>>,
        end: Offset,
        now: Timestamp,
    ) -> Result<(), LogError> {
        let segment = segments.last().expect("a segment is kept").clone();
        segment.are_indexes_flushed.store(false, Ordering::Release);
        let file = segment
            .log_file()
            .map_err(|error| StorageError::new("open a segment of", &self.dir(), error))?;
        let position = segment.size();
        let mut scanner = BatchScanner::new(&file, 0, position, LOOKUP_WINDOW);
        let first = scanner
            .next_batch()
            .map_err(|error| self.scan_error(error))?;
        let is_same = Arc::ptr_eq(&segment, &self.active.segment);
        self.active.first_batch_timestamp = first.map(|batch| batch.max_timestamp);
        self.active.bytes_since_last_index_entry = 0;
        if first.is_none() || !is_same {
            self.active.created = now;
        }
        self.active.segment = segment;
        self.active.file = file;
        self.jobs.written_back = position;
        let tail = BatchTail::new(Boundary {
            next_offset: end,
            position,
        });
        self.publish_segments(segments, Arc::new(tail));
        Ok(())
    }

    /// Brings the producer state back to what it was at `end`.
    fn reload_producers(&mut self, end: Offset, now: Timestamp) -> Result<(), LogError> {
        let dir = self.dir();
        // Snapshots that no flush has written yet are looked for as files now.
        for snapshot in self.jobs.snapshots.drain(..) {
            if snapshot.offset <= end {
                snapshot.write_once(&dir)?;
            }
            snapshot.cancel();
        }
        let list = self.segments();
        recover::rebuild_producers(recover::Rebuild {
            log_start_offset: self.log_start_offset(),
            producers: &mut self.producers,
            dir: &dir,
            segments: &list.segments,
            end,
            now,
            has_no_producers: false,
        })?;
        let unforced = self.producers.take_unforced().into_iter();
        self.jobs.snapshots.extend(unforced.map(Arc::new));
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
}

/// The largest timestamp of a segment: the last entry of its time index, or a batch behind it.
fn max_timestamp(segment: &Segment) -> Result<Option<TimestampOffset>, ScanError> {
    let mut max = segment.time_index.last_entry();
    let start = match max {
        Some(last) => segment.offset_index.lookup(
            last.offset,
            segment.opener(SegmentFile::OffsetIndex),
            DiskWait::Allowed,
        )?,
        None => 0,
    };
    let file = segment.log_file()?;
    let mut scanner = BatchScanner::new(&file, start, segment.size(), LOOKUP_WINDOW);
    while let Some(batch) = scanner.next_batch()? {
        if max.is_none_or(|max| batch.max_timestamp > max.timestamp) {
            max = Some(TimestampOffset {
                timestamp: batch.max_timestamp,
                offset: batch.last_offset,
            });
        }
    }
    Ok(max)
}
