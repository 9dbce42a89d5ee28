use std::path::Path;

use ottla_config::TopicConfig;
use ottla_log::OpenParams;
use ottla_records::{Compression, CompressionType, RecordBatch, RecordBatchBuilder};
use ottla_types::{LeaderEpoch, Offset, Timestamp};

use super::*;
use ottla_testkit::old_message;

const NOW: Timestamp = Timestamp(1_000_000);

fn open(dir: &Path) -> Log {
    open_as(dir, false)
}

fn open_as(dir: &Path, remote_storage_enable: bool) -> Log {
    let config = TopicConfig {
        segment_bytes: 1024 * 1024,
        remote_storage_enable,
        ..Default::default()
    };
    let params = OpenParams {
        dir: dir.to_owned(),
        topic_partition: TopicPartition::new("orders", 0),
        config: Arc::new(config),
        recovery_point: Offset::ZERO,
        log_start_offset: Offset::ZERO,
        clean_shutdown: false,
        now: NOW,
        producer_id_expiration_ms: 86_400_000,
        random_seed: 7,
        handles: ottla_log::Handles::unlimited(),
        checkpoint_marks: Arc::default(),
    };
    Log::open(params).unwrap().0
}

/// Appends batches of 100 kB in an epoch and commits them.
fn append_to(log: &mut Log, epoch: i32, batches: usize) {
    for _ in 0..batches {
        let end = log.log_end_offset();
        let mut builder = RecordBatchBuilder::new(Compression::None).base_offset(end);
        builder.append(NOW, None, Some(&[7; 100_000]), &[]);
        let mut batch = builder.build();
        batch.assign_offset(end, LeaderEpoch(epoch));
        log.append(&[batch], NOW).unwrap();
    }
    log.set_high_watermark(log.log_end_offset());
}

fn round(future: &mut Log, current: &Log) -> Copied {
    copy_round(future, &current.reader(), ROUND_BYTES, NOW).unwrap()
}

#[test]
fn rounds_bring_a_copy_to_the_end_of_its_log() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [mut current, mut future] = [open(dirs[0].path()), open(dirs[1].path())];
    append_to(&mut current, 0, 50);
    append_to(&mut current, 3, 10);
    current.increment_log_start_offset(Offset(5)).unwrap();
    let first = round(&mut future, &current);
    assert!(!first.is_at_end);
    assert!(first.bytes > ROUND_BYTES / 2 && first.bytes <= ROUND_BYTES + 100_200);
    while !round(&mut future, &current).is_at_end {}
    let read = |log: &Log| {
        let reader = log.reader();
        let mut bytes = Vec::new();
        let mut from = log.log_start_offset();
        while let Some(region) = reader
            .read(from, 1 << 20, log.log_end_offset(), true)
            .unwrap()
            .region
        {
            let records = region.read().unwrap();
            for batch in RecordBatch::read_all(records.clone()).map_while(Result::ok) {
                from = batch.header.next_offset();
                bytes.extend_from_slice(&batch.to_bytes());
            }
        }
        bytes
    };
    assert!(read(&future) == read(&current));
    assert_eq!(future.log_start_offset(), Offset(5));
    assert_eq!(future.high_watermark(), Offset(60));
    let of_epoch = |log: &Log| log.reader().end_offset_for_epoch(LeaderEpoch(0));
    assert_eq!(of_epoch(&future), of_epoch(&current));
    assert_eq!(future.latest_epoch(), Some(LeaderEpoch(3)));
}

#[test]
fn a_copy_is_truncated_to_its_log() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [mut current, mut future] = [open(dirs[0].path()), open(dirs[1].path())];
    append_to(&mut current, 0, 3);
    round(&mut future, &current);
    // The log was truncated and continued in another epoch while the copy was offline.
    append_to(&mut future, 0, 4);
    append_to(&mut current, 1, 2);
    assert!(round(&mut future, &current).is_at_end);
    assert_eq!(future.log_end_offset(), Offset(5));
    assert_eq!(
        future.reader().end_offset_for_epoch(LeaderEpoch(0)),
        Some((LeaderEpoch(0), Offset(3)))
    );
}

/// A power loss can take the end of a segment and leave the next one.
#[test]
fn a_copy_with_a_gap_gets_the_missing_records() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [mut current, mut future] = [open(dirs[0].path()), open(dirs[1].path())];
    append_to(&mut current, 0, 25);
    while !round(&mut future, &current).is_at_end {}
    let base = future.reader().segment_base_offsets()[0];
    let next = future.reader().segment_base_offsets()[1];
    drop(future);
    let first = dirs[1].path().join(format!("{:020}.log", base.0));
    let whole = std::fs::read(&first).unwrap();
    let batch_bytes = whole.len() / next.since(base) as usize;
    std::fs::write(&first, &whole[..batch_bytes]).unwrap();
    let mut future = open(dirs[1].path());
    assert_eq!(future.doubtful_from(), Some(Offset(1)));
    while !round(&mut future, &current).is_at_end {}
    assert_eq!(future.doubtful_from(), None);
    let of_first = |log: &Log| {
        let read = log.reader().read(Offset(1), 1, log.log_end_offset(), true);
        let bytes = read.unwrap().region.unwrap().read().unwrap();
        RecordBatch::read_all(bytes).next().unwrap().unwrap()
    };
    assert_eq!(of_first(&future).header.base_offset, Offset(1));
    assert_eq!(future.log_end_offset(), current.log_end_offset());
}

#[test]
fn a_copy_restarts_if_its_log_starts_after_it() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [mut current, mut future] = [open(dirs[0].path()), open(dirs[1].path())];
    append_to(&mut current, 0, 2);
    round(&mut future, &current);
    append_to(&mut current, 0, 40);
    current.increment_log_start_offset(Offset(30)).unwrap();
    current.delete_old_segments(NOW).unwrap();
    while !round(&mut future, &current).is_at_end {}
    assert_eq!(future.log_start_offset(), Offset(30));
    assert_eq!(future.log_end_offset(), Offset(42));
    assert_eq!(future.reader().segment_base_offsets()[0], Offset(30));
}

#[test]
fn a_tiered_log_is_copied_from_its_first_local_segment_on() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [mut current, mut future] = [0, 1].map(|it: usize| open_as(dirs[it].path(), true));
    append_to(&mut current, 0, 15);
    append_to(&mut current, 3, 10);
    flush(&mut current).unwrap();
    let bases = current.reader().segment_base_offsets();
    current.delete_local_segments(1, NOW).unwrap();
    let snapshot_in = |dir: usize| {
        let name = format!("{:020}.snapshot", bases[1].0);
        dirs[dir].path().join(name)
    };
    let aside = dirs[0].path().join("aside");
    std::fs::rename(snapshot_in(0), &aside).unwrap();
    let error = copy_round(&mut future, &current.reader(), ROUND_BYTES, NOW).unwrap_err();
    assert!(
        matches!(error, CopyError::NoSnapshot(at) if at == bases[1]),
        "{error}"
    );
    // It is tried again, and no directory goes offline.
    assert!(!error.is_final() && error.storage().is_none());
    // Nor is it used before it is complete.
    let whole = std::fs::read(&aside).unwrap();
    std::fs::write(snapshot_in(0), &whole[..whole.len() - 1]).unwrap();
    let error = copy_round(&mut future, &current.reader(), ROUND_BYTES, NOW).unwrap_err();
    assert!(matches!(error, CopyError::NoSnapshot(_)), "{error}");
    std::fs::rename(&aside, snapshot_in(0)).unwrap();
    while !round(&mut future, &current).is_at_end {}
    let starts = |log: &Log| {
        (
            log.log_start_offset(),
            log.reader().local_log_start_offset(),
        )
    };
    assert_eq!(starts(&future), (Offset(0), bases[1]));
    assert_eq!(future.log_end_offset(), Offset(25));
    assert_eq!(future.leader_epochs(), current.leader_epochs());
    assert!(snapshot_in(1).exists());
    // Its end is now only in remote storage too.
    append_to(&mut current, 3, 30);
    flush(&mut current).unwrap();
    let bases = current.reader().segment_base_offsets();
    assert!(bases[3] > Offset(25));
    current.delete_local_segments(3, NOW).unwrap();
    while !round(&mut future, &current).is_at_end {}
    assert_eq!(starts(&future), (Offset(0), bases[3]));
    assert_eq!(future.log_end_offset(), Offset(55));
    assert_eq!(future.leader_epochs(), current.leader_epochs());
    // Remote segments expire.
    current.increment_log_start_offset(Offset(5)).unwrap();
    assert!(round(&mut future, &current).is_at_end);
    assert_eq!(starts(&future), (Offset(5), bases[3]));
}

/// A tiered log whose producer snapshot at the local start a crash has cut, and the starts of its
/// segments before the first of them was deleted. Nobody writes the snapshot again.
fn without_first_snapshot(dir: &Path) -> (Log, Vec<Offset>) {
    let mut log = open_as(dir, true);
    append_to(&mut log, 0, 25);
    flush(&mut log).unwrap();
    let bases = log.reader().segment_base_offsets();
    log.delete_local_segments(1, NOW).unwrap();
    let snapshot = format!("{:020}.snapshot", bases[1].0);
    std::fs::write(dir.join(snapshot), "").unwrap();
    (log, bases)
}

#[test]
fn a_copy_begins_at_a_later_segment_if_the_snapshot_at_the_local_start_is_lost() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let (current, bases) = without_first_snapshot(dirs[0].path());
    let mut future = open_as(dirs[1].path(), true);
    // Not all records before the next segment are in remote storage.
    current.set_highest_remote_offset(bases[2].plus(-2));
    let error = copy_round(&mut future, &current.reader(), ROUND_BYTES, NOW).unwrap_err();
    assert!(
        matches!(error, CopyError::NoSnapshot(at) if at == bases[1]),
        "{error}"
    );
    current.set_highest_remote_offset(bases[2].plus(-1));
    while !round(&mut future, &current).is_at_end {}
    assert_eq!(future.log_start_offset(), Offset(0));
    assert_eq!(future.reader().local_log_start_offset(), bases[2]);
    assert_eq!(future.log_end_offset(), Offset(25));
    assert_eq!(future.leader_epochs(), current.leader_epochs());
    // Only the log has them by now.
    current.set_highest_remote_offset(Offset(5));
    let error = copy_round(&mut future, &current.reader(), ROUND_BYTES, NOW).unwrap_err();
    assert!(matches!(error, CopyError::NoSnapshot(_)), "{error}");
}

/// Otherwise the move would lose the records before the first segment of the copy.
#[test]
fn a_copy_that_began_late_begins_anew_if_its_log_is_no_longer_tiered() {
    for is_tiered_again in [false, true] {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let (mut current, bases) = without_first_snapshot(dirs[0].path());
        let mut future = open_as(dirs[1].path(), true);
        current.set_highest_remote_offset(bases[2].plus(-1));
        while !round(&mut future, &current).is_at_end {}
        assert_eq!(future.reader().local_log_start_offset(), bases[2]);
        let changes: &[bool] = match is_tiered_again {
            true => &[false, true],
            false => &[false],
        };
        for &remote_storage_enable in changes {
            current.set_config(Arc::new(TopicConfig {
                remote_storage_enable,
                ..TopicConfig::clone(current.config())
            }));
        }
        while !round(&mut future, &current).is_at_end {}
        assert_eq!(future.log_start_offset(), bases[1]);
        assert_eq!(future.reader().local_log_start_offset(), bases[1]);
        assert_eq!(future.log_end_offset(), Offset(25));
    }
}

/// Retention would delete other records of the copy, because its segments end elsewhere.
#[test]
fn a_copy_keeps_what_its_log_still_has() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [mut current, mut future] = [open(dirs[0].path()), open(dirs[1].path())];
    append_to(&mut current, 0, 25);
    while !round(&mut future, &current).is_at_end {}
    current.set_config(Arc::new(TopicConfig {
        retention_bytes: 1,
        ..TopicConfig::clone(current.config())
    }));
    current.increment_log_start_offset(Offset(5)).unwrap();
    assert!(round(&mut future, &current).is_at_end);
    assert_eq!(future.log_start_offset(), Offset(5));
}

#[test]
fn a_tiered_log_that_was_truncated_before_its_local_segments_is_copied() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [mut current, mut future] = [0, 1].map(|it: usize| open_as(dirs[it].path(), true));
    append_to(&mut current, 0, 25);
    flush(&mut current).unwrap();
    current.delete_local_segments(1, NOW).unwrap();
    while !round(&mut future, &current).is_at_end {}
    assert!(future.reader().local_log_start_offset() > Offset(5));
    current.truncate_to(Offset(5), NOW).unwrap();
    append_to(&mut current, 4, 3);
    while !round(&mut future, &current).is_at_end {}
    assert_eq!(future.log_start_offset(), Offset(0));
    assert_eq!(future.reader().local_log_start_offset(), Offset(5));
    assert_eq!(future.log_end_offset(), Offset(8));
    assert_eq!(future.leader_epochs(), current.leader_epochs());
}

/// A follower was truncated to before its start, and got records again from there on.
#[test]
fn a_copy_begins_anew_if_its_log_ends_before_it() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [mut current, mut future] = [open(dirs[0].path()), open(dirs[1].path())];
    append_to(&mut current, 0, 3);
    future
        .truncate_fully_and_start_at(Offset(10), None, NOW)
        .unwrap();
    append_to(&mut future, 0, 2);
    while !round(&mut future, &current).is_at_end {}
    assert_eq!(future.log_start_offset(), Offset(0));
    assert_eq!(future.log_end_offset(), Offset(3));
}

#[test]
fn a_log_that_starts_within_a_batch_is_copied_with_all_of_that_batch() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [mut current, mut future] = [open(dirs[0].path()), open(dirs[1].path())];
    for _ in 0..2 {
        let end = current.log_end_offset();
        let mut builder = RecordBatchBuilder::new(Compression::None).base_offset(end);
        for _ in 0..10 {
            builder.append(NOW, None, Some(b"value"), &[]);
        }
        let mut batch = builder.build();
        batch.assign_offset(end, LeaderEpoch(0));
        current.append(&[batch], NOW).unwrap();
    }
    current.set_high_watermark(Offset(20));
    current.increment_log_start_offset(Offset(4)).unwrap();
    assert!(round(&mut future, &current).is_at_end);
    assert_eq!(future.log_start_offset(), Offset(4));
    assert_eq!(future.log_end_offset(), Offset(20));
    let read = future
        .reader()
        .read(Offset(4), 1 << 20, Offset(20), true)
        .unwrap();
    let records = read.region.unwrap().read().unwrap();
    let first = RecordBatch::read_all(records).next().unwrap().unwrap();
    assert_eq!(first.header.base_offset, Offset(0), "it holds offset 4");
    // And again after another append.
    append_to(&mut current, 0, 1);
    assert!(round(&mut future, &current).is_at_end);
    assert_eq!(future.log_end_offset(), Offset(21));
}

#[test]
fn messages_of_old_formats_are_copied_as_they_are() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let inside: Vec<u8> = (0..3)
        .flat_map(|n| old_message(1, 0, n, b"inside"))
        .collect();
    let gzip = Compression::from(CompressionType::Gzip);
    let messages = [
        old_message(0, 0, 0, b"first"),
        old_message(1, 0, 1, &[7; 600_000]),
        // A wrapper of three messages, at offsets 2 to 4.
        old_message(1, 1, 4, &gzip.compress(&inside)),
        old_message(1, 0, 5, &[8; 600_000]),
        old_message(1, 0, 5 + (1 << 31), b"far behind"),
    ];
    // A segment holds 1 MiB and offsets less than 2^31 apart.
    let segments: [(i64, Vec<u8>); 3] = [
        (0, messages[..3].concat()),
        (5, messages[3].clone()),
        (5 + (1 << 31), messages[4].clone()),
    ];
    for (base, bytes) in &segments {
        std::fs::write(dirs[0].path().join(format!("{base:020}.log")), bytes).unwrap();
    }
    let [mut current, mut future] = [open(dirs[0].path()), open(dirs[1].path())];
    let end = Offset(6 + (1 << 31));
    assert_eq!(current.log_end_offset(), end);
    // Records of the current format follow.
    append_to(&mut current, 4, 2);
    while !round(&mut future, &current).is_at_end {}
    assert_eq!(future.log_end_offset(), end.plus(2));
    assert_eq!(future.latest_epoch(), Some(LeaderEpoch(4)));
    let bytes_of = |log: &Log| -> Vec<u8> {
        let bases = log.reader().segment_base_offsets();
        let file = |base: &Offset| log.dir().join(format!("{:020}.log", base.0));
        bases
            .iter()
            .flat_map(|base| std::fs::read(file(base)).unwrap())
            .collect()
    };
    assert!(bytes_of(&future) == bytes_of(&current));
    // The first offset inside a message is unknown: a segment starts where the previous one ends
    // and spans 2^31 offsets.
    let bases = [0, 5, 6, end.0].map(Offset);
    assert_eq!(future.reader().segment_base_offsets(), bases);
    // A start finds the whole log.
    future.close().unwrap();
    let reader = open(dirs[1].path());
    assert_eq!(reader.log_end_offset(), end.plus(2));
}
