use ottla_types::{Offset, ProducerId, Timestamp, Uuid};

use super::{
    AbortedRange, ReadEffect, ReadEvent, RemoteRead, SEARCHED_AT_ONCE, TimestampSearch,
    find_timestamp, search,
};
use crate::metadata_cache::LOOKS;
use crate::test_segments::{cache_of, log, segment};
use crate::{
    AbortedTransaction, EpochEntry, LeaderEpochs, RemoteLogMetadataCache, RemoteSegment,
    is_within_leader_epochs,
};

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

/// The effects of a read as text; no batch is found before `has_batch`.
fn story(
    offset: i64,
    is_read_committed: bool,
    cache: &RemoteLogMetadataCache,
    has_batch: i64,
    complete_in: i64,
) -> Vec<String> {
    let (mut read, mut effect) =
        RemoteRead::begin(Offset(offset), is_read_committed, &epochs(), cache).unwrap();
    let mut steps = Vec::new();
    loop {
        let event = match &effect {
            ReadEffect::ReadSegment {
                segment, offset, ..
            } => {
                steps.push(format!("read {} from {offset}", segment.start_offset));
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
                steps.push(format!(
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
                steps.push("aborted locally".to_owned());
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
                steps.push(format!("records {has_records}, aborted {aborted:?}"));
                return steps;
            }
        };
        effect = read.step(event, cache);
    }
}

#[test]
fn a_read_continues_in_the_next_segment() {
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
    let find =
        |timestamp, from| find_timestamp(Timestamp(timestamp), Offset(from), None, &log, &cache);
    let segment = |id| cache.get(Uuid::from_u128(id)).unwrap();
    // The newest record of a segment has its end offset for a timestamp.
    assert_eq!(find(0, 0), Some(TimestampSearch::Remote(segment(1))));
    assert_eq!(find(0, 15), Some(TimestampSearch::Remote(segment(2))));
    assert_eq!(find(20, 0), Some(TimestampSearch::Remote(segment(3))));
    assert_eq!(find(45, 0), Some(TimestampSearch::Local));
    assert_eq!(find(50, 0), None);
}

/// Others wait for the metadata during a call.
#[test]
fn a_call_of_a_search_by_time_looks_at_a_bounded_number_of_segments() {
    let search = |segments: i64, timestamp: i64, from: i64| {
        let end = segments * 10;
        let remote = (0..segments).map(|number| {
            let start = number * 10;
            // A new leader every 700 segments.
            let epochs = LeaderEpochs::from([(number as i32 / 700, start)]);
            segment(number as u128 + 1, start, start + 9, epochs)
        });
        let cache = cache_of(&remote.collect::<Vec<_>>());
        let leaders = (0..segments).step_by(700);
        let entry = |first: i64| EpochEntry::new(first as i32 / 700, first * 10);
        let mut log = log(&[end], end + 5, leaders.map(entry).collect());
        log.log_start_offset = Offset(0);
        let (mut stopped_at, mut calls, mut most_looks) = (None, 0, 0);
        loop {
            let before = LOOKS.get();
            let (timestamp, from) = (Timestamp(timestamp), Offset(from));
            let found = find_timestamp(timestamp, from, stopped_at, &log, &cache);
            calls += 1;
            most_looks = most_looks.max(LOOKS.get() - before);
            match found {
                Some(TimestampSearch::StoppedAt(segment)) => {
                    assert!(Some(segment) > stopped_at, "no progress");
                    stopped_at = Some(segment);
                }
                Some(TimestampSearch::Remote(segment)) => {
                    return (calls, most_looks, Some(segment.start_offset.0));
                }
                Some(TimestampSearch::Local) => panic!("no segment is in both tiers"),
                None => return (calls, most_looks, None),
            }
        }
    };
    let at_once = SEARCHED_AT_ONCE as u64;
    for segments in [2_000, 20_000] {
        let end = segments * 10;
        let (calls, looks, found) = search(segments, end, 0);
        assert_eq!((calls, found), (segments / 1024 + 1, None));
        assert!(looks < 3 * at_once, "{looks} looks");
        let (_, looks, found) = search(segments, end - 25, 0);
        assert_eq!(found, Some(end - 30));
        assert!(looks < 3 * at_once, "{looks} looks");
        // Segments before the start of the search cost nothing.
        let (calls, looks, found) = search(segments, end - 1, end - 45);
        assert_eq!((calls, found), (1, Some(end - 10)));
        assert!(looks < 100, "{looks} looks");
    }
}

/// Segments of another history may end after the first records of those that the log has, also of its
/// next epoch.
#[test]
fn a_search_by_time_that_continues_finds_what_one_call_finds() {
    let epochs = LeaderEpochs::from([(5, 0), (6, 150), (7, 300)]);
    let mut log = log(&[400], 405, epochs);
    log.log_start_offset = Offset(0);
    let remote: Vec<RemoteSegment> = [
        (0, 49, [(5, 0)].to_vec()),
        // The former leader of epoch 5 had more of it, and copied its end twice.
        (50, 199, [(5, 50)].to_vec()),
        (60, 229, [(5, 60)].to_vec()),
        (50, 99, [(5, 50)].to_vec()),
        (100, 169, [(5, 100), (6, 150)].to_vec()),
        (170, 299, [(6, 170)].to_vec()),
        // Another one followed it, with an epoch that the log does not have in this place.
        (160, 209, [(6, 160), (7, 200)].to_vec()),
        (180, 205, [(6, 180), (7, 190)].to_vec()),
        (300, 349, [(7, 300)].to_vec()),
        (350, 399, [(7, 350)].to_vec()),
    ]
    .into_iter()
    .zip(1..)
    .map(|((start, end, epochs), id)| {
        let epochs = epochs.into_iter().map(|(it, at)| EpochEntry::new(it, at));
        segment(id, start, end, epochs.collect())
    })
    .collect();
    let cache = cache_of(&remote);
    let is_of_log =
        |it: &&RemoteSegment| is_within_leader_epochs(it, log.log_end_offset, &log.leader_epochs);
    let mut of_log: Vec<&RemoteSegment> = remote.iter().filter(is_of_log).collect();
    of_log.sort_by_key(|segment| segment.start_offset);
    assert_eq!(of_log.len(), 6);

    let find = |timestamp, from, at_most| {
        let mut stopped_at = None;
        loop {
            match search(timestamp, from, stopped_at, at_most, &log, &cache) {
                Some(TimestampSearch::StoppedAt(segment)) => {
                    assert!(Some(segment) > stopped_at, "no progress");
                    stopped_at = Some(segment);
                }
                Some(TimestampSearch::Remote(segment)) => return Some(segment.id),
                Some(TimestampSearch::Local) => panic!("no segment is in both tiers"),
                None => return None,
            }
        }
    };
    for at_most in 1..=remote.len() {
        for (timestamp, from) in (0..420).flat_map(|it| [(it, 0), (it, it / 2), (0, it)]) {
            let (timestamp, from) = (Timestamp(timestamp), Offset(from));
            let has_it =
                |it: &&&RemoteSegment| it.end_offset >= from && it.max_timestamp >= timestamp;
            let expected = of_log.iter().find(has_it).map(|segment| segment.id);
            let found = find(timestamp, from, at_most);
            assert_eq!(found, expected, "{timestamp} from {from}, {at_most} a call");
        }
    }
}

#[test]
fn records_of_another_history_in_a_segment_are_not_read() {
    // A former leader copied epoch 5 up to offset 199. This log has it up to 149, and copied a
    // segment that begins at the same offset.
    let log = LeaderEpochs::from([(5, 0), (6, 150)]);
    let mut longer = segment(1, 100, 199, LeaderEpochs::from([(5, 100)]));
    longer.is_txn_index_empty = false;
    let mut of_log = segment(2, 100, 249, LeaderEpochs::from([(5, 100), (6, 150)]));
    of_log.is_txn_index_empty = false;
    let cache = cache_of(&[longer.clone(), of_log.clone()]);
    // As they are once their copies are finished.
    let [longer, of_log] = [longer, of_log].map(|copied| cache.get(copied.id).unwrap());
    let begin = |offset| RemoteRead::begin(Offset(offset), true, &log, &cache).unwrap();

    let (mut read, effect) = begin(120);
    let (offset, end) = (Offset(120), Offset(150));
    let expected = ReadEffect::ReadSegment {
        segment: longer.clone(),
        offset,
        end,
    };
    assert_eq!(effect, expected);
    let effect = read.step(
        ReadEvent::BatchesRead {
            base_offset: Offset(120),
            upper_bound: Some(Offset(170)),
        },
        &cache,
    );
    let range = AbortedRange {
        from: Offset(120),
        upper_bound: Offset(150),
    };
    let expected = ReadEffect::CollectAborted {
        segment: longer.clone(),
        range,
    };
    assert_eq!(effect, expected);
    let aborted = |last_offset| AbortedTransaction {
        producer_id: ProducerId(1),
        first_offset: Offset(125),
        last_offset: Offset(last_offset),
        last_stable_offset: Offset(160),
    };
    // Its marker at offset 160 is of the other history.
    let found = ReadEvent::AbortedCollected {
        aborted: vec![aborted(140), aborted(160)],
        is_complete: true,
    };
    let expected = ReadEffect::CollectAborted {
        segment: of_log.clone(),
        range,
    };
    assert_eq!(read.step(found, &cache), expected);
    let found = ReadEvent::AbortedCollected {
        aborted: vec![],
        is_complete: true,
    };
    let expected = ReadEffect::Finished {
        has_records: true,
        aborted: Some(vec![aborted(140)]),
    };
    assert_eq!(read.step(found, &cache), expected);

    // And it continues there with the records of the log.
    let (mut read, _) = begin(149);
    let expected = ReadEffect::ReadSegment {
        segment: of_log,
        offset: Offset(149),
        end: Offset(250),
    };
    assert_eq!(read.step(ReadEvent::NoBatch, &cache), expected);
}
