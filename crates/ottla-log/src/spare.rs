//! The log file of a future segment, created in advance.
//!
//! Its base offset is not known yet, so it has a name that a load deletes, and is renamed when the
//! segment starts.

use std::io;

use ottla_sync::fs::reserve;

use crate::disk;
use crate::file_names::{DELETED_SUFFIX, LOG_SUFFIX};
use crate::handles::LogFile;
use crate::partition_dir::PartitionDir;

/// A file that will become the next segment.
pub struct SpareSegment {
    /// Makes its name unique among the spares.
    pub(crate) number: u64,
    pub(crate) log: LogFile,
}

pub(crate) fn spare_name(number: u64) -> String {
    format!("spare-{number:016x}{LOG_SUFFIX}{DELETED_SUFFIX}")
}

/// Creates the file of a spare with reserved blocks; its size stays 0. Fails if the file exists: it
/// might be about to become a segment. A spare whose blocks cannot be reserved is removed.
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
        // A load removes what remains.
        let _ = disk::remove_file_if_there(&path);
        return Err(error);
    }
    Ok(SpareSegment { number, log })
}
