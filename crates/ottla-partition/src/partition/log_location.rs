//! The log of a partition together with its directory's resources.

use std::sync::Arc;

use ottla_log::LogReader;
use ottla_storage::log_dirs::{DirThreads, DiskSpace};
use ottla_sync::Guard;

use super::append_pace::AppendPace;

/// Replaced when the log moves to another directory.
pub struct LogLocation {
    pub reader: LogReader,
    pub pace: Arc<AppendPace>,
    pub space: Arc<DiskSpace>,
    pub threads: Arc<DirThreads>,
}

/// A guard for reading the log. The log stays readable while it is held, even if it is replaced.
pub struct Reading(pub(super) Guard<Arc<LogLocation>>);

impl std::ops::Deref for Reading {
    type Target = LogReader;

    fn deref(&self) -> &LogReader {
        &self.0.reader
    }
}
