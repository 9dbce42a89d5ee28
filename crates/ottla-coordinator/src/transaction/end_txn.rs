//! EndTxn: the producer commits or aborts. The decision counts when it is committed to the log; the
//! markers follow.
//!
//! Up to version 1 of the protocol the epoch does not change, and only the current epoch can end a
//! transaction. From version 2 on, each end raises the epoch, so that a repeated request is
//! recognized by its epoch. A client that does not know whether it has started a transaction can
//! abort it to be sure:
//!
//! | state          | abort, old epoch | abort, current | commit, old epoch | commit, current |
//! | -------------- | ---------------- | -------------- | ----------------- | --------------- |
//! | Empty          | fenced           | epoch raised   | fenced            | invalid         |
//! | CompleteAbort  | done before      | epoch raised   | invalid           | invalid         |
//! | CompleteCommit | invalid          | epoch raised   | done before       | invalid         |
//!
//! Source: `TransactionCoordinator.endTransaction` and `endTransactionWithTV1`; KIP-890.

use bytestring::ByteString;
use ottla_types::{ErrorCode, ProducerId, Timestamp};

use super::coordinator::{
    AwaitingProducerId, Continuation, Effects, EndAnswer, TransactionCoordinator,
};
use super::metadata::{EPOCH_RAISED_AT_END, TransactionMetadata};
use super::outcome::{EndTxnResult, Outcome};
use super::requests::EndTransaction;
use super::state::TransactionState as State;
use crate::runtime::ReplyTo;

/// The result of a request to end a transaction.
enum Ending {
    Begins {
        has_no_partition: bool,
    },
    /// The same request was executed before.
    DoneBefore,
}

impl TransactionCoordinator {
    pub fn handle_end_txn(
        &mut self,
        to: ReplyTo<EndTxnResult>,
        request: EndTransaction,
        now: Timestamp,
    ) -> Outcome {
        let mut effects = self.effects();
        self.end_txn(to, request, now, &mut effects);
        self.finish(effects)
    }

    pub(super) fn end_txn(
        &mut self,
        to: ReplyTo<EndTxnResult>,
        request: EndTransaction,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let id = request.transactional_id.clone();
        let version = request.client_transaction_version;
        let raises_epoch = version >= EPOCH_RAISED_AT_END;
        let ending = match self.transactions.get(&id) {
            _ if id.is_empty() => Err(ErrorCode::InvalidRequest),
            None => Err(ErrorCode::InvalidProducerIdMapping),
            Some(metadata) if raises_epoch => {
                ending(metadata, &request).map(|ending| (ending, metadata.transaction.producer()))
            }
            Some(metadata) => ending_before_version_2(metadata, &request)
                .map(|ending| (ending, metadata.transaction.producer())),
        };
        let has_no_partition = match ending {
            Err(error) => return effects.reply(to, Err(error)),
            Ok((Ending::DoneBefore, producer)) => {
                let producer = raises_epoch.then_some(producer);
                return effects.reply(to, Ok(producer));
            }
            Ok((Ending::Begins { .. }, _)) if !self.may_write_version_of_client(version) => {
                let refused = Err(ErrorCode::UnsupportedVersion);
                return effects.reply(to, refused);
            }
            Ok((Ending::Begins { has_no_partition }, _)) => has_no_partition,
        };
        let state = if request.is_commit {
            State::PrepareCommit
        } else {
            State::PrepareAbort
        };
        let again = || AwaitingProducerId::End(to, request);
        let Some(next_producer_id) = self.next_producer_id(&id, raises_epoch, again, effects)
        else {
            return;
        };
        let Some(metadata) = self.transactions.get_mut(&id) else {
            return;
        };
        // Before version 2, the client's version is not recorded.
        let version = if raises_epoch { version } else { 0 };
        let prepared = metadata.prepare_abort_or_commit(
            state,
            version,
            next_producer_id,
            has_no_partition,
            now.value(),
        );
        match prepared {
            Ok(next) => {
                let then = Continuation::SendMarkers {
                    answer: EndAnswer::EndTxn(to),
                    is_epoch_fence: false,
                };
                self.write_step(&id, next, then, effects);
            }
            Err(error) => effects.reply(to, Err(error)),
        }
    }

    /// Aborts the open transaction of a producer and fences the producer, because a new instance
    /// has started or the timeout is over.
    pub(super) fn fence_and_abort(
        &mut self,
        transactional_id: ByteString,
        answer: EndAnswer,
        again: impl FnOnce() -> AwaitingProducerId,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        // There is no client, so the cluster's version applies.
        let raises_epoch = self.transaction_version >= EPOCH_RAISED_AT_END;
        let Some(next_producer_id) =
            self.next_producer_id(&transactional_id, raises_epoch, again, effects)
        else {
            return;
        };
        let version = if raises_epoch {
            self.transaction_version
        } else {
            0
        };
        let Some(metadata) = self.transactions.get_mut(&transactional_id) else {
            return;
        };
        if !raises_epoch {
            metadata.raise_epoch_to_fence();
        }
        let prepared = metadata.prepare_abort_or_commit(
            State::PrepareAbort,
            version,
            next_producer_id,
            false,
            now.value(),
        );
        match prepared {
            Ok(next) => {
                let then = Continuation::SendMarkers {
                    answer,
                    is_epoch_fence: !raises_epoch,
                };
                self.write_step(&transactional_id, next, then, effects);
            }
            Err(error) => {
                if let EndAnswer::Init(to) = answer {
                    effects.reply(to, Err(error));
                }
            }
        }
    }

    /// The producer id to continue with when the producer's epochs are exhausted; -1 while they are
    /// not. `None` if an allocation must be waited for.
    fn next_producer_id(
        &mut self,
        transactional_id: &str,
        raises_epoch: bool,
        again: impl FnOnce() -> AwaitingProducerId,
        effects: &mut Effects,
    ) -> Option<ProducerId> {
        let metadata = self.transactions.get(transactional_id)?;
        if raises_epoch && metadata.transaction.is_epoch_exhausted() {
            self.take_producer_id(again, effects)
        } else {
            Some(ProducerId::NONE)
        }
    }
}

fn ending(metadata: &TransactionMetadata, request: &EndTransaction) -> Result<Ending, ErrorCode> {
    let current = &metadata.transaction;
    let EndTransaction {
        producer,
        is_commit,
        ..
    } = request;
    // The end of the transaction has moved the producer to another id, and the producer missed the
    // response.
    let is_retry_over_ids = current.previous_producer_id == producer.id
        && producer.epoch.value() == i16::MAX - 1
        && current.producer_epoch.value() == 0;
    let is_retry_of_epoch =
        i32::from(current.producer_epoch.value()) == i32::from(producer.epoch.value()) + 1;
    let is_retry = is_retry_over_ids || is_retry_of_epoch;
    let is_current = producer.epoch == current.producer_epoch;
    let is_valid_epoch = match current.state {
        State::Ongoing | State::Empty | State::Dead | State::PrepareEpochFence => is_current,
        State::PrepareCommit | State::PrepareAbort => is_retry_of_epoch,
        State::CompleteCommit | State::CompleteAbort => is_retry || is_current,
    };
    // Checked first: the producer may already use an id that the pending transition assigns to it.
    if metadata.has_pending() {
        // A client that repeats the end of a transaction must also wait for its completion.
        return Err(ErrorCode::ConcurrentTransactions);
    }
    if current.producer_id != producer.id && !is_retry_over_ids {
        return Err(ErrorCode::InvalidProducerIdMapping);
    }
    if !is_valid_epoch {
        return Err(ErrorCode::ProducerFenced);
    }
    let begins_without_partition = Ok(Ending::Begins {
        has_no_partition: true,
    });
    match (current.state, *is_commit) {
        (State::Ongoing, _) => Ok(Ending::Begins {
            has_no_partition: false,
        }),
        (State::CompleteCommit, true) | (State::CompleteAbort, false) if is_retry => {
            Ok(Ending::DoneBefore)
        }
        (State::CompleteAbort, false) | (State::Empty, false) => begins_without_partition,
        (State::CompleteCommit, false) if !is_retry => begins_without_partition,
        (State::PrepareCommit, true) | (State::PrepareAbort, false) => {
            Err(ErrorCode::ConcurrentTransactions)
        }
        // Never in a log that a coordinator has written.
        (State::Dead | State::PrepareEpochFence, _) => Err(ErrorCode::UnknownServerError),
        _ => Err(ErrorCode::InvalidTxnState),
    }
}

fn ending_before_version_2(
    metadata: &TransactionMetadata,
    request: &EndTransaction,
) -> Result<Ending, ErrorCode> {
    let current = &metadata.transaction;
    if current.producer_id != request.producer.id {
        return Err(ErrorCode::InvalidProducerIdMapping);
    }
    if current.producer_epoch != request.producer.epoch {
        return Err(ErrorCode::ProducerFenced);
    }
    if metadata.has_pending() {
        return Err(ErrorCode::ConcurrentTransactions);
    }
    match (current.state, request.is_commit) {
        (State::Ongoing, _) => Ok(Ending::Begins {
            has_no_partition: false,
        }),
        (State::CompleteCommit, true) | (State::CompleteAbort, false) => Ok(Ending::DoneBefore),
        (State::PrepareCommit, true) | (State::PrepareAbort, false) => {
            Err(ErrorCode::ConcurrentTransactions)
        }
        // Never in a log that a coordinator has written.
        (State::Dead | State::PrepareEpochFence, _) => Err(ErrorCode::UnknownServerError),
        _ => Err(ErrorCode::InvalidTxnState),
    }
}
