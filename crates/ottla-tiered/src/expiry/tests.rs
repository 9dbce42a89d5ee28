use ottla_types::{BrokerId, Offset, Timestamp, Uuid};

use super::{Expiry, Leading, Retention, expire};
use crate::test_segments::{cache_of, log, segment};
use crate::{LeaderEpochs, LogView, RemoteLogMetadataCache, RemoteLogSegmentState, RemoteSegment};

const FOREVER: Retention = Retention {
    retention_ms: -1,
    retention_bytes: -1,
};

fn epochs() -> LeaderEpochs {
    LeaderEpochs::from([(0, 0), (1, 25)])
}

/// Segments of ten records and ten bytes. The timestamp of the newest record is its offset.
fn remote(count: i64) -> Vec<RemoteSegment> {
    (0..count)
        .map(|number| {
            let (start, end) = (number * 10, number * 10 + 9);
            let epochs = epochs().in_range(Some(Offset(start)), Offset(end + 1));
            segment(number as u128 + 1, start, end, epochs)
        })
        .collect()
}

/// A log with remote segments 0 to 49 and local segments from 40 on.
fn tiered() -> (LogView, RemoteLogMetadataCache) {
    let mut log = log(&[40, 50], 55, epochs());
    log.log_start_offset = Offset(0);
    log.highest_remote_offset = Offset(49);
    (log, cache_of(&remote(5)))
}

fn ids(expiry: &Expiry) -> Vec<u128> {
    let segments = expiry.segments.iter();
    segments.map(|it| u128::from_be_bytes(it.id.0)).collect()
}

fn run(log: &LogView, cache: &RemoteLogMetadataCache, retention: Retention) -> Expiry {
    expire(log, cache, retention, Leading::default(), Timestamp(1000))
}

#[test]
fn nothing_expires_without_limits() {
    let (log, cache) = tiered();
    let expiry = run(&log, &cache, FOREVER);
    assert_eq!((ids(&expiry), expiry.log_start_offset), (vec![], None));
    assert_eq!(expiry.stats.segments, 5);
    assert_eq!(expiry.stats.finished_bytes, 50);
}

#[test]
fn old_segments_expire_in_order() {
    let (log, cache) = tiered();
    let retention = Retention {
        retention_ms: 980,
        ..FOREVER
    };
    // Records before timestamp 20.
    let expiry = run(&log, &cache, retention);
    assert_eq!(ids(&expiry), [1, 2]);
    assert_eq!(expiry.log_start_offset, Some(Offset(20)));
    let retention = Retention {
        retention_ms: 1001,
        ..FOREVER
    };
    let expiry = run(&log, &cache, retention);
    assert_eq!(ids(&expiry), [0u128; 0], "before the epoch of the clock");
}

#[test]
fn the_first_segment_that_stays_keeps_those_after_it() {
    let (log, _) = tiered();
    let mut segments = remote(5);
    segments[1].max_timestamp = Timestamp(500);
    let retention = Retention {
        retention_ms: 900,
        ..FOREVER
    };
    assert_eq!(ids(&run(&log, &cache_of(&segments), retention)), [1]);
}

#[test]
fn whole_segments_expire_by_size() {
    let (log, cache) = tiered();
    let size = |retention_bytes| Retention {
        retention_bytes,
        ..FOREVER
    };
    // 50 bytes are remote, and 5 are only local.
    assert_eq!(ids(&run(&log, &cache, size(55))), [0u128; 0]);
    assert_eq!(ids(&run(&log, &cache, size(46))), [0u128; 0]);
    let expiry = run(&log, &cache, size(45));
    assert_eq!(ids(&expiry), [1]);
    assert_eq!(expiry.log_start_offset, Some(Offset(10)));
    assert_eq!(ids(&run(&log, &cache, size(0))), [1, 2, 3, 4, 5]);
}

#[test]
fn segments_in_both_tiers_count_once_for_a_log_that_does_not_know_them() {
    let (mut log, cache) = tiered();
    log.highest_remote_offset = Offset::UNKNOWN;
    let size = |retention_bytes| Retention {
        retention_bytes,
        ..FOREVER
    };
    assert_eq!(ids(&run(&log, &cache, size(55))), [0u128; 0]);
    assert_eq!(ids(&run(&log, &cache, size(45))), [1]);
}

#[test]
fn segments_in_both_tiers_count_once_if_a_copy_before_them_is_missing() {
    let mut log = log(&[0, 10, 20, 30, 40, 50], 55, epochs());
    log.highest_remote_offset = Offset(9);
    let mut cache = cache_of(&remote(5));
    let missing = cache.get(Uuid::from_u128(2)).unwrap();
    let deleting = RemoteLogSegmentState::DeleteSegmentStarted;
    let update = missing.to_state(deleting, Timestamp(1), BrokerId(1));
    cache.update(&update).unwrap();
    let size = |retention_bytes| Retention {
        retention_bytes,
        ..FOREVER
    };
    // 40 bytes are remote, and 15 are only local. The deletion of the second segment continues.
    assert_eq!(ids(&run(&log, &cache, size(55))), [2]);
    assert_eq!(ids(&run(&log, &cache, size(45))), [1, 2]);
}

#[test]
fn segments_expired_by_time_count_for_the_size() {
    let (log, cache) = tiered();
    let retention = Retention {
        retention_ms: 980,
        retention_bytes: 36,
    };
    assert_eq!(ids(&run(&log, &cache, retention)), [1, 2]);
    let retention = Retention {
        retention_ms: 980,
        retention_bytes: 25,
    };
    let expiry = run(&log, &cache, retention);
    assert_eq!(ids(&expiry), [1, 2, 3]);
    // Five remote segments, and the local one after them.
    assert_eq!(
        expiry.retained_bytes,
        50 + log.segments[1].size_bytes as u64
    );
    assert_eq!(run(&log, &cache, FOREVER).retained_bytes, 0);
}

#[test]
fn segments_before_the_log_start_go_without_moving_it() {
    let (mut log, cache) = tiered();
    log.log_start_offset = Offset(25);
    log.leader_epochs.truncate_from_start(Offset(25));
    let expiry = run(&log, &cache, FOREVER);
    // The third segment ends at 29 and has records of both epochs.
    assert_eq!((ids(&expiry), expiry.log_start_offset), (vec![1, 2], None));
    log.log_start_offset = Offset(30);
    log.leader_epochs.truncate_from_start(Offset(30));
    assert_eq!(ids(&run(&log, &cache, FOREVER)), [3, 1, 2]);
}

#[test]
fn begun_deletions_are_continued_and_other_histories_left() {
    let (log, mut cache) = tiered();
    let begun = RemoteLogSegmentState::DeleteSegmentStarted;
    let third = cache.get(Uuid::from_u128(3)).unwrap();
    let update = third.to_state(begun, Timestamp(0), BrokerId(1));
    cache.update(&update).unwrap();
    // An old leader's records of epoch 0 beyond its end.
    let other = segment(9, 24, 60, LeaderEpochs::from([(0, 24)]));
    cache.add(&other).unwrap();
    let retention = Retention {
        retention_ms: 980,
        ..FOREVER
    };
    assert_eq!(ids(&run(&log, &cache, retention)), [1, 2, 3]);
    assert_eq!(
        ids(&run(&log, &cache, FOREVER)),
        [3],
        "nothing else expires"
    );
}

#[test]
fn a_dangling_upload_expires_with_its_records() {
    let (log, mut cache) = tiered();
    let dangling = segment(9, 10, 19, LeaderEpochs::from([(0, 10)]));
    cache.add(&dangling).unwrap();
    let retention = Retention {
        retention_ms: 980,
        ..FOREVER
    };
    assert_eq!(ids(&run(&log, &cache, retention)), [1, 2, 9]);
    let leading = Leading {
        being_copied: Some(Uuid::from_u128(9)),
        ..Leading::default()
    };
    let expiry = expire(&log, &cache, retention, leading, Timestamp(1000));
    assert_eq!(ids(&expiry), [1, 2], "it is being copied");
}

#[test]
fn an_abandoned_upload_is_deleted_without_retention() {
    let (log, mut cache) = tiered();
    // It began at 0.
    let left = segment(9, 10, 19, LeaderEpochs::from([(0, 10)]));
    cache.add(&left).unwrap();
    let ids_at = |being_copied, now| {
        let leading = Leading {
            being_copied,
            for_ms: 3_600_001,
        };
        let expiry = expire(&log, &cache, FOREVER, leading, Timestamp(now));
        (ids(&expiry), expiry.log_start_offset)
    };
    assert_eq!(ids_at(None, 3_600_000), (vec![], None));
    assert_eq!(ids_at(None, 3_600_001), (vec![9], None));
    let being_copied = Some(Uuid::from_u128(9));
    assert_eq!(ids_at(being_copied, 3_600_001), (vec![], None));
}

#[test]
fn segments_that_another_leader_deletes_do_not_move_the_log_start() {
    let (log, mut cache) = tiered();
    let first = cache.get(Uuid::from_u128(1)).unwrap();
    let begun = RemoteLogSegmentState::DeleteSegmentStarted;
    let update = first.to_state(begun, Timestamp(0), BrokerId(2));
    cache.update(&update).unwrap();
    let expiry = run(&log, &cache, FOREVER);
    assert_eq!(
        (ids(&expiry), expiry.log_start_offset),
        (vec![1], Some(Offset(10)))
    );
}

#[test]
fn an_empty_remote_log_has_nothing_to_expire() {
    let (log, _) = tiered();
    assert_eq!(run(&log, &cache_of(&[]), FOREVER), Expiry::default());
}
