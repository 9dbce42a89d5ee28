//! Writeback and page cache drops while a log grows.

use ottla_records::{Compression, RecordBatchBuilder};

use super::*;
use crate::jobs::{WritebackJob, WrittenPages};

const MIB: u64 = 1024 * 1024;

/// A log that starts writeback every 2 MiB.
fn writing_back() -> TestLog {
    let mut test = TestLog::new();
    test.log().set_writeback_bytes(2 * MIB);
    test
}

/// Appends batches until the log has at least `bytes` bytes.
fn grow_to(test: &mut TestLog, bytes: u64) {
    while test.reader().size() < bytes {
        let offset = test.log().log_end_offset();
        let mut builder = RecordBatchBuilder::new(Compression::None).base_offset(offset);
        builder.append(test.now, None, Some(&[offset.0 as u8; 100_000]), &[]);
        test.append_batch(builder.build());
    }
}

fn writeback_due(test: &mut TestLog) -> Option<WritebackJob> {
    test.log()
        .take_jobs()
        .into_iter()
        .find_map(|job| match job {
            Job::StartWriteback(job) => Some(job),
            _ => None,
        })
}

fn written(test: &mut TestLog) -> WrittenPages {
    writeback_due(test).unwrap().run().unwrap()
}

#[test]
fn writeback_takes_whole_pages_and_never_those_at_the_log_end() {
    let mut test = writing_back();
    grow_to(&mut test, 2 * MIB - 200_000);
    assert!(!test.log().has_jobs(), "not enough has gathered");
    grow_to(&mut test, 2 * MIB + 1);
    let end_offset = test.log().log_end_offset();
    assert!(test.log().has_jobs());
    let job = writeback_due(&mut test).unwrap();
    assert_eq!((job.range, job.end_offset), (0..2 * MIB, end_offset));
    grow_to(&mut test, 4 * MIB - 150_000);
    assert!(!test.log().has_jobs());
    // Late, so that it covers more, but still ends before the page that the next append dirties.
    grow_to(&mut test, 5 * MIB + 150_000);
    assert_eq!(writeback_due(&mut test).unwrap().range, 2 * MIB..5 * MIB);
}

#[test]
fn without_writeback_nothing_is_due() {
    let mut test = writing_back();
    test.log().set_writeback_bytes(0);
    grow_to(&mut test, 3 * MIB);
    assert!(!test.log().has_jobs());
}

#[test]
fn dropped_pages_stay_readable_flushed_or_not() {
    for is_flushed in [false, true] {
        let mut test = writing_back();
        grow_to(&mut test, 5 * MIB);
        let before = test.read_all(0);
        let recovery_point = match is_flushed {
            true => test.log().log_end_offset(),
            false => Offset(0),
        };
        let pages = written(&mut test);
        assert_eq!(
            (pages.bytes(), pages.end_offset()),
            (5 * MIB, test.log().log_end_offset())
        );
        if is_flushed {
            test.flush();
        }
        pages.drop_from_cache().unwrap();
        assert_eq!(test.read_all(0), before);
        grow_to(&mut test, 6 * MIB);
        assert!(test.read_all(0).starts_with(&before));
        assert_eq!(
            test.reader().recovery_point(),
            recovery_point,
            "it claims nothing"
        );
    }
}

#[test]
fn pages_that_were_written_before_a_truncation_are_told_apart() {
    let mut test = writing_back();
    grow_to(&mut test, 3 * MIB);
    let job = writeback_due(&mut test).unwrap();
    let (log, now) = (test.reader(), test.now);
    test.log().truncate_to(Offset(5), now).unwrap();
    let before = job.run().unwrap();
    assert!(before.truncations() < log.truncations());
    grow_to(&mut test, 4 * MIB);
    assert_eq!(written(&mut test).truncations(), log.truncations());
}

#[test]
fn pages_of_a_log_that_is_gone_need_no_dropping() {
    let mut test = writing_back();
    grow_to(&mut test, 3 * MIB);
    let pages = written(&mut test);
    test.close();
    assert_eq!(
        pages.segment.strong_count(),
        0,
        "a deleted file's space is not kept"
    );
    pages.drop_from_cache().unwrap();
}

#[test]
fn writeback_that_fails_counts_as_a_failed_fsync() {
    let mut test = writing_back();
    grow_to(&mut test, 3 * MIB);
    let job = writeback_due(&mut test).unwrap();
    // A file that the kernel refuses to write back.
    let refused = ottla_sync::fs::File::open("/dev/null").unwrap();
    test.log().swap_active_file(refused);
    let error = job.run().err().unwrap();
    assert!(error.is_failed_fsync, "{error}");
    let flush = test.log().flush_job().unwrap();
    assert!(flush.run().unwrap_err().is_failed_fsync);
    assert_eq!(test.reader().recovery_point(), Offset(0));
}
