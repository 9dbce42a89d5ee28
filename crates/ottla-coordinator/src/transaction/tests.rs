//! Transcripts: single events with their results, as text. A line that starts with `write` is a
//! record, `reply` a response, `markers` a request to leaders.

mod end_txn;
mod epochs;
mod failures;
mod random;
mod records;
mod timeouts;

use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use bytestring::ByteString;
use ottla_types::{ErrorCode, Offset, ProducerEpoch, ProducerId, Timestamp, TopicPartition};

use super::{
    AddPartitions, Command, EndTransaction, InitProducerId, Outcome, Response, TimerKey,
    Transaction, TransactionCoordinator, TransactionCoordinatorConfig, TransactionState,
};
use crate::runtime::{
    Coordinator, EncodeRecord, ReplyId, ReplyTo, TimerChange, TransactionalProducer, WriteId,
};

pub(super) const ID: &str = "t";

pub(super) struct Script {
    pub(super) coordinator: TransactionCoordinator,
    pub(super) now_ms: i64,
    next_reply: u64,
    next_producer_id: i64,
    /// Whether producer ids are allocated at once.
    pub(super) has_producer_ids: bool,
    /// Whether each write is committed and each marker written at once.
    pub(super) commits_at_once: bool,
    pub(super) writes_markers: bool,
    pub(super) written: Option<WriteId>,
    pub(super) log: Vec<(Bytes, Option<Bytes>)>,
    pub(super) markers: Vec<super::Markers>,
}

pub(super) fn producer(id: i64, epoch: i16) -> TransactionalProducer {
    TransactionalProducer {
        id: ProducerId(id),
        epoch: ProducerEpoch(epoch),
    }
}

impl Script {
    pub(super) fn new(transaction_version: i16) -> Self {
        Self::with(transaction_version, TransactionCoordinatorConfig::default())
    }

    pub(super) fn with(transaction_version: i16, config: TransactionCoordinatorConfig) -> Self {
        let coordinator = TransactionCoordinator::new(Arc::new(config), 7, transaction_version);
        Script {
            coordinator,
            now_ms: 1_000_000,
            next_reply: 0,
            next_producer_id: 100,
            has_producer_ids: true,
            commits_at_once: true,
            writes_markers: true,
            written: None,
            log: Vec::new(),
            markers: Vec::new(),
        }
    }

    /// Loads a coordinator from a log with this transaction.
    pub(super) fn load(mut self, transaction: Transaction) -> Self {
        let record = super::TransactionLogRecord {
            transactional_id: ID.into(),
            transaction: Some(transaction),
            transaction_version: 2,
        };
        let (key, value) = record.encode().expect("a record");
        self.coordinator
            .replay(Offset(0), &key, value.as_ref())
            .expect("readable");
        self
    }

    fn now(&self) -> Timestamp {
        Timestamp(self.now_ms)
    }

    fn ask<T>(&mut self) -> ReplyTo<T> {
        self.next_reply += 1;
        ReplyTo::new(ReplyId(self.next_reply))
    }

    pub(super) fn init(&mut self) -> String {
        self.init_with(None)
    }

    pub(super) fn init_with(&mut self, expected: Option<TransactionalProducer>) -> String {
        self.request_init(InitProducerId {
            transactional_id: ID.into(),
            transaction_timeout_ms: 60_000,
            enable_two_phase_commit: false,
            keep_prepared_transaction: false,
            expected,
        })
    }

    pub(super) fn request_init(&mut self, request: InitProducerId) -> String {
        let (to, now) = (self.ask(), self.now());
        let outcome = self.coordinator.handle_init_producer_id(to, request, now);
        self.take(outcome)
    }

    pub(super) fn add(&mut self, producer: TransactionalProducer, partitions: &[i32]) -> String {
        self.add_as(producer, partitions, 2)
    }

    pub(super) fn add_as(
        &mut self,
        producer: TransactionalProducer,
        partitions: &[i32],
        client_transaction_version: i16,
    ) -> String {
        let request = AddPartitions {
            transactional_id: ID.into(),
            producer,
            partitions: partitions.iter().map(|it| partition(*it)).collect(),
            client_transaction_version,
        };
        let (to, now) = (self.ask(), self.now());
        let outcome = self.coordinator.handle_add_partitions(to, request, now);
        self.take(outcome)
    }

    pub(super) fn end(
        &mut self,
        producer: TransactionalProducer,
        is_commit: bool,
        client_transaction_version: i16,
    ) -> String {
        let request = EndTransaction {
            transactional_id: ID.into(),
            producer,
            is_commit,
            client_transaction_version,
        };
        let (to, now) = (self.ask(), self.now());
        let outcome = self.coordinator.handle_end_txn(to, request, now);
        self.take(outcome)
    }

    pub(super) fn answer_markers(&mut self, index: usize, error: ErrorCode) -> String {
        let markers = self.markers.remove(index);
        let answers: Vec<_> = markers
            .partitions
            .iter()
            .map(|it| (it.clone(), error))
            .collect();
        let now = self.now();
        let outcome = self.coordinator.on_markers_answered(
            &markers.transactional_id,
            markers.producer,
            &answers,
            now,
        );
        self.take(outcome)
    }

    pub(super) fn tick(&mut self, key: TimerKey) -> String {
        let now = self.now();
        let outcome = self.coordinator.on_timer(key, now);
        self.take(outcome)
    }

    pub(super) fn give_producer_id(&mut self, id: Result<i64, ErrorCode>) -> String {
        let now = self.now();
        let outcome = self.coordinator.on_producer_id(id.map(ProducerId), now);
        self.take(outcome)
    }

    pub(super) fn commit(&mut self) -> String {
        let write = self.written.expect("something is written");
        let outcome = self.coordinator.on_records_committed(write, self.now());
        self.take(outcome)
    }

    pub(super) fn fail(&mut self, error: ErrorCode) -> String {
        let write = self.written.expect("something is written");
        let outcome = self.coordinator.on_write_failed(write, error, self.now());
        self.take(outcome)
    }

    pub(super) fn time_out(&mut self) -> String {
        let write = self.written.expect("something is written");
        let outcome = self.coordinator.on_write_timed_out(write, self.now());
        self.take(outcome)
    }

    pub(super) fn loaded(&mut self) -> String {
        let now = self.now();
        let outcome = self.coordinator.on_loaded(now);
        self.take(outcome)
    }

    pub(super) fn state(&self) -> String {
        match self.coordinator.describe(ID) {
            Ok(transaction) => show(transaction),
            Err(error) => error.name().to_owned(),
        }
    }

    fn take(&mut self, outcome: Outcome) -> String {
        let mut text = String::new();
        for change in &outcome.timers {
            match change {
                TimerChange::Set { key, after_ms } => {
                    let name = match key {
                        TimerKey::AbortTimedOut => "abort timed out",
                        TimerKey::RemoveExpired => "remove expired",
                        TimerKey::Completion { .. } => "completion",
                    };
                    writeln!(text, "timer {name} {after_ms}").unwrap();
                }
                TimerChange::SetIfAbsent { key, .. } => {
                    unreachable!("{key:?} is always set anew")
                }
                TimerChange::Cancel { key } => writeln!(text, "cancel {key:?}").unwrap(),
            }
        }
        for write in outcome.writes {
            for record in &write.records {
                self.log.push(record.encode().expect("it can be said"));
                match &record.transaction {
                    Some(transaction) => writeln!(text, "write {}", show(transaction)).unwrap(),
                    None => writeln!(text, "forget {}", record.transactional_id).unwrap(),
                }
            }
            self.written = Some(write.id);
            if self.commits_at_once {
                text.push_str(&self.commit());
            }
        }
        for reply in outcome.replies {
            let shown = match reply.response {
                Response::InitProducerId(Ok(producer)) => show_producer(producer),
                Response::EndTxn(Ok(Some(producer))) => show_producer(producer),
                Response::EndTxn(Ok(None)) => "NONE".to_owned(),
                Response::AddPartitions(error)
                | Response::InitProducerId(Err(error))
                | Response::EndTxn(Err(error)) => error.name().to_owned(),
            };
            writeln!(text, "reply {shown}").unwrap();
        }
        for command in outcome.commands {
            match command {
                Command::AllocateProducerId => {
                    if self.has_producer_ids {
                        let id = self.next_producer_id;
                        self.next_producer_id += 1;
                        text.push_str(&self.give_producer_id(Ok(id)));
                    } else {
                        text.push_str("allocate\n");
                    }
                }
                Command::SendMarkers(markers) => {
                    let result = if markers.end.is_commit {
                        "commit"
                    } else {
                        "abort"
                    };
                    let producer = show_producer(markers.producer);
                    let version = markers.end.transaction_version;
                    let count = markers.partitions.len();
                    assert_eq!(markers.end.coordinator_epoch, 7);
                    writeln!(text, "markers {result} {producer} v{version} to {count}").unwrap();
                    self.markers.push(markers);
                    if self.writes_markers {
                        let last = self.markers.len() - 1;
                        text.push_str(&self.answer_markers(last, ErrorCode::None));
                    }
                }
            }
        }
        text
    }
}

pub(super) fn partition(index: i32) -> TopicPartition {
    TopicPartition::new("topic", index)
}

/// A transactional id in the log, with producer 5 and this epoch.
pub(super) fn transaction(state: TransactionState, epoch: i16) -> Transaction {
    let has_partition = matches!(
        state,
        TransactionState::Ongoing
            | TransactionState::PrepareCommit
            | TransactionState::PrepareAbort
    );
    Transaction {
        producer_id: ProducerId(5),
        previous_producer_id: ProducerId(5),
        next_producer_id: ProducerId::NONE,
        producer_epoch: ProducerEpoch(epoch),
        last_producer_epoch: ProducerEpoch::NONE,
        timeout_ms: 60_000,
        state,
        partitions: has_partition.then(|| partition(0)).into_iter().collect(),
        start_timestamp_ms: 990_000,
        last_update_timestamp_ms: 990_000,
        client_transaction_version: 2,
    }
}

fn show_producer(producer: TransactionalProducer) -> String {
    format!("{}:{}", producer.id, producer.epoch)
}

/// State, producer and epoch, previous epoch, next producer, partitions.
fn show(transaction: &Transaction) -> String {
    let mut text = format!(
        "{} {}",
        transaction.state.name(),
        show_producer(transaction.producer())
    );
    if transaction.last_producer_epoch != ProducerEpoch::NONE {
        write!(text, " last {}", transaction.last_producer_epoch).unwrap();
    }
    if transaction.next_producer_id != ProducerId::NONE {
        write!(text, " next {}", transaction.next_producer_id).unwrap();
    }
    if !transaction.partitions.is_empty() {
        let indexes = transaction.partitions.iter().map(|it| it.partition.value());
        write!(text, " {:?}", indexes.collect::<Vec<_>>()).unwrap();
    }
    text
}

fn lines(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.map(|line| format!("{line}\n")).collect()
}

#[track_caller]
pub(super) fn expect(happened: String, expected: &str) {
    assert_eq!(happened, lines(expected));
}

#[test]
fn a_transaction_is_begun_and_committed() {
    let mut script = Script::new(2);
    expect(
        script.loaded(),
        "timer abort timed out 10000
         timer remove expired 3600000",
    );
    expect(
        script.init(),
        "write Empty 100:0
         reply 100:0",
    );
    expect(
        script.add(producer(100, 0), &[0, 1]),
        "write Ongoing 100:0 [0, 1]
         reply NONE",
    );
    // Partitions that are already part of the transaction are not written again.
    expect(script.add(producer(100, 0), &[1]), "reply NONE");
    expect(
        script.end(producer(100, 0), true, 2),
        "write PrepareCommit 100:1 last 0 [0, 1]
         reply 100:1
         markers commit 100:1 v2 to 2
         write CompleteCommit 100:1 last 0",
    );
    assert_eq!(script.state(), "CompleteCommit 100:1 last 0");
}

#[test]
fn before_version_2_the_epoch_stays_as_it_is() {
    let mut script = Script::new(1);
    script.init();
    script.add_as(producer(100, 0), &[0], 0);
    expect(
        script.end(producer(100, 0), false, 0),
        "write PrepareAbort 100:0 [0]
         reply NONE
         markers abort 100:0 v0 to 1
         write CompleteAbort 100:0",
    );
    // The same request again, and the opposite one.
    expect(script.end(producer(100, 0), false, 0), "reply NONE");
    expect(
        script.end(producer(100, 0), true, 0),
        "reply INVALID_TXN_STATE",
    );
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let config = TransactionCoordinatorConfig {
        transaction_max_timeout_ms: 1000,
        ..Default::default()
    };
    let mut script = Script::with(2, config);
    let request = InitProducerId {
        transactional_id: ID.into(),
        transaction_timeout_ms: 1000,
        enable_two_phase_commit: false,
        keep_prepared_transaction: false,
        expected: None,
    };
    let refused = |change: &dyn Fn(&mut InitProducerId), script: &mut Script| {
        let mut request = request.clone();
        change(&mut request);
        script.request_init(request)
    };
    let empty = |it: &mut InitProducerId| it.transactional_id = ByteString::new();
    expect(refused(&empty, &mut script), "reply INVALID_REQUEST");
    let two_phase = |it: &mut InitProducerId| it.enable_two_phase_commit = true;
    expect(
        refused(&two_phase, &mut script),
        "reply TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    );
    let keeps = |it: &mut InitProducerId| it.keep_prepared_transaction = true;
    expect(refused(&keeps, &mut script), "reply UNSUPPORTED_VERSION");
    for timeout_ms in [0, -1, 1001] {
        let timeout = move |it: &mut InitProducerId| it.transaction_timeout_ms = timeout_ms;
        expect(
            refused(&timeout, &mut script),
            "reply INVALID_TRANSACTION_TIMEOUT",
        );
    }
    expect(
        script.add(producer(1, 0), &[0]),
        "reply INVALID_PRODUCER_ID_MAPPING",
    );
    for version in [0, 2] {
        expect(
            script.end(producer(1, 0), true, version),
            "reply INVALID_PRODUCER_ID_MAPPING",
        );
    }
    assert_eq!(script.state(), "TRANSACTIONAL_ID_NOT_FOUND");
}

#[test]
fn two_phase_commit_has_no_timeout() {
    let config = TransactionCoordinatorConfig {
        transaction_two_phase_commit_enable: true,
        ..Default::default()
    };
    let mut script = Script::with(2, config);
    script.request_init(InitProducerId {
        transactional_id: ID.into(),
        transaction_timeout_ms: 0,
        enable_two_phase_commit: true,
        keep_prepared_transaction: false,
        expected: None,
    });
    script.add(producer(100, 0), &[0]);
    script.now_ms += i64::from(i32::MAX) * 2;
    expect(
        script.tick(TimerKey::AbortTimedOut),
        "timer abort timed out 10000",
    );
}

#[test]
fn partitions_are_verified_against_the_open_transaction() {
    let mut script = Script::new(2);
    script.init();
    script.add(producer(100, 0), &[0]);
    let verify = |script: &Script, id: &str, producer, index| {
        script
            .coordinator
            .verify_partitions(id, producer, &partition(index))
    };
    let current = producer(100, 0);
    assert_eq!(verify(&script, ID, current, 0), ErrorCode::None);
    assert_eq!(
        verify(&script, ID, current, 1),
        ErrorCode::TransactionAbortable
    );
    assert_eq!(verify(&script, "", current, 0), ErrorCode::InvalidRequest);
    let other = producer(101, 0);
    for (id, producer) in [("other", current), (ID, other)] {
        assert_eq!(
            verify(&script, id, producer, 0),
            ErrorCode::InvalidProducerIdMapping
        );
    }
    assert_eq!(
        verify(&script, ID, producer(100, 1), 0),
        ErrorCode::ProducerFenced
    );
    script.writes_markers = false;
    script.end(current, true, 2);
    assert_eq!(
        verify(&script, ID, producer(100, 1), 0),
        ErrorCode::ConcurrentTransactions
    );
}
