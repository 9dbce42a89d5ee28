//! Every change that this crate makes to files and directories.
//!
//! Thin wrappers of system calls, in one place so that tests can record the changes in order and
//! derive what a crash at any of them would leave ([`trace`] and `log/tests/crash_points.rs`). A
//! test checks that no other module changes files.

use std::io::{self, IoSlice, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ottla_sync::fs::{self, File};

#[cfg(test)]
pub(crate) mod trace;

/// Without tests, nothing is traced.
#[cfg(not(test))]
mod trace {
    use std::io;
    use std::path::Path;

    use ottla_sync::fs::File;

    #[expect(dead_code, reason = "only tests read the changes")]
    pub(super) enum Change<'a> {
        Create(&'a Path),
        Write(&'a File, u64, u64),
        SetLen(&'a File, u64),
        Sync(&'a File),
        SyncDir(&'a Path),
        Rename(&'a Path, &'a Path),
        Remove(&'a Path),
    }

    #[inline(always)]
    pub(super) fn before(_change: Change<'_>) -> io::Result<()> {
        Ok(())
    }

    #[inline(always)]
    pub(super) fn after(_change: Change<'_>) {}

    #[inline(always)]
    pub(super) fn before_open() -> io::Result<()> {
        Ok(())
    }

    #[inline(always)]
    pub(super) fn is_sync_skipped() -> bool {
        false
    }
}

use trace::Change;

/// Opens an empty file for reading and writing; an existing file is truncated.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    open(
        File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true),
        path,
    )
}

/// Creates a file for reading and writing; fails if it exists.
pub(crate) fn create_new(path: &Path) -> io::Result<File> {
    open(
        File::options().read(true).write(true).create_new(true),
        path,
    )
}

/// Opens a file for reading and writing, creating it if it does not exist.
pub(crate) fn open_or_create(path: &Path) -> io::Result<File> {
    open(
        File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false),
        path,
    )
}

/// Opens an existing file for reading and writing.
pub(crate) fn open_existing(path: &Path) -> io::Result<File> {
    trace::before_open()?;
    File::options().read(true).write(true).open(path)
}

/// As [`open_existing`], without I/O: fails with [`io::ErrorKind::WouldBlock`] if the path lookup
/// would have to read from the disk.
pub(crate) fn open_cached(path: &Path) -> io::Result<File> {
    trace::before_open()?;
    fs::open_cached(path)
}

fn open(options: &fs::OpenOptions, path: &Path) -> io::Result<File> {
    trace::before_open()?;
    trace::before(Change::Create(path))?;
    let file = options.open(path)?;
    trace::after(Change::Create(path));
    Ok(file)
}

/// Creates or replaces a file with content `bytes`.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<File> {
    let mut file = create(path)?;
    trace::before(Change::Write(&file, 0, bytes.len() as u64))?;
    file.write_all(bytes)?;
    trace::after(Change::Write(&file, 0, bytes.len() as u64));
    Ok(file)
}

pub(crate) fn write_all_at(file: &File, bytes: &[u8], position: u64) -> io::Result<()> {
    trace::before(Change::Write(file, position, bytes.len() as u64))?;
    file.write_all_at(bytes, position)?;
    trace::after(Change::Write(file, position, bytes.len() as u64));
    Ok(())
}

/// One vectored write. Returns the number of bytes written, which may be fewer than given.
pub(crate) fn write_vectored_at(
    file: &File,
    slices: &[IoSlice<'_>],
    position: u64,
) -> io::Result<usize> {
    trace::before(Change::Write(file, position, 0))?;
    let written = fs::write_vectored_at(file, slices, position)?;
    trace::after(Change::Write(file, position, written as u64));
    Ok(written)
}

pub(crate) fn set_len(file: &File, len: u64) -> io::Result<()> {
    trace::before(Change::SetLen(file, len))?;
    file.set_len(len)?;
    trace::after(Change::SetLen(file, len));
    Ok(())
}

/// `fdatasync`.
pub(crate) fn sync_data(file: &File) -> io::Result<()> {
    sync(file, File::sync_data)
}

/// `fsync`.
pub(crate) fn sync_all(file: &File) -> io::Result<()> {
    sync(file, File::sync_all)
}

fn sync(file: &File, force: impl Fn(&File) -> io::Result<()>) -> io::Result<()> {
    trace::before(Change::Sync(file))?;
    if !trace::is_sync_skipped() {
        // `EINTR` does not tell whether the data was written.
        while let Err(error) = force(file) {
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
    trace::after(Change::Sync(file));
    Ok(())
}

/// An open directory, so that fsyncing it later needs no new file handle.
pub(crate) struct OpenDir {
    path: PathBuf,
    handle: fs::Dir,
}

pub(crate) fn open_dir(path: &Path) -> io::Result<OpenDir> {
    trace::before_open()?;
    Ok(OpenDir {
        path: path.to_owned(),
        handle: fs::Dir::open(path)?,
    })
}

impl OpenDir {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Fsyncs the directory: files created, renamed and removed in it survive a power loss.
    pub(crate) fn sync(&self) -> io::Result<()> {
        trace::before(Change::SyncDir(&self.path))?;
        if !trace::is_sync_skipped() {
            self.handle.sync()?;
        }
        trace::after(Change::SyncDir(&self.path));
        Ok(())
    }
}

pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    trace::before(Change::Rename(from, to))?;
    fs::rename(from, to)?;
    trace::after(Change::Rename(from, to));
    Ok(())
}

pub(crate) fn remove_file(path: &Path) -> io::Result<()> {
    trace::before(Change::Remove(path))?;
    fs::remove_file(path)?;
    trace::after(Change::Remove(path));
    Ok(())
}

/// As [`remove_file`]; a missing file is no error.
pub(crate) fn remove_file_if_there(path: &Path) -> io::Result<()> {
    match remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// As [`rename`]; a missing file is no error.
pub(crate) fn rename_if_there(from: &Path, to: &Path) -> io::Result<()> {
    match rename(from, to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
