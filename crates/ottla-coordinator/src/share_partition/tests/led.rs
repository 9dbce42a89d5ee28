//! A share partition on its leader: reads, the order of writes, and answers.

use ottla_types::{ErrorCode, LeaderEpoch, Offset};

use super::*;
use crate::persister::StateFailure;
use crate::share_partition::{DeadLetterCause, DeadLetters, LedSharePartition};

type Led = LedSharePartition<u32>;

const SETTINGS: SharePartitionSettings = SharePartitionSettings {
    record_lock_duration_ms: LOCK_MS,
    delivery_count_limit: 5,
    partition_max_record_locks: 100,
    renew_acknowledge_enable: true,
    has_dead_letter_queue: true,
};

fn active() -> Led {
    let persisted = PersistedState {
        state_epoch: 3,
        start_offset: Offset(0),
        batches: Vec::new(),
    };
    let machine = SharePartition::restore(SETTINGS, LeaderEpoch(7), &persisted);
    let mut led = Led::default();
    assert!(led.on_loaded(machine.expect("the state is in order")));
    led
}

/// A member reads and acquires ten records of one batch.
fn acquire(led: &mut Led) {
    let fetch_offset = led.begin_reading(SETTINGS).expect("no read is in progress");
    let batches: Vec<FetchedBatch> = (0..10).map(|at| fetched((at, at))).collect();
    let member: MemberId = Arc::from("m");
    let acquired = led.acquire(AcquireRequest {
        member: &member,
        mode: AcquireMode::BatchOptimized,
        batch_size: 500,
        max_records: 500,
        fetch_offset,
        batches: &batches,
        aborted_transactions: &[],
        now_ms: 0,
    });
    assert_eq!(acquired.records, 10);
    led.end_reading();
}

fn accept(led: &mut Led, offset: i64, waiting: u32) -> Result<bool, StateFailure> {
    acknowledge(led, offset, AcknowledgeType::Accept, waiting)
}

fn acknowledge(
    led: &mut Led,
    offset: i64,
    kind: AcknowledgeType,
    waiting: u32,
) -> Result<bool, StateFailure> {
    let batch = AcknowledgementBatch {
        first_offset: Offset(offset),
        last_offset: Offset(offset),
        types: vec![kind],
    };
    led.acknowledge("m", &[batch], SETTINGS, 0, || waiting)
}

fn failure(code: ErrorCode) -> StateFailure {
    code.into()
}

#[test]
fn one_fetch_reads_at_a_time() {
    let mut led = active();
    assert_eq!(led.begin_reading(SETTINGS), Some(Offset(0)));
    assert_eq!(led.begin_reading(SETTINGS), None);
    led.end_reading();
    assert_eq!(led.begin_reading(SETTINGS), Some(Offset(0)));
}

#[test]
fn writes_are_persisted_one_after_the_other() {
    let mut led = active();
    acquire(&mut led);
    assert_eq!(accept(&mut led, 0, 10), Ok(true));
    assert_eq!(accept(&mut led, 1, 11), Ok(true));
    let first = led.next_write().expect("a write");
    assert!(led.next_write().is_none(), "the first is under way");
    let written = led.on_written(first.id, Ok(()));
    assert_eq!(written.answer, Some((10, Ok(()))));
    assert_eq!(written.must_close, None);
    let second = led.next_write().expect("the other");
    // If the coordinator cannot be found, the error is mapped, and the share partition stays open.
    let unavailable = failure(ErrorCode::NotCoordinator);
    let written = led.on_written(second.id, Err(unavailable));
    let (waiting, result) = written.answer.expect("a request waits");
    let result = result.map_err(|it| it.code);
    assert_eq!(
        (waiting, result),
        (11, Err(ErrorCode::CoordinatorNotAvailable))
    );
    assert_eq!(written.must_close, None);
    assert!(led.next_write().is_none() && led.is_active());
}

#[test]
fn a_fenced_write_closes_the_share_partition() {
    for (refused, fenced) in [
        (ErrorCode::FencedStateEpoch, ErrorCode::NotLeaderOrFollower),
        (ErrorCode::FencedLeaderEpoch, ErrorCode::NotLeaderOrFollower),
        (ErrorCode::GroupIdNotFound, ErrorCode::GroupIdNotFound),
    ] {
        let mut led = active();
        acquire(&mut led);
        assert_eq!(accept(&mut led, 0, 10), Ok(true));
        assert_eq!(accept(&mut led, 1, 11), Ok(true));
        let write = led.next_write().expect("a write");
        let written = led.on_written(write.id, Err(failure(refused)));
        let reason = written.must_close.expect("it is fenced");
        assert_eq!(reason.code, fenced);
        assert!(
            led.next_write().is_none(),
            "no write starts before the close"
        );
        // The requests that wait for other writes are answered as well, each once.
        assert_eq!(Vec::from_iter(led.close(reason.clone())), [11]);
        assert_eq!(led.close(reason.clone()).count(), 0);
        assert_eq!(led.failure(), Some(&reason));
        assert_eq!(accept(&mut led, 2, 12), Err(reason));
        assert!(led.next_write().is_none() && led.begin_reading(SETTINGS).is_none());
    }
}

#[test]
fn a_share_partition_closed_during_its_load_stays_closed() {
    let mut led = Led::default();
    let loading = Err(failure(ErrorCode::UnknownTopicOrPartition));
    assert_eq!(accept(&mut led, 0, 10), loading);
    let reason = failure(ErrorCode::NotLeaderOrFollower);
    assert_eq!(led.close(reason.clone()).count(), 0);
    let machine = Story::new().partition;
    assert!(!led.on_loaded(machine));
    assert_eq!(led.failure(), Some(&reason));
}

/// The result of a write that was in progress arrives after the close.
#[test]
fn a_late_response_is_ignored() {
    let mut led = active();
    acquire(&mut led);
    assert_eq!(accept(&mut led, 0, 10), Ok(true));
    let write = led.next_write().expect("a write");
    let reason = failure(ErrorCode::NotLeaderOrFollower);
    assert_eq!(Vec::from_iter(led.close(reason)), [10]);
    let written = led.on_written(write.id, Ok(()));
    assert_eq!((written.answer, written.may_fetch), (None, false));
    assert_eq!(written.must_close, None);
}

/// A share partition without members is closed after its last write. Otherwise its successor would
/// read the state without that write.
#[test]
fn a_share_partition_without_members_closes_after_its_last_write() {
    let reason = failure(ErrorCode::NotLeaderOrFollower);
    for is_used_again in [false, true] {
        let mut led = active();
        acquire(&mut led);
        assert_eq!(accept(&mut led, 0, 10), Ok(true));
        assert_eq!(accept(&mut led, 1, 11), Ok(true));
        let first = led.next_write().expect("a write");
        assert!(!led.close_when_idle(&reason), "a write is in progress");
        assert_eq!(led.on_written(first.id, Ok(())).must_close, None);
        assert!(!led.close_when_idle(&reason), "another one is waiting");
        let second = led.next_write().expect("the other");
        if is_used_again {
            led.keep_open();
        }
        let expected = (!is_used_again).then(|| reason.clone());
        assert_eq!(led.on_written(second.id, Ok(())).must_close, expected);
        if !is_used_again {
            // An acknowledgement that comes before the close is refused, and not written: the next
            // share partition could read the state before that.
            assert_eq!(accept(&mut led, 2, 12), Ok(true));
            assert!(led.next_write().is_none());
            assert_eq!(Vec::from_iter(led.close(reason.clone())), [12]);
        }
        assert!(led.close_when_idle(&reason), "nothing is in progress");
        assert_eq!(accept(&mut led, 3, 13), Err(reason.clone()));
    }
    assert!(Led::default().close_when_idle(&reason), "it is being read");
}

/// An administrator can set the offsets of a group without members.
#[test]
fn nothing_is_read_until_the_persisted_state_is_known_to_be_the_same() {
    let mut led = active();
    assert_eq!(led.doubt(), Some(3));
    assert_eq!(led.begin_reading(SETTINGS), None);
    led.on_confirmed();
    assert_eq!(led.begin_reading(SETTINGS), Some(Offset(0)));
    led.end_reading();
    assert_eq!(led.doubt(), Some(3));
    // The group has left, its offsets were set, and it came back, before the first check ended.
    assert_eq!(led.doubt(), Some(3));
    led.on_confirmed();
    assert_eq!(led.begin_reading(SETTINGS), None);
    led.on_confirmed();
    assert_eq!(led.begin_reading(SETTINGS), Some(Offset(0)));
    led.end_reading();
    assert_eq!(Led::default().doubt(), None, "it is being read");
    let waiting = led.close(failure(ErrorCode::NotLeaderOrFollower));
    assert_eq!(waiting.count(), 0);
    assert_eq!(led.doubt(), None);
}

/// The record is persisted as `Archiving`, copied, and persisted as `Archived`. If the last member
/// leaves during the copy, the share partition is closed afterwards. Otherwise the next leader
/// would copy the record again.
#[test]
fn a_rejected_record_is_copied_between_two_writes() {
    let mut led = active();
    acquire(&mut led);
    assert_eq!(
        acknowledge(&mut led, 0, AcknowledgeType::Reject, 10),
        Ok(true)
    );
    assert_eq!(led.next_dead_letters(), None, "it is not persisted yet");
    let write = led.next_write().expect("a write");
    assert_eq!(
        write.batches,
        [persisted((0, 0, RecordState::Archiving, 1))]
    );
    let written = led.on_written(write.id, Ok(()));
    assert_eq!(written.answer, Some((10, Ok(()))), "before it is copied");
    assert_eq!(
        acknowledge(&mut led, 1, AcknowledgeType::Reject, 11),
        Ok(true)
    );

    let letters = DeadLetters {
        first_offset: Offset(0),
        last_offset: Offset(0),
        delivery_count: 1,
        cause: DeadLetterCause::Rejected,
    };
    assert_eq!(led.next_dead_letters(), Some(vec![letters]));
    let second = led.next_write().expect("a write");
    assert_eq!(led.on_written(second.id, Ok(())).must_close, None);
    assert_eq!(led.next_dead_letters(), None, "the first is being copied");
    let reason = failure(ErrorCode::NotLeaderOrFollower);
    assert!(!led.close_when_idle(&reason), "a record is being copied");
    led.on_dead_letters_written(&[letters]);
    let write = led.next_write().expect("a write");
    assert_eq!(write.batches, [persisted((0, 0, RecordState::Archived, 1))]);
    assert_eq!(write.delivery_complete_count, 1);
    assert_eq!(led.on_written(write.id, Ok(())).must_close, None);
    assert_eq!(led.start_offset(), Some(Offset(1)));

    let letters = led.next_dead_letters().expect("the other one");
    led.on_dead_letters_written(&letters);
    let write = led.next_write().expect("a write");
    // Whether or not that can be persisted.
    let unavailable = failure(ErrorCode::NotCoordinator);
    let written = led.on_written(write.id, Err(unavailable));
    assert_eq!(written.must_close, Some(reason));
    assert_eq!(led.start_offset(), Some(Offset(2)));
}

#[test]
fn a_dead_letter_result_after_the_close_is_ignored() {
    let mut led = active();
    acquire(&mut led);
    assert_eq!(
        acknowledge(&mut led, 0, AcknowledgeType::Reject, 10),
        Ok(true)
    );
    let write = led.next_write().expect("a write");
    led.on_written(write.id, Ok(()));
    let letters = led.next_dead_letters().expect("it is persisted");
    let reason = failure(ErrorCode::NotLeaderOrFollower);
    assert_eq!(led.close(reason).count(), 0);
    led.on_dead_letters_written(&letters);
    assert!(led.next_write().is_none());
}

#[test]
fn a_fenced_share_partition_hands_out_no_dead_letters() {
    let mut led = active();
    acquire(&mut led);
    assert_eq!(
        acknowledge(&mut led, 0, AcknowledgeType::Reject, 10),
        Ok(true)
    );
    let rejection = led.next_write().expect("a write");
    assert_eq!(led.on_written(rejection.id, Ok(())).must_close, None);
    assert_eq!(accept(&mut led, 1, 11), Ok(true));
    let write = led.next_write().expect("another");
    let fenced = failure(ErrorCode::FencedLeaderEpoch);
    let written = led.on_written(write.id, Err(fenced));
    assert!(written.must_close.is_some());
    assert!(led.next_dead_letters().is_none(), "the next one has them");
}
