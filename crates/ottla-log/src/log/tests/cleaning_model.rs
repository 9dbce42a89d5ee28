//! Random logs, cleaned repeatedly, against a model of every appended record; and a crash at every
//! file change of a cleaning.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use ottla_config::{CleanupPolicy, TopicConfig};
use ottla_records::control::{ControlRecordType, EndTxnMarker, end_txn_batch};
use ottla_records::{Compression, CompressionType};
use ottla_types::{
    LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp, TopicPartition,
};
use proptest::prelude::*;

use super::cleaning::{Owner, Unhurried, batches, keyed, params};
use crate::disk::trace::{self, Loss};
use crate::{Log, LogReader, LogToClean, OpenParams, clean};

const DELETE_RETENTION_MS: i64 = 100;

#[derive(Clone, Debug)]
enum Op {
    /// Records of these keys in one batch; a value of 0 is a tombstone.
    Append {
        records: Vec<(u8, u8)>,
        codec: u8,
        producer: Option<u8>,
    },
    EndTransactions {
        abort: bool,
    },
    Roll,
    Clean {
        map_entries: u8,
        with_crashes: bool,
    },
    Wait(u8),
    Restart,
    Crash,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let records = prop::collection::vec((0..6u8, 0..4u8), 1..4);
    let op = prop_oneof![
        6 => (records, 0..5u8, prop::option::of(0..4u8))
            .prop_map(|(records, codec, producer)| Op::Append { records, codec, producer }),
        2 => any::<bool>().prop_map(|abort| Op::EndTransactions { abort }),
        3 => Just(Op::Roll),
        2 => (2..40u8, 0..8u8).prop_map(|(map_entries, dice)| Op::Clean {
            map_entries,
            with_crashes: dice == 0,
        }),
        1 => (0..150u8).prop_map(Op::Wait),
        1 => Just(Op::Restart),
        1 => Just(Op::Crash),
    ];
    prop::collection::vec(op, 1..50)
}

/// A record that was appended.
#[derive(Clone, Debug)]
struct Appended {
    key: String,
    value: Option<String>,
    producer: Option<u8>,
    /// `None` while its transaction is open.
    is_committed: Option<bool>,
    /// The delete horizon set by the first cleaning.
    horizon: Option<i64>,
}

struct Model {
    dir: tempfile::TempDir,
    config: Arc<TopicConfig>,
    now: Timestamp,
    log: Option<Log>,
    /// By offset.
    history: HashMap<i64, Appended>,
    sequences: HashMap<u8, i32>,
    last_clean: i64,
    /// The log is clean below this offset.
    cleaned_to: i64,
}

/// A directory in memory, if there is one.
fn test_dir() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    match memory.is_dir() {
        true => tempfile::tempdir_in(memory).unwrap(),
        false => tempfile::tempdir().unwrap(),
    }
}

fn open(
    dir: &Path,
    config: &Arc<TopicConfig>,
    recovery_point: i64,
    clean: bool,
    now: Timestamp,
) -> Log {
    let params = OpenParams {
        dir: dir.to_owned(),
        topic_partition: TopicPartition::new("topic", 0),
        config: config.clone(),
        recovery_point: Offset(recovery_point),
        log_start_offset: Offset(0),
        clean_shutdown: clean,
        now,
        producer_id_expiration_ms: 86_400_000,
        random_seed: 7,
        handles: crate::Handles::unlimited(),
        checkpoint_marks: Arc::default(),
    };
    let (mut log, _) = Log::open(params).unwrap();
    let end = log.log_end_offset();
    log.set_high_watermark(end);
    log
}

/// Producers from 2 on are transactional.
fn is_transactional(producer: Option<u8>) -> bool {
    producer.is_some_and(|producer| producer >= 2)
}

impl Model {
    fn new() -> Model {
        let config = Arc::new(TopicConfig {
            cleanup_policy: CleanupPolicy {
                delete: false,
                compact: true,
            },
            delete_retention_ms: DELETE_RETENTION_MS,
            segment_bytes: 1500,
            index_interval_bytes: 200,
            ..TopicConfig::default()
        });
        let dir = test_dir();
        let now = Timestamp(1_000_000);
        let log = open(dir.path(), &config, 0, true, now);
        Model {
            dir,
            config,
            now,
            log: Some(log),
            history: HashMap::new(),
            sequences: HashMap::new(),
            last_clean: 0,
            cleaned_to: 0,
        }
    }

    fn log(&mut self) -> &mut Log {
        self.log.as_mut().unwrap()
    }

    fn reader(&self) -> LogReader {
        self.log.as_ref().unwrap().reader()
    }

    fn end(&self) -> Offset {
        self.reader().log_end_offset()
    }

    fn append_batch(&mut self, batch: ottla_records::RecordBatch) {
        let now = self.now;
        self.log().append(&[batch], now).unwrap();
        let end = self.end();
        self.log().set_high_watermark(end);
    }

    fn append(&mut self, records: &[(u8, u8)], codec: u8, producer: Option<u8>) {
        let base = self.end();
        let texts: Vec<_> = records
            .iter()
            .enumerate()
            .map(|(index, (key, value))| {
                let value = format!("{value} at {}", base.0 + index as i64);
                (
                    format!("key {key}"),
                    Some(value).filter(|value| !value.starts_with('0')),
                )
            })
            .collect();
        let borrowed: Vec<_> = texts
            .iter()
            .map(|(k, v)| (k.as_str(), v.as_deref()))
            .collect();
        let codec = Compression::from(CompressionType::from_id(codec).unwrap());
        let sequence = producer.map(|producer| {
            let next = self.sequences.entry(producer).or_default();
            let sequence = *next;
            *next += records.len() as i32;
            sequence
        });
        let batch = keyed(base, &borrowed, codec, |builder| {
            match (producer, sequence) {
                (Some(producer), Some(sequence)) => builder
                    .producer(
                        ProducerId(producer.into()),
                        ProducerEpoch(0),
                        Sequence(sequence),
                    )
                    .transactional(is_transactional(Some(producer))),
                _ => builder,
            }
        });
        self.append_batch(batch);
        for (index, (key, value)) in texts.into_iter().enumerate() {
            let appended = Appended {
                key,
                value,
                producer,
                is_committed: (!is_transactional(producer)).then_some(true),
                horizon: None,
            };
            self.history.insert(base.0 + index as i64, appended);
        }
    }

    fn end_transactions(&mut self, abort: bool) {
        for producer in 2..4u8 {
            let is_open = |record: &&mut Appended| {
                record.producer == Some(producer) && record.is_committed.is_none()
            };
            let open: Vec<_> = self.history.values_mut().filter(is_open).collect();
            if open.is_empty() {
                continue;
            }
            open.into_iter()
                .for_each(|record| record.is_committed = Some(!abort));
            let kind = match abort {
                true => ControlRecordType::Abort,
                false => ControlRecordType::Commit,
            };
            let marker = EndTxnMarker {
                coordinator_epoch: 0,
            };
            let (id, now) = (ProducerId(producer.into()), self.now);
            let mut batch = end_txn_batch(id, ProducerEpoch(0), kind, marker, now);
            batch.assign_offset(self.end(), LeaderEpoch(0));
            self.append_batch(batch);
        }
    }

    fn roll(&mut self) {
        let (end, now) = (self.end(), self.now);
        self.log().roll_at(end, now).unwrap();
    }

    fn reopen(&mut self, is_crash: bool) {
        let reader = self.reader();
        let log = self.log.take().unwrap();
        match is_crash {
            true => drop(log),
            false => drop(log.close().unwrap()),
        }
        let log = open(
            self.dir.path(),
            &self.config,
            reader.recovery_point().0,
            !is_crash,
            self.now,
        );
        self.log = Some(log);
    }

    /// Cleans; with crashes, checks the recovery from a crash at every file change.
    fn clean(&mut self, map_entries: u8, with_crashes: bool) {
        let to_clean =
            LogToClean::examine(&self.reader(), Some(Offset(self.last_clean)), self.now).unwrap();
        if to_clean.cleanable_bytes == 0 {
            return;
        }
        let mut params = params(self.now);
        params.dedupe_buffer_bytes = 24 * u64::from(map_entries);
        let reader = self.reader();
        let uncleanable = to_clean.first_uncleanable_offset;
        let before = batches(&reader);
        let unlinks = RefCell::new(Vec::new());
        let owner = Owner::new(self.log.as_mut().unwrap());
        trace::start(self.dir.path());
        let keep = |job| unlinks.borrow_mut().push(job);
        let result = clean(&reader, &to_clean, &owner, &Unhurried, &params, keep);
        let trace = trace::stop();
        drop(owner);
        let (end, _) = result.unwrap();
        assert!(end.0 > self.last_clean, "a cleaning makes progress");
        let after = batches(&reader);
        for old in before
            .iter()
            .filter(|batch| batch.header.base_offset >= uncleanable)
        {
            assert!(after.contains(old), "nothing after the section changes");
        }
        // A crash that leaves the same files has the same recovery.
        let mut checked = HashSet::new();
        let crashes = if with_crashes { trace.len() + 1 } else { 0 };
        for count in 0..crashes {
            let disk = trace.disk_after(count);
            for loss in [Loss::Nothing, Loss::Everything] {
                let image = disk.crash(loss);
                if !checked.contains(&image) {
                    self.check_crash(&image, self.cleaned_to.min(end.0));
                    checked.insert(image);
                }
            }
        }
        let horizon = self.now.0 + DELETE_RETENTION_MS;
        // Everything below in the cleaned segments was examined.
        for (offset, record) in &mut self.history {
            if *offset < uncleanable.0 && record.value.is_none() {
                record.horizon.get_or_insert(horizon);
            }
        }
        self.last_clean = end.0;
        self.cleaned_to = self.cleaned_to.max(end.0);
        self.check(&reader, self.cleaned_to);
        for job in unlinks.into_inner() {
            job.run().unwrap();
        }
    }

    /// Checks the recovery from the files that a crash left. There are no producer snapshots: the
    /// producer state is rebuilt from the remaining records.
    fn check_crash(&self, image: &trace::Image, cleaned_to: i64) {
        let dir = test_dir();
        for (path, bytes) in image {
            let name = path.file_name().unwrap();
            if !name.to_str().unwrap().ends_with(".snapshot") {
                std::fs::write(dir.path().join(name), bytes).unwrap();
            }
        }
        // The trace does not execute fsyncs.
        trace::start(dir.path());
        let log = open(dir.path(), &self.config, 0, false, self.now);
        trace::stop();
        assert_eq!(log.log_end_offset(), self.end());
        self.check(&log.reader(), cleaned_to);
        self.check_producers(&log);
    }

    /// The invariants of a log that was cleaned up to `cleaned_to`.
    fn check(&self, reader: &LogReader, cleaned_to: i64) {
        let aborted = reader
            .aborted_transactions(Offset(0), reader.log_end_offset())
            .unwrap();
        let mut found = HashMap::new();
        let mut next = 0;
        for batch in batches(reader) {
            let header = &batch.header;
            assert!(header.base_offset.0 >= next, "batches are in order");
            next = header.next_offset().0;
            if header.is_control() {
                continue;
            }
            for record in batch.records(1 << 20).unwrap() {
                let record = record.unwrap();
                let offset = record.offset.0;
                let appended = &self.history[&offset];
                assert_eq!(record.key.as_deref(), Some(appended.key.as_bytes()));
                let value = appended.value.as_deref().map(str::as_bytes);
                assert_eq!(record.value.as_deref(), value);
                assert_eq!(record.timestamp, Timestamp(1_000_000 + offset));
                assert_eq!(record.headers.len(), 1);
                if appended.is_committed == Some(false) {
                    let covers = aborted.iter().any(|txn| {
                        txn.producer_id == header.producer_id
                            && (txn.first_offset.0..=txn.last_offset.0).contains(&offset)
                    });
                    assert!(covers, "{offset} is known to be aborted");
                }
                found.insert(offset, appended);
            }
        }
        self.check_newest(&found, cleaned_to);
    }

    fn check_newest(&self, found: &HashMap<i64, &Appended>, cleaned_to: i64) {
        let mut offsets: Vec<_> = self.history.keys().copied().collect();
        offsets.sort_unstable();
        let mut newest: HashMap<&str, i64> = HashMap::new();
        let mut newest_cleaned: HashMap<&str, i64> = HashMap::new();
        for offset in offsets.iter().copied() {
            let record = &self.history[&offset];
            if record.is_committed == Some(true) {
                newest.insert(&record.key, offset);
                if offset < cleaned_to {
                    newest_cleaned.insert(&record.key, offset);
                }
            }
        }
        for (key, offset) in &newest {
            let record = &self.history[offset];
            let may_be_gone = record.horizon.is_some_and(|horizon| self.now.0 >= horizon);
            assert!(
                found.contains_key(offset) || may_be_gone,
                "the newest of {key}, {offset}"
            );
        }
        for offset in found.keys().filter(|offset| **offset < cleaned_to) {
            let record = &self.history[offset];
            let newest = newest_cleaned.get(record.key.as_str());
            assert_eq!(
                newest,
                Some(offset),
                "an old record of {} is gone",
                record.key
            );
        }
    }

    fn check_producers(&self, log: &Log) {
        for (producer, next) in &self.sequences {
            let entry = log
                .producers()
                .producer(ProducerId((*producer).into()))
                .unwrap();
            assert_eq!(
                entry.last_sequence(),
                Sequence(next - 1),
                "producer {producer}"
            );
        }
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Append {
                records,
                codec,
                producer,
            } => self.append(&records, codec, producer),
            Op::EndTransactions { abort } => self.end_transactions(abort),
            Op::Roll => self.roll(),
            Op::Clean {
                map_entries,
                with_crashes,
            } => self.clean(map_entries, with_crashes),
            Op::Wait(ms) => self.now.0 += i64::from(ms),
            Op::Restart => self.reopen(false),
            Op::Crash => self.reopen(true),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_cleaned_log_equals_the_model(ops in ops()) {
        let mut model = Model::new();
        for op in ops {
            model.apply(op);
        }
        model.roll();
        model.append(&[(0, 1)], 0, None);
        model.end_transactions(false);
        model.clean(39, true);
        model.reopen(true);
        model.check(&model.reader(), model.cleaned_to);
        model.check_producers(model.log.as_ref().unwrap());
    }
}
