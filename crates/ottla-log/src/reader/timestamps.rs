//! Offset lookup by timestamp, for ListOffsets.
//!
//! Kafka: `UnifiedLog.fetchOffsetByTimestamp`, `LogSegment.findOffsetByTimestamp`.

use ottla_records::RecordBatch;
use ottla_records::legacy::LegacyMessage;
use ottla_types::{LeaderEpoch, Offset, Timestamp};

use super::{LogReader, SegmentList};
use crate::batch_scan::{BatchLocation, BatchScanner, LOOKUP_WINDOW, ScanError};
use crate::disk_read::DiskWait;
use crate::error::ReadError;
use crate::segment::Segment;
use crate::segment_file::SegmentFile;

/// Limit for decompressing one batch, in bytes.
const MAX_DECOMPRESSED_BYTES: usize = 1024 * 1024 * 1024;

/// The requested offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimestampTarget {
    /// The log start offset (-2).
    Earliest,
    /// The log end offset (-1). The caller substitutes the high watermark or last stable offset
    /// according to the isolation level.
    Latest,
    /// The first record with the largest timestamp (-3, KIP-734).
    MaxTimestamp,
    /// The first record with at least this timestamp.
    At(Timestamp),
}

/// The result of a lookup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimestampLookup {
    pub offset: Offset,
    /// The record's timestamp; -1 for `Earliest` and `Latest`.
    pub timestamp: Timestamp,
    /// The leader epoch of the offset, if known.
    pub leader_epoch: Option<LeaderEpoch>,
}

impl LogReader {
    /// `None` if no record matches. Reads files, so not for reactor threads, except for `Earliest`
    /// and `Latest`.
    pub fn offset_for_timestamp(
        &self,
        target: TimestampTarget,
    ) -> Result<Option<TimestampLookup>, ReadError> {
        match target {
            TimestampTarget::Earliest => {
                let offset = self.log_start_offset();
                let epochs = self.leader_epochs();
                let first = epochs.earliest().filter(|e| e.start_offset <= offset);
                Ok(Some(TimestampLookup {
                    offset,
                    timestamp: Timestamp::NONE,
                    leader_epoch: first.map(|entry| entry.epoch),
                }))
            }
            TimestampTarget::Latest => Ok(Some(TimestampLookup {
                offset: self.log_end_offset(),
                timestamp: Timestamp::NONE,
                leader_epoch: self.leader_epochs().latest().map(|entry| entry.epoch),
            })),
            TimestampTarget::MaxTimestamp => {
                self.with_segments(|list| self.first_with_max_timestamp(list))
            }
            TimestampTarget::At(timestamp) => {
                self.with_segments(|list| self.first_not_older(list, timestamp))
            }
        }
    }

    fn first_with_max_timestamp(
        &self,
        list: &SegmentList,
    ) -> Result<Option<TimestampLookup>, ReadError> {
        let mut latest: Option<(&Segment, crate::TimestampOffset)> = None;
        for segment in list.from(self.log_start_offset()) {
            let Some(max) = segment.max_timestamp() else {
                continue;
            };
            if latest.is_none_or(|(_, best)| max.timestamp > best.timestamp) {
                latest = Some((segment, max));
            }
        }
        let Some((segment, max)) = latest.filter(|(_, max)| max.timestamp.0 >= 0) else {
            return Ok(None);
        };
        self.find_in(
            segment,
            max.offset,
            self.log_start_offset(),
            |batch| batch.max_timestamp == max.timestamp,
            max.timestamp,
        )
    }

    fn first_not_older(
        &self,
        list: &SegmentList,
        timestamp: Timestamp,
    ) -> Result<Option<TimestampLookup>, ReadError> {
        let from = self.log_start_offset();
        for segment in list.from(from) {
            let largest = segment
                .largest_timestamp()
                .map_err(|error| self.read_error(segment, error.into()))?;
            if largest < timestamp {
                continue;
            }
            let indexed = segment
                .time_index
                .lookup(timestamp, segment.opener(SegmentFile::TimeIndex))
                .map_err(|error| self.read_error(segment, error.into()))?;
            let fits = |batch: &BatchLocation| batch.max_timestamp >= timestamp;
            // An empty segment left by a crash has the age of its file, but no record.
            let found = self.find_in(segment, indexed.max(from), from, fits, timestamp)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// The first record at or after `from` that is not older than `timestamp`, in a batch that
    /// `fits`. The search starts at the batch that holds `start`.
    fn find_in(
        &self,
        segment: &Segment,
        start: Offset,
        from: Offset,
        fits: impl Fn(&BatchLocation) -> bool,
        timestamp: Timestamp,
    ) -> Result<Option<TimestampLookup>, ReadError> {
        let corrupt = |error| self.read_error(segment, error);
        let io = |error: std::io::Error| self.read_error(segment, error.into());
        let size = segment.size();
        let max_record_bytes = self.config().max_decompressed_record_bytes();
        let Some(first) = segment
            .locate(start, size, DiskWait::Allowed)
            .map_err(corrupt)?
        else {
            return Ok(None);
        };
        let file = segment.log_file().map_err(io)?;
        let mut scanner = BatchScanner::new(&file, first.position, size, LOOKUP_WINDOW);
        while let Some(batch) = scanner.next_batch().map_err(corrupt)? {
            if !fits(&batch) || batch.last_offset < from {
                continue;
            }
            let bytes = bytes::Bytes::copy_from_slice(scanner.bytes(&batch).map_err(io)?);
            let found = first_record(&batch, bytes, from, timestamp, max_record_bytes);
            let found = found.map_err(|error| {
                corrupt(ScanError::Corrupt {
                    position: batch.position,
                    error,
                })
            })?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }
}

/// The first record of a batch at or after `from` that is not older than `timestamp`.
fn first_record(
    location: &BatchLocation,
    mut bytes: bytes::Bytes,
    from: Offset,
    timestamp: Timestamp,
    max_record_bytes: usize,
) -> Result<Option<TimestampLookup>, ottla_records::BatchError> {
    let leader_epoch = Some(location.leader_epoch).filter(|epoch| epoch.0 >= 0);
    let found = |offset, timestamp| {
        Some(TimestampLookup {
            offset,
            timestamp,
            leader_epoch,
        })
    };
    if location.header.is_none() {
        let message = LegacyMessage::read(&mut bytes)?;
        for record in message.records(MAX_DECOMPRESSED_BYTES)? {
            if record.offset >= from && record.timestamp >= timestamp {
                return Ok(found(record.offset, record.timestamp));
            }
        }
        return Ok(None);
    }
    let batch = RecordBatch::read(&mut bytes)?;
    let records = batch.records(MAX_DECOMPRESSED_BYTES)?;
    for record in records.at_most(max_record_bytes) {
        let record = record?;
        if record.offset >= from && record.timestamp >= timestamp {
            return Ok(found(record.offset, record.timestamp));
        }
    }
    Ok(None)
}
