//! Failed writeback, and file systems that run out of space.

use std::io::ErrorKind;

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
