use ottla_types::{Offset, ProducerId, Timestamp, Uuid};

use super::{AbortedRange, ReadEffect, ReadEvent, RemoteRead, TimestampSearch, find_timestamp};
use crate::test_segments::{cache_of, log, segment};
use crate::{AbortedTransaction, LeaderEpochs, RemoteLogMetadataCache, RemoteSegment};

fn epochs() -> LeaderEpochs {
    LeaderEpochs::from([(0, 0), (3, 25)])
}

/// Five segments of ten records; those in `with_aborted` have a transaction index.
fn remote(with_aborted: &[usize]) -> (Vec<RemoteSegment>, RemoteLogMetadataCache) {
    let segments: Vec<RemoteSegment> = (0..5)
        .map(|number| {
            let start = number as i64 * 10;
            let epochs = epochs().in_range(Some(Offset(start)), Offset(start + 10));
            let mut segment = segment(number as u128 + 1, start, start + 9, epochs);
            segment.is_txn_index_empty = !with_aborted.contains(&number);
            segment
        })
        .collect();
    let cache = cache_of(&segments);
    (segments, cache)
}

/// What a read needs, in words; nothing is found before `has_batch`.
fn story(
    offset: i64,
    is_read_committed: bool,
    cache: &RemoteLogMetadataCache,
    has_batch: i64,
    complete_in: i64,
) -> Vec<String> {
    let (mut read, mut effect) =
        RemoteRead::begin(Offset(offset), is_read_committed, &epochs(), cache).unwrap();
    let mut told = Vec::new();
    loop {
        let event = match &effect {
            ReadEffect::ReadSegment { segment, offset } => {
                told.push(format!("read {} from {offset}", segment.start_offset));
                if segment.end_offset.0 < has_batch {
                    ReadEvent::NoBatch
                } else {
                    ReadEvent::BatchesRead {
                        base_offset: *offset,
                        upper_bound: None,
                    }
                }
            }
            ReadEffect::CollectAborted { segment, range } => {
                let AbortedRange { from, upper_bound } = range;
                told.push(format!(
                    "aborted in {}: {from} to {upper_bound}",
                    segment.start_offset
                ));
                ReadEvent::AbortedCollected {
                    aborted: vec![AbortedTransaction {
                        producer_id: ProducerId(segment.start_offset.0),
                        first_offset: *from,
                        last_offset: segment.start_offset,
                        last_stable_offset: segment.end_offset,
                    }],
                    is_complete: segment.start_offset.0 >= complete_in,
                }
            }
            ReadEffect::CollectLocalAborted { .. } => {
                told.push("aborted locally".to_owned());
                ReadEvent::AbortedCollected {
                    aborted: vec![],
                    is_complete: false,
                }
            }
            ReadEffect::Finished {
                has_records,
                aborted,
            } => {
                let aborted = aborted.as_ref().map(Vec::len);
                told.push(format!("records {has_records}, aborted {aborted:?}"));
                return told;
            }
        };
        effect = read.step(event, cache);
    }
}

#[test]
fn a_read_goes_on_where_a_segment_has_nothing() {
    let (_, cache) = remote(&[]);
    assert_eq!(
        story(12, false, &cache, 12, 0),
        ["read 10 from 12", "records true, aborted None"]
    );
    assert_eq!(
        story(18, false, &cache, 20, 0),
        [
            "read 10 from 18",
            "read 20 from 18",
            "records true, aborted None"
        ]
    );
    assert_eq!(
        story(45, true, &cache, 99, 0),
        ["read 40 from 45", "records false, aborted Some(0)"]
    );
}

#[test]
fn aborted_transactions_are_collected_up_to_the_local_log() {
    let (_, cache) = remote(&[1, 3]);
    assert_eq!(
        story(12, true, &cache, 12, 99),
        [
            "read 10 from 12",
            "aborted in 10: 12 to 20",
            "aborted in 30: 12 to 20",
            "aborted locally",
            "records true, aborted Some(2)"
        ]
    );
    assert_eq!(
        story(2, true, &cache, 2, 10),
        [
            "read 0 from 2",
            "aborted in 10: 2 to 10",
            "records true, aborted Some(1)"
        ]
    );
}

#[test]
fn offsets_that_remote_storage_does_not_have() {
    let (_, cache) = remote(&[]);
    assert!(RemoteRead::begin(Offset(50), false, &epochs(), &cache).is_none());
    assert!(RemoteRead::begin(Offset(-1), false, &epochs(), &cache).is_none());
    let none = LeaderEpochs::default();
    assert!(RemoteRead::begin(Offset(5), false, &none, &cache).is_none());
}

#[test]
fn timestamps_are_searched_in_the_tier_that_has_them() {
    let (_, cache) = remote(&[]);
    let mut log = log(&[40, 50], 55, epochs());
    log.log_start_offset = Offset(0);
    let find = |timestamp, from| find_timestamp(Timestamp(timestamp), Offset(from), &log, &cache);
    let segment = |id| cache.get(Uuid::from_u128(id)).unwrap();
    // The newest record of a segment has its end offset for a timestamp.
    assert_eq!(find(0, 0), Some(TimestampSearch::Remote(segment(1))));
    assert_eq!(find(0, 15), Some(TimestampSearch::Remote(segment(2))));
    assert_eq!(find(20, 0), Some(TimestampSearch::Remote(segment(3))));
    assert_eq!(find(45, 0), Some(TimestampSearch::Local));
    assert_eq!(find(50, 0), None);
}
