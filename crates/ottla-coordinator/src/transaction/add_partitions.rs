//! AddPartitionsToTxn and AddOffsetsToTxn: adding partitions to a transaction, and verifying that
//! they are part of it. Source: `TransactionCoordinator.handleAddPartitionsToTransaction` and
//! `handleVerifyPartitionsInTransaction`; KIP-890 (verification).

use bytestring::ByteString;
use ottla_types::{ErrorCode, Timestamp, TopicPartition};

use super::coordinator::{Continuation, TransactionCoordinator};
use super::metadata::{Transaction, TransactionMetadata};
use super::outcome::Outcome;
use super::requests::AddPartitions;
use super::state::TransactionState;
use crate::planted::{self, Bug};
use crate::runtime::{ReplyTo, TransactionalProducer};

impl TransactionCoordinator {
    /// The partitions must exist, or belong to `__consumer_offsets`.
    pub fn handle_add_partitions(
        &mut self,
        to: ReplyTo<ErrorCode>,
        request: AddPartitions,
        now: Timestamp,
    ) -> Outcome {
        let mut effects = self.effects();
        let id = request.transactional_id.clone();
        match self.prepare_add(request, now.value()) {
            Ok(Some(next)) => {
                self.write_step(&id, next, Continuation::AnswerAdd(Some(to)), &mut effects)
            }
            Ok(None) => effects.reply(to, ErrorCode::None),
            Err(error) => effects.reply(to, error),
        }
        self.finish(effects)
    }

    /// `None` if the partitions are already part of the transaction.
    fn prepare_add(
        &mut self,
        request: AddPartitions,
        now_ms: i64,
    ) -> Result<Option<Transaction>, ErrorCode> {
        if request.transactional_id.is_empty() {
            return Err(ErrorCode::InvalidRequest);
        }
        let version = request.client_transaction_version;
        let may_write_version = self.may_write_version_of_client(version);
        let metadata = self
            .transactions
            .get_mut(&request.transactional_id)
            .ok_or(ErrorCode::InvalidProducerIdMapping)?;
        // Checked first: the producer may already use an id that the pending transition assigns to
        // it.
        if metadata.has_pending() {
            return Err(ErrorCode::ConcurrentTransactions);
        }
        check_producer(metadata, request.producer)?;
        let current = &metadata.transaction;
        let is_known = |partition| current.partitions.contains(partition);
        if current.state == TransactionState::Ongoing && request.partitions.iter().all(is_known) {
            return Ok(None);
        }
        if !may_write_version {
            return Err(ErrorCode::UnsupportedVersion);
        }
        // Copied, so that they do not keep the buffer of the request in memory.
        let partitions = request.partitions.into_iter().map(|it| TopicPartition {
            topic: ByteString::from(it.topic.to_string()),
            partition: it.partition,
        });
        metadata
            .prepare_add_partitions(partitions, version, now_ms)
            .map(Some)
    }

    /// Whether each of these partitions is part of the producer's open transaction. The log of the
    /// partition makes the final check.
    pub fn verify_partitions(
        &self,
        transactional_id: &str,
        producer: TransactionalProducer,
        partition: &TopicPartition,
    ) -> ErrorCode {
        if transactional_id.is_empty() {
            return ErrorCode::InvalidRequest;
        }
        let Some(metadata) = self.transactions.get(transactional_id) else {
            return ErrorCode::InvalidProducerIdMapping;
        };
        match check_producer(metadata, producer) {
            Err(error) => error,
            Ok(()) if metadata.transaction.partitions.contains(partition) => ErrorCode::None,
            Ok(()) => ErrorCode::TransactionAbortable,
        }
    }
}

fn check_producer(
    metadata: &TransactionMetadata,
    producer: TransactionalProducer,
) -> Result<(), ErrorCode> {
    let current = &metadata.transaction;
    if current.producer_id != producer.id {
        Err(ErrorCode::InvalidProducerIdMapping)
    } else if current.producer_epoch != producer.epoch && !planted::has(Bug::TakeAnyProducerEpoch) {
        Err(ErrorCode::ProducerFenced)
    } else if matches!(
        current.state,
        TransactionState::PrepareCommit | TransactionState::PrepareAbort
    ) {
        Err(ErrorCode::ConcurrentTransactions)
    } else {
        Ok(())
    }
}
