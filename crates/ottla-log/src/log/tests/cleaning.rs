//! Each rule of compaction, and each step of swapping a cleaned segment in.

mod turns;

use std::cell::{Cell, RefCell};

use ottla_config::CleanupPolicy;
use ottla_records::control::{ControlRecordType, EndTxnMarker, end_txn_batch};
use ottla_records::{Compression, CompressionType, Record, RecordBatch, RecordBatchBuilder};
use ottla_types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};

use super::TestLog;
use crate::{
    CleanError, CleanerParams, CleanerStats, CleaningStopped, IoPace, Log, LogAccess, LogToClean,
    clean,
};

/// The owner of a log; a test may act before any turn of the cleaner.
pub(super) struct Owner<'a> {
    pub(super) log: RefCell<&'a mut Log>,
    pub(super) turns: Cell<usize>,
    pub(super) before_turn: Box<dyn Fn(usize, &mut Log) + 'a>,
}

impl<'a> Owner<'a> {
    pub(super) fn new(log: &'a mut Log) -> Owner<'a> {
        Owner {
            log: RefCell::new(log),
            turns: Cell::new(0),
            before_turn: Box::new(|_, _| {}),
        }
    }
}

impl LogAccess for Owner<'_> {
    fn with_log<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Log) -> R + Send + 'static,
    ) -> Option<R> {
        let mut log = self.log.borrow_mut();
        self.turns.set(self.turns.get() + 1);
        (self.before_turn)(self.turns.get(), &mut log);
        Some(work(&mut log))
    }
}

pub(super) struct Unhurried;

impl IoPace for Unhurried {
    fn on_io(&self, _: u64) -> Result<(), CleaningStopped> {
        Ok(())
    }
}

pub(super) fn params(now: Timestamp) -> CleanerParams {
    CleanerParams {
        dedupe_buffer_bytes: 1024 * 1024,
        load_factor: 0.9,
        io_buffer_bytes: 512,
        hash_key: [3, 4],
        now,
    }
}

/// The turns on which the cleaner accesses the log, for one group of segments.
const BEGIN: usize = 2;
const PUBLISH: usize = 3;

impl TestLog {
    fn compacted(change: impl FnOnce(&mut ottla_config::TopicConfig)) -> TestLog {
        TestLog::with_config(|config| {
            config.cleanup_policy = CleanupPolicy {
                delete: false,
                compact: true,
            };
            config.delete_retention_ms = 1000;
            change(config);
        })
    }

    /// Appends one batch of keys and values.
    fn put(&mut self, records: &[(&str, Option<&str>)]) {
        self.put_with(records, |builder| builder);
    }

    fn put_with(
        &mut self,
        records: &[(&str, Option<&str>)],
        change: impl FnOnce(RecordBatchBuilder) -> RecordBatchBuilder,
    ) {
        self.append_batch(keyed(self.end(), records, Compression::None, change));
    }

    fn end(&self) -> Offset {
        self.reader().log_end_offset()
    }

    fn roll(&mut self) {
        let (end, now) = (self.end(), self.now);
        self.log().roll_at(end, now).unwrap();
        self.flush();
    }

    fn end_transaction(&mut self, id: i64, kind: ControlRecordType) {
        let marker = EndTxnMarker {
            coordinator_epoch: 0,
        };
        let mut batch = end_txn_batch(ProducerId(id), ProducerEpoch(0), kind, marker, self.now);
        batch.assign_offset(self.end(), LeaderEpoch(0));
        self.append_batch(batch);
    }

    fn to_clean(&self, last_clean: Option<i64>) -> LogToClean {
        LogToClean::examine(&self.reader(), last_clean.map(Offset), self.now).unwrap()
    }

    /// Cleans all cleanable segments, as if the log had been clean up to `last_clean`.
    fn clean_from(&mut self, last_clean: i64) -> (i64, CleanerStats) {
        let params = params(self.now);
        self.try_clean(last_clean, &params, |_, _| {}).unwrap()
    }

    fn try_clean(
        &mut self,
        last_clean: i64,
        params: &CleanerParams,
        before_turn: impl Fn(usize, &mut Log),
    ) -> Result<(i64, CleanerStats), CleanError> {
        let (reader, to_clean) = (self.reader(), self.to_clean(Some(last_clean)));
        let mut owner = Owner::new(self.log());
        owner.before_turn = Box::new(before_turn);
        let mut unlinks = Vec::new();
        let result = clean(&reader, &to_clean, &owner, &Unhurried, params, |job| {
            unlinks.push(job)
        });
        drop(owner);
        for job in unlinks {
            job.run().unwrap();
        }
        result.map(|(end, stats)| (end.0, stats))
    }

    fn batches(&self) -> Vec<RecordBatch> {
        batches(&self.reader())
    }

    /// Offset, key and value of every record that is not a marker.
    fn records(&self) -> Vec<(i64, String, Option<String>)> {
        records(&self.batches())
    }
}

pub(super) fn keyed(
    base_offset: Offset,
    records: &[(&str, Option<&str>)],
    compression: Compression,
    change: impl FnOnce(RecordBatchBuilder) -> RecordBatchBuilder,
) -> RecordBatch {
    let mut builder = change(
        RecordBatchBuilder::new(compression)
            .base_offset(base_offset)
            .partition_leader_epoch(LeaderEpoch(0)),
    );
    for (index, (key, value)) in records.iter().enumerate() {
        let timestamp = Timestamp(1_000_000 + base_offset.0 + index as i64);
        let header = ottla_records::RecordHeader::new("header", Some("of it".into()));
        let value = value.map(str::as_bytes);
        builder.append(timestamp, Some(key.as_bytes()), value, &[header]);
    }
    builder.build()
}

pub(super) fn batches(reader: &crate::LogReader) -> Vec<RecordBatch> {
    let (mut next, end) = (reader.log_start_offset(), reader.log_end_offset());
    let mut found = Vec::new();
    while next < end {
        let result = reader.read(next, 1 << 20, end, true).unwrap();
        let Some(region) = &result.region else {
            break;
        };
        for batch in RecordBatch::read_all(region.read().unwrap()) {
            let batch = batch.unwrap();
            batch.verify_crc().unwrap();
            next = batch.header.next_offset();
            found.push(batch);
        }
    }
    found
}

pub(super) fn records(batches: &[RecordBatch]) -> Vec<(i64, String, Option<String>)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let of_batch = |batch: &RecordBatch| -> Vec<Record> {
        batch
            .records(1 << 20)
            .unwrap()
            .map(Result::unwrap)
            .collect()
    };
    let data = batches.iter().filter(|batch| !batch.header.is_control());
    data.flat_map(of_batch)
        .map(|record| {
            let value = record.value.as_deref().map(text);
            (record.offset.0, text(&record.key.unwrap()), value)
        })
        .collect()
}

fn kept(records: &[(i64, &str, Option<&str>)]) -> Vec<(i64, String, Option<String>)> {
    records
        .iter()
        .map(|(offset, key, value)| (*offset, (*key).to_owned(), value.map(str::to_owned)))
        .collect()
}

#[test]
fn the_newest_record_of_every_key_stays_unchanged() {
    let mut test = TestLog::compacted(|_| {});
    test.put(&[("a", Some("1")), ("b", Some("2")), ("c", Some("3"))]);
    test.put(&[("a", Some("4"))]);
    test.roll();
    test.put(&[("b", Some("5")), ("d", Some("6"))]);
    test.roll();
    test.put(&[("c", Some("7"))]);
    let before = test.batches();
    let (end, stats) = test.clean_from(0);
    assert_eq!(end, 6);
    // The newest c is in the active segment, which is not read.
    let expected = kept(&[
        (2, "c", Some("3")),
        (3, "a", Some("4")),
        (4, "b", Some("5")),
        (5, "d", Some("6")),
        (6, "c", Some("7")),
    ]);
    assert_eq!(test.records(), expected);
    assert_eq!((stats.records_read, stats.records_written), (6, 4));
    assert_eq!(test.bases(), [0, 6]);
    let after = test.batches();
    assert_eq!(after[1..], before[1..]);
    let first = &after[0].header;
    assert_eq!(
        (first.base_offset, first.last_offset()),
        (Offset(0), Offset(2))
    );
    let old: Vec<_> = before[0]
        .records(1000)
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let new: Vec<_> = after[0]
        .records(1000)
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(new, old[2..]);
    test.reopen();
    assert_eq!(test.records(), expected);
    assert_eq!(test.crash().indexes_rebuilt, 0);
    assert_eq!(test.records(), expected);
}

#[test]
fn tombstones_stay_until_the_horizon_that_the_first_cleaning_sets() {
    let mut test = TestLog::compacted(|_| {});
    test.put(&[("a", Some("1")), ("b", Some("2"))]);
    test.put(&[("a", None), ("c", Some("3"))]);
    test.roll();
    let start = test.now;
    test.clean_from(0);
    let expected = kept(&[(1, "b", Some("2")), (2, "a", None), (3, "c", Some("3"))]);
    assert_eq!(test.records(), expected);
    let horizons = |test: &TestLog| -> Vec<_> {
        let batches = test.batches();
        batches
            .iter()
            .map(|batch| batch.header.delete_horizon())
            .collect()
    };
    let horizon = Some(Timestamp(start.0 + 1000));
    assert_eq!(horizons(&test), [None, horizon]);
    for (after_ms, are_kept) in [(999, true), (1000, false)] {
        test.now = Timestamp(start.0 + after_ms);
        test.clean_from(0);
        assert_eq!(test.records() == expected, are_kept, "{after_ms}");
        // The horizon is kept, and other records of the batch do not change it.
        assert_eq!(horizons(&test), [None, horizon]);
    }
    assert_eq!(
        test.records(),
        kept(&[(1, "b", Some("2")), (3, "c", Some("3"))])
    );
}

#[test]
fn aborted_records_go_at_once_and_their_marker_when_none_is_left() {
    let mut test = TestLog::compacted(|_| {});
    let of = |id, sequence| {
        move |builder: RecordBatchBuilder| {
            builder
                .producer(ProducerId(id), ProducerEpoch(0), Sequence(sequence))
                .transactional(true)
        }
    };
    test.put(&[("a", Some("1"))]);
    test.put_with(&[("a", Some("2"))], of(5, 0));
    test.roll();
    test.put_with(&[("b", Some("3"))], of(6, 0));
    test.end_transaction(5, ControlRecordType::Abort);
    test.end_transaction(6, ControlRecordType::Commit);
    test.roll();
    // Both producers write again, so that they are not the reason why batches are kept.
    test.put_with(&[("x", Some("4"))], of(5, 1));
    test.put_with(&[("y", Some("5"))], of(6, 1));
    test.end_transaction(5, ControlRecordType::Commit);
    test.end_transaction(6, ControlRecordType::Commit);
    test.roll();
    let aborted = |test: &TestLog| {
        test.reader()
            .aborted_transactions(Offset(0), test.end())
            .unwrap()
    };
    assert_eq!(aborted(&test).len(), 1);
    let expected = kept(&[
        (0, "a", Some("1")),
        (2, "b", Some("3")),
        (5, "x", Some("4")),
        (6, "y", Some("5")),
    ]);
    let controls = |test: &TestLog| -> Vec<i64> {
        let batches = test.batches();
        let controls = batches.iter().filter(|batch| batch.header.is_control());
        controls.map(|batch| batch.header.base_offset.0).collect()
    };
    test.clean_from(0);
    assert_eq!(test.records(), expected);
    // The aborted transaction's batch still existed when this cleaning reached the marker.
    assert_eq!(controls(&test), [3, 4, 7, 8]);
    assert_eq!(aborted(&test).len(), 1);
    // The next cleaning finds none and sets the horizon.
    test.clean_from(0);
    assert_eq!(controls(&test), [3, 4, 7, 8]);
    assert_eq!(aborted(&test).len(), 0);
    test.now = Timestamp(test.now.0 + 1000);
    test.clean_from(0);
    assert_eq!(controls(&test), [4, 7, 8]);
    assert_eq!(test.records(), expected);
    test.reopen();
    assert_eq!(test.records(), expected);
}

#[test]
fn open_transactions_bound_the_cleanable_section() {
    let mut test = TestLog::compacted(|_| {});
    test.put(&[("a", Some("1"))]);
    test.roll();
    test.put(&[("a", Some("2"))]);
    let transactional = |builder: RecordBatchBuilder| {
        let builder = builder.producer(ProducerId(5), ProducerEpoch(0), Sequence(0));
        builder.transactional(true)
    };
    test.put_with(&[("b", Some("3"))], transactional);
    test.roll();
    assert_eq!(test.to_clean(None).first_uncleanable_offset, Offset(1));
    test.end_transaction(5, ControlRecordType::Commit);
    assert_eq!(test.to_clean(None).first_uncleanable_offset, Offset(3));
}

#[test]
fn the_last_batches_of_producers_and_of_the_section_stay_without_records() {
    let mut test = TestLog::compacted(|_| {});
    let of = |id, sequence| {
        move |builder: RecordBatchBuilder| {
            builder.producer(ProducerId(id), ProducerEpoch(0), Sequence(sequence))
        }
    };
    test.put_with(&[("a", Some("1"))], of(5, 0));
    test.put_with(&[("a", Some("2")), ("b", Some("2"))], of(5, 1));
    test.put(&[("a", Some("3")), ("b", Some("3"))]);
    test.roll();
    test.put(&[("a", Some("4")), ("b", Some("4"))]);
    test.put(&[("b", Some("5"))]);
    test.roll();
    test.put(&[("a", None)]);
    test.put(&[("b", None)]);
    test.roll();
    test.clean_from(0);
    let heads = |test: &TestLog| -> Vec<_> {
        let batches = test.batches();
        let head = |batch: &RecordBatch| {
            let header = &batch.header;
            (
                header.base_offset.0,
                header.last_offset().0,
                header.record_count,
            )
        };
        batches.iter().map(head).collect()
    };
    assert_eq!(heads(&test), [(1, 2, 0), (8, 8, 1), (9, 9, 1)]);
    let first = test.batches()[0].header;
    assert_eq!(
        (first.base_sequence, first.last_sequence()),
        (Sequence(1), Sequence(2))
    );
    // The producer state is unchanged, also when rebuilt from the log.
    for name in test
        .files()
        .iter()
        .filter(|name| name.ends_with(".snapshot"))
    {
        std::fs::remove_file(test.path().join(name)).unwrap();
    }
    test.crash();
    let producer = test
        .log()
        .producers()
        .producer(ProducerId(5))
        .cloned()
        .unwrap();
    assert_eq!(producer.last_sequence(), Sequence(2));
    let end = test.end();
    test.log().set_high_watermark(end);
    // After the tombstones are gone, the last batch of the section stays.
    test.now = Timestamp(test.now.0 + 2000);
    test.clean_from(0);
    assert_eq!(heads(&test), [(1, 2, 0), (9, 9, 0)]);
    assert_eq!(test.end(), Offset(10));
    // With more dirty records it is no longer the last, and the producer has expired.
    test.put(&[("c", Some("6"))]);
    test.roll();
    test.log().remove_expired_producers(Timestamp(i64::MAX));
    test.clean_from(10);
    assert_eq!(heads(&test), [(10, 10, 1)]);
    assert_eq!(test.bases(), [0, 11]);
}

#[test]
fn compressed_batches_keep_their_codec() {
    for codec in CompressionType::ALL {
        let mut test = TestLog::compacted(|_| {});
        let value = "long".repeat(500);
        let records = [
            ("a", Some(value.as_str())),
            ("b", Some(&value)),
            ("c", None),
        ];
        let batch = keyed(Offset(0), &records, Compression::from(codec), |builder| {
            builder
        });
        test.append_batch(batch);
        test.put(&[("a", Some("1"))]);
        test.roll();
        test.clean_from(0);
        let expected = kept(&[(1, "b", Some(&value)), (2, "c", None), (3, "a", Some("1"))]);
        assert_eq!(test.records(), expected);
        assert_eq!(test.batches()[0].header.compression_type(), Ok(codec));
    }
}

#[test]
fn timestamps_of_the_broker_stay() {
    let mut test = TestLog::compacted(|_| {});
    let at = |builder: RecordBatchBuilder| builder.log_append_time(Timestamp(77));
    test.put_with(&[("a", Some("1")), ("b", Some("1"))], at);
    test.put(&[("a", Some("2"))]);
    test.roll();
    test.clean_from(0);
    let batch = &test.batches()[0];
    assert_eq!(batch.header.max_timestamp, Timestamp(77));
    let record = batch.records(1000).unwrap().next().unwrap().unwrap();
    assert_eq!(
        (record.offset, record.timestamp),
        (Offset(1), Timestamp(77))
    );
}

#[test]
fn records_without_a_key_go() {
    let mut test = TestLog::compacted(|_| {});
    test.append(3);
    test.put(&[("a", Some("1"))]);
    test.roll();
    let (_, stats) = test.clean_from(0);
    assert_eq!(test.records(), kept(&[(3, "a", Some("1"))]));
    assert_eq!(stats.records_without_key, 3);
}

#[test]
fn records_beyond_a_full_map_wait_for_the_next_cleaning() {
    let mut test = TestLog::compacted(|_| {});
    for n in 0..10 {
        test.put(&[(&format!("key {}", n % 5), Some("x"))]);
        test.put(&[("often", Some("x"))]);
    }
    test.roll();
    let mut small = params(test.now);
    small.dedupe_buffer_bytes = 24 * 5;
    // Four keys: three numbered ones and `often`.
    let (end, _) = test.try_clean(0, &small, |_, _| {}).unwrap();
    assert_eq!(end, 5);
    let offsets = |test: &TestLog| test.records().iter().map(|r| r.0).collect::<Vec<_>>();
    assert_eq!(
        offsets(&test),
        [&[0, 2, 3, 4][..], &Vec::from_iter(5..20)].concat()
    );
    small.dedupe_buffer_bytes = 24 * 100;
    assert_eq!(test.try_clean(end, &small, |_, _| {}).unwrap().0, 20);
    assert_eq!(offsets(&test), [10, 12, 14, 16, 18, 19]);
}

#[test]
fn segments_are_joined_up_to_their_size() {
    let mut test = TestLog::compacted(|config| config.segment_bytes = 1000);
    let value = "x".repeat(300);
    for n in 0..12 {
        test.put(&[(&format!("key {}", n % 6), Some(&value))]);
    }
    test.roll();
    assert_eq!(test.bases(), [0, 2, 4, 6, 8, 10, 12]);
    test.clean_from(0);
    // Groups are formed by the sizes before cleaning.
    assert_eq!(test.bases(), [0, 2, 4, 6, 8, 10, 12]);
    test.clean_from(12);
    assert_eq!(test.bases(), [0, 8, 10, 12]);
    assert_eq!(test.records().len(), 6);
    test.flush();
    test.run_jobs();
    let names: Vec<_> = test
        .files()
        .into_iter()
        .filter(|name| !name.ends_with("checkpoint"))
        .collect();
    let of_segments = |name: &&String| name.ends_with(".log") || name.contains("index");
    assert_eq!(names.iter().filter(of_segments).count(), 4 * 3, "{names:?}");
    // The snapshots of removed segments are gone, the snapshots of replaced segments remain.
    for (base, is_there) in [(2, false), (8, true), (10, true), (12, true)] {
        let name = format!("{base:020}.snapshot");
        assert_eq!(names.contains(&name), is_there, "{names:?}");
    }
    test.reopen();
    assert_eq!(test.records().len(), 6);
}

#[test]
fn compaction_lags_bound_the_section_and_time_of_cleaning() {
    let mut test = TestLog::compacted(|config| {
        config.min_compaction_lag_ms = 100;
        config.max_compaction_lag_ms = 1000;
    });
    // Their timestamps are 1,000,000 and up.
    test.put(&[("a", Some("1"))]);
    test.roll();
    test.put(&[("a", Some("2"))]);
    test.roll();
    let at = |test: &mut TestLog, now| {
        test.now = Timestamp(now);
        let found = test.to_clean(None);
        (found.first_uncleanable_offset.0, found.compaction_delay_ms)
    };
    assert_eq!(at(&mut test, 1_000_099), (0, 0));
    assert_eq!(at(&mut test, 1_000_100), (1, 0));
    assert_eq!(at(&mut test, 1_000_101), (2, 0));
    assert_eq!(at(&mut test, 1_001_000), (2, 0));
    assert_eq!(at(&mut test, 1_001_007), (2, 7));
    let found = test.to_clean(None);
    assert!(found.is_due(1.0), "too old, whatever the ratio");
    let found = test.to_clean(Some(2));
    assert!(!found.is_due(0.0));
}

#[test]
fn the_dirty_ratio_counts_bytes() {
    let mut test = TestLog::compacted(|_| {});
    test.put(&[("a", Some("1"))]);
    test.roll();
    test.put(&[("a", Some("2"))]);
    test.roll();
    let found = test.to_clean(Some(1));
    assert_eq!(found.clean_bytes, found.cleanable_bytes);
    assert!(found.is_due(0.49) && !found.is_due(0.5));
    assert_eq!(test.to_clean(None).cleanable_ratio(), 1.0);
    // Invalid checkpoints.
    let found = test.to_clean(Some(3));
    assert!(found.is_checkpoint_invalid && found.first_dirty_offset == Offset(0));
    test.log().increment_log_start_offset(Offset(1)).unwrap();
    let found = test.to_clean(Some(0));
    assert!(found.is_checkpoint_invalid && found.first_dirty_offset == Offset(1));
    assert!(!test.to_clean(Some(2)).is_checkpoint_invalid);
}

#[test]
fn readers_continue_in_a_replaced_segment() {
    let mut test = TestLog::compacted(|config| config.file_delete_delay_ms = 0);
    test.put(&[("a", Some("1"))]);
    test.put(&[("a", Some("2"))]);
    test.roll();
    let old = test
        .reader()
        .read(Offset(0), 1000, Offset(2), true)
        .unwrap();
    let bytes = old.region.as_ref().unwrap().read().unwrap();
    test.clean_from(0);
    assert_eq!(old.region.unwrap().read().unwrap(), bytes);
    assert_eq!(test.records(), kept(&[(1, "a", Some("2"))]));
}

#[test]
fn a_damaged_batch_makes_the_log_uncleanable_and_changes_nothing() {
    let mut test = TestLog::compacted(|_| {});
    test.put(&[("a", Some("1")), ("b", Some("1"))]);
    test.put(&[("a", Some("2"))]);
    test.roll();
    let path = test.path().join("00000000000000000000.log");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[85] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let before = test.files();
    let params = params(test.now);
    let result = test.try_clean(0, &params, |_, _| {});
    assert!(
        matches!(result, Err(CleanError::Uncleanable(_))),
        "{result:?}"
    );
    assert_eq!(test.files(), before);
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
}

/// The batch itself is not rewritten, but its key decides which records are dropped.
#[test]
fn a_damaged_key_drops_no_other_record() {
    let mut test = TestLog::compacted(|_| {});
    test.put(&[("a", Some("1"))]);
    test.put(&[("b", Some("1"))]);
    test.roll();
    let path = test.path().join("00000000000000000000.log");
    let mut bytes = std::fs::read(&path).unwrap();
    // The key is preceded by its length.
    let key = bytes
        .windows(2)
        .position(|bytes| bytes == [2, b'b'])
        .unwrap()
        + 1;
    bytes[key] = b'a';
    std::fs::write(&path, &bytes).unwrap();
    let params = params(test.now);
    let result = test.try_clean(0, &params, |_, _| {});
    assert!(
        matches!(result, Err(CleanError::Uncleanable(_))),
        "{result:?}"
    );
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
}

/// `max.decompressed.message.bytes` was higher when it was produced.
#[test]
fn a_record_that_is_too_large_makes_the_log_uncleanable() {
    let mut test = TestLog::compacted(|config| config.max_decompressed_message_bytes = 100);
    let large = "long".repeat(50);
    let records = [("a", Some(&*large))];
    let batch = keyed(Offset(0), &records, Compression::Snappy, |builder| builder);
    test.append_batch(batch);
    test.roll();
    let params = params(test.now);
    let result = test.try_clean(0, &params, |_, _| {});
    assert!(matches!(result, Err(CleanError::Uncleanable(_))));
}

/// A message of magic 1, not compressed.
fn legacy_message(offset: i64, key: Option<&str>, value: Option<&str>) -> Vec<u8> {
    let mut content = vec![1, 0];
    content.extend((1_000_000 + offset).to_be_bytes());
    for bytes in [key, value] {
        let len = bytes.map_or(-1, |bytes| bytes.len() as i32);
        content.extend(len.to_be_bytes());
        content.extend(bytes.unwrap_or_default().as_bytes());
    }
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, &content) as u32;
    let mut message = offset.to_be_bytes().to_vec();
    message.extend((content.len() as i32 + 4).to_be_bytes());
    message.extend(crc.to_be_bytes());
    message.extend(content);
    message
}

#[test]
fn remaining_old_messages_are_written_in_the_current_format() {
    let mut test = TestLog::compacted(|_| {});
    test.close();
    let messages = [
        legacy_message(0, Some("a"), Some("1")),
        legacy_message(1, Some("b"), Some("1")),
        legacy_message(2, None, Some("1")),
        legacy_message(3, Some("a"), Some("2")),
        legacy_message(4, Some("c"), None),
    ];
    let path = test.path().join("00000000000000000000.log");
    std::fs::write(&path, messages.concat()).unwrap();
    let report = test.open(0, false);
    assert_eq!(report.bytes_truncated, 0);
    let (end, now) = (test.end(), test.now);
    assert_eq!(end, Offset(5));
    test.log().set_high_watermark(end);
    test.log().roll_at(end, now).unwrap();
    test.flush();
    assert_eq!(test.clean_from(0).0, 5);
    let expected = [(1, "b", Some("1")), (3, "a", Some("2")), (4, "c", None)];
    assert_eq!(test.records(), kept(&expected));
    for batch in test.batches() {
        let record = batch.records(1000).unwrap().next().unwrap().unwrap();
        let expected = Timestamp(1_000_000 + batch.header.base_offset.0);
        assert_eq!(record.timestamp, expected);
    }
    // From here on the tombstone has a delete horizon like any other.
    test.now = Timestamp(test.now.0 + 2000);
    test.clean_from(0);
    assert_eq!(test.records(), kept(&expected[..2]));
}

/// A log with two sealed segments of the same key.
fn two_segments() -> TestLog {
    let mut test = TestLog::compacted(|config| config.retention_ms = 1);
    test.put(&[("a", Some("1"))]);
    test.roll();
    test.put(&[("a", Some("2"))]);
    test.roll();
    test.put(&[("b", Some("3"))]);
    test
}

/// A disk with this many free bytes.
struct Room(Cell<u64>);

impl IoPace for Room {
    fn on_io(&self, _: u64) -> Result<(), CleaningStopped> {
        Ok(())
    }

    fn on_write(&self, bytes: u64) -> Result<(), CleaningStopped> {
        let left = self.0.get().checked_sub(bytes).ok_or(CleaningStopped)?;
        self.0.set(left);
        Ok(())
    }
}

#[test]
fn a_cleaning_without_space_ends_and_leaves_no_files() {
    let mut test = two_segments();
    let before = test.files();
    let (reader, to_clean) = (test.reader(), test.to_clean(Some(0)));
    let params = params(test.now);
    let owner = Owner::new(test.log());
    let result = clean(
        &reader,
        &to_clean,
        &owner,
        &Room(Cell::new(10)),
        &params,
        |_| {},
    );
    assert!(matches!(result, Err(CleanError::Stopped)), "{result:?}");
    drop(owner);
    assert_eq!(test.files(), before);
}

#[test]
fn a_mapping_that_begins_after_a_marker_takes_no_later_record_for_aborted() {
    let mut test = TestLog::compacted(|config| config.index_interval_bytes = 1);
    let of = |sequence| {
        move |builder: RecordBatchBuilder| {
            let builder = builder.producer(ProducerId(5), ProducerEpoch(0), Sequence(sequence));
            builder.transactional(true)
        }
    };
    test.put_with(&[("a", Some("1"))], of(0));
    test.end_transaction(5, ControlRecordType::Abort);
    test.put(&[("b", Some("2"))]);
    test.put(&[("a", Some("3"))]);
    test.put_with(&[("a", Some("4"))], of(1));
    test.end_transaction(5, ControlRecordType::Commit);
    test.roll();
    test.clean_from(3);
    assert_eq!(
        test.records(),
        kept(&[(2, "b", Some("2")), (4, "a", Some("4"))])
    );
}
