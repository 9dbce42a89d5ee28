//! The records of `__transaction_state`, in the versions that Kafka 4.3.1 writes.
//! Source: `TransactionLog`.

use std::collections::BTreeMap;

use bytes::Bytes;
use bytestring::ByteString;
use ottla_protocol::EncodeError;
use ottla_protocol::coordinator_records::transaction_log_value::PartitionsSchema;
use ottla_protocol::coordinator_records::{
    TransactionLogKey, TransactionLogValue, TransactionRecordKey, TransactionRecordValue,
};
use ottla_types::{ProducerEpoch, ProducerId, TopicName, TopicPartition};

use super::metadata::Transaction;
use super::state::TransactionState;
use crate::runtime::EncodeRecord;

/// From this `transaction.version` on, values are written in version 1, which has tagged fields.
pub(super) const FLEXIBLE_VALUES: i16 = 1;

/// A transition of one transactional id. Without a transaction it is a tombstone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TransactionLogRecord {
    pub transactional_id: ByteString,
    pub transaction: Option<Transaction>,
    /// The finalized `transaction.version` of the cluster.
    pub transaction_version: i16,
}

impl EncodeRecord for TransactionLogRecord {
    fn encode(&self) -> Result<(Bytes, Option<Bytes>), EncodeError> {
        let key = TransactionRecordKey::TransactionLog(TransactionLogKey {
            transactional_id: self.transactional_id.clone(),
        });
        let version = if self.transaction_version >= FLEXIBLE_VALUES {
            1
        } else {
            0
        };
        let value = match &self.transaction {
            None => None,
            Some(transaction) => {
                let value = TransactionRecordValue::TransactionLog(value_of(transaction, version));
                Some(value.encode(version)?)
            }
        };
        Ok((key.encode()?, value))
    }
}

fn value_of(transaction: &Transaction, version: i16) -> TransactionLogValue {
    let mut value = TransactionLogValue {
        producer_id: transaction.producer_id.value(),
        producer_epoch: transaction.producer_epoch.value(),
        transaction_timeout_ms: transaction.timeout_ms,
        transaction_status: transaction.state.id(),
        transaction_partitions: partitions_of(transaction),
        transaction_last_update_timestamp_ms: transaction.last_update_timestamp_ms,
        transaction_start_timestamp_ms: transaction.start_timestamp_ms,
        ..Default::default()
    };
    if version > 0 {
        value.previous_producer_id = transaction.previous_producer_id.value();
        value.next_producer_id = transaction.next_producer_id.value();
        value.client_transaction_version = transaction.client_transaction_version;
    }
    value
}

/// `None` if the state has no transaction with partitions.
fn partitions_of(transaction: &Transaction) -> Option<Vec<PartitionsSchema>> {
    if transaction.state == TransactionState::Empty {
        return None;
    }
    let mut by_topic: BTreeMap<&TopicName, Vec<i32>> = BTreeMap::new();
    for partition in &transaction.partitions {
        let of_topic = by_topic.entry(&partition.topic).or_default();
        of_topic.push(partition.partition.value());
    }
    let schemas = by_topic
        .into_iter()
        .map(|(topic, partition_ids)| PartitionsSchema {
            topic: topic.clone(),
            partition_ids,
            ..Default::default()
        });
    Some(schemas.collect())
}

/// `None` for an unknown state.
pub(super) fn transaction_of(value: &TransactionLogValue) -> Option<Transaction> {
    let state = TransactionState::from_id(value.transaction_status)?;
    let schemas = value.transaction_partitions.iter().flatten();
    let partitions = schemas
        .filter(|_| state != TransactionState::Empty)
        .flat_map(|schema| {
            let topic = ByteString::from(schema.topic.to_string());
            schema
                .partition_ids
                .iter()
                .map(move |index| TopicPartition::new(topic.clone(), *index))
        });
    Some(Transaction {
        producer_id: ProducerId(value.producer_id),
        previous_producer_id: ProducerId(value.previous_producer_id),
        next_producer_id: ProducerId(value.next_producer_id),
        producer_epoch: ProducerEpoch(value.producer_epoch),
        last_producer_epoch: ProducerEpoch::NONE,
        timeout_ms: value.transaction_timeout_ms,
        state,
        partitions: partitions.collect(),
        start_timestamp_ms: value.transaction_start_timestamp_ms,
        last_update_timestamp_ms: value.transaction_last_update_timestamp_ms,
        client_transaction_version: value.client_transaction_version,
    })
}
