//! Two threads that drive one coordinator like a shell, in every order, with the expected result of
//! each step.

use std::convert::Infallible;

use bytes::Bytes;
use ottla_protocol::EncodeError;
use ottla_types::{ErrorCode, LeaderEpoch, Offset, ProducerEpoch, ProducerId, Timestamp};

use super::*;
use crate::runtime::{
    CoordinatorResult, EncodeRecord, LogEntry, TimerChange, TransactionEnd, TransactionalProducer,
    Write, WriteKind,
};

const TIMEOUT_MS: u64 = 100;

/// A record of this many bytes.
#[derive(Clone, Debug)]
struct Bulk(usize);

impl EncodeRecord for Bulk {
    fn encode(&self) -> Result<(Bytes, Option<Bytes>), EncodeError> {
        Ok((vec![b'x'; self.0].into(), None))
    }
}

/// Records its writes, and answers each when it is committed.
#[derive(Debug, Default)]
struct Ledger {
    next_write: u64,
    /// All writes that decisions are based on: committed ones, then uncommitted ones.
    entries: Vec<WriteId>,
    /// The offset of each write whose append has completed.
    offsets: Vec<Offset>,
    committed: usize,
    waiting: Vec<(WriteId, ReplyTo<Answer>)>,
}

type Answer = Result<WriteId, ErrorCode>;

impl Ledger {
    fn write(&mut self, to: ReplyTo<Answer>, kind: WriteKind, bytes: usize) -> Outcome<Self> {
        let id = WriteId(self.next_write);
        self.next_write += 1;
        self.entries.push(id);
        self.waiting.push((id, to));
        let mut outcome = CoordinatorResult::default();
        let records = match kind {
            WriteKind::EndTransaction { .. } => Vec::new(),
            WriteKind::Plain | WriteKind::Transactional { .. } => vec![Bulk(bytes)],
        };
        outcome.writes.push(Write { id, kind, records });
        outcome
    }

    fn tell(&mut self, answer: impl Fn(WriteId) -> Option<Answer>) -> Outcome<Self> {
        let mut outcome = CoordinatorResult::default();
        self.waiting.retain(|(id, to)| {
            let response = answer(*id);
            let is_answered = response.is_some();
            outcome
                .replies
                .extend(response.map(|response| to.with(response)));
            !is_answered
        });
        outcome
    }
}

impl Coordinator for Ledger {
    type Record = Bulk;
    type Response = Answer;
    type TimerKey = ();
    type Command = Infallible;

    const AWAITS_COMMITTED_LOG: bool = false;
    const REQUIRES_MIN_ISR: bool = false;

    fn replay(&mut self, _: LogEntry<'_>, _: Timestamp) -> Result<(), String> {
        Ok(())
    }

    fn on_loaded(&mut self, _: Timestamp) -> Outcome<Self> {
        let mut outcome = CoordinatorResult::default();
        outcome.timers.push(TimerChange::Set {
            key: (),
            after_ms: 1_000,
        });
        outcome
    }

    fn on_unloaded(&mut self) -> Outcome<Self> {
        self.tell(|_| Some(Err(ErrorCode::NotCoordinator)))
    }

    fn on_appended(&mut self, first: WriteId, last: WriteId, base_offset: Offset) {
        assert_eq!(self.entries[self.offsets.len()], first, "in their order");
        for (index, _) in (first.0..=last.0).enumerate() {
            self.offsets.push(base_offset.plus(index as i64));
        }
    }

    fn on_records_committed(&mut self, write: WriteId, _: Timestamp) -> Outcome<Self> {
        self.committed = self.entries.partition_point(|id| *id <= write);
        assert!(self.committed <= self.offsets.len(), "appended before");
        self.tell(|id| (id <= write).then_some(Ok(id)))
    }

    fn on_write_failed(&mut self, write: WriteId, error: ErrorCode, _: Timestamp) -> Outcome<Self> {
        self.entries.retain(|id| *id < write);
        assert!(self.offsets.len() <= self.entries.len(), "not in the log");
        self.tell(|id| (id >= write).then_some(Err(error)))
    }

    fn on_write_timed_out(&mut self, write: WriteId, _: Timestamp) -> Outcome<Self> {
        self.tell(|id| (id == write).then_some(Err(ErrorCode::RequestTimedOut)))
    }

    fn on_timer(&mut self, (): (), _: Timestamp) -> Outcome<Self> {
        CoordinatorResult::default()
    }
}

type Machine = CoordinatorRuntime<Ledger, u32>;

fn at(now_ms: u64) -> StepContext<'static> {
    StepContext {
        now_ms,
        now: Timestamp(0),
        commit_timeout_ms: TIMEOUT_MS,
        max_message_bytes: 1_000,
        fits: &|_| false,
    }
}

fn active() -> Machine {
    let mut machine = Machine::loading();
    machine.on_loaded(Ledger::default(), None, &at(0));
    machine
}

fn write(machine: &mut Machine, waiting: u32, kind: WriteKind, bytes: usize) {
    let asked = machine.request(waiting, &at(0), |it, to| it.write(to, kind, bytes));
    assert_eq!(asked, Ok(()));
}

fn plain(machine: &mut Machine, waiting: u32) {
    write(machine, waiting, WriteKind::Plain, 10);
}

/// The first and last write of the next batch.
fn next(machine: &mut Machine) -> Option<(u64, u64)> {
    let batch = machine.next_append(&at(0))?;
    let writes = batch.writes();
    Some((writes[0].id.0, writes[writes.len() - 1].id.0))
}

const NOTHING: Offset = Offset(0);

#[test]
fn decisions_that_pile_up_share_the_next_batch() {
    let mut machine = active();
    plain(&mut machine, 1);
    assert_eq!(next(&mut machine), Some((0, 0)));
    plain(&mut machine, 2);
    plain(&mut machine, 3);
    assert_eq!(next(&mut machine), None, "the log has not answered");
    machine.on_written(WriteId(0), Ok(Offset(7)), NOTHING, &at(0));
    assert_eq!(next(&mut machine), Some((1, 2)));
    assert_eq!(machine.take_replies(), []);
    assert_eq!(machine.awaited_end(), Some(Offset(8)));
    // The append result includes the high watermark.
    machine.on_written(WriteId(1), Ok(Offset(8)), Offset(8), &at(0));
    assert_eq!(machine.take_replies(), [(1, Ok(WriteId(0)))]);
    assert_eq!(machine.awaited_end(), Some(Offset(10)));
    assert!(!machine.on_high_watermark(Offset(9), &at(0)));
    assert!(machine.on_high_watermark(Offset(10), &at(0)));
    let replies = machine.take_replies();
    assert_eq!(replies, [(2, Ok(WriteId(1))), (3, Ok(WriteId(2)))]);
}

/// The defect that this state machine prevents: a refused write also fails the writes decided on
/// top of it.
#[test]
fn writes_decided_after_a_refused_write_are_not_appended() {
    let mut machine = active();
    plain(&mut machine, 1);
    assert_eq!(next(&mut machine), Some((0, 0)));
    plain(&mut machine, 2);
    let error = ErrorCode::NotEnoughReplicas;
    machine.on_written(WriteId(0), Err(error), NOTHING, &at(0));
    assert_eq!(next(&mut machine), None);
    assert_eq!(machine.take_replies(), [(1, Err(error)), (2, Err(error))]);
    plain(&mut machine, 3);
    assert_eq!(next(&mut machine), Some((2, 2)));
}

#[test]
fn transactional_and_large_writes_get_batches_of_their_own() {
    let producer = TransactionalProducer {
        id: ProducerId(4),
        epoch: ProducerEpoch(0),
    };
    let marker = TransactionEnd {
        is_commit: true,
        coordinator_epoch: LeaderEpoch(0).0,
        transaction_version: 2,
    };
    let transactional = WriteKind::Transactional {
        producer,
        guard: None,
    };
    let end = WriteKind::EndTransaction { producer, marker };
    let mut machine = active();
    for (waiting, (kind, bytes)) in (1..).zip([
        (WriteKind::Plain, 10),
        (transactional, 10),
        (end, 0),
        (WriteKind::Plain, 600),
        (WriteKind::Plain, 600),
        (WriteKind::Plain, 10),
    ]) {
        write(&mut machine, waiting, kind, bytes);
    }
    let mut batches = Vec::new();
    let mut offset = Offset(0);
    while let Some((first, last)) = next(&mut machine) {
        batches.push((first, last));
        machine.on_written(WriteId(first), Ok(offset), NOTHING, &at(0));
        offset = offset.plus((last - first + 1) as i64);
    }
    assert_eq!(batches, [(0, 0), (1, 1), (2, 2), (3, 3), (4, 5)]);
    // The marker has an offset as well.
    assert!(machine.on_high_watermark(Offset(6), &at(0)));
    assert_eq!(machine.take_replies().len(), 6);
}

#[test]
fn a_write_that_fits_into_no_batch_is_refused_before_it_is_appended() {
    let mut machine = active();
    plain(&mut machine, 1);
    write(&mut machine, 2, WriteKind::Plain, 1_000);
    let error = ErrorCode::RecordListTooLarge;
    assert_eq!(machine.take_replies(), [(2, Err(error))]);
    assert_eq!(next(&mut machine), Some((0, 0)));
    // Compression may make it smaller.
    let fitting = StepContext {
        fits: &|_| true,
        ..at(0)
    };
    let asked = machine.request(3, &fitting, |it, to| it.write(to, WriteKind::Plain, 1_000));
    assert_eq!((asked, machine.take_replies()), (Ok(()), vec![]));
}

#[test]
fn waiting_requests_time_out_again_and_again() {
    let mut machine = active();
    plain(&mut machine, 1);
    assert_eq!(next(&mut machine), Some((0, 0)));
    assert_eq!(machine.next_deadline_ms(), Some(TIMEOUT_MS));
    assert!(!machine.tell_of_delay(&at(TIMEOUT_MS - 1)));
    // While it is being appended.
    assert!(machine.tell_of_delay(&at(TIMEOUT_MS)));
    let answer = (1, Err(ErrorCode::RequestTimedOut));
    assert_eq!(machine.take_replies(), [answer]);
    assert_eq!(machine.next_deadline_ms(), Some(2 * TIMEOUT_MS));
    // While it is not committed.
    machine.on_written(WriteId(0), Ok(Offset(0)), NOTHING, &at(150));
    assert_eq!(machine.next_deadline_ms(), Some(150 + TIMEOUT_MS));
    assert!(machine.tell_of_delay(&at(250)));
    assert!(!machine.tell_of_delay(&at(250)));
    // It is committed nevertheless, and no second reply is sent.
    assert!(machine.on_high_watermark(Offset(1), &at(260)));
    assert_eq!(machine.take_replies(), []);
    assert_eq!(machine.read(|it| it.committed), Ok(1));
    assert_eq!(machine.next_deadline_ms(), Some(1_000), "only the timer");
    assert!(!machine.fire_due_timer(&at(999)));
    assert!(machine.fire_due_timer(&at(1_000)));
    assert_eq!(machine.next_deadline_ms(), None);
}

#[test]
fn loading_waits_for_uncommitted_records() {
    let mut machine = Machine::loading();
    let loaded = Ledger {
        next_write: 1,
        entries: vec![WriteId(0)],
        offsets: vec![Offset(3)],
        ..Ledger::default()
    };
    let refused = machine.request(1, &at(0), |_, _: ReplyTo<Answer>| {
        CoordinatorResult::default()
    });
    assert_eq!(refused, Err((1, ErrorCode::CoordinatorLoadInProgress)));
    machine.on_loaded(loaded, Some((WriteId(0), Offset(4))), &at(0));
    assert_eq!(machine.awaited_end(), Some(Offset(4)));
    assert!(machine.on_high_watermark(Offset(4), &at(0)));
    assert_eq!(machine.read(|it| it.committed), Ok(1));
}

/// The coordinator is closed between the append and its result.
#[test]
fn a_closed_runtime_has_answered_every_request() {
    let mut machine = active();
    plain(&mut machine, 1);
    assert_eq!(next(&mut machine), Some((0, 0)));
    plain(&mut machine, 2);
    machine.close();
    let answer = Err(ErrorCode::NotCoordinator);
    assert_eq!(machine.take_replies(), [(1, answer), (2, answer)]);
    machine.on_written(WriteId(0), Ok(Offset(0)), Offset(1), &at(0));
    assert_eq!((next(&mut machine), machine.take_replies()), (None, vec![]));
    assert_eq!(machine.next_deadline_ms(), None);
    machine.on_loaded(Ledger::default(), None, &at(0));
    assert!(machine.is_closed(), "and is not taken up again");
}

/// One thread of a shell between two of its steps.
enum Thread {
    Idle,
    /// It has taken this batch and released the lock.
    Appending(OutboundBatch),
    /// The append has completed, and the thread has not reported it.
    Answered(WriteId, Result<Offset, ErrorCode>),
}

/// Memory and log never diverge, in any order of the threads' steps and with any refused appends.
#[test]
fn the_log_contains_the_decisions_in_order() {
    for seed in 1..400_u64 {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut draw = |bound: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % bound
        };
        let (mut machine, mut log) = (active(), Vec::new());
        let mut threads = [Thread::Idle, Thread::Idle, Thread::Idle];
        let (mut asked, mut answered, mut high_watermark) = (0, 0, Offset(0));
        for _ in 0..200 {
            let thread = &mut threads[draw(3) as usize];
            *thread = match std::mem::replace(thread, Thread::Idle) {
                Thread::Idle => {
                    if draw(2) == 0 {
                        plain(&mut machine, asked);
                        asked += 1;
                    }
                    match machine.next_append(&at(0)) {
                        Some(batch) => Thread::Appending(batch),
                        None => Thread::Idle,
                    }
                }
                Thread::Appending(batch) => {
                    let base_offset = Offset(log.len() as i64);
                    let written = match draw(4) {
                        0 => Err(ErrorCode::KafkaStorageError),
                        _ => {
                            log.extend(batch.writes().iter().map(|write| write.id));
                            Ok(base_offset)
                        }
                    };
                    Thread::Answered(batch.first(), written)
                }
                Thread::Answered(first, written) => {
                    machine.on_written(first, written, high_watermark, &at(0));
                    Thread::Idle
                }
            };
            if draw(3) == 0 {
                let known = machine.read(|it| it.offsets.len());
                high_watermark = Offset(known.expect("it is active") as i64);
                machine.on_high_watermark(high_watermark, &at(0));
            }
            let replies = machine.take_replies();
            answered += replies.len();
            for (_, reply) in replies {
                let is_committed = reply.is_ok_and(|id| log.contains(&id));
                assert!(is_committed || reply.is_err());
            }
            // The appended writes must equal the writes that decisions are based on.
            let decided = machine.read(|it| it.entries[..it.offsets.len()].to_vec());
            let decided = decided.expect("it is active");
            assert!(log.starts_with(&decided), "seed {seed}");
            assert!(log.len() - decided.len() <= log.len().min(asked as usize));
        }
        for thread in threads {
            if let Thread::Answered(first, written) = thread {
                machine.on_written(first, written, high_watermark, &at(0));
            }
        }
        let decided = machine.read(|it| it.entries[..it.offsets.len()].to_vec());
        assert_eq!(decided, Ok(log), "seed {seed}");
        machine.close();
        answered += machine.take_replies().len();
        assert_eq!(answered, asked as usize, "each is answered once");
    }
}
