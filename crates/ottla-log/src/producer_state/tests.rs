use ottla_records::control::{ControlRecordType, EndTxnMarker, end_txn_batch};
use ottla_records::{Compression, RecordBatch, RecordBatchBuilder};
use ottla_types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};

use super::snapshot::{SnapshotError, decode, encode};
use super::{
    AppendOrigin, BatchMetadata, ProducerError, ProducerStage, ProducerState, ProducerVerdict,
    TransactionVersion,
};

const ID: ProducerId = ProducerId(7);

fn data(offset: i64, epoch: i16, sequence: i32, count: i32, transactional: bool) -> RecordBatch {
    let mut builder = RecordBatchBuilder::new(Compression::None)
        .base_offset(Offset(offset))
        .producer(ID, ProducerEpoch(epoch), Sequence(sequence))
        .transactional(transactional);
    for _ in 0..count {
        builder.append(Timestamp(100 + offset), None, None, &[]);
    }
    builder.build()
}

fn marker(offset: i64, epoch: i16, kind: ControlRecordType, coordinator_epoch: i32) -> RecordBatch {
    let marker = EndTxnMarker { coordinator_epoch };
    let mut batch = end_txn_batch(ID, ProducerEpoch(epoch), kind, marker, Timestamp(500));
    batch.assign_offset(Offset(offset), LeaderEpoch(0));
    batch
}

fn state() -> ProducerState {
    ProducerState::new(1000)
}

fn check(state: &ProducerState, batch: &RecordBatch) -> Result<ProducerVerdict, ProducerError> {
    let version = TransactionVersion::default();
    state.check(
        &mut ProducerStage::default(),
        batch,
        AppendOrigin::Client,
        version,
    )
}

/// Checks and applies.
fn append(state: &mut ProducerState, batch: &RecordBatch) {
    assert_eq!(check(state, batch), Ok(ProducerVerdict::InSequence));
    if let Some(completed) = state.apply(batch) {
        state.complete(&completed);
    }
}

fn out_of_order(sequence: i32, last: i32) -> Result<ProducerVerdict, ProducerError> {
    Err(ProducerError::OutOfOrderSequence {
        producer_id: ID,
        sequence: Sequence(sequence),
        last_sequence: Sequence(last),
    })
}

#[test]
fn sequences_must_follow_each_other() {
    let mut state = state();
    append(&mut state, &data(0, 0, 0, 3, false));
    append(&mut state, &data(3, 0, 3, 1, false));
    assert_eq!(check(&state, &data(4, 0, 5, 1, false)), out_of_order(5, 3));
    assert_eq!(check(&state, &data(4, 0, 2, 1, false)), out_of_order(2, 3));
    append(&mut state, &data(4, 0, 4, 1, false));
}

#[test]
fn an_unknown_producer_may_start_anywhere() {
    let mut state = state();
    append(&mut state, &data(0, 3, 77, 1, false));
    assert_eq!(
        check(&state, &data(1, 3, 79, 1, false)),
        out_of_order(79, 77)
    );
}

#[test]
fn sequences_wrap_to_zero() {
    let mut state = state();
    append(&mut state, &data(0, 0, i32::MAX - 1, 2, false));
    append(&mut state, &data(2, 0, 0, 1, false));
    append(&mut state, &data(3, 0, 1, 1, false));
    let repeated = check(&state, &data(4, 0, i32::MAX - 1, 2, false)).unwrap();
    assert!(
        matches!(repeated, ProducerVerdict::Duplicate(first) if first.last_offset == Offset(1))
    );
}

#[test]
fn the_last_five_batches_are_known_again() {
    let mut state = state();
    for n in 0..6 {
        append(&mut state, &data(n * 2, 0, n as i32 * 2, 2, false));
    }
    assert_eq!(
        check(&state, &data(12, 0, 0, 2, false)),
        out_of_order(0, 11)
    );
    for n in 1..6 {
        let expected = BatchMetadata {
            last_sequence: Sequence(n as i32 * 2 + 1),
            last_offset: Offset(n * 2 + 1),
            offset_delta: 1,
            timestamp: Timestamp(100 + n * 2),
        };
        assert_eq!(expected.first_offset(), Offset(n * 2));
        assert_eq!(
            check(&state, &data(12, 0, n as i32 * 2, 2, false)),
            Ok(ProducerVerdict::Duplicate(expected))
        );
    }
    // The same first sequence with a different count is not a duplicate.
    assert_eq!(
        check(&state, &data(12, 0, 10, 1, false)),
        out_of_order(10, 11)
    );
}

#[test]
fn a_new_epoch_starts_at_zero_and_fences_the_old() {
    let mut state = state();
    append(&mut state, &data(0, 1, 0, 1, false));
    assert_eq!(check(&state, &data(1, 2, 1, 1, false)), out_of_order(1, -1));
    append(&mut state, &data(1, 2, 0, 1, false));
    let fenced = check(&state, &data(2, 1, 1, 1, false));
    assert_eq!(
        fenced,
        Err(ProducerError::InvalidProducerEpoch {
            producer_id: ID,
            epoch: ProducerEpoch(1),
            current_epoch: ProducerEpoch(2)
        })
    );
}

#[test]
fn staged_batches_count() {
    let state = state();
    let mut stage = ProducerStage::default();
    let mut check = |batch: &RecordBatch| {
        let version = TransactionVersion::default();
        state.check(&mut stage, batch, AppendOrigin::Client, version)
    };
    assert_eq!(
        check(&data(0, 0, 0, 2, false)),
        Ok(ProducerVerdict::InSequence)
    );
    assert_eq!(
        check(&data(2, 0, 2, 1, false)),
        Ok(ProducerVerdict::InSequence)
    );
    assert!(matches!(
        check(&data(3, 0, 0, 2, false)),
        Ok(ProducerVerdict::Duplicate(_))
    ));
    assert_eq!(check(&data(3, 0, 4, 1, false)), out_of_order(4, 2));
    assert_eq!(state.producer_count(), 0);
}

#[test]
fn a_transaction_is_open_until_its_marker() {
    let mut state = state();
    append(&mut state, &data(0, 0, 0, 1, false));
    append(&mut state, &data(1, 0, 1, 2, true));
    append(&mut state, &data(3, 0, 3, 1, true));
    assert_eq!(state.first_unstable_offset(), Some(Offset(1)));
    let known = state.producer(ID).unwrap();
    assert!(known.is_in_transaction(ProducerEpoch(0)));
    assert!(!known.is_in_transaction(ProducerEpoch(1)));
    assert_eq!(
        check(&state, &data(4, 0, 4, 1, false)),
        Err(ProducerError::NotTransactional { producer_id: ID })
    );
    let completed = state
        .apply(&marker(4, 0, ControlRecordType::Abort, 5))
        .unwrap();
    assert_eq!(
        (completed.first_offset, completed.last_offset),
        (Offset(1), Offset(4))
    );
    assert!(completed.is_aborted);
    assert_eq!(state.last_stable_offset_after(&completed), Offset(5));
    state.complete(&completed);
    // Unstable until the marker is below the high watermark.
    assert_eq!(state.first_unstable_offset(), Some(Offset(1)));
    state.on_high_watermark(Offset(4));
    assert_eq!(state.first_unstable_offset(), Some(Offset(1)));
    state.on_high_watermark(Offset(5));
    assert_eq!(state.first_unstable_offset(), None);
    assert_eq!(state.first_undecided_offset(), None);
}

#[test]
fn markers_of_old_coordinators_are_fenced() {
    let mut state = state();
    append(&mut state, &data(0, 0, 0, 1, true));
    state.apply(&marker(1, 0, ControlRecordType::Commit, 5));
    let check = |batch: RecordBatch, version| {
        let origin = AppendOrigin::Coordinator;
        let version = TransactionVersion(version);
        state.check(&mut ProducerStage::default(), &batch, origin, version)
    };
    let old = marker(2, 0, ControlRecordType::Commit, 4);
    let fenced = check(old.clone(), 0);
    assert!(matches!(
        fenced,
        Err(ProducerError::CoordinatorFenced {
            current_epoch: 5,
            ..
        })
    ));
    let new = marker(2, 0, ControlRecordType::Commit, 5);
    assert_eq!(check(new.clone(), 0), Ok(ProducerVerdict::InSequence));
    // In version 2, the same epoch again is a repetition while no transaction is open.
    assert_eq!(check(new, 2), Ok(ProducerVerdict::InSequence));
}

#[test]
fn a_version_two_marker_must_raise_the_epoch_of_an_open_transaction() {
    let mut state = state();
    append(&mut state, &data(0, 4, 0, 1, true));
    let check = |epoch| {
        let batch = marker(1, epoch, ControlRecordType::Commit, 0);
        let version = TransactionVersion(2);
        state.check(
            &mut ProducerStage::default(),
            &batch,
            AppendOrigin::Coordinator,
            version,
        )
    };
    assert!(matches!(
        check(3),
        Err(ProducerError::InvalidProducerEpoch { .. })
    ));
    assert!(matches!(
        check(4),
        Err(ProducerError::InvalidProducerEpoch { .. })
    ));
    assert_eq!(check(5), Ok(ProducerVerdict::InSequence));
}

#[test]
fn producers_expire_unless_they_have_a_transaction() {
    let mut state = state();
    append(&mut state, &data(0, 0, 0, 1, false));
    assert_eq!(state.remove_expired(Timestamp(1099)), 0);
    assert_eq!(state.remove_expired(Timestamp(1100)), 1);
    append(&mut state, &data(1, 0, 1, 1, true));
    assert_eq!(state.remove_expired(Timestamp(1 << 50)), 0);
}

#[test]
fn snapshots_are_kafkas_bytes() {
    let mut state = state();
    append(&mut state, &data(0x0a, 3, 0x0b, 2, true));
    let bytes = encode([state.producer(ID).unwrap()].into_iter());
    let expected = [
        &[0, 0, 0, 1][..],
        &[0, 0, 0, 0, 0, 0, 0, 7],
        &[0, 3],
        &[0, 0, 0, 0x0c],
        &[0, 0, 0, 0, 0, 0, 0, 0x0b],
        &[0, 0, 0, 1],
        &[0, 0, 0, 0, 0, 0, 0, 110],
        &[0xff, 0xff, 0xff, 0xff],
        &[0, 0, 0, 0, 0, 0, 0, 0x0a],
    ]
    .concat();
    assert_eq!(bytes[6..], expected);
    assert_eq!(bytes[..2], [0, 1]);
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &expected) as u32;
    assert_eq!(bytes[2..6], crc.to_be_bytes());
    assert_eq!(&decode(&bytes).unwrap()[0], state.producer(ID).unwrap());
}

#[test]
fn damaged_snapshots_are_refused() {
    let mut state = state();
    append(&mut state, &data(0, 0, 0, 2, false));
    let bytes = encode([state.producer(ID).unwrap()].into_iter());
    for length in 0..bytes.len() {
        assert!(decode(&bytes[..length]).is_err(), "{length}");
    }
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 4;
        assert!(
            matches!(decode(&damaged), Err(SnapshotError::Corrupt(_))),
            "{at}"
        );
    }
}

#[test]
fn stray_snapshots_are_deleted_except_one_after_all_segments() {
    let dir = tempfile::tempdir().unwrap();
    let put = |offsets: &[i64]| {
        for offset in offsets {
            let name = crate::file_names::file_name(Offset(*offset), ".snapshot");
            std::fs::write(dir.path().join(name), b"x").unwrap();
        }
    };
    let left = |bases: &[i64]| {
        let mut state = state();
        state.list_snapshots(dir.path()).unwrap();
        let bases: Vec<Offset> = bases.iter().copied().map(Offset).collect();
        state.remove_stray_snapshots(dir.path(), &bases).unwrap();
        let mut again = self::state();
        again.list_snapshots(dir.path()).unwrap();
        let left: Vec<i64> = again.snapshots.iter().map(|offset| offset.0).collect();
        left
    };
    put(&[5, 10, 15, 30, 35]);
    assert_eq!(left(&[0, 10, 30]), [10, 30, 35]);
    assert_eq!(left(&[0, 10, 40]), [10]);
}

#[test]
fn a_reload_takes_the_newest_snapshot_that_can_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let mut original = state();
    append(&mut original, &data(0, 0, 0, 2, false));
    original.set_map_end_offset(Offset(2));
    original.write_snapshot(dir.path()).unwrap();
    append(&mut original, &data(2, 0, 2, 2, true));
    original.set_map_end_offset(Offset(4));
    original.write_snapshot(dir.path()).unwrap();
    std::fs::write(dir.path().join("00000000000000000006.snapshot"), b"junk").unwrap();

    let reload = |end: i64| {
        let mut state = state();
        state.list_snapshots(dir.path()).unwrap();
        let (start, now) = (Offset(0), Timestamp(200));
        state
            .truncate_and_reload(dir.path(), start, Offset(end), now)
            .unwrap();
        state
    };
    let loaded = reload(9);
    assert_eq!(loaded.map_end_offset(), Offset(4));
    assert_eq!(loaded.producer(ID).unwrap().last_sequence(), Sequence(3));
    assert_eq!(loaded.first_unstable_offset(), Some(Offset(2)));
    assert!(!dir.path().join("00000000000000000006.snapshot").exists());
    let loaded = reload(3);
    assert_eq!(loaded.map_end_offset(), Offset(2));
    assert_eq!(loaded.producer(ID).unwrap().last_sequence(), Sequence(1));
}
