//! Starts after a failed fsync, without and with a power loss before the next one.

use std::io::ErrorKind;
use std::time::Duration;

use ottla_log::checkpoint::FailedFsync;
use ottla_sync::fs::{Faults, PowerLoss};

use super::disk_trouble::with_failing_fsyncs;
use super::*;
use crate::log_dirs::load::RELOAD_PAUSE;
use crate::log_dirs::log_dir::LogDir;

fn is_noted(test: &Dirs) -> bool {
    FailedFsync::is_noted(&test.path())
}

fn append_and_force(dirs: &LogDirs, log: &mut Log, records: i64) {
    (0..records).for_each(|_| append(log));
    log.flush_job().unwrap().run().unwrap();
    dirs.checkpoint_recovery_points(&dirs.dirs[0]);
}

fn fail(test: &Dirs, disk: &Disk) {
    format_standalone(&test.config()).unwrap();
    let dirs = test.load().unwrap();
    let mut log = open(&dirs, 0);
    append_and_force(&dirs, &mut log, 3);
    (0..3).for_each(|_| append(&mut log));
    disk.set_faults("/", with_failing_fsyncs());
    let error = log.flush_job().unwrap().run().unwrap_err();
    dirs.on_partition_error(&log.reader(), &error);
    assert!(!dirs.is_online(&log.reader()));
    disk.set_faults("/", Faults::default());
    dirs.dirs[0].files.stop();
    assert!(is_noted(test));
}

fn go_on(test: &Dirs, _: &Disk) {
    let dirs = test.load().unwrap();
    assert!(!is_noted(test));
    let mut log = open(&dirs, 0);
    assert!(log.log_end_offset() >= Offset(6));
    append_and_force(&dirs, &mut log, 1);
}

/// The kernel marks the pages of a failed fsync as written, and reads them until they are evicted.
#[test]
fn records_of_a_failed_fsync_are_on_disk_after_the_next_start() {
    for seed in 1..=16 {
        let test = Arc::new(Dirs {
            temp: tempfile::tempdir().unwrap(),
            count: 1,
        });
        let report = simulation::run(Config::new(seed), move || {
            let disk = Disk::new(seed, "broker");
            let life = |work: fn(&Dirs, &Disk), kill_in: Option<u64>| {
                let host = Host::new("broker").with_disk(&disk);
                let (test, of_life) = (Arc::clone(&test), disk.clone());
                let main = host.spawn("main", move || work(&test, &of_life));
                if let Some(steps) = kill_in {
                    host.kill_in(steps);
                }
                let ended = main.join();
                host.kill();
                assert!(ended.is_ok() || kill_in.is_some());
            };
            life(fail, None);
            if seed > 8 {
                life(go_on, Some(seed * 10));
            }
            life(go_on, None);
            disk.lose_power(PowerLoss::Unordered);
            let last = |test: &Dirs, _: &Disk| {
                let dirs = test.load().unwrap();
                assert!(open(&dirs, 0).log_end_offset() >= Offset(7));
            };
            life(last, None);
        });
        assert!(report.result.is_ok(), "seed {seed}: {:?}", report.result);
    }
}

#[test]
fn the_note_stays_until_every_log_was_loaded() {
    on_simulated_disk(|disk| {
        let test = Dirs::new(1);
        let dirs = test.load().unwrap();
        let mut log = open(&dirs, 0);
        append(&mut log);
        drop((dirs, log));
        FailedFsync::write(&test.path()).unwrap();
        // Otherwise recovery would have nothing to write.
        let index = "topic-0/00000000000000000000.timeindex";
        ottla_sync::fs::remove_file(test.path().join(index)).unwrap();
        let full = Faults {
            is_full: true,
            ..Faults::default()
        };
        disk.set_faults("/", full);
        let dirs = test.load().unwrap();
        assert!(is_noted(&test));
        disk.set_faults("/", Faults::default());
        ottla_sync::thread::sleep(RELOAD_PAUSE);
        assert_eq!(open(&dirs, 0).log_end_offset(), Offset(1));
        assert!(!is_noted(&test));
    });
}

#[test]
fn a_log_whose_close_could_not_be_forced_is_noted() {
    on_simulated_disk(|disk| {
        let test = Dirs::new(1);
        let dirs = test.load().unwrap();
        let mut log = open(&dirs, 0);
        append(&mut log);
        disk.set_faults("/", with_failing_fsyncs());
        assert!(dirs.close_log(&log.close_job(), TOPIC_ID).is_err());
        assert!(is_noted(&test));
    });
}

/// Occupies the thread that deletes files of a directory until the result is dropped.
fn occupy(dir: &LogDir) -> std::sync::mpsc::Sender<()> {
    let (until, hangs) = std::sync::mpsc::channel();
    dir.files.submit(Duration::ZERO, move || {
        let _ = hangs.recv();
    });
    until
}

/// A flush fails on a thread that serves requests of all directories.
#[test]
fn no_thread_that_hears_of_a_failed_fsync_waits_for_the_note() {
    let test = Dirs::new(1);
    let dirs = test.load().unwrap();
    let log = open(&dirs, 0);
    let dir = &dirs.dirs[0];
    let hung_until = occupy(dir);
    let error = StorageError::fsync(&dir.path, ErrorKind::Other.into());
    dirs.on_partition_error(&log.reader(), &error);
    assert!(!dir.is_online());
    assert!(!is_noted(&test));
    drop(hung_until);
    dir.files.stop();
    assert!(is_noted(&test));
}

/// The removal of many logs takes long, and the process may be killed before it ends.
#[test]
fn the_note_of_a_failed_fsync_overtakes_what_waits_on_its_thread() {
    let test = Dirs::new(1);
    let dirs = test.load().unwrap();
    let log = open(&dirs, 0);
    let dir = &dirs.dirs[0];
    let hung_until = occupy(dir);
    let (sender, was_noted) = std::sync::mpsc::channel();
    let path = test.path();
    dir.files.submit(Duration::ZERO, move || {
        sender.send(FailedFsync::is_noted(&path)).unwrap();
    });
    let error = StorageError::fsync(&dir.path, ErrorKind::Other.into());
    dirs.on_partition_error(&log.reader(), &error);
    drop(hung_until);
    assert!(was_noted.recv().unwrap());
}

#[test]
fn the_note_of_a_failed_fsync_waits_for_a_file_handle() {
    on_simulated_disk(|disk| {
        let test = Dirs::new(1);
        let dirs = test.load().unwrap();
        let log = open(&dirs, 0);
        let lacking = Faults {
            opens_fail_one_in: 1,
            ..Faults::default()
        };
        disk.set_faults("/", lacking);
        let error = StorageError::fsync(&test.path(), ErrorKind::Other.into());
        dirs.on_partition_error(&log.reader(), &error);
        ottla_sync::thread::sleep(Duration::from_millis(100));
        assert!(!is_noted(&test));
        disk.set_faults("/", Faults::default());
        dirs.dirs[0].files.stop();
        assert!(is_noted(&test));
    });
}

#[test]
fn an_fsync_that_fails_during_the_stop_is_noted() {
    let test = Dirs::new(1);
    let dirs = test.load().unwrap();
    let log = open(&dirs, 0);
    dirs.dirs[0].files.stop();
    let error = StorageError::fsync(&test.path(), ErrorKind::Other.into());
    dirs.on_partition_error(&log.reader(), &error);
    assert!(is_noted(&test));
}

/// Kafka ignores the note, and may have stopped cleanly since.
#[test]
fn a_clean_stop_after_a_failed_fsync_is_not_reported_to_the_controller() {
    let test = Dirs::new(1);
    test.load().unwrap().close(BrokerEpoch(7), &[]);
    let epoch = || test.open().unwrap().epoch_of_clean_stop();
    assert_eq!(epoch(), BrokerEpoch(7));
    FailedFsync::write(&test.path()).unwrap();
    assert_eq!(epoch(), BrokerEpoch::UNKNOWN);
}
