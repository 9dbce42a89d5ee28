//! Errors of partitions in share group requests.

use bytestring::ByteString;
use ottla_coordinator::persister::StateFailure;
use ottla_types::ErrorCode;

/// The error of a partition in a member's request. Errors of the share partition have a message;
/// errors detected before it is asked have only a code (`KafkaApis.handleShareFetchRequest`).
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

/// The error of a task that panicked; the panic was reported where it happened.
pub fn panicked() -> StateFailure {
    ErrorCode::UnknownServerError.into()
}
