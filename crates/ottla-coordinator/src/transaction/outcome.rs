//! The types that the transaction coordinator exchanges with its shell.

use bytestring::ByteString;
use ottla_types::{ErrorCode, TopicPartition};

use super::record::TransactionLogRecord;
use crate::runtime;
use crate::runtime::{TransactionEnd, TransactionalProducer, responses};

pub type Outcome = runtime::CoordinatorResult<TransactionLogRecord, Response, TimerKey, Command>;

pub type InitProducerIdResult = Result<TransactionalProducer, ErrorCode>;
/// The producer's new id and epoch, if the end of the transaction has raised the epoch.
pub type EndTxnResult = Result<Option<TransactionalProducer>, ErrorCode>;

responses! {
    /// The response of a handler. The shell converts it to the wire format.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum Response {
        InitProducerId(InitProducerIdResult),
        AddPartitions(ErrorCode),
        EndTxn(EndTxnResult),
    }
}

/// The purpose of a timer.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum TimerKey {
    /// Check for transactions that have exceeded their timeout.
    AbortTimedOut,
    /// Check for expired ids.
    RemoveExpired,
    /// Retry the record of a completed transaction.
    Completion { transactional_id: ByteString },
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// Allocate a producer id. Answered by one `on_producer_id`.
    AllocateProducerId,
    /// Ask the leaders of these partitions to write markers. Answered by `on_markers_answered`,
    /// possibly in parts, until each partition has its result.
    SendMarkers(Markers),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Markers {
    pub transactional_id: ByteString,
    pub producer: TransactionalProducer,
    pub end: TransactionEnd,
    pub partitions: Vec<TopicPartition>,
}

/// The error for a client when a transition of its transaction could not be written. Source:
/// `TransactionStateManager.appendTransactionToLog`.
pub fn error_after_append(error: ErrorCode) -> ErrorCode {
    match error {
        ErrorCode::UnknownTopicOrPartition
        | ErrorCode::NotEnoughReplicas
        | ErrorCode::NotEnoughReplicasAfterAppend
        | ErrorCode::RequestTimedOut => ErrorCode::CoordinatorNotAvailable,
        ErrorCode::NotLeaderOrFollower | ErrorCode::KafkaStorageError => ErrorCode::NotCoordinator,
        ErrorCode::MessageTooLarge | ErrorCode::RecordListTooLarge => ErrorCode::UnknownServerError,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::{ErrorCode as E, error_after_append};

    #[test]
    fn errors_of_the_log_become_errors_of_a_coordinator() {
        for (append, reply) in [
            (E::UnknownTopicOrPartition, E::CoordinatorNotAvailable),
            (E::NotEnoughReplicas, E::CoordinatorNotAvailable),
            (E::NotEnoughReplicasAfterAppend, E::CoordinatorNotAvailable),
            (E::RequestTimedOut, E::CoordinatorNotAvailable),
            (E::NotLeaderOrFollower, E::NotCoordinator),
            (E::KafkaStorageError, E::NotCoordinator),
            (E::MessageTooLarge, E::UnknownServerError),
            (E::RecordListTooLarge, E::UnknownServerError),
            (E::NotCoordinator, E::NotCoordinator),
        ] {
            assert_eq!(error_after_append(append), reply, "{append}");
        }
    }
}
