//! Completion of a transaction whose end is committed: a marker in each of its partitions, and then
//! the record of its completion.
//!
//! While the markers are being written, the final transition of the id is already pending, which
//! blocks every other request. Partitions with a written marker are removed from the transaction. A
//! coordinator that loads the log sends all markers again. Source:
//! `TransactionMarkerChannelManager`, `TransactionMarkerRequestCompletionHandler`.

use bytestring::ByteString;
use ottla_types::{ErrorCode, Timestamp, TopicPartition};

use super::coordinator::{Continuation, Effects, EndAnswer, TransactionCoordinator};
use super::metadata::{EPOCH_RAISED_AT_END, Transaction, TransactionMetadata};
use super::outcome::{Command, Markers, Outcome};
use super::state::TransactionState;
use crate::planted::{self, Bug};
use crate::runtime::{TransactionEnd, TransactionalProducer};

impl TransactionCoordinator {
    /// The decision to end the transaction is committed. The requester is answered now, because the
    /// end can no longer be prevented.
    pub(super) fn send_markers(
        &mut self,
        transactional_id: &ByteString,
        answer: EndAnswer,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let begun = self.begin_completion(transactional_id, now, effects);
        match (answer, begun) {
            (EndAnswer::EndTxn(to), Ok(completed)) => {
                let raises_epoch = completed.client_transaction_version >= EPOCH_RAISED_AT_END;
                let producer = raises_epoch.then(|| completed.producer());
                effects.reply(to, Ok(producer));
            }
            (EndAnswer::EndTxn(to), Err(error)) => effects.reply(to, Err(error)),
            (EndAnswer::Init(to), Ok(_)) => {
                let again = ErrorCode::ConcurrentTransactions;
                effects.reply(to, Err(again));
            }
            (EndAnswer::Init(to), Err(error)) => {
                effects.reply(to, Err(error));
            }
            (EndAnswer::NoClient, _) => {}
        }
    }

    /// Resumes transactions that were ending when the previous coordinator lost the partition.
    pub(super) fn resume_completions(&mut self, now: Timestamp, effects: &mut Effects) {
        let is_ending = |metadata: &&TransactionMetadata| {
            matches!(
                metadata.transaction.state,
                TransactionState::PrepareCommit | TransactionState::PrepareAbort
            )
        };
        let ending = self.transactions.values().filter(is_ending);
        let mut ending: Vec<_> = ending.map(|it| it.transactional_id.clone()).collect();
        ending.sort();
        for transactional_id in ending {
            // A transaction that cannot be completed stays as recorded.
            let _ = self.begin_completion(&transactional_id, now, effects);
        }
    }

    fn begin_completion(
        &mut self,
        transactional_id: &ByteString,
        now: Timestamp,
        effects: &mut Effects,
    ) -> Result<Transaction, ErrorCode> {
        let coordinator_epoch = self.coordinator_epoch;
        let metadata = self
            .transactions
            .get_mut(transactional_id)
            .ok_or(ErrorCode::UnknownServerError)?;
        let completed = metadata.prepare_complete(now.value())?;
        let current = &metadata.transaction;
        if current.partitions.is_empty() {
            self.write_step(
                transactional_id,
                completed.clone(),
                Continuation::Nothing,
                effects,
            );
        } else {
            let partitions = current.partitions.iter().cloned().collect();
            let markers = markers(metadata, coordinator_epoch, partitions);
            effects.command(Command::SendMarkers(markers));
        }
        Ok(completed)
    }

    /// The leaders of some partitions have answered, with an error or success. A partition that no
    /// longer exists needs no marker.
    pub fn on_markers_answered(
        &mut self,
        transactional_id: &ByteString,
        producer: TransactionalProducer,
        answers: &[(TopicPartition, ErrorCode)],
        now: Timestamp,
    ) -> Outcome {
        let mut effects = self.effects();
        self.take_answers(transactional_id, producer, answers, now, &mut effects);
        self.finish(effects)
    }

    fn take_answers(
        &mut self,
        transactional_id: &ByteString,
        producer: TransactionalProducer,
        answers: &[(TopicPartition, ErrorCode)],
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let coordinator_epoch = self.coordinator_epoch;
        let Some(metadata) = self.transactions.get_mut(transactional_id) else {
            return;
        };
        let is_awaited = is_completing(metadata)
            && metadata.transaction.producer() == producer
            && !metadata.transaction.partitions.is_empty();
        if !is_awaited {
            return;
        }
        let mut again = Vec::new();
        for (partition, error) in answers {
            match error {
                ErrorCode::None
                // The producer cannot have written to such a partition.
                | ErrorCode::UnsupportedForMessageFormat
                | ErrorCode::UnsupportedVersion => {
                    metadata.transaction.partitions.remove(partition);
                }
                // Another coordinator or another producer has taken over, so this completion is
                // obsolete.
                ErrorCode::InvalidProducerEpoch | ErrorCode::TransactionCoordinatorFenced => return,
                _ if planted::has(Bug::CompleteWithoutMarkers) => {
                    metadata.transaction.partitions.remove(partition);
                }
                _ => again.push(partition.clone()),
            }
        }
        if !again.is_empty() {
            let markers = markers(metadata, coordinator_epoch, again);
            effects.command(Command::SendMarkers(markers));
        }
        if metadata.transaction.partitions.is_empty() {
            self.complete_again(transactional_id, now, effects);
        }
    }

    /// Retries the record of a completed transaction whose markers are written.
    pub(super) fn complete_again(
        &mut self,
        transactional_id: &ByteString,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let Some(metadata) = self.transactions.get_mut(transactional_id) else {
            return;
        };
        if !is_completing(metadata) || !metadata.transaction.partitions.is_empty() {
            return;
        }
        metadata.give_up_transition();
        if let Ok(completed) = metadata.prepare_complete(now.value()) {
            self.write_step(transactional_id, completed, Continuation::Nothing, effects);
        }
    }
}

fn is_completing(metadata: &TransactionMetadata) -> bool {
    matches!(
        metadata.pending_state,
        Some(TransactionState::CompleteCommit | TransactionState::CompleteAbort)
    )
}

fn markers(
    metadata: &TransactionMetadata,
    coordinator_epoch: i32,
    partitions: Vec<TopicPartition>,
) -> Markers {
    let current = &metadata.transaction;
    Markers {
        transactional_id: metadata.transactional_id.clone(),
        producer: current.producer(),
        end: TransactionEnd {
            is_commit: current.state == TransactionState::PrepareCommit,
            coordinator_epoch,
            transaction_version: current.client_transaction_version,
        },
        partitions,
    }
}
