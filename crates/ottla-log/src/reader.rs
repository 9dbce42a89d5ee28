//! Reading a log while it is appended to.
//!
//! A [`LogReader`] shares a snapshot of the segment list and a few counters with the
//! [`Log`](crate::Log), and never takes a lock that an append holds while it writes. The publishing
//! order is: the bytes, the segment's size, the boundaries of the tail, the log end offset. A
//! reader that loads the log end offset first therefore finds everything below it.
//!
//! Kafka: `UnifiedLog.read`, `LocalLog.read`, `UnifiedLog.fetchOffsetByTimestamp`.

use ottla_sync::atomic::{AtomicI64, Ordering};
use std::io;
use std::sync::Arc;

use ottla_config::TopicConfig;
use ottla_sync::ArcSwap;
use ottla_sync::Mutex;
use ottla_types::{LeaderEpoch, Offset, Timestamp, TopicPartition};

use crate::batch_scan::ScanError;
use crate::batch_tail::BatchTail;
use crate::disk;
use crate::disk_read::DiskWait;
use crate::error::{ReadError, StorageError};
use crate::index::AbortedTxn;
use crate::leader_epochs::{EpochEntries, LeaderEpochs};
use crate::partition_dir::PartitionDir;
use crate::region::FileRegion;
use crate::segment::Segment;
use crate::segment_file::SegmentFile;

mod timestamps;

pub use timestamps::{TimestampLookup, TimestampTarget};

/// State shared by the owner of a log and its readers. There is one for each of very many logs: the
/// counts of changes have 32 bits, so that it fits into 128 bytes.
pub(crate) struct Shared {
    pub(crate) dir: Arc<PartitionDir>,
    pub(crate) config: ArcSwap<TopicConfig>,
    pub(crate) segments: ArcSwap<SegmentList>,
    pub(crate) leader_epochs: ArcSwap<EpochEntries>,
    pub(crate) log_start_offset: AtomicI64,
    /// The highest offset that is known to be in remote storage, -1 for none (KIP-405).
    pub(crate) highest_remote_offset: AtomicI64,
    pub(crate) log_end_offset: AtomicI64,
    pub(crate) high_watermark: AtomicI64,
    /// The first offset of the oldest transaction that is open or whose marker is not below the
    /// high watermark; `i64::MAX` if there is none.
    pub(crate) first_unstable_offset: AtomicI64,
    /// Records below it are on disk.
    pub(crate) recovery_point: AtomicI64,
    /// Incremented by every truncation, so that a concurrent flush or cleaning does not vouch for
    /// later records. Locked while the recovery point changes.
    pub(crate) truncations: Mutex<u32>,
    /// What completed flushes have written. Locked during a flush, so that only one runs at a time.
    pub(crate) flushed: Mutex<Flushed>,
}

/// What completed flushes have written. The next flush must do the rest, even if an earlier one was
/// created and has not run or has failed.
#[derive(Default)]
pub(crate) struct Flushed {
    /// The version of the leader epochs in the file.
    pub(crate) epochs_version: u32,
    /// The version of the directory that was fsynced.
    pub(crate) dir_version: u32,
    /// A flush may have created a file since, and may have ended before that fsync.
    pub(crate) has_created: bool,
    /// The partition directory's entry in its log directory is on disk.
    pub(crate) is_parent_synced: bool,
    /// The failure of an fsync. Later flushes fail too, because a repeated fsync could succeed
    /// although data was lost.
    pub(crate) failure: Option<io::ErrorKind>,
}

impl Shared {
    #[track_caller]
    pub(crate) fn offset(&self, counter: &AtomicI64) -> Offset {
        Offset(counter.load(Ordering::Acquire))
    }
}

/// The segments of a log, ordered by base offset; never empty. The last is the active one.
pub(crate) struct SegmentList {
    pub(crate) segments: Vec<Arc<Segment>>,
    /// The newest batch boundaries of the active segment.
    pub(crate) tail: Arc<BatchTail>,
    /// The indexes of the sealed segments whose transaction index may have entries, ascending.
    /// Only the active segment gets more.
    with_aborted: Box<[usize]>,
}

impl SegmentList {
    pub(crate) fn new(segments: Vec<Arc<Segment>>, tail: Arc<BatchTail>) -> SegmentList {
        let sealed = segments.len().saturating_sub(1);
        let with_aborted = (0..sealed)
            .filter(|&index| segments[index].transaction_index.entries().len() > 0)
            .collect();
        SegmentList {
            segments,
            tail,
            with_aborted,
        }
    }

    pub(crate) fn active(&self) -> &Arc<Segment> {
        self.segments.last().expect("a log has a segment")
    }

    /// The segments from the one that holds `offset` on. Earlier ones may be below the log start
    /// offset, waiting for retention.
    pub(crate) fn from(&self, offset: Offset) -> &[Arc<Segment>] {
        &self.segments[self.floor(offset).unwrap_or(0)..]
    }

    /// The segments of [`SegmentList::from`] whose transaction index may have entries. Takes time
    /// for these segments only, because most logs have very many other segments.
    pub(crate) fn with_aborted_from(&self, offset: Offset) -> impl Iterator<Item = &Arc<Segment>> {
        let first = self.floor(offset).unwrap_or(0);
        let after = self.with_aborted.partition_point(|&index| index < first);
        let active = Some(self.active());
        let active = active.filter(|active| active.transaction_index.entries().len() > 0);
        let sealed = self.with_aborted[after..].iter();
        sealed.map(|&index| &self.segments[index]).chain(active)
    }

    /// The index of the segment that holds `offset`; `None` if it is before the first segment.
    pub(crate) fn floor(&self, offset: Offset) -> Option<usize> {
        let after = self
            .segments
            .partition_point(|segment| segment.base_offset <= offset);
        after.checked_sub(1)
    }
}

/// A handle for reading a log. Cheap to clone; any number may read while the log is appended to.
#[derive(Clone)]
pub struct LogReader {
    pub(crate) shared: Arc<Shared>,
}

/// The position of an offset. Kafka: `LogOffsetMetadata`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OffsetPosition {
    pub offset: Offset,
    pub segment_base_offset: Offset,
    /// Bytes from the start of the segment.
    pub position_in_segment: u64,
}

/// The result of a read.
#[derive(Clone, Debug)]
pub struct ReadResult {
    /// The batches from the one that holds the requested offset or the next one on; the last may be
    /// cut off. `None` if there is nothing below the upper bound.
    pub region: Option<FileRegion>,
    /// The start of the read.
    pub start: OffsetPosition,
    /// The first batch exceeds the size limit and is cut off.
    pub first_entry_incomplete: bool,
    /// There is a region, and records below the upper bound in a later segment, which a read at this
    /// offset never reaches.
    pub is_in_older_segment: bool,
}

/// The size limit of a read.
#[derive(Clone, Copy)]
struct ReadSize {
    max_bytes: u64,
    /// The first batch is returned whole even if it exceeds the limit.
    min_one_message: bool,
}

impl ReadResult {
    pub fn len(&self) -> u64 {
        self.region.as_ref().map_or(0, |region| region.len)
    }

    pub fn is_empty(&self) -> bool {
        self.region.is_none()
    }
}

impl LogReader {
    pub fn topic_partition(&self) -> &TopicPartition {
        self.shared.dir.topic_partition()
    }

    /// Whether both read the same opened log, not merely one of the same name.
    pub fn is_of_same_log(&self, other: &LogReader) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// The directory of the partition.
    pub fn dir(&self) -> std::path::PathBuf {
        self.shared.dir.path()
    }

    /// Runs `work` with the directory of the partition, which is not renamed meanwhile: otherwise
    /// another log could get the name. A rename waits, and so does a thread that opens a file of the
    /// log and does not find it.
    pub fn in_dir<R>(&self, work: impl FnOnce(&std::path::Path) -> R) -> R {
        self.shared.dir.keep_path(work)
    }

    /// Renames the directory of the partition; threads that read the log go on. A power loss may bring
    /// the old name back until the directory that contains it is fsynced. An error changes nothing.
    pub fn rename_dir(&self, to: &std::path::Path) -> Result<(), StorageError> {
        let renamed = self.shared.dir.rename(to, disk::rename);
        renamed.map_err(|error| StorageError::new("rename", &self.dir(), error))
    }

    /// Whether the directory of the partition is in a log directory.
    pub fn is_in(&self, log_dir: &std::path::Path) -> bool {
        self.shared.dir.is_in(log_dir)
    }

    pub fn config(&self) -> Arc<TopicConfig> {
        self.shared.config.load_full()
    }

    /// The first offset that may be read.
    pub fn log_start_offset(&self) -> Offset {
        self.shared.offset(&self.shared.log_start_offset)
    }

    /// The first offset on the local disk: above the log start offset if earlier segments are only
    /// in remote storage (KIP-405).
    pub fn local_log_start_offset(&self) -> Offset {
        let list = self.shared.segments.load();
        let first = list.segments.first().map(|segment| segment.base_offset);
        first.unwrap_or(Offset::ZERO).max(self.log_start_offset())
    }

    /// The highest offset that is known to be in remote storage, -1 for none.
    pub fn highest_remote_offset(&self) -> Offset {
        self.shared.offset(&self.shared.highest_remote_offset)
    }

    /// Whether `offset` belongs to the log, but only remote storage has it.
    pub fn is_only_remote(&self, offset: Offset) -> bool {
        self.config().remote_storage_enable
            && offset >= self.log_start_offset()
            && offset < self.local_log_start_offset()
    }

    /// The offset of the next record to be appended.
    pub fn log_end_offset(&self) -> Offset {
        self.shared.offset(&self.shared.log_end_offset)
    }

    /// The offset below which all in-sync replicas have all records, as last set on the log.
    pub fn high_watermark(&self) -> Offset {
        self.shared.offset(&self.shared.high_watermark)
    }

    /// The offset below which every transaction is decided, at most the high watermark.
    pub fn last_stable_offset(&self) -> Offset {
        let high_watermark = self.high_watermark();
        let unstable = self.shared.offset(&self.shared.first_unstable_offset);
        unstable.min(high_watermark)
    }

    /// Records below this offset are on disk.
    pub fn recovery_point(&self) -> Offset {
        self.shared.offset(&self.shared.recovery_point)
    }

    /// Number of truncations since the log was opened.
    pub fn truncations(&self) -> u64 {
        u64::from(*self.shared.truncations.lock())
    }

    pub fn leader_epochs(&self) -> LeaderEpochs {
        LeaderEpochs::of(self.shared.leader_epochs.load_full())
    }

    /// The bytes of all segments' `.log` files.
    pub fn size(&self) -> u64 {
        let list = self.shared.segments.load();
        list.segments.iter().map(|segment| segment.size()).sum()
    }

    pub fn number_of_segments(&self) -> usize {
        self.shared.segments.load().segments.len()
    }

    /// The base offset of every segment, ascending. The last is the active one.
    pub fn segment_base_offsets(&self) -> Vec<Offset> {
        let list = self.shared.segments.load();
        let bases = list.segments.iter().map(|segment| segment.base_offset);
        bases.collect()
    }

    /// The end offset of the largest epoch up to `epoch`; see [`LeaderEpochs::end_offset_for`].
    pub fn end_offset_for_epoch(&self, epoch: LeaderEpoch) -> Option<(LeaderEpoch, Offset)> {
        let epochs = self.leader_epochs();
        epochs.end_offset_for(epoch, self.log_end_offset())
    }

    /// Reads batches that start below `upper_bound`, from the one that holds `from` or the next one
    /// on, up to `max_bytes`; with `min_one_message` at least the first batch. `upper_bound` is the
    /// high watermark, the last stable offset or the log end offset.
    pub fn read(
        &self,
        from: Offset,
        max_bytes: u64,
        upper_bound: Offset,
        min_one_message: bool,
    ) -> Result<ReadResult, ReadError> {
        let size = ReadSize {
            max_bytes,
            min_one_message,
        };
        self.read_with(from, size, upper_bound, DiskWait::Allowed)
    }

    /// As [`LogReader::read`], for threads that must not wait for the disk:
    /// [`ReadError::NotCached`] if finding the position would need disk I/O.
    pub fn read_cached(
        &self,
        from: Offset,
        max_bytes: u64,
        upper_bound: Offset,
        min_one_message: bool,
    ) -> Result<ReadResult, ReadError> {
        let size = ReadSize {
            max_bytes,
            min_one_message,
        };
        self.read_with(from, size, upper_bound, DiskWait::Refused)
    }

    fn read_with(
        &self,
        from: Offset,
        size: ReadSize,
        upper_bound: Offset,
        wait: DiskWait,
    ) -> Result<ReadResult, ReadError> {
        let read = || {
            self.with_segments(|list| {
                let (log_start_offset, log_end_offset) =
                    (self.log_start_offset(), self.log_end_offset());
                if from < log_start_offset || from > log_end_offset {
                    return Err(ReadError::OffsetOutOfRange {
                        offset: from,
                        log_start_offset,
                        log_end_offset,
                    });
                }
                self.read_in(list, from, size, upper_bound.min(log_end_offset), wait)
            })
        };
        match read() {
            // The file may be missing because the directory is being renamed. A wrong
            // `OFFSET_OUT_OF_RANGE` would make a consumer reset its offset.
            Err(ReadError::OffsetOutOfRange { .. })
                if (self.log_start_offset()..=self.log_end_offset()).contains(&from) =>
            {
                read()
            }
            result => result,
        }
    }

    /// Runs `read` on the list of segments, and again if it failed and the list has changed: the
    /// cleaner may have replaced segments, or a truncation may have cut one.
    pub(crate) fn with_segments<R>(
        &self,
        read: impl Fn(&SegmentList) -> Result<R, ReadError>,
    ) -> Result<R, ReadError> {
        let mut list = self.shared.segments.load_full();
        loop {
            let result = read(&list);
            if matches!(result, Ok(_) | Err(ReadError::NotCached)) {
                return result;
            }
            let newer = self.shared.segments.load_full();
            if Arc::ptr_eq(&list, &newer) {
                return result;
            }
            list = newer;
        }
    }

    fn read_in(
        &self,
        list: &SegmentList,
        from: Offset,
        size: ReadSize,
        upper_bound: Offset,
        wait: DiskWait,
    ) -> Result<ReadResult, ReadError> {
        let first = list
            .floor(from)
            .ok_or_else(|| ReadError::OffsetOutOfRange {
                offset: from,
                log_start_offset: self.log_start_offset(),
                log_end_offset: self.log_end_offset(),
            })?;
        for (index, segment) in list.segments.iter().enumerate().skip(first) {
            let nothing = |position| ReadResult {
                region: None,
                start: OffsetPosition {
                    offset: from,
                    segment_base_offset: segment.base_offset,
                    position_in_segment: position,
                },
                first_entry_incomplete: false,
                is_in_older_segment: false,
            };
            if from >= upper_bound || segment.base_offset >= upper_bound {
                // The position only serves to estimate distances between offsets; it is not worth
                // reading the file.
                let tail = (index + 1 == list.segments.len()).then(|| list.tail.floor(from));
                let position = tail.flatten().map_or(0, |(before, _)| before.position);
                return Ok(nothing(position));
            }
            let Some((position, first_size)) = self.locate(list, index, from, wait)? else {
                continue;
            };
            let end = self.end_position(list, index, upper_bound, wait)?;
            if position >= end {
                return Ok(nothing(position));
            }
            let limit = match size.min_one_message {
                true => size.max_bytes.max(first_size),
                false => size.max_bytes,
            };
            let len = limit.min(end - position);
            if len == 0 {
                return Ok(nothing(position));
            }
            let file = segment
                .log_file_for(wait)
                .map_err(|error| self.read_error(segment, error.into()))?;
            return Ok(ReadResult {
                region: Some(FileRegion {
                    file,
                    position,
                    len,
                }),
                first_entry_incomplete: limit < first_size,
                is_in_older_segment: list
                    .segments
                    .get(index + 1)
                    .is_some_and(|next| next.base_offset < upper_bound),
                ..nothing(position)
            });
        }
        // All batches at or after `from` in the last segment were compacted away.
        Ok(ReadResult {
            region: None,
            start: OffsetPosition {
                offset: self.log_end_offset(),
                segment_base_offset: list.active().base_offset,
                position_in_segment: list.active().size(),
            },
            first_entry_incomplete: false,
            is_in_older_segment: false,
        })
    }

    /// Position and size of the first batch in segment `index` that ends at or after `offset`.
    fn locate(
        &self,
        list: &SegmentList,
        index: usize,
        offset: Offset,
        wait: DiskWait,
    ) -> Result<Option<(u64, u64)>, ReadError> {
        let segment = &list.segments[index];
        let is_active = index + 1 == list.segments.len();
        if is_active && let Some((before, after)) = list.tail.floor(offset) {
            let after = after.map(|after| (before.position, after.position - before.position));
            return Ok(after);
        }
        let found = segment
            .locate(offset, segment.size(), wait)
            .map_err(|error| self.read_error(segment, error))?;
        Ok(found.map(|batch| (batch.position, batch.size)))
    }

    /// The position in segment `index` below which all batches start below `upper_bound`.
    fn end_position(
        &self,
        list: &SegmentList,
        index: usize,
        upper_bound: Offset,
        wait: DiskWait,
    ) -> Result<u64, ReadError> {
        let segment = &list.segments[index];
        match list.segments.get(index + 1) {
            Some(next) if next.base_offset <= upper_bound => return Ok(segment.size()),
            Some(_) => {}
            None => {
                if let Some((before, _)) = list.tail.floor(upper_bound) {
                    return Ok(before.position);
                }
            }
        }
        let size = segment.size();
        let found = segment
            .locate(upper_bound, size, wait)
            .map_err(|error| self.read_error(segment, error))?;
        Ok(found.map_or(size, |batch| batch.position))
    }

    /// The aborted transactions with records among the batches of `result`, a read from `from` for
    /// a `read_committed` consumer. [`ReadError::OffsetOutOfRange`] if the segment was deleted
    /// after the read: its transaction index is gone, and the records must not be returned without
    /// the list.
    pub fn aborted_transactions_of(
        &self,
        from: Offset,
        result: &ReadResult,
    ) -> Result<Vec<AbortedTxn>, ReadError> {
        let Some(region) = &result.region else {
            return Ok(Vec::new());
        };
        let base_offset = result.start.segment_base_offset;
        let aborted = match self.has_aborted_transactions(from) {
            true => self.aborted_in(base_offset, from, region.position + region.len)?,
            false => Vec::new(),
        };
        // Segments are deleted from the front, so if the segment is still there, none of the
        // searched segments was missing.
        match self.shared.segments.load().floor(base_offset) {
            Some(_) => Ok(aborted),
            None => Err(ReadError::OffsetOutOfRange {
                offset: from,
                log_start_offset: self.log_start_offset(),
                log_end_offset: self.log_end_offset(),
            }),
        }
    }

    /// The aborted transactions from `from` on up to position `end` of the segment that has
    /// `base_offset`.
    fn aborted_in(
        &self,
        base_offset: Offset,
        from: Offset,
        end: u64,
    ) -> Result<Vec<AbortedTxn>, ReadError> {
        let upper_bound = self.with_segments(|list| {
            let Some(index) = list.floor(base_offset) else {
                return Ok(None);
            };
            let segment = &list.segments[index];
            let indexed = segment
                .offset_index
                .first_offset_at_or_after(end, segment.opener(SegmentFile::OffsetIndex))
                .map_err(|error| self.read_error(segment, error.into()))?;
            let upper_bound = indexed
                .or_else(|| Some(list.segments.get(index + 1)?.base_offset))
                .unwrap_or_else(|| self.log_end_offset());
            Ok(Some(upper_bound))
        })?;
        match upper_bound {
            Some(upper_bound) => self.aborted_transactions(from, upper_bound),
            None => Ok(Vec::new()),
        }
    }

    /// The aborted transactions with records in `[from, upper_bound)`.
    pub fn aborted_transactions(
        &self,
        from: Offset,
        upper_bound: Offset,
    ) -> Result<Vec<AbortedTxn>, ReadError> {
        self.with_segments(|list| {
            let mut aborted = Vec::new();
            for segment in list.with_aborted_from(from) {
                let opener = segment.opener(SegmentFile::TransactionIndex);
                let found = segment
                    .transaction_index
                    .collect(from, upper_bound, opener)
                    .map_err(|error| self.read_error(segment, error.into()))?;
                aborted.extend(found.aborted);
                if found.is_complete {
                    break;
                }
            }
            Ok(aborted)
        })
    }

    /// Whether [`LogReader::aborted_transactions_of`] has to read an index for a read from `from`.
    pub fn has_aborted_transactions(&self, from: Offset) -> bool {
        let list = self.shared.segments.load();
        list.with_aborted_from(from).next().is_some()
    }

    pub(crate) fn read_error(&self, segment: &Segment, error: ScanError) -> ReadError {
        match error {
            ScanError::Io(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                ReadError::NotCached
            }
            // The segment was deleted or truncated between loading the list and opening the file;
            // the log start or end has passed the offset by now.
            ScanError::Io(error) if error.kind() == std::io::ErrorKind::NotFound => {
                ReadError::OffsetOutOfRange {
                    offset: segment.base_offset,
                    log_start_offset: self.log_start_offset(),
                    log_end_offset: self.log_end_offset(),
                }
            }
            ScanError::Io(error) => {
                let path = segment
                    .path(SegmentFile::Log)
                    .unwrap_or_else(|_| self.dir());
                ReadError::Storage(StorageError::new("read", &path, error))
            }
            ScanError::Corrupt {
                error: ottla_records::BatchError::RecordTooLarge { .. },
                ..
            } => ReadError::RecordTooLarge {
                segment_base_offset: segment.base_offset,
                reason: error.to_string(),
            },
            error => ReadError::Corrupt {
                segment_base_offset: segment.base_offset,
                reason: error.to_string(),
            },
        }
    }

    /// The largest timestamp of all records; `None` if no record has one.
    pub fn max_timestamp(&self) -> Option<Timestamp> {
        let list = self.shared.segments.load();
        let timestamps = list.segments.iter().filter_map(|s| s.max_timestamp());
        timestamps.map(|max| max.timestamp).max()
    }
}
