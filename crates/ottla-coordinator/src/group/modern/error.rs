//! Errors in responses to members.

use ottla_types::ErrorCode;

/// An error code with its message. Clients show the message to people, so it is exactly Kafka's.
/// Without one, clients show the default message of the code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupError {
    pub error: ErrorCode,
    pub message: Option<String>,
}

impl GroupError {
    pub fn new(error: ErrorCode, message: impl Into<String>) -> Self {
        GroupError {
            error,
            message: Some(message.into()),
        }
    }
}

impl From<ErrorCode> for GroupError {
    fn from(error: ErrorCode) -> Self {
        GroupError {
            error,
            message: None,
        }
    }
}
