//! What the share coordinator asks of its shell.

use bytestring::ByteString;
use ottla_types::{ErrorCode, Offset};

use super::record::ShareStateRecord;
use crate::persister::{StateFailure, StateRead, StateSummary};
use crate::runtime;
use crate::runtime::responses;

pub type Outcome = runtime::CoordinatorResult<ShareStateRecord, Response, TimerKey, Command>;

responses! {
    /// What a handler is answered, for one share partition; how the wire says it is the shell's.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum Response {
        /// The state is initialized, written or deleted.
        Done(Result<(), StateError>),
        Read(Result<StateRead, StateError>),
        Summary(Result<StateSummary, StateError>),
    }
}

impl Response {
    /// The same answer after what it rests on could not be written.
    pub(super) fn failed(self, error: ErrorCode) -> Response {
        let error = StateError::from(error);
        match self {
            Response::Done(_) => Response::Done(Err(error)),
            Response::Read(_) => Response::Read(Err(error)),
            Response::Summary(_) => Response::Summary(Err(error)),
        }
    }
}

/// Why a request is refused; the message goes out with the code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StateError {
    pub code: ErrorCode,
    pub message: &'static str,
}

impl StateError {
    pub(super) const NEGATIVE_PARTITION: StateError = StateError {
        code: ErrorCode::InvalidRequest,
        message: "The partition id cannot be a negative number.",
    };
    pub(super) const WRITE_UNINITIALIZED: StateError = StateError {
        code: ErrorCode::InvalidRequest,
        message: "Write operation on uninitialized share partition not allowed.",
    };
    pub(super) const READ_UNINITIALIZED: StateError = StateError {
        code: ErrorCode::InvalidRequest,
        message: "Read operation on uninitialized share partition not allowed.",
    };
}

impl From<ErrorCode> for StateError {
    fn from(code: ErrorCode) -> Self {
        StateError {
            code,
            message: code.message(),
        }
    }
}

impl From<StateError> for StateFailure {
    fn from(error: StateError) -> Self {
        StateFailure {
            code: error.code,
            message: ByteString::from_static(error.message),
        }
    }
}

/// What a timer is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum TimerKey {
    /// What newer snapshots have made redundant is deleted.
    Prune,
    /// Share partitions whose last snapshot is old get a new one, so that the log before it can go.
    SnapshotCold,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// No record before this offset says anything any more.
    DeleteRecordsBefore(Offset),
}
