//! Which offsets in the checkpoints of a log directory have changed, so that a checkpoint costs
//! nothing while all logs are idle; and which of its logs have their names on disk, so that one
//! fsync serves all that were created together.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use ottla_sync::Mutex;

use crate::error::StorageError;

/// The offsets of a log that are in checkpoints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CheckpointedOffset {
    RecoveryPoint,
    /// Also stands for the base offset of the first segment, on which the checkpoint depends.
    LogStartOffset,
    HighWatermark,
}

impl CheckpointedOffset {
    const ALL: [CheckpointedOffset; 3] = [
        CheckpointedOffset::RecoveryPoint,
        CheckpointedOffset::LogStartOffset,
        CheckpointedOffset::HighWatermark,
    ];
}

/// One mark for each kind of offset, shared by the logs of a directory.
///
/// A log sets a mark after it has changed the offset, and writes only if the mark is not set, so
/// that appends of many threads do not write to one cache line. A processor may carry out that load
/// before its change of the offset is visible to others: a thread that takes the mark in between
/// still reads the old offset, and the mark is not set again. Therefore the offsets have to be
/// read once more in the round after the one that took a mark.
#[derive(Default, Debug)]
pub struct CheckpointMarks {
    /// `None` for logs outside of the log directories.
    log_dir: Option<PathBuf>,
    changed: [AtomicBool; CheckpointedOffset::ALL.len()],
    pub(crate) names: NameSyncs,
}

impl CheckpointMarks {
    /// Those of a log directory.
    pub fn of(log_dir: PathBuf) -> CheckpointMarks {
        CheckpointMarks {
            log_dir: Some(log_dir),
            ..CheckpointMarks::default()
        }
    }

    pub(crate) fn log_dir(&self) -> Option<&Path> {
        self.log_dir.as_deref()
    }

    #[inline]
    pub(crate) fn set(&self, offset: CheckpointedOffset) {
        let mark = &self.changed[offset as usize];
        if !mark.load(Ordering::Relaxed) {
            mark.store(true, Ordering::Release);
        }
    }

    pub fn set_all(&self) {
        for offset in CheckpointedOffset::ALL {
            self.set(offset);
        }
    }

    /// Clears a mark and returns whether it was set.
    pub fn take(&self, offset: CheckpointedOffset) -> bool {
        self.changed[offset as usize].swap(false, Ordering::AcqRel)
    }
}

/// The fsyncs of a log directory for the names of its logs.
#[derive(Default, Debug)]
pub(crate) struct NameSyncs {
    /// Number of logs opened since the start.
    opened: AtomicU32,
    /// The names of the logs up to this number are on disk. Locked during an fsync.
    synced: Mutex<u32>,
}

impl NameSyncs {
    /// The number of a log whose directory exists.
    pub(crate) fn take_number(&self) -> u32 {
        self.opened.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Fsyncs the log directory, unless that was done since the log with this number was opened.
    pub(crate) fn sync(&self, number: u32, log_dir: &Path) -> Result<(), StorageError> {
        let mut synced = self.synced.lock();
        if *synced < number {
            let opened = self.opened.load(Ordering::Acquire);
            super::sync_dir(log_dir)?;
            *synced = opened;
        }
        Ok(())
    }
}
