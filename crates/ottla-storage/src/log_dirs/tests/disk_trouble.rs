//! Failed writeback, and file systems that run out of space.

use std::io::ErrorKind;
use std::time::Duration;

use ottla_sync::fs::Faults;

use super::*;

/// Its pages may be lost, whatever the error code.
#[test]
fn a_failed_writeback_takes_the_directory_of_its_file_offline() {
    let test = Dirs::new(3);
    let dirs = test.load().unwrap();
    let logs = [0, 1, 2].map(|n| open(&dirs, n));
    let file_of = |n: usize| logs[n].reader().dir().join("00000000000000000000.log");
    dirs.on_write_back_failed(vec![
        StorageError::new("write", &file_of(0), ErrorKind::StorageFull.into()),
        StorageError::fsync(&file_of(1), ErrorKind::StorageFull.into()),
        StorageError::fsync(Path::new("/elsewhere/file.log"), ErrorKind::Other.into()),
    ]);
    let online = logs.each_ref().map(|log| dirs.is_online(&log.reader()));
    assert_eq!(online, [true, false, true]);
}

#[test]
fn appends_are_refused_while_only_the_reserve_is_free() {
    on_simulated_disk(|disk| {
        let test = Dirs::new(1);
        let dirs = test.load().unwrap();
        let log = open(&dirs, 0);
        let space = dirs.space_of(&log.reader());
        let look = |capacity| {
            disk.set_capacity(capacity);
            dirs.look_at_space(1 << 20);
            space.is_open()
        };
        assert!(look(1 << 30));
        // Less free space than was written already.
        assert!(!look(1) && !space.take(1));
        assert!(look(1 << 30) && space.take(1));
        let failing = Faults {
            reads_fail_one_in: 1,
            ..Faults::default()
        };
        disk.set_faults("/", failing);
        assert!(look(1), "a query that fails says nothing");
        assert!(dirs.is_online(&log.reader()));
        disk.set_faults("/", Faults::default());
        assert!(!look(1));
    });
}

pub(super) fn with_failing_fsyncs() -> Faults {
    Faults {
        syncs_fail_one_in: 1,
        ..Faults::default()
    }
}

/// The thread that publishes metadata deletes logs, and requests may wait for its next change.
#[test]
fn a_log_is_deleted_without_an_fsync_until_its_name_is_used_again() {
    on_simulated_disk(|disk| {
        let test = Dirs::new(1);
        let dirs = test.load().unwrap();
        let logs = [0, 1].map(|n| open(&dirs, n));
        disk.set_faults("/", with_failing_fsyncs());
        dirs.delete_log(&partition(0));
        assert!(dirs.is_online(&logs[1].reader()));
        // A power loss could leave the deleted log in place of this one.
        let again = dirs.open_log(&partition(0), TOPIC_ID, None, settings());
        assert!(again.is_err() && !dirs.is_online(&logs[1].reader()));
    });
}

#[test]
fn another_thread_forces_the_deletion_of_a_log() {
    on_simulated_disk(|disk| {
        let test = Dirs::new(1);
        let dirs = Arc::new(test.load().unwrap());
        let logs = [0, 1, 2].map(|n| open(&dirs, n));
        let until = |is_over: &dyn Fn() -> bool| {
            let is_over_soon = (0..1_000).any(|_| {
                ottla_sync::thread::sleep(Duration::from_millis(1));
                is_over()
            });
            assert!(is_over_soon);
        };
        dirs.delete_log(&partition(0));
        assert!(dirs.dirs[0].may_return(Some(&partition(0))));
        dirs.force_deletions();
        until(&|| !dirs.dirs[0].may_return(None));
        assert!(dirs.is_online(&logs[2].reader()));

        disk.set_faults("/", with_failing_fsyncs());
        dirs.delete_log(&partition(1));
        dirs.force_deletions();
        until(&|| !dirs.is_online(&logs[2].reader()));
    });
}

/// After a power loss, a start would find two logs of one name, of which the metadata may name neither.
#[test]
fn a_deletion_is_forced_before_its_name_is_used_in_another_directory() {
    on_simulated_disk(|disk| {
        let test = Dirs::new(2);
        let dirs = test.load().unwrap();
        let ids = dirs.online_directory_ids();
        let old = dirs.open_log(&partition(0), TOPIC_ID, Some(ids[0]), settings());
        drop(old.unwrap());
        disk.set_faults(&dirs.dirs[0].path, with_failing_fsyncs());
        dirs.delete_log(&partition(0));
        assert!(dirs.dirs[0].is_online());
        let again = dirs.open_log(&partition(0), TOPIC_ID, Some(ids[1]), settings());
        assert!(again.is_ok() && dirs.dirs[1].is_online());
        assert!(!dirs.dirs[0].is_online());
    });
}
