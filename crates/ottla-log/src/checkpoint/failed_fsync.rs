//! `ottla-fsync-failed`: an fsync failed in this log directory, and a part of what its page cache has
//! may not be on disk ([`force_again`](crate::force_again())).
//!
//! The file is empty and never fsynced: a power loss that takes it takes the page cache as well.
//! Kafka ignores it.

use std::io::ErrorKind;
use std::path::Path;

use crate::disk;
use crate::error::StorageError;

pub const FAILED_FSYNC_FILE: &str = "ottla-fsync-failed";

/// The file of a log directory that says so.
pub struct FailedFsync;

impl FailedFsync {
    /// Leaves the file for the next start.
    pub fn write(log_dir: &Path) -> Result<(), StorageError> {
        let path = log_dir.join(FAILED_FSYNC_FILE);
        match disk::open_or_create(&path) {
            Ok(_) => Ok(()),
            Err(error) => Err(StorageError::new("create", &path, error)),
        }
    }

    /// Whether the file exists. If that cannot be found out, it may.
    pub fn is_noted(log_dir: &Path) -> bool {
        let found = ottla_sync::fs::metadata(log_dir.join(FAILED_FSYNC_FILE));
        !found.is_err_and(|error| error.kind() == ErrorKind::NotFound)
    }

    pub fn delete(log_dir: &Path) -> Result<(), StorageError> {
        let path = log_dir.join(FAILED_FSYNC_FILE);
        disk::remove_file_if_there(&path).map_err(|error| StorageError::new("delete", &path, error))
    }
}
