//! Recovery after a killed process or a full disk.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use ottla_types::{LeaderEpoch, Offset};

use super::{TestLog, batch, idempotent};
use crate::disk::trace;
use crate::{AppendErrorReason, RecoveryReport};

#[test]
fn every_cut_of_the_last_write_is_recovered_from() {
    let mut test = TestLog::new();
    test.append(3);
    test.append(2);
    test.flush();
    let name = test.path().join("00000000000000000000.log");
    let kept = fs::metadata(&name).unwrap().len();
    test.append(4);
    let whole = fs::read(&name).unwrap();
    for len in kept as usize..=whole.len() {
        test.log = None;
        fs::write(&name, &whole[..len]).unwrap();
        let report = test.open(5, false);
        let is_whole = len == whole.len();
        let expected = match is_whole {
            true => vec![(0, 2), (3, 4), (5, 8)],
            false => vec![(0, 2), (3, 4)],
        };
        assert_eq!(test.read_all(0), expected, "{len}");
        let cut = if is_whole { 0 } else { len as u64 - kept };
        assert_eq!(report.bytes_truncated, cut, "{len}");
        assert_eq!(report.truncated_below_recovery_point, None);
        assert_eq!(test.reader().recovery_point(), Offset(5));
    }
}

#[test]
fn index_entries_that_never_reached_the_file_are_written_again() {
    let mut test = TestLog::with_config(|config| config.index_interval_bytes = 50);
    for _ in 0..50 {
        test.append(1);
    }
    assert_eq!(test.file_len("00000000000000000000.index"), 0);
    test.crash();
    let size = batch(0, 1).size_in_bytes() as u64;
    // The first batch has none.
    assert_eq!(test.file_len("00000000000000000000.index"), 49 * 8);
    assert_eq!(test.reader().size(), 50 * size);
}

/// Number of changes to the disk that the recovery after a kill makes.
fn changes_of_recovery(test: &mut TestLog) -> usize {
    trace::start(test.path());
    let report = test.crash();
    assert_eq!(report.segments_recovered, 1);
    assert_eq!((report.indexes_rebuilt, report.bytes_truncated), (0, 0));
    trace::stop().len()
}

/// With very many logs, changes of files and directories would be most of a start after a kill.
#[test]
fn the_recovery_of_an_idle_log_changes_nothing_on_disk() {
    let mut test = TestLog::new();
    assert_eq!(changes_of_recovery(&mut test), 0, "without a record");
    test.append(3);
    assert_eq!(changes_of_recovery(&mut test), 0, "never stopped");
    test.reopen();
    let files = test.files();
    assert!(files.contains(&"00000000000000000003.snapshot".to_owned()));
    assert_eq!(changes_of_recovery(&mut test), 0, "nothing since a stop");
    test.append(2);
    for _ in 0..2 {
        assert_eq!(changes_of_recovery(&mut test), 0, "a record since a stop");
        assert_eq!(test.files(), files);
        assert_eq!(test.read_all(0), [(0, 2), (3, 4)]);
    }
    test.reopen();
    assert_eq!(test.read_all(0), [(0, 2), (3, 4)]);
    // An entry of each stop.
    assert_eq!(test.file_len("00000000000000000000.timeindex"), 2 * 12);
    assert_eq!(test.file_len("00000000000000000000.index"), 0);
}

#[test]
fn a_time_index_that_the_records_contradict_is_written_again() {
    let mut test = TestLog::new();
    test.append(3);
    test.reopen();
    let path = test.path().join("00000000000000000000.timeindex");
    let right = fs::read(&path).unwrap();
    for at in [7, 11] {
        let mut wrong = right.clone();
        wrong[at] ^= 1;
        fs::write(&path, wrong).unwrap();
        test.crash();
        assert_eq!(fs::read(&path).unwrap(), right, "byte {at}");
    }
}

#[test]
fn a_snapshot_that_the_records_contradict_is_deleted() {
    let name = "00000000000000000003.snapshot";
    let mut other = TestLog::new();
    other.append_batch(idempotent(0, 3, 5, 0, 0));
    other.close();
    let mut test = TestLog::new();
    test.append(3);
    test.reopen();
    // As from before a truncation.
    fs::copy(other.path().join(name), test.path().join(name)).unwrap();
    test.append(2);
    test.crash();
    assert!(!test.files().contains(&name.to_owned()));
    assert_eq!(test.log().producers().producer_count(), 0);
    test.reopen();
    assert_eq!(test.log().producers().producer_count(), 0);
}

#[test]
fn a_full_disk_refuses_appends_and_keeps_whole_batches() {
    // A file size limit cannot be set for a single test, so the disk is `/dev/full`.
    let mut test = TestLog::new();
    test.append(3);
    let before = test.reader().size();
    let now = test.now;
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    test.log().swap_active_file(full.into());
    let refused = test.log().append(&[batch(3, 1)], now).unwrap_err();
    // `/dev/full` cannot be cut either, which takes the directory offline.
    assert!(matches!(refused.reason, AppendErrorReason::Storage(_)));
    assert_eq!(refused.batches_written, 0);
    assert_eq!(test.log().log_end_offset(), Offset(3));
    assert_eq!(test.reader().size(), before);
    test.log().swap_active_file_back();
    test.append(1);
    assert_eq!(test.read_all(0), [(0, 2), (3, 3)]);
}

#[test]
fn a_directory_that_cannot_be_written_is_an_error_not_a_panic() {
    let mut test = TestLog::with_config(|config| config.segment_bytes = 200);
    test.append(1);
    // Root can write anyway; then the test has nothing to check.
    fs::set_permissions(test.path(), fs::Permissions::from_mode(0o555)).unwrap();
    let probe = fs::File::create(test.path().join("probe"));
    let now = test.now;
    let result = test.log().append(&[batch(1, 2)], now);
    fs::set_permissions(test.path(), fs::Permissions::from_mode(0o755)).unwrap();
    match probe {
        Ok(_) => assert!(result.is_ok()),
        Err(_) => assert!(matches!(
            result.unwrap_err().reason,
            AppendErrorReason::Storage(_)
        )),
    }
}

/// Its batches at offsets 0 to 4 are two in a segment, and that at 3 is gone.
fn log_with_a_gap() -> TestLog {
    let size = batch(0, 1).size_in_bytes() as i32;
    let mut test = TestLog::with_config(|config| config.segment_bytes = 2 * size);
    for _ in 0..5 {
        test.append(1);
    }
    assert_eq!(test.bases(), [0, 2, 4]);
    test.log = None;
    let cut = test.path().join("00000000000000000002.log");
    let file = fs::File::options().write(true).open(cut).unwrap();
    file.set_len(size as u64).unwrap();
    test
}

#[test]
fn a_gap_above_the_recovery_point_is_doubtful() {
    let mut test = log_with_a_gap();
    for (recovery_point, first_gap) in [(0, Some(3)), (2, Some(3)), (3, Some(3)), (4, None)] {
        let report = test.open(recovery_point, false);
        let first_gap = first_gap.map(Offset);
        assert_eq!(report.first_gap, first_gap, "{recovery_point}");
        assert_eq!(test.log().doubtful_from(), first_gap, "{recovery_point}");
        // Nothing is cut: a leader keeps what it has.
        assert_eq!(test.read_all(0), [(0, 0), (1, 1), (2, 2), (4, 4)]);
        test.log = None;
    }
}

/// The replica may be stopped before its leader has answered.
#[test]
fn a_gap_is_doubtful_until_its_records_are_fetched_again() {
    let mut test = log_with_a_gap();
    test.open(0, false);
    for _ in 0..2 {
        test.flush();
        let reader = test.reader();
        test.close();
        assert_eq!(reader.recovery_point(), Offset(3));
        let report = test.open(3, true);
        assert_eq!(report.first_gap, Some(Offset(3)));
        assert_eq!(test.log().doubtful_from(), Some(Offset(3)));
        assert_eq!(test.reader().recovery_point(), Offset(3));
    }
    let now = test.now;
    test.log().truncate_to(Offset(3), now).unwrap();
    for _ in 0..2 {
        test.append(1);
    }
    assert_eq!(test.log().doubtful_from(), None);
    let reader = test.reader();
    test.close();
    assert_eq!(reader.recovery_point(), Offset(5));
    let report = test.open(5, true);
    assert_eq!(report, RecoveryReport::default());
    assert_eq!(test.read_all(0), [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4)]);
}

#[test]
fn a_leader_forgets_the_doubt() {
    let mut test = log_with_a_gap();
    test.open(0, false);
    test.log().assign_leader_epoch(LeaderEpoch(1), Offset(5));
    assert_eq!(test.log().doubtful_from(), None);
    test.flush();
    assert_eq!(test.reader().recovery_point(), Offset(5));
}
