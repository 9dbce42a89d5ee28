//! Reading segments back: checking and rebuilding indexes, and rebuilding the producer state.
//!
//! Kafka: `LogSegment.recover`, `LogSegment.sanityCheck`, `UnifiedLog.rebuildProducerState`.

use ottla_sync::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use ottla_config::TopicConfig;
use ottla_records::legacy::LegacyMessage;
use ottla_records::{BatchHeader, RecordBatch};
use ottla_types::{Offset, Timestamp};

use super::append::fits_relative;
use crate::batch_scan::{BatchLocation, BatchScanner, LOOKUP_WINDOW, SEQUENTIAL_WINDOW, ScanError};
use crate::disk;
use crate::disk_read::DiskWait;
use crate::error::{LogError, StorageError};
use crate::index::{AbortedTxn, OffsetIndex, TimeIndex, TimestampOffset};
use crate::leader_epochs::LeaderEpochs;
use crate::producer_state::{PendingSnapshot, ProducerState};
use crate::segment::{IndexSizes, Segment};
use crate::segment_file::SegmentFile;

/// Kafka stores positions in an index as 31 bits.
const MAX_SEGMENT_BYTES: u64 = i32::MAX as u64;

/// Checks the index files of a segment of `log_size` bytes without reading them completely. `None`
/// if one cannot be right.
pub(super) fn check_indexes(
    dir: &Path,
    base_offset: Offset,
    log_size: u64,
    may_have_transaction_index: bool,
) -> io::Result<Option<IndexSizes>> {
    // Most are empty and need not be opened.
    let len_of = |kind: SegmentFile| match ottla_sync::fs::metadata(kind.path_in(dir, base_offset))
    {
        Ok(metadata) => Ok(Some(metadata.len())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    };
    let open = |kind: SegmentFile| File::open(kind.path_in(dir, base_offset));
    let entries = |len: u64, size: usize| {
        len.is_multiple_of(size as u64)
            .then(|| u32::try_from(len / size as u64).ok())
            .flatten()
    };
    let Some(len) = len_of(SegmentFile::OffsetIndex)? else {
        return Ok(None);
    };
    let Some(offset_entries) = entries(len, OffsetIndex::ENTRY_SIZE) else {
        return Ok(None);
    };
    if offset_entries > 0 {
        let mut last = [0; OffsetIndex::ENTRY_SIZE];
        let offset_file = open(SegmentFile::OffsetIndex)?;
        offset_file.read_exact_at(&mut last, len - OffsetIndex::ENTRY_SIZE as u64)?;
        let (words, _) = last.as_chunks::<4>();
        let relative = i32::from_be_bytes(words[0]);
        let position = u64::from(u32::from_be_bytes(words[1]));
        // The first batch has no entry, so an all-zero entry is the unused rest of a preallocated
        // file.
        if relative < 0 || position == 0 || position >= log_size {
            return Ok(None);
        }
    }

    let Some(len) = len_of(SegmentFile::TimeIndex)? else {
        return Ok(None);
    };
    let Some(time_entries) = entries(len, TimeIndex::ENTRY_SIZE) else {
        return Ok(None);
    };
    let mut last_time_entry = None;
    if time_entries > 0 {
        let mut first = [0; TimeIndex::ENTRY_SIZE];
        let time_file = open(SegmentFile::TimeIndex)?;
        time_file.read_exact_at(&mut first, 0)?;
        let mut last = first;
        if time_entries > 1 {
            time_file.read_exact_at(&mut last, len - TimeIndex::ENTRY_SIZE as u64)?;
        }
        let first = TimeIndex::parse_entry(base_offset, &first);
        let last = TimeIndex::parse_entry(base_offset, &last);
        let is_same = time_entries > 1 && last.timestamp == first.timestamp;
        if last.timestamp < first.timestamp || is_same || !fits_relative(last.offset, base_offset) {
            return Ok(None);
        }
        last_time_entry = Some(last);
    }

    let mut transaction_entries = 0;
    if may_have_transaction_index && let Some(len) = len_of(SegmentFile::TransactionIndex)? {
        let file = open(SegmentFile::TransactionIndex)?;
        let Some(count) = entries(len, AbortedTxn::SIZE) else {
            return Ok(None);
        };
        let mut last_offset = base_offset;
        for number in 0..count {
            let mut entry = [0; AbortedTxn::SIZE];
            file.read_exact_at(&mut entry, u64::from(number) * AbortedTxn::SIZE as u64)?;
            match AbortedTxn::from_bytes(&entry) {
                Some(txn) if txn.last_offset >= last_offset => last_offset = txn.last_offset,
                _ => return Ok(None),
            }
        }
        transaction_entries = count;
    }
    Ok(Some(IndexSizes {
        offset_entries,
        time_entries,
        last_time_entry,
        transaction_entries,
    }))
}

/// Whether the indexes of a sealed segment reach its end: no entry is due after the last of the
/// offset index, and no batch after it is newer than the last of the time index.
///
/// `index.interval.bytes` may have been different when the segment was written. It was less than
/// the distance between any two entries, so an end no longer than the last distance counts as
/// complete.
pub(super) fn are_indexes_complete(segment: &Segment, config: &TopicConfig) -> io::Result<bool> {
    let opener = segment.opener(SegmentFile::OffsetIndex);
    let last = segment.offset_index.last_entry(opener)?;
    let start = last.map_or(0, |entry| entry.position);
    let before_last = match segment.offset_index.entries().len() {
        0 | 1 => None,
        len => segment.offset_index.entry(len - 2, opener)?,
    };
    let distance = start.saturating_sub(before_last.map_or(0, |entry| entry.position));
    let interval = distance.max(config.index_interval_bytes.max(0) as u64);
    let youngest = segment.time_index.last_entry();
    let youngest = youngest.map_or(Timestamp::NONE, |entry| entry.timestamp);
    let file = segment.log_file()?;
    let mut scanner = BatchScanner::new(&file, start, segment.size(), LOOKUP_WINDOW);
    loop {
        match scanner.next_batch() {
            Ok(Some(batch)) => {
                if batch.position - start > interval || batch.max_timestamp > youngest {
                    return Ok(false);
                }
            }
            Ok(None) => return Ok(true),
            Err(ScanError::Io(error)) => return Err(error),
            // Invalid bytes are not indexed.
            Err(_) => return Ok(true),
        }
    }
}

/// The files of a segment's offset and time index when its scan begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum IndexFiles {
    /// They are made anew.
    Stale,
    /// They hold at most one entry, of the time index, and there is no transaction index, as with
    /// most idle logs. They are not
    /// touched if the scan finds that this is right and adds none to the offset index: changes of
    /// files are what takes longest in the recovery of very many logs. Only for the active segment,
    /// the last entry of whose time index may stay in memory, as after an append.
    Sparse {
        /// The entry of the file, until the scan has found the same.
        unconfirmed: Option<TimestampOffset>,
    },
}

/// Verifies all batches of a segment and rebuilds its indexes.
pub(super) struct SegmentScan<'a> {
    /// Its indexes have the entries of `index_files`.
    pub(super) segment: &'a Segment,
    pub(super) index_files: IndexFiles,
    /// There may be a file of its transaction index, which is removed.
    pub(super) may_have_transaction_index: bool,
    pub(super) config: &'a TopicConfig,
    pub(super) leader_epochs: &'a mut LeaderEpochs,
    /// The producer state at the segment's base offset.
    pub(super) producers: &'a mut ProducerState,
    /// The base offset of the next segment, if batches at or after it must be ignored.
    pub(super) next_base_offset: Option<Offset>,
    /// The next start may find the segment complete by its offset and time index, and not scan it
    /// again. So the file of the time index is missing until the transaction index is on disk.
    pub(super) is_below_recovery_point: bool,
}

pub(super) struct ScanOutcome {
    /// Length of the prefix of whole, valid batches.
    pub(super) valid_bytes: u64,
    /// The offset after the last of them.
    pub(super) next_offset: Offset,
    pub(super) first: Option<BatchLocation>,
    /// Why the next bytes are invalid, if any follow.
    pub(super) corruption: Option<String>,
    /// The next bytes overlap the next segment.
    pub(super) is_overlapped: bool,
}

impl SegmentScan<'_> {
    pub(super) fn run(&mut self) -> io::Result<ScanOutcome> {
        if self.index_files == IndexFiles::Stale {
            // The time index first: a power loss may undo the later changes only.
            for kind in [SegmentFile::TimeIndex, SegmentFile::OffsetIndex] {
                let path = self.segment.path(kind)?;
                if kind == SegmentFile::TimeIndex && self.is_below_recovery_point {
                    disk::remove_file_if_there(&path)?;
                } else {
                    drop(disk::create(&path)?);
                }
            }
        }
        if self.may_have_transaction_index {
            disk::remove_file_if_there(&self.segment.path(SegmentFile::TransactionIndex)?)?;
        }
        let mut outcome = ScanOutcome {
            valid_bytes: 0,
            next_offset: self.segment.base_offset,
            first: None,
            corruption: None,
            is_overlapped: false,
        };
        let max_timestamp = match self.segment.size() {
            // Its file need not be opened.
            0 => None,
            _ => self.scan(&mut outcome)?,
        };
        if matches!(
            self.index_files,
            IndexFiles::Sparse {
                unconfirmed: Some(_)
            }
        ) {
            self.empty_sparse_indexes()?;
        }
        if let Some(max) = max_timestamp {
            self.segment.time_index.append_if_younger(max);
        }
        self.segment.set_max_timestamp(max_timestamp);
        if self.index_files == IndexFiles::Stale {
            self.write_tails()?;
        }
        Ok(outcome)
    }

    /// Reads the batches. Returns the largest timestamp.
    fn scan(&mut self, outcome: &mut ScanOutcome) -> io::Result<Option<TimestampOffset>> {
        let file = self.segment.log_file_once()?;
        let size = self.segment.size();
        let end = size.min(MAX_SEGMENT_BYTES);
        let mut scanner = BatchScanner::new(&file, 0, end, SEQUENTIAL_WINDOW);
        let mut max_timestamp: Option<TimestampOffset> = None;
        let mut last_index_entry = 0;
        let end_offset = self.next_base_offset.unwrap_or(Offset(i64::MAX));
        loop {
            // Bytes that a truncation replaced may be torn; that is no damage.
            if outcome.next_offset >= end_offset {
                outcome.is_overlapped = outcome.valid_bytes < size;
                break;
            }
            let base_offset = self.segment.base_offset;
            let batch = match next_valid(&mut scanner, base_offset, outcome.next_offset) {
                Ok(Some(batch)) => batch,
                Ok(None) => break,
                Err(Invalid::Io(error)) => return Err(error),
                Err(Invalid::Batch(reason)) => {
                    outcome.corruption = Some(reason);
                    break;
                }
            };
            let (location, batch) = batch;
            let last_offset = location.last_offset;
            if last_offset >= end_offset {
                outcome.is_overlapped = true;
                break;
            }
            if max_timestamp.is_none_or(|max| location.max_timestamp > max.timestamp) {
                max_timestamp = Some(TimestampOffset {
                    timestamp: location.max_timestamp,
                    offset: last_offset,
                });
                let confirmed = IndexFiles::Sparse {
                    unconfirmed: max_timestamp,
                };
                if self.index_files == confirmed {
                    self.index_files = IndexFiles::Sparse { unconfirmed: None };
                }
            }
            let interval = self.config.index_interval_bytes.max(0) as u64;
            if location.position - last_index_entry > interval {
                self.empty_sparse_indexes()?;
                self.segment
                    .offset_index
                    .append(last_offset, location.position);
                if let Some(max) = max_timestamp {
                    self.segment.time_index.append_if_younger(max);
                }
                last_index_entry = location.position;
                self.write_long_tails()?;
            }
            outcome.first.get_or_insert(location);
            outcome.valid_bytes = location.end_position();
            outcome.next_offset = location.next_offset();
            if let Some(batch) = batch {
                self.apply(&batch);
            }
        }
        let is_explained = outcome.corruption.is_some() || outcome.is_overlapped;
        if !is_explained && outcome.valid_bytes < size {
            outcome.corruption = Some("the last batch is not whole".to_owned());
        }
        Ok(max_timestamp)
    }

    /// From here on, the files are written like new ones.
    fn empty_sparse_indexes(&mut self) -> io::Result<()> {
        if self.index_files == IndexFiles::Stale {
            return Ok(());
        }
        self.index_files = IndexFiles::Stale;
        let opener = self.segment.opener(SegmentFile::TimeIndex);
        self.segment.time_index.truncate(0, None, opener)
    }

    fn apply(&mut self, batch: &RecordBatch) {
        let header = &batch.header;
        let is_newer = self
            .leader_epochs
            .latest()
            .is_none_or(|latest| header.partition_leader_epoch > latest.epoch);
        if is_newer {
            self.leader_epochs
                .assign(header.partition_leader_epoch, header.base_offset);
        }
        if let Some(completed) = self.producers.apply(batch) {
            if completed.is_aborted {
                self.segment.transaction_index.append(AbortedTxn {
                    producer_id: completed.producer_id,
                    first_offset: completed.first_offset,
                    last_offset: completed.last_offset,
                    last_stable_offset: self.producers.last_stable_offset_after(&completed),
                });
            }
            self.producers.complete(&completed);
        }
        self.producers.set_map_end_offset(header.next_offset());
    }

    fn write_long_tails(&self) -> io::Result<()> {
        let offsets = self.segment.offset_index.entries();
        match offsets.is_tail_long() {
            false => Ok(()),
            true if self.is_below_recovery_point => {
                offsets.write_tail(self.segment.opener(SegmentFile::OffsetIndex))
            }
            true => self.segment.write_index_tails(),
        }
    }

    fn write_tails(&self) -> io::Result<()> {
        if self.is_below_recovery_point {
            self.segment.force_transaction_index()?;
            drop(disk::create(&self.segment.path(SegmentFile::TimeIndex)?)?);
        }
        self.segment.write_index_tails()
    }
}

/// The next batch of a segment that begins at `base_offset`, if it is whole and valid and does not
/// overlap offsets below `next_offset`. The batch itself is returned for magic 2 only, because
/// others have no producer or epoch.
pub(super) fn next_valid(
    scanner: &mut BatchScanner<'_>,
    base_offset: Offset,
    next_offset: Offset,
) -> Result<Option<(BatchLocation, Option<RecordBatch>)>, Invalid> {
    let Some(location) = scanner.next_batch()? else {
        return Ok(None);
    };
    let bytes = scanner.bytes(&location)?;
    let is_behind = location.base_offset < next_offset && location.header.is_some();
    if is_behind || !fits_relative(location.last_offset, base_offset) {
        return Err(Invalid::Batch(format!(
            "offsets {} to {} do not follow {}",
            location.base_offset, location.last_offset, next_offset
        )));
    }
    let Some(header) = location.header else {
        LegacyMessage::read(&mut Bytes::copy_from_slice(bytes))
            .and_then(|message| message.verify_crc())
            .map_err(|error| Invalid::Batch(error.to_string()))?;
        return Ok(Some((location, None)));
    };
    let crc = crc_fast::checksum(
        crc_fast::CrcAlgorithm::Crc32Iscsi,
        &bytes[BatchHeader::CRC_START..],
    ) as u32;
    if crc != header.crc {
        return Err(Invalid::Batch(format!(
            "the stored checksum is {:#010x}, but the bytes give {crc:#010x}",
            header.crc
        )));
    }
    // Only markers are parsed; other bodies need not be copied.
    let body = match header.is_control() {
        true => Bytes::copy_from_slice(&bytes[BatchHeader::SIZE..]),
        false => Bytes::new(),
    };
    Ok(Some((location, Some(header_and_body(header, body)))))
}

/// A batch with a body only if the body was read. The length in the header is set to that of the
/// body.
fn header_and_body(mut header: BatchHeader, body: Bytes) -> RecordBatch {
    header.batch_length = BatchHeader::MIN_LENGTH + body.len() as i32;
    RecordBatch::new(header, body)
}

pub(super) enum Invalid {
    Io(io::Error),
    Batch(String),
}

impl From<io::Error> for Invalid {
    fn from(error: io::Error) -> Self {
        Invalid::Io(error)
    }
}

impl From<ScanError> for Invalid {
    fn from(error: ScanError) -> Self {
        match error {
            ScanError::Io(error) => Invalid::Io(error),
            error => Invalid::Batch(error.to_string()),
        }
    }
}

/// Input of [`producers_at`].
pub(super) struct ProducersAt<'a> {
    /// Empty.
    pub(super) producers: ProducerState,
    pub(super) dir: &'a Path,
    /// Snapshots that may not be written yet.
    pub(super) pending: &'a [Arc<PendingSnapshot>],
    /// Ascending; must include the segments that hold records below `end`.
    pub(super) segments: &'a [Arc<Segment>],
    pub(super) log_start_offset: Offset,
    pub(super) end: Offset,
    pub(super) now: Timestamp,
}

/// The producer state at `end`, from the newest snapshot and the records after it. Changes no
/// files: snapshots of later offsets may still be needed.
pub(super) fn producers_at(at: ProducersAt<'_>) -> Result<ProducerState, LogError> {
    let ProducersAt {
        mut producers,
        dir,
        segments,
        log_start_offset,
        end,
        ..
    } = at;
    producers.list_snapshots(dir)?;
    producers.load_newest(dir, at.pending, log_start_offset, end, at.now)?;
    let from = producers.map_end_offset();
    let first = segments.partition_point(|segment| segment.base_offset <= from);
    for segment in &segments[first.saturating_sub(1)..] {
        if segment.base_offset >= end {
            break;
        }
        let start = segment.base_offset.max(from);
        apply_records(&mut producers, segment, start, end)
            .map_err(|error| StorageError::new("read the producers of", dir, error))?;
    }
    producers.set_map_end_offset(end);
    Ok(producers)
}

/// Input of [`rebuild_producers`].
pub(super) struct Rebuild<'a> {
    pub(super) producers: &'a mut ProducerState,
    pub(super) dir: &'a Path,
    /// Ascending; must include the segments that hold records below `end`.
    pub(super) segments: &'a [Arc<Segment>],
    pub(super) log_start_offset: Offset,
    pub(super) end: Offset,
    pub(super) now: Timestamp,
    /// The log was stopped cleanly and had no snapshot: it had no producers.
    pub(super) has_no_producers: bool,
}

/// Brings the producer state to `end`, from the newest snapshot and the records after it. Takes
/// snapshots at the bases of the last two segments and at `end`.
pub(super) fn rebuild_producers(rebuild: Rebuild<'_>) -> Result<(), LogError> {
    let Rebuild {
        producers,
        dir,
        segments,
        log_start_offset,
        end,
        ..
    } = rebuild;
    let bases = segments.iter().map(|segment| segment.base_offset);
    let snapshot_bases: Vec<Offset> = bases.rev().take(2).collect();
    if rebuild.has_no_producers {
        for offset in snapshot_bases.iter().rev().chain([&end]) {
            producers.set_map_end_offset(*offset);
            producers.write_snapshot(dir)?;
        }
        return Ok(());
    }
    let is_empty = producers.is_empty() && producers.map_end_offset() >= end;
    producers.truncate_and_reload(dir, log_start_offset, end, rebuild.now)?;
    if end > producers.map_end_offset() && !is_empty {
        let from = producers.map_end_offset();
        let first = segments.partition_point(|segment| segment.base_offset <= from);
        for segment in &segments[first.saturating_sub(1)..] {
            if segment.base_offset >= end {
                break;
            }
            let start = segment
                .base_offset
                .max(producers.map_end_offset())
                .max(log_start_offset);
            producers.set_map_end_offset(start);
            if snapshot_bases.contains(&segment.base_offset) {
                producers.write_snapshot(dir)?;
            }
            apply_records(producers, segment, start, end)
                .map_err(|error| StorageError::new("read the producers of", dir, error))?;
        }
    }
    producers.set_map_end_offset(end);
    // A recovered log without producers gets its snapshot at the next stop.
    if !is_empty {
        producers.write_snapshot(dir)?;
    }
    Ok(())
}

/// Applies the batches of a segment in `[from, end)`.
fn apply_records(
    producers: &mut ProducerState,
    segment: &Segment,
    from: Offset,
    end: Offset,
) -> io::Result<()> {
    let size = segment.size();
    let first = match segment.locate(from, size, DiskWait::Allowed) {
        Ok(Some(first)) => first,
        Ok(None) => return Ok(()),
        Err(ScanError::Io(error)) => return Err(error),
        // An unreadable batch has no producers; reads of it fail.
        Err(_) => return Ok(()),
    };
    let file = segment.log_file()?;
    let mut scanner = BatchScanner::new(&file, first.position, size, LOOKUP_WINDOW);
    loop {
        let batch = match scanner.next_batch() {
            Ok(Some(batch)) if batch.base_offset < end => batch,
            Ok(_) => return Ok(()),
            Err(ScanError::Io(error)) => return Err(error),
            Err(_) => return Ok(()),
        };
        let Some(header) = batch.header.filter(BatchHeader::has_producer_id) else {
            continue;
        };
        let body = match header.is_control() {
            true => Bytes::copy_from_slice(&scanner.bytes(&batch)?[BatchHeader::SIZE..]),
            false => Bytes::new(),
        };
        if let Some(completed) = producers.apply(&header_and_body(header, body)) {
            producers.complete(&completed);
        }
    }
}
