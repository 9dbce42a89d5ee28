//! Replacing segments by a cleaned one, in steps between which a crash, a truncation or a deletion
//! may happen.
//!
//! | step | on | action | a start after a crash here |
//! | --- | --- | --- | --- |
//! | begin | run token | the swap is registered with the log | deletes `.cleaned` |
//! | prepare | cleaner | `.cleaned` to `.swap`, the log file first; directory fsynced | partial: deletes both; complete: completes it |
//! | publish | run token | readers find the new segment, under its `.swap` names | completes it |
//! | finish | cleaner | the old segments to `.deleted`, then `.swap` to the regular names; directory fsynced | completes it |
//!
//! A truncation or a clean stop settles the swap first: a published swap is finished, any other is
//! rolled back, because a start that completed it would bring truncated records back.
//!
//! Kafka: `LocalLog.replaceSegments`.

use std::io;
use std::sync::Arc;

use ottla_sync::Mutex;

use crate::checkpoint::sync_dir;
use crate::error::StorageError;
use crate::reader::Shared;
use crate::segment::{FileState, Segment};
use crate::unlink::UnlinkJob;

/// A cleaned segment that is replacing older ones.
pub struct Swap {
    shared: Arc<Shared>,
    pub(crate) new: Arc<Segment>,
    /// The segments it replaces: neighbours, ascending.
    pub(crate) old: Vec<Arc<Segment>>,
    /// Locked while files are renamed.
    stage: Mutex<Stage>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Begun,
    Prepared,
    Published,
    Finished,
    TakenBack,
}

impl Swap {
    pub(crate) fn new(shared: Arc<Shared>, new: Arc<Segment>, old: Vec<Arc<Segment>>) -> Swap {
        Swap {
            shared,
            new,
            old,
            stage: Mutex::new(Stage::Begun),
        }
    }

    /// Renames the files so that a start completes the swap. Returns whether the swap continues.
    pub(crate) fn prepare(&self) -> Result<bool, StorageError> {
        let mut stage = self.stage.lock();
        if *stage != Stage::Begun {
            return Ok(false);
        }
        let renamed = self.new.advance(FileState::Cleaned, FileState::Swap);
        renamed.map_err(|error| self.error("rename a cleaned segment of", error))?;
        sync_dir(&self.shared.dir.path())?;
        *stage = Stage::Prepared;
        Ok(true)
    }

    /// Marks the new segment as visible to readers.
    pub(crate) fn set_published(&self) {
        let mut stage = self.stage.lock();
        assert_eq!(
            *stage,
            Stage::Prepared,
            "a swap is published once, when it is prepared"
        );
        *stage = Stage::Published;
    }

    pub(crate) fn is_prepared(&self) -> bool {
        *self.stage.lock() == Stage::Prepared
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(*self.stage.lock(), Stage::Finished | Stage::TakenBack)
    }

    /// Finishes a published swap and rolls any other back. Waits for renames that are running.
    pub(crate) fn settle(&self) -> Result<(), StorageError> {
        let mut stage = self.stage.lock();
        match *stage {
            Stage::Finished | Stage::TakenBack => {}
            Stage::Published => {
                self.rename_into_place()
                    .map_err(|error| self.error("rename a segment of", error))?;
                sync_dir(&self.shared.dir.path())?;
                *stage = Stage::Finished;
            }
            Stage::Begun | Stage::Prepared => {
                self.new
                    .remove_unswapped()
                    .map_err(|error| self.error("remove a cleaned segment of", error))?;
                *stage = Stage::TakenBack;
            }
        }
        Ok(())
    }

    /// [`Swap::settle`]. Returns the files to unlink, none if the swap was rolled back.
    pub(crate) fn finish(&self) -> Result<UnlinkJob, StorageError> {
        self.settle()?;
        let paths = match *self.stage.lock() {
            Stage::Finished => self
                .old
                .iter()
                .flat_map(|old| old.deleted_paths())
                .collect(),
            _ => Vec::new(),
        };
        let delay_ms = self.shared.config.load().file_delete_delay_ms;
        Ok(UnlinkJob::of_paths(paths, delay_ms))
    }

    fn rename_into_place(&self) -> io::Result<()> {
        for old in &self.old {
            match old.base_offset == self.new.base_offset {
                true => drop(old.rename_files_to_deleted()?),
                false => old.rename_to_deleted()?,
            }
        }
        self.new.advance(FileState::Swap, FileState::Present)?;
        Ok(())
    }

    fn error(&self, action: &'static str, error: io::Error) -> StorageError {
        StorageError::new(action, &self.shared.dir.path(), error)
    }
}
