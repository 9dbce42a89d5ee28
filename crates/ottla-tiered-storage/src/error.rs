//! What goes wrong with a store. The message names the operation, the object and the cause.

use std::fmt;

use ottla_sync::task;

/// Kinds of failure that callers treat differently.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RemoteStorageErrorKind {
    /// The object does not exist (`RemoteResourceNotFoundException`).
    NotFound,
    /// The segment exists, and was uploaded without this index.
    NoIndex,
    /// The store did not answer in time, or is overloaded (429, 5xx). Worth another attempt.
    Unavailable,
    /// The store refused the credentials or the operation.
    Denied,
    /// The object exists, but its bytes differ from the uploaded ones.
    Damaged,
    /// A local file of the segment, or of the cache, could not be read or written.
    LocalFile,
    /// A setting, or a key that the settings do not name.
    Settings,
}

/// A failed operation of a [`RemoteStorageManager`](crate::RemoteStorageManager)
/// (`RemoteStorageException`).
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub struct RemoteStorageError {
    pub kind: RemoteStorageErrorKind,
    /// The verb and the object: `fetch s3://bucket/key`.
    pub what: String,
    pub cause: String,
}

impl fmt::Display for RemoteStorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.cause)
    }
}

impl RemoteStorageError {
    pub fn new(
        kind: RemoteStorageErrorKind,
        what: impl Into<String>,
        cause: impl fmt::Display,
    ) -> RemoteStorageError {
        RemoteStorageError {
            kind,
            what: what.into(),
            cause: cause.to_string(),
        }
    }

    pub fn damaged(object: &str, cause: impl fmt::Display) -> RemoteStorageError {
        let what = format!("read {object}");
        RemoteStorageError::new(RemoteStorageErrorKind::Damaged, what, cause)
    }

    pub fn local(path: &std::path::Path, verb: &str, error: &std::io::Error) -> RemoteStorageError {
        let what = format!("{verb} {}", path.display());
        RemoteStorageError::new(RemoteStorageErrorKind::LocalFile, what, error)
    }

    pub fn settings(setting: &str, cause: impl fmt::Display) -> RemoteStorageError {
        RemoteStorageError::new(RemoteStorageErrorKind::Settings, setting, cause)
    }

    /// A part of the work ran as a task, which has not ended by itself. Tasks are cancelled if the threads
    /// end because the process does. If the task has panicked, the panic continues in the caller.
    pub fn cancelled(what: impl Into<String>, error: task::JoinError) -> RemoteStorageError {
        if error.is_panic() {
            std::panic::resume_unwind(error.into_panic());
        }
        RemoteStorageError::new(
            RemoteStorageErrorKind::Unavailable,
            what,
            "the broker stops",
        )
    }

    /// Whether the same operation may succeed later without intervention.
    pub fn is_retriable(&self) -> bool {
        self.kind == RemoteStorageErrorKind::Unavailable
    }
}
