//! The open files of a segment.
//!
//! Files are opened on first use and closed by [`Handles`](crate::handles::Handles), which does not
//! wait for a segment: closing takes no lock that is held while a file is opened.

use std::fmt;
use std::sync::atomic::AtomicU8;
use std::sync::{Arc, Weak};

use ottla_sync::atomic::{AtomicBool, Ordering};
use ottla_sync::fs::{Writeback, sync_file_range};
use ottla_sync::{ArcSwapOption, Guard};

use crate::error::StorageError;
use crate::handles::{HoldsHandles, LogFile};
use crate::partition_dir::PartitionDir;
use crate::segment_file::SegmentFile;

/// Used since the hand last passed.
const USED: u8 = 1;
/// The log file was written and not fsynced since.
const UNFORCED: u8 = 2;
/// The first of four marks: the file of this slot is open.
const OPEN: u8 = 4;
const ALL_OPEN: u8 = 0b1111 * OPEN;

pub(crate) struct OpenFiles {
    dir: Arc<PartitionDir>,
    slots: [ArcSwapOption<LogFile>; 4],
    marks: AtomicU8,
    /// It is in the clock of [`Handles`](crate::handles::Handles).
    is_listed: AtomicBool,
}

impl OpenFiles {
    pub(crate) fn new(dir: Arc<PartitionDir>, log: Option<LogFile>) -> Arc<OpenFiles> {
        let log = log.map(Arc::new);
        let is_open = log.is_some();
        let files = Arc::new(OpenFiles {
            slots: [
                ArcSwapOption::new(log),
                ArcSwapOption::empty(),
                ArcSwapOption::empty(),
                ArcSwapOption::empty(),
            ],
            marks: AtomicU8::new(USED | if is_open { OPEN } else { 0 }),
            is_listed: AtomicBool::new(false),
            dir,
        });
        if is_open {
            files.list();
        }
        files
    }

    /// The log file, if it is open.
    pub(crate) fn log(&self) -> Guard<Option<Arc<LogFile>>> {
        self.mark(USED);
        self.slots[SegmentFile::Log as usize].load()
    }

    pub(crate) fn get(&self, kind: SegmentFile) -> Option<Arc<LogFile>> {
        self.mark(USED);
        self.slots[kind as usize].load_full()
    }

    /// Stores an opened file for later use.
    pub(crate) fn keep(self: &Arc<Self>, kind: SegmentFile, file: LogFile) -> Arc<LogFile> {
        let file = Arc::new(file);
        self.slots[kind as usize].store(Some(Arc::clone(&file)));
        // Marked after it is stored, and listed after it is marked: of this and a concurrent close,
        // the later one on the marks closes the file or lists it again.
        let open = OPEN << kind as u8;
        self.marks.fetch_or(USED | open, Ordering::AcqRel);
        self.list();
        file
    }

    #[cfg(test)]
    pub(crate) fn are_open(&self) -> bool {
        self.slots.iter().any(|slot| slot.load().is_some())
    }

    /// To be called before the log file is written.
    pub(crate) fn set_unforced(&self) {
        self.mark(USED | UNFORCED);
    }

    /// To be called before the log file is fsynced: concurrent writes may not be covered.
    pub(crate) fn begin_forcing(&self) {
        self.marks.fetch_and(!UNFORCED, Ordering::Relaxed);
    }

    /// Stores only on a change: usually the marks are already set.
    #[inline]
    fn mark(&self, marks: u8) {
        if self.marks.load(Ordering::Relaxed) & marks != marks {
            self.marks.fetch_or(marks, Ordering::Relaxed);
        }
    }

    /// Adds itself to the clock, unless it is listed.
    fn list(self: &Arc<Self>) {
        if !self.is_listed.swap(true, Ordering::AcqRel) {
            let weak: Weak<OpenFiles> = Arc::downgrade(self);
            self.dir.handles().list(weak);
        }
    }
}

impl HoldsHandles for OpenFiles {
    fn take_mark(&self) -> bool {
        self.marks.fetch_and(!USED, Ordering::Relaxed) & USED != 0
    }

    fn is_marked(&self) -> bool {
        self.marks.load(Ordering::Relaxed) & USED != 0
    }

    fn is_held(&self) -> bool {
        let is_held = |slot: &ArcSwapOption<LogFile>| {
            let file = slot.load();
            file.as_ref()
                .is_some_and(|file| Arc::strong_count(file) > 1)
        };
        self.slots.iter().any(is_held)
    }

    fn is_unforced(&self) -> bool {
        self.marks.load(Ordering::Relaxed) & UNFORCED != 0
    }

    /// The kernel reports a writeback error to a process that has the file open.
    fn write_back(&self) -> Result<(), StorageError> {
        let log = self.slots[SegmentFile::Log as usize].load_full();
        let Some(log) = log.filter(|_| self.is_unforced()) else {
            return Ok(());
        };
        for writeback in [Writeback::Begin, Writeback::Await] {
            if let Err(error) = sync_file_range(&log, 0, 0, writeback) {
                self.dir.set_lost(error.kind());
                return Err(StorageError::fsync(&self.dir.path(), error));
            }
        }
        Ok(())
    }

    fn close(&self) -> usize {
        // Cleared first: a thread that opens a file now lists it again.
        self.is_listed.store(false, Ordering::Release);
        let marks = self.marks.fetch_and(!ALL_OPEN, Ordering::AcqRel);
        // A swap looks at every thread that may be reading. Most files are closed already.
        let is_open = |place: &usize| marks & (OPEN << place) != 0;
        let open = (0..self.slots.len()).filter(is_open);
        open.filter_map(|place| self.slots[place].swap(None))
            .count()
    }
}

impl fmt::Debug for OpenFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenFiles in {}", self.dir.path().display())
    }
}
