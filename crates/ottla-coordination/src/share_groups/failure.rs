//! Why a partition of a request about share groups has failed.

use bytestring::ByteString;
use ottla_coordinator::persister::StateFailure;
use ottla_types::ErrorCode;

/// Why a partition of a member's request has failed. What its share partition has to say is told with a message, and what is
/// refused before one is asked only with its code (`KafkaApis.handleShareFetchRequest`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionFailure {
    pub code: ErrorCode,
    pub message: Option<ByteString>,
}

impl PartitionFailure {
    pub fn refused(code: ErrorCode) -> Self {
        PartitionFailure {
            code,
            message: None,
        }
    }
}

impl From<StateFailure> for PartitionFailure {
    fn from(failure: StateFailure) -> Self {
        PartitionFailure {
            code: failure.code,
            message: Some(failure.message),
        }
    }
}

/// Of a task that panicked, which has been reported where it happened.
pub fn panicked() -> StateFailure {
    ErrorCode::UnknownServerError.into()
}
