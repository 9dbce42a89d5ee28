//! Deletions, and moves between directories that end: when new names are on disk, and who waits for it.

use std::time::Duration;

use ottla_sync::fs::{Dir, Faults, PowerLoss};

use super::disk_trouble::with_failing_fsyncs;
use super::*;
use crate::log_dirs::PromoteError;
use crate::log_dirs::hosted_logs::Hosted;

fn without_handles_for_directories() -> Faults {
    Faults {
        dir_opens_fail: true,
        ..Faults::default()
    }
}

fn full() -> Faults {
    Faults {
        is_full: true,
        ..Faults::default()
    }
}

fn slow() -> Faults {
    Faults {
        delay: Some(Duration::from_millis(1)..Duration::from_millis(2)),
        ..Faults::default()
    }
}

fn is_there(path: &Path) -> bool {
    ottla_sync::fs::metadata(path).is_ok()
}

/// The process that renamed the log was killed before its fsync.
#[test]
fn a_start_forces_the_names_of_deleted_logs_before_it_removes_files() {
    on_simulated_disk(|disk| {
        for _ in 0..16 {
            let test = Dirs::new(1);
            let dirs = test.load().unwrap();
            let mut log = open(&dirs, 0);
            append(&mut log);
            for dir in log.dir().ancestors() {
                Dir::open(dir).unwrap().sync().unwrap();
            }
            dirs.delete_log(&partition(0));
            drop((log, dirs));

            let dirs = test.load().unwrap();
            // The files are removed.
            dirs.dirs[0].files.stop();
            drop(dirs);
            disk.lose_power(PowerLoss::Unordered);
            assert!(is_there(&test.path()) && !is_there(&test.path().join("topic-0")));
        }
    });
}

/// It would be tried again only after the next change of the metadata.
#[test]
fn a_deletion_is_forced_although_no_file_handle_is_left() {
    on_simulated_disk(|disk| {
        let test = Dirs::new(1);
        let dirs = Arc::new(test.load().unwrap());
        let log = open(&dirs, 0);
        disk.set_faults("/", without_handles_for_directories());
        dirs.delete_log(&partition(0));
        dirs.force_deletions();
        // Waits for it.
        dirs.dirs[0].files.stop();
        assert!(!dirs.dirs[0].may_return(None));
        drop(log);
    });
}

/// The thread that publishes metadata deletes copies, too.
#[test]
fn a_copy_is_deleted_without_an_fsync_until_its_partition_gets_a_new_log() {
    on_simulated_disk(|disk| {
        let moved = moved();
        let from = moved.dirs.directory_of(&partition(0)).unwrap();
        disk.set_faults(&moved.to, with_failing_fsyncs());
        moved.dirs.delete_log(&partition(0));
        for log in [&moved.log, &moved.copy] {
            assert!(log.dir().to_string_lossy().ends_with("-delete"));
        }
        assert_eq!(moved.dirs.online_directory_ids().len(), 2);
        let new = moved
            .dirs
            .open_log(&partition(0), TOPIC_ID, Some(from), settings());
        assert!(new.is_ok());
        assert_eq!(moved.dirs.online_directory_ids(), [from]);
    });
}

/// Appends continue, and the controller may assume that the replica is in the directory of the copy.
#[test]
fn a_cancelled_copy_counts_as_hidden_when_its_new_name_is_on_disk() {
    on_simulated_disk(|disk| {
        let moved = moved();
        moved.dirs.begin_remove_future(&partition(0));
        let is_unforced = || moved.dirs.dirs.iter().any(|dir| dir.may_return(None));
        assert!(is_unforced());
        moved.dirs.hide_future(&moved.copy.reader()).unwrap();
        assert!(!is_unforced());

        let moved = self::moved();
        moved.dirs.begin_remove_future(&partition(0));
        disk.set_faults(&moved.to, with_failing_fsyncs());
        assert!(moved.dirs.hide_future(&moved.copy.reader()).is_err());
    });
}

/// The ends of moves wait for the disk.
#[test]
fn a_deletion_waits_for_the_end_of_a_move_only_if_its_log_has_a_copy() {
    on_simulated_disk(|_| {
        let Moved {
            test,
            dirs,
            log,
            copy,
            ..
        } = moved();
        let dirs = Arc::new(dirs);
        let other = open(&dirs, 1);
        let ending = dirs.moves_end.lock();
        dirs.delete_log(&partition(1));
        assert_eq!(dirs.directory_of(&partition(1)), None);
        let theirs = Arc::clone(&dirs);
        let deleting = ottla_sync::thread::spawn(move || theirs.delete_log(&partition(0)));
        ottla_sync::thread::sleep(Duration::from_millis(50));
        assert!(dirs.is_hosted(&log.reader()) && dirs.is_future(&copy.reader()));
        drop(ending);
        deleting.join().unwrap();
        assert_eq!(dirs.directory_of(&partition(0)), None);
        assert_eq!(dirs.future_directory_of(&partition(0)), None);
        drop((test, other));
    });
}

/// A new log of the name can be created at once.
#[test]
fn a_deletion_beside_the_end_of_a_move_leaves_no_log_of_the_name() {
    on_simulated_disk(|disk| {
        for pause_ms in 0..24 {
            let Moved {
                test,
                dirs,
                log,
                copy,
                from,
                to,
                ..
            } = moved();
            let dirs = Arc::new(dirs);
            disk.set_faults("/", slow());
            let (theirs, reader) = (Arc::clone(&dirs), copy.reader());
            let is_written_down = pause_ms % 2 == 0;
            let promoting =
                ottla_sync::thread::spawn(move || theirs.promote(&reader, is_written_down));
            ottla_sync::thread::sleep(Duration::from_millis(pause_ms));
            dirs.delete_log(&partition(0));
            let is_left = [from, to].iter().any(|dir| is_there(&dir.join("topic-0")));
            assert!(!is_left, "after {pause_ms} ms");
            let other_topic = TopicId::from_u128(78);
            let new = dirs.open_log(&partition(0), other_topic, None, settings());
            let new = new.unwrap();
            // Moved, or given up.
            drop(promoting.join().unwrap());
            assert!(dirs.is_hosted(&new.reader()) && is_there(&new.dir()));
            disk.set_faults("/", Faults::default());
            drop((test, log));
        }
    });
}

/// Otherwise a start deletes both, if the new name of the log is on disk although its fsync failed.
#[test]
fn a_copy_is_not_hidden_once_its_log_is_lost() {
    on_simulated_disk(|disk| {
        let moved = moved();
        disk.set_faults(&moved.from, with_failing_fsyncs());
        let Err(PromoteError::Log(error)) = moved.dirs.promote(&moved.copy.reader(), true) else {
            panic!("the log was renamed");
        };
        let log = moved.log.reader();
        moved.dirs.on_partition_error(&log, &error);
        assert!(!moved.dirs.is_online(&log));
        moved.dirs.hide_future(&moved.copy.reader()).unwrap();
        assert!(moved.copy.dir().to_string_lossy().ends_with("-future"));
    });
}

/// It would be appended to, and the next start would delete it.
#[test]
fn a_log_that_cannot_get_its_name_back_is_not_used() {
    on_simulated_disk(|disk| {
        let mut lost = 0;
        for pause_ms in 0..8 {
            let Moved {
                test,
                dirs,
                log,
                copy,
                from,
                to,
                ..
            } = moved();
            ottla_sync::fs::create_dir_all(to.join("topic-0/in the way")).unwrap();
            let dirs = Arc::new(dirs);
            disk.set_faults("/", slow());
            let (theirs, reader) = (Arc::clone(&dirs), copy.reader());
            let promoting = ottla_sync::thread::spawn(move || theirs.promote(&reader, true));
            ottla_sync::thread::sleep(Duration::from_millis(pause_ms));
            let full = Faults {
                is_full: true,
                ..slow()
            };
            disk.set_faults(&from, full);
            assert!(promoting.join().unwrap().is_err());
            let has_name = log.dir() == from.join("topic-0");
            let is_online = dirs.is_online(&log.reader());
            assert_eq!(is_online, has_name, "full after {pause_ms} ms");
            lost += usize::from(!has_name);
            for dir in [Path::new("/"), from.as_path()] {
                disk.set_faults(dir, Faults::default());
            }
            drop((test, log));
        }
        assert!(lost > 0);
    });
}

/// Nobody would learn that the partition has lost its log.
#[test]
fn a_log_that_moves_to_a_directory_that_fails_is_reported() {
    on_simulated_disk(|disk| {
        let mut lost = 0;
        for pause_ms in 0..12 {
            let Moved {
                test,
                dirs,
                log,
                copy,
                ..
            } = moved();
            let dirs = Arc::new(dirs);
            let told = Arc::new(Mutex::new(Vec::new()));
            let theirs = Arc::clone(&told);
            dirs.set_failure_listener(move |failure| {
                theirs.lock().extend(failure.partitions.iter().cloned());
            });
            disk.set_faults("/", slow());
            let (theirs, reader) = (Arc::clone(&dirs), copy.reader());
            let promoting = ottla_sync::thread::spawn(move || theirs.promote(&reader, true));
            ottla_sync::thread::sleep(Duration::from_millis(pause_ms));
            let to = Arc::clone(dirs.dir_of(&copy.reader()).unwrap());
            dirs.fail(&to, "it is broken");
            let promoted = promoting.join().unwrap();
            let is_told = told.lock().contains(&partition(0));
            assert_eq!(is_told, promoted.is_ok(), "broken after {pause_ms} ms");
            lost += usize::from(is_told);
            disk.set_faults("/", Faults::default());
            drop((test, log));
        }
        assert!(lost > 0);
    });
}

/// An empty log in its place would lead, and the other replicas would delete their records.
#[test]
fn a_copy_that_a_full_disk_kept_from_replacing_its_log_at_a_start_replaces_it_later() {
    on_simulated_disk(|disk| {
        let Moved {
            test,
            dirs,
            log,
            copy,
            to,
            to_id,
            ..
        } = moved();
        drop((log, copy, dirs));
        let dirs = test.load().unwrap();
        let claim = || {
            let known = OpenSettings {
                is_new: false,
                ..settings()
            };
            dirs.open_log(&partition(0), TOPIC_ID, Some(to_id), known)
        };
        disk.set_faults(&to, full());
        assert!(claim().is_err());
        dirs.set_strays_aside();
        assert!(claim().is_err());
        disk.set_faults(&to, Faults::default());
        let log = claim().unwrap();
        assert_eq!(log.log_end_offset(), Offset(1));
        assert_eq!(log.dir(), to.join("topic-0"));
    });
}

/// It would contain the records of the other one.
#[test]
fn a_log_is_not_created_before_another_of_its_name_was_renamed() {
    on_simulated_disk(|disk| {
        let test = Dirs::new(1);
        let dirs = test.load().unwrap();
        let mut log = open(&dirs, 0);
        append(&mut log);
        drop((log, dirs));

        // A log found by a start.
        let dirs = test.load().unwrap();
        let claim = |id| dirs.open_log(&partition(0), TopicId::from_u128(id), None, settings());
        disk.set_faults("/", full());
        assert!(claim(78).is_err());
        dirs.set_strays_aside();
        assert!(claim(78).is_err());
        disk.set_faults("/", Faults::default());
        let mut log = claim(78).unwrap();
        assert_eq!(log.log_end_offset(), Offset(0));

        // A deleted log.
        append(&mut log);
        disk.set_faults("/", full());
        dirs.delete_log(&partition(0));
        assert!(claim(79).is_err());
        disk.set_faults("/", Faults::default());
        assert_eq!(claim(79).unwrap().log_end_offset(), Offset(0));
        assert!(log.dir().to_string_lossy().ends_with("-delete"));
    });
}

#[test]
fn a_copy_does_not_replace_a_later_log_of_the_name() {
    let moved = moved();
    let dirs = &moved.dirs;
    let dir = dirs.dir_of(&moved.copy.reader()).unwrap();
    let promoted = Hosted {
        reader: moved.copy.reader(),
        dir: Arc::clone(dir),
    };
    dirs.delete_log(&partition(0));
    let new = open(dirs, 0);
    let is_exchanged = dirs.hosted.write().exchange(&moved.log.reader(), promoted);
    assert!(!is_exchanged && dirs.is_hosted(&new.reader()));
}

/// A start would delete it, and its copy may lack later records or be hidden.
#[test]
fn a_log_keeps_its_name_if_its_new_name_cannot_be_forced() {
    on_simulated_disk(|disk| {
        let moved = moved();
        disk.set_faults(&moved.from, with_failing_fsyncs());
        let promoted = moved.dirs.promote(&moved.copy.reader(), true);
        assert!(matches!(promoted, Err(PromoteError::Log(_))));
        let name = moved.from.join("topic-0");
        assert!(moved.log.dir() == name && is_there(&name));
    });
}

#[test]
fn a_move_ends_although_no_file_handle_is_left_for_directories() {
    on_simulated_disk(|disk| {
        let moved = moved();
        disk.set_faults("/", without_handles_for_directories());
        moved.dirs.promote(&moved.copy.reader(), true).unwrap();
        assert_eq!(moved.copy.dir(), moved.to.join("topic-0"));
        assert!(is_there(&moved.copy.dir()));
    });
}

/// A start could find it beside a later log of the name with another topic ID, and fail.
#[test]
fn a_replaced_log_is_set_aside_durably() {
    on_simulated_disk(|disk| {
        let test = Dirs::new(2);
        let dirs = test.load().unwrap();
        let ids = dirs.online_directory_ids();
        let log = dirs.open_log(&partition(0), TOPIC_ID, Some(ids[0]), settings());
        let log = log.unwrap();
        assert!(dirs.write_topic_id(&log.reader(), TOPIC_ID));
        drop((log, dirs));
        let other = test.paths()[1].clone();
        let replaced = other.join("topic-0");
        ottla_sync::fs::create_dir_all(&replaced).unwrap();
        let metadata = PartitionMetadata { topic_id: TOPIC_ID };
        metadata.write(&replaced).unwrap();

        disk.set_faults(&other, with_failing_fsyncs());
        let dirs = test.open().unwrap();
        let loading = Loading::default();
        let assigned = |_: &TopicPartition| Some((TOPIC_ID, ids[0]));
        let settings = LoadSettings {
            assigned: &assigned,
            ..load_settings(&loading)
        };
        dirs.load(&settings).unwrap();
        assert_eq!(dirs.online_directory_ids(), [ids[0]]);
    });
}
