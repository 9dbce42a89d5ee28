//! Cleaning one log.
//!
//! 1. The keys of the dirty section are put into an offset map until it is full.
//! 2. The segments below the end of the map are cut into groups.
//! 3. Each group is filtered into one new segment, which replaces it.
//!
//! Runs on a cleaner thread beside appends and reads; a large log takes minutes. It reads sealed
//! segments directly and asks the holder of the run token only for changes of the log.
//!
//! Kafka: `Cleaner.doClean`, `Cleaner.cleanSegments`, `Cleaner.buildOffsetMap`.

use ottla_sync::fs::File;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use bytes::Bytes;
use ottla_records::legacy::LegacyMessage;
use ottla_records::{BatchError, BatchHeader, CompressionType, RecordIter, decompress};
use ottla_types::{Offset, Timestamp};

use super::batch_filter::{
    BatchFilter, FilteredBatch, MAX_DECOMPRESSED_BYTES, Verdict, control_kind, verify_crc,
};
use super::clean_error::{CleanError, CleaningStopped};
use super::cleanable::{LogToClean, range};
use super::cleaned_segment::CleanedSegment;
use super::grouping::{SegmentLimits, SegmentSizes, group};
use super::offset_map::{KEYS_AT_ONCE, KeyHash, OffsetMap};
use super::transactions::CleanedTransactions;
use crate::batch_scan::{BatchLocation, BatchScanner, ScanError};
use crate::disk_read::DiskWait;
use crate::error::StorageError;
use crate::index::{AbortedTxn, OffsetIndex, TimeIndex};
use crate::log::Log;
use crate::reader::{LogReader, SegmentList};
use crate::segment::{Segment, timestamp_of};
use crate::segment_file::SegmentFile;
use crate::unlink::UnlinkJob;

/// The cleaner's access to the owner of the log.
pub trait LogAccess {
    /// Runs `work` on the log, which must not block. `None` if the log is no longer available.
    fn with_log<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Log) -> R + Send + 'static,
    ) -> Option<R>;
}

/// Throttles the cleaner: it is called for every read and write, and may block or stop the
/// cleaning.
pub trait IoPace {
    fn on_io(&self, bytes: u64) -> Result<(), CleaningStopped>;

    /// Called before `bytes` are written; the disk may not have space for them.
    fn on_write(&self, _bytes: u64) -> Result<(), CleaningStopped> {
        Ok(())
    }
}

/// Resources that a cleaning may use.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CleanerParams {
    /// Memory for the offset map: `log.cleaner.dedupe.buffer.size`, divided by the number of
    /// threads.
    pub dedupe_buffer_bytes: u64,
    /// `log.cleaner.io.buffer.load.factor`
    pub load_factor: f64,
    /// Size of the read buffer and of the write buffer: `log.cleaner.io.buffer.size`, divided by
    /// the number of threads and by two.
    pub io_buffer_bytes: usize,
    /// Key of the hash function: random, and unknown to producers.
    pub hash_key: [u64; 2],
    pub now: Timestamp,
}

/// Statistics of a cleaning. Kafka: `CleanerStats`.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct CleanerStats {
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub map_bytes_read: u64,
    pub records_read: u64,
    pub records_written: u64,
    pub records_without_key: u64,
    /// Share of the offset map that was used, between 0 and 1.
    pub buffer_utilization: f64,
    pub elapsed_ms: u64,
    /// The part of `elapsed_ms` that was spent on the offset map.
    pub map_elapsed_ms: u64,
}

/// Cleans a log. Returns the offset below which it is clean now; files to be unlinked are handed to
/// `unlink_later`.
///
/// # Errors
/// [`CleanError::Stopped`] if the log was truncated during the cleaning, whatever the cleaning
/// returned: the newest record of a key may have been cut off, and older records of the key must
/// then be kept.
pub fn clean(
    log: &LogReader,
    to_clean: &LogToClean,
    access: &impl LogAccess,
    pace: &impl IoPace,
    params: &CleanerParams,
    unlink_later: impl FnMut(UnlinkJob),
) -> Result<(Offset, CleanerStats), CleanError> {
    let cleaned = clean_groups(log, to_clean, access, pace, params, unlink_later);
    match log.truncations() == to_clean.truncations {
        true => cleaned,
        false => Err(CleanError::Stopped),
    }
}

fn clean_groups(
    log: &LogReader,
    to_clean: &LogToClean,
    access: &impl LogAccess,
    pace: &impl IoPace,
    params: &CleanerParams,
    mut unlink_later: impl FnMut(UnlinkJob),
) -> Result<(Offset, CleanerStats), CleanError> {
    let started = Instant::now();
    let mut cleaning = Cleaning {
        log,
        pace,
        params,
        first_uncleanable_offset: to_clean.first_uncleanable_offset,
        truncations: to_clean.truncations,
        stats: CleanerStats::default(),
    };
    let list = log.shared.segments.load_full();
    // Tombstones of magic 0 and 1 have no delete horizon; their age is that of the last clean
    // segment.
    let last_clean = range(&list, Offset::ZERO, to_clean.first_dirty_offset).last();
    let legacy_delete_horizon = match last_clean {
        Some(segment) => {
            let modified = timestamp_of(cleaning.modified(segment)?);
            modified.0.saturating_sub(log.config().delete_retention_ms)
        }
        None => 0,
    };
    let map = cleaning.build_map(&list, to_clean.first_dirty_offset)?;
    let end = map
        .latest_offset()
        .map_or(to_clean.first_dirty_offset, |latest| latest.plus(1));
    cleaning.stats.map_elapsed_ms = started.elapsed().as_millis() as u64;
    let mut rest = range(&list, Offset::ZERO, end);
    let mut transactions = CleanedTransactions::default();
    for count in cleaning.groups(rest) {
        let (group, behind) = rest.split_at(count);
        rest = behind;
        let group = Group {
            segments: group,
            map: &map,
            legacy_delete_horizon,
        };
        if let Some(job) = cleaning.clean_group(&group, access, &mut transactions)? {
            unlink_later(job);
        }
    }
    cleaning.stats.buffer_utilization = map.utilization();
    cleaning.stats.elapsed_ms = started.elapsed().as_millis() as u64;
    Ok((end, cleaning.stats))
}

struct Cleaning<'a, P> {
    log: &'a LogReader,
    pace: &'a P,
    params: &'a CleanerParams,
    first_uncleanable_offset: Offset,
    /// [`LogReader::truncations`] when the cleaning began.
    truncations: u64,
    stats: CleanerStats,
}

/// Segments that are merged into one.
struct Group<'a> {
    segments: &'a [Arc<Segment>],
    map: &'a OffsetMap,
    legacy_delete_horizon: i64,
}

impl<P: IoPace> Cleaning<'_, P> {
    fn error(&self, action: &'static str) -> impl Fn(std::io::Error) -> CleanError + '_ {
        move |error| StorageError::new(action, &self.log.dir(), error).into()
    }

    fn uncleanable(
        &self,
        segment: &Segment,
        position: u64,
        error: impl std::fmt::Display,
    ) -> CleanError {
        CleanError::Uncleanable(format!(
            "segment {}, at byte {position}: {error}",
            segment.base_offset
        ))
    }

    fn modified(&self, segment: &Segment) -> Result<SystemTime, CleanError> {
        let file = segment.log_file();
        file.and_then(|file| file.metadata()?.modified())
            .map_err(self.error("look at a segment of"))
    }

    /// Builds the offset map of the dirty section, as far as it has room.
    fn build_map(&mut self, list: &SegmentList, from: Offset) -> Result<OffsetMap, CleanError> {
        let params = self.params;
        let mut map = OffsetMap::new(
            params.dedupe_buffer_bytes,
            params.load_factor,
            params.hash_key,
        );
        let to = self.first_uncleanable_offset;
        let dirty = range(list, from, to);
        let mut transactions = CleanedTransactions::default();
        transactions.add_aborted(self.aborted_transactions(from, to)?);
        for (index, segment) in dirty.iter().enumerate() {
            if !self.map_segment(segment, from, &mut map, &mut transactions)? {
                break;
            }
            // Offsets at the end of a segment may have been compacted away.
            let next = dirty.get(index + 1).map_or(to, |next| next.base_offset);
            map.set_latest_offset(next.plus(-1));
        }
        Ok(map)
    }

    /// Returns whether the map had room for all keys.
    fn map_segment(
        &mut self,
        segment: &Segment,
        from: Offset,
        map: &mut OffsetMap,
        transactions: &mut CleanedTransactions,
    ) -> Result<bool, CleanError> {
        let opener = segment.opener(SegmentFile::OffsetIndex);
        let start = match from > segment.base_offset {
            true => segment.offset_index.lookup(from, opener, DiskWait::Allowed),
            false => Ok(0),
        };
        let start = start.map_err(self.error("read an index of"))?;
        let file = segment.log_file();
        let file = file.map_err(self.error("open a segment of"))?;
        let mut batches = self.batches(segment, &file, start);
        let max_record_bytes = self.log.config().max_decompressed_record_bytes();
        while let Some(batch) = batches.next(self)? {
            self.stats.map_bytes_read += batch.size;
            let bytes = batches.bytes(self, &batch)?;
            let is_room = map_batch(&batch, bytes, from, max_record_bytes, map, transactions)
                .map_err(|error| self.uncleanable(segment, batch.position, error))?;
            if !is_room {
                return Ok(false);
            }
            if batch.last_offset >= from {
                map.set_latest_offset(batch.last_offset);
            }
        }
        batches.end(self)?;
        Ok(true)
    }

    fn groups(&self, segments: &[Arc<Segment>]) -> Vec<usize> {
        let sizes: Vec<_> = segments
            .iter()
            .map(|segment| SegmentSizes {
                base_offset: segment.base_offset,
                log_bytes: segment.size(),
                offset_index_bytes: u64::from(segment.offset_index.entries().len())
                    * OffsetIndex::ENTRY_SIZE as u64,
                time_index_bytes: u64::from(segment.time_index.entries().len())
                    * TimeIndex::ENTRY_SIZE as u64,
            })
            .collect();
        let config = self.log.config();
        let limits = SegmentLimits {
            log_bytes: config.effective_segment_bytes().max(0) as u64,
            index_bytes: config.segment_index_bytes.max(0) as u64,
        };
        group(&sizes, limits, self.first_uncleanable_offset)
    }

    /// Replaces a group by its cleaned segment. `None` if the group is empty.
    fn clean_group(
        &mut self,
        group: &Group<'_>,
        access: &impl LogAccess,
        transactions: &mut CleanedTransactions,
    ) -> Result<Option<UnlinkJob>, CleanError> {
        let last_records = access
            .with_log(|log| log.last_records_of_active_producers())
            .ok_or(CleanError::Stopped)?;
        let (Some(first), Some(last)) = (group.segments.first(), group.segments.last()) else {
            return Ok(None);
        };
        let shared = &self.log.shared;
        let buffer_bytes = self.params.io_buffer_bytes;
        let mut cleaned = CleanedSegment::create(shared, first.base_offset, buffer_bytes)?;
        let mut filter = BatchFilter {
            map: group.map,
            last_records: &last_records,
            first_uncleanable_offset: self.first_uncleanable_offset,
            now: self.params.now,
            delete_retention_ms: self.log.config().delete_retention_ms,
            max_record_bytes: self.log.config().max_decompressed_record_bytes(),
            are_legacy_tombstones_kept: true,
        };
        for segment in group.segments {
            let modified = timestamp_of(self.modified(segment)?);
            filter.are_legacy_tombstones_kept = modified.0 > group.legacy_delete_horizon;
            if let Err(error) = self.clean_into(segment, &filter, transactions, &mut cleaned) {
                cleaned.discard();
                return Err(error);
            }
        }
        let new = cleaned.finish(self.modified(last)?)?;
        let (segment, old) = (new.clone(), group.segments.to_vec());
        let truncations = self.truncations;
        let begun = access.with_log(move |log| log.begin_swap(segment, old, truncations));
        let Some(swap) = begun.flatten() else {
            let removed = new.remove_unswapped();
            removed.map_err(self.error("remove a cleaned segment of"))?;
            return Err(CleanError::Stopped);
        };
        if swap.prepare()? {
            let published = swap.clone();
            access.with_log(move |log| log.publish_swap(&published));
        }
        // An unpublished swap is rolled back.
        let job = swap.finish()?;
        match job.is_empty() {
            true => Err(CleanError::Stopped),
            false => Ok(Some(job)),
        }
    }

    /// Filters a segment into `cleaned`.
    fn clean_into(
        &mut self,
        segment: &Segment,
        filter: &BatchFilter<'_>,
        transactions: &mut CleanedTransactions,
        cleaned: &mut CleanedSegment,
    ) -> Result<(), CleanError> {
        let list = self.log.shared.segments.load_full();
        let next = list
            .segments
            .iter()
            .find(|s| s.base_offset > segment.base_offset);
        let end = next.map_or(self.first_uncleanable_offset, |next| next.base_offset);
        transactions.add_aborted(self.aborted_transactions(segment.base_offset, end)?);
        let file = segment.log_file();
        let file = file.map_err(self.error("open a segment of"))?;
        let mut batches = self.batches(segment, &file, 0);
        while let Some(batch) = batches.next(self)? {
            self.stats.bytes_read += batch.size;
            let bytes = batches.bytes(self, &batch)?;
            let judged = judge(filter, transactions, &batch, bytes)
                .map_err(|error| self.uncleanable(segment, batch.position, error))?;
            if let Some(txn) = judged.aborted {
                cleaned.append_aborted(txn);
            }
            self.stats.records_read += judged.records_read;
            self.stats.records_written += judged.records_kept;
            self.stats.records_without_key += judged.records_without_key;
            let size = match &judged.verdict {
                Verdict::Keep => batch.size,
                Verdict::Replace(new) => new.size_in_bytes() as u64,
                Verdict::Drop => 0,
            };
            self.pace.on_write(size)?;
            let written = match (judged.verdict, &batch.header) {
                (Verdict::Keep, Some(header)) => {
                    cleaned.append_bytes(header, bytes)?;
                    batch.size
                }
                (Verdict::Replace(new), _) => {
                    cleaned.append(&new)?;
                    new.size_in_bytes() as u64
                }
                (Verdict::Drop, _) | (Verdict::Keep, None) => 0,
            };
            self.stats.bytes_written += written;
            batches.count(self, written)?;
        }
        batches.end(self)
    }

    /// The transactions that were aborted at or after `from` and begin below `to`. Kafka also
    /// includes transactions whose markers lie before `from` in its segment: a map that starts
    /// after such a marker then takes the producer's next transaction for aborted, and keeps
    /// records that are not the newest.
    fn aborted_transactions(
        &self,
        from: Offset,
        to: Offset,
    ) -> Result<Vec<AbortedTxn>, CleanError> {
        let list = self.log.shared.segments.load_full();
        let mut aborted = Vec::new();
        for segment in list.with_aborted_from(from) {
            let opener = segment.opener(SegmentFile::TransactionIndex);
            let found = segment
                .transaction_index
                .collect(from, to, opener)
                .map_err(self.error("read the transaction index of"))?;
            aborted.extend(found.aborted);
            if found.is_complete {
                break;
            }
        }
        Ok(aborted)
    }

    fn batches<'s>(&self, segment: &'s Segment, file: &'s File, position: u64) -> Batches<'s> {
        let window = self.params.io_buffer_bytes.max(BatchHeader::SIZE);
        Batches {
            segment,
            scanner: BatchScanner::new(file, position, segment.size(), window),
            end: position,
            uncounted: 0,
        }
    }
}

/// The batches of a segment, throttled by the pace.
struct Batches<'s> {
    segment: &'s Segment,
    scanner: BatchScanner<'s>,
    end: u64,
    /// Bytes that have not been reported to the pace yet.
    uncounted: u64,
}

impl Batches<'_> {
    fn next<P: IoPace>(
        &mut self,
        cleaning: &Cleaning<'_, P>,
    ) -> Result<Option<BatchLocation>, CleanError> {
        let batch = match self.scanner.next_batch() {
            Ok(batch) => batch,
            Err(ScanError::Io(error)) => return Err(cleaning.error("read a segment of")(error)),
            Err(error) => {
                return Err(CleanError::Uncleanable(format!(
                    "segment {}: {error}",
                    self.segment.base_offset
                )));
            }
        };
        if let Some(batch) = &batch {
            self.end = batch.end_position();
            self.count(cleaning, batch.size)?;
        }
        Ok(batch)
    }

    fn bytes<P: IoPace>(
        &mut self,
        cleaning: &Cleaning<'_, P>,
        batch: &BatchLocation,
    ) -> Result<&[u8], CleanError> {
        let bytes = self.scanner.bytes(batch);
        bytes.map_err(|error| cleaning.error("read a segment of")(error))
    }

    fn count<P: IoPace>(
        &mut self,
        cleaning: &Cleaning<'_, P>,
        bytes: u64,
    ) -> Result<(), CleanError> {
        self.uncounted += bytes;
        if self.uncounted >= cleaning.params.io_buffer_bytes as u64 {
            if cleaning.log.truncations() != cleaning.truncations {
                return Err(CleanError::Stopped);
            }
            cleaning.pace.on_io(std::mem::take(&mut self.uncounted))?;
        }
        Ok(())
    }

    /// Fails unless the last batch was whole: the bytes after it would be lost.
    fn end<P: IoPace>(self, cleaning: &Cleaning<'_, P>) -> Result<(), CleanError> {
        cleaning.pace.on_io(self.uncounted)?;
        match self.end == self.segment.size() {
            true => Ok(()),
            false => Err(cleaning.uncleanable(self.segment, self.end, "no whole batch follows")),
        }
    }
}

fn judge(
    filter: &BatchFilter<'_>,
    transactions: &mut CleanedTransactions,
    batch: &BatchLocation,
    bytes: &[u8],
) -> Result<FilteredBatch, BatchError> {
    match &batch.header {
        Some(header) => filter.judge(transactions, header, &bytes[BatchHeader::SIZE..]),
        None => {
            let message = LegacyMessage::read(&mut Bytes::copy_from_slice(bytes))?;
            message.verify_crc()?;
            filter.judge_legacy(&message)
        }
    }
}

/// Puts the keys of a batch from offset `from` on into the map. Returns whether there was room for
/// all.
fn map_batch(
    batch: &BatchLocation,
    bytes: &[u8],
    from: Offset,
    max_record_bytes: usize,
    map: &mut OffsetMap,
    transactions: &mut CleanedTransactions,
) -> Result<bool, BatchError> {
    let Some(header) = &batch.header else {
        let message = LegacyMessage::read(&mut Bytes::copy_from_slice(bytes))?;
        message.verify_crc()?;
        let mut keys = KeysToPut::default();
        for record in message.records(MAX_DECOMPRESSED_BYTES)? {
            if let Some(key) = record.key.filter(|_| record.offset >= from)
                && !keys.put(map, &key, record.offset)
            {
                return Ok(false);
            }
        }
        return Ok(keys.put_rest(map));
    };
    let body = &bytes[BatchHeader::SIZE..];
    // A damaged key or offset would drop the newest record of another key.
    verify_crc(header, body)?;
    if header.is_control() {
        transactions.on_control_batch(header, control_kind(header, body)?);
        return Ok(true);
    }
    if transactions.on_batch(header) || header.record_count == 0 {
        return Ok(true);
    }
    let decompressed;
    let records = match header.compression_type()? {
        CompressionType::None => body,
        codec => {
            decompressed = decompress(codec, body, MAX_DECOMPRESSED_BYTES)?;
            &decompressed
        }
    };
    let mut keys = KeysToPut::default();
    for record in RecordIter::new(header, records).at_most(max_record_bytes) {
        let record = record?;
        if let Some(key) = record.key.filter(|_| record.offset >= from)
            && !keys.put(map, key, record.offset)
        {
            return Ok(false);
        }
    }
    Ok(keys.put_rest(map))
}

/// Keys that are put into the map together.
#[derive(Default)]
struct KeysToPut {
    keys: [(KeyHash, Offset); KEYS_AT_ONCE],
    count: usize,
}

impl KeysToPut {
    /// Returns whether there was room for the keys so far.
    fn put(&mut self, map: &mut OffsetMap, key: &[u8], offset: Offset) -> bool {
        self.keys[self.count] = (map.hash(key), offset);
        self.count += 1;
        self.count < KEYS_AT_ONCE || self.put_rest(map)
    }

    fn put_rest(&mut self, map: &mut OffsetMap) -> bool {
        let count = std::mem::take(&mut self.count);
        map.put_all(&self.keys[..count])
    }
}
