//! The segment that the cleaner writes, under `.cleaned` names.
//!
//! Kafka: `LocalLog.createNewCleanedSegment`, `LogSegment.append`, `LogSegment.onBecomeInactiveSegment`.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use ottla_records::{BatchHeader, RecordBatch};
use ottla_types::Offset;

use super::clean_error::CleanError;
use crate::disk;
use crate::disk_read::DiskWait;
use crate::error::StorageError;
use crate::handles::LogFile;
use crate::index::{AbortedTxn, OpenFile, TimestampOffset};
use crate::reader::Shared;
use crate::segment::Segment;
use crate::segment_file::SegmentFile;

/// Kafka stores positions in an index as 31 bits.
const MAX_SEGMENT_BYTES: u64 = i32::MAX as u64;

pub(super) struct CleanedSegment {
    segment: Segment,
    file: Arc<LogFile>,
    buffer: Vec<u8>,
    buffer_bytes: usize,
    /// Size of the log file, including the buffer.
    size: u64,
    max_timestamp: Option<TimestampOffset>,
    bytes_since_last_index_entry: u64,
    index_interval_bytes: u64,
}

impl CleanedSegment {
    /// Creates its files, overwriting files of an interrupted cleaning.
    pub(super) fn create(
        shared: &Shared,
        base_offset: Offset,
        buffer_bytes: usize,
    ) -> Result<CleanedSegment, StorageError> {
        let error = |error| StorageError::new("create a segment in", &shared.dir.path(), error);
        let segment = Segment::create_cleaned(&shared.dir, base_offset).map_err(error)?;
        let file = segment.log_file().map_err(error)?;
        Ok(CleanedSegment {
            segment,
            file,
            buffer: Vec::with_capacity(buffer_bytes),
            buffer_bytes,
            size: 0,
            max_timestamp: None,
            bytes_since_last_index_entry: 0,
            index_interval_bytes: shared.config.load().index_interval_bytes.max(0) as u64,
        })
    }

    /// Appends the unchanged bytes of a batch.
    pub(super) fn append_bytes(
        &mut self,
        header: &BatchHeader,
        bytes: &[u8],
    ) -> Result<(), CleanError> {
        self.note(header, bytes.len())?;
        self.buffer.extend_from_slice(bytes);
        self.write_full_buffer()
    }

    pub(super) fn append(&mut self, batch: &RecordBatch) -> Result<(), CleanError> {
        self.note(&batch.header, batch.size_in_bytes())?;
        self.buffer.extend_from_slice(&batch.header.to_bytes());
        self.buffer.extend_from_slice(batch.body());
        self.write_full_buffer()
    }

    pub(super) fn append_aborted(&mut self, txn: AbortedTxn) {
        self.segment.transaction_index.append(txn);
    }

    /// Updates the indexes and the size for the next batch.
    fn note(&mut self, header: &BatchHeader, size: usize) -> Result<(), CleanError> {
        let last_offset = header.last_offset();
        let relative = last_offset.since(self.segment.base_offset);
        if !(0..=i64::from(i32::MAX)).contains(&relative) {
            return Err(CleanError::Uncleanable(format!(
                "offset {last_offset} is too far from the base of its segment, {}",
                self.segment.base_offset
            )));
        }
        if self.size + size as u64 > MAX_SEGMENT_BYTES {
            return Err(CleanError::Uncleanable(format!(
                "the segment at {} exceeds 2 GiB when it is rewritten",
                self.segment.base_offset
            )));
        }
        if (self.max_timestamp).is_none_or(|max| header.max_timestamp > max.timestamp) {
            self.max_timestamp = Some(TimestampOffset {
                timestamp: header.max_timestamp,
                offset: last_offset,
            });
        }
        if self.bytes_since_last_index_entry > self.index_interval_bytes {
            self.segment.offset_index.append(last_offset, self.size);
            if let Some(max) = self.max_timestamp {
                self.segment.time_index.append_if_younger(max);
            }
            self.bytes_since_last_index_entry = 0;
            if self.segment.offset_index.entries().is_tail_long() {
                self.segment
                    .write_index_tails()
                    .map_err(|error| self.error("write the indexes of", error))?;
            }
        }
        self.size += size as u64;
        self.bytes_since_last_index_entry += size as u64;
        Ok(())
    }

    fn write_full_buffer(&mut self) -> Result<(), CleanError> {
        match self.buffer.len() >= self.buffer_bytes {
            true => self.write_buffer(),
            false => Ok(()),
        }
    }

    fn write_buffer(&mut self) -> Result<(), CleanError> {
        let position = self.size - self.buffer.len() as u64;
        disk::write_all_at(&self.file, &self.buffer, position)
            .map_err(|error| self.error("write to", error))?;
        self.buffer.clear();
        Ok(())
    }

    /// Fsyncs all files. The segment keeps the modification time of the last segment it covers. On
    /// failure, such as a full disk, its files are removed.
    pub(super) fn finish(mut self, modified: SystemTime) -> Result<Arc<Segment>, CleanError> {
        match self.force(modified) {
            Ok(()) => Ok(Arc::new(self.segment)),
            Err(error) => {
                self.discard();
                Err(error)
            }
        }
    }

    fn force(&mut self, modified: SystemTime) -> Result<(), CleanError> {
        self.write_buffer()?;
        let segment = &self.segment;
        if let Some(max) = self.max_timestamp {
            segment.time_index.append_if_younger(max);
        }
        let write = |error| self.error("write the indexes of", error);
        segment.write_index_tails().map_err(write)?;
        let set = self.file.set_modified(modified);
        set.map_err(|error| self.error("set the time of", error))?;
        let fsync = |error| CleanError::Storage(StorageError::fsync(&segment.dir(), error));
        disk::sync_all(&self.file).map_err(fsync)?;
        let open = |kind| {
            let file = segment.opener(kind).open(DiskWait::Allowed);
            file.map_err(|error| self.error("open an index of", error))
        };
        let file = open(SegmentFile::OffsetIndex)?;
        segment.offset_index.entries().sync(&file).map_err(fsync)?;
        let file = open(SegmentFile::TimeIndex)?;
        segment.time_index.entries().sync(&file).map_err(fsync)?;
        if segment.transaction_index.entries().len() > 0 {
            let file = open(SegmentFile::TransactionIndex)?;
            let entries = segment.transaction_index.entries();
            entries.sync(&file).map_err(fsync)?;
        }
        segment.set_size(self.size);
        segment.set_max_timestamp(self.max_timestamp);
        segment.are_indexes_flushed.store(true, Ordering::Release);
        Ok(())
    }

    /// Removes the files of an interrupted cleaning.
    pub(super) fn discard(self) {
        // The next start removes what could not be removed now.
        let _ = self.segment.remove_unswapped();
    }

    fn error(&self, action: &'static str, error: io::Error) -> CleanError {
        CleanError::Storage(StorageError::new(action, &self.segment.dir(), error))
    }
}
