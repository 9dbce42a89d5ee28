//! The errors for clients whose records could not be appended.

use ottla_types::ErrorCode;

/// Maps an error of the log to the one that clients of a coordinator expect.
/// Source: `CoordinatorOperationExceptionHelper.handleOperationException`.
pub fn error_after_append(error: ErrorCode) -> ErrorCode {
    match error {
        ErrorCode::NetworkException => ErrorCode::CoordinatorLoadInProgress,
        ErrorCode::UnknownTopicOrPartition
        | ErrorCode::NotEnoughReplicas
        | ErrorCode::RequestTimedOut => ErrorCode::CoordinatorNotAvailable,
        ErrorCode::NotLeaderOrFollower | ErrorCode::KafkaStorageError => ErrorCode::NotCoordinator,
        ErrorCode::MessageTooLarge
        | ErrorCode::RecordListTooLarge
        | ErrorCode::InvalidFetchSize => ErrorCode::UnknownServerError,
        other => other,
    }
}
