//! The directory of a log: its path, the file handle budget and the marks of the checkpoints,
//! shared by the log's segments.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use ottla_sync::fs::File;
use ottla_sync::{Mutex, RwLock};

use crate::checkpoint::{CheckpointMarks, CheckpointedOffset};
use crate::disk;
use crate::error::StorageError;
use crate::handles::Handles;

/// The directory of a partition.
#[derive(Debug)]
pub(crate) struct PartitionDir {
    /// Changes when the partition is renamed for deletion.
    path: RwLock<PathBuf>,
    /// Held during the rename.
    renaming: Mutex<()>,
    handles: Arc<Handles>,
    /// Of the log directory.
    checkpoint_marks: Arc<CheckpointMarks>,
    /// Its number in [`NameSyncs`](crate::checkpoint::CheckpointMarks).
    name_number: u32,
    /// A write could not be brought to disk; no flush may succeed any more.
    lost: OnceLock<io::ErrorKind>,
}

impl PartitionDir {
    pub(crate) fn new(
        path: PathBuf,
        handles: Arc<Handles>,
        checkpoint_marks: Arc<CheckpointMarks>,
    ) -> Arc<Self> {
        Arc::new(Self {
            path: RwLock::new(path),
            renaming: Mutex::new(()),
            handles,
            name_number: checkpoint_marks.names.take_number(),
            checkpoint_marks,
            lost: OnceLock::new(),
        })
    }

    pub(crate) fn handles(&self) -> &Arc<Handles> {
        &self.handles
    }

    /// To be called after an offset of the log was changed.
    #[inline]
    pub(crate) fn mark_changed(&self, offset: CheckpointedOffset) {
        self.checkpoint_marks.set(offset);
    }

    /// The same for all offsets.
    pub(crate) fn mark_all_changed(&self) {
        self.checkpoint_marks.set_all();
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.path.read().clone()
    }

    /// Whether it is in a log directory.
    pub(crate) fn is_in(&self, log_dir: &Path) -> bool {
        self.path.read().parent() == Some(log_dir)
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path.read().join(name)
    }

    /// Renames the directory with `rename`. Threads that open files at the same time find them.
    pub(crate) fn rename(
        &self,
        to: &Path,
        rename: impl FnOnce(&Path, &Path) -> io::Result<()>,
    ) -> io::Result<()> {
        let _renaming = self.renaming.lock();
        rename(&self.path(), to)?;
        *self.path.write() = to.to_owned();
        Ok(())
    }

    /// Opens a file of the directory, also during a rename.
    pub(crate) fn open(
        &self,
        name: &str,
        open: impl Fn(&Path) -> io::Result<File>,
    ) -> io::Result<File> {
        let path = self.join(name);
        match open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // The directory may be being renamed.
                let _renaming = self.renaming.lock();
                match self.join(name) {
                    now if now == path => Err(error),
                    now => open(&now),
                }
            }
            opened => opened,
        }
    }

    /// Opens an existing file of the directory without disk I/O, or fails with `WouldBlock`.
    pub(crate) fn open_cached(&self, name: &str) -> io::Result<File> {
        let path = self.join(name);
        match disk::open_cached(&path) {
            // A caller that may wait finds out.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(io::ErrorKind::WouldBlock.into())
            }
            opened => opened,
        }
    }

    /// Puts its name in the log directory on disk. Blocks.
    pub(crate) fn sync_name(&self) -> Result<(), StorageError> {
        match self.path().parent() {
            Some(log_dir) => self.checkpoint_marks.names.sync(self.name_number, log_dir),
            None => Ok(()),
        }
    }

    /// Records a failure that the kernel reports only once.
    pub(crate) fn set_lost(&self, kind: io::ErrorKind) {
        let _ = self.lost.set(kind);
    }

    pub(crate) fn lost(&self) -> Option<io::ErrorKind> {
        self.lost.get().copied()
    }
}
