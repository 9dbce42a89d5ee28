//! The directory of a log: the partition, the path, the file handle budget and the marks of the
//! checkpoints, shared by the log's segments.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ottla_sync::fs::File;
use ottla_sync::{Mutex, RwLock};
use ottla_types::TopicPartition;

use crate::checkpoint::{CheckpointMarks, CheckpointedOffset};
use crate::disk;
use crate::error::StorageError;
use crate::handles::Handles;

/// The directory of a partition. There is one for each of very many logs: it fits into 96 bytes.
#[derive(Debug)]
pub(crate) struct PartitionDir {
    topic_partition: TopicPartition,
    /// `None` if it has the partition's name in the log directory of `checkpoint_marks`. Changes when
    /// the partition is renamed for deletion.
    other_path: RwLock<Option<Box<OtherPath>>>,
    /// Held during the rename, and by those that must not be renamed meanwhile.
    renaming: Mutex<()>,
    handles: Arc<Handles>,
    /// Of the log directory.
    checkpoint_marks: Arc<CheckpointMarks>,
    /// Its number in [`NameSyncs`](crate::checkpoint::CheckpointMarks).
    name_number: u32,
    /// A write could not be brought to disk; no flush may succeed any more.
    lost: Mutex<Option<io::ErrorKind>>,
}

/// The path of a copy, of a renamed directory, or of a log outside of the log directories.
#[derive(Debug)]
struct OtherPath(PathBuf);

impl PartitionDir {
    pub(crate) fn new(
        path: &Path,
        topic_partition: TopicPartition,
        handles: Arc<Handles>,
        checkpoint_marks: Arc<CheckpointMarks>,
    ) -> Arc<Self> {
        let dir = Self {
            topic_partition,
            other_path: RwLock::new(None),
            renaming: Mutex::new(()),
            handles,
            name_number: checkpoint_marks.names.take_number(),
            checkpoint_marks,
            lost: Mutex::new(None),
        };
        dir.set_path(path);
        Arc::new(dir)
    }

    pub(crate) fn topic_partition(&self) -> &TopicPartition {
        &self.topic_partition
    }

    /// Its path under the partition's name in the log directory.
    fn usual_path(&self) -> Option<PathBuf> {
        let log_dir = self.checkpoint_marks.log_dir()?;
        Some(log_dir.join(self.topic_partition.dir_name()))
    }

    fn set_path(&self, path: &Path) {
        let is_usual = self.usual_path().as_deref() == Some(path);
        let other = (!is_usual).then(|| Box::new(OtherPath(path.to_owned())));
        *self.other_path.write() = other;
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
        match &*self.other_path.read() {
            Some(other) => other.0.clone(),
            None => self.usual_path().expect("any other path is kept"),
        }
    }

    /// Whether it is in a log directory.
    pub(crate) fn is_in(&self, log_dir: &Path) -> bool {
        let parent_is = |path: &Path| path.parent() == Some(log_dir);
        match &*self.other_path.read() {
            Some(other) => parent_is(&other.0),
            None => self.checkpoint_marks.log_dir() == Some(log_dir),
        }
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        let mut path = self.path();
        path.push(name);
        path
    }

    /// Renames the directory with `rename`. Threads that open files at the same time find them.
    pub(crate) fn rename(
        &self,
        to: &Path,
        rename: impl FnOnce(&Path, &Path) -> io::Result<()>,
    ) -> io::Result<()> {
        let _renaming = self.renaming.lock();
        rename(&self.path(), to)?;
        self.set_path(to);
        Ok(())
    }

    /// Runs `work` with the path. A rename waits for it.
    pub(crate) fn keep_path<R>(&self, work: impl FnOnce(&Path) -> R) -> R {
        let _renaming = self.renaming.lock();
        work(&self.path())
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
        self.lost.lock().get_or_insert(kind);
    }

    pub(crate) fn lost(&self) -> Option<io::ErrorKind> {
        *self.lost.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dir(path: &str, marks: CheckpointMarks) -> Arc<PartitionDir> {
        let topic_partition = TopicPartition::new("orders", 7);
        let handles = Handles::unlimited();
        PartitionDir::new(Path::new(path), topic_partition, handles, Arc::new(marks))
    }

    #[test]
    fn a_path_is_kept_only_if_it_does_not_follow_from_the_name() {
        let logs = || CheckpointMarks::of(PathBuf::from("/logs"));
        for (path, marks, is_kept) in [
            ("/logs/orders-7", logs(), false),
            ("/logs/orders-7.0123-future", logs(), true),
            ("/logs/orders-8", logs(), true),
            ("/other/orders-7", logs(), true),
            ("/logs/orders-7", CheckpointMarks::default(), true),
        ] {
            let dir = dir(path, marks);
            assert_eq!(dir.other_path.read().is_some(), is_kept, "{path}");
            assert_eq!(dir.path(), Path::new(path));
            assert_eq!(dir.join("x"), Path::new(path).join("x"));
            let parent = Path::new(path).parent().unwrap();
            assert!(dir.is_in(parent) && !dir.is_in(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn a_renamed_directory_has_the_other_path_until_it_gets_its_name() {
        let future = "/logs/orders-7.0123-future";
        let dir = dir(future, CheckpointMarks::of(PathBuf::from("/logs")));
        for to in ["/logs/orders-7", "/logs/orders-7.4567-delete"] {
            dir.rename(Path::new(to), |_, _| Ok(())).unwrap();
            assert_eq!(dir.path(), Path::new(to));
        }
        let fails = |_: &Path, _: &Path| -> io::Result<()> { Err(io::ErrorKind::NotFound.into()) };
        assert!(dir.rename(Path::new("/logs/orders-7"), fails).is_err());
        assert_eq!(dir.path(), Path::new("/logs/orders-7.4567-delete"));
    }
}
