//! The log file of a segment that does not begin yet.
//!
//! Nobody knows at which offset it will begin, so it has a name that a load deletes; whoever begins the segment
//! renames it.

use std::io;

use ottla_sync::fs::File;

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

/// Creates the file of a spare. One that is there already might be about to become a segment.
pub(crate) fn create(path: &std::path::Path, number: u64) -> io::Result<SpareSegment> {
    let log = disk::create_new(path)?;
    Ok(SpareSegment { number, log })
}
