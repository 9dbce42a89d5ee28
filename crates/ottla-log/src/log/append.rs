//! Appending batches, and rolling to a new segment when the active one is full.
//!
//! Batches that fit into the active segment are written with one vectored write of their headers
//! and bodies, and become visible only after it has succeeded. A partial write is cut back to the
//! last whole batch; the batches before the cut count as written.
//!
//! Kafka: `UnifiedLog.append`, `LogSegment.append`, `LogSegment.shouldRoll`.

use ottla_sync::fs::File;
use std::io::{self, IoSlice};

use ottla_records::{BatchHeader, RecordBatch};
use ottla_types::{Offset, Timestamp};

use super::Log;
use crate::batch_tail::Boundary;
use crate::disk;
use crate::disk_read::DiskWait;
use crate::error::{AppendError, AppendErrorReason, StorageError};
use crate::handles::LogFile;
use crate::index::{AbortedTxn, OffsetIndex, TimeIndex, TimestampOffset};
use crate::producer_state::CompletedTxn;
use crate::segment::Segment;
use crate::segment_file::SegmentFile;

/// Maximum number of batches per vectored write, two slices each.
const MAX_BATCHES_PER_WRITE: usize = 16;
/// The largest base offset from which the offsets of a batch cannot overflow.
pub(super) const MAX_BASE_OFFSET: i64 = i64::MAX - (1 << 32);

/// The result of an append.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AppendInfo {
    /// First offset of the first batch.
    pub first_offset: Offset,
    /// Last offset of the last batch, inclusive.
    pub last_offset: Offset,
    pub bytes: u64,
    /// A new segment was started.
    pub rolled: bool,
}

impl Log {
    /// Appends validated batches with assigned offsets and leader epochs. The offsets must grow and
    /// start at or after the log end offset (a follower may skip some).
    pub fn append(
        &mut self,
        batches: &[RecordBatch],
        now: Timestamp,
    ) -> Result<AppendInfo, AppendError> {
        let mut info = AppendInfo {
            first_offset: batches
                .first()
                .map_or(self.log_end_offset(), |batch| batch.header.base_offset),
            last_offset: self.log_end_offset().plus(-1),
            bytes: 0,
            rolled: false,
        };
        let mut written = 0;
        while written < batches.len() {
            let rest = &batches[written..];
            let result = self
                .check_offsets(&rest[0])
                .and_then(|()| self.roll_for(&rest[0], now))
                .and_then(|rolled| {
                    info.rolled |= rolled;
                    self.append_to_active(rest, now)
                });
            match result {
                Ok((count, bytes)) => {
                    written += count;
                    info.bytes += bytes;
                    info.last_offset = batches[written - 1].header.last_offset();
                }
                Err(failure) => {
                    return Err(AppendError {
                        batches_written: written + failure.written,
                        reason: failure.reason,
                    });
                }
            }
        }
        Ok(info)
    }

    fn check_offsets(&self, batch: &RecordBatch) -> Result<(), Failure> {
        let header = &batch.header;
        if header.last_offset_delta < 0 || header.base_offset.0 > MAX_BASE_OFFSET {
            return Err(Failure::from(AppendErrorReason::InvalidOffsets {
                base_offset: header.base_offset,
                last_offset: header.last_offset(),
            }));
        }
        self.check_place(header.base_offset, batch.size_in_bytes())
            .map_err(Failure::from)
    }

    /// Whether a batch of `size` bytes at `base_offset` may be appended.
    pub(super) fn check_place(
        &self,
        base_offset: Offset,
        size: usize,
    ) -> Result<(), AppendErrorReason> {
        let log_end_offset = self.log_end_offset();
        if base_offset < log_end_offset {
            return Err(AppendErrorReason::UnexpectedOffset {
                base_offset,
                log_end_offset,
            });
        }
        let segment_bytes = self.segment_bytes();
        if size as u64 > segment_bytes {
            return Err(AppendErrorReason::LargerThanSegment {
                size,
                segment_bytes: segment_bytes as usize,
            });
        }
        Ok(())
    }

    pub(super) fn segment_bytes(&self) -> u64 {
        self.config.effective_segment_bytes().max(0) as u64
    }

    /// Rolls if the active segment has no room for `batch` or is too old. Returns whether it did.
    fn roll_for(&mut self, batch: &RecordBatch, now: Timestamp) -> Result<bool, Failure> {
        if !self.is_roll_due(Entry::of(batch), batch.size_in_bytes() as u64, now) {
            return Ok(false);
        }
        self.roll_at(batch.header.base_offset, now)
            .map_err(|error| Failure::from(AppendErrorReason::from_storage(error)))?;
        Ok(true)
    }

    /// Whether the active segment has no room for `last` or is too old for it. `bytes` is the size
    /// of `last` and of everything written before it in the same write.
    pub(super) fn is_roll_due(&self, last: Entry, bytes: u64, now: Timestamp) -> bool {
        let active = &self.active;
        let size = active.segment.size();
        if size + bytes > self.segment_bytes() {
            return true;
        }
        if size > 0 {
            let waited = match active.first_batch_timestamp {
                Some(first) if first.0 >= 0 => last.max_timestamp.0.saturating_sub(first.0),
                _ => now.0.saturating_sub(active.created.0),
            };
            if waited
                > self
                    .config
                    .max_segment_ms()
                    .saturating_sub(active.roll_jitter_ms)
            {
                return true;
            }
        }
        let index_bytes = self.config.segment_index_bytes.max(0) as usize;
        let offset_entries = active.segment.offset_index.entries().len() as usize;
        let time_entries = active.segment.time_index.entries().len() as usize;
        // The last slot of the time index is reserved for the entry that the roll adds.
        offset_entries >= index_bytes / OffsetIndex::ENTRY_SIZE
            || time_entries + 1 >= index_bytes / TimeIndex::ENTRY_SIZE
            || !fits_relative(last.last_offset, active.segment.base_offset)
    }

    /// Writes the first of `batches` and as many of the following as fit into the active segment.
    /// Returns the number of batches and bytes written.
    fn append_to_active(
        &mut self,
        batches: &[RecordBatch],
        now: Timestamp,
    ) -> Result<(usize, u64), Failure> {
        let (count, bytes) = self.batches_for_one_write(batches, now);
        let batches = &batches[..count];
        let mut headers = [[0; BatchHeader::SIZE]; MAX_BATCHES_PER_WRITE];
        for (bytes, batch) in headers.iter_mut().zip(batches) {
            *bytes = batch.header.to_bytes();
        }
        let mut slices = [IoSlice::new(&[]); 2 * MAX_BATCHES_PER_WRITE];
        for (index, (header, batch)) in headers.iter().zip(batches).enumerate() {
            slices[2 * index] = IoSlice::new(header);
            slices[2 * index + 1] = IoSlice::new(batch.body());
        }
        let position = self.active.segment.size();
        let written = self.with_active_file(|file| {
            let written = write_all(file, &mut slices[..2 * count], position);
            written
                .map_err(|(error, written)| self.cut_back(file, batches, position, written, error))
        });
        match written.map_err(Failure::from)? {
            Ok(()) => {
                self.publish(batches);
                Ok((count, bytes))
            }
            Err(failure) => {
                self.publish(&batches[..failure.written]);
                Err(failure)
            }
        }
    }

    /// Whether the active segment's file is open or can be opened without disk I/O.
    pub fn is_open_without_waiting(&self) -> bool {
        let segment = &self.active.segment;
        if segment.open_log().is_some() {
            return true;
        }
        let opened = segment.log_file_for(DiskWait::Refused);
        // The append reports any other error.
        opened.map_or_else(|error| error.kind() != io::ErrorKind::WouldBlock, |_| true)
    }

    /// Runs `act` on the active segment's file, opening it if necessary.
    pub(super) fn with_active_file<R>(
        &self,
        act: impl FnOnce(&LogFile) -> R,
    ) -> Result<R, AppendErrorReason> {
        let segment = &self.active.segment;
        segment.set_unforced();
        let open = segment.open_log();
        if let Some(file) = open.as_ref() {
            return Ok(act(file));
        }
        let opened = segment.log_file().map_err(|error| {
            let path = segment.path(SegmentFile::Log);
            let path = path.unwrap_or_else(|_| self.dir());
            AppendErrorReason::from_storage(StorageError::new("open", &path, error))
        })?;
        Ok(act(&opened))
    }

    /// The number and size of the `batches` that go into the active segment with one write. The
    /// first is known to fit.
    fn batches_for_one_write(&self, batches: &[RecordBatch], now: Timestamp) -> (usize, u64) {
        let mut bytes = batches[0].size_in_bytes() as u64;
        let mut count = 1;
        let limit = batches.len().min(MAX_BATCHES_PER_WRITE);
        // Near a roll, batches are written one by one, so that each is checked against indexes that
        // include those before it.
        let index_entries = self.active.segment.time_index.entries().len() as usize;
        let index_room = self.config.segment_index_bytes.max(0) as usize / TimeIndex::ENTRY_SIZE;
        if index_entries + limit + 1 >= index_room || self.active.segment.size() == 0 {
            return (count, bytes);
        }
        let mut end = batches[0].header.next_offset();
        while count < limit {
            let batch = &batches[count];
            let next_bytes = bytes + batch.size_in_bytes() as u64;
            let is_in_order =
                batch.header.base_offset >= end && batch.header.last_offset_delta >= 0;
            if !is_in_order || self.is_roll_due(Entry::of(batch), next_bytes, now) {
                break;
            }
            end = batch.header.next_offset();
            bytes = next_bytes;
            count += 1;
        }
        (count, bytes)
    }

    /// Cuts the file back to the whole batches of a write that failed.
    fn cut_back(
        &self,
        file: &LogFile,
        batches: &[RecordBatch],
        position: u64,
        written: u64,
        error: io::Error,
    ) -> Failure {
        let mut end = position;
        let mut whole = 0;
        for batch in batches {
            let next = end + batch.size_in_bytes() as u64;
            if next > position + written {
                break;
            }
            end = next;
            whole += 1;
        }
        match self.cut_file_back(file, end, position + written, error) {
            Ok(reason) => Failure {
                written: whole,
                reason,
            },
            Err(reason) => Failure::from(reason),
        }
    }

    /// Cuts the bytes of a failed write from `end` to `written_end` off, with the handle of the write:
    /// there may be no other. Returns the reason why the write failed; an error means that the bytes are
    /// still there.
    ///
    /// If the log stays in use, the cut is fsynced. The recovery point may be exactly at `end`: if
    /// the next append started a segment, recovery would not scan this one again, and a power loss
    /// could bring half a batch back.
    pub(super) fn cut_file_back(
        &self,
        file: &LogFile,
        end: u64,
        written_end: u64,
        error: io::Error,
    ) -> Result<AppendErrorReason, AppendErrorReason> {
        let path = self.active.segment.path(SegmentFile::Log);
        let path = path.unwrap_or_else(|_| self.dir());
        if let Err(error) = disk::set_len(file, end) {
            let what = "cut back a failed write to";
            let error = StorageError::new(what, &path, error);
            return Err(AppendErrorReason::Storage(error));
        }
        let reason = AppendErrorReason::from_storage(StorageError::new("write to", &path, error));
        if written_end > end && matches!(reason, AppendErrorReason::Temporary(_)) {
            // A concurrent flush must see a failure that the kernel reports only here.
            let mut flushed = self.shared.flushed.lock();
            disk::sync_data(file).map_err(|error| {
                flushed.failure = Some(error.kind());
                AppendErrorReason::Storage(StorageError::fsync(&path, error))
            })?;
        }
        Ok(reason)
    }

    /// Publishes batches that are in the file.
    fn publish(&mut self, batches: &[RecordBatch]) {
        let Some(last) = batches.last() else {
            return;
        };
        self.publish_entries(batches.iter().map(Entry::of));
        let mut epochs_changed = false;
        for batch in batches {
            let header = &batch.header;
            epochs_changed |= self
                .leader_epochs
                .assign(header.partition_leader_epoch, header.base_offset);
        }
        if epochs_changed {
            self.on_epochs_changed();
        }
        self.spill_indexes();
        self.apply_to_producers(batches);
        self.set_log_end_offset(last.header.next_offset());
    }

    /// Updates the indexes and the readers' view with entries that are in the file.
    pub(super) fn publish_entries(&mut self, entries: impl Iterator<Item = Entry>) {
        let active = &mut self.active;
        let segment = &active.segment;
        let mut position = segment.size();
        let mut max_timestamp = segment.max_timestamp();
        let index_interval_bytes = self.config.index_interval_bytes.max(0) as u64;
        let list = self.shared.segments.load();
        for entry in entries {
            if max_timestamp.is_none_or(|max| entry.max_timestamp > max.timestamp) {
                max_timestamp = Some(TimestampOffset {
                    timestamp: entry.max_timestamp,
                    offset: entry.last_offset,
                });
            }
            active
                .first_batch_timestamp
                .get_or_insert(entry.max_timestamp);
            if active.bytes_since_last_index_entry > index_interval_bytes {
                segment.offset_index.append(entry.last_offset, position);
                if let Some(max) = max_timestamp {
                    segment.time_index.append_if_younger(max);
                }
                active.bytes_since_last_index_entry = 0;
            }
            position += entry.size;
            active.bytes_since_last_index_entry += entry.size;
            list.tail.push(Boundary {
                next_offset: entry.last_offset.plus(1),
                position,
            });
        }
        segment.set_max_timestamp(max_timestamp);
        segment.set_size(position);
    }

    fn apply_to_producers(&mut self, batches: &[RecordBatch]) {
        let mut is_unstable_changed = false;
        for batch in batches {
            if batch.header.has_producer_id() {
                is_unstable_changed |= batch.header.is_transactional();
                if let Some(completed) = self.producers.apply(batch) {
                    self.on_transaction_completed(&completed);
                }
            }
            self.producers
                .set_map_end_offset(batch.header.next_offset());
        }
        if is_unstable_changed {
            self.publish_first_unstable_offset();
        }
    }

    fn on_transaction_completed(&mut self, completed: &CompletedTxn) {
        if completed.is_aborted || ottla_sync::planted::has("a commit counts as an abort") {
            self.active.segment.transaction_index.append(AbortedTxn {
                producer_id: completed.producer_id,
                first_offset: completed.first_offset,
                last_offset: completed.last_offset,
                last_stable_offset: self.producers.last_stable_offset_after(completed),
            });
        }
        self.producers.complete(completed);
    }

    /// Writes long index tails to the files. Errors are left to the flush, which must write the
    /// tails before the recovery point may advance.
    pub(super) fn spill_indexes(&self) {
        let segment: &Segment = &self.active.segment;
        if segment.offset_index.entries().is_tail_long() {
            let opener = segment.opener(SegmentFile::OffsetIndex);
            let _ = segment.offset_index.entries().try_write_tail(opener);
        }
        if segment.time_index.entries().is_tail_long() {
            let opener = segment.opener(SegmentFile::TimeIndex);
            let _ = segment.time_index.entries().try_write_tail(opener);
        }
    }
}

/// The fields of a batch that a segment and its indexes need, for every magic.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) last_offset: Offset,
    pub(super) max_timestamp: Timestamp,
    pub(super) size: u64,
}

impl Entry {
    fn of(batch: &RecordBatch) -> Entry {
        Entry {
            last_offset: batch.header.last_offset(),
            max_timestamp: batch.header.max_timestamp,
            size: batch.size_in_bytes() as u64,
        }
    }
}

/// A failed append.
struct Failure {
    /// Number of batches of the last write that are in the log nevertheless.
    written: usize,
    reason: AppendErrorReason,
}

impl From<AppendErrorReason> for Failure {
    fn from(reason: AppendErrorReason) -> Self {
        Failure { written: 0, reason }
    }
}

/// Whether the indexes of the segment at `base_offset` can represent `offset`.
pub(super) fn fits_relative(offset: Offset, base_offset: Offset) -> bool {
    (0..=i64::from(i32::MAX)).contains(&offset.since(base_offset))
}

/// Writes all slices at `position`, continuing after short writes. On an error, returns the number
/// of bytes written.
pub(super) fn write_all(
    file: &File,
    mut slices: &mut [IoSlice<'_>],
    position: u64,
) -> Result<(), (io::Error, u64)> {
    let mut written = 0;
    while !slices.is_empty() {
        match disk::write_vectored_at(file, slices, position + written) {
            Ok(0) => return Err((io::ErrorKind::WriteZero.into(), written)),
            Ok(count) => {
                written += count as u64;
                IoSlice::advance_slices(&mut slices, count);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err((error, written)),
        }
    }
    Ok(())
}
