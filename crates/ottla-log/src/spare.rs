//! The log file of a segment that does not begin yet.
//!
//! Nobody knows at which offset it will begin, so it has a name that a load deletes; whoever begins the segment
//! renames it.

use std::io;

use ottla_sync::fs::reserve;

use crate::disk;
use crate::file_names::{DELETED_SUFFIX, LOG_SUFFIX};
use crate::handles::LogFile;
use crate::partition_dir::PartitionDir;

/// A file that waits to become the next segment.
pub struct SpareSegment {
    /// Tells its file from those of all other spares.
    pub(crate) number: u64,
    pub(crate) log: LogFile,
}

pub(crate) fn spare_name(number: u64) -> String {
    format!("spare-{number:016x}{LOG_SUFFIX}{DELETED_SUFFIX}")
}

/// Creates the file of a spare, with blocks reserved for it; its size stays 0. One that is there already might be about to
/// become a segment. What cannot be made whole is removed.
pub(crate) fn create(
    dir: &PartitionDir,
    number: u64,
    reserve_bytes: u64,
) -> io::Result<SpareSegment> {
    let path = dir.join(&spare_name(number));
    let log = dir.handles().open(|| disk::create_new(&path))?;
    if reserve_bytes > 0
        && let Err(error) = reserve(&log, reserve_bytes)
    {
        // A load removes what stays.
        let _ = disk::remove_file_if_there(&path);
        return Err(error);
    }
    Ok(SpareSegment { number, log })
}
