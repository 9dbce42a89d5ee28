//! Why a cleaning ends early.

use crate::error::StorageError;

/// The cleaning was stopped. Groups of segments that were finished stay cleaned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CleaningStopped;

/// Why a cleaning ended early.
#[derive(Debug, thiserror::Error)]
pub enum CleanError {
    #[error("the cleaning was stopped")]
    Stopped,
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The log is not cleaned again before the next start.
    #[error("{0}")]
    Uncleanable(String),
}

impl From<CleaningStopped> for CleanError {
    fn from(_: CleaningStopped) -> CleanError {
        CleanError::Stopped
    }
}
