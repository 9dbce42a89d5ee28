//! Files on the disk of the caller's simulated host, or of the kernel.

use std::ffi::OsString;
use std::io::{self, IoSlice, Read, Seek, SeekFrom, Write};
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

mod disk;
mod metadata;

use crate::kernel;
pub use crate::kernel::{ChangeTime, LockHolder, Space, Status, Writeback};
pub use crate::simulation::state::disk::power_loss::PowerLoss;
pub use crate::simulation::state::disk::{Disk, Faults};
use crate::simulation::world;
use disk::{Creation, DirHandle, Handle};
pub use metadata::{FileType, Metadata};

/// The simulated disk of the caller, if it has one.
fn simulated() -> Option<Disk> {
    match world::is_simulated() {
        true => world::world().disk(),
        false => None,
    }
}

/// An open directory, so that fsyncing it needs no new file handle.
#[derive(Debug)]
pub struct Dir(DirKind);

#[derive(Debug)]
enum DirKind {
    Kernel(kernel::Dir),
    Simulated(DirHandle),
}

impl Dir {
    #[track_caller]
    pub fn open(path: &Path) -> io::Result<Dir> {
        Ok(Dir(match simulated() {
            Some(disk) => DirKind::Simulated(disk.open_dir(path)?),
            None => DirKind::Kernel(kernel::Dir::open(path)?),
        }))
    }

    /// Fsyncs the directory: files created, renamed and removed in it survive a power loss.
    #[track_caller]
    pub fn sync(&self) -> io::Result<()> {
        match &self.0 {
            DirKind::Kernel(dir) => dir.sync(),
            DirKind::Simulated(handle) => handle.sync(),
        }
    }
}

#[derive(Debug)]
pub struct File(Kind);

#[derive(Debug)]
enum Kind {
    Kernel(std::fs::File),
    Simulated(Handle),
}

impl File {
    #[track_caller]
    pub fn open(path: impl AsRef<Path>) -> io::Result<File> {
        File::options().read(true).open(path)
    }

    #[track_caller]
    pub fn create(path: impl AsRef<Path>) -> io::Result<File> {
        File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)
    }

    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }

    #[track_caller]
    pub fn metadata(&self) -> io::Result<Metadata> {
        match &self.0 {
            Kind::Kernel(file) => file.metadata().and_then(|metadata| (&metadata).try_into()),
            Kind::Simulated(handle) => handle.metadata(),
        }
    }

    #[track_caller]
    pub fn set_len(&self, len: u64) -> io::Result<()> {
        match &self.0 {
            Kind::Kernel(file) => file.set_len(len),
            Kind::Simulated(handle) => handle.set_len(len),
        }
    }

    #[track_caller]
    pub fn sync_all(&self) -> io::Result<()> {
        match &self.0 {
            Kind::Kernel(file) => file.sync_all(),
            Kind::Simulated(handle) => handle.sync(),
        }
    }

    #[track_caller]
    pub fn sync_data(&self) -> io::Result<()> {
        match &self.0 {
            Kind::Kernel(file) => file.sync_data(),
            Kind::Simulated(handle) => handle.sync(),
        }
    }

    #[track_caller]
    pub fn set_modified(&self, time: SystemTime) -> io::Result<()> {
        match &self.0 {
            Kind::Kernel(file) => file.set_modified(time),
            Kind::Simulated(handle) => handle.set_modified(time),
        }
    }

    /// The kernel's file; `None` for a file on a simulated disk.
    fn of_kernel(&self) -> Option<&std::fs::File> {
        match &self.0 {
            Kind::Kernel(file) => Some(file),
            Kind::Simulated(_) => None,
        }
    }
}

impl From<std::fs::File> for File {
    fn from(file: std::fs::File) -> File {
        File(Kind::Kernel(file))
    }
}

impl FileExt for File {
    #[track_caller]
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        match &self.0 {
            Kind::Kernel(file) => file.read_at(buffer, position),
            Kind::Simulated(handle) => handle.read_at(buffer, position),
        }
    }

    #[track_caller]
    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<usize> {
        match &self.0 {
            Kind::Kernel(file) => file.write_at(bytes, position),
            Kind::Simulated(handle) => handle.write_at(&[IoSlice::new(bytes)], position),
        }
    }
}

impl Read for File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            Kind::Kernel(file) => file.read(buffer),
            Kind::Simulated(handle) => handle.read(buffer),
        }
    }
}

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            Kind::Kernel(file) => file.write(bytes),
            Kind::Simulated(handle) => handle.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match &mut self.0 {
            Kind::Kernel(file) => file.seek(to),
            Kind::Simulated(handle) => handle.seek(to),
        }
    }
}

const NO_DESCRIPTOR: &str =
    "a file on a simulated disk has no descriptor; use the calls of this crate";

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.of_kernel().expect(NO_DESCRIPTOR).as_fd()
    }
}

impl AsRawFd for File {
    fn as_raw_fd(&self) -> RawFd {
        self.of_kernel().expect(NO_DESCRIPTOR).as_raw_fd()
    }
}

/// Options for opening a file.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    creation: Creation,
    kernel: std::fs::OpenOptions,
}

macro_rules! options {
    ($($own:ident)*; $($kernel:ident)*) => {
        $(
            pub fn $own(&mut self, wanted: bool) -> &mut Self {
                self.creation.$own = wanted;
                self.kernel.$own(wanted);
                self
            }
        )*
        $(
            pub fn $kernel(&mut self, wanted: bool) -> &mut Self {
                self.kernel.$kernel(wanted);
                self
            }
        )*
    };
}

impl OpenOptions {
    #[expect(clippy::new_without_default, reason = "as in the standard library")]
    pub fn new() -> OpenOptions {
        OpenOptions {
            creation: Creation::default(),
            kernel: std::fs::OpenOptions::new(),
        }
    }

    options!(truncate create create_new; read write append);

    #[track_caller]
    pub fn open(&self, path: impl AsRef<Path>) -> io::Result<File> {
        match simulated() {
            None => self.kernel.open(path).map(File::from),
            Some(disk) => {
                let handle = disk.open(path.as_ref(), self.creation)?;
                Ok(File(Kind::Simulated(handle)))
            }
        }
    }
}

#[derive(Debug)]
pub struct DirEntry {
    path: PathBuf,
    file_type: FileType,
}

impl DirEntry {
    pub fn path(&self) -> PathBuf {
        self.path.clone()
    }

    pub fn file_name(&self) -> OsString {
        self.path.file_name().unwrap_or_default().to_owned()
    }

    pub fn file_type(&self) -> io::Result<FileType> {
        Ok(self.file_type)
    }

    #[track_caller]
    pub fn metadata(&self) -> io::Result<Metadata> {
        metadata(&self.path)
    }
}

#[derive(Debug)]
pub struct ReadDir(std::vec::IntoIter<DirEntry>);

impl Iterator for ReadDir {
    type Item = io::Result<DirEntry>;

    fn next(&mut self) -> Option<io::Result<DirEntry>> {
        self.0.next().map(Ok)
    }
}

/// The entries of a directory, sorted by name.
#[track_caller]
pub fn read_dir(path: impl AsRef<Path>) -> io::Result<ReadDir> {
    let entries = match simulated() {
        Some(disk) => {
            let entries = disk.list(path.as_ref())?.into_iter();
            entries
                .map(|(path, file_type)| DirEntry { path, file_type })
                .collect()
        }
        None => {
            let entry = |entry: io::Result<std::fs::DirEntry>| {
                let entry = entry?;
                Ok(DirEntry {
                    path: entry.path(),
                    file_type: entry.file_type()?.into(),
                })
            };
            let mut entries: Vec<DirEntry> = std::fs::read_dir(path)?
                .map(entry)
                .collect::<io::Result<_>>()?;
            entries.sort_by(|a, b| a.path.cmp(&b.path));
            entries
        }
    };
    Ok(ReadDir(entries.into_iter()))
}

#[track_caller]
pub fn metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    match simulated() {
        Some(disk) => disk.metadata(path.as_ref()),
        None => std::fs::metadata(path).and_then(|metadata| (&metadata).try_into()),
    }
}

/// The status of a file or directory, with one system call.
#[track_caller]
pub fn status(path: impl AsRef<Path>) -> io::Result<Status> {
    match simulated() {
        Some(disk) => disk.status(path.as_ref()),
        None => kernel::status(path),
    }
}

#[track_caller]
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[track_caller]
pub fn read_to_string(path: impl AsRef<Path>) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.read_to_string(&mut text)?;
    Ok(text)
}

/// A simulated disk has no links.
#[track_caller]
pub fn canonicalize(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    match simulated() {
        Some(disk) => disk.metadata(path.as_ref()).map(|_| path.as_ref().into()),
        None => std::fs::canonicalize(path),
    }
}

#[track_caller]
pub fn create_dir(path: impl AsRef<Path>) -> io::Result<()> {
    match simulated() {
        Some(disk) => disk.create_dir(path.as_ref()),
        None => std::fs::create_dir(path),
    }
}

#[track_caller]
pub fn create_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    match simulated() {
        Some(disk) => disk.create_dir_all(path.as_ref()),
        None => std::fs::create_dir_all(path),
    }
}

#[track_caller]
pub fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    match simulated() {
        Some(disk) => disk.rename(from.as_ref(), to.as_ref()),
        None => std::fs::rename(from, to),
    }
}

#[track_caller]
pub fn remove_file(path: impl AsRef<Path>) -> io::Result<()> {
    match simulated() {
        Some(disk) => disk.remove(path.as_ref(), FileType::File),
        None => std::fs::remove_file(path),
    }
}

#[track_caller]
pub fn remove_dir(path: impl AsRef<Path>) -> io::Result<()> {
    match simulated() {
        Some(disk) => disk.remove(path.as_ref(), FileType::Dir),
        None => std::fs::remove_dir(path),
    }
}

#[track_caller]
pub fn remove_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    let Some(disk) = simulated() else {
        return std::fs::remove_dir_all(path);
    };
    for (path, file_type) in disk.list(path.as_ref())? {
        match file_type {
            FileType::Dir => remove_dir_all(path)?,
            file_type => disk.remove(&path, file_type)?,
        }
    }
    disk.remove(path.as_ref(), FileType::Dir)
}

#[track_caller]
pub fn space(path: impl AsRef<Path>) -> io::Result<Space> {
    match simulated() {
        Some(disk) => disk.space(path.as_ref()),
        None => kernel::space(path),
    }
}

/// Whether this process may list a directory and change its entries.
#[track_caller]
pub fn check_dir_access(path: impl AsRef<Path>) -> io::Result<()> {
    match simulated() {
        Some(disk) => disk.metadata(path.as_ref()).map(drop),
        None => kernel::check_dir_access(path),
    }
}

/// The name of a file in a directory that this process may not read and write. A simulated process
/// may read and write all files.
#[track_caller]
pub fn closed_file_in(path: &Path) -> io::Result<Option<OsString>> {
    match simulated() {
        Some(disk) => disk.list(path).map(|_| None),
        None => kernel::closed_file_in(path),
    }
}

/// Takes a lock on the whole file, or returns `false` if another handle holds one. It is released
/// when the file is closed or its host is killed.
#[track_caller]
pub fn try_lock(file: &File) -> io::Result<bool> {
    match &file.0 {
        Kind::Kernel(file) => kernel::try_lock(file),
        Kind::Simulated(handle) => handle.try_lock(),
    }
}

/// The holder of the lock on a file that this handle has not locked.
#[track_caller]
pub fn lock_holder(file: &File) -> io::Result<Option<LockHolder>> {
    match &file.0 {
        Kind::Kernel(file) => kernel::lock_holder(file),
        Kind::Simulated(handle) => handle.lock_holder(),
    }
}

#[track_caller]
pub fn write_vectored_at(file: &File, slices: &[IoSlice<'_>], position: u64) -> io::Result<usize> {
    match &file.0 {
        Kind::Kernel(file) => kernel::write_vectored_at(file, slices, position),
        Kind::Simulated(handle) => handle.write_at(slices, position),
    }
}

#[track_caller]
pub fn read_cached_at(file: &File, buffer: &mut [u8], position: u64) -> io::Result<usize> {
    match &file.0 {
        Kind::Kernel(file) => kernel::read_cached_at(file, buffer, position),
        Kind::Simulated(handle) => handle.read_cached_at(buffer, position),
    }
}

/// Opens an existing file for reading and writing if no disk I/O is needed.
#[track_caller]
pub fn open_cached(path: &Path) -> io::Result<File> {
    let Some(disk) = simulated() else {
        return kernel::open_cached(path).map(File::from);
    };
    match disk.is_uncached() {
        true => Err(io::ErrorKind::WouldBlock.into()),
        false => File::options().read(true).write(true).open(path),
    }
}

/// Whether a byte of a file can be read without waiting for the disk.
#[track_caller]
pub fn is_cached_at(file: &(impl AsFd + FileExt + ?Sized), position: u64) -> bool {
    match simulated() {
        Some(disk) => !disk.is_uncached(),
        None => kernel::is_cached_at(file, position),
    }
}

/// Reads the bytes in the page cache; `None` if there are none.
#[track_caller]
pub fn read_if_cached_at(
    file: &(impl AsFd + FileExt + ?Sized),
    buffer: &mut [u8],
    position: u64,
) -> io::Result<Option<usize>> {
    match simulated() {
        Some(disk) if disk.is_uncached() => Ok(None),
        Some(_) => file.read_at(buffer, position).map(Some),
        None => kernel::read_if_cached_at(file, buffer, position),
    }
}

/// A simulated disk reserves nothing: writes find out that it is full.
pub fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    file.of_kernel()
        .map_or(Ok(()), |file| kernel::reserve(file, bytes))
}

/// A simulated disk writes back at any time, which only a power loss reveals.
#[track_caller]
pub fn sync_file_range(
    file: &File,
    position: u64,
    len: u64,
    writeback: Writeback,
) -> io::Result<()> {
    match &file.0 {
        Kind::Kernel(file) => kernel::sync_file_range(file, position, len, writeback),
        Kind::Simulated(handle) => handle.pass(),
    }
}

#[track_caller]
pub fn forget_cached(file: &File, position: u64, len: Option<NonZeroU64>) -> io::Result<()> {
    match &file.0 {
        Kind::Kernel(file) => kernel::forget_cached(file, position, len),
        Kind::Simulated(handle) => handle.pass(),
    }
}
