//! One segment: a `.log` file of batches and its indexes.
//!
//! Owns the names of its files, and the counters that tell readers how much of the file they may see. The
//! appender writes through [`Segment::log_file`] and then publishes; bytes below [`Segment::size`] are
//! never changed in place, because readers may have handed them to the network. They may be cut off
//! ([`Segment::cut`]); nothing is written in their place.
//!
//! Kafka: `LogSegment`.

use ottla_sync::atomic::{AtomicBool, AtomicU64, Ordering};
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

/// Numbers of segments, for names that no other has.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

pub(crate) struct Segment {
    pub(crate) base_offset: Offset,
    /// Tells its `.deleted` files from those of another with the same base, while both wait to be unlinked.
    number: u64,
    dir: Arc<PartitionDir>,
    state: Mutex<FileState>,
    files: Arc<OpenFiles>,
    /// Bytes that readers may see.
    size: AtomicU64,
    pub(crate) offset_index: OffsetIndex,
    pub(crate) time_index: TimeIndex,
    pub(crate) transaction_index: TransactionIndex,
    /// The largest timestamp in the segment and the last offset of the batch that brought it.
    max_timestamp: Mutex<Option<TimestampOffset>>,
    /// The index files are on disk as they are in memory. Cleared where the segment is created, set by the
    /// flush that finds it sealed.
    pub(crate) are_indexes_flushed: AtomicBool,
    /// There are files of the indexes of offsets and times: what is without is repaired at a start.
    pub(crate) has_index_files: AtomicBool,
}

/// What has become of the files of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FileState {
    /// Being written by the cleaner, under `.cleaned` names.
    Cleaned,
    /// Written by the cleaner and whole, under `.swap` names until the files that they replace are out of the
    /// way.
    Swap,
    /// Under their own names.
    Present,
    /// Renamed to `.deleted`; may be unlinked at any time.
    Deleted,
    /// Gone: what the cleaner had made was not needed. Only handles that are open are of use.
    Removed,
}

/// How much of each index stands in its file; from a directory listing or a rebuild.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct IndexSizes {
    pub(crate) offset_entries: u32,
    pub(crate) time_entries: u32,
    pub(crate) last_time_entry: Option<TimestampOffset>,
    pub(crate) transaction_entries: u32,
}

/// What is left of a segment when its end is cut off.
pub(crate) struct Cut {
    /// Held, so that none has to be opened when it is cut.
    files: CutFiles,
    /// Where the log file is cut.
    pub(crate) position: u64,
    pub(crate) max_timestamp: Option<TimestampOffset>,
    indexes: IndexSizes,
}

/// The files of a segment that is cut; those of indexes where there is something in them.
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

    /// Creates the files of an empty segment. What stands under their names is deleted first, as Kafka's
    /// `LocalLog.roll` does: it can only be left over from a crash.
    pub(crate) fn create(dir: &Arc<PartitionDir>, base_offset: Offset) -> io::Result<Self> {
        let mut log = None;
        // The log comes last: without one there is no segment, and what came before is left over.
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

    /// Creates the files of a segment that the cleaner is to fill, under `.cleaned` names.
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

    /// Takes a log file that was created ahead into use: one rename, for which whoever appends waits. The indexes
    /// come into being when they are written, and a segment without them is repaired.
    pub(crate) fn from_spare(
        dir: &Arc<PartitionDir>,
        base_offset: Offset,
        spare: SpareSegment,
    ) -> io::Result<Self> {
        // What stands under the names of the indexes can only be left over.
        for kind in [
            SegmentFile::OffsetIndex,
            SegmentFile::TimeIndex,
            SegmentFile::TransactionIndex,
        ] {
            disk::remove_file_if_there(&dir.join(&file_name(base_offset, kind.suffix())))?;
        }
        let to = dir.join(&file_name(base_offset, LOG_SUFFIX));
        match disk::rename(&dir.join(&spare_name(spare.number)), &to) {
            // Somebody has removed it: a new one does as well.
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

    /// Bytes that readers may see.
    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// Publishes bytes that have been written.
    pub(crate) fn set_size(&self, size: u64) {
        self.size.store(size, Ordering::Release);
    }

    /// The log file if it is open, for who is about to read or write it.
    pub(crate) fn open_log(&self) -> Guard<Option<Arc<LogFile>>> {
        self.files.log()
    }

    /// The handle of the log file, opened if it was not yet.
    pub(crate) fn log_file(&self) -> io::Result<Arc<LogFile>> {
        self.log_file_for(DiskWait::Allowed)
    }

    /// The same; [`io::ErrorKind::WouldBlock`] where to open it the disk would be waited for by who may not.
    pub(crate) fn log_file_for(&self, wait: DiskWait) -> io::Result<Arc<LogFile>> {
        self.file(SegmentFile::Log, wait)
    }

    /// A file of the segment, for reading and writing. Index files are created where they are missing, because they come
    /// into being with their first entry.
    fn file(&self, kind: SegmentFile, wait: DiskWait) -> io::Result<Arc<LogFile>> {
        if let Some(file) = self.files.get(kind) {
            return Ok(file);
        }
        let state = match wait {
            DiskWait::Allowed => self.state.lock(),
            // Who has it may be renaming the files.
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

    /// Whether any of its files is open. Leaves no mark.
    #[cfg(test)]
    pub(crate) fn files_are_open(&self) -> bool {
        self.files.are_open()
    }

    #[cfg(test)]
    pub(crate) fn replace_log(&self, file: ottla_sync::fs::File) {
        self.files.keep(SegmentFile::Log, LogFile::alone(file));
    }

    /// Whether all that there is of it is on disk, if all its records are.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.has_index_files.load(Ordering::Acquire)
            && !self.files.is_unforced()
            && !self.offset_index.entries().is_unforced()
            && !self.time_index.entries().is_unforced()
            && !self.transaction_index.entries().is_unforced()
    }

    /// Before the log file is written.
    pub(crate) fn set_unforced(&self) {
        self.files.set_unforced();
    }

    /// Forces the log file to disk.
    pub(crate) fn force_log(&self, file: &LogFile) -> io::Result<()> {
        self.files.begin_forcing();
        let forced = disk::sync_data(file);
        if forced.is_err() {
            self.files.set_unforced();
        }
        forced
    }

    /// Where a file of the segment lies now.
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

    /// Opens a file of the segment where it is needed.
    pub(crate) fn opener(&self, kind: SegmentFile) -> Opener<'_> {
        Opener {
            segment: self,
            kind,
        }
    }

    /// Writes the index entries that only memory holds to the files.
    pub(crate) fn write_index_tails(&self) -> io::Result<()> {
        let opener = self.opener(SegmentFile::OffsetIndex);
        self.offset_index.entries().write_tail(opener)?;
        let opener = self.opener(SegmentFile::TimeIndex);
        self.time_index.entries().write_tail(opener)?;
        let opener = self.opener(SegmentFile::TransactionIndex);
        self.transaction_index.entries().write_tail(opener)
    }

    /// Renames all files of the segment and the producer snapshot of its base to `.deleted` names. Open handles
    /// stay good.
    pub(crate) fn rename_to_deleted(&self) -> io::Result<()> {
        if self.rename_files_to_deleted()? {
            let snapshot = file_name(self.base_offset, PRODUCER_SNAPSHOT_SUFFIX);
            let deleted = self.deleted_path(PRODUCER_SNAPSHOT_SUFFIX);
            disk::rename_if_there(&self.dir.join(&snapshot), &deleted)?;
        }
        Ok(())
    }

    /// The same without the snapshot, which stays with the segment of the same base that follows. Returns
    /// whether the files had names to be changed.
    pub(crate) fn rename_files_to_deleted(&self) -> io::Result<bool> {
        let mut state = self.state.lock();
        if !matches!(*state, FileState::Present | FileState::Swap) {
            return Ok(false);
        }
        self.rename_files(*state, FileState::Deleted)?;
        *state = FileState::Deleted;
        Ok(true)
    }

    /// Gives the files of a segment that the cleaner made their next names. Returns whether they had those
    /// before: a segment may have been deleted meanwhile.
    pub(crate) fn advance(&self, from: FileState, to: FileState) -> io::Result<bool> {
        let mut state = self.state.lock();
        if *state != from {
            return Ok(false);
        }
        self.rename_files(from, to)?;
        *state = to;
        Ok(true)
    }

    /// The log file first, as Kafka does: what a start makes of names that are half changed depends on it.
    fn rename_files(&self, from: FileState, to: FileState) -> io::Result<()> {
        for kind in SegmentFile::ALL {
            disk::rename_if_there(
                &self.path_in_state(from, kind)?,
                &self.path_in_state(to, kind)?,
            )?;
        }
        Ok(())
    }

    /// Removes the files of a segment that the cleaner made and that takes nobody's place.
    pub(crate) fn remove_unswapped(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        if *state == FileState::Swap {
            // A start takes what is whole into use. With this one name it is not.
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

    /// Lets go of the handles: of files that were unlinked, whose blocks are free only when nobody has them open, or of
    /// a log that is at rest. Readers that were given one keep theirs.
    pub(crate) fn close_files(&self) {
        let _state = self.state.lock();
        self.files.close();
    }

    /// What [`Segment::rename_to_deleted`] has left to be unlinked, as far as it was there.
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
            // An index that points into the middle of a batch, or behind the offset, is not believed:
            // the file itself tells.
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

    /// Finds out what is left of a segment that is cut at `position`, before the first batch that ends at or behind
    /// `offset`, and opens all files that have to be cut.
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
            // Where the offset index has an entry, the time index knows of all before it.
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

    /// Cuts the files, none of which has to be opened for it. Readers that were given what is cut off, or are about to
    /// read it, find that the file ends early: only when they no longer find the segment this long is it cut.
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
        // As in every segment that is not appended to any more.
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

    /// The largest timestamp of its records, or when the file was last changed where none has one:
    /// what retention by time goes by.
    pub(crate) fn largest_timestamp(&self) -> io::Result<Timestamp> {
        match self.max_timestamp() {
            Some(max) if max.timestamp.0 >= 0 => Ok(max.timestamp),
            _ => Ok(timestamp_of(self.log_file()?.metadata()?.modified()?)),
        }
    }
}

/// Opens a file of a segment where it is needed.
#[derive(Clone, Copy)]
pub(crate) struct Opener<'a> {
    segment: &'a Segment,
    kind: SegmentFile,
}

impl<'a> Opener<'a> {
    /// The same where the file has been opened and is held.
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

/// Looks for `offset` with a scanner that begins at `position`, to which an index entry points, or 0.
fn scan_for(
    offset: Offset,
    mut scanner: BatchScanner<'_>,
    position: u64,
) -> Result<IndexedScan, ScanError> {
    let mut is_first = true;
    while let Some(batch) = scanner.next_batch()? {
        if batch.last_offset >= offset {
            // The batch that an index entry points at ends at or before the offset looked for,
            // unless it is the very batch that holds it.
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
    /// No whole batch at or behind the offset.
    End,
    /// The position is not where the index should have pointed.
    NotFromHere,
}

/// Milliseconds since the epoch, 0 for times before it.
pub(crate) fn timestamp_of(time: SystemTime) -> Timestamp {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
