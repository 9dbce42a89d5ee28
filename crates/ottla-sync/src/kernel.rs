//! Calls of the kernel that the standard library does not offer.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::path::Path;

use rustix::fs::{Advice, FallocateFlags};
use rustix::io::{Errno, ReadWriteFlags};

/// One vectored write; returns how many bytes were written, which may be fewer than there are.
pub fn write_vectored_at(file: &File, slices: &[IoSlice<'_>], position: u64) -> io::Result<usize> {
    Ok(rustix::io::pwritev(file, slices, position)?)
}

/// Reads what is in the page cache. [`io::ErrorKind::WouldBlock`] if the file system cannot tell; fewer bytes than
/// `buffer` holds if the rest is on the disk or past the end.
pub fn read_cached_at(file: &File, buffer: &mut [u8], position: u64) -> io::Result<usize> {
    let buffers = &mut [IoSliceMut::new(buffer)];
    match rustix::io::preadv2(file, buffers, position, ReadWriteFlags::NOWAIT) {
        Ok(read) => Ok(read),
        Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INTR) => {
            Err(io::ErrorKind::WouldBlock.into())
        }
        Err(error) => Err(error.into()),
    }
}

/// A directory whose entries can be forced to disk without another file handle.
#[derive(Debug)]
pub struct Dir(File);

impl Dir {
    pub fn open(path: &Path) -> io::Result<Dir> {
        Ok(Dir(File::open(path)?))
    }

    /// Forces the entries to disk: files created, renamed and removed in it.
    pub fn sync(&self) -> io::Result<()> {
        self.0.sync_all()
    }
}

/// Reserves blocks without changing the size. A file system that cannot is no error.
pub fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, bytes) {
        Err(Errno::OPNOTSUPP) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Part of writing a range of a file to disk without waiting for all of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Writeback {
    Begin,
    /// The end of what has begun.
    Await,
}

#[cfg(target_os = "linux")]
pub fn sync_file_range(
    file: &File,
    position: u64,
    len: u64,
    writeback: Writeback,
) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let (position, len) = (position as libc::off64_t, len as libc::off64_t);
    let flags = match writeback {
        Writeback::Begin => libc::SYNC_FILE_RANGE_WRITE,
        Writeback::Await => libc::SYNC_FILE_RANGE_WAIT_BEFORE,
    };
    // SAFETY: the call takes a descriptor, which `file` keeps open, and no pointers.
    let result = unsafe { libc::sync_file_range(file.as_raw_fd(), position, len, flags) };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(not(target_os = "linux"))]
pub fn sync_file_range(
    _file: &File,
    _position: u64,
    _len: u64,
    _writeback: Writeback,
) -> io::Result<()> {
    Ok(())
}

/// Lets the page cache forget a range.
pub fn forget_cached(
    file: &File,
    position: u64,
    len: Option<std::num::NonZeroU64>,
) -> io::Result<()> {
    Ok(rustix::fs::fadvise(file, position, len, Advice::DontNeed)?)
}
