use ottla_config::CleanupPolicy;
use ottla_types::{Offset, Timestamp};

use super::{TestLog, batch};
use crate::{JobOutcome, UnlinkJob};

/// Segments at 0, 30, 60 of three batches each and one with a batch at 90.
fn four_segments(change: impl FnOnce(&mut ottla_config::TopicConfig)) -> TestLog {
    let size = batch(0, 10).size_in_bytes() as i32;
    let mut test = TestLog::with_config(|config| {
        config.segment_bytes = 3 * size;
        config.retention_ms = -1;
        change(config);
    });
    for _ in 0..10 {
        test.append(10);
    }
    assert_eq!(test.bases(), [0, 30, 60, 90]);
    test.run_jobs();
    test
}

fn delete(test: &mut TestLog, now: i64) -> usize {
    test.log().delete_old_segments(Timestamp(now)).unwrap()
}

#[test]
fn nothing_is_deleted_without_a_limit() {
    let mut test = four_segments(|_| {});
    assert_eq!(delete(&mut test, 1 << 50), 0);
}

#[test]
fn segments_go_when_their_youngest_record_is_too_old() {
    let mut test = four_segments(|config| config.retention_ms = 1000);
    // The newest record of the second segment has timestamp 1,000,059.
    assert_eq!(delete(&mut test, 1_001_029), 0);
    assert_eq!(delete(&mut test, 1_001_030), 1);
    assert_eq!(delete(&mut test, 1_001_060), 1);
    assert_eq!(test.bases(), [60, 90]);
    assert_eq!(test.log().log_start_offset(), Offset(60));
    assert_eq!(test.read_all(60).len(), 4);
    let deleted = |test: &TestLog| {
        test.files()
            .iter()
            .filter(|n| n.ends_with(".deleted"))
            .count()
    };
    let jobs = test.log().take_jobs();
    let outcomes: Vec<_> = jobs.into_iter().map(|job| job.run().unwrap()).collect();
    assert_eq!(deleted(&test), 2 * 3 + 1);
    for outcome in outcomes {
        let JobOutcome::Unlink(job) = outcome else {
            panic!("renamed files are to be unlinked later");
        };
        assert_eq!(job.delay_ms(), 60_000);
        job.run().unwrap();
    }
    assert_eq!(deleted(&test), 0);
    assert_eq!(delete(&mut test, 1 << 50), 2);
    assert_eq!(test.bases(), [100]);
    assert_eq!(
        (test.log().log_start_offset(), test.log().log_end_offset()),
        (Offset(100), Offset(100))
    );
    assert_eq!(delete(&mut test, 1 << 50), 0);
    test.append(10);
    assert_eq!(test.read_all(100), [(100, 109)]);
    test.reopen();
    assert_eq!(test.log().log_start_offset(), Offset(100));
}

#[test]
fn segments_go_while_the_log_is_too_large() {
    let size = batch(0, 10).size_in_bytes() as i64;
    for (retention_bytes, kept) in [
        (10 * size, vec![0, 30, 60, 90]),
        (7 * size + 1, vec![0, 30, 60, 90]),
        (7 * size, vec![30, 60, 90]),
        (4 * size, vec![60, 90]),
        (1, vec![90]),
        (0, vec![100]),
    ] {
        let mut test = four_segments(|config| config.retention_bytes = retention_bytes);
        delete(&mut test, 0);
        assert_eq!(test.bases(), kept, "{retention_bytes}");
    }
}

#[test]
fn only_segments_below_the_high_watermark_are_deleted() {
    let mut test = four_segments(|config| config.retention_bytes = 0);
    test.close();
    test.open(0, true);
    test.log().set_high_watermark(Offset(59));
    assert_eq!(delete(&mut test, 0), 1);
    assert_eq!(test.bases(), [30, 60, 90]);
}

#[test]
fn compacted_topics_ignore_retention_by_time_and_size() {
    let mut test = four_segments(|config| {
        config.cleanup_policy = CleanupPolicy::COMPACT;
        config.retention_bytes = 0;
        config.retention_ms = 0;
    });
    assert_eq!(delete(&mut test, 1 << 50), 0);
    test.log().increment_log_start_offset(Offset(60)).unwrap();
    assert_eq!(delete(&mut test, 1 << 50), 2);
}

#[test]
fn deleted_records_cannot_be_read() {
    let mut test = four_segments(|_| {});
    assert_eq!(test.log().increment_log_start_offset(Offset(45)), Ok(true));
    assert_eq!(test.log().increment_log_start_offset(Offset(44)), Ok(false));
    assert!(test.log().increment_log_start_offset(Offset(101)).is_err());
    let reader = test.reader();
    assert!(reader.read(Offset(44), 100, Offset(100), true).is_err());
    assert_eq!(test.read_all(45)[0], (40, 49));
    assert_eq!(
        reader.leader_epochs().earliest().unwrap().start_offset,
        Offset(45)
    );
    assert_eq!(delete(&mut test, 0), 1);
    assert_eq!(test.bases(), [30, 60, 90]);
}

#[test]
fn readers_keep_deleted_segments_readable() {
    let mut test = four_segments(|config| config.retention_bytes = 0);
    let region = test
        .reader()
        .read(Offset(0), 1 << 20, Offset(100), true)
        .unwrap()
        .region
        .unwrap();
    delete(&mut test, 0);
    test.run_jobs();
    assert_eq!(region.read().unwrap().len() as u64, region.len);
}

/// The unlinked log files of the directory that this process has open.
#[cfg(target_os = "linux")]
fn open_and_unlinked(test: &TestLog) -> usize {
    let handles = std::fs::read_dir("/proc/self/fd").unwrap();
    let files = handles.filter_map(|handle| std::fs::read_link(handle.ok()?.path()).ok());
    let of_log = files.filter(|file| file.starts_with(test.path()));
    of_log
        .filter(|file| file.to_string_lossy().ends_with(".log.deleted (deleted)"))
        .count()
}

#[test]
#[cfg(target_os = "linux")]
fn the_blocks_of_deleted_segments_are_free_at_once() {
    let mut test = four_segments(|config| config.retention_bytes = 1);
    assert_eq!(test.read_all(0).len(), 10, "every segment has been opened");
    assert_eq!(delete(&mut test, 0), 3);
    test.run_jobs();
    assert_eq!(open_and_unlinked(&test), 0);
}

#[test]
fn segments_of_one_base_that_wait_to_be_unlinked_do_not_share_names() {
    let mut test = four_segments(|_| {});
    let unlinks = |test: &mut TestLog| -> Vec<UnlinkJob> {
        let now = test.now;
        let log = test.log();
        log.truncate_fully_and_start_at(Offset(0), None, now)
            .unwrap();
        let outcomes = log.take_jobs().into_iter().map(|job| job.run().unwrap());
        let unlinks = outcomes.filter_map(|outcome| match outcome {
            JobOutcome::Unlink(job) => Some(job),
            _ => None,
        });
        unlinks.collect()
    };
    let waiting = |test: &TestLog| -> Vec<String> {
        let files = test.files().into_iter();
        let deleted = files.filter(|name| name.ends_with(".log.deleted"));
        deleted.filter(|name| !name.starts_with("spare")).collect()
    };
    let first = unlinks(&mut test);
    let before = waiting(&test);
    for _ in 0..10 {
        test.append(10);
    }
    let second = unlinks(&mut test);
    assert_eq!((before.len(), waiting(&test).len()), (4, 8));
    first.into_iter().for_each(|job| job.run().unwrap());
    let left = waiting(&test);
    assert_eq!(left.len(), 4);
    assert!(left.iter().all(|name| !before.contains(name)));
    second.into_iter().for_each(|job| job.run().unwrap());
    assert_eq!(waiting(&test), [""; 0]);
}

/// A power loss may bring truncated bytes back: until a flush has written the cut, recovery must
/// scan there.
#[test]
fn a_start_that_moves_leaves_the_recovery_point_below_a_cut_that_is_not_forced() {
    let mut test = four_segments(|_| {});
    let flush = test.log().flush_job().unwrap();
    flush.run().unwrap();
    test.log().announce_truncation(Offset(50));
    test.log().truncate_to(Offset(50), Timestamp(0)).unwrap();
    assert_eq!(test.bases(), [0, 30, 50]);
    // In the segment that was cut.
    let end = test.log().log_end_offset();
    test.log().set_high_watermark(end);
    test.log().increment_log_start_offset(end).unwrap();
    assert_eq!(test.log().reader().recovery_point(), Offset(49));
    let flush = test.log().flush_job().unwrap();
    flush.run().unwrap();
    assert_eq!(test.log().reader().recovery_point(), end);
}
