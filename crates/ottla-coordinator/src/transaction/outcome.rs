//! What the coordinator of transactions asks of its shell.

use bytestring::ByteString;
use ottla_types::{ErrorCode, TopicPartition};

use super::record::TransactionLogRecord;
use crate::runtime;
use crate::runtime::{TransactionEnd, TransactionalProducer, responses};

pub type Outcome = runtime::CoordinatorResult<TransactionLogRecord, Response, TimerKey, Command>;

pub type InitProducerIdResult = Result<TransactionalProducer, ErrorCode>;
/// The producer's id and epoch from now on, where the end of the transaction has raised the epoch.
pub type EndTxnResult = Result<Option<TransactionalProducer>, ErrorCode>;

responses! {
    /// What a handler is answered; how the wire says it is the shell's.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum Response {
        InitProducerId(InitProducerIdResult),
        AddPartitions(ErrorCode),
        EndTxn(EndTxnResult),
    }
}

/// What a timer is for.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum TimerKey {
    /// Transactions that have run too long are looked for.
    AbortTimedOut,
    /// Ids that have expired are looked for.
    RemoveExpired,
    /// The end of a transaction could not be written, and is written again.
    Completion { transactional_id: ByteString },
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// A producer id of the cluster is wanted: answered by one `on_producer_id`.
    AllocateProducerId,
    /// Markers are to be written by the leaders of these partitions: answered by `on_markers_answered`,
    /// in parts or together, until each partition has had its answer.
    SendMarkers(Markers),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Markers {
    pub transactional_id: ByteString,
    pub producer: TransactionalProducer,
    pub end: TransactionEnd,
    pub partitions: Vec<TopicPartition>,
}

/// What a client is told when a step of its transaction could not be written.
/// Source: `TransactionStateManager.appendTransactionToLog`.
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
