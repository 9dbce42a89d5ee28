//! Calls of the kernel that the standard library does not offer.

pub mod machine;
pub mod sockets;

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{Access, Advice, FallocateFlags, StatVfsMountFlags};
use rustix::io::{Errno, ReadWriteFlags};

/// The processor's counter, where it is known to run at 1 to 5 GHz whatever the processor does.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn processor_ticks() -> Option<u64> {
    // SAFETY: every processor of this architecture has the instruction, and it touches no memory.
    Some(unsafe { core::arch::x86_64::_rdtsc() })
}

/// The processor's counter: other architectures have some that are not known here.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub fn processor_ticks() -> Option<u64> {
    None
}

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

/// Whether a byte of a file can be read without waiting for the disk. A file system that cannot tell is taken at its
/// word: the read finds out.
pub fn is_cached_at(file: &(impl AsFd + ?Sized), position: u64) -> bool {
    let mut byte = [0];
    let buffers = &mut [IoSliceMut::new(&mut byte)];
    let read = rustix::io::preadv2(file, buffers, position, ReadWriteFlags::NOWAIT);
    !matches!(read, Err(Errno::AGAIN))
}

/// Opens a file that is there, for reading and writing, if all of its path is in the kernel's memory:
/// [`io::ErrorKind::WouldBlock`] where the disk would be asked, or the kernel cannot tell.
#[cfg(target_os = "linux")]
pub fn open_cached(path: &Path) -> io::Result<File> {
    use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    match openat2(CWD, path, flags, Mode::empty(), ResolveFlags::CACHED) {
        Ok(file) => Ok(File::from(file)),
        // Kernels before 5.12 and filters of system calls do not know it.
        Err(Errno::AGAIN | Errno::INTR | Errno::NOSYS | Errno::INVAL | Errno::PERM) => {
            Err(io::ErrorKind::WouldBlock.into())
        }
        Err(error) => Err(error.into()),
    }
}

/// Opens a file that is there, for reading and writing, if the disk need not be asked.
#[cfg(not(target_os = "linux"))]
pub fn open_cached(_path: &Path) -> io::Result<File> {
    Err(io::ErrorKind::WouldBlock.into())
}

/// How many files and sockets the process may have open; `None` for no limit.
pub fn open_files_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
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

/// How often this thread has given its processor away to wait for something; `None` where the kernel does not say.
#[cfg(target_os = "linux")]
pub fn thread_waits() -> Option<i64> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: `usage` outlives the call, which fills it if it succeeds.
    let result = unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
    // SAFETY: the call has succeeded.
    (result == 0).then(|| unsafe { usage.assume_init() }.ru_nvcsw)
}

#[cfg(not(target_os = "linux"))]
pub fn thread_waits() -> Option<i64> {
    None
}

/// What a file system has room for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Space {
    pub total_bytes: u64,
    /// What this process may still use.
    pub available_bytes: u64,
    pub is_read_only: bool,
}

/// Of the file system that `path` lies on.
pub fn space(path: impl AsRef<Path>) -> io::Result<Space> {
    let found = rustix::fs::statvfs(path.as_ref())?;
    Ok(Space {
        total_bytes: found.f_blocks.saturating_mul(found.f_frsize),
        available_bytes: found.f_bavail.saturating_mul(found.f_frsize),
        is_read_only: found.f_flag.contains(StatVfsMountFlags::RDONLY),
    })
}

/// Whether this process may list a directory and change its entries.
pub fn check_dir_access(path: impl AsRef<Path>) -> io::Result<()> {
    let access = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
    Ok(rustix::fs::access(path.as_ref(), access)?)
}

/// Whether this process may read and write a file.
pub fn check_file_access(path: impl AsRef<Path>) -> io::Result<()> {
    Ok(rustix::fs::access(
        path.as_ref(),
        Access::READ_OK | Access::WRITE_OK,
    )?)
}

/// Who has locked a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockHolder {
    /// Of a process that locks as Java does; a lock as [`try_lock`] takes it names nobody.
    pub process_id: Option<i32>,
}

/// Takes a lock for writing on the whole file, or returns `false` if another handle or process has one. It is given
/// back with the file. It is an open file description lock, which excludes POSIX record locks too.
pub fn try_lock(file: &File) -> io::Result<bool> {
    use std::os::fd::AsRawFd;
    let lock = whole_file();
    // SAFETY: the descriptor is open, and `lock` outlives the call.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &lock) } {
        0 => Ok(true),
        _ => match io::Error::last_os_error() {
            error if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
            error => Err(error),
        },
    }
}

/// Who has locked a file that this handle has not locked.
pub fn lock_holder(file: &File) -> io::Result<Option<LockHolder>> {
    use std::os::fd::AsRawFd;
    let mut lock = whole_file();
    // SAFETY: the descriptor is open, and `lock` outlives the call, which writes into it.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &mut lock) };
    match result {
        0 if i32::from(lock.l_type) == libc::F_UNLCK => Ok(None),
        0 => Ok(Some(LockHolder {
            process_id: (lock.l_pid > 0).then_some(lock.l_pid),
        })),
        _ => Err(io::Error::last_os_error()),
    }
}

/// From the first byte to whatever will be the last.
fn whole_file() -> libc::flock {
    // SAFETY: all bytes zero is a valid `flock`, of which only integers are read.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock
}
