//! The state kept per log, one struct for each of its states; that of the logs in use is in
//! `hosted_logs`.

use std::sync::Arc;

use ottla_log::{Log, LogReader};
use ottla_types::{Offset, TopicId};

use super::log_dir::LogDir;

/// Loaded at start and not claimed by a partition yet.
pub(super) struct LoadedLog {
    pub(super) log: Log,
    pub(super) dir: Arc<LogDir>,
    pub(super) topic_id: Option<TopicId>,
}

impl std::fmt::Debug for LoadedLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LoadedLog({})", self.log.topic_partition())
    }
}

/// A log that could not be loaded, with its checkpoint entries, which are kept.
#[derive(Clone, Debug)]
pub(super) struct FailedLog {
    pub(super) dir: Arc<LogDir>,
    /// Space, memory or a file handle was missing: loading it again can succeed.
    pub(super) is_temporary: bool,
    pub(super) recovery_point: Option<Offset>,
    pub(super) log_start_offset: Option<Offset>,
    pub(super) high_watermark: Option<Offset>,
}

/// A copy in progress.
pub(super) struct Future {
    pub(super) reader: LogReader,
    pub(super) dir: Arc<LogDir>,
    pub(super) topic_id: TopicId,
    /// Found at start and not taken by a task yet.
    pub(super) waiting: Option<Log>,
    /// It is to become the log of a partition of this broker, but could not be renamed yet.
    pub(super) is_claimed: bool,
}

impl std::fmt::Debug for Future {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Future({})", self.reader.dir().display())
    }
}
