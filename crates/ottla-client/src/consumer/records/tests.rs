use bytes::BytesMut;
use ottla_records::control::{EndTxnMarker, end_txn_batch};
use ottla_types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};

use super::*;

fn batch(base_offset: i64, count: i64, producer: Option<i64>) -> Bytes {
    let mut builder = RecordBatchBuilder::new(Compression::None).base_offset(Offset(base_offset));
    if let Some(id) = producer {
        builder = builder
            .producer(ProducerId(id), ProducerEpoch(0), Sequence(0))
            .transactional(true);
    }
    for number in 0..count {
        let value = (base_offset + number).to_string();
        builder.append(Timestamp(1), None, Some(value.as_bytes()), &[]);
    }
    builder.build_in_place()
}

fn marker(offset: i64, producer: i64, kind: ControlRecordType) -> Bytes {
    let end = EndTxnMarker {
        coordinator_epoch: 0,
    };
    let (id, epoch) = (ProducerId(producer), ProducerEpoch(0));
    let mut batch = end_txn_batch(id, epoch, kind, end, Timestamp(1));
    batch.assign_offset(Offset(offset), LeaderEpoch(0));
    batch.to_bytes()
}

fn fetch(parts: &[Bytes], from: i64, aborted: &[(i64, i64)]) -> CompletedFetch {
    let mut bytes = BytesMut::new();
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
    let aborted = aborted
        .iter()
        .map(|&(producer_id, first_offset)| AbortedTransaction {
            producer_id,
            first_offset,
            ..Default::default()
        })
        .collect();
    CompletedFetch::new("t".into(), 0, bytes.freeze(), from, aborted, true)
}

fn offsets(fetch: &mut CompletedFetch) -> Vec<i64> {
    let mut offsets = Vec::new();
    while let Some(record) = fetch.next_record().unwrap() {
        assert_eq!(record.value.unwrap(), record.offset.to_string().as_bytes());
        offsets.push(record.offset);
    }
    offsets
}

#[test]
fn records_before_the_position_and_a_truncated_batch_are_skipped() {
    let last = batch(8, 3, None);
    let cut = last.slice(..last.len() - 1);
    let mut fetch = fetch(&[batch(0, 4, None), batch(4, 4, None), cut], 5, &[]);
    assert_eq!(offsets(&mut fetch), [5, 6, 7]);
    assert_eq!(fetch.next_offset(), 8);
}

/// The following records are requested before these are read.
#[test]
fn the_next_offset_is_known_before_records_are_read() {
    let last = batch(8, 3, None);
    let cut = last.slice(..last.len() - 1);
    let aborted = [batch(4, 2, Some(1)), marker(6, 1, ControlRecordType::Abort)];
    let no_batch = Bytes::from_static(&[0; 100]);
    for (parts, from, end) in [
        (
            vec![batch(0, 4, None), batch(4, 4, None), cut.clone()],
            5,
            8,
        ),
        (
            vec![batch(0, 4, None), aborted[0].clone(), aborted[1].clone()],
            0,
            7,
        ),
        (vec![batch(0, 4, None), no_batch], 0, 4),
        (vec![cut], 8, 8),
        (vec![], 8, 8),
    ] {
        let fetched = fetch(&parts, from, &[(1, 4)]);
        assert_eq!(fetched.end_offset(), end, "{parts:?}");
    }
}

#[test]
fn aborted_transactions_are_skipped_up_to_their_marker() {
    let parts = [
        batch(0, 2, Some(1)),
        batch(2, 1, Some(2)),
        batch(3, 1, Some(1)),
        marker(4, 1, ControlRecordType::Abort),
        batch(5, 1, Some(1)),
        marker(6, 2, ControlRecordType::Commit),
        marker(7, 1, ControlRecordType::Commit),
    ];
    let mut committed = fetch(&parts, 0, &[(1, 0)]);
    assert_eq!(offsets(&mut committed), [2, 5]);
    assert_eq!(committed.next_offset(), 8, "after the markers");
    let mut uncommitted = fetch(&parts, 0, &[]);
    assert_eq!(offsets(&mut uncommitted), [0, 1, 2, 3, 5]);
}

#[test]
fn borrowed_reads_continue_after_owned_records() {
    let mut fetch = fetch(&[batch(0, 3, None), batch(3, 2, None)], 0, &[]);
    assert_eq!(fetch.next_record().unwrap().unwrap().offset, 0);
    assert_eq!(fetch.next_offset(), 1);
    let rest = fetch.next_batch().unwrap().unwrap();
    let seen: Vec<i64> = rest.iter().map(|record| record.unwrap().offset.0).collect();
    assert_eq!(seen, [1, 2]);
    assert_eq!(fetch.next_offset(), 3);
    assert_eq!(fetch.next_batch().unwrap().unwrap().iter().count(), 2);
    assert!(fetch.next_batch().unwrap().is_none());
}

#[test]
fn a_batch_knows_whether_it_contains_the_position() {
    let mut fetch = fetch(&[batch(0, 3, None), batch(3, 2, None)], 1, &[]);
    let begun = fetch.next_batch().unwrap().unwrap();
    assert_eq!((begun.base_offset(), begun.is_whole()), (0, false));
    let whole = fetch.next_batch().unwrap().unwrap();
    assert_eq!((whole.base_offset(), whole.is_whole()), (3, true));
    for record in whole.iter() {
        let value = record.unwrap().value.unwrap();
        let mut places = whole.bytes().windows(value.len());
        assert!(places.any(|place| place == value));
    }
}

#[test]
fn a_damaged_batch_is_an_error_and_is_not_skipped() {
    let mut broken = BytesMut::from(&batch(3, 2, None)[..]);
    let last = broken.len() - 1;
    broken[last] ^= 1;
    let mut fetch = fetch(&[batch(0, 3, None), broken.freeze()], 0, &[]);
    for _ in 0..3 {
        fetch.next_record().unwrap().unwrap();
    }
    assert!(fetch.next_record().is_err());
    assert_eq!(fetch.next_offset(), 3);
}

/// `bytes-consumed-total` and similar metrics count only returned records, with their decompressed
/// size.
#[test]
fn returned_records_are_counted_uncompressed_without_headers() {
    let value = [7; 1000];
    let build = |compression| {
        let mut builder = RecordBatchBuilder::new(compression);
        for _ in 0..10 {
            builder.append(Timestamp(1), None, Some(&value), &[]);
        }
        builder.build_in_place()
    };
    // Two bytes for the length, one each for attributes, timestamp, offset and key length, two for
    // the value length, no headers.
    let record = 2 + 4 + 2 + value.len() + 1;
    for compression in [Compression::None, Compression::Snappy] {
        let batch = build(compression);
        let mut by_record = fetch(std::slice::from_ref(&batch), 4, &[]);
        assert_eq!(by_record.handed_out(), Extent::default());
        by_record.next_record().unwrap().unwrap();
        let (records, bytes) = (1, record);
        assert_eq!(by_record.handed_out(), Extent { records, bytes });
        let mut by_batch = by_record.clone();
        while by_record.next_record().unwrap().is_some() {}
        while by_batch.next_batch().unwrap().is_some() {}
        let (records, bytes) = (6, 6 * record);
        assert_eq!(by_record.handed_out(), Extent { records, bytes });
        assert_eq!(by_batch.handed_out(), Extent { records, bytes });
        let mut whole = fetch(&[batch], 0, &[]);
        while whole.next_batch().unwrap().is_some() {}
        let (records, bytes) = (10, 10 * record);
        assert_eq!(whole.handed_out(), Extent { records, bytes });
    }
}
