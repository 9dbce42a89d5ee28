//! What is known of one transactional id, and each step that it can take.
//!
//! A step is prepared, written to the log, and only then taken: until the log has it, `pending_state`
//! keeps every other step away.
//! Invariant: `transaction` is what the log says, except that partitions whose marker is written are
//! taken out of it, and that a failed attempt to fence a producer may have raised its epoch.
//! Source: `TransactionMetadata`, `TxnTransitMetadata`; KIP-98, KIP-360, KIP-890.

use std::collections::BTreeSet;

use bytestring::ByteString;
use ottla_types::{ErrorCode, ProducerEpoch, ProducerId, TopicPartition};

use super::state::TransactionState;
use crate::runtime::TransactionalProducer;

/// The first `transaction.version` in which the end of every transaction raises the producer's epoch.
pub(super) const EPOCH_RAISED_AT_END: i16 = 2;
/// Transactions of this timeout are prepared by somebody else, and have none (KIP-939).
const NO_TIMEOUT: i32 = i32::MAX;

/// A transactional id as one record of the log describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transaction {
    pub producer_id: ProducerId,
    /// The id before the last step: of a producer that repeats a request whose answer it has not seen.
    pub previous_producer_id: ProducerId,
    /// The id that the producer is going to have when the transaction has ended, where its epochs are
    /// used up.
    pub next_producer_id: ProducerId,
    pub producer_epoch: ProducerEpoch,
    /// The epoch before the last that was given to this producer; not in the log.
    pub last_producer_epoch: ProducerEpoch,
    pub timeout_ms: i32,
    pub state: TransactionState,
    /// Those that get a marker.
    pub partitions: BTreeSet<TopicPartition>,
    /// -1 before the first transaction.
    pub start_timestamp_ms: i64,
    pub last_update_timestamp_ms: i64,
    /// The `transaction.version` that the client works by.
    pub client_transaction_version: i16,
}

impl Transaction {
    /// A new id, of which the log does not know yet.
    pub(super) fn new(producer_id: ProducerId, timeout_ms: i32, now_ms: i64) -> Self {
        Transaction {
            producer_id,
            previous_producer_id: ProducerId::NONE,
            next_producer_id: ProducerId::NONE,
            producer_epoch: ProducerEpoch::NONE,
            last_producer_epoch: ProducerEpoch::NONE,
            timeout_ms,
            state: TransactionState::Empty,
            partitions: BTreeSet::new(),
            start_timestamp_ms: -1,
            last_update_timestamp_ms: now_ms,
            client_transaction_version: 0,
        }
    }

    pub(super) fn producer(&self) -> TransactionalProducer {
        TransactionalProducer {
            id: self.producer_id,
            epoch: self.producer_epoch,
        }
    }

    pub(super) fn is_epoch_exhausted(&self) -> bool {
        is_epoch_exhausted(self.producer_epoch)
    }

    pub(super) fn has_timed_out(&self, now_ms: i64) -> bool {
        self.state == TransactionState::Ongoing
            && self.timeout_ms != NO_TIMEOUT
            && self
                .start_timestamp_ms
                .saturating_add(i64::from(self.timeout_ms))
                < now_ms
    }
}

/// The last epoch is kept back, so that a producer can always be fenced.
pub(super) fn is_epoch_exhausted(epoch: ProducerEpoch) -> bool {
    epoch.value() >= i16::MAX - 1
}

fn next_epoch(epoch: ProducerEpoch) -> ProducerEpoch {
    ProducerEpoch(epoch.value().saturating_add(1))
}

/// A transactional id with the step that is under way.
#[derive(Debug)]
pub(super) struct TransactionMetadata {
    pub(super) transactional_id: ByteString,
    pub(super) transaction: Transaction,
    /// The state that it is about to have.
    pub(super) pending_state: Option<TransactionState>,
    /// An epoch that fences was taken but could not be written: it is used again.
    pub(super) has_failed_epoch_fence: bool,
}

impl TransactionMetadata {
    pub(super) fn new(transactional_id: ByteString, transaction: Transaction) -> Self {
        TransactionMetadata {
            transactional_id,
            transaction,
            pending_state: None,
            has_failed_epoch_fence: false,
        }
    }

    pub(super) fn has_pending(&self) -> bool {
        self.pending_state.is_some()
    }

    /// A new instance of the producer, or one that goes on after an error and says which epoch it had.
    pub(super) fn prepare_increment_producer_epoch(
        &mut self,
        timeout_ms: i32,
        expected_epoch: Option<ProducerEpoch>,
        now_ms: i64,
    ) -> Result<Transaction, ErrorCode> {
        let current = &self.transaction;
        if current.is_epoch_exhausted() {
            return Err(ErrorCode::UnknownServerError);
        }
        let (epoch, last_epoch) = match expected_epoch {
            None => (next_epoch(current.producer_epoch), ProducerEpoch::NONE),
            // -1 before the first epoch was given.
            Some(expected)
                if current.producer_epoch == ProducerEpoch::NONE
                    || expected == current.producer_epoch =>
            {
                (next_epoch(current.producer_epoch), current.producer_epoch)
            }
            // The answer to the same request was lost.
            Some(expected) if expected == current.last_producer_epoch => {
                (current.producer_epoch, current.last_producer_epoch)
            }
            Some(_) => return Err(ErrorCode::ProducerFenced),
        };
        let next = Transaction {
            producer_epoch: epoch,
            last_producer_epoch: last_epoch,
            ..self.without_transaction(timeout_ms, now_ms)
        };
        self.prepare(next)
    }

    /// The epochs of the producer's id are used up: it goes on with another id.
    pub(super) fn prepare_producer_id_rotation(
        &mut self,
        producer_id: ProducerId,
        timeout_ms: i32,
        keeps_last_epoch: bool,
        now_ms: i64,
    ) -> Result<Transaction, ErrorCode> {
        let next = Transaction {
            producer_id,
            producer_epoch: ProducerEpoch(0),
            last_producer_epoch: if keeps_last_epoch {
                self.transaction.producer_epoch
            } else {
                ProducerEpoch::NONE
            },
            ..self.without_transaction(timeout_ms, now_ms)
        };
        self.prepare(next)
    }

    pub(super) fn prepare_add_partitions(
        &mut self,
        partitions: impl IntoIterator<Item = TopicPartition>,
        client_transaction_version: i16,
        now_ms: i64,
    ) -> Result<Transaction, ErrorCode> {
        let mut next = self.transaction.clone();
        if next.state != TransactionState::Ongoing {
            next.start_timestamp_ms = now_ms;
        }
        next.state = TransactionState::Ongoing;
        next.partitions.extend(partitions);
        next.last_update_timestamp_ms = now_ms;
        next.client_transaction_version = client_transaction_version;
        self.prepare(next)
    }

    /// `next_producer_id` is where the producer goes on when its epochs are used up. Without a
    /// partition it is not known when the transaction began.
    pub(super) fn prepare_abort_or_commit(
        &mut self,
        state: TransactionState,
        client_transaction_version: i16,
        next_producer_id: ProducerId,
        has_no_partition: bool,
        now_ms: i64,
    ) -> Result<Transaction, ErrorCode> {
        let mut next = self.transaction.clone();
        if client_transaction_version >= EPOCH_RAISED_AT_END {
            // An id whose epochs are wrongly used up may still abort, so that it can recover.
            next.last_producer_epoch = next.producer_epoch;
            next.producer_epoch = next_epoch(next.producer_epoch);
        }
        if has_no_partition {
            next.start_timestamp_ms = now_ms;
        }
        next.state = state;
        next.next_producer_id = next_producer_id;
        next.last_update_timestamp_ms = now_ms;
        next.client_transaction_version = client_transaction_version;
        self.prepare(next)
    }

    /// All markers are going to be written.
    pub(super) fn prepare_complete(&mut self, now_ms: i64) -> Result<Transaction, ErrorCode> {
        self.has_failed_epoch_fence = false;
        let mut next = self.transaction.clone();
        next.state = match next.state {
            TransactionState::PrepareCommit => TransactionState::CompleteCommit,
            _ => TransactionState::CompleteAbort,
        };
        // The last epoch stays what the client has seen last: for it, the next after the last but one
        // is 0 of the new id.
        let has_next_id = next.next_producer_id != ProducerId::NONE;
        if next.client_transaction_version >= EPOCH_RAISED_AT_END && has_next_id {
            next.producer_id = next.next_producer_id;
            next.producer_epoch = ProducerEpoch(0);
        }
        next.next_producer_id = ProducerId::NONE;
        next.partitions = BTreeSet::new();
        next.last_update_timestamp_ms = now_ms;
        self.prepare(next)
    }

    /// The id is forgotten. Returns whether it may be.
    pub(super) fn prepare_dead(&mut self) -> bool {
        let may_die =
            !self.has_pending() && TransactionState::Dead.may_follow(self.transaction.state);
        if may_die {
            self.pending_state = Some(TransactionState::Dead);
        }
        may_die
    }

    /// The epoch of an instance that is to write no more, before version 2 of the protocol. It counts at
    /// once, whether or not it can be written.
    pub(super) fn raise_epoch_to_fence(&mut self) {
        if !self.has_failed_epoch_fence {
            self.transaction.producer_epoch = next_epoch(self.transaction.producer_epoch);
        }
        self.transaction.last_producer_epoch = ProducerEpoch::NONE;
    }

    /// The log has the step.
    pub(super) fn complete_transition(&mut self, next: Transaction) {
        assert_eq!(
            self.pending_state,
            Some(next.state),
            "{}: only what was prepared is completed",
            self.transactional_id
        );
        self.pending_state = None;
        self.transaction = next;
    }

    /// The log has refused the step.
    pub(super) fn give_up_transition(&mut self) {
        self.pending_state = None;
    }

    fn without_transaction(&self, timeout_ms: i32, now_ms: i64) -> Transaction {
        Transaction {
            state: TransactionState::Empty,
            timeout_ms,
            partitions: BTreeSet::new(),
            start_timestamp_ms: -1,
            last_update_timestamp_ms: now_ms,
            ..self.transaction.clone()
        }
    }

    /// Bytes of a log may have led here by a way that there is not: the error is for that.
    fn prepare(&mut self, mut next: Transaction) -> Result<Transaction, ErrorCode> {
        let is_possible = !self.has_pending()
            && next.state.may_follow(self.transaction.state)
            && next.producer_id.value() >= 0
            && next.producer_epoch.value() >= 0;
        if !is_possible {
            return Err(ErrorCode::UnknownServerError);
        }
        next.previous_producer_id = self.transaction.producer_id;
        self.pending_state = Some(next.state);
        Ok(next)
    }
}
