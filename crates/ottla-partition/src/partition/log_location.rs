//! The log of a partition together with its directory's resources.

use std::sync::Arc;

use ottla_log::LogReader;
use ottla_storage::log_dirs::{DirThreads, DiskSpace};
use ottla_sync::Guard;

use super::append_pace::AppendPace;

/// Replaced when the log moves to another directory.
pub struct LogLocation {
    pub reader: LogReader,
    pub dir: Arc<DirResources>,
}

/// The resources of a log directory, shared by the partitions whose logs are in it.
#[derive(Default)]
pub struct DirResources {
    pub pace: Arc<AppendPace>,
    pub space: Arc<DiskSpace>,
    pub threads: Arc<DirThreads>,
}

impl std::ops::Deref for LogLocation {
    type Target = DirResources;

    fn deref(&self) -> &DirResources {
        &self.dir
    }
}

/// A guard for reading the log. The log stays readable while it is held, even if it is replaced.
pub struct Reading(pub(super) Guard<Arc<LogLocation>>);

impl std::ops::Deref for Reading {
    type Target = LogReader;

    fn deref(&self) -> &LogReader {
        &self.0.reader
    }
}
