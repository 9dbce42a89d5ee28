use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use ottla_records::{Compression, RecordBatchBuilder};
use ottla_types::{Offset, Timestamp};

use super::*;
use crate::consumer::config::GroupProtocol;
use crate::consumer::metrics::{ConsumerSensors, RequestTally};
use crate::metrics::Windows;

/// One batch with these offsets.
fn batch(offsets: std::ops::Range<i64>) -> Bytes {
    let mut builder = RecordBatchBuilder::new(Compression::None).base_offset(Offset(offsets.start));
    for offset in offsets {
        builder.append(Timestamp(1), None, Some(offset.to_string().as_bytes()), &[]);
    }
    builder.build_in_place()
}

fn held(from: i64, bytes: Bytes) -> HeldFetch {
    let windows = Windows {
        count: 2,
        length_ms: 30_000,
    };
    let sensors = Arc::new(ConsumerSensors::new(windows, GroupProtocol::Classic));
    HeldFetch {
        fetch: CompletedFetch::new("t".into(), 0, bytes, from, Vec::new(), true),
        topic: "t".into(),
        tally: RequestTally::new(sensors),
    }
}

fn at(next: i64, high_watermark: i64) -> Position {
    let mut position = Position::new(1);
    position.next = Some(next);
    position.high_watermark = Some(high_watermark);
    position
}

fn offsets(position: &mut Position) -> Vec<i64> {
    let mut offsets = Vec::new();
    while let Some(record) = position.next_record().unwrap() {
        offsets.push(record.offset);
    }
    offsets
}

/// With the default of `fetch.min.bytes`.
fn wanted(position: &Position) -> Option<i64> {
    position.wanted(false, 1)
}

/// Fetches as a consumer does.
fn fetch(position: &mut Position, count: i64) {
    let from = wanted(position).unwrap();
    assert!(position.is_asked_by(1, from));
    position.hold(held(from, batch(from..from + count)));
}

#[test]
fn records_are_prefetched_if_the_log_is_known_to_continue() {
    let mut position = at(0, 10);
    assert_eq!(wanted(&position), Some(0));
    fetch(&mut position, 4);
    assert_eq!(wanted(&position), Some(4), "after the buffered records");
    fetch(&mut position, 4);
    assert_eq!(wanted(&position), None, "no third piece");
    assert_eq!(position.next, Some(0));

    assert_eq!(offsets(&mut position), [0, 1, 2, 3]);
    assert_eq!(position.next, Some(4));
    assert!(position.holds_some());
    assert_eq!(wanted(&position), Some(8));
    fetch(&mut position, 2);
    assert_eq!(offsets(&mut position), [4, 5, 6, 7]);
    assert_eq!(wanted(&position), None, "no record is known after it");
    assert_eq!(offsets(&mut position), [8, 9]);
    assert!(!position.holds_some());
    assert_eq!(wanted(&position), Some(10), "new records are waited for");
}

#[test]
fn a_log_with_an_unknown_end_is_not_prefetched() {
    let mut position = at(0, 0);
    position.high_watermark = None;
    assert_eq!(wanted(&position), Some(0));
    fetch(&mut position, 4);
    assert_eq!(wanted(&position), None);
    position.high_watermark = Some(9);
    assert_eq!(wanted(&position), Some(4));
    assert_eq!(position.wanted(true, 1), None, "no stable offset is known");
    position.on_ahead_refused();
    assert_eq!(
        wanted(&position),
        None,
        "until the buffered records are returned"
    );
    assert_eq!(offsets(&mut position), [0, 1, 2, 3]);
    assert_eq!(wanted(&position), Some(4));
}

#[test]
fn late_records_are_returned_at_once() {
    let mut position = at(0, 10);
    fetch(&mut position, 4);
    let asked = wanted(&position).unwrap();
    assert_eq!(offsets(&mut position), [0, 1, 2, 3]);
    assert!(position.is_asked_by(1, asked));
    position.hold(held(asked, batch(4..6)));
    assert_eq!(offsets(&mut position), [4, 5]);
}

#[test]
fn no_record_after_an_unreadable_one_is_returned() {
    let mut broken = BytesMut::from(&batch(4..8)[..]);
    let last = broken.len() - 1;
    broken[last] ^= 1;
    let mut position = at(0, 20);
    fetch(&mut position, 4);
    position.hold(held(4, broken.freeze()));
    assert_eq!(offsets(&mut position), [0, 1, 2, 3]);
    fetch(&mut position, 4);
    let asked = position.fetch_offset().unwrap();
    position.next_record().unwrap_err();
    assert!(!position.holds_some());
    assert_eq!(position.next, Some(4));
    assert_eq!(wanted(&position), Some(4), "it is fetched again");
    assert!(!position.is_asked_by(1, asked), "an answer still under way");
}

/// The broker would delay the response, and other partitions whose buffers become empty would wait
/// for it.
#[test]
fn less_than_fetch_min_bytes_is_not_prefetched() {
    let mut position = at(0, 8);
    let piece = batch(0..4).len() as i32;
    fetch(&mut position, 4);
    assert_eq!(position.wanted(false, piece), Some(4));
    assert_eq!(position.wanted(false, piece + 1), None);
    position.high_watermark = Some(9);
    assert_eq!(position.wanted(false, piece + 1), Some(4));
}

#[test]
fn the_leader_is_asked_again_when_the_preferred_replica_fails() {
    let mut position = at(0, 8);
    position.read_replica = Some((2, Instant::now()));
    assert!(!position.forget_replica(1));
    assert!(position.read_replica.is_some());
    assert!(position.forget_replica(2));
    assert_eq!(position.read_replica, None);
    assert!(!position.forget_replica(2));
}
