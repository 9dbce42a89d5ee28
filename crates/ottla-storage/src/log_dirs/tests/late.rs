//! Logs that could not be loaded at start and are loaded later.

use ottla_sync::fs::Faults;
use ottla_types::{BrokerEpoch, Offset, Uuid};

use super::disk_trouble::with_failing_fsyncs;
use super::*;
use crate::log_dirs::OpenLogError;
use crate::log_dirs::load::RELOAD_PAUSE;

fn pause() {
    ottla_sync::thread::sleep(RELOAD_PAUSE);
}

/// Starts with a log of three records on a full disk, on which it cannot be recovered.
fn after_a_start_without_space(then: fn(&Disk, &Dirs, &LogDirs)) {
    on_simulated_disk(move |disk| {
        let test = Dirs::new(1);
        let dirs = test.load().unwrap();
        let mut log = open(&dirs, 0);
        (0..3).for_each(|_| append(&mut log));
        drop((dirs, log));
        // Otherwise recovery would have nothing to write.
        let index = "topic-0/00000000000000000000.timeindex";
        ottla_sync::fs::remove_file(test.path().join(index)).unwrap();
        let full = Faults {
            is_full: true,
            ..Faults::default()
        };
        disk.set_faults("/", full);
        let dirs = test.load().unwrap();
        then(&disk, &test, &dirs);
    });
}

/// Otherwise the broker would lead partitions with unreadable records until its next start.
#[test]
fn logs_that_a_full_disk_kept_from_loading_are_loaded_later() {
    after_a_start_without_space(|disk, test, dirs| {
        let claim = || dirs.open_log(&partition(0), TOPIC_ID, None, settings());
        let not_loaded = |claimed| matches!(claimed, Err(OpenLogError::NotLoaded { .. }));
        assert!(not_loaded(claim()));
        pause();
        assert!(not_loaded(claim()), "the disk is full");
        disk.set_faults("/", Faults::default());
        assert!(
            not_loaded(claim()),
            "the directory is left alone for a while"
        );
        pause();
        let mut log = claim().unwrap();
        assert_eq!(log.log_end_offset(), Offset(3));
        log.close_job().run().unwrap();
        dirs.close(BrokerEpoch(1), &[]);
        drop(log);
        assert_eq!(test.load().unwrap().previous_broker_epoch(), BrokerEpoch(1));
    });
}

/// An empty log would be elected, and the other replicas would delete their records.
#[test]
fn a_missing_log_of_an_electable_replica_is_not_created_again() {
    let test = Dirs::new(2);
    let dirs = test.load().unwrap();
    let known = |may_lead| OpenSettings {
        is_new: false,
        may_lead,
        ..settings()
    };
    let claim = |n, id, may_lead| dirs.open_log(&partition(n), TOPIC_ID, Some(id), known(may_lead));
    let gone = Uuid::from_u128(77);
    let refused = claim(0, gone, true);
    assert!(matches!(refused, Err(OpenLogError::DirectoryGone { id }) if id == gone));
    for (n, id, may_lead) in [
        (1, gone, false),
        (2, dirs.online_directory_ids()[0], true),
        (3, Uuid::DIRECTORY_UNASSIGNED, true),
    ] {
        assert!(claim(n, id, may_lead).is_ok(), "{n}");
    }
}

#[test]
fn a_log_deleted_before_its_late_load_is_not_created_again() {
    after_a_start_without_space(|disk, test, dirs| {
        ottla_sync::fs::remove_dir_all(test.path().join("topic-0")).unwrap();
        disk.set_faults("/", Faults::default());
        pause();
        let claimed = dirs.open_log(&partition(0), TOPIC_ID, None, settings());
        assert!(matches!(claimed, Err(OpenLogError::NotLoaded { .. })));
        assert!(!dirs.online_directory_ids().is_empty());
    });
}

#[test]
fn a_log_that_could_not_be_loaded_is_deleted_with_its_replica() {
    after_a_start_without_space(|disk, _, dirs| {
        disk.set_faults("/", Faults::default());
        dirs.delete_log(&partition(0));
        let log = open(dirs, 0);
        assert_eq!(log.log_end_offset(), Offset(0));
    });
}

/// After a power loss, a start could find it beside a new log of the name, without some of its files.
#[test]
fn the_deletion_of_an_unloaded_log_is_forced_before_its_name_is_used_again() {
    after_a_start_without_space(|disk, _, dirs| {
        disk.set_faults("/", with_failing_fsyncs());
        dirs.delete_log(&partition(0));
        assert!(!dirs.online_directory_ids().is_empty());
        let again = dirs.open_log(&partition(0), TOPIC_ID, None, settings());
        assert!(again.is_err() && dirs.online_directory_ids().is_empty());
    });
}

/// A new log of the name would contain its records.
#[test]
fn an_unloaded_log_that_a_full_disk_keeps_from_being_deleted_is_not_used() {
    after_a_start_without_space(|disk, _, dirs| {
        let other = TopicId::from_u128(78);
        let claim = || dirs.open_log(&partition(0), other, None, settings());
        dirs.delete_log(&partition(0));
        assert!(claim().is_err());
        disk.set_faults("/", Faults::default());
        pause();
        assert_eq!(claim().unwrap().log_end_offset(), Offset(0));
    });
}
