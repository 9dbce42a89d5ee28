//! System calls that the standard library does not offer.

pub mod machine;
pub mod memory;
pub mod sockets;
pub mod tls;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use rustix::fs::{Access, Advice, AtFlags, CWD, FallocateFlags, Mode, OFlags, StatVfsMountFlags};
use rustix::io::{Errno, ReadWriteFlags};

/// The processor's time stamp counter, which runs at a constant 1 to 5 GHz on this architecture.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn processor_ticks() -> Option<u64> {
    // SAFETY: every processor of this architecture has the instruction, and it touches no memory.
    Some(unsafe { core::arch::x86_64::_rdtsc() })
}

/// No such counter is known for other architectures.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub fn processor_ticks() -> Option<u64> {
    None
}

/// One vectored write. Returns the number of bytes written, which may be fewer than given.
pub fn write_vectored_at(file: &File, slices: &[IoSlice<'_>], position: u64) -> io::Result<usize> {
    Ok(rustix::io::pwritev(file, slices, position)?)
}

/// Reads from the page cache without waiting. Fails with [`io::ErrorKind::WouldBlock`] if the file
/// system does not support it; returns fewer bytes than `buffer` holds if the rest is on disk or
/// past the end.
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

/// Reads the cached bytes of a file from a position on, up to the size of `buffer`, with one call.
/// `None` if the first byte is on disk or past the end; a read that may wait finds out which. If
/// the file system does not support the check, reads anyway.
pub fn read_if_cached_at(
    file: &(impl AsFd + FileExt + ?Sized),
    buffer: &mut [u8],
    position: u64,
) -> io::Result<Option<usize>> {
    let buffers = &mut [IoSliceMut::new(buffer)];
    match rustix::io::preadv2(file, buffers, position, ReadWriteFlags::NOWAIT) {
        // Linux 5.9 and 5.10 sometimes return 0 before the end.
        Ok(0) | Err(Errno::AGAIN) => Ok(None),
        Ok(read) => Ok(Some(read)),
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INTR) => {
            file.read_at(buffer, position).map(Some)
        }
        Err(error) => Err(error.into()),
    }
}

/// Whether a byte of a file can be read without waiting for the disk. Returns true if the file
/// system does not support the check; the read then finds out.
pub fn is_cached_at(file: &(impl AsFd + ?Sized), position: u64) -> bool {
    let mut byte = [0];
    let buffers = &mut [IoSliceMut::new(&mut byte)];
    let read = rustix::io::preadv2(file, buffers, position, ReadWriteFlags::NOWAIT);
    !matches!(read, Err(Errno::AGAIN))
}

/// Opens an existing file for reading and writing if its path lookup needs no I/O. Fails with
/// [`io::ErrorKind::WouldBlock`] otherwise, or if the kernel does not support the check.
#[cfg(target_os = "linux")]
pub fn open_cached(path: &Path) -> io::Result<File> {
    use rustix::fs::{ResolveFlags, openat2};
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    match openat2(CWD, path, flags, Mode::empty(), ResolveFlags::CACHED) {
        Ok(file) => Ok(File::from(file)),
        // Not known to kernels before 5.12 and to system call filters.
        Err(Errno::AGAIN | Errno::INTR | Errno::NOSYS | Errno::INVAL | Errno::PERM) => {
            Err(io::ErrorKind::WouldBlock.into())
        }
        Err(error) => Err(error.into()),
    }
}

/// Opens an existing file for reading and writing without I/O; not supported here.
#[cfg(not(target_os = "linux"))]
pub fn open_cached(_path: &Path) -> io::Result<File> {
    Err(io::ErrorKind::WouldBlock.into())
}

/// The process's limit of open files and sockets; `None` for no limit.
pub fn open_files_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

/// An open directory, so that fsyncing it needs no new file handle.
#[derive(Debug)]
pub struct Dir(File);

impl Dir {
    pub fn open(path: &Path) -> io::Result<Dir> {
        Ok(Dir(File::open(path)?))
    }

    /// Fsyncs the directory: files created, renamed and removed in it survive a power loss.
    pub fn sync(&self) -> io::Result<()> {
        self.0.sync_all()
    }
}

/// Reserves blocks without changing the file's size. No error if the file system does not support
/// it.
pub fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, bytes) {
        Err(Errno::OPNOTSUPP) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// A step of writing a range of a file back to disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Writeback {
    Begin,
    /// Waits for the writeback that was started.
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

/// Drops a range from the page cache.
pub fn forget_cached(
    file: &File,
    position: u64,
    len: Option<std::num::NonZeroU64>,
) -> io::Result<()> {
    Ok(rustix::fs::fadvise(file, position, len, Advice::DontNeed)?)
}

/// Number of voluntary context switches of this thread; `None` if the kernel does not report it.
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

/// Processor time of this thread; `None` if the kernel does not report it.
pub fn thread_cpu_time() -> Option<std::time::Duration> {
    let mut time = std::mem::MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: `time` outlives the call, which fills it if it succeeds.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, time.as_mut_ptr()) };
    // SAFETY: the call has succeeded.
    let time = (result == 0).then(|| unsafe { time.assume_init() })?;
    let seconds = u64::try_from(time.tv_sec).ok()?;
    let nanoseconds = u32::try_from(time.tv_nsec).ok()?;
    Some(std::time::Duration::new(seconds, nanoseconds))
}

/// The space of a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Space {
    pub total_bytes: u64,
    /// Bytes that this process may still use.
    pub available_bytes: u64,
    pub is_read_only: bool,
}

/// The space of the file system that contains `path`.
pub fn space(path: impl AsRef<Path>) -> io::Result<Space> {
    let found = rustix::fs::statvfs(path.as_ref())?;
    Ok(Space {
        total_bytes: found.f_blocks.saturating_mul(found.f_frsize),
        available_bytes: found.f_bavail.saturating_mul(found.f_frsize),
        is_read_only: found.f_flag.contains(StatVfsMountFlags::RDONLY),
    })
}

/// The length of a file, and when a file or directory last changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    pub len: u64,
    pub changed: ChangeTime,
}

/// When the content, the entries, the owner or the rights of a file or directory last changed
/// (`ctime`). Unlike the time of modification, no program can set it. Two changes in one tick of the
/// kernel's clock of files have the same. Only for comparison: on a simulated disk it is no time, but
/// that of a file is later than those of files and directories that were created before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ChangeTime {
    pub seconds: i64,
    pub nanoseconds: i64,
}

/// The status of a file or directory, with one system call.
pub fn status(path: impl AsRef<Path>) -> io::Result<Status> {
    let found = std::fs::metadata(path)?;
    Ok(Status {
        len: found.len(),
        changed: ChangeTime {
            seconds: found.ctime(),
            nanoseconds: found.ctime_nsec(),
        },
    })
}

/// The user whose rights this process has.
pub fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether this process may list a directory and change its entries.
pub fn check_dir_access(path: impl AsRef<Path>) -> io::Result<()> {
    let access = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
    Ok(rustix::fs::access(path.as_ref(), access)?)
}

/// The name of a file in a directory that this process may not read and write. Files that are
/// deleted at the same time do not count. The files are looked up in the open directory, because
/// there may be very many directories, with long paths.
pub fn closed_file_in(path: &Path) -> io::Result<Option<OsString>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
    let mut entries = rustix::fs::Dir::new(dir)?;
    while let Some(entry) = entries.read() {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let access = Access::READ_OK | Access::WRITE_OK;
        match rustix::fs::accessat(entries.fd()?, name, access, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(_) => return Ok(Some(OsStr::from_bytes(name.to_bytes()).to_owned())),
        }
    }
    Ok(None)
}

/// The holder of a file lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockHolder {
    /// The process ID of a POSIX record lock, as Java takes it; a lock of [`try_lock`] has none.
    pub process_id: Option<i32>,
}

/// Takes a write lock on the whole file, or returns `false` if another handle or process holds one.
/// It is released when the file is closed. It is an open file description lock, which also
/// conflicts with POSIX record locks.
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

/// The holder of the lock on a file that this handle has not locked.
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

/// From the first byte to the end, wherever it is.
fn whole_file() -> libc::flock {
    // SAFETY: all bytes zero is a valid `flock`, of which only integers are read.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock
}
