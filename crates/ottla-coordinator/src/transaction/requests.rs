//! The requests of producers.

use bytestring::ByteString;
use ottla_types::TopicPartition;

use crate::runtime::TransactionalProducer;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InitProducerId {
    pub transactional_id: ByteString,
    pub transaction_timeout_ms: i32,
    pub enable_two_phase_commit: bool,
    pub keep_prepared_transaction: bool,
    /// The id and epoch of a producer that recovers from an error.
    pub expected: Option<TransactionalProducer>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AddPartitions {
    pub transactional_id: ByteString,
    pub producer: TransactionalProducer,
    pub partitions: Vec<TopicPartition>,
    /// The client's `transaction.version`.
    pub client_transaction_version: i16,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndTransaction {
    pub transactional_id: ByteString,
    pub producer: TransactionalProducer,
    pub is_commit: bool,
    /// The client's `transaction.version`.
    pub client_transaction_version: i16,
}
