use ottla_types::{LeaderEpoch, Offset, Timestamp};

use super::{TestLog, batch, idempotent};
use crate::JobOutcome;

/// Segments at 0, 30, 60 of three batches each; epoch n starts at 10 n.
fn log() -> TestLog {
    let size = batch(0, 10).size_in_bytes() as i32;
    let mut test = TestLog::with_config(|config| {
        config.segment_bytes = 3 * size;
        config.index_interval_bytes = 10;
    });
    for n in 0..9 {
        let mut batch = batch(n * 10, 10);
        batch.assign_offset(Offset(n * 10), LeaderEpoch(n as i32));
        test.append_batch(batch);
    }
    assert_eq!(test.bases(), [0, 30, 60]);
    test
}

#[test]
fn the_log_ends_where_it_is_truncated_to() {
    for (target, end, bases) in [
        (90, 90, vec![0, 30, 60]),
        (80, 80, vec![0, 30, 60]),
        (75, 75, vec![0, 30, 60]),
        (60, 60, vec![0, 30, 60]),
        (50, 50, vec![0, 30]),
        (30, 30, vec![0, 30]),
        (0, 0, vec![0]),
    ] {
        let mut test = log();
        let changed = test
            .log()
            .truncate_to(Offset(target), Timestamp(0))
            .unwrap();
        assert_eq!(changed, target < 90);
        assert_eq!(test.log().log_end_offset(), Offset(end), "{target}");
        assert_eq!(test.bases(), bases, "{target}");
        // A batch that is cut in the middle goes as a whole, as in Kafka.
        let batches: Vec<_> = (0..target / 10).map(|n| (n * 10, n * 10 + 9)).collect();
        assert_eq!(test.read_all(0), batches);
        let epochs = test.reader().leader_epochs();
        assert_eq!(
            epochs.latest().map(|e| e.epoch.0),
            ((target - 1) / 10).try_into().ok().filter(|_| target > 0)
        );
        assert_eq!(test.reader().high_watermark(), Offset(end));

        test.append(5);
        test.append(5);
        let mut expected = batches;
        expected.extend([(end, end + 4), (end + 5, end + 9)]);
        assert_eq!(test.read_all(0), expected, "{target}");
        test.run_jobs();
        assert_eq!(test.crash().bytes_truncated, 0);
        assert_eq!(test.read_all(0), expected);
        test.reopen();
        assert_eq!(test.read_all(0), expected);
    }
}

#[test]
fn bytes_that_readers_hold_stay_as_they_were() {
    let mut test = log();
    let region = test
        .reader()
        .read(Offset(60), 1 << 20, Offset(90), true)
        .unwrap()
        .region
        .unwrap();
    let before = region.read().unwrap();
    test.log().truncate_to(Offset(70), Timestamp(0)).unwrap();
    for n in 0..4 {
        test.append_batch(batch(70 + n * 5, 5));
    }
    assert_eq!(region.read().unwrap(), before);
}

#[test]
fn an_old_reader_gets_an_error_or_old_records() {
    let mut test = log();
    let reader = test.reader();
    test.log().truncate_to(Offset(70), Timestamp(0)).unwrap();
    assert!(reader.read(Offset(80), 100, Offset(90), true).is_err());
    assert_eq!(reader.log_end_offset(), Offset(70));
}

#[test]
fn a_log_can_start_anew_anywhere() {
    for offset in [500, 30, 0] {
        let mut test = log();
        test.log()
            .truncate_fully_and_start_at(Offset(offset), None, Timestamp(0))
            .unwrap();
        assert_eq!(test.bases(), [offset]);
        let reader = test.reader();
        assert_eq!(
            (reader.log_start_offset(), reader.log_end_offset()),
            (Offset(offset), Offset(offset))
        );
        assert!(reader.leader_epochs().entries().is_empty());
        test.append(3);
        assert_eq!(test.read_all(offset), [(offset, offset + 2)]);
        test.run_jobs();
        test.reopen();
        assert_eq!(test.read_all(offset), [(offset, offset + 2)]);
    }
}

#[test]
fn truncation_below_the_first_segment_starts_anew() {
    let mut test = log();
    test.log().increment_log_start_offset(Offset(60)).unwrap();
    test.log().delete_old_segments(Timestamp(0)).unwrap();
    assert_eq!(test.bases(), [60]);
    test.log().truncate_to(Offset(40), Timestamp(0)).unwrap();
    assert_eq!(test.bases(), [40]);
    assert_eq!(test.reader().log_start_offset(), Offset(40));
}

#[test]
fn the_recovery_point_does_not_stay_behind_the_end() {
    let mut test = log();
    test.flush();
    assert_eq!(test.reader().recovery_point(), Offset(90));
    test.log().truncate_to(Offset(70), Timestamp(0)).unwrap();
    assert_eq!(test.reader().recovery_point(), Offset(70));
    test.append(5);
    test.flush();
    assert_eq!(test.reader().recovery_point(), Offset(75));
}

#[test]
fn jobs_of_before_a_truncation_leave_what_came_after_it_alone() {
    let mut test = log();
    // Nothing that has come up is done: snapshots are to be written, and then segments to be deleted.
    let stale = test.log().flush_job().unwrap();
    test.log().truncate_to(Offset(30), Timestamp(0)).unwrap();
    let deletions = test.log().take_jobs();
    stale.run().unwrap();
    assert!(
        !test
            .files()
            .contains(&"00000000000000000060.snapshot".to_owned())
    );
    // The log grows again, by other batches, to where the old segment began.
    for sequence in 0..6 {
        test.append_batch(idempotent(30 + sequence * 5, 5, 7, 0, sequence as i32 * 5));
    }
    let end = test.log().log_end_offset();
    test.append_batch(idempotent(end.0, 5, 7, 0, 30));
    let before = test.bases();
    test.flush();
    let files = test.files();
    let snapshots = |files: &[String]| -> Vec<String> {
        let is_snapshot = |name: &&String| name.ends_with(".snapshot");
        files.iter().filter(is_snapshot).cloned().collect()
    };
    assert!(!snapshots(&files).is_empty());
    for job in deletions {
        if let JobOutcome::Unlink(job) = job.run().unwrap() {
            job.run().unwrap();
        }
    }
    assert_eq!(snapshots(&test.files()), snapshots(&files));
    assert_eq!(test.bases(), before);
    test.crash();
    let producer = test.log().producers().producer(7.into()).unwrap();
    assert_eq!(producer.last_sequence().0, 34);
}
