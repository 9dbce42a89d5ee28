//! Batches of transactions: the first of each is written only after the coordinator has confirmed
//! that this partition is part of the transaction (KIP-890). Until then the producer's batches are
//! set aside; other batches are written.
//!
//! Kafka: `ReplicaManager.maybeStartTransactionVerificationForPartition`,
//! `UnifiedLog.maybeStartTransactionVerification`, `UnifiedLog.batchMissingRequiredVerification`.

use std::sync::Arc;

use ottla_coordinator::TransactionalProducer;
use ottla_log::{AppendOrigin, TransactionStart};
use ottla_records::BatchHeader;
use ottla_replica::AckOutcome;
use ottla_types::{ErrorCode, Sequence};

use crate::partition::append::{OfTransaction, PendingAppend};
use crate::partition::event::{BeginVerification, PartitionEvent, Verified};
use crate::partition::host::PartitionHost;
use crate::partition::producer_transaction::ProducerTransaction;
use crate::partition::{Partition, PartitionState};

impl PartitionState {
    /// Returns the batch if it can be processed now. A batch that has to wait is set aside, and one
    /// whose verification failed is refused.
    pub(super) fn admit(
        &mut self,
        partition: &Arc<Partition>,
        host: &Arc<PartitionHost>,
        append: PendingAppend,
    ) -> Option<PendingAppend> {
        let header = &append.batch.header;
        // A replica that does not lead refuses every append anyway.
        let is_checked = header.has_producer_id()
            && header.is_transactional()
            && !header.is_control()
            && self.replica.is_leader();
        if !is_checked {
            return Some(append);
        }
        match append.of_transaction.clone() {
            OfTransaction::No
            | OfTransaction::Unverified
            | OfTransaction::Verified(_)
            | OfTransaction::Marker(_) => Some(append),
            OfTransaction::Refused(error) => refuse(append, error),
            OfTransaction::ToVerify(transaction) => {
                let sequence = header.base_sequence;
                let producer = transaction.producer;
                if self.lacks_memory(host, header, AppendOrigin::Client) {
                    return refuse(append, ErrorCode::KafkaStorageError);
                }
                let raises_epoch = transaction.adds_partitions();
                match self.begin_verification(host, producer, sequence, raises_epoch) {
                    // Earlier batches of the producer are still waiting.
                    Ok(None) if self.unverified.newest(producer).is_none() => Some(append),
                    Ok(guard) => {
                        partition.inbox.count(append.bytes());
                        if let Some(guard) = self.unverified.wait(producer, guard, append) {
                            ask(partition, host, transaction, guard);
                        }
                        None
                    }
                    Err(error) => refuse(append, error),
                }
            }
        }
    }

    pub(super) fn on_begin_verification(&mut self, host: &PartitionHost, begin: BeginVerification) {
        let BeginVerification {
            producer,
            raises_epoch,
            done,
        } = begin;
        let begun = match self.replica.is_leader() {
            true => self.begin_verification(host, producer, Sequence::NONE, raises_epoch),
            false => Err(ErrorCode::NotLeaderOrFollower),
        };
        // The receiver is gone if the connection was closed.
        let _ = done.send(begun);
    }

    /// Processes the batches that waited for this verification, in order.
    pub(super) fn on_verified(&mut self, verified: Verified) {
        let Verified {
            producer,
            guard,
            result,
        } = verified;
        if let Err(error) = result {
            self.verifications.on_refused(producer.id, guard, error);
        }
        for (guard, mut append) in self.unverified.take_waiting(producer, guard) {
            append.of_transaction = match result {
                Err(error) if guard.is_some() => OfTransaction::Refused(error),
                // The transaction has begun here, so the result does not concern it.
                Ok(()) | Err(_) => OfTransaction::Verified(guard),
            };
            self.held.push(PartitionEvent::Append(append));
        }
    }

    /// `None` if the transaction has begun in this log.
    fn begin_verification(
        &mut self,
        host: &PartitionHost,
        producer: TransactionalProducer,
        sequence: Sequence,
        raises_epoch: bool,
    ) -> Result<Option<u64>, ErrorCode> {
        let start = TransactionStart {
            producer_id: producer.id,
            producer_epoch: producer.epoch,
            sequence,
            raises_epoch,
        };
        let expiration_ms = host.context.config().producer_id_expiration_ms.max(0) as u64;
        let known = self.log.staged_producer(&self.stage, producer.id);
        self.verifications
            .begin(known, start, host.context.now_ms(), expiration_ms)
    }

    /// Checks whether a verified batch continues a transaction of this log or may begin one.
    pub(super) fn check_verified(
        &self,
        header: &BatchHeader,
        of_transaction: &OfTransaction,
        origin: AppendOrigin,
    ) -> Result<(), ErrorCode> {
        let OfTransaction::Verified(guard) = of_transaction else {
            return Ok(());
        };
        let known = self.log.staged_producer(&self.stage, header.producer_id);
        self.verifications.check(known, header, *guard, origin)
    }

    /// Whether a client's batch is the first of its producer here, and the heap is full. Clients
    /// choose producer IDs as they like, and each takes memory in each partition until it expires.
    pub(super) fn lacks_memory(
        &self,
        host: &PartitionHost,
        header: &BatchHeader,
        origin: AppendOrigin,
    ) -> bool {
        let known = || self.log.staged_producer(&self.stage, header.producer_id);
        origin == AppendOrigin::Client
            && host.context.is_heap_full()
            && known().is_none()
            && host.context.check_heap().is_err()
    }
}

fn refuse(append: PendingAppend, error: ErrorCode) -> Option<PendingAppend> {
    append.ack.release(AckOutcome::RefusedForProducer(error));
    None
}

fn ask(
    partition: &Arc<Partition>,
    host: &Arc<PartitionHost>,
    transaction: Arc<ProducerTransaction>,
    guard: u64,
) {
    let producer = transaction.producer;
    let (asking, telling) = (Arc::clone(partition), Arc::clone(host));
    let answer: Box<dyn FnOnce(Result<(), ErrorCode>) + Send> = Box::new(move |result| {
        asking.on_transaction_verified(&telling, producer, guard, result);
    });
    let topic_partition = partition.topic_partition.clone();
    match host.verifier() {
        Some(verifier) => verifier.verify(transaction, topic_partition, answer),
        None => answer(Err(ErrorCode::CoordinatorNotAvailable)),
    }
}
