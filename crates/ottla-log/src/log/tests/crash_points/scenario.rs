//! A scenario: operations on a log, with every disk change recorded.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ottla_config::TopicConfig;
use ottla_records::control::{ControlRecordType, EndTxnMarker, end_txn_batch};
use ottla_records::{Compression, RecordBatch, RecordBatchBuilder};
use ottla_types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Timestamp, TopicPartition};

use super::super::build;
use super::super::cleaning::{Owner, Unhurried, batches, params};
use crate::checkpoint::{LOG_START_OFFSET_CHECKPOINT, OffsetCheckpoint, RECOVERY_POINT_CHECKPOINT};
use crate::disk::trace::{self, Image, Trace};
use crate::{Job, JobOutcome, Log, LogToClean, OpenParams, RecoveryReport, clean};

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Step {
    /// Appends this many batches at once.
    Append(usize),
    /// Appends this many batches of one record each at once, with few keys and some tombstones.
    Put(usize),
    /// Cleans all segments but the active one.
    Compact,
    /// A batch of a producer with sequence numbers.
    Idempotent(i64),
    /// A batch of a transaction.
    Transactional(i64),
    /// The end of a transaction; whether it is aborted.
    EndTransaction(i64, bool),
    /// A new leader, from the next append on.
    Elect,
    Flush,
    RunJobs,
    /// Takes jobs and runs them two steps later.
    DelayJobs,
    /// Writes the checkpoints of the log directory.
    Checkpoint,
    /// To this many thousandths of the log.
    Truncate(i64),
    /// To restart this many records after the end.
    TruncateFully(i64),
    DeleteRecords(i64),
    DeleteSegments,
    Close,
    Kill,
}

use Step::*;

/// A log directory with one partition in it.
pub(super) struct Site {
    pub(super) root: tempfile::TempDir,
    pub(super) config: Arc<TopicConfig>,
}

fn partition() -> TopicPartition {
    TopicPartition::new("topic", 0)
}

impl Site {
    pub(super) fn new(config: Arc<TopicConfig>) -> Site {
        // In memory if possible; fsyncs are not executed anyway.
        let memory = Path::new("/dev/shm");
        let root = match memory.is_dir() {
            true => tempfile::tempdir_in(memory),
            false => tempfile::tempdir(),
        };
        let site = Site {
            root: root.unwrap(),
            config,
        };
        std::fs::create_dir(site.dir()).unwrap();
        site
    }

    fn dir(&self) -> PathBuf {
        self.root.path().join("topic-0")
    }

    fn checkpointed(&self, file: &str) -> Offset {
        let checkpoint = OffsetCheckpoint::read(&self.root.path().join(file)).unwrap();
        let offset = checkpoint.offsets.get(&partition());
        offset.copied().unwrap_or_default()
    }

    pub(super) fn checkpoint(&self, file: &str, offset: Offset) {
        let offsets = [(partition(), offset)].into_iter().collect();
        let path = self.root.path().join(file);
        OffsetCheckpoint { offsets }.write(&path).unwrap();
    }

    /// Opens the directory like a start that knows only the disk.
    pub(super) fn open(&self, clean_shutdown: bool) -> (Log, RecoveryReport) {
        let params = OpenParams {
            dir: self.dir(),
            topic_partition: partition(),
            config: self.config.clone(),
            recovery_point: self.checkpointed(RECOVERY_POINT_CHECKPOINT),
            log_start_offset: self.checkpointed(LOG_START_OFFSET_CHECKPOINT),
            clean_shutdown,
            now: Timestamp(1_000_000),
            producer_id_expiration_ms: 86_400_000,
            random_seed: 7,
            handles: crate::Handles::unlimited(),
            checkpoint_marks: Arc::default(),
        };
        let (mut log, report) = Log::open(params).expect("the log opens after a crash");
        let end = log.log_end_offset();
        log.set_high_watermark(end);
        (log, report)
    }

    /// Makes the directory hold exactly `image`, whose paths begin with `prefix`.
    pub(super) fn fill(&self, image: &Image, prefix: &Path) {
        std::fs::remove_dir_all(self.dir()).unwrap();
        std::fs::create_dir(self.dir()).unwrap();
        for file in [RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT] {
            for name in [file.to_owned(), format!("{file}.tmp")] {
                let _ = std::fs::remove_file(self.root.path().join(name));
            }
        }
        for (path, bytes) in image {
            let name = path.strip_prefix(prefix).unwrap();
            std::fs::write(self.root.path().join(name), bytes).unwrap();
        }
    }
}

/// A running scenario.
pub(super) struct Scenario {
    site: Site,
    log: Option<Log>,
    /// The batches in the log.
    batches: Vec<RecordBatch>,
    start: Offset,
    epoch: i32,
    delayed: Vec<Vec<Job>>,
    history: History,
}

/// The record of a scenario.
#[derive(Default)]
pub(super) struct History {
    /// Every batch ever written, by first offset.
    pub(super) written: HashMap<Offset, Vec<RecordBatch>>,
    /// For each step, the number of changes after it and what must be there from then on.
    pub(super) done: Vec<(usize, Expected)>,
}

#[derive(Clone, Default)]
pub(super) struct Expected {
    pub(super) forced: Vec<RecordBatch>,
    pub(super) start: Offset,
}

impl Scenario {
    pub(super) fn run(config: TopicConfig, steps: &[Step]) -> (Site, Trace, History) {
        let site = Site::new(Arc::new(config));
        trace::start(site.root.path());
        let (log, _) = site.open(true);
        let mut scenario = Scenario {
            site,
            log: Some(log),
            batches: Vec::new(),
            start: Offset::ZERO,
            epoch: 0,
            delayed: Vec::new(),
            history: History::default(),
        };
        scenario.note();
        for step in steps {
            scenario.step(*step);
            scenario.note();
        }
        scenario.log = None;
        let trace = trace::stop();
        (scenario.site, trace, scenario.history)
    }

    fn log(&mut self) -> &mut Log {
        self.log.as_mut().unwrap()
    }

    fn end(&mut self) -> Offset {
        self.log().log_end_offset()
    }

    /// Records what must survive from now on.
    fn note(&mut self) {
        let recovery_point = self.log().reader().recovery_point();
        let is_forced = |batch: &&RecordBatch| {
            batch.header.last_offset() < recovery_point && batch.header.last_offset() >= self.start
        };
        let expected = Expected {
            forced: self.batches.iter().filter(is_forced).cloned().collect(),
            start: self.start,
        };
        self.history.done.push((trace::len(), expected));
    }

    fn step(&mut self, step: Step) {
        let now = Timestamp(1_000_000);
        match step {
            Append(count) => {
                let mut next = self.end().0;
                let mut batches = Vec::new();
                for number in 0..count {
                    let epoch = LeaderEpoch(self.epoch);
                    let records = 1 + (number as i32 % 3);
                    let batch = build(next, records, 1_000_000 + next, |builder| {
                        builder.partition_leader_epoch(epoch)
                    });
                    next = batch.header.next_offset().0;
                    batches.push(batch);
                }
                self.append(batches);
            }
            Put(count) => {
                let end = self.end().0;
                let batches = (end..).take(count).map(|offset| {
                    let key = format!("key {}", offset * 7 % 11);
                    let value = Some(format!("value {offset:012}")).filter(|_| offset % 5 != 0);
                    let mut builder = RecordBatchBuilder::new(Compression::None)
                        .base_offset(Offset(offset))
                        .partition_leader_epoch(LeaderEpoch(self.epoch));
                    let value = value.as_deref().map(str::as_bytes);
                    let time = Timestamp(1_000_000 + offset);
                    builder.append(time, Some(key.as_bytes()), value, &[]);
                    builder.build()
                });
                let batches = batches.collect();
                self.append(batches);
            }
            Compact => self.compact(now),
            Idempotent(id) => self.append_of_producer(id, false),
            Transactional(id) => self.append_of_producer(id, true),
            EndTransaction(id, is_aborted) => {
                let kind = match is_aborted {
                    true => ControlRecordType::Abort,
                    false => ControlRecordType::Commit,
                };
                let marker = EndTxnMarker {
                    coordinator_epoch: 1,
                };
                let end = self.end();
                let time = Timestamp(1_000_000 + end.0);
                let mut batch = end_txn_batch(ProducerId(id), ProducerEpoch(0), kind, marker, time);
                batch.assign_offset(end, LeaderEpoch(self.epoch));
                self.append(vec![batch]);
            }
            Elect => {
                self.epoch += 1;
                let (epoch, end) = (LeaderEpoch(self.epoch), self.end());
                self.log().assign_leader_epoch(epoch, end);
            }
            Flush => {
                if let Some(job) = self.log().flush_job() {
                    job.run().unwrap();
                }
            }
            RunJobs => {
                let jobs = self.log().take_jobs();
                self.run_jobs(jobs);
                for jobs in std::mem::take(&mut self.delayed) {
                    self.run_jobs(jobs);
                }
            }
            DelayJobs => {
                let jobs = self.log().take_jobs();
                self.delayed.push(jobs);
            }
            Checkpoint => self.checkpoint(),
            Truncate(permille) => {
                let target = self.boundary(permille).max(self.start);
                self.batches
                    .retain(|batch| batch.header.base_offset < target);
                // Like the product: a recovery point that is too high would vouch for records
                // written later.
                if target < self.end() {
                    self.log().announce_truncation(target);
                    self.checkpoint();
                }
                self.log().truncate_to(target, now).unwrap();
            }
            TruncateFully(behind) => {
                let offset = self.end().plus(behind);
                self.log().announce_truncation(offset);
                self.checkpoint();
                self.log()
                    .truncate_fully_and_start_at(offset, None, now)
                    .unwrap();
                self.batches.clear();
                self.start = offset;
                self.log().set_high_watermark(offset);
                self.checkpoint();
            }
            DeleteRecords(permille) => {
                let offset = self.boundary(permille);
                self.log().increment_log_start_offset(offset).unwrap();
                self.start = self.start.max(offset);
            }
            DeleteSegments => {
                self.log().delete_old_segments(now).unwrap();
            }
            Close => {
                self.delayed.clear();
                let reader = self.log().reader();
                self.log.take().unwrap().close().unwrap();
                let (recovery_point, start) = (reader.recovery_point(), reader.log_start_offset());
                self.site.checkpoint(LOG_START_OFFSET_CHECKPOINT, start);
                self.site
                    .checkpoint(RECOVERY_POINT_CHECKPOINT, recovery_point);
                let (log, report) = self.site.open(true);
                assert_eq!(report, RecoveryReport::default());
                self.log = Some(log);
            }
            Kill => {
                self.delayed.clear();
                self.log = None;
                let (mut log, report) = self.site.open(false);
                assert_eq!(report.bytes_truncated, 0);
                // It leads, and keeps the gaps of the cleaner.
                log.keep_gaps();
                self.log = Some(log);
            }
        }
        self.start = self.start.max(self.log().log_start_offset());
    }

    /// Batches that the cleaner writes count as written; those it drops need not survive.
    fn compact(&mut self, now: Timestamp) {
        let reader = self.log().reader();
        let to_clean = LogToClean::examine(&reader, None, now).unwrap();
        let owner = Owner::new(self.log());
        let mut unlinks = Vec::new();
        let cleaned = clean(
            &reader,
            &to_clean,
            &owner,
            &Unhurried,
            &params(now),
            |job| {
                unlinks.push(job);
            },
        );
        cleaned.unwrap();
        drop(owner);
        for job in unlinks {
            job.run().unwrap();
        }
        self.batches = batches(&reader);
        for batch in &self.batches {
            let written = self.history.written.entry(batch.header.base_offset);
            let written = written.or_default();
            if !written.contains(batch) {
                written.push(batch.clone());
            }
        }
    }

    fn checkpoint(&mut self) {
        let reader = self.log().reader();
        let (recovery_point, start) = (reader.recovery_point(), reader.log_start_offset());
        // The log start offset first: it raises the recovery point over hidden records that may not
        // be fsynced.
        self.site.checkpoint(LOG_START_OFFSET_CHECKPOINT, start);
        self.site
            .checkpoint(RECOVERY_POINT_CHECKPOINT, recovery_point);
    }

    fn run_jobs(&mut self, jobs: Vec<Job>) {
        for job in jobs {
            match job.run().unwrap() {
                JobOutcome::Unlink(job) => job.run().unwrap(),
                outcome => self.log().on_job_done(outcome),
            }
        }
    }

    fn append_of_producer(&mut self, id: i64, is_transactional: bool) {
        let (end, epoch) = (self.end().0, LeaderEpoch(self.epoch));
        let id = ProducerId(id);
        let last = self.log().producers().producer(id);
        let sequence = last.map_or(0, |entry| entry.last_sequence().plus(1).0);
        let batch = build(end, 2, 1_000_000 + end, |builder| {
            builder
                .partition_leader_epoch(epoch)
                .producer(id, ProducerEpoch(0), sequence.into())
                .transactional(is_transactional)
        });
        self.append(vec![batch]);
    }

    fn append(&mut self, batches: Vec<RecordBatch>) {
        for batch in &batches {
            let written = self.history.written.entry(batch.header.base_offset);
            written.or_default().push(batch.clone());
        }
        self.log().append(&batches, Timestamp(1_000_000)).unwrap();
        let end = self.end();
        self.log().set_high_watermark(end);
        self.batches.extend(batches);
        let log = self.log();
        let unflushed = end.since(log.reader().recovery_point());
        if unflushed >= log.config.flush_messages {
            self.step(Flush);
        }
    }

    /// An offset at which a batch begins, or the log end offset.
    fn boundary(&mut self, permille: i64) -> Offset {
        let index = self.batches.len() * permille as usize / 1000;
        let end = self.end();
        let batch = self.batches.get(index);
        batch.map_or(end, |batch| batch.header.base_offset)
    }
}
