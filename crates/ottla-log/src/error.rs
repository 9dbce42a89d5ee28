//! What can go wrong with a log, one small enum for each operation.

use std::io;
use std::path::{Path, PathBuf};

use ottla_types::{ErrorCode, Offset};
use rustix::io::Errno;

/// An operation on a file that failed. The directory that holds it goes offline, except where the disk
/// is only full.
#[derive(Debug, thiserror::Error)]
#[error("{action} {}: {error}", path.display())]
pub struct StorageError {
    /// What was attempted: "write to", "rename".
    pub action: &'static str,
    pub path: PathBuf,
    #[source]
    pub error: io::Error,
    /// What failed was to force something to disk. What that was to write may be gone, whatever the error
    /// is, and a later attempt that succeeds says nothing about it.
    pub is_failed_fsync: bool,
}

impl StorageError {
    pub fn new(action: &'static str, path: &Path, error: io::Error) -> Self {
        Self {
            action,
            path: path.to_owned(),
            error,
            is_failed_fsync: false,
        }
    }

    /// An fsync that failed, or the start of writeback.
    pub fn fsync(path: &Path, error: io::Error) -> Self {
        Self {
            is_failed_fsync: true,
            ..Self::new("force to disk", path, error)
        }
    }

    /// The disk is full, or the process or the machine has no file handle or memory left, or the call was interrupted:
    /// nothing is wrong with the disk, and the operation can be tried again.
    pub fn is_out_of_resources(&self) -> bool {
        let lacking = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::INTR];
        let errno = self.error.raw_os_error().map(Errno::from_raw_os_error);
        let is_lacking = errno.is_some_and(|errno| lacking.contains(&errno));
        self.is_disk_full() || (is_lacking && !self.is_failed_fsync)
    }

    /// No space or quota left: appends are refused, but what is there stays readable and deletable, and
    /// the directory need not go offline.
    ///
    /// A failed fsync is never that.
    pub fn is_disk_full(&self) -> bool {
        !self.is_failed_fsync
            && matches!(
                self.error.kind(),
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
            )
    }
}

/// An append that was refused, in whole or from some batch on.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct AppendError {
    /// How many of the batches, from the first, are in the log all the same and visible.
    pub batches_written: usize,
    pub reason: AppendErrorReason,
}

#[derive(Debug, thiserror::Error)]
pub enum AppendErrorReason {
    #[error(
        "batch of {size} bytes is larger than a segment of {segment_bytes} bytes (segment.bytes)"
    )]
    LargerThanSegment { size: usize, segment_bytes: usize },
    #[error("batch starts at offset {base_offset}, but the log ends at {log_end_offset}")]
    UnexpectedOffset {
        base_offset: Offset,
        log_end_offset: Offset,
    },
    #[error("batch from offset {base_offset} to {last_offset} is no range")]
    InvalidOffsets {
        base_offset: Offset,
        last_offset: Offset,
    },
    /// The bytes of a short write have been cut off again; the log is as it was, and a later append may
    /// succeed.
    #[error("disk full: {0}")]
    DiskFull(StorageError),
    /// The directory must go offline: the write failed, or what it left could not be cut off.
    #[error(transparent)]
    Storage(StorageError),
}

impl AppendErrorReason {
    /// Sorts a failed operation by what must happen to the directory.
    pub(crate) fn from_storage(error: StorageError) -> Self {
        if error.is_disk_full() {
            AppendErrorReason::DiskFull(error)
        } else {
            AppendErrorReason::Storage(error)
        }
    }

    /// The code that Kafka answers a produce request with.
    pub fn error_code(&self) -> ErrorCode {
        match self {
            AppendErrorReason::LargerThanSegment { .. } => ErrorCode::RecordListTooLarge,
            AppendErrorReason::UnexpectedOffset { .. }
            | AppendErrorReason::InvalidOffsets { .. } => ErrorCode::UnknownServerError,
            AppendErrorReason::DiskFull(_) | AppendErrorReason::Storage(_) => {
                ErrorCode::KafkaStorageError
            }
        }
    }
}

/// A read that has no result.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error(
        "offset {offset} is outside of the log, which holds {log_start_offset} to {log_end_offset}"
    )]
    OffsetOutOfRange {
        offset: Offset,
        log_start_offset: Offset,
        log_end_offset: Offset,
    },
    /// A batch in the log cannot be read: the partition answers with an error, others are unaffected.
    #[error("segment {segment_base_offset} is corrupt: {reason}")]
    Corrupt {
        segment_base_offset: Offset,
        reason: String,
    },
    #[error(transparent)]
    Storage(StorageError),
    /// Only of [`LogReader::read_cached`](crate::LogReader::read_cached).
    #[error("what tells the position is not in memory")]
    NotCached,
}

impl ReadError {
    pub fn error_code(&self) -> ErrorCode {
        match self {
            ReadError::OffsetOutOfRange { .. } => ErrorCode::OffsetOutOfRange,
            ReadError::Corrupt { .. } => ErrorCode::CorruptMessage,
            ReadError::Storage(_) | ReadError::NotCached => ErrorCode::KafkaStorageError,
        }
    }
}

/// A checkpoint that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error("{}: line {line}: {reason}: {text:?}", path.display())]
    Malformed {
        path: PathBuf,
        line: usize,
        text: String,
        reason: &'static str,
    },
}

/// A log that cannot be opened or changed.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;

    use super::StorageError;

    #[test]
    fn a_failed_fsync_is_no_full_disk() {
        for kind in [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded] {
            let path = Path::new("x");
            assert!(StorageError::new("write", path, kind.into()).is_disk_full());
            assert!(!StorageError::fsync(path, kind.into()).is_disk_full());
        }
        let path = Path::new("x");
        assert!(!StorageError::new("write", path, io::ErrorKind::Other.into()).is_disk_full());
    }

    #[test]
    fn what_a_process_runs_out_of_is_no_failure_of_the_disk() {
        use rustix::io::Errno;
        let path = Path::new("x");
        for errno in [
            Errno::MFILE,
            Errno::NFILE,
            Errno::NOMEM,
            Errno::INTR,
            Errno::NOSPC,
        ] {
            assert!(StorageError::new("open", path, errno.into()).is_out_of_resources());
            assert!(!StorageError::fsync(path, errno.into()).is_out_of_resources());
        }
        assert!(!StorageError::new("open", path, Errno::IO.into()).is_out_of_resources());
    }
}
