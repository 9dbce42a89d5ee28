//! File reads for threads that must not wait for the disk.
//!
//! A thread that serves connections may only read from the page cache. A check beforehand would
//! race with eviction, so the read itself reports it (`preadv2` with `RWF_NOWAIT`).

use std::io;
use std::os::unix::fs::FileExt;

use ottla_sync::fs::{File, read_cached_at};

/// Whether a read may wait for the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DiskWait {
    Allowed,
    /// Fails with [`io::ErrorKind::WouldBlock`] instead, also if a file would have to be opened or
    /// the file system does not support the check.
    Refused,
}

/// Fills `buffer` from `position`.
pub(crate) fn read_exact_at(
    file: &File,
    buffer: &mut [u8],
    position: u64,
    wait: DiskWait,
) -> io::Result<()> {
    if wait == DiskWait::Allowed {
        return file.read_exact_at(buffer, position);
    }
    match read_cached_at(file, buffer, position)? {
        read if read == buffer.len() => Ok(()),
        // The rest is on disk or past the end; a caller that may wait finds out.
        _ => Err(io::ErrorKind::WouldBlock.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn cached_bytes_are_read_without_waiting() {
        let mut file = File::from(tempfile::tempfile().unwrap());
        file.write_all(b"0123456789").unwrap();
        for wait in [DiskWait::Allowed, DiskWait::Refused] {
            let mut buffer = [0; 4];
            read_exact_at(&file, &mut buffer, 3, wait).unwrap();
            assert_eq!(&buffer, b"3456", "{wait:?}");
        }
    }

    /// Evicts a file from the page cache and reads it without and with waiting. Returns whether the
    /// kernel says that the first read would wait and the second one would not.
    fn is_detected(file: &File) -> bool {
        rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let read = |wait| {
            let mut buffer = [0; 4];
            let outcome = read_exact_at(file, &mut buffer, 32 * 1024, wait);
            match outcome {
                Ok(()) => assert_eq!(buffer, [7; 4], "{wait:?}"),
                Err(ref error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{wait:?}"),
            }
            outcome.is_ok()
        };
        let is_cached = read(DiskWait::Refused);
        assert!(read(DiskWait::Allowed));
        !is_cached && read(DiskWait::Refused)
    }

    /// A read that must not wait can still start readahead and then find the page, if the disk is
    /// faster than this thread. Also, the kernel may ignore the advice to evict a page, and may
    /// evict a page at any time. So a single attempt proves nothing, but none of many would succeed
    /// if the read waited.
    #[test]
    fn uncached_pages_are_detected() {
        // In the build directory, which is on a disk; the directory for temporary files may be in
        // memory.
        let mut file = File::from(tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap());
        file.write_all(&[7; 64 * 1024]).unwrap();
        file.sync_all().unwrap();
        assert!((0..1_000).any(|_| is_detected(&file)));
    }

    #[test]
    fn reads_past_the_end_return_nothing() {
        let mut file = File::from(tempfile::tempfile().unwrap());
        file.write_all(b"01").unwrap();
        let mut buffer = [0; 4];
        let allowed = read_exact_at(&file, &mut buffer, 0, DiskWait::Allowed).unwrap_err();
        assert_eq!(allowed.kind(), io::ErrorKind::UnexpectedEof);
        let refused = read_exact_at(&file, &mut buffer, 0, DiskWait::Refused).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
    }
}
