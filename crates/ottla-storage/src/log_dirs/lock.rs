//! The lock of a log directory: `.lock`, compatible with Kafka's.
//!
//! Kafka locks the file with `FileChannel.tryLock`, a POSIX record lock. An open file description
//! lock conflicts with it in both directions. Unlike a POSIX lock, it is not lost when another
//! handle of the file is closed, and it excludes a second broker in the same process.

use std::fmt;
use std::io;
use std::path::Path;

use ottla_sync::fs::{self, File};

const LOCK_FILE: &str = ".lock";

/// Held while the broker uses the directory; the kernel releases it when the process ends.
#[derive(Debug)]
pub struct DirLock {
    _file: File,
}

impl DirLock {
    /// `None` if another process, Ottla or Kafka, holds the lock.
    pub fn take(dir: &Path) -> io::Result<Option<DirLock>> {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(dir.join(LOCK_FILE))?;
        let is_taken = fs::try_lock(&file)?;
        Ok(is_taken.then_some(DirLock { _file: file }))
    }
}

/// The holder of a directory's lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holder {
    /// `None` if it belongs to another user, whose open files are not visible.
    process_id: Option<i32>,
    /// Whether it is an open file description lock. Kafka takes a POSIX record lock.
    is_ottla: bool,
}

impl Holder {
    pub const WAY_OUT: &'static str = "stop it, or set other log.dirs";

    fn is_kafka(self) -> bool {
        let Some(process_id) = self.process_id else {
            return false;
        };
        let command = fs::read(format!("/proc/{process_id}/cmdline")).unwrap_or_default();
        command
            .split(|byte| *byte == 0)
            .any(|argument| argument == b"kafka.Kafka")
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.process_id {
            Some(id) if self.is_ottla => {
                write!(f, "is in use by another Ottla process with id {id}")
            }
            Some(id) if self.is_kafka() => {
                write!(
                    f,
                    "is in use by another process, Apache Kafka with process id {id}"
                )
            }
            Some(id) => write!(f, "is in use by another process with id {id}"),
            None => f.write_str("is in use by another Ottla process"),
        }
    }
}

/// The holder of a directory's lock. Neither takes the lock nor creates the file.
pub fn holder_of(dir: &Path) -> io::Result<Option<Holder>> {
    let path = dir.join(LOCK_FILE);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let holder = fs::lock_holder(&file)?;
    // Close the file, so that this process is not found among those that have it open.
    drop(file);
    Ok(holder.map(|holder| Holder {
        process_id: holder.process_id.or_else(|| process_with(&path)),
        is_ottla: holder.process_id.is_none(),
    }))
}

/// The process that has a file open, for a lock that names none.
fn process_with(file: &Path) -> Option<i32> {
    let file = fs::canonicalize(file).ok()?;
    for process in fs::read_dir("/proc").ok()?.flatten() {
        let name = process.file_name();
        let id = name.to_str().and_then(|name| name.parse().ok());
        // The open files of other users' processes cannot be listed.
        let (Some(id), Ok(open)) = (id, fs::read_dir(process.path().join("fd"))) else {
            continue;
        };
        let mut links = open
            .flatten()
            .filter_map(|it| std::fs::read_link(it.path()).ok());
        if links.any(|it| it == file) {
            return Some(id);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{DirLock, LOCK_FILE, holder_of};

    #[test]
    fn a_lock_is_queried_without_taking_it() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(holder_of(dir.path()).unwrap(), None);
        assert!(!dir.path().join(LOCK_FILE).exists(), "nothing was made");
        let lock = DirLock::take(dir.path()).unwrap();
        let holder = holder_of(dir.path()).unwrap().expect("it is held");
        let id = std::process::id();
        let expected = format!("is in use by another Ottla process with id {id}");
        assert_eq!(holder.to_string(), expected);
        drop(lock);
        assert_eq!(holder_of(dir.path()).unwrap(), None);
    }

    #[test]
    fn a_directory_cannot_be_locked_twice() {
        let dir = tempfile::tempdir().unwrap();
        let first = DirLock::take(dir.path()).unwrap();
        assert!(first.is_some());
        assert!(DirLock::take(dir.path()).unwrap().is_none());
        drop(first);
        assert!(DirLock::take(dir.path()).unwrap().is_some());
    }
}
