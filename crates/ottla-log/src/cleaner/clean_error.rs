//! How a cleaning ends before it is done.

use crate::error::StorageError;

/// The cleaning was asked to stop. What groups of segments were done stays done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CleaningStopped;

/// Why a cleaning ended early.
#[derive(Debug, thiserror::Error)]
pub enum CleanError {
    #[error("the cleaning was stopped")]
    Stopped,
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The log will not be tried again before the next start.
    #[error("{0}")]
    Uncleanable(String),
}

impl From<CleaningStopped> for CleanError {
    fn from(_: CleaningStopped) -> CleanError {
        CleanError::Stopped
    }
}
