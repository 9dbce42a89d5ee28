//! Where the log of a partition lies, and how it is read there.

use std::sync::Arc;

use ottla_log::LogReader;
use ottla_storage::log_dirs::{DirThreads, DiskSpace};
use ottla_sync::Guard;

use super::append_pace::AppendPace;

/// Another takes its place when the log is moved to another directory.
pub struct Home {
    pub reader: LogReader,
    pub pace: Arc<AppendPace>,
    pub space: Arc<DiskSpace>,
    pub threads: DirThreads,
}

/// A log that is read, and stays readable for as long as this is held, even if another takes its place.
pub struct Reading(pub(super) Guard<Arc<Home>>);

impl std::ops::Deref for Reading {
    type Target = LogReader;

    fn deref(&self) -> &LogReader {
        &self.0.reader
    }
}
