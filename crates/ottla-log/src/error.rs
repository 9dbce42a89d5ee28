//! Errors of a log, one small enum per operation.

use std::io;
use std::path::{Path, PathBuf};

use ottla_types::{ErrorCode, Offset};
use rustix::io::Errno;

/// A failed file operation. [`StorageError::cause`] decides its consequence for the log directory.
#[derive(Debug, thiserror::Error)]
#[error("{action} {}: {error}", path.display())]
pub struct StorageError {
    /// The attempted operation: "write to", "rename".
    pub action: &'static str,
    pub path: PathBuf,
    #[source]
    pub error: io::Error,
    /// An fsync failed. The data may be lost whatever the error is, and a later fsync that succeeds
    /// proves nothing.
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

    /// A failed fsync or writeback.
    pub fn fsync(path: &Path, error: io::Error) -> Self {
        Self {
            is_failed_fsync: true,
            ..Self::new("force to disk", path, error)
        }
    }

    /// The cause, as far as the disk is concerned. This is the only place that decides it.
    pub fn cause(&self) -> StorageErrorCause {
        // Pages may be lost whatever the error is: a device error can be reported as any of them.
        if self.is_failed_fsync {
            return StorageErrorCause::Failed;
        }
        StorageErrorCause::of(&self.error)
    }

    /// The disk is fine and the operation can be retried: the directory stays online.
    pub fn is_temporary(&self) -> bool {
        self.cause() != StorageErrorCause::Failed
    }

    /// No file handle or memory is left, or the call was interrupted.
    pub fn is_lack_of_resources(&self) -> bool {
        self.cause() == StorageErrorCause::OutOfResources
    }

    /// No space or quota is left: appends are refused, reads and deletes continue.
    pub fn is_disk_full(&self) -> bool {
        self.cause() == StorageErrorCause::DiskFull
    }
}

/// The meaning of a failed file operation for the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StorageErrorCause {
    /// No space or quota is left.
    DiskFull,
    /// No file handle or memory is left, or the call was interrupted or must be retried (`EAGAIN`).
    OutOfResources,
    /// Anything else. The page cache and the disk may differ: the directory goes offline.
    Failed,
}

impl StorageErrorCause {
    /// Classifies an error of any call except an fsync.
    pub fn of(error: &io::Error) -> StorageErrorCause {
        const LACKING: [Errno; 5] = [
            Errno::MFILE,
            Errno::NFILE,
            Errno::NOMEM,
            Errno::AGAIN,
            Errno::INTR,
        ];
        let errno = error.raw_os_error().map(Errno::from_raw_os_error);
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                StorageErrorCause::DiskFull
            }
            io::ErrorKind::OutOfMemory | io::ErrorKind::Interrupted => {
                StorageErrorCause::OutOfResources
            }
            _ if errno.is_some_and(|errno| LACKING.contains(&errno)) => {
                StorageErrorCause::OutOfResources
            }
            _ => StorageErrorCause::Failed,
        }
    }
}

/// An append that failed entirely or from some batch on.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct AppendError {
    /// Number of leading batches that are in the log and visible nevertheless.
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
    /// The disk is full, or a file handle or memory is missing. A short write has been cut off
    /// again; the log is unchanged, and a later append may succeed.
    #[error("{0}")]
    Temporary(StorageError),
    /// The directory must go offline: the write failed, or a short write could not be cut off.
    #[error(transparent)]
    Storage(StorageError),
}

impl AppendErrorReason {
    /// Classifies a failed operation by its consequence for the directory.
    pub(crate) fn from_storage(error: StorageError) -> Self {
        if error.is_temporary() {
            AppendErrorReason::Temporary(error)
        } else {
            AppendErrorReason::Storage(error)
        }
    }

    /// The error code of Kafka's produce response.
    pub fn error_code(&self) -> ErrorCode {
        match self {
            AppendErrorReason::LargerThanSegment { .. } => ErrorCode::RecordListTooLarge,
            AppendErrorReason::UnexpectedOffset { .. }
            | AppendErrorReason::InvalidOffsets { .. } => ErrorCode::UnknownServerError,
            AppendErrorReason::Temporary(_) | AppendErrorReason::Storage(_) => {
                ErrorCode::KafkaStorageError
            }
        }
    }
}

/// A failed read.
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
    /// A batch cannot be read. Only this partition is affected.
    #[error("segment {segment_base_offset} is corrupt: {reason}")]
    Corrupt {
        segment_base_offset: Offset,
        reason: String,
    },
    /// A record exceeds `max.decompressed.message.bytes`. Only of lookups by time.
    #[error("segment {segment_base_offset}: {reason}")]
    RecordTooLarge {
        segment_base_offset: Offset,
        reason: String,
    },
    #[error(transparent)]
    Storage(StorageError),
    /// Only of [`LogReader::read_cached`](crate::LogReader::read_cached).
    #[error("the position cannot be determined from memory")]
    NotCached,
}

impl ReadError {
    pub fn error_code(&self) -> ErrorCode {
        match self {
            ReadError::OffsetOutOfRange { .. } => ErrorCode::OffsetOutOfRange,
            ReadError::Corrupt { .. } => ErrorCode::CorruptMessage,
            ReadError::RecordTooLarge { .. } => ErrorCode::InvalidRecord,
            ReadError::Storage(_) | ReadError::NotCached => ErrorCode::KafkaStorageError,
        }
    }
}

/// An unusable checkpoint file.
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

impl LogError {
    /// The failed file operation; `None` if a file has invalid content.
    pub fn storage(&self) -> Option<&StorageError> {
        match self {
            LogError::Storage(error) | LogError::Checkpoint(CheckpointError::Storage(error)) => {
                Some(error)
            }
            LogError::Checkpoint(CheckpointError::Malformed { .. }) => None,
        }
    }
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
    fn process_limits_are_no_failure_of_the_disk() {
        use rustix::io::Errno;
        let path = Path::new("x");
        for errno in [
            Errno::MFILE,
            Errno::NFILE,
            Errno::NOMEM,
            Errno::INTR,
            Errno::AGAIN,
        ] {
            assert!(StorageError::new("open", path, errno.into()).is_lack_of_resources());
            assert!(!StorageError::fsync(path, errno.into()).is_temporary());
        }
        let full = StorageError::new("write", path, Errno::NOSPC.into());
        assert!(full.is_temporary() && !full.is_lack_of_resources());
        assert!(!StorageError::new("open", path, Errno::IO.into()).is_temporary());
    }
}
