//! Where the files of a log are, and what they share: the path of the directory and the budget of handles.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use ottla_sync::fs::File;
use ottla_sync::{Mutex, RwLock};

use crate::disk;
use crate::handles::Handles;

/// The directory of a partition.
#[derive(Debug)]
pub(crate) struct PartitionDir {
    /// Changes when the partition is marked for deletion.
    path: RwLock<PathBuf>,
    /// Held while that happens.
    renaming: Mutex<()>,
    handles: Arc<Handles>,
    /// Some of what was written could not be brought to disk, and no flush may say that it is there.
    lost: OnceLock<io::ErrorKind>,
}

impl PartitionDir {
    pub(crate) fn new(path: PathBuf, handles: Arc<Handles>) -> Arc<Self> {
        Arc::new(Self {
            path: RwLock::new(path),
            renaming: Mutex::new(()),
            handles,
            lost: OnceLock::new(),
        })
    }

    pub(crate) fn handles(&self) -> &Arc<Handles> {
        &self.handles
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.path.read().clone()
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path.read().join(name)
    }

    /// Gives the directory another name with `rename`. Who opens a file meanwhile finds it.
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

    /// Opens a file of the directory.
    pub(crate) fn open(
        &self,
        name: &str,
        open: impl Fn(&Path) -> io::Result<File>,
    ) -> io::Result<File> {
        let path = self.join(name);
        match open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // The directory may be getting another name at this moment.
                let _renaming = self.renaming.lock();
                match self.join(name) {
                    now if now == path => Err(error),
                    now => open(&now),
                }
            }
            opened => opened,
        }
    }

    /// Opens a file of the directory that is there, if the disk need not be waited for.
    pub(crate) fn open_cached(&self, name: &str) -> io::Result<File> {
        let path = self.join(name);
        match disk::open_cached(&path) {
            // Who may wait finds out.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(io::ErrorKind::WouldBlock.into())
            }
            opened => opened,
        }
    }

    /// Notes a failure that the kernel tells of only once.
    pub(crate) fn set_lost(&self, kind: io::ErrorKind) {
        let _ = self.lost.set(kind);
    }

    pub(crate) fn lost(&self) -> Option<io::ErrorKind> {
        self.lost.get().copied()
    }
}
