use ottla_records::{Compression, RecordBatchBuilder};
use ottla_types::{ErrorCode, LeaderEpoch, Offset, Timestamp};

use super::{TestLog, batch_at};
use crate::{TimestampLookup, TimestampTarget};

fn find(test: &TestLog, target: TimestampTarget) -> Option<(i64, i64)> {
    let found: Option<TimestampLookup> = test.reader().offset_for_timestamp(target).unwrap();
    found.map(|found| (found.offset.0, found.timestamp.0))
}

fn at(test: &TestLog, timestamp: i64) -> Option<(i64, i64)> {
    find(test, TimestampTarget::At(Timestamp(timestamp)))
}

#[test]
fn records_are_found_by_their_time() {
    let size = batch_at(0, 10, 0).size_in_bytes() as i32;
    let mut test = TestLog::with_config(|config| {
        config.segment_bytes = 3 * size;
        config.index_interval_bytes = 10;
        config.segment_ms = i64::MAX;
    });
    for n in 0..10 {
        // Ten records from 1000 n on.
        test.append_batch(batch_at(n * 10, 10, n * 1000));
    }
    let check = |test: &TestLog| {
        assert_eq!(at(test, -5), Some((0, 0)));
        assert_eq!(at(test, 0), Some((0, 0)));
        assert_eq!(at(test, 5), Some((5, 5)));
        assert_eq!(at(test, 10), Some((10, 1000)));
        assert_eq!(at(test, 5003), Some((53, 5003)));
        assert_eq!(at(test, 5010), Some((60, 6000)));
        assert_eq!(at(test, 9009), Some((99, 9009)));
        assert_eq!(at(test, 9010), None);
        assert_eq!(find(test, TimestampTarget::MaxTimestamp), Some((99, 9009)));
        assert_eq!(find(test, TimestampTarget::Latest), Some((100, -1)));
    };
    check(&test);
    assert_eq!(find(&test, TimestampTarget::Earliest), Some((0, -1)));
    test.reopen();
    check(&test);
    test.crash();
    check(&test);
    test.log().set_high_watermark(Offset(100));
    test.log().increment_log_start_offset(Offset(25)).unwrap();
    assert_eq!(at(&test, 0), Some((25, 2005)));
    assert_eq!(find(&test, TimestampTarget::Earliest), Some((25, -1)));
}

#[test]
fn times_that_go_back_are_found_too() {
    let mut test = TestLog::with_config(|config| config.index_interval_bytes = 10);
    for (offset, timestamp) in [(0, 5000), (10, 9000), (20, 1000), (30, 9000), (40, 2000)] {
        test.append_batch(batch_at(offset, 10, timestamp));
    }
    assert_eq!(at(&test, 6000), Some((10, 9000)));
    assert_eq!(at(&test, 100), Some((0, 5000)));
    assert_eq!(find(&test, TimestampTarget::MaxTimestamp), Some((19, 9009)));
    test.log().truncate_to(Offset(10), Timestamp(0)).unwrap();
    assert_eq!(find(&test, TimestampTarget::MaxTimestamp), Some((9, 5009)));
    assert_eq!(at(&test, 6000), None);
}

#[test]
fn an_empty_log_has_only_its_ends() {
    let test = TestLog::new();
    assert_eq!(find(&test, TimestampTarget::Earliest), Some((0, -1)));
    assert_eq!(find(&test, TimestampTarget::Latest), Some((0, -1)));
    assert_eq!(find(&test, TimestampTarget::MaxTimestamp), None);
    assert_eq!(at(&test, 0), None);
}

#[test]
fn the_epoch_is_that_of_the_record() {
    let mut test = TestLog::new();
    for (offset, epoch) in [(0, 2), (10, 6)] {
        let mut batch = batch_at(offset, 10, offset * 1000);
        batch.assign_offset(Offset(offset), LeaderEpoch(epoch));
        test.append_batch(batch);
    }
    let epoch = |target| {
        let found = test.reader().offset_for_timestamp(target).unwrap();
        found.unwrap().leader_epoch.map(|epoch| epoch.0)
    };
    assert_eq!(epoch(TimestampTarget::Earliest), Some(2));
    assert_eq!(epoch(TimestampTarget::Latest), Some(6));
    assert_eq!(epoch(TimestampTarget::At(Timestamp(3))), Some(2));
    assert_eq!(epoch(TimestampTarget::MaxTimestamp), Some(6));
}

/// `max.decompressed.message.bytes` was higher when it was produced.
#[test]
fn a_record_that_is_too_large_is_not_searched() {
    let mut test = TestLog::with_config(|config| config.max_decompressed_message_bytes = 100);
    let mut builder = RecordBatchBuilder::new(Compression::Snappy)
        .base_offset(Offset(0))
        .partition_leader_epoch(LeaderEpoch(0));
    builder.append(Timestamp(5), None, Some(&[7; 200]), &[]);
    test.append_batch(builder.build());
    for target in [
        TimestampTarget::MaxTimestamp,
        TimestampTarget::At(Timestamp(0)),
    ] {
        let refused = test.reader().offset_for_timestamp(target).unwrap_err();
        assert_eq!(refused.error_code(), ErrorCode::InvalidRecord);
    }
}
