//! The lock of a log directory: `.lock`, taken as Kafka takes it.
//!
//! Kafka locks the file through `FileChannel.tryLock`, which is a POSIX record lock. An open file
//! description lock conflicts with that, in both directions, and unlike it is not lost when some other
//! handle of the same file is closed, and excludes a second broker in the same process.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

const LOCK_FILE: &str = ".lock";

/// Held for as long as the broker uses the directory; the kernel gives it back when the process ends.
#[derive(Debug)]
pub struct DirLock {
    _file: File,
}

impl DirLock {
    /// `None` where another process, Ottla or Kafka, holds the lock.
    pub fn take(dir: &Path) -> io::Result<Option<DirLock>> {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(dir.join(LOCK_FILE))?;
        match lock_whole_file(&file) {
            Ok(()) => Ok(Some(DirLock { _file: file })),
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EACCES) => Ok(None),
                _ => Err(error),
            },
        }
    }
}

/// Who holds the lock of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holder {
    /// Of a process that locks as Java does; a lock like ours names nobody.
    process_id: Option<libc::pid_t>,
}

impl Holder {
    pub const WAY_OUT: &'static str = "stop it, or set other log.dirs";

    fn is_kafka(self) -> bool {
        let Some(process_id) = self.process_id else {
            return false;
        };
        let command = std::fs::read(format!("/proc/{process_id}/cmdline")).unwrap_or_default();
        command
            .split(|byte| *byte == 0)
            .any(|argument| argument == b"kafka.Kafka")
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.process_id {
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

/// Who holds the lock of a directory, without taking it, or making the file where there is none.
pub fn holder_of(dir: &Path) -> io::Result<Option<Holder>> {
    let file = match File::open(dir.join(LOCK_FILE)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut lock = whole_file();
    // SAFETY: the descriptor is open, and `lock` outlives the call, which writes into it.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &mut lock) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    if i32::from(lock.l_type) == libc::F_UNLCK {
        return Ok(None);
    }
    Ok(Some(Holder {
        process_id: (lock.l_pid > 0).then_some(lock.l_pid),
    }))
}

fn lock_whole_file(file: &File) -> io::Result<()> {
    let lock = whole_file();
    // SAFETY: the descriptor is open, and `lock` outlives the call.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &lock) };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A lock for writing from the first byte to whatever will be the last.
fn whole_file() -> libc::flock {
    // SAFETY: all bytes zero is a valid `flock`, of which only integers are read.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock
}

#[cfg(test)]
mod tests {
    use super::{DirLock, LOCK_FILE, holder_of};

    #[test]
    fn a_lock_is_asked_for_without_taking_it() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(holder_of(dir.path()).unwrap(), None);
        assert!(!dir.path().join(LOCK_FILE).exists(), "nothing was made");
        let lock = DirLock::take(dir.path()).unwrap();
        let holder = holder_of(dir.path()).unwrap().expect("it is held");
        assert_eq!(holder.to_string(), "is in use by another Ottla process");
        drop(lock);
        assert_eq!(holder_of(dir.path()).unwrap(), None);
    }

    #[test]
    fn a_directory_is_locked_once() {
        let dir = tempfile::tempdir().unwrap();
        let first = DirLock::take(dir.path()).unwrap();
        assert!(first.is_some());
        assert!(DirLock::take(dir.path()).unwrap().is_none());
        drop(first);
        assert!(DirLock::take(dir.path()).unwrap().is_some());
    }
}
