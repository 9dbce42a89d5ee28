//! The coordinator of the transactional ids in one partition of `__transaction_state`: its state,
//! and the handling of committed and failed writes.
//!
//! Each file in this directory handles one request or event. A handler prepares a transition of one
//! id and writes it. The transition is applied and answered when its record is committed. Until
//! then, other requests for the ID get a retriable error. Invariants: an id has at most one
//! outstanding write; `outstanding` is ordered by write; each waiting request in
//! `awaiting_producer_id` has one allocation of a producer id in progress. Source:
//! `TransactionCoordinator`, `TransactionStateManager`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytestring::ByteString;
use ottla_types::{ErrorCode, ProducerId, Timestamp};

use super::config::TransactionCoordinatorConfig;
use super::metadata::{Transaction, TransactionMetadata};
use super::outcome::{
    Command, EndTxnResult, InitProducerIdResult, Outcome, Response, TimerKey, error_after_append,
};
use super::record::{FLEXIBLE_VALUES, TransactionLogRecord};
use super::requests::{EndTransaction, InitProducerId};
use crate::runtime::{Coordinator, LogEntry, ReplyTo, TimerChange, Write, WriteId, WriteKind};

/// The delay before a failed write of the completion of a transaction is retried.
const COMPLETION_RETRY_MS: u64 = 100;

pub struct TransactionCoordinator {
    pub(super) config: Arc<TransactionCoordinatorConfig>,
    /// The leader epoch of the partition. Markers with an older epoch are refused.
    pub(super) coordinator_epoch: i32,
    /// The finalized `transaction.version` of the cluster.
    pub(super) transaction_version: i16,
    pub(super) transactions: BTreeMap<ByteString, TransactionMetadata>,
    outstanding: VecDeque<(WriteId, Step)>,
    next_write: WriteId,
    /// Requests that continue when there is a producer id for them, in the order of the
    /// allocations.
    awaiting_producer_id: VecDeque<AwaitingProducerId>,
    /// Allocated ids that were not needed.
    spare_producer_ids: Vec<ProducerId>,
}

/// What follows when a write is committed or has failed.
pub(super) enum Step {
    Advance {
        transactional_id: ByteString,
        next: Transaction,
        then: Continuation,
    },
    /// Removes these ids.
    Forget(Vec<ByteString>),
}

pub(super) enum Continuation {
    AnswerInit(Option<ReplyTo<InitProducerIdResult>>),
    AnswerAdd(Option<ReplyTo<ErrorCode>>),
    /// The transaction is ending, and its markers are sent.
    SendMarkers {
        answer: EndAnswer,
        /// Whether the epoch was raised for this, before version 2 of the protocol.
        is_epoch_fence: bool,
    },
    /// The transaction is complete.
    Nothing,
}

/// The origin of the end of a transaction, which receives the response.
#[derive(Clone, Copy)]
pub(super) enum EndAnswer {
    EndTxn(ReplyTo<EndTxnResult>),
    /// A new instance of the producer, which must retry when the transaction of the old instance
    /// has ended.
    Init(ReplyTo<InitProducerIdResult>),
    /// The transaction timeout.
    NoClient,
}

pub(super) enum AwaitingProducerId {
    Init(ReplyTo<InitProducerIdResult>, InitProducerId),
    End(ReplyTo<EndTxnResult>, EndTransaction),
    Abort(ByteString),
}

/// The effects of one event, while it is handled.
pub(super) struct Effects {
    pub(super) outcome: Outcome,
    steps: Vec<(WriteId, Step)>,
    next_write: WriteId,
}

impl Effects {
    pub(super) fn reply<T>(&mut self, to: ReplyTo<T>, response: T)
    where
        Response: From<T>,
    {
        self.outcome.replies.push(to.with(response));
    }

    pub(super) fn command(&mut self, command: Command) {
        self.outcome.commands.push(command);
    }

    pub(super) fn set_timer(&mut self, key: TimerKey, after_ms: u64) {
        self.outcome.timers.push(TimerChange::Set { key, after_ms });
    }

    fn write(&mut self, records: Vec<TransactionLogRecord>, step: Step) {
        let id = self.next_write;
        self.next_write = WriteId(id.0 + 1);
        self.steps.push((id, step));
        let kind = WriteKind::Plain;
        self.outcome.writes.push(Write { id, kind, records });
    }
}

impl TransactionCoordinator {
    /// An empty coordinator: replay the log, then call `on_loaded`.
    pub fn new(
        config: Arc<TransactionCoordinatorConfig>,
        coordinator_epoch: i32,
        transaction_version: i16,
    ) -> Self {
        Self {
            config,
            coordinator_epoch,
            transaction_version,
            transactions: BTreeMap::new(),
            outstanding: VecDeque::new(),
            next_write: WriteId(1),
            awaiting_producer_id: VecDeque::new(),
            spare_producer_ids: Vec::new(),
        }
    }

    /// The finalized `transaction.version` of the cluster has changed.
    pub fn set_transaction_version(&mut self, transaction_version: i16) {
        self.transaction_version = transaction_version;
    }

    /// Whether a transition of a client with this `transaction.version` can be written: records of
    /// the cluster's version 0 have no field for it. Clients that use the cluster's finalized
    /// features never ask for it.
    pub(super) fn may_write_version_of_client(&self, client_transaction_version: i16) -> bool {
        client_transaction_version == 0 || self.transaction_version >= FLEXIBLE_VALUES
    }

    /// The allocation of a producer id has completed or failed.
    pub fn on_producer_id(
        &mut self,
        producer_id: Result<ProducerId, ErrorCode>,
        now: Timestamp,
    ) -> Outcome {
        let mut effects = self.effects();
        let awaiting = self.awaiting_producer_id.pop_front();
        match (awaiting, producer_id) {
            (None, Ok(producer_id)) => self.spare_producer_ids.push(producer_id),
            (None, Err(_)) => {}
            (Some(awaiting), Ok(producer_id)) => {
                // The state may have changed since then, so the request is handled from the
                // beginning.
                self.spare_producer_ids.push(producer_id);
                self.go_on(awaiting, now, &mut effects);
            }
            (Some(awaiting), Err(error)) => refuse(awaiting, error, &mut effects),
        }
        self.finish(effects)
    }

    fn go_on(&mut self, awaiting: AwaitingProducerId, now: Timestamp, effects: &mut Effects) {
        match awaiting {
            AwaitingProducerId::Init(to, request) => {
                self.init_producer_id(to, request, now, effects)
            }
            AwaitingProducerId::End(to, request) => self.end_txn(to, request, now, effects),
            AwaitingProducerId::Abort(transactional_id) => {
                self.abort_timed_out(transactional_id, now, effects);
            }
        }
    }

    // For the handlers

    /// A new producer id. If there is none, one is allocated, and `awaiting` continues when it
    /// arrives.
    pub(super) fn take_producer_id(
        &mut self,
        awaiting: impl FnOnce() -> AwaitingProducerId,
        effects: &mut Effects,
    ) -> Option<ProducerId> {
        let taken = self.spare_producer_ids.pop();
        if taken.is_none() {
            self.awaiting_producer_id.push_back(awaiting());
            effects.command(Command::AllocateProducerId);
        }
        taken
    }

    pub(super) fn effects(&self) -> Effects {
        Effects {
            outcome: Outcome::default(),
            steps: Vec::new(),
            next_write: self.next_write,
        }
    }

    pub(super) fn finish(&mut self, effects: Effects) -> Outcome {
        self.next_write = effects.next_write;
        self.outstanding.extend(effects.steps);
        effects.outcome
    }

    /// Writes the prepared transition of an id.
    pub(super) fn write_step(
        &self,
        transactional_id: &ByteString,
        next: Transaction,
        then: Continuation,
        effects: &mut Effects,
    ) {
        let record = self.record(transactional_id, Some(next.clone()));
        let step = Step::Advance {
            transactional_id: transactional_id.clone(),
            next,
            then,
        };
        effects.write(vec![record], step);
    }

    /// Writes the tombstones of ids that are prepared to be removed.
    pub(super) fn write_tombstones(&self, ids: Vec<ByteString>, effects: &mut Effects) {
        let records = ids.iter().map(|id| self.record(id, None)).collect();
        effects.write(records, Step::Forget(ids));
    }

    fn record(
        &self,
        transactional_id: &ByteString,
        transaction: Option<Transaction>,
    ) -> TransactionLogRecord {
        TransactionLogRecord {
            transactional_id: transactional_id.clone(),
            transaction,
            transaction_version: self.transaction_version,
        }
    }

    fn on_committed(&mut self, step: Step, now: Timestamp, effects: &mut Effects) {
        match step {
            Step::Advance {
                transactional_id,
                next,
                then,
            } => {
                let Some(metadata) = self.transactions.get_mut(&transactional_id) else {
                    return;
                };
                let producer = next.producer();
                metadata.complete_transition(next);
                match then {
                    Continuation::AnswerInit(Some(to)) => {
                        effects.reply(to, Ok(producer));
                    }
                    Continuation::AnswerAdd(Some(to)) => {
                        effects.reply(to, ErrorCode::None);
                    }
                    Continuation::SendMarkers { answer, .. } => {
                        self.send_markers(&transactional_id, answer, now, effects);
                    }
                    Continuation::AnswerInit(None)
                    | Continuation::AnswerAdd(None)
                    | Continuation::Nothing => {}
                }
            }
            Step::Forget(ids) => {
                for id in ids {
                    self.transactions.remove(&id);
                }
            }
        }
    }

    fn on_refused(&mut self, step: Step, error: ErrorCode, effects: &mut Effects) {
        match step {
            Step::Advance {
                transactional_id,
                next: _,
                then: Continuation::Nothing,
            } => {
                // The markers are written, so the transaction can only be completed.
                let key = TimerKey::Completion { transactional_id };
                effects.set_timer(key, COMPLETION_RETRY_MS);
            }
            Step::Advance {
                transactional_id,
                next: _,
                then,
            } => {
                if let Some(metadata) = self.transactions.get_mut(&transactional_id) {
                    metadata.give_up_transition();
                    if let Continuation::SendMarkers {
                        is_epoch_fence: true,
                        ..
                    } = then
                    {
                        metadata.has_failed_epoch_fence = true;
                    }
                }
                answer_failed(then, error, effects);
            }
            Step::Forget(ids) => {
                for id in ids {
                    if let Some(metadata) = self.transactions.get_mut(&id) {
                        metadata.give_up_transition();
                    }
                }
            }
        }
    }
}

impl Coordinator for TransactionCoordinator {
    type Record = TransactionLogRecord;
    type Response = Response;
    type TimerKey = TimerKey;
    type Command = Command;

    // If the last transition of an id could be lost, the id could be given to two producers.
    const AWAITS_COMMITTED_LOG: bool = true;
    // Kafka: `TransactionLog.ENFORCED_REQUIRED_ACKS`. A transition that cannot be replicated is
    // refused at once instead of pending until the replicas are back.
    const REQUIRES_MIN_ISR: bool = true;

    fn replay(&mut self, entry: LogEntry<'_>, _now: Timestamp) -> Result<(), String> {
        entry.replay_with(|offset, key, value| self.replay(offset, key, value))
    }

    /// Resumes the completion of transactions that were ending.
    fn on_loaded(&mut self, now: Timestamp) -> Outcome {
        let mut effects = self.effects();
        self.resume_completions(now, &mut effects);
        self.schedule_aborts(&mut effects);
        self.schedule_expiration(&mut effects);
        self.finish(effects)
    }

    fn on_unloaded(&mut self) -> Outcome {
        let mut effects = self.effects();
        for (_, step) in std::mem::take(&mut self.outstanding) {
            if let Step::Advance { then, .. } = step {
                answer_failed(then, ErrorCode::NotCoordinator, &mut effects);
            }
        }
        for awaiting in std::mem::take(&mut self.awaiting_producer_id) {
            refuse(awaiting, ErrorCode::NotCoordinator, &mut effects);
        }
        self.transactions.clear();
        self.finish(effects)
    }

    fn on_records_committed(&mut self, write: WriteId, now: Timestamp) -> Outcome {
        let mut effects = self.effects();
        while let Some((_, step)) = self.outstanding.pop_front_if(|(id, _)| *id <= write) {
            self.on_committed(step, now, &mut effects);
        }
        self.finish(effects)
    }

    fn on_write_failed(&mut self, write: WriteId, error: ErrorCode, _now: Timestamp) -> Outcome {
        let mut effects = self.effects();
        let first_failed = self.outstanding.partition_point(|(id, _)| *id < write);
        for (_, step) in self.outstanding.split_off(first_failed) {
            self.on_refused(step, error, &mut effects);
        }
        self.finish(effects)
    }

    fn on_write_timed_out(&mut self, write: WriteId, _now: Timestamp) -> Outcome {
        let mut effects = self.effects();
        let late = self.outstanding.iter_mut().find(|(id, _)| *id == write);
        if let Some((_, Step::Advance { then, .. })) = late {
            // No second reply is sent when the write completes.
            let answered = then.without_answer();
            answer_failed(
                std::mem::replace(then, answered),
                ErrorCode::RequestTimedOut,
                &mut effects,
            );
        }
        self.finish(effects)
    }

    fn on_timer(&mut self, key: TimerKey, now: Timestamp) -> Outcome {
        let mut effects = self.effects();
        match key {
            TimerKey::AbortTimedOut => self.abort_all_timed_out(now, &mut effects),
            TimerKey::RemoveExpired => self.remove_expired(now, &mut effects),
            TimerKey::Completion { transactional_id } => {
                self.complete_again(&transactional_id, now, &mut effects);
            }
        }
        self.finish(effects)
    }
}

impl Continuation {
    fn without_answer(&self) -> Continuation {
        match self {
            Continuation::AnswerInit(_) => Continuation::AnswerInit(None),
            Continuation::AnswerAdd(_) => Continuation::AnswerAdd(None),
            Continuation::SendMarkers { is_epoch_fence, .. } => Continuation::SendMarkers {
                answer: EndAnswer::NoClient,
                is_epoch_fence: *is_epoch_fence,
            },
            Continuation::Nothing => Continuation::Nothing,
        }
    }
}

fn answer_failed(then: Continuation, error: ErrorCode, effects: &mut Effects) {
    let error = error_after_append(error);
    match then {
        Continuation::AnswerInit(Some(to))
        | Continuation::SendMarkers {
            answer: EndAnswer::Init(to),
            ..
        } => effects.reply(to, Err(error)),
        Continuation::AnswerAdd(Some(to)) => effects.reply(to, error),
        Continuation::SendMarkers {
            answer: EndAnswer::EndTxn(to),
            ..
        } => effects.reply(to, Err(error)),
        Continuation::AnswerInit(None)
        | Continuation::AnswerAdd(None)
        | Continuation::SendMarkers {
            answer: EndAnswer::NoClient,
            ..
        }
        | Continuation::Nothing => {}
    }
}

fn refuse(awaiting: AwaitingProducerId, error: ErrorCode, effects: &mut Effects) {
    match awaiting {
        AwaitingProducerId::Init(to, _) => {
            effects.reply(to, Err(error));
        }
        AwaitingProducerId::End(to, _) => effects.reply(to, Err(error)),
        // The next check finds it again.
        AwaitingProducerId::Abort(_) => {}
    }
}
