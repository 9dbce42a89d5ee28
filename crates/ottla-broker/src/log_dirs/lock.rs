//! The lock of a log directory: `.lock`, taken as Kafka takes it.
//!
//! Kafka locks the file through `FileChannel.tryLock`, which is a POSIX record lock. An open file
//! description lock conflicts with that, in both directions, and unlike it is not lost when some other
//! handle of the same file is closed, and excludes a second broker in the same process.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

const LOCK_FILE: &str = ".lock";

/// Held for as long as the broker uses the directory; the kernel gives it back when the process ends.
#[derive(Debug)]
pub(crate) struct DirLock {
    _file: File,
}

impl DirLock {
    /// `None` where another process, Ottla or Kafka, holds the lock.
    pub(crate) fn take(dir: &Path) -> io::Result<Option<DirLock>> {
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

fn lock_whole_file(file: &File) -> io::Result<()> {
    // SAFETY: all bytes zero is a valid `flock`, of which only integers are read.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    // SAFETY: the descriptor is open, and `lock` outlives the call.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &lock) };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::DirLock;

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
