use ottla_types::{LeaderEpoch, Offset, Timestamp};

use super::{TestLog, batch, batch_at, idempotent, read_all};
use crate::{AppendErrorReason, Job, ReadError};

#[test]
fn appended_records_are_read() {
    let mut test = TestLog::new();
    let info = test.append(3);
    assert_eq!(
        (info.first_offset, info.last_offset),
        (Offset(0), Offset(2))
    );
    assert!(!info.rolled);
    test.append(5);
    assert_eq!(test.log().log_end_offset(), Offset(8));
    assert_eq!(test.read_all(0), [(0, 2), (3, 7)]);
    assert_eq!(test.read_all(2), [(0, 2), (3, 7)]);
    assert_eq!(test.read_all(5), [(3, 7)]);
    assert_eq!(
        test.reader().size(),
        test.file_len("00000000000000000000.log")
    );
}

#[test]
fn several_batches_go_in_with_one_append() {
    let mut test = TestLog::new();
    let batches: Vec<_> = (0..40).map(|n| batch(n * 2, 2)).collect();
    let now = test.now;
    let info = test.log().append(&batches, now).unwrap();
    assert_eq!(
        (info.first_offset, info.last_offset),
        (Offset(0), Offset(79))
    );
    let expected: Vec<_> = (0..40).map(|n| (n * 2, n * 2 + 1)).collect();
    assert_eq!(test.read_all(0), expected);
    assert_eq!(info.bytes, test.reader().size());
}

#[test]
fn reads_end_below_the_upper_bound() {
    let mut test = TestLog::new();
    for _ in 0..200 {
        test.append(2);
    }
    let reader = test.reader();
    let size = reader.size() / 200;
    for (from, bound, expected) in [
        (0, 400, 200),
        (0, 399, 199),
        (1, 4, 2),
        (390, 392, 1),
        (395, 400, 3),
        (10, 12, 1),
        (10, 10, 0),
        (10, 4, 0),
        (400, 400, 0),
    ] {
        let read = reader.read(Offset(from), 1 << 30, Offset(bound), true);
        assert_eq!(read.unwrap().len() / size, expected, "{from} to {bound}");
    }
}

#[test]
fn reads_are_limited_but_give_one_batch() {
    let mut test = TestLog::new();
    test.append(2);
    test.append(100);
    let reader = test.reader();
    let read = |from, max, min_one| {
        reader
            .read(Offset(from), max, Offset(102), min_one)
            .unwrap()
    };
    let first = read(0, 1 << 20, false).len() - read(2, 1 << 20, false).len();
    let limited = read(0, first + 5, false);
    assert_eq!(
        (limited.len(), limited.first_entry_incomplete),
        (first + 5, false)
    );
    let cut = read(2, 10, false);
    assert_eq!((cut.len(), cut.first_entry_incomplete), (10, true));
    let whole = read(2, 10, true);
    assert_eq!(whole.len(), reader.size() - first);
    assert!(!whole.first_entry_incomplete);
    assert!(read(2, 0, false).is_empty());
    assert_eq!(read(2, 10, true).start.position_in_segment, first);
}

#[test]
fn offsets_outside_of_the_log_are_refused() {
    let mut test = TestLog::new();
    test.append(2);
    let reader = test.reader();
    for offset in [-1, 3] {
        let read = reader.read(Offset(offset), 100, Offset(2), true);
        assert!(
            matches!(read, Err(ReadError::OffsetOutOfRange { .. })),
            "{offset}"
        );
    }
    assert!(
        reader
            .read(Offset(2), 100, Offset(2), true)
            .unwrap()
            .is_empty()
    );
}

#[test]
fn appends_that_do_not_follow_are_refused() {
    let mut test = TestLog::new();
    test.append(2);
    let now = test.now;
    let refused = test.log().append(&[batch(1, 1)], now).unwrap_err();
    assert!(matches!(
        refused.reason,
        AppendErrorReason::UnexpectedOffset { .. }
    ));
    let refused = test.log().append(&[batch(2, 2), batch(3, 1)], now);
    assert_eq!(refused.unwrap_err().batches_written, 1);
    assert_eq!(test.read_all(0), [(0, 1), (2, 3)]);
    // A follower may skip offsets that compaction has removed on the leader.
    test.append_batch(batch(100, 1));
    assert_eq!(test.read_all(4), [(100, 100)]);
    assert_eq!(test.read_all(50), [(100, 100)]);
}

#[test]
fn segments_roll_by_size() {
    let size = batch(0, 10).size_in_bytes() as i32;
    let mut test = TestLog::with_config(|config| config.segment_bytes = 3 * size + 5);
    let rolled: Vec<bool> = (0..7).map(|_| test.append(10).rolled).collect();
    assert_eq!(rolled, [false, false, false, true, false, false, true]);
    assert_eq!(test.bases(), [0, 30, 60]);
    assert_eq!(test.read_all(0).len(), 7);
    assert_eq!(read_all(&test.reader(), 29)[0], (20, 29));
    let now = test.now;
    let large = batch(70, 100);
    let refused = test.log().append(&[large], now).unwrap_err();
    assert!(matches!(
        refused.reason,
        AppendErrorReason::LargerThanSegment { .. }
    ));
    // One append of many batches is split where segments end.
    let batches: Vec<_> = (7..20).map(|n| batch(n * 10, 10)).collect();
    assert!(test.log().append(&batches, now).unwrap().rolled);
    assert_eq!(test.bases(), [0, 30, 60, 90, 120, 150, 180]);
}

#[test]
fn a_read_says_whether_more_is_in_a_later_segment() {
    let size = batch(0, 10).size_in_bytes() as i32;
    let mut test = TestLog::with_config(|config| config.segment_bytes = 2 * size + 5);
    for _ in 0..3 {
        test.append(10);
    }
    assert_eq!(test.bases(), [0, 20]);
    let reader = test.reader();
    for (from, max_bytes, upper_bound, expected) in [
        (0, 1 << 20, 30, true),
        (10, 1, 30, true),
        (10, 1 << 20, 20, false),
        (20, 1 << 20, 30, false),
        (20, 1 << 20, 20, false),
    ] {
        let read = reader.read(Offset(from), max_bytes, Offset(upper_bound), true);
        let is_in_older_segment = read.unwrap().is_in_older_segment;
        assert_eq!(is_in_older_segment, expected, "{from} to {upper_bound}");
    }
}

#[test]
fn segments_roll_by_the_age_of_their_records() {
    let mut test = TestLog::with_config(|config| config.segment_ms = 1000);
    test.append_batch(batch_at(0, 1, 5000));
    assert!(!test.append_batch(batch_at(1, 1, 6000)).rolled);
    assert!(test.append_batch(batch_at(2, 1, 6001)).rolled);
    assert!(!test.append_batch(batch_at(3, 1, 100)).rolled);
}

#[test]
fn segments_roll_by_their_own_age_without_timestamps() {
    let mut test = TestLog::with_config(|config| config.segment_ms = 1000);
    test.append_batch(batch_at(0, 1, -1));
    test.now = Timestamp(test.now.0 + 1000);
    assert!(!test.append_batch(batch_at(1, 1, -1)).rolled);
    test.now = Timestamp(test.now.0 + 1);
    assert!(test.append_batch(batch_at(2, 1, -1)).rolled);
}

#[test]
fn segments_roll_when_an_index_is_full() {
    let mut test = TestLog::with_config(|config| {
        config.index_interval_bytes = 0;
        config.segment_index_bytes = 5 * 12;
    });
    for _ in 0..20 {
        test.append(1);
    }
    // The first batch has no entry; four entries and the one at the roll fill the time index.
    assert_eq!(test.bases(), [0, 5, 10, 15]);
}

#[test]
fn segments_roll_before_offsets_overflow() {
    let mut test = TestLog::new();
    test.append(1);
    assert!(
        !test
            .append_batch(batch_at(i64::from(i32::MAX), 1, 0))
            .rolled
    );
    assert!(
        test.append_batch(batch_at(i64::from(i32::MAX) + 1, 1, 0))
            .rolled
    );
    assert_eq!(test.bases(), [0, 2_147_483_648]);
    assert_eq!(test.read_all(1).len(), 2);
}

#[test]
fn indexes_get_an_entry_for_each_interval() {
    let mut test = TestLog::with_config(|config| config.index_interval_bytes = 100);
    let size = batch(0, 1).size_in_bytes() as u32;
    for _ in 0..6 {
        test.append(1);
    }
    test.close();
    // Kafka adds an entry for the batch before which more than the interval has gathered since the
    // last entry.
    let every = 100 / size + 1;
    let mut expected = Vec::new();
    for n in (every..6).step_by(every as usize) {
        expected.extend(n.to_be_bytes());
        expected.extend((n * size).to_be_bytes());
    }
    let index = std::fs::read(test.path().join("00000000000000000000.index")).unwrap();
    assert_eq!(index, expected);
    let times = std::fs::read(test.path().join("00000000000000000000.timeindex")).unwrap();
    assert_eq!(
        times[times.len() - 12..],
        [&1_000_005u64.to_be_bytes()[..], &[0, 0, 0, 5]].concat()
    );
}

#[test]
fn old_records_are_found_through_the_index() {
    let mut test = TestLog::with_config(|config| {
        config.index_interval_bytes = 64;
        config.segment_bytes = 100_000;
    });
    for _ in 0..3000 {
        test.append(1);
    }
    let check = |test: &TestLog| {
        let reader = test.reader();
        for offset in (0..3000).step_by(7) {
            let read = reader.read(Offset(offset), 1, Offset(3000), true).unwrap();
            let bytes = read.region.unwrap().read().unwrap();
            assert_eq!(bytes[..8], offset.to_be_bytes());
        }
    };
    let cached = |test: &TestLog, offset| {
        let reader = test.reader();
        reader.read_cached(Offset(offset), 1, Offset(3000), true)
    };
    check(&test);
    // The files are open now, and were just written.
    for offset in [100, 2990] {
        let read = cached(&test, offset).unwrap();
        let bytes = read.region.unwrap().read().unwrap();
        assert_eq!(bytes[..8], offset.to_be_bytes());
    }
    test.flush();
    check(&test);
    test.reopen();
    // The path lookup is cached, so the open needs no I/O, unless the kernel cannot tell.
    assert!(matches!(
        cached(&test, 100),
        Ok(_) | Err(ReadError::NotCached)
    ));
    check(&test);
    assert!(cached(&test, 100).is_ok());
}

#[test]
fn epochs_follow_the_batches() {
    let mut test = TestLog::new();
    for (offset, epoch) in [(0, 0), (1, 0), (2, 3), (3, 5)] {
        let mut batch = batch(offset, 1);
        batch.assign_offset(Offset(offset), LeaderEpoch(epoch));
        test.append_batch(batch);
    }
    let reader = test.reader();
    let end = |epoch| reader.end_offset_for_epoch(LeaderEpoch(epoch));
    assert_eq!(end(0), Some((LeaderEpoch(0), Offset(2))));
    assert_eq!(end(4), Some((LeaderEpoch(3), Offset(3))));
    assert_eq!(end(5), Some((LeaderEpoch(5), Offset(4))));
    assert_eq!(end(6), None);
    test.close();
    let text = std::fs::read_to_string(test.path().join("leader-epoch-checkpoint")).unwrap();
    assert_eq!(text, "0\n3\n0 0\n3 2\n5 3\n");
}

#[test]
fn a_flush_moves_the_recovery_point() {
    let mut test = TestLog::new();
    test.append(5);
    let job = test.log().flush_job().unwrap();
    test.append(2);
    assert_eq!(job.run().unwrap(), Offset(5));
    assert_eq!(test.reader().recovery_point(), Offset(5));
}

#[test]
fn a_flush_does_not_cover_records_truncated_during_it() {
    let mut test = TestLog::new();
    test.append(5);
    test.append(5);
    let job = test.log().flush_job().unwrap();
    let now = test.now;
    test.log().truncate_to(Offset(5), now).unwrap();
    job.run().unwrap();
    assert_eq!(test.reader().recovery_point(), Offset(0));
}

#[test]
fn a_spare_becomes_the_next_segment() {
    let size = batch(0, 10).size_in_bytes() as i32;
    let mut test = TestLog::with_config(|config| config.segment_bytes = 4 * size);
    for _ in 0..3 {
        test.append(10);
    }
    assert!(test.log().has_jobs());
    test.run_jobs();
    let is_spare = |name: &String| name.starts_with("spare-") && name.ends_with(".log.deleted");
    assert!(test.files().iter().any(is_spare));
    // A leftover; the indexes of the new segment are created with their entries.
    let index = test.path().join("00000000000000000040.index");
    std::fs::write(&index, [7; 800]).unwrap();
    test.append(10);
    assert!(test.append(10).rolled);
    assert!(!test.files().iter().any(|name| name.starts_with("spare")));
    let rolled = |test: &TestLog| -> Vec<String> {
        let files = test.files().into_iter();
        let of_segment = files.filter(|name| name.starts_with("00000000000000000040."));
        of_segment.collect()
    };
    let log = "00000000000000000040.log".to_owned();
    assert_eq!(rolled(&test), std::slice::from_ref(&log));
    assert_eq!(test.read_all(0).len(), 5);
    assert_eq!(test.crash().bytes_truncated, 0);
    assert_eq!(test.read_all(0).len(), 5);
    test.reopen();
    assert_eq!(test.read_all(0).len(), 5);
    let indexes = ["index", "timeindex"].map(|it| format!("00000000000000000040.{it}"));
    let snapshot = "00000000000000000040.snapshot".to_owned();
    let [index, time_index] = indexes;
    assert_eq!(rolled(&test), [index, log, snapshot, time_index]);
}

#[test]
fn readers_follow_an_appender() {
    let mut test = TestLog::with_config(|config| {
        config.segment_bytes = 64 * 1024;
        config.index_interval_bytes = 512;
    });
    let reader = test.reader();
    std::thread::scope(|scope| {
        let handle = scope.spawn(move || {
            let mut next = Offset(0);
            while next < Offset(20_000) {
                let end = reader.log_end_offset();
                let result = reader.read(next, 8192, end, true).unwrap();
                let Some(region) = result.region else {
                    assert_eq!(next, end);
                    continue;
                };
                for batch in ottla_records::RecordBatch::read_all(region.read().unwrap()) {
                    let header = batch.unwrap().header;
                    assert_eq!(header.base_offset, next);
                    assert!(header.next_offset() <= reader.log_end_offset());
                    next = header.next_offset();
                }
            }
        });
        for _ in 0..10_000 {
            test.append(2);
        }
        handle.join().unwrap();
    });
}

#[test]
fn a_flush_includes_the_work_of_an_unfinished_one() {
    let mut test = TestLog::with_config(|config| config.segment_bytes = 200);
    test.append_batch(idempotent(0, 1, 5, 0, 0));
    test.append_batch(idempotent(1, 1, 5, 0, 1));
    test.append_batch(idempotent(2, 1, 5, 0, 2));
    assert!(test.bases().len() > 1);
    let first = test.log().flush_job().unwrap();
    test.append_batch(idempotent(3, 1, 5, 0, 3));
    let second = test.log().flush_job().unwrap();
    assert_eq!(second.run().unwrap(), Offset(4));
    // The first job has not run, and may never run.
    let snapshots = test.files();
    for base in &test.bases()[1..] {
        assert!(
            snapshots.contains(&format!("{base:020}.snapshot")),
            "{base}"
        );
    }
    assert!(test.files().contains(&"leader-epoch-checkpoint".to_owned()));
    let version = test.log().jobs.dir_version;
    assert_eq!(test.log().shared.flushed.lock().dir_version, version);
    assert!(test.log().shared.flushed.lock().is_parent_synced);
    assert_eq!(first.run().unwrap(), Offset(3));
    assert_eq!(test.reader().recovery_point(), Offset(4));
    assert!(test.log().flush_job().is_none());
}

#[test]
fn a_failed_fsync_is_not_tried_again() {
    let mut test = TestLog::new();
    test.append(1);
    // Later flushes report the kind of the first failure: missing files of a deleted log are no
    // disk failure.
    let kind = std::io::ErrorKind::NotFound;
    test.log().shared.flushed.lock().failure = Some(kind);
    let error = test.log().flush_job().unwrap().run().unwrap_err();
    assert!(error.is_failed_fsync);
    assert_eq!(error.error.kind(), kind);
    assert_eq!(test.reader().recovery_point(), Offset(0));
}

#[test]
fn a_spare_that_is_late_is_not_ordered_again() {
    let size = batch(0, 10).size_in_bytes() as i32;
    let mut test = TestLog::with_config(|config| config.segment_bytes = 4 * size);
    for _ in 0..3 {
        test.append(10);
    }
    let is_spare = |job: &Job| matches!(job, Job::PrepareSpare(_));
    let late = test.log().take_jobs().into_iter().find(is_spare).unwrap();
    for _ in 0..4 {
        test.append(10);
    }
    assert_eq!(test.bases(), [0, 40]);
    assert!(!test.log().take_jobs().iter().any(is_spare));
    let outcome = late.run().unwrap();
    test.log().on_job_done(outcome);
    for _ in 0..4 {
        test.append(10);
    }
    assert_eq!(test.bases(), [0, 40, 80]);
    assert!(!test.files().iter().any(|name| name.starts_with("spare")));
    assert_eq!(test.read_all(0).len(), 11);
}
