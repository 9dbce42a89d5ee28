//! Writes and rolls that fail on a simulated disk: for want of a handle, or of room.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ottla_config::TopicConfig;
use ottla_records::control::ControlRecordType;
use ottla_sync::fs::{Disk, Faults, PowerLoss};
use ottla_sync::simulation::{Config, Host, run, stream};
use ottla_sync::thread;
use ottla_types::{Offset, Timestamp, TopicPartition};

use super::build;
use super::simulated_disk::{DIR, batches, config};
use super::transactions::{end, transactional};
use crate::{AppendErrorReason, Log, OpenParams};

/// A log with segments of this size and three fsynced records.
fn open(segment_bytes: usize) -> Log {
    open_with(segment_bytes, crate::Handles::unlimited())
}

fn open_with(segment_bytes: usize, handles: Arc<crate::Handles>) -> Log {
    open_at(Offset(3), segment_bytes, handles)
}

fn open_at(recovery_point: Offset, segment_bytes: usize, handles: Arc<crate::Handles>) -> Log {
    let config = TopicConfig {
        segment_bytes: segment_bytes as i32,
        ..config()
    };
    let opened = Log::open(OpenParams {
        dir: DIR.into(),
        topic_partition: TopicPartition::new("topic", 0),
        config: Arc::new(config),
        recovery_point,
        log_start_offset: Offset(0),
        clean_shutdown: false,
        now: Timestamp(1_000_000),
        producer_id_expiration_ms: 86_400_000,
        random_seed: 1,
        handles,
        checkpoint_marks: Arc::default(),
    });
    opened.unwrap().0
}

/// A roll finds no file handle, and a smaller batch goes into the current segment: recovery must
/// not cut it off because of anything the roll left.
#[test]
fn a_roll_that_was_refused_leaves_no_segment() {
    let batch = |first, count| build(first, count, 1_000_000 + first, |builder| builder);
    let segment_bytes = batch(0, 3).size_in_bytes() + batch(3, 1).size_in_bytes();
    let mut refused = 0;
    for seed in 0..40 {
        let body = move || {
            let disk = Disk::new(seed, "disk");
            let host = Host::new("broker").with_disk(&disk);
            let short = disk.clone();
            let main = host.spawn("main", move || {
                let append = |log: &mut Log, batch| log.append(&[batch], Timestamp(1_000_000));
                ottla_sync::fs::create_dir_all(Path::new(DIR)).unwrap();
                let mut log = open(segment_bytes);
                append(&mut log, batch(0, 3)).unwrap();
                short.set_faults(
                    "/",
                    Faults {
                        opens_fail_one_in: 2,
                        ..Faults::default()
                    },
                );
                let rolled = append(&mut log, batch(3, 3));
                short.set_faults("/", Faults::default());
                match rolled {
                    Ok(_) => false,
                    Err(refused) => {
                        assert!(matches!(refused.reason, AppendErrorReason::Temporary(_)));
                        assert!(!append(&mut log, batch(3, 1)).unwrap().rolled);
                        true
                    }
                }
            });
            let was_refused = main.join().unwrap();
            host.kill();
            let host = Host::new("broker").with_disk(&disk);
            let opened = host.spawn("main", move || open(segment_bytes).log_end_offset());
            (was_refused, opened.join().unwrap())
        };
        let (was_refused, end) = run(Config::new(seed), body).unwrap();
        let due = if was_refused { 4 } else { 6 };
        assert_eq!(end, Offset(due), "seed {seed}");
        refused += u32::from(was_refused);
    }
    assert!((5..40).contains(&refused), "{refused} were refused");
}

/// Recovery cuts the log at the recovery point, the next append rolls there, and power is lost: the
/// truncated bytes must not come back into a segment that no recovery scans again.
#[test]
fn records_removed_by_recovery_do_not_return() {
    let open = || open(build(0, 3, 1_000_000, |builder| builder).size_in_bytes());
    let append = |log: &mut Log, first| {
        let batch = build(first, 3, 1_000_000 + first, |builder| builder);
        log.append(&[batch], Timestamp(1_000_000)).unwrap().rolled
    };
    let torn_append_and_recovery = move || {
        ottla_sync::fs::create_dir_all(Path::new(DIR)).unwrap();
        let mut log = open();
        append(&mut log, 0);
        log.flush_job().unwrap().run().unwrap();
        for path in ["/", "/data"] {
            let dir = ottla_sync::fs::Dir::open(Path::new(path)).unwrap();
            dir.sync().unwrap();
        }
        // A batch whose size reached the disk, but not its content.
        let file = crate::disk::open_existing(&Path::new(DIR).join("00000000000000000000.log"));
        let (file, end) = (file.unwrap(), log.reader().size());
        crate::disk::set_len(&file, end + 100).unwrap();
        crate::disk::sync_data(&file).unwrap();
        drop(log);
        let mut log = open();
        assert_eq!(log.log_end_offset(), Offset(3));
        assert!(append(&mut log, 3));
    };
    let mut found = Vec::new();
    for seed in 0..20 {
        let body = move || {
            let disk = Disk::new(seed, "disk");
            let host = Host::new("broker").with_disk(&disk);
            host.spawn("main", torn_append_and_recovery).join().unwrap();
            host.kill();
            disk.lose_power(PowerLoss::Journalled);
            let host = Host::new("broker").with_disk(&disk);
            let opened = host.spawn("main", move || {
                let reader = open().reader();
                (reader.segment_base_offsets().len(), batches(&reader, 0))
            });
            opened.join().unwrap()
        };
        let (segments, batches) = run(Config::new(seed), body).unwrap();
        assert_eq!(batches[0].0, 0);
        assert!(batches.len() == 1 || batches[1].0 == 3);
        found.push(segments);
    }
    assert!(found.contains(&2), "the new segment was never there");
}

/// A write that hit a full disk is cut back at the recovery point, the next append rolls there, and
/// power is lost: half a batch must not come back into a segment that no recovery scans again.
#[test]
fn half_a_batch_that_a_full_disk_took_stays_away() {
    let batch = |first, count| build(first, count, 1_000_000 + first, |builder| builder);
    let segment_bytes = 2 * batch(0, 3).size_in_bytes() + 200;
    let open = move || open(segment_bytes);
    let append = |log: &mut Log, batch| log.append(&[batch], Timestamp(1_000_000));
    let fill_the_disk = move |disk: Disk| {
        ottla_sync::fs::create_dir_all(Path::new(DIR)).unwrap();
        let mut log = open();
        append(&mut log, batch(0, 3)).unwrap();
        log.flush_job().unwrap().run().unwrap();
        for path in ["/", "/data"] {
            let dir = ottla_sync::fs::Dir::open(Path::new(path)).unwrap();
            dir.sync().unwrap();
        }
        let used: usize = disk.files().values().map(Vec::len).sum();
        disk.set_capacity(used as u64 + 100);
        let refused = append(&mut log, batch(3, 3)).unwrap_err();
        assert!(matches!(refused.reason, AppendErrorReason::Temporary(_)));
        disk.set_capacity(u64::MAX);
        // A larger batch, which does not fit into the segment.
        assert!(append(&mut log, batch(3, 15)).unwrap().rolled);
    };
    let mut found = Vec::new();
    for seed in 0..300 {
        let body = move || {
            let disk = Disk::new(seed, "disk");
            let host = Host::new("broker").with_disk(&disk);
            let filled = disk.clone();
            let main = host.spawn("main", move || fill_the_disk(filled));
            main.join().unwrap();
            host.kill();
            disk.lose_power(PowerLoss::Journalled);
            let host = Host::new("broker").with_disk(&disk);
            let opened = host.spawn("main", move || {
                let reader = open().reader();
                (reader.segment_base_offsets().len(), batches(&reader, 0))
            });
            opened.join().unwrap()
        };
        let (segments, batches) = run(Config::new(seed), body).unwrap();
        assert_eq!(batches[0].0, 0);
        assert!(batches.len() == 1 || batches[1].0 == 3);
        found.push(segments);
    }
    assert!(found.contains(&2), "the new segment was never there");
}

/// Puts the names of all files on disk.
fn force_names() {
    for path in ["/", "/data", DIR] {
        let dir = ottla_sync::fs::Dir::open(Path::new(path)).unwrap();
        dir.sync().unwrap();
    }
}

/// A start rebuilds the indexes of a segment below the recovery point, and power is lost. The next
/// start takes the segment for complete, or rebuilds it again: it knows the aborted transaction.
#[test]
fn a_rebuilt_segment_keeps_its_aborted_transactions() {
    let last = || end(2, 1, ControlRecordType::Abort);
    let segment_bytes = transactional(0, 2, 1, 0).size_in_bytes() + last().size_in_bytes();
    let append = |log: &mut Log, batch| log.append(&[batch], Timestamp(1_000_000)).unwrap();
    let roll_and_start_again = move || {
        ottla_sync::fs::create_dir_all(Path::new(DIR)).unwrap();
        let mut log = open(segment_bytes);
        append(&mut log, transactional(0, 2, 1, 0));
        append(&mut log, last());
        // Without the offset and time index, because the segment is active.
        log.flush_job().unwrap().run().unwrap();
        let next = build(3, 3, 1_000_003, |builder| builder);
        assert!(append(&mut log, next).rolled);
        force_names();
        drop(log);
        let reader = open(segment_bytes).reader();
        assert_eq!(reader.segment_base_offsets(), [Offset(0), Offset(3)]);
    };
    for seed in 0..100 {
        let body = move || {
            let disk = Disk::new(seed, "disk");
            let host = Host::new("broker").with_disk(&disk);
            host.spawn("main", roll_and_start_again).join().unwrap();
            host.kill();
            disk.lose_power(PowerLoss::Journalled);
            let host = Host::new("broker").with_disk(&disk);
            let opened = host.spawn("main", move || {
                let reader = open(segment_bytes).reader();
                reader.aborted_transactions(Offset(0), Offset(3)).unwrap()
            });
            opened.join().unwrap().len()
        };
        assert_eq!(run(Config::new(seed), body).unwrap(), 1, "seed {seed}");
    }
}

/// A start is killed while it rebuilds an index that is so long that it is written in parts. The first
/// part ends shortly before the end of the segment, but the marker there is in no index yet.
#[test]
fn a_rebuild_that_is_killed_keeps_the_aborted_transactions() {
    // All but the first get an entry of the offset index.
    const BATCHES: i64 = 1025;
    const COUNT: i32 = 5;
    let end_offset = BATCHES * i64::from(COUNT);
    let given = move || {
        let mut given = vec![transactional(0, COUNT, 1, 0)];
        given.extend((1..BATCHES).map(|number| {
            let first = number * i64::from(COUNT);
            // Newer than the marker, so that this has no entry of the time index.
            build(first, COUNT, 3_000_000 + first, |builder| builder)
        }));
        given.push(end(end_offset, 1, ControlRecordType::Abort));
        given
    };
    let segment_bytes: usize = given().iter().map(|batch| batch.size_in_bytes()).sum();
    let next_offset = Offset(end_offset + 1);
    let start = move || open_at(next_offset, segment_bytes, crate::Handles::unlimited());
    let of_segment = |suffix: &str| Path::new(DIR).join(format!("{:020}{suffix}", 0));
    let (index, transactions) = (of_segment(".index"), of_segment(".txnindex"));
    let append_and_remove_the_index = {
        let index = index.clone();
        move || {
            ottla_sync::fs::create_dir_all(Path::new(DIR)).unwrap();
            let mut log = start();
            log.append(&given(), Timestamp(1_000_000)).unwrap();
            let next = build(next_offset.0, 3, 3_000_000, |builder| builder);
            assert!(log.append(&[next], Timestamp(1_000_000)).unwrap().rolled);
            log.flush_job().unwrap().run().unwrap();
            ottla_sync::fs::remove_file(&index).unwrap();
            force_names();
        }
    };
    let mut killed_between = 0;
    for seed in 0..40 {
        let (index, transactions) = (index.clone(), transactions.clone());
        let append_and_remove_the_index = append_and_remove_the_index.clone();
        let body = move || {
            let disk = Disk::new(seed, "disk");
            let new_host = || Host::new("broker").with_disk(&disk);
            let host = new_host();
            let appended = host.spawn("main", append_and_remove_the_index);
            appended.join().unwrap();
            host.kill();
            let host = new_host();
            let started = host.spawn("main", move || drop(start()));
            let is_begun = || disk.content(&index).is_some_and(|bytes| !bytes.is_empty());
            while !started.is_finished() && !is_begun() {
                thread::yield_now();
            }
            host.kill_in(stream("kill").below(40));
            // An error means that it was killed.
            let _ = started.join();
            host.kill();
            let is_between = is_begun() && disk.content(&transactions).is_none();
            if seed % 2 == 0 {
                disk.lose_power(PowerLoss::Journalled);
            }
            let host = new_host();
            let opened = host.spawn("main", move || {
                let reader = start().reader();
                let found = reader.aborted_transactions(Offset(0), next_offset);
                found.unwrap().len()
            });
            (is_between, opened.join().unwrap())
        };
        let (is_between, aborted) = run(Config::new(seed), body).unwrap();
        assert_eq!(aborted, 1, "seed {seed}");
        killed_between += u32::from(is_between);
    }
    assert!(killed_between > 0, "no kill came between the two indexes");
}

/// The first attempt makes the index of aborted transactions, and finds no handle for the directory.
/// Recovery from the recovery point of the second one does not make the index anew.
#[test]
fn a_flush_that_is_tried_again_forces_the_name_of_a_new_index() {
    let append_and_flush = |disk: &Disk| {
        ottla_sync::fs::create_dir_all(Path::new(DIR)).unwrap();
        let mut log = open_at(Offset(0), 1_000_000, crate::Handles::unlimited());
        let append = |log: &mut Log, batch| {
            log.append(&[batch], Timestamp(1_000_000)).unwrap();
        };
        append(&mut log, build(0, 1, 1_000_000, |builder| builder));
        log.flush_job().unwrap().run().unwrap();
        for path in ["/", "/data"] {
            let dir = ottla_sync::fs::Dir::open(Path::new(path)).unwrap();
            dir.sync().unwrap();
        }
        append(&mut log, transactional(1, 1, 7, 0));
        append(&mut log, end(2, 7, ControlRecordType::Abort));
        let lacking = Faults {
            dir_opens_fail: true,
            ..Faults::default()
        };
        disk.set_faults("/", lacking);
        let refused = log.flush_job().unwrap().run().unwrap_err();
        assert!(refused.is_lack_of_resources(), "{refused}");
        disk.set_faults("/", Faults::default());
        log.flush_job().unwrap().run().unwrap();
    };
    for seed in 0..16 {
        let body = move || {
            let disk = Disk::new(seed, "disk");
            let host = Host::new("broker").with_disk(&disk);
            let of_host = disk.clone();
            let main = host.spawn("main", move || append_and_flush(&of_host));
            main.join().unwrap();
            host.kill();
            disk.lose_power(PowerLoss::Unordered);
            let index = Path::new(DIR).join("00000000000000000000.txnindex");
            disk.files().contains_key(&index)
        };
        assert!(run(Config::new(seed), body).unwrap(), "seed {seed}");
    }
}

/// A write that fails on a full disk is truncated through the handle that wrote it. So other logs
/// that take all handles in the meantime cause neither a failed disk nor a remaining partial batch.
#[test]
fn a_failed_write_is_cut_back_without_another_handle() {
    let batch = |first| build(first, 3, 1_000_000 + first, |builder| builder);
    let others_take = |handles: &Arc<crate::Handles>| {
        for _ in 0..20 {
            let open = || handles.open(|| ottla_sync::fs::File::open("/data/other"));
            let taken: Vec<_> = std::iter::from_fn(|| open().ok()).collect();
            thread::sleep(Duration::from_micros(10));
            drop(taken);
        }
    };
    let fill_the_disk = move |disk: Disk| {
        ottla_sync::fs::create_dir_all(Path::new(DIR)).unwrap();
        drop(ottla_sync::fs::File::create("/data/other").unwrap());
        let handles = crate::Handles::new(4);
        let mut log = open_with(1_000_000, Arc::clone(&handles));
        log.append(&[batch(0)], Timestamp(1_000_000)).unwrap();
        let end = log.reader().size();
        let used: usize = disk.files().values().map(Vec::len).sum();
        disk.set_capacity(used as u64 + 100);
        let others = thread::spawn(move || others_take(&handles));
        let mut failed_writes = 0;
        for _ in 0..20 {
            let refused = log.append(&[batch(3)], Timestamp(1_000_000)).unwrap_err();
            let AppendErrorReason::Temporary(error) = refused.reason else {
                panic!("{refused}");
            };
            failed_writes += u32::from(error.is_disk_full());
            let path = Path::new(DIR).join("00000000000000000000.log");
            assert_eq!(disk.files()[&path].len() as u64, end, "{error}");
        }
        others.join().unwrap();
        failed_writes
    };
    let mut failed_writes = 0;
    for seed in 0..100 {
        let body = move || {
            let disk = Disk::new(seed, "disk");
            let host = Host::new("broker").with_disk(&disk);
            let main = host.spawn("main", move || fill_the_disk(disk));
            main.join().unwrap()
        };
        failed_writes += run(Config::new(seed), body).unwrap();
    }
    assert!(failed_writes > 100, "only {failed_writes}");
}
