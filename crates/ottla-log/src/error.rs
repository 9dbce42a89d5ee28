//! What can go wrong with a log, one small enum for each operation.

use std::io;
use std::path::{Path, PathBuf};

use ottla_types::{ErrorCode, Offset};
use rustix::io::Errno;

/// An operation on a file that failed. What that means for the directory that holds it, [`StorageError::cause`] says.
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

    /// What the failure says of the disk: the one place where that is decided.
    pub fn cause(&self) -> StorageErrorCause {
        // Whatever it is, pages that were not written may be gone: an error of the device comes back as any of them.
        if self.is_failed_fsync {
            return StorageErrorCause::Failed;
        }
        StorageErrorCause::of(&self.error)
    }

    /// Nothing is wrong with the disk, and the operation can be tried again: the directory stays online.
    pub fn is_temporary(&self) -> bool {
        self.cause() != StorageErrorCause::Failed
    }

    /// No handle or memory is left, or the call was interrupted.
    pub fn is_lack_of_resources(&self) -> bool {
        self.cause() == StorageErrorCause::OutOfResources
    }

    /// No space or quota left: appends are refused, but what is there stays readable and deletable.
    pub fn is_disk_full(&self) -> bool {
        self.cause() == StorageErrorCause::DiskFull
    }
}

/// What a failed operation on a file says of the disk that it lies on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StorageErrorCause {
    /// No space or quota is left.
    DiskFull,
    /// The process or the machine has no file handle or memory left, or the call was interrupted or is to be made again.
    OutOfResources,
    /// Anything else. What the page cache holds may not be what the disk holds: the directory goes offline.
    Failed,
}

impl StorageErrorCause {
    /// Of anything but a call that forces something to disk.
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
    /// The disk is full, or a handle or memory is lacking. The bytes of a short write have been cut off again; the log
    /// is as it was, and a later append may succeed.
    #[error("{0}")]
    Temporary(StorageError),
    /// The directory must go offline: the write failed, or what it left could not be cut off.
    #[error(transparent)]
    Storage(StorageError),
}

impl AppendErrorReason {
    /// Sorts a failed operation by what must happen to the directory.
    pub(crate) fn from_storage(error: StorageError) -> Self {
        if error.is_temporary() {
            AppendErrorReason::Temporary(error)
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
            AppendErrorReason::Temporary(_) | AppendErrorReason::Storage(_) => {
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

impl LogError {
    /// The operation on a file that failed; `None` where a file holds what it must not.
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
    fn what_a_process_runs_out_of_is_no_failure_of_the_disk() {
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
