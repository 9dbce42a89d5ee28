//! The checkpoint entries of a log that is truncated or moved.

use ottla_log::checkpoint::{
    CLEANER_OFFSET_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, OffsetCheckpoint,
    RECOVERY_POINT_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT,
};
use ottla_types::Offset;

use super::{Dirs, TOPIC_ID, append, on_simulated_disk, open, partition, settings};

/// The cleaner would clean the log again at once, and again, as long as no file handle is left.
#[test]
fn the_cleaned_offset_is_kept_if_the_checkpoint_write_fails() {
    on_simulated_disk(|disk| {
        let test = Dirs::new(1);
        let dirs = test.load().unwrap();
        let logs = [0, 1].map(|n| open(&dirs, n));
        let readers = logs.each_ref().map(|log| log.reader());
        let set = |n: usize, offset| {
            let truncations = readers[n].truncations();
            dirs.set_clean_offset(&readers[n], Offset(offset), truncations);
        };
        disk.set_max_handles(0);
        set(0, 3);
        disk.set_max_handles(u32::MAX);
        assert_eq!(dirs.clean_offset(&readers[0]), Some(Offset(3)));
        assert!(dirs.online().next().is_some());
        set(1, 2);
        let dir = dirs.online().next().unwrap();
        let path = dir.path.join(CLEANER_OFFSET_CHECKPOINT);
        let written = OffsetCheckpoint::read(&path).unwrap().offsets;
        assert_eq!(written[&partition(0)], Offset(3));
        assert_eq!(written[&partition(1)], Offset(2));
    });
}

/// A start offset that is too high after a crash would hide records, or have them deleted.
#[test]
fn a_truncation_lowers_the_checkpoint_of_its_log_only() {
    let test = Dirs::new(1);
    let dirs = test.load().unwrap();
    let logs = [0, 1].map(|n| {
        let mut log = open(&dirs, n);
        (0..3).for_each(|_| append(&mut log));
        log.set_high_watermark(Offset(3));
        log.increment_log_start_offset(Offset(2)).unwrap();
        log.flush_job().unwrap().run().unwrap();
        log
    });
    let [mut log, other] = logs;
    let dir = dirs.online().next().unwrap();
    dirs.checkpoint_recovery_points(dir);
    for log in [&log, &other] {
        let reader = log.reader();
        dirs.set_clean_offset(&reader, Offset(3), reader.truncations());
    }
    let written = |n| {
        [
            RECOVERY_POINT_CHECKPOINT,
            LOG_START_OFFSET_CHECKPOINT,
            CLEANER_OFFSET_CHECKPOINT,
        ]
        .map(|file| {
            let checkpoint = OffsetCheckpoint::read(&dir.path.join(file)).unwrap();
            checkpoint.offsets[&partition(n)].0
        })
    };
    assert_eq!([written(0), written(1)], [[3, 2, 3]; 2]);
    let reader = log.reader();
    let of_cleaning = reader.truncations();
    log.announce_truncation(Offset(1));
    dirs.lower_checkpoints(&reader, Offset(1)).unwrap();
    assert_eq!([written(0), written(1)], [[0, 1, 1], [3, 2, 3]]);
    // The result of a cleaning that started before is ignored.
    dirs.set_clean_offset(&reader, Offset(3), of_cleaning);
    assert_eq!(written(0), [0, 1, 1]);
    dirs.set_clean_offset(&reader, Offset(2), reader.truncations());
    assert_eq!(written(0), [0, 1, 2]);
}

/// Otherwise the truncation would be carried out, and a crash would leave a recovery point that is
/// too high.
#[test]
fn a_truncation_is_refused_while_a_checkpoint_cannot_be_read() {
    on_simulated_disk(|disk| {
        let test = Dirs::new(1);
        let dirs = test.load().unwrap();
        let mut log = open(&dirs, 0);
        (0..3).for_each(|_| append(&mut log));
        log.flush_job().unwrap().run().unwrap();
        let dir = dirs.online().next().unwrap();
        dirs.checkpoint_recovery_points(dir);
        // As after two rounds without a change.
        *dir.written.recovery_points.lock() = None;
        let reader = log.reader();
        log.announce_truncation(Offset(1));
        disk.set_max_handles(0);
        let refused = dirs.lower_checkpoints(&reader, Offset(1)).unwrap_err();
        disk.set_max_handles(u32::MAX);
        assert!(refused.is_temporary(), "{refused}");
        dirs.lower_checkpoints(&reader, Offset(1)).unwrap();
        let path = dir.path.join(RECOVERY_POINT_CHECKPOINT);
        let written = OffsetCheckpoint::read(&path).unwrap().offsets;
        assert_eq!(written[&partition(0)], Offset(0));
    });
}

/// A node has very many logs, and nearly all of them are idle.
#[test]
fn idle_logs_are_not_compared_with_their_checkpoint() {
    let test = Dirs::new(1);
    let dirs = test.load().unwrap();
    let mut log = open(&dirs, 0);
    let dir = dirs.online().next().unwrap();
    let written = &dir.written.high_watermarks;
    let compares = |_: &i32| {
        *written.lock() = None;
        dirs.checkpoint_high_watermarks(dir);
        written.lock().is_some()
    };
    let rounds = || (0..5).take_while(compares).count();
    assert!((1..5).contains(&rounds()));
    assert_eq!(rounds(), 0);
    append(&mut log);
    log.set_high_watermark(Offset(1));
    assert_eq!(rounds(), 2, "a mark counts for two rounds");
    log.set_high_watermark(Offset(1));
    assert_eq!(rounds(), 0, "it is the same");
    let _second = open(&dirs, 1);
    assert!((1..5).contains(&rounds()));
    let path = dir.path.join(REPLICATION_OFFSET_CHECKPOINT);
    let offsets = OffsetCheckpoint::read(&path).unwrap().offsets;
    assert_eq!(offsets[&partition(0)], Offset(1));
    assert_eq!(offsets[&partition(1)], Offset(0));
}

#[test]
fn the_cleaner_checkpoint_moves_with_the_log() {
    let test = Dirs::new(2);
    let dirs = test.load().unwrap();
    let mut log = open(&dirs, 0);
    append(&mut log);
    let from = dirs.directory_of(&partition(0)).unwrap();
    let of = |is_from: bool| {
        let mut all = dirs.dirs.iter();
        all.find(|dir| (dir.directory_id == from) == is_from)
            .unwrap()
    };
    dirs.change_clean_offset(of(true), &partition(0), Some(Offset(1)));
    let to = of(false).directory_id;
    let created = dirs.create_future(&partition(0), TOPIC_ID, to, settings());
    let mut copy = created.unwrap();
    append(&mut copy);
    dirs.promote(&copy.reader(), true).unwrap();
    assert_eq!(dirs.directory_of(&partition(0)), Some(to));
    let clean = |is_from| {
        let file = of(is_from).path.join(CLEANER_OFFSET_CHECKPOINT);
        let offsets = OffsetCheckpoint::read(&file).unwrap().offsets;
        offsets.get(&partition(0)).copied()
    };
    assert_eq!((clean(true), clean(false)), (None, Some(Offset(1))));
}
