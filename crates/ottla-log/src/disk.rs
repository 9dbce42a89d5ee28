//! Every change that this crate makes to files and directories.
//!
//! Thin calls of the system, in one place so that tests can write down what is done, in order, and find out
//! what each moment would have left after a crash ([`trace`], and `log/tests/crash_points.rs`). Nothing in
//! this crate changes a file by another way: a test goes through the sources for it.

use std::io::{self, IoSlice, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ottla_sync::fs::{self, File};

#[cfg(test)]
pub(crate) mod trace;

/// Where nothing is traced, nothing is done.
#[cfg(not(test))]
mod trace {
    use std::io;
    use std::path::Path;

    use ottla_sync::fs::File;

    #[expect(dead_code, reason = "only tests look at what is changed")]
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

/// An empty file for reading and writing; one that is there is emptied.
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

/// A new file for reading and writing, which must not be there yet.
pub(crate) fn create_new(path: &Path) -> io::Result<File> {
    open(
        File::options().read(true).write(true).create_new(true),
        path,
    )
}

/// A file for reading and writing, created if it is not there.
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

/// A file for reading and writing that is there.
pub(crate) fn open_existing(path: &Path) -> io::Result<File> {
    trace::before_open()?;
    File::options().read(true).write(true).open(path)
}

/// The same, if the kernel knows where it is: [`io::ErrorKind::WouldBlock`] where the disk would have to be asked.
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

/// A file that holds `bytes` and nothing else.
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

/// One vectored write; returns how many bytes were written, which may be fewer than there are.
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

/// Forces what is in the file, and as much about it as is needed to read that, to disk.
pub(crate) fn sync_data(file: &File) -> io::Result<()> {
    sync(file, File::sync_data)
}

/// Forces the file and all that is known about it to disk.
pub(crate) fn sync_all(file: &File) -> io::Result<()> {
    sync(file, File::sync_all)
}

fn sync(file: &File, force: impl Fn(&File) -> io::Result<()>) -> io::Result<()> {
    trace::before(Change::Sync(file))?;
    if !trace::is_sync_skipped() {
        // A signal says nothing about what was written.
        while let Err(error) = force(file) {
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
    trace::after(Change::Sync(file));
    Ok(())
}

/// A directory whose entries can be forced to disk without another file handle.
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
    /// Forces the entries of the directory to disk: files created, renamed and removed in it.
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

/// As [`remove_file`]; one that is not there is as good as removed.
pub(crate) fn remove_file_if_there(path: &Path) -> io::Result<()> {
    match remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// As [`rename`]; one that is not there need not be renamed.
pub(crate) fn rename_if_there(from: &Path, to: &Path) -> io::Result<()> {
    match rename(from, to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
