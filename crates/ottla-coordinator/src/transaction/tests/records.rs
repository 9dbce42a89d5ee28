//! The encoding of records, and the handling of damaged ones.

use bytes::Bytes;
use ottla_protocol::coordinator_records::{
    TransactionLogKey, TransactionLogValue, TransactionRecordKey, TransactionRecordValue,
};
use ottla_types::{Offset, ProducerId};

use super::super::{TransactionLogRecord, TransactionState as State};
use super::{ID, Script, expect, producer, transaction};
use crate::runtime::EncodeRecord;

fn key() -> Bytes {
    let key = TransactionLogKey {
        transactional_id: ID.into(),
    };
    TransactionRecordKey::TransactionLog(key).encode().unwrap()
}

#[test]
fn values_have_the_version_of_the_cluster() {
    for (transaction_version, version) in [(0, 0), (1, 1), (2, 1)] {
        let mut written = transaction(State::PrepareCommit, 3);
        written.next_producer_id = ProducerId(9);
        let record = TransactionLogRecord {
            transactional_id: ID.into(),
            transaction: Some(written.clone()),
            transaction_version,
        };
        let (_, value) = record.encode().unwrap();
        let value = value.unwrap();
        let (decoded, found) = TransactionRecordValue::decode_versioned(0, &value).unwrap();
        assert_eq!(found, version);
        let TransactionRecordValue::TransactionLog(decoded) = decoded else {
            panic!("another record");
        };
        // Only version 1 has the fields of KIP-890.
        let next = if version == 0 { -1 } else { 9 };
        assert_eq!(decoded.next_producer_id, next);
        assert_eq!(
            decoded.transaction_partitions.unwrap()[0].partition_ids,
            [0]
        );
    }
}

#[test]
fn an_id_without_a_transaction_has_no_partitions() {
    let record = TransactionLogRecord {
        transactional_id: ID.into(),
        transaction: Some(transaction(State::Empty, 3)),
        transaction_version: 2,
    };
    let (_, value) = record.encode().unwrap();
    let value = TransactionRecordValue::decode(0, &value.unwrap()).unwrap();
    let TransactionRecordValue::TransactionLog(value) = value else {
        panic!("another record");
    };
    assert_eq!(value.transaction_partitions, None);
}

#[test]
fn tombstones_take_ids_away_and_newer_records_are_passed_over() {
    let mut script = Script::new(2).load(transaction(State::Empty, 3));
    let coordinator = &mut script.coordinator;
    let newer = Bytes::from_static(b"\x00\x09xyz");
    coordinator.replay(Offset(1), &key(), Some(&newer)).unwrap();
    let other = Bytes::from_static(b"\x00\x07abc");
    coordinator.replay(Offset(2), &other, None).unwrap();
    assert_eq!(coordinator.transactions.len(), 1);
    coordinator.replay(Offset(3), &key(), None).unwrap();
    assert_eq!(coordinator.transactions.len(), 0);
}

#[test]
fn bytes_that_are_none_of_a_coordinator_are_an_error() {
    let mut script = Script::new(2);
    let coordinator = &mut script.coordinator;
    let cut = Bytes::from_static(b"\x00\x01\x00");
    assert!(coordinator.replay(Offset(1), &key(), Some(&cut)).is_err());
    assert!(
        coordinator
            .replay(Offset(1), &cut.slice(..1), None)
            .is_err()
    );
    let value = TransactionLogValue {
        transaction_status: 99,
        ..Default::default()
    };
    let value = TransactionRecordValue::TransactionLog(value)
        .encode(1)
        .unwrap();
    assert!(coordinator.replay(Offset(1), &key(), Some(&value)).is_err());
}

#[test]
fn impossible_ids_and_epochs_in_the_log_are_an_error_and_no_panic() {
    let mut impossible = transaction(State::Ongoing, -1);
    impossible.producer_id = ProducerId(-7);
    let mut script = Script::new(2).load(impossible);
    let of_log = producer(-7, -1);
    for is_commit in [true, false] {
        script.end(of_log, is_commit, 2);
        script.end(of_log, is_commit, 0);
    }
    expect(script.add(of_log, &[9]), "reply UNKNOWN_SERVER_ERROR");
    script.init();
    script.now_ms = i64::MAX;
    script.tick(super::TimerKey::AbortTimedOut);
}
