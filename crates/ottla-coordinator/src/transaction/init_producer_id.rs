//! InitProducerId with a transactional id: a new instance of the producer gets the next epoch,
//! which fences earlier instances and ends the transaction that they left open. Source:
//! `TransactionCoordinator.handleInitProducerId` and `prepareInitProducerIdTransit`; KIP-98,
//! KIP-360 (recovery after an error), KIP-939 (two-phase commit).

use bytestring::ByteString;
use ottla_types::{ErrorCode, Timestamp};

use super::coordinator::{
    AwaitingProducerId, Continuation, Effects, EndAnswer, TransactionCoordinator,
};
use super::metadata::{Transaction, TransactionMetadata, is_epoch_exhausted};
use super::outcome::{InitProducerIdResult, Outcome};
use super::requests::InitProducerId;
use super::state::TransactionState;
use crate::runtime::{ReplyTo, TransactionalProducer};

impl TransactionCoordinator {
    pub fn handle_init_producer_id(
        &mut self,
        to: ReplyTo<InitProducerIdResult>,
        request: InitProducerId,
        now: Timestamp,
    ) -> Outcome {
        let mut effects = self.effects();
        match self.validate_init(&request) {
            Ok(()) => self.init_producer_id(to, request, now, &mut effects),
            Err(error) => effects.reply(to, Err(error)),
        }
        self.finish(effects)
    }

    fn validate_init(&self, request: &InitProducerId) -> Result<(), ErrorCode> {
        let timeout_ms = request.transaction_timeout_ms;
        if request.transactional_id.is_empty() {
            Err(ErrorCode::InvalidRequest)
        } else if request.enable_two_phase_commit
            && !self.config.transaction_two_phase_commit_enable
        {
            Err(ErrorCode::TransactionalIdAuthorizationFailed)
        } else if request.keep_prepared_transaction {
            // Kafka 4.3 accepts the flag and does not implement it.
            Err(ErrorCode::UnsupportedVersion)
        } else if !request.enable_two_phase_commit
            && !(1..=self.config.transaction_max_timeout_ms).contains(&timeout_ms)
        {
            Err(ErrorCode::InvalidTransactionTimeout)
        } else {
            Ok(())
        }
    }

    pub(super) fn init_producer_id(
        &mut self,
        to: ReplyTo<InitProducerIdResult>,
        request: InitProducerId,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let timeout_ms = if request.enable_two_phase_commit {
            i32::MAX
        } else {
            request.transaction_timeout_ms
        };
        let id = request.transactional_id.clone();
        let needs_producer_id = match self.transactions.get(&id) {
            None => true,
            Some(metadata) => match check(metadata, request.expected) {
                Err(error) => {
                    effects.reply(to, Err(error));
                    return;
                }
                Ok(()) if metadata.transaction.state == TransactionState::Ongoing => {
                    let again = || AwaitingProducerId::Init(to, request);
                    return self.fence_and_abort(id, EndAnswer::Init(to), again, now, effects);
                }
                Ok(()) => needs_rotation(metadata, request.expected),
            },
        };
        let expected = request.expected;
        let mut producer_id = None;
        if needs_producer_id {
            producer_id = self.take_producer_id(|| AwaitingProducerId::Init(to, request), effects);
            if producer_id.is_none() {
                return;
            }
        }
        let prepared = self.prepare_init(&id, timeout_ms, expected, producer_id, now.value());
        match prepared {
            Ok(next) => self.write_step(&id, next, Continuation::AnswerInit(Some(to)), effects),
            Err(error) => effects.reply(to, Err(error)),
        }
    }

    fn prepare_init(
        &mut self,
        transactional_id: &ByteString,
        timeout_ms: i32,
        expected: Option<TransactionalProducer>,
        producer_id: Option<ottla_types::ProducerId>,
        now_ms: i64,
    ) -> Result<Transaction, ErrorCode> {
        let expected_epoch = expected.map(|producer| producer.epoch);
        let Some(metadata) = self.transactions.get_mut(transactional_id) else {
            let producer_id = producer_id.ok_or(ErrorCode::UnknownServerError)?;
            // Copied, so that it does not keep the buffer of the request in memory.
            let id = ByteString::from(transactional_id.to_string());
            let transaction = Transaction::new(producer_id, timeout_ms, now_ms);
            let metadata = TransactionMetadata::new(id.clone(), transaction);
            let metadata = self.transactions.entry(id).or_insert(metadata);
            return metadata.prepare_increment_producer_epoch(timeout_ms, expected_epoch, now_ms);
        };
        match producer_id {
            Some(producer_id) => metadata.prepare_producer_id_rotation(
                producer_id,
                timeout_ms,
                expected.is_some(),
                now_ms,
            ),
            None => metadata.prepare_increment_producer_epoch(timeout_ms, expected_epoch, now_ms),
        }
    }
}

/// Whether the producer can get another epoch now.
fn check(
    metadata: &TransactionMetadata,
    expected: Option<TransactionalProducer>,
) -> Result<(), ErrorCode> {
    let current = &metadata.transaction;
    if metadata.has_pending() {
        return Err(ErrorCode::ConcurrentTransactions);
    }
    if let Some(expected) = expected {
        // Without an epoch the id is new: the producer's id had expired. A producer with the
        // previous id missed the response with the current one.
        let is_known = current.producer_epoch.value() < 0
            || expected.id == current.producer_id
            || (expected.id == current.previous_producer_id && is_epoch_exhausted(expected.epoch));
        if !is_known {
            return Err(ErrorCode::ProducerFenced);
        }
    }
    match current.state {
        TransactionState::PrepareAbort | TransactionState::PrepareCommit => {
            Err(ErrorCode::ConcurrentTransactions)
        }
        TransactionState::Empty
        | TransactionState::CompleteAbort
        | TransactionState::CompleteCommit
        | TransactionState::Ongoing => Ok(()),
        // Never in a log that a coordinator has written.
        TransactionState::Dead | TransactionState::PrepareEpochFence => {
            Err(ErrorCode::UnknownServerError)
        }
    }
}

fn needs_rotation(metadata: &TransactionMetadata, expected: Option<TransactionalProducer>) -> bool {
    let current = &metadata.transaction;
    current.is_epoch_exhausted()
        && expected.is_none_or(|expected| expected.epoch == current.producer_epoch)
}
