use ottla_records::RecordBatch;
use ottla_records::control::{ControlRecordType, EndTxnMarker, end_txn_batch};
use ottla_types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};

use super::{TestLog, build, idempotent};
use crate::{AppendOrigin, ProducerStage, ProducerVerdict, ReadError, TransactionVersion};

pub(super) fn transactional(offset: i64, count: i32, id: i64, sequence: i32) -> RecordBatch {
    build(offset, count, 1_000_000 + offset, |builder| {
        builder
            .producer(ProducerId(id), ProducerEpoch(0), Sequence(sequence))
            .transactional(true)
    })
}

pub(super) fn end(offset: i64, id: i64, kind: ControlRecordType) -> RecordBatch {
    let marker = EndTxnMarker {
        coordinator_epoch: 1,
    };
    let epoch = ProducerEpoch(0);
    let mut batch = end_txn_batch(ProducerId(id), epoch, kind, marker, Timestamp(2_000_000));
    batch.assign_offset(Offset(offset), LeaderEpoch(0));
    batch
}

/// 0-1 of producer 1, 2-3 of producer 2, abort of 1 at 4, 5-6 of 2, commit of 2 at 7, 8 plain.
fn two_transactions() -> TestLog {
    let mut test = TestLog::new();
    test.append_batch(transactional(0, 2, 1, 0));
    test.append_batch(transactional(2, 2, 2, 0));
    test.append_batch(end(4, 1, ControlRecordType::Abort));
    test.append_batch(transactional(5, 2, 2, 2));
    assert_eq!(test.reader().last_stable_offset(), Offset(2));
    test.append_batch(end(7, 2, ControlRecordType::Commit));
    test.append(1);
    test
}

fn aborted(test: &TestLog, from: i64, to: i64) -> Vec<(i64, i64)> {
    let found = test.reader().aborted_transactions(Offset(from), Offset(to));
    let pairs = found.unwrap().into_iter();
    pairs
        .map(|txn| (txn.producer_id.0, txn.first_offset.0))
        .collect()
}

#[test]
fn the_last_stable_offset_waits_for_the_oldest_transaction() {
    let mut test = TestLog::new();
    test.append_batch(idempotent(0, 1, 9, 0, 0));
    assert_eq!(test.reader().last_stable_offset(), Offset(1));
    test.append_batch(transactional(1, 2, 1, 0));
    test.append_batch(transactional(3, 2, 2, 0));
    assert_eq!(test.reader().last_stable_offset(), Offset(1));
    test.append_batch(end(5, 1, ControlRecordType::Commit));
    assert_eq!(test.reader().last_stable_offset(), Offset(3));
    // Decided, but not below the high watermark yet.
    let now = test.now;
    test.log()
        .append(&[end(6, 2, ControlRecordType::Commit)], now)
        .unwrap();
    assert_eq!(test.reader().last_stable_offset(), Offset(3));
    test.log().set_high_watermark(Offset(7));
    assert_eq!(test.reader().last_stable_offset(), Offset(7));
}

#[test]
fn aborted_transactions_are_listed_where_they_have_records() {
    let test = two_transactions();
    assert_eq!(aborted(&test, 0, 9), [(1, 0)]);
    assert_eq!(aborted(&test, 4, 9), [(1, 0)]);
    assert_eq!(aborted(&test, 5, 9), []);
    let reader = test.reader();
    let read = reader
        .read(Offset(0), 1 << 20, reader.last_stable_offset(), true)
        .unwrap();
    let listed = reader.aborted_transactions_of(Offset(0), &read).unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].last_stable_offset, Offset(2));
}

#[test]
fn records_are_not_returned_without_the_index_that_went_with_their_segment() {
    let mut test = two_transactions();
    test.log().close_active_segment(Timestamp(0)).unwrap();
    test.append(1);
    let reader = test.reader();
    let read = |from: i64| {
        let stable = reader.last_stable_offset();
        reader.read(Offset(from), 1 << 20, stable, true).unwrap()
    };
    let (first, last) = (read(0), read(9));
    // Remote storage has the first segment.
    test.log().delete_local_segments(1, Timestamp(0)).unwrap();
    let listed = reader.aborted_transactions_of(Offset(0), &first);
    assert!(
        matches!(listed, Err(ReadError::OffsetOutOfRange { .. })),
        "{listed:?}"
    );
    let listed = reader.aborted_transactions_of(Offset(9), &last).unwrap();
    assert!(listed.is_empty());
}

#[test]
fn only_segments_with_aborted_transactions_are_searched_for_them() {
    let mut test = two_transactions();
    test.log().close_active_segment(Timestamp(0)).unwrap();
    test.append(1);
    let has = |test: &TestLog, from| test.reader().has_aborted_transactions(Offset(from));
    assert!(has(&test, 0) && has(&test, 8), "the first segment");
    assert!(!has(&test, 9), "the second segment");
    test.append_batch(transactional(10, 1, 3, 0));
    test.append_batch(end(11, 3, ControlRecordType::Abort));
    assert!(has(&test, 9), "the active segment got one");
    test.log().close_active_segment(Timestamp(0)).unwrap();
    test.append(1);
    for _ in 0..2 {
        assert!(has(&test, 9) && !has(&test, 12));
        assert_eq!(aborted(&test, 0, 13), [(1, 0), (3, 10)]);
        assert_eq!(aborted(&test, 5, 13), [(3, 10)]);
        test.reopen();
    }
    let now = test.now;
    test.log().truncate_to(Offset(9), now).unwrap();
    assert!(has(&test, 8) && !has(&test, 9));
}

#[test]
fn transactions_survive_a_stop_and_a_crash() {
    let mut test = two_transactions();
    test.append_batch(transactional(9, 1, 3, 0));
    test.reopen();
    test.log().set_high_watermark(Offset(10));
    assert_eq!(aborted(&test, 0, 10), [(1, 0)]);
    assert_eq!(test.reader().last_stable_offset(), Offset(9));
    assert_eq!(test.log().producers().producer_count(), 3);

    let mut test = two_transactions();
    test.append_batch(transactional(9, 1, 3, 0));
    test.crash();
    test.log().set_high_watermark(Offset(10));
    assert_eq!(aborted(&test, 0, 10), [(1, 0)]);
    assert_eq!(test.reader().last_stable_offset(), Offset(9));
    test.append_batch(end(10, 3, ControlRecordType::Abort));
    assert_eq!(aborted(&test, 0, 11), [(1, 0), (3, 9)]);
    test.close();
    assert_eq!(test.file_len("00000000000000000000.txnindex"), 68);
}

#[test]
fn truncation_takes_producers_and_transactions_back() {
    let mut test = two_transactions();
    let now = test.now;
    test.log().truncate_to(Offset(5), now).unwrap();
    assert_eq!(aborted(&test, 0, 5), [(1, 0)]);
    assert_eq!(test.reader().last_stable_offset(), Offset(2));
    let entry = test.log().producers().producer(ProducerId(2)).unwrap();
    assert_eq!(entry.last_sequence(), Sequence(1));
    test.log().truncate_to(Offset(4), now).unwrap();
    assert_eq!(aborted(&test, 0, 4), []);
    assert_eq!(test.reader().last_stable_offset(), Offset(0));
    test.append_batch(end(4, 1, ControlRecordType::Abort));
    assert_eq!(aborted(&test, 0, 5), [(1, 0)]);
}

#[test]
fn duplicates_are_known_after_a_crash() {
    let crash = |test: &mut TestLog| {
        test.crash();
    };
    for stop in [TestLog::reopen, crash] {
        let mut test = TestLog::new();
        test.append_batch(idempotent(0, 3, 9, 0, 0));
        stop(&mut test);
        let mut stage = ProducerStage::default();
        let mut check = |batch: &RecordBatch| {
            let version = TransactionVersion::default();
            let log = test.log.as_ref().unwrap();
            log.check_producer(&mut stage, batch, AppendOrigin::Client, version)
        };
        let verdict = check(&idempotent(3, 3, 9, 0, 0)).unwrap();
        assert!(
            matches!(verdict, ProducerVerdict::Duplicate(first) if first.first_offset() == Offset(0))
        );
        assert_eq!(
            check(&idempotent(3, 1, 9, 0, 3)),
            Ok(ProducerVerdict::InSequence)
        );
    }
}
