//! Why a request of a member was refused, as the member is told.

use ottla_types::ErrorCode;

/// An error with the text that goes with it. Clients show the text to people, so that it is Kafka's to the letter; without
/// one the client shows the code's own.
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
