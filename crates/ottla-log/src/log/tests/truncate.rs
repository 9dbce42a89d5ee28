use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use bytes::Bytes;
use ottla_records::control::ControlRecordType;
use ottla_records::{BatchHeader, Compression, RecordBatch, RecordBatchBuilder};
use ottla_types::{LeaderEpoch, Offset, Timestamp};

use super::transactions::{end, transactional};
use super::{TestLog, batch, build, idempotent};
use crate::disk::trace;
use crate::{JobOutcome, ReadError};

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
        (80, 80, vec![0, 30, 60, 80]),
        (75, 75, vec![0, 30, 60, 75]),
        (60, 60, vec![0, 30, 60]),
        (50, 50, vec![0, 30, 50]),
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
        // As in Kafka, a batch that contains the target is removed as a whole.
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
fn bytes_held_by_readers_do_not_change() {
    let mut test = log();
    let region = test
        .reader()
        .read(Offset(60), 1 << 20, Offset(70), true)
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
fn a_held_read_of_truncated_bytes_ends_early() {
    let mut test = log();
    let reader = test.reader();
    let read = |from| reader.read(Offset(from), 1 << 20, Offset(90), true);
    let region = read(60).unwrap().region.unwrap();
    let cut_off = read(80).unwrap().region.unwrap();
    test.log().truncate_to(Offset(70), Timestamp(0)).unwrap();
    test.append_batch(batch(70, 5));
    for region in [region, cut_off] {
        let error = region.read().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}

#[test]
fn a_truncation_needs_no_space() {
    for target in [75, 60, 50, 0] {
        let mut test = log();
        // Producers must be found again although their snapshots were not written.
        test.append_batch(idempotent(90, 5, 7, 0, 0));
        trace::start(test.path());
        trace::fill();
        let truncated = test.log().truncate_to(Offset(target), Timestamp(0));
        trace::stop();
        assert!(truncated.unwrap(), "{target}");
        test.append(5);
        assert_eq!(test.log().log_end_offset(), Offset(target + 5));
        test.flush();
        assert_eq!(test.crash().bytes_truncated, 0);
        let batches = (0..target / 10).map(|n| (n * 10, n * 10 + 9));
        let expected: Vec<_> = batches.chain([(target, target + 4)]).collect();
        assert_eq!(test.read_all(0), expected);
    }
    let mut test = log();
    trace::start(test.path());
    trace::fill();
    let now = Timestamp(0);
    let truncated = test
        .log()
        .truncate_fully_and_start_at(Offset(30), None, now);
    trace::stop();
    truncated.unwrap();
    test.append(5);
    assert_eq!(test.read_all(30), [(30, 34)]);
}

#[test]
fn a_truncation_that_lacks_a_file_handle_changes_nothing() {
    let mut test = log();
    let before = (test.bases(), test.read_all(0), test.files());
    let mut refused = 0;
    loop {
        trace::start(test.path());
        trace::lack_handles_in(refused);
        let truncated = test.log().truncate_to(Offset(40), Timestamp(0));
        trace::stop();
        let Err(error) = truncated else {
            break;
        };
        let crate::LogError::Storage(error) = error else {
            panic!("{error}");
        };
        assert!(error.is_temporary(), "{error}");
        refused += 1;
        let mut files = test.files();
        files.retain(|name| !name.ends_with(".deleted"));
        assert_eq!((test.bases(), test.read_all(0), files), before);
    }
    assert!(refused > 0);
    assert_eq!(test.log().log_end_offset(), Offset(40));
    assert_eq!(test.read_all(0).last(), Some(&(30, 39)));
}

/// A crash between creating the new segment and cutting the previous one, or a disk that lost the
/// cut.
#[test]
fn a_segment_is_cut_where_the_next_begins() {
    for torn in [0, 7] {
        let mut test = log();
        test.flush();
        let path = test.path().join("00000000000000000060.log");
        let uncut = std::fs::read(&path).unwrap();
        test.log().truncate_to(Offset(80), Timestamp(0)).unwrap();
        test.append(5);
        let recovery_point = test.reader().recovery_point();
        test.log = None;
        std::fs::write(&path, &uncut[..uncut.len() - torn]).unwrap();
        let report = test.open(recovery_point.0, false);
        let size = (uncut.len() / 3) as u64;
        assert_eq!(report.bytes_truncated, size - torn as u64);
        assert_eq!(report.segments_deleted, 0);
        assert_eq!(test.read_all(60), [(60, 69), (70, 79), (80, 84)]);
        test.reopen();
        assert_eq!(test.read_all(60), [(60, 69), (70, 79), (80, 84)]);
    }
}

/// A segment of 1 GiB: batches of 256 KiB with one record each, whose value is a hole in the file.
fn gibibyte() -> TestLog {
    const BATCHES: u32 = 4_096;
    let mut test = TestLog::with_config(|config| config.segment_bytes = i32::MAX);
    test.close();
    let mut builder = RecordBatchBuilder::new(Compression::None).base_offset(Offset(0));
    builder.append(Timestamp(1_000_000), None, Some(&[0; 262_144]), &[]);
    let mut batch = builder.build();
    let size = batch.size_in_bytes() as u64;
    let head = batch.body()[..12].to_vec();
    assert!(batch.body()[12..].iter().all(|byte| *byte == 0));
    let log = std::fs::File::options()
        .write(true)
        .open(test.path().join("00000000000000000000.log"))
        .unwrap();
    let mut index = Vec::new();
    for n in 0..BATCHES {
        let position = u64::from(n) * size;
        batch.assign_offset(Offset(n.into()), LeaderEpoch(0));
        let bytes = [&batch.header.to_bytes()[..], &head].concat();
        log.write_all_at(&bytes, position).unwrap();
        if n > 0 {
            index.extend(n.to_be_bytes());
            index.extend((position as u32).to_be_bytes());
        }
    }
    log.set_len(u64::from(BATCHES) * size).unwrap();
    assert!(log.metadata().unwrap().len() > 1_020 << 20);
    std::fs::write(test.path().join("00000000000000000000.index"), index).unwrap();
    let first = [&1_000_000i64.to_be_bytes()[..], &0u32.to_be_bytes()].concat();
    std::fs::write(test.path().join("00000000000000000000.timeindex"), first).unwrap();
    let report = test.open(0, true);
    assert_eq!(report.indexes_rebuilt, 0);
    assert_eq!(test.log().log_end_offset(), Offset(BATCHES.into()));
    test
}

#[test]
fn a_full_segment_is_cut_within_ten_milliseconds() {
    // The thread's own CPU time, because the machine may be busy. Copying the segment would take
    // several hundred milliseconds.
    let tries = (0..3).map(|n| {
        let mut test = gibibyte();
        let target = Offset(4_090 - n * 1_000);
        let began = thread_time();
        test.log().truncate_to(target, Timestamp(0)).unwrap();
        let took = thread_time() - began;
        let last = test.reader().read(target.plus(-1), 1, target, true);
        let bytes = last.unwrap().region.unwrap().read().unwrap();
        let batches: Vec<_> = RecordBatch::read_all(bytes).map(Result::unwrap).collect();
        assert_eq!(batches.len(), 1);
        batches[0].verify_crc().unwrap();
        assert_eq!(batches[0].header.next_offset(), target);
        took
    });
    let took = tries.min().unwrap();
    println!("a segment of a GiB was cut in {took:?}");
    assert!(took < Duration::from_millis(10), "{took:?}");
}

/// The CPU time of this thread.
fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Readers of a log that is truncated and grows again find whole batches that were written, or a
/// region that ends early, or an offset that is out of range. Nothing else.
#[test]
fn readers_beside_truncations_never_find_other_records() {
    let size = batch(0, 10).size_in_bytes() as i32;
    let mut test = TestLog::with_config(|config| {
        config.segment_bytes = 5 * size;
        config.index_interval_bytes = 10;
    });
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let reader = test.reader();
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (reader, is_over) = (reader.clone(), &is_over);
            scope.spawn(move || {
                let mut random = trace::Random(thread);
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    let end = reader.log_end_offset();
                    let from = Offset(random.below(end.0 as usize + 1) as i64);
                    let read = match reader.read(from, 2_000, end, true) {
                        Ok(read) => read,
                        Err(ReadError::OffsetOutOfRange { .. }) => continue,
                        Err(error) => panic!("{error}"),
                    };
                    let bytes = match read.region.map(|region| region.read()) {
                        Some(Ok(bytes)) => bytes,
                        None => continue,
                        Some(Err(error)) => {
                            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
                            continue;
                        }
                    };
                    check_batches(bytes);
                    // Whatever they return, it is not a disk failure.
                    let target = crate::TimestampTarget::At(Timestamp(1_000_000 + from.0));
                    reader.offset_for_timestamp(target).unwrap();
                    reader.aborted_transactions(from, end).unwrap();
                }
            });
        }
        let mut random = trace::Random(7);
        for round in 0..100 {
            for _ in 0..1 + random.below(6) {
                let end = test.log().log_end_offset().0;
                // A different length in each round, so that batches begin at different positions.
                let count = 1 + (round % 7);
                test.append_batch(build(end, count, 1_000_000 + end, |builder| builder));
            }
            if random.below(3) == 0 {
                let end = test.log().log_end_offset().0;
                let back = random.below(60) as i64;
                let list = test.read_all(0);
                let at = |(first, _): &(i64, i64)| *first >= end - back;
                let target = list.iter().map(|it| it.0).find(|first| at(&(*first, 0)));
                let target = Offset(target.unwrap_or(end));
                test.log().truncate_to(target, Timestamp(0)).unwrap();
            }
            if round % 10 == 9 {
                test.run_jobs();
            }
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

/// Every byte covered by a checksum is as written. The rest of the page in which a file was cut may
/// be zeros.
fn check_batches(bytes: Bytes) {
    for batch in RecordBatch::read_all(bytes).map_while(Result::ok) {
        if batch.verify_crc().is_err() {
            return;
        }
        let BatchHeader { base_offset, .. } = batch.header;
        let count = batch.header.record_count;
        let time = batch.header.max_timestamp.0 - i64::from(count) + 1;
        let written = build(base_offset.0, count, time, |builder| builder);
        assert_eq!(batch.to_bytes(), written.to_bytes());
    }
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
fn a_truncation_keeps_the_recovery_point_below_the_log_end() {
    let mut test = log();
    test.flush();
    assert_eq!(test.reader().recovery_point(), Offset(90));
    test.log().truncate_to(Offset(70), Timestamp(0)).unwrap();
    // Not at the end: recovery must scan the segment that was cut.
    assert_eq!(test.reader().recovery_point(), Offset(69));
    test.append(5);
    test.flush();
    assert_eq!(test.reader().recovery_point(), Offset(75));
}

#[test]
fn jobs_from_before_a_truncation_do_not_affect_later_records() {
    let mut test = log();
    // No pending job has run: snapshots are to be written, and later segments to be deleted.
    let stale = test.log().flush_job().unwrap();
    test.log().truncate_to(Offset(30), Timestamp(0)).unwrap();
    let deletions = test.log().take_jobs();
    stale.run().unwrap();
    assert!(
        !test
            .files()
            .contains(&"00000000000000000060.snapshot".to_owned())
    );
    // The log grows again, with different batches, to where the old segment began.
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

/// A flush writes the producer snapshot of a segment that a truncation has just renamed. Later
/// truncations would load it, though it is of records that are gone.
#[test]
fn a_snapshot_that_is_written_during_a_truncation_is_deleted() {
    let mut test = TestLog::new();
    test.append_batch(transactional(0, 1, 1, 0));
    test.append(1);
    test.append_batch(end(2, 1, ControlRecordType::Commit));
    let now = test.now;
    test.log().roll_at(Offset(3), now).unwrap();
    test.append(1);
    let flush = test.log().flush_job().unwrap();
    let snapshot = test.path().join("00000000000000000003.snapshot");
    let renamed = test.path().join("00000000000000000003.timeindex");
    let (mut flush, mut changes) = (Some(flush), 0);
    let flush_after_the_renames = move || {
        // The first after it are the renames of what may be there: transaction index and snapshot.
        changes += usize::from(!renamed.exists());
        if changes == 3 {
            let flush = flush.take().unwrap();
            std::thread::scope(|scope| scope.spawn(|| flush.run()).join().unwrap()).unwrap();
            assert!(snapshot.exists());
        }
    };
    let truncate = || test.log().truncate_to(Offset(1), now).unwrap();
    assert!(trace::observed(flush_after_the_renames, truncate));
    assert!(
        !test
            .files()
            .contains(&"00000000000000000003.snapshot".to_owned())
    );
    for _ in 0..4 {
        test.append(1);
    }
    test.log().truncate_to(Offset(4), now).unwrap();
    assert_eq!(test.reader().last_stable_offset(), Offset(0));
}
