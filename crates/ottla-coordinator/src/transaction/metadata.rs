//! The state of one transactional id, and its transitions.
//!
//! A transition is prepared, written to the log, and applied when it is committed. Until then,
//! `pending_state` blocks every other transition. Invariant: `transaction` is what the log
//! contains, except that partitions with a written marker are removed, and that a failed attempt to
//! fence a producer may have raised its epoch. Source: `TransactionMetadata`, `TxnTransitMetadata`;
//! KIP-98, KIP-360, KIP-890.

use std::collections::BTreeSet;

use bytestring::ByteString;
use ottla_types::{ErrorCode, ProducerEpoch, ProducerId, TopicPartition};

use super::state::TransactionState;
use crate::runtime::TransactionalProducer;

/// The first `transaction.version` in which the end of every transaction raises the producer epoch.
pub(super) const EPOCH_RAISED_AT_END: i16 = 2;
/// The timeout of two-phase commit transactions, which do not time out (KIP-939).
const NO_TIMEOUT: i32 = i32::MAX;

/// A transactional id as recorded in the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transaction {
    pub producer_id: ProducerId,
    /// The producer id before the last transition. Recognizes a producer that repeats a request
    /// after a lost response.
    pub previous_producer_id: ProducerId,
    /// The producer id after the end of the transaction, if the epochs of the current one are
    /// exhausted.
    pub next_producer_id: ProducerId,
    pub producer_epoch: ProducerEpoch,
    /// The previous epoch of this producer. Not in the log.
    pub last_producer_epoch: ProducerEpoch,
    pub timeout_ms: i32,
    pub state: TransactionState,
    /// The partitions that get a marker.
    pub partitions: BTreeSet<TopicPartition>,
    /// -1 before the first transaction.
    pub start_timestamp_ms: i64,
    pub last_update_timestamp_ms: i64,
    /// The client's `transaction.version`.
    pub client_transaction_version: i16,
}

impl Transaction {
    /// A new id that is not in the log yet.
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

/// Whether all epochs are used. The last one is reserved, so that a producer can always be fenced.
pub(super) fn is_epoch_exhausted(epoch: ProducerEpoch) -> bool {
    epoch.value() >= i16::MAX - 1
}

fn next_epoch(epoch: ProducerEpoch) -> ProducerEpoch {
    ProducerEpoch(epoch.value().saturating_add(1))
}

/// A transactional id and its pending transition.
#[derive(Debug)]
pub(super) struct TransactionMetadata {
    pub(super) transactional_id: ByteString,
    pub(super) transaction: Transaction,
    /// The state after the pending transition.
    pub(super) pending_state: Option<TransactionState>,
    /// Whether an epoch was raised for fencing but could not be written: it is used again.
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

    /// For a new instance of the producer, or one that recovers from an error and sends its epoch.
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
            // -1 before the first epoch was assigned.
            Some(expected)
                if current.producer_epoch == ProducerEpoch::NONE
                    || expected == current.producer_epoch =>
            {
                (next_epoch(current.producer_epoch), current.producer_epoch)
            }
            // The response to the same request was lost.
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

    /// The epochs of the producer id are exhausted: the producer gets another id.
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

    /// `next_producer_id` is the id to continue with when the epochs are exhausted. The start time
    /// of a transaction without partitions is unknown.
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
            // An id whose epochs are exhausted by mistake can still abort, so that it can recover.
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

    /// All markers will be written.
    pub(super) fn prepare_complete(&mut self, now_ms: i64) -> Result<Transaction, ErrorCode> {
        self.has_failed_epoch_fence = false;
        let mut next = self.transaction.clone();
        next.state = match next.state {
            TransactionState::PrepareCommit => TransactionState::CompleteCommit,
            _ => TransactionState::CompleteAbort,
        };
        // The last epoch stays the one that the client knows: for the client, the last usable epoch
        // is followed by 0 of the new id.
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

    /// Prepares the removal of the id. Returns whether it can be removed.
    pub(super) fn prepare_dead(&mut self) -> bool {
        let may_die =
            !self.has_pending() && TransactionState::Dead.may_follow(self.transaction.state);
        if may_die {
            self.pending_state = Some(TransactionState::Dead);
        }
        may_die
    }

    /// Raises the epoch to fence an instance, before version 2 of the protocol. Applies at once,
    /// whether or not it can be written.
    pub(super) fn raise_epoch_to_fence(&mut self) {
        if !self.has_failed_epoch_fence {
            self.transaction.producer_epoch = next_epoch(self.transaction.producer_epoch);
        }
        self.transaction.last_producer_epoch = ProducerEpoch::NONE;
    }

    /// The transition is committed.
    pub(super) fn complete_transition(&mut self, next: Transaction) {
        assert_eq!(
            self.pending_state,
            Some(next.state),
            "{}: only a prepared transition is completed",
            self.transactional_id
        );
        self.pending_state = None;
        self.transaction = next;
    }

    /// The transition could not be written.
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

    /// Checks the transition. A damaged log can lead to a state from which it is invalid, which is
    /// an error.
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
