//! Logs whose first segments are in remote storage.

use std::sync::Arc;

use ottla_types::{LeaderEpoch, Offset, Timestamp};

use super::TestLog;
use crate::ReadError;

const NOW: Timestamp = Timestamp(1_000_000);

/// Five batches of ten records, two in a segment; the last segment is active.
fn tiered() -> TestLog {
    let mut test = TestLog::with_config(|config| {
        config.segment_bytes = 1 << 20;
        config.remote_storage_enable = true;
    });
    for _ in 0..2 {
        test.append(10);
        test.append(10);
        test.log().close_active_segment(NOW).unwrap();
    }
    test.append(10);
    test
}

#[test]
fn segments_that_are_only_remote_stay_part_of_the_log() {
    let mut test = tiered();
    test.log().assign_leader_epoch(LeaderEpoch(0), Offset(0));
    test.flush();
    test.log().delete_local_segments(1, NOW).unwrap();
    test.run_jobs();
    let reader = test.reader();
    assert_eq!(test.bases(), [20, 40]);
    assert_eq!(reader.log_start_offset(), Offset(0));
    assert_eq!(reader.local_log_start_offset(), Offset(20));
    assert!(reader.is_only_remote(Offset(19)));
    assert!(!reader.is_only_remote(Offset(20)));
    assert!(!reader.is_only_remote(Offset(-1)));
    let read = reader.read(Offset(19), 1 << 20, Offset(50), true);
    assert!(matches!(read, Err(ReadError::OffsetOutOfRange { .. })));
    assert_eq!(test.read_all(20), [(20, 29), (30, 39), (40, 49)]);
    let earliest = reader.leader_epochs().earliest().unwrap();
    assert_eq!(earliest.start_offset, Offset(0));
    assert!(!test.path().join("00000000000000000000.log").exists());

    test.reopen();
    assert_eq!(test.reader().log_start_offset(), Offset(0), "after a stop");
    test.crash();
    assert_eq!(test.reader().log_start_offset(), Offset(0), "after a kill");
    assert_eq!(test.reader().local_log_start_offset(), Offset(20));
    assert_eq!(test.read_all(20), [(20, 29), (30, 39), (40, 49)]);
}

#[test]
fn all_segments_may_go() {
    let mut test = tiered();
    test.log().delete_local_segments(3, NOW).unwrap();
    test.run_jobs();
    assert_eq!(test.bases(), [50]);
    assert_eq!(test.reader().local_log_start_offset(), Offset(50));
    assert_eq!(test.reader().log_end_offset(), Offset(50));
    test.append(10);
    assert_eq!(test.read_all(50), [(50, 59)]);
}

#[test]
fn closed_segments_are_complete_when_they_are_flushed() {
    let mut test = tiered();
    let complete = |test: &mut TestLog| -> Vec<bool> {
        let segments = test.log().local_segments().unwrap();
        segments.iter().map(|it| it.are_files_complete).collect()
    };
    assert_eq!(complete(&mut test), [false, false, false]);
    test.flush();
    assert_eq!(complete(&mut test), [true, true, false]);
    let segments = test.log().local_segments().unwrap();
    assert!(segments.iter().all(|it| it.is_txn_index_empty));
    assert_eq!(segments[0].largest_timestamp, Timestamp(1_000_019));
    let files = test.log().closed_segment_files(Offset(0), Offset(20));
    for file in [
        &files.log,
        &files.offset_index,
        &files.time_index,
        &files.producer_snapshot,
    ] {
        assert!(file.exists(), "{}", file.display());
    }
    let size = std::fs::metadata(&files.log).unwrap().len();
    assert_eq!(size, segments[0].size_bytes);
}

#[test]
fn a_log_that_is_no_longer_tiered_starts_with_its_local_segments() {
    let mut test = tiered();
    test.log().delete_local_segments(1, NOW).unwrap();
    test.run_jobs();
    let mut config = test.config.clone();
    config.remote_storage_enable = false;
    test.log().set_config(Arc::new(config));
    assert_eq!(test.reader().log_start_offset(), Offset(20));
    assert!(!test.reader().is_only_remote(Offset(10)));
    test.log().set_highest_remote_offset(Offset(39));
    assert_eq!(test.reader().highest_remote_offset(), Offset::UNKNOWN);
}

#[test]
fn the_highest_remote_offset_may_fall() {
    let mut test = tiered();
    assert_eq!(test.reader().highest_remote_offset(), Offset::UNKNOWN);
    test.log().set_highest_remote_offset(Offset(39));
    test.log().set_highest_remote_offset(Offset(19));
    assert_eq!(test.reader().highest_remote_offset(), Offset(19));
}

#[test]
fn a_truncation_lowers_the_highest_remote_offset() {
    let mut test = tiered();
    test.log().set_highest_remote_offset(Offset(39));
    let truncations = test.reader().truncations();
    test.log().truncate_to(Offset(30), NOW).unwrap();
    assert_eq!(test.reader().highest_remote_offset(), Offset(29));
    assert!(test.reader().truncations() > truncations);
    assert_eq!(test.reader().log_start_offset(), Offset(0));
}

#[test]
fn a_replacing_log_continues_the_count_of_truncations() {
    let [mut replaced, mut copy] = [tiered(), tiered()];
    replaced.log().truncate_to(Offset(30), NOW).unwrap();
    let before = replaced.reader().truncations();
    copy.log().continue_truncations_of(&replaced.reader());
    copy.log().truncate_to(Offset(30), NOW).unwrap();
    assert!(copy.reader().truncations() > before);
}

#[test]
fn remote_records_before_a_truncation_stay_part_of_the_log() {
    let mut test = tiered();
    test.log().assign_leader_epoch(LeaderEpoch(0), Offset(0));
    test.log().assign_leader_epoch(LeaderEpoch(3), Offset(18));
    test.flush();
    test.log().delete_local_segments(1, NOW).unwrap();
    test.run_jobs();
    test.log().truncate_to(Offset(15), NOW).unwrap();
    let reader = test.reader();
    assert_eq!(reader.log_start_offset(), Offset(0));
    assert_eq!(reader.local_log_start_offset(), Offset(15));
    assert_eq!(reader.log_end_offset(), Offset(15));
    let epochs = reader.leader_epochs().entries().to_vec();
    assert_eq!(epochs.len(), 1, "{epochs:?}");
    assert_eq!(epochs[0].epoch, LeaderEpoch(0));
}
