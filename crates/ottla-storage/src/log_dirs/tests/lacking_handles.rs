//! Starts for which no file handle is left for a while, or at all.

use std::time::Duration;

use ottla_log::checkpoint::CleanShutdown;
use ottla_sync::fs::{Faults, PowerLoss};

use super::*;
use crate::log_dirs::log_dir::REMOVAL_PAUSE;

const SHORT: Duration = Duration::from_millis(200);

/// Runs `work`, which waits for handles, while there are none. Later there are.
fn while_lacking<R>(disk: &Disk, work: impl FnOnce() -> R) -> R {
    disk.set_max_handles(0);
    let theirs = disk.clone();
    let mending = ottla_sync::thread::spawn(move || {
        ottla_sync::thread::sleep(SHORT);
        theirs.set_max_handles(u32::MAX);
    });
    let result = work();
    mending.join().unwrap();
    result
}

/// A directory with a log of two records, of which the first is deleted, after a clean stop.
fn stopped() -> Dirs {
    let test = Dirs::new(1);
    let dirs = test.load().unwrap();
    let mut log = open(&dirs, 0);
    append(&mut log);
    append(&mut log);
    log.increment_log_start_offset(Offset(1)).unwrap();
    dirs.close_log(&log.close_job(), TOPIC_ID).unwrap();
    dirs.close(BrokerEpoch(7), &[]);
    test
}

#[test]
fn directories_are_formatted_identified_and_locked_when_there_are_handles() {
    on_simulated_disk(|disk| {
        let test = Dirs {
            temp: tempfile::tempdir().unwrap(),
            count: 1,
        };
        let config = test.config();
        while_lacking(&disk, || format_standalone(&config).unwrap());
        let identity = while_lacking(&disk, || read_identity(&config).unwrap());
        assert!(identity.is_some());
        while_lacking(&disk, || DirLocks::take(&config).unwrap());
    });
}

/// It would go on without its logs, and get new ones of their names.
#[test]
fn a_directory_is_read_when_there_are_handles() {
    on_simulated_disk(|disk| {
        let test = stopped();
        let dirs = test.open().unwrap();
        let epoch = while_lacking(&disk, || dirs.epoch_of_clean_stop());
        assert_eq!(epoch, BrokerEpoch(7));
        while_lacking(&disk, || {
            dirs.load(&load_settings(&Loading::default())).unwrap()
        });
        assert_eq!(dirs.previous_broker_epoch(), BrokerEpoch(7));
        let log = open(&dirs, 0);
        assert_eq!(log.log_start_offset(), Offset(1));
        assert_eq!(log.log_end_offset(), Offset(2));
    });
}

/// A marker that is found again after a power loss would keep a log from being recovered.
#[test]
fn the_marker_of_a_clean_stop_is_removed_when_there_are_handles() {
    on_simulated_disk(|disk| {
        for _ in 0..16 {
            let test = stopped();
            let dirs = test.open().unwrap();
            let lacking = Faults {
                dir_opens_fail: true,
                ..Faults::default()
            };
            disk.set_faults("/", lacking);
            let theirs = disk.clone();
            let mending = ottla_sync::thread::spawn(move || {
                ottla_sync::thread::sleep(SHORT);
                theirs.set_faults("/", Faults::default());
            });
            assert!(dirs.dirs[0].take_clean_shutdown().unwrap());
            mending.join().unwrap();
            drop(dirs);
            disk.lose_power(PowerLoss::Unordered);
            assert_eq!(CleanShutdown::read(&test.path()).unwrap(), None);
        }
    });
}

#[test]
fn a_start_is_refused_if_handles_are_missing_for_long() {
    on_simulated_disk(|disk| {
        let test = stopped();
        let dirs = test.open().unwrap();
        disk.set_max_handles(0);
        let refused = dirs.load(&load_settings(&Loading::default())).unwrap_err();
        disk.set_max_handles(u32::MAX);
        assert!(refused.contains("cannot be read for now"), "{refused}");
        assert_eq!(dirs.online_directory_ids().len(), 1);
        dirs.abandon();
        let log = open(&test.load().unwrap(), 0);
        assert_eq!(log.log_end_offset(), Offset(2));
    });
}

/// Of the two, one is complete; without the topic ID, it is not known which.
#[test]
fn no_log_is_to_be_deleted_because_handles_are_missing() {
    on_simulated_disk(|disk| {
        let test = Dirs::new(2);
        let dirs = test.load().unwrap();
        let ids = dirs.online_directory_ids();
        drop(dirs);
        for path in test.paths() {
            let log = path.join("topic-0");
            ottla_sync::fs::create_dir_all(&log).unwrap();
            let metadata = PartitionMetadata { topic_id: TOPIC_ID };
            metadata.write(&log).unwrap();
        }
        let loading = Loading::default();
        let assigned = |_: &TopicPartition| Some((TOPIC_ID, ids[0]));
        let settings = LoadSettings {
            assigned: &assigned,
            ..load_settings(&loading)
        };
        let dirs = test.open().unwrap();
        dirs.read_ahead();
        disk.set_max_handles(0);
        let refused = dirs.load(&settings).unwrap_err();
        disk.set_max_handles(u32::MAX);
        assert!(refused.contains("cannot be read for now"), "{refused}");
        assert!(!refused.contains("delete"), "{refused}");
        dirs.abandon();
        drop(dirs);
        test.open().unwrap().load(&settings).unwrap();
    });
}

#[test]
fn an_unfinished_move_is_loaded_when_there_are_handles() {
    on_simulated_disk(|disk| {
        let Moved {
            test,
            dirs,
            to,
            to_id,
            log,
            copy,
            ..
        } = moved();
        let path = copy.dir();
        drop((dirs, log, copy));
        let dirs = test.open().unwrap();
        let dir = dirs.dirs.iter().find(|dir| dir.path == to).unwrap();
        let found = (partition(0), path);
        dir.futures_found.lock().push(found);
        while_lacking(&disk, || {
            dirs.load_futures(&load_settings(&Loading::default()))
                .unwrap()
        });
        assert_eq!(dirs.future_directory_of(&partition(0)), Some(to_id));
    });
}

/// A stop waits for the thread that removes it.
#[test]
fn a_deleted_log_is_removed_when_there_are_handles() {
    on_simulated_disk(|disk| {
        let test = Dirs::new(1);
        let dirs = test.load().unwrap();
        let dir = &dirs.dirs[0];
        let path = dir.path.join("removed");
        let is_there = || ottla_sync::fs::metadata(&path).is_ok();
        let remove_without_handles = || {
            ottla_sync::fs::create_dir_all(&path).unwrap();
            disk.set_max_handles(0);
            dir.remove_later(path.clone(), Duration::ZERO);
            ottla_sync::thread::sleep(SHORT);
            assert!(is_there());
        };
        remove_without_handles();
        disk.set_max_handles(u32::MAX);
        ottla_sync::thread::sleep(REMOVAL_PAUSE * 2);
        assert!(!is_there());
        remove_without_handles();
        let began = ottla_sync::time::now();
        dir.files.stop();
        assert!(ottla_sync::time::now() - began < SHORT);
        assert!(is_there());
    });
}

/// Its partition is deleted as well.
#[test]
fn a_log_that_was_not_loaded_and_is_gone_is_no_failure_of_the_disk() {
    on_simulated_disk(|disk| {
        let test = Dirs::new(1);
        let dirs = test.load().unwrap();
        let mut log = open(&dirs, 0);
        append(&mut log);
        let path = log.dir();
        drop((dirs, log));
        // Otherwise recovery would have nothing to write.
        ottla_sync::fs::remove_file(path.join("00000000000000000000.timeindex")).unwrap();
        let full = Faults {
            is_full: true,
            ..Faults::default()
        };
        disk.set_faults("/", full);
        let dirs = test.load().unwrap();
        disk.set_faults("/", Faults::default());
        assert!(dirs.failed.lock().contains_key(&partition(0)));
        ottla_sync::fs::remove_dir_all(&path).unwrap();
        dirs.delete_log(&partition(0));
        assert!(dirs.failed.lock().is_empty());
        assert_eq!(dirs.online_directory_ids().len(), 1);
        assert_eq!(open(&dirs, 0).log_end_offset(), Offset(0));
    });
}
