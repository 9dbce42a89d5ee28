//! New logs with the name of a deleted one: the checkpoint entries belong to the deleted log.

use std::time::Duration;

use super::*;

const OTHER_TOPIC_ID: TopicId = TopicId::from_u128(78);

/// Leaves a cleanly stopped log of three records; the first two were deleted.
fn leave_a_log_that_starts_late(test: &Dirs) {
    let dirs = test.load().unwrap();
    let mut log = open(&dirs, 0);
    for _ in 0..3 {
        append(&mut log);
    }
    log.increment_log_start_offset(Offset(2)).unwrap();
    log.close_job().run().unwrap();
    dirs.close(BrokerEpoch(1), &[]);
}

fn make_anew(dirs: &LogDirs) -> Log {
    dirs.open_log(&partition(0), OTHER_TOPIC_ID, None, settings())
        .unwrap()
}

/// Appends one record to a new log and kills the process before a checkpoint.
fn append_one_and_kill(test: &Dirs, dirs: LogDirs, mut log: Log) {
    append(&mut log);
    drop((dirs, log));
    let dirs = test.load().unwrap();
    let log = make_anew(&dirs);
    assert_eq!(log.log_start_offset(), Offset(0));
    assert_eq!(log.log_end_offset(), Offset(1));
}

#[test]
fn a_recreated_topic_keeps_its_records_after_a_kill() {
    let test = Dirs::new(1);
    leave_a_log_that_starts_late(&test);
    let dirs = test.load().unwrap();
    drop(open(&dirs, 0));
    dirs.delete_log(&partition(0));
    let log = make_anew(&dirs);
    append_one_and_kill(&test, dirs, log);
}

/// Otherwise the log of a new topic of the same name could get the ID of the deleted one.
#[test]
fn a_topic_id_is_not_written_during_a_rename_of_the_log() {
    let test = Dirs::new(1);
    let dirs = Arc::new(test.load().unwrap());
    let log = dirs.open_log(&partition(0), TOPIC_ID, None, settings());
    let reader = log.unwrap().reader();
    let writing = reader.in_dir(|dir| {
        let (dirs, reader) = (Arc::clone(&dirs), reader.clone());
        let writing = ottla_sync::thread::spawn(move || dirs.write_topic_id(&reader, TOPIC_ID));
        ottla_sync::thread::sleep(Duration::from_millis(50));
        assert_eq!(PartitionMetadata::read(dir).unwrap(), None);
        writing
    });
    assert!(writing.join().unwrap());
    let deleting = reader.in_dir(|dir| {
        let dirs = Arc::clone(&dirs);
        let deleting = ottla_sync::thread::spawn(move || dirs.delete_log(&partition(0)));
        ottla_sync::thread::sleep(Duration::from_millis(50));
        let written = PartitionMetadata { topic_id: TOPIC_ID };
        assert_eq!(PartitionMetadata::read(dir).unwrap(), Some(written));
        deleting
    });
    deleting.join().unwrap();
    assert!(!test.path().join("topic-0").exists());
}

#[test]
fn a_kill_after_the_deletion_does_not_lose_records_either() {
    let test = Dirs::new(1);
    leave_a_log_that_starts_late(&test);
    fs::remove_dir_all(test.path().join("topic-0")).unwrap();
    let dirs = test.load().unwrap();
    let log = make_anew(&dirs);
    append_one_and_kill(&test, dirs, log);
}

#[test]
fn a_log_of_another_topic_is_set_aside_with_its_checkpoints() {
    let test = Dirs::new(1);
    leave_a_log_that_starts_late(&test);
    let dirs = test.load().unwrap();
    let log = make_anew(&dirs);
    append_one_and_kill(&test, dirs, log);
}

#[test]
fn checkpoints_of_a_copy_do_not_apply_to_another_log() {
    let test = Dirs::new(2);
    leave_a_log_that_starts_late(&test);
    fs::remove_dir_all(test.path().join("topic-0")).unwrap();
    let dirs = test.load().unwrap();
    let first = dirs.dirs[0].directory_id;
    let second = Some(dirs.dirs[1].directory_id);
    let log = dirs
        .open_log(&partition(0), OTHER_TOPIC_ID, second, settings())
        .unwrap();
    let copy = dirs
        .create_future(&partition(0), OTHER_TOPIC_ID, first, settings())
        .unwrap();
    for file in [
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        "replication-offset-checkpoint",
    ] {
        let read = OffsetCheckpoint::read(&test.path().join(file)).unwrap();
        assert_eq!(read.offsets.get(&partition(0)), None, "{file}");
    }
    drop((copy, log));
}
