//! The log file of a segment that does not begin yet.
//!
//! Nobody knows at which offset it will begin, so it has a name that a load deletes; whoever begins the segment
//! renames it.

use std::fs::File;
use std::io;

use crate::disk;
use crate::file_names::{DELETED_SUFFIX, LOG_SUFFIX};

/// A file that waits to become the next segment.
pub struct SpareSegment {
    /// Tells its file from those of all other spares.
    pub(crate) number: u64,
    pub(crate) log: File,
}

pub(crate) fn spare_name(number: u64) -> String {
    format!("spare-{number:016x}{LOG_SUFFIX}{DELETED_SUFFIX}")
}

/// Reserves blocks without changing the size. A file system that cannot is no error.
pub(crate) fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    match fallocate(file, FallocateFlags::KEEP_SIZE, 0, bytes) {
        Err(rustix::io::Errno::OPNOTSUPP) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Creates the file of a spare. One that is there already might be about to become a segment.
pub(crate) fn create(path: &std::path::Path, number: u64) -> io::Result<SpareSegment> {
    let log = disk::create_new(path)?;
    Ok(SpareSegment { number, log })
}
