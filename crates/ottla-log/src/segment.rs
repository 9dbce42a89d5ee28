//! One segment: a `.log` file of batches and its indexes.
//!
//! Owns the names of its files, and the counters that limit what readers see of them. The appender
//! writes through [`Segment::log_file`] and then publishes. Bytes below [`Segment::size`] are never
//! changed in place, because readers may have handed them to the network. They may be cut off
//! ([`Segment::cut`]); nothing is written in their place.
//!
//! Kafka: `LogSegment`.

use ottla_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use ottla_sync::{Guard, Mutex};
use ottla_types::{Offset, Timestamp};

use crate::batch_scan::{BatchLocation, BatchScanner, LOOKUP_WINDOW, ScanError};
use crate::disk;
use crate::disk_read::DiskWait;
use crate::file_names::{
    CLEANED_SUFFIX, DELETED_SUFFIX, LOG_SUFFIX, PRODUCER_SNAPSHOT_SUFFIX, SWAP_SUFFIX, file_name,
};
use crate::handles::{HoldsHandles, LogFile};
use crate::index::{OffsetIndex, OpenFile, TimeIndex, TimestampOffset, TransactionIndex};
use crate::open_files::OpenFiles;
use crate::partition_dir::PartitionDir;
use crate::segment_file::SegmentFile;
use crate::spare::{SpareSegment, spare_name};

/// Source of unique segment numbers.
static NEXT_NUMBER: AtomicU32 = AtomicU32::new(1);

/// Very many logs have one each: it fits into 160 bytes.
pub(crate) struct Segment {
    pub(crate) base_offset: Offset,
    /// Makes its `.deleted` names unique among segments with the same base offset.
    number: u32,
    dir: Arc<PartitionDir>,
    state: Mutex<FileState>,
    files: Arc<OpenFiles>,
    /// Number of bytes visible to readers.
    size: AtomicU64,
    pub(crate) offset_index: OffsetIndex,
    pub(crate) time_index: TimeIndex,
    pub(crate) transaction_index: TransactionIndex,
    /// The largest timestamp in the segment and the last offset of the batch that has it.
    max_timestamp: Mutex<Option<TimestampOffset>>,
    /// The index files on disk match memory. Cleared when the segment is created, set by the flush
    /// that finds it sealed.
    pub(crate) are_indexes_flushed: AtomicBool,
    /// The files of the offset and time index exist: a segment without them is repaired at start.
    pub(crate) has_index_files: AtomicBool,
}

/// The state of a segment's files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FileState {
    /// Being written by the cleaner, under `.cleaned` names.
    Cleaned,
    /// Complete output of the cleaner, under `.swap` names until the replaced files are renamed.
    Swap,
    /// Under their regular names.
    Present,
    /// Renamed to `.deleted`; may be unlinked at any time.
    Deleted,
    /// Removed: output of the cleaner that was not used. Only open handles remain usable.
    Removed,
}

/// Number of entries in each index file, from file sizes or a rebuild.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct IndexSizes {
    pub(crate) offset_entries: u32,
    pub(crate) time_entries: u32,
    pub(crate) last_time_entry: Option<TimestampOffset>,
    pub(crate) transaction_entries: u32,
}

/// The remainder of a segment after its end is cut off.
pub(crate) struct Cut {
    /// Held, so that the cut does not have to open any.
    files: CutFiles,
    /// New size of the log file.
    pub(crate) position: u64,
    pub(crate) max_timestamp: Option<TimestampOffset>,
    indexes: IndexSizes,
}

/// The files of a segment to be cut; an index only if it has entries.
struct CutFiles {
    log: Arc<LogFile>,
    offset_index: Option<Arc<LogFile>>,
    time_index: Option<Arc<LogFile>>,
    transaction_index: Option<Arc<LogFile>>,
}

impl Segment {
    pub(crate) fn new(
        dir: Arc<PartitionDir>,
        base_offset: Offset,
        size: u64,
        indexes: IndexSizes,
        log: Option<LogFile>,
    ) -> Self {
        Self {
            base_offset,
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
            files: OpenFiles::new(Arc::clone(&dir), log),
            dir,
            state: Mutex::new(FileState::Present),
            size: AtomicU64::new(size),
            offset_index: OffsetIndex::new(base_offset, indexes.offset_entries),
            time_index: TimeIndex::new(base_offset, indexes.time_entries, indexes.last_time_entry),
            transaction_index: TransactionIndex::new(indexes.transaction_entries),
            max_timestamp: Mutex::new(indexes.last_time_entry),
            are_indexes_flushed: AtomicBool::new(false),
            has_index_files: AtomicBool::new(false),
        }
    }

    /// Creates the files of an empty segment. Existing files of these names can only be left over
    /// from a crash and are deleted first, as in Kafka's `LocalLog.roll`.
    pub(crate) fn create(dir: &Arc<PartitionDir>, base_offset: Offset) -> io::Result<Self> {
        let mut log = None;
        // The log file comes last: without it there is no segment, and the others are leftovers.
        for kind in SegmentFile::ALL.into_iter().rev() {
            let path = dir.join(&file_name(base_offset, kind.suffix()));
            if kind == SegmentFile::TransactionIndex {
                disk::remove_file_if_there(&path)?;
                continue;
            }
            let file = dir.handles().open(|| disk::create(&path))?;
            if kind == SegmentFile::Log {
                log = Some(file);
            }
        }
        let indexes = IndexSizes::default();
        let segment = Self::new(dir.clone(), base_offset, 0, indexes, log);
        segment.has_index_files.store(true, Ordering::Release);
        Ok(segment)
    }

    /// Creates the files of a segment for the cleaner's output, under `.cleaned` names.
    pub(crate) fn create_cleaned(dir: &Arc<PartitionDir>, base_offset: Offset) -> io::Result<Self> {
        let segment = Self::new(dir.clone(), base_offset, 0, IndexSizes::default(), None);
        *segment.state.lock() = FileState::Cleaned;
        for kind in SegmentFile::ALL {
            let path = segment.path(kind)?;
            match kind {
                SegmentFile::TransactionIndex => disk::remove_file_if_there(&path)?,
                _ => drop(dir.handles().open(|| disk::create(&path))?),
            }
        }
        Ok(segment)
    }

    /// Turns a spare log file into a segment with one rename, which the appender waits for. The
    /// index files are created when they are first written; a segment without them is repaired at
    /// start.
    pub(crate) fn from_spare(
        dir: &Arc<PartitionDir>,
        base_offset: Offset,
        spare: SpareSegment,
    ) -> io::Result<Self> {
        // Existing index files can only be leftovers.
        for kind in [
            SegmentFile::OffsetIndex,
            SegmentFile::TimeIndex,
            SegmentFile::TransactionIndex,
        ] {
            disk::remove_file_if_there(&dir.join(&file_name(base_offset, kind.suffix())))?;
        }
        let to = dir.join(&file_name(base_offset, LOG_SUFFIX));
        match disk::rename(&dir.join(&spare_name(spare.number)), &to) {
            // The spare was removed: create a new file instead.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Segment::create(dir, base_offset);
            }
            renamed => renamed?,
        }
        let indexes = IndexSizes::default();
        Ok(Self::new(
            dir.clone(),
            base_offset,
            0,
            indexes,
            Some(spare.log),
        ))
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.dir.path()
    }

    /// Number of bytes visible to readers.
    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// Publishes written bytes.
    pub(crate) fn set_size(&self, size: u64) {
        self.size.store(size, Ordering::Release);
    }

    /// The log file if it is open, for a read or write that follows.
    pub(crate) fn open_log(&self) -> Guard<Option<Arc<LogFile>>> {
        self.files.log()
    }

    /// The log file, opened if necessary.
    pub(crate) fn log_file(&self) -> io::Result<Arc<LogFile>> {
        self.log_file_for(DiskWait::Allowed)
    }

    /// The log file, opened for one use and not kept open: a start reads those of very many logs.
    pub(crate) fn log_file_once(&self) -> io::Result<LogFile> {
        let path = self.path(SegmentFile::Log)?;
        self.dir.handles().open(|| disk::open_existing(&path))
    }

    /// As [`Segment::log_file`]; with [`DiskWait::Refused`], fails with
    /// [`io::ErrorKind::WouldBlock`] if opening it needs disk I/O.
    pub(crate) fn log_file_for(&self, wait: DiskWait) -> io::Result<Arc<LogFile>> {
        self.file(SegmentFile::Log, wait)
    }

    /// A file of the segment, opened for reading and writing. A missing index file is created,
    /// because it comes into being with its first entry.
    fn file(&self, kind: SegmentFile, wait: DiskWait) -> io::Result<Arc<LogFile>> {
        if let Some(file) = self.files.get(kind) {
            return Ok(file);
        }
        let state = match wait {
            DiskWait::Allowed => self.state.lock(),
            // The holder of the lock may be renaming the files.
            DiskWait::Refused => {
                let state = self.state.try_lock();
                state.ok_or(io::Error::from(io::ErrorKind::WouldBlock))?
            }
        };
        if let Some(file) = self.files.get(kind) {
            return Ok(file);
        }
        let is_made =
            kind != SegmentFile::Log && matches!(*state, FileState::Cleaned | FileState::Present);
        let name = self.name_in_state(*state, kind)?;
        let open = || match wait {
            DiskWait::Refused => self.dir.open_cached(&name),
            DiskWait::Allowed => self.dir.open(&name, |path| match is_made {
                true => disk::open_or_create(path),
                false => disk::open_existing(path),
            }),
        };
        let file = self.dir.handles().open(open)?;
        Ok(self.files.keep(kind, file))
    }

    /// Whether any of its files is open. Sets no mark.
    #[cfg(test)]
    pub(crate) fn files_are_open(&self) -> bool {
        self.files.are_open()
    }

    #[cfg(test)]
    pub(crate) fn replace_log(&self, file: ottla_sync::fs::File) {
        self.files.keep(SegmentFile::Log, LogFile::alone(file));
    }

    /// Whether all its files are on disk, provided that its records are.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.has_index_files.load(Ordering::Acquire) && self.is_forced()
    }

    /// Whether everything that was written to its files is on disk.
    pub(crate) fn is_forced(&self) -> bool {
        !self.files.is_unforced()
            && !self.offset_index.entries().is_unforced()
            && !self.time_index.entries().is_unforced()
            && !self.transaction_index.entries().is_unforced()
    }

    /// To be called before the log file is written.
    pub(crate) fn set_unforced(&self) {
        self.files.set_unforced();
    }

    /// Fsyncs the log file.
    pub(crate) fn force_log(&self, file: &LogFile) -> io::Result<()> {
        self.files.begin_forcing();
        let forced = disk::sync_data(file);
        if forced.is_err() {
            self.files.set_unforced();
        }
        forced
    }

    /// The current path of a file of the segment.
    pub(crate) fn path(&self, kind: SegmentFile) -> io::Result<PathBuf> {
        self.path_in_state(*self.state.lock(), kind)
    }

    fn path_in_state(&self, state: FileState, kind: SegmentFile) -> io::Result<PathBuf> {
        Ok(self.dir.join(&self.name_in_state(state, kind)?))
    }

    fn name_in_state(&self, state: FileState, kind: SegmentFile) -> io::Result<String> {
        let mut name = file_name(self.base_offset, kind.suffix());
        match state {
            FileState::Cleaned => name.push_str(CLEANED_SUFFIX),
            FileState::Swap => name.push_str(SWAP_SUFFIX),
            FileState::Present => {}
            FileState::Deleted => return Ok(self.deleted_name(kind.suffix())),
            FileState::Removed => {
                let message = "the files of the segment were removed";
                return Err(io::Error::new(io::ErrorKind::NotFound, message));
            }
        }
        Ok(name)
    }

    /// Opens a file of the segment on demand.
    pub(crate) fn opener(&self, kind: SegmentFile) -> Opener<'_> {
        Opener {
            segment: self,
            kind,
        }
    }

    /// Writes the in-memory index entries to the files.
    pub(crate) fn write_index_tails(&self) -> io::Result<()> {
        let opener = self.opener(SegmentFile::OffsetIndex);
        self.offset_index.entries().write_tail(opener)?;
        let opener = self.opener(SegmentFile::TimeIndex);
        self.time_index.entries().write_tail(opener)?;
        let opener = self.opener(SegmentFile::TransactionIndex);
        self.transaction_index.entries().write_tail(opener)
    }

    /// Puts the transaction index on disk, with its name.
    pub(crate) fn force_transaction_index(&self) -> io::Result<()> {
        let aborted = self.transaction_index.entries();
        if !aborted.is_unforced() {
            return Ok(());
        }
        // First: another attempt would find an index that is forced, and would not force its name.
        let dir = disk::open_dir(&self.dir())?;
        let opener = self.opener(SegmentFile::TransactionIndex);
        aborted.write_tail(opener)?;
        let file = opener.open(DiskWait::Allowed)?;
        aborted.sync(&file)?;
        dir.sync()
    }

    /// Renames all files of the segment and the producer snapshot at its base offset to `.deleted`
    /// names. Open handles stay valid.
    pub(crate) fn rename_to_deleted(&self) -> io::Result<()> {
        if self.rename_files_to_deleted()? {
            let snapshot = file_name(self.base_offset, PRODUCER_SNAPSHOT_SUFFIX);
            let deleted = self.deleted_path(PRODUCER_SNAPSHOT_SUFFIX);
            disk::rename_if_there(&self.dir.join(&snapshot), &deleted)?;
        }
        Ok(())
    }

    /// As [`Segment::rename_to_deleted`] without the snapshot, which belongs to the next segment
    /// with the same base offset. Returns whether the files were renamed.
    pub(crate) fn rename_files_to_deleted(&self) -> io::Result<bool> {
        let mut state = self.state.lock();
        if !matches!(*state, FileState::Present | FileState::Swap) {
            return Ok(false);
        }
        self.rename_files(*state, FileState::Deleted)?;
        *state = FileState::Deleted;
        Ok(true)
    }

    /// Renames the files of a cleaned segment to those of the next state. Returns whether they were
    /// in state `from`: the segment may have been deleted since.
    pub(crate) fn advance(&self, from: FileState, to: FileState) -> io::Result<bool> {
        let mut state = self.state.lock();
        if *state != from {
            return Ok(false);
        }
        self.rename_files(from, to)?;
        *state = to;
        Ok(true)
    }

    /// The log file first, as in Kafka: the decision about partially renamed files at start depends
    /// on it.
    fn rename_files(&self, from: FileState, to: FileState) -> io::Result<()> {
        for kind in SegmentFile::ALL {
            disk::rename_if_there(
                &self.path_in_state(from, kind)?,
                &self.path_in_state(to, kind)?,
            )?;
        }
        Ok(())
    }

    /// Removes the files of a cleaned segment that replaces nothing.
    pub(crate) fn remove_unswapped(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        if *state == FileState::Swap {
            // A start completes a swap whose log file has the `.swap` name. Renaming it back
            // prevents that.
            let log = SegmentFile::Log;
            let from = self.path_in_state(FileState::Swap, log)?;
            disk::rename_if_there(&from, &self.path_in_state(FileState::Cleaned, log)?)?;
        }
        for kind in [
            SegmentFile::OffsetIndex,
            SegmentFile::TimeIndex,
            SegmentFile::TransactionIndex,
            SegmentFile::Log,
        ] {
            for unswapped in [FileState::Swap, FileState::Cleaned] {
                disk::remove_file_if_there(&self.path_in_state(unswapped, kind)?)?;
            }
        }
        *state = FileState::Removed;
        Ok(())
    }

    /// Closes the file handles: of unlinked files, whose blocks are freed only then, or of a log at
    /// rest. Readers keep theirs.
    pub(crate) fn close_files(&self) {
        let _state = self.state.lock();
        self.files.close();
    }

    /// The paths of the files that [`Segment::rename_to_deleted`] renames; some may not exist.
    pub(crate) fn deleted_paths(&self) -> Vec<PathBuf> {
        let suffixes = SegmentFile::ALL.map(SegmentFile::suffix).into_iter();
        let suffixes = suffixes.chain([PRODUCER_SNAPSHOT_SUFFIX]);
        suffixes.map(|suffix| self.deleted_path(suffix)).collect()
    }

    fn deleted_path(&self, suffix: &str) -> PathBuf {
        self.dir.join(&self.deleted_name(suffix))
    }

    fn deleted_name(&self, suffix: &str) -> String {
        let suffix = format!(".{}{suffix}{DELETED_SUFFIX}", self.number);
        file_name(self.base_offset, &suffix)
    }

    /// The first batch whose last offset is at least `offset`, among the bytes below `end`.
    pub(crate) fn locate(
        &self,
        offset: Offset,
        end: u64,
        wait: DiskWait,
    ) -> Result<Option<BatchLocation>, ScanError> {
        let file = self.log_file_for(wait)?;
        let opener = self.opener(SegmentFile::OffsetIndex);
        let indexed = self.offset_index.lookup(offset, opener, wait)?;
        let scan = |position| {
            if position > end {
                return Ok(IndexedScan::NotFromHere);
            }
            let scanner = BatchScanner::new(&file, position, end, LOOKUP_WINDOW);
            scan_for(offset, scanner.with_wait(wait), position)
        };
        match scan(indexed) {
            // An index that points into the middle of a batch or past the offset is not trusted:
            // the segment is scanned instead.
            Ok(IndexedScan::NotFromHere)
            | Err(
                ScanError::Corrupt { .. }
                | ScanError::Offsets { .. }
                | ScanError::Incomplete { .. },
            ) if indexed > 0 => {
                tracing::warn!(
                    segment = %self.base_offset,
                    position = indexed,
                    "the offset index does not fit its segment; reading the segment from its start"
                );
                scan(0)
            }
            result => result,
        }
        .map(|scan| match scan {
            IndexedScan::Found(batch) => Some(batch),
            IndexedScan::NotFromHere | IndexedScan::End => None,
        })
    }

    /// Computes the remainder of a segment that is cut at `position`, the first batch that ends at
    /// or after `offset`, and opens all files to be cut.
    pub(crate) fn prepare_cut(&self, offset: Offset, position: u64) -> Result<Cut, ScanError> {
        let file = self.log_file()?;
        let offset_opener = self.opener(SegmentFile::OffsetIndex);
        let time_opener = self.opener(SegmentFile::TimeIndex);
        let transaction_opener = self.opener(SegmentFile::TransactionIndex);
        let files = CutFiles {
            log: Arc::clone(&file),
            offset_index: self.offset_index.entries().for_truncation(offset_opener)?,
            time_index: self.time_index.entries().for_truncation(time_opener)?,
            transaction_index: (self.transaction_index.entries())
                .for_truncation(transaction_opener)?,
        };
        let offsets = &self.offset_index;
        let (offset_entries, indexed) = offsets.count_below(offset, position, offset_opener)?;
        let (time_entries, last_time_entry) = self.time_index.count_below(offset, time_opener)?;
        let transactions = self.transaction_index.all(transaction_opener)?;
        let transaction_entries = transactions.partition_point(|txn| txn.last_offset < offset);
        let mut max_timestamp = self.max_timestamp();
        if max_timestamp.is_some_and(|max| max.offset >= offset) {
            // Where the offset index has an entry, the time index covers everything before it.
            max_timestamp = last_time_entry;
            let mut scanner = BatchScanner::new(&file, indexed, position, LOOKUP_WINDOW);
            while let Some(batch) = scanner.next_batch()? {
                if max_timestamp.is_none_or(|max| batch.max_timestamp > max.timestamp) {
                    max_timestamp = Some(TimestampOffset {
                        timestamp: batch.max_timestamp,
                        offset: batch.last_offset,
                    });
                }
            }
        }
        Ok(Cut {
            files,
            position,
            max_timestamp,
            indexes: IndexSizes {
                offset_entries,
                time_entries,
                last_time_entry,
                transaction_entries: transaction_entries as u32,
            },
        })
    }

    /// Cuts the files; none has to be opened. Readers that hold a cut-off region find that the file
    /// ends early. Called only after the smaller size was published.
    pub(crate) fn cut(&self, cut: &Cut) -> io::Result<()> {
        let (sizes, files) = (cut.indexes, &cut.files);
        let opener = self
            .opener(SegmentFile::OffsetIndex)
            .with(&files.offset_index);
        let entries = self.offset_index.entries();
        entries.truncate(sizes.offset_entries, opener)?;
        let opener = self.opener(SegmentFile::TimeIndex).with(&files.time_index);
        let last = sizes.last_time_entry;
        self.time_index.truncate(sizes.time_entries, last, opener)?;
        let opener = self.opener(SegmentFile::TransactionIndex);
        let opener = opener.with(&files.transaction_index);
        let entries = self.transaction_index.entries();
        entries.truncate(sizes.transaction_entries, opener)?;
        // As in every sealed segment.
        if let Some(max) = cut.max_timestamp {
            self.time_index.append_if_younger(max);
        }
        self.set_unforced();
        disk::set_len(&files.log, cut.position)
    }

    pub(crate) fn max_timestamp(&self) -> Option<TimestampOffset> {
        *self.max_timestamp.lock()
    }

    pub(crate) fn set_max_timestamp(&self, max_timestamp: Option<TimestampOffset>) {
        *self.max_timestamp.lock() = max_timestamp;
    }

    /// The largest timestamp of its records, or the file's modification time if no record has one.
    /// Used by retention by time.
    pub(crate) fn largest_timestamp(&self) -> io::Result<Timestamp> {
        match self.max_timestamp() {
            Some(max) if max.timestamp.0 >= 0 => Ok(max.timestamp),
            _ => Ok(timestamp_of(self.log_file()?.metadata()?.modified()?)),
        }
    }
}

/// Opens a file of a segment on demand.
#[derive(Clone, Copy)]
pub(crate) struct Opener<'a> {
    segment: &'a Segment,
    kind: SegmentFile,
}

impl<'a> Opener<'a> {
    /// The same with a file that is already open.
    fn with(self, held: &'a Option<Arc<LogFile>>) -> HeldOpener<'a> {
        HeldOpener { opener: self, held }
    }
}

impl OpenFile for Opener<'_> {
    fn open(&self, wait: DiskWait) -> io::Result<Arc<LogFile>> {
        self.segment.file(self.kind, wait)
    }
}

#[derive(Clone, Copy)]
struct HeldOpener<'a> {
    opener: Opener<'a>,
    held: &'a Option<Arc<LogFile>>,
}

impl OpenFile for HeldOpener<'_> {
    fn open(&self, wait: DiskWait) -> io::Result<Arc<LogFile>> {
        match self.held {
            Some(file) => Ok(Arc::clone(file)),
            None => self.opener.open(wait),
        }
    }
}

/// Searches for `offset` from `position`, which is that of an index entry or 0.
fn scan_for(
    offset: Offset,
    mut scanner: BatchScanner<'_>,
    position: u64,
) -> Result<IndexedScan, ScanError> {
    let mut is_first = true;
    while let Some(batch) = scanner.next_batch()? {
        if batch.last_offset >= offset {
            // The batch of an index entry ends at or before the target offset, unless it is the
            // batch that holds it.
            if is_first && position > 0 && batch.base_offset > offset {
                return Ok(IndexedScan::NotFromHere);
            }
            return Ok(IndexedScan::Found(batch));
        }
        is_first = false;
    }
    scanner.check_end()?;
    if is_first && position > 0 {
        return Ok(IndexedScan::NotFromHere);
    }
    Ok(IndexedScan::End)
}

enum IndexedScan {
    Found(BatchLocation),
    /// No whole batch at or after the offset.
    End,
    /// The index entry does not point where it should.
    NotFromHere,
}

/// Milliseconds since the Unix epoch; 0 for earlier times.
pub(crate) fn timestamp_of(time: SystemTime) -> Timestamp {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
