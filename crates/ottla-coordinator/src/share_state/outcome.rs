//! The types that the share coordinator exchanges with its shell.

use bytestring::ByteString;
use ottla_types::{ErrorCode, Offset};

use super::record::ShareStateRecord;
use crate::persister::{StateFailure, StateRead, StateSummary};
use crate::runtime;
use crate::runtime::responses;

pub type Outcome = runtime::CoordinatorResult<ShareStateRecord, Response, TimerKey, Command>;

responses! {
    /// The response for one share partition. The shell converts it to the wire format.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum Response {
        /// The state was initialized, written or deleted.
        Done(Result<(), StateError>),
        Read(Result<StateRead, StateError>),
        Summary(Result<StateSummary, StateError>),
    }
}

impl Response {
    /// The response when the write that it depends on has failed.
    pub(super) fn failed(self, error: ErrorCode) -> Response {
        let error = StateError::from(error);
        match self {
            Response::Done(_) => Response::Done(Err(error)),
            Response::Read(_) => Response::Read(Err(error)),
            Response::Summary(_) => Response::Summary(Err(error)),
        }
    }
}

/// Why a request is refused. The response contains the message.
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

/// The purpose of a timer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum TimerKey {
    /// Records that newer snapshots have made redundant are deleted.
    Prune,
    /// Share partitions with an old snapshot get a new one, so that the log before it can be
    /// deleted.
    SnapshotCold,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// Records before this offset are redundant.
    DeleteRecordsBefore(Offset),
}
