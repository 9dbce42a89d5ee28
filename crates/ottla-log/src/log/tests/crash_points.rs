//! Scenarios whose every change to the disk is a point at which the machine stops.
//!
//! A scenario is run once, and what it does to the disk is written down. Then, for each number of changes and
//! each way of losing what was not forced, the disk is put together as a crash would have left it, and
//! recovered. What must hold:
//!
//! - what had been forced to disk, and was not truncated or deleted since, is there, byte for byte;
//! - nothing is there that was never written;
//! - indexes, epochs and producers fit the records;
//! - to recover again changes nothing, and neither does a crash in the midst of recovery.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ottla_config::TopicConfig;
use ottla_records::RecordBatch;
use ottla_records::control::{ControlRecordType, EndTxnMarker, end_txn_batch};
use ottla_types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Timestamp, TopicPartition};

use super::build;
use crate::checkpoint::{LOG_START_OFFSET_CHECKPOINT, OffsetCheckpoint, RECOVERY_POINT_CHECKPOINT};
use crate::disk::trace::{self, Image, Loss, Random, Trace};
use crate::{Job, JobOutcome, Log, LogReader, OpenParams, RecoveryReport, TimestampTarget};

#[derive(Clone, Copy, PartialEq, Debug)]
enum Step {
    /// So many batches, in one append.
    Append(usize),
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
    /// To so many thousandths of the log.
    Truncate(i64),
    /// To start at so many records behind the end.
    TruncateFully(i64),
    DeleteRecords(i64),
    DeleteSegments,
    Close,
    Kill,
}

use Step::*;

/// A log directory with one partition in it.
struct Site {
    root: tempfile::TempDir,
    config: Arc<TopicConfig>,
}

fn partition() -> TopicPartition {
    TopicPartition::new("topic", 0)
}

impl Site {
    fn new(config: Arc<TopicConfig>) -> Site {
        // Where files are cheap; nothing is forced to disk anyway.
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

    fn checkpoint(&self, file: &str, offset: Offset) {
        let offsets = [(partition(), offset)].into_iter().collect();
        let path = self.root.path().join(file);
        OffsetCheckpoint { offsets }.write(&path).unwrap();
    }

    /// Opens what is there, as a start does that knows nothing but what is on disk.
    fn open(&self, clean_shutdown: bool) -> (Log, RecoveryReport) {
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
        };
        let (mut log, report) = Log::open(params).expect("what a crash leaves can be opened");
        let end = log.log_end_offset();
        log.set_high_watermark(end);
        (log, report)
    }

    /// Has the directory hold exactly `image`, whose paths begin with `prefix`.
    fn fill(&self, image: &Image, prefix: &Path) {
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

/// A scenario that is being run.
struct Scenario {
    site: Site,
    log: Option<Log>,
    /// What the log holds.
    batches: Vec<RecordBatch>,
    start: Offset,
    epoch: i32,
    delayed: Vec<Vec<Job>>,
    history: History,
}

/// What a scenario has done.
#[derive(Default)]
struct History {
    /// Everything that was ever written, by its first offset.
    written: HashMap<Offset, Vec<RecordBatch>>,
    /// After how many changes each step was done, and what must be there from then on.
    done: Vec<(usize, Expected)>,
}

#[derive(Clone, Default)]
struct Expected {
    forced: Vec<RecordBatch>,
    start: Offset,
}

impl Scenario {
    fn run(config: TopicConfig, steps: &[Step]) -> (Site, Trace, History) {
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

    /// What must be there now, whatever happens.
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
                self.log().truncate_to(target, now).unwrap();
                self.batches
                    .retain(|batch| batch.header.base_offset < target);
                // As whoever truncates does: a recovery point that is too high would vouch for what is
                // written next.
                self.checkpoint();
            }
            TruncateFully(behind) => {
                let offset = self.end().plus(behind);
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
                self.log.take().unwrap().close().unwrap();
                let (log, report) = self.site.open(true);
                assert_eq!(report, RecoveryReport::default());
                self.log = Some(log);
            }
            Kill => {
                self.delayed.clear();
                self.log = None;
                let (log, report) = self.site.open(false);
                assert_eq!(report.bytes_truncated, 0);
                self.log = Some(log);
            }
        }
        self.start = self.start.max(self.log().log_start_offset());
    }

    fn checkpoint(&mut self) {
        let reader = self.log().reader();
        let (recovery_point, start) = (reader.recovery_point(), reader.log_start_offset());
        // The start first: it raises the recovery point over what it hides, forced to disk or not.
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
        let info = self.log().append(&batches, Timestamp(1_000_000)).unwrap();
        let end = self.end();
        self.log().set_high_watermark(end);
        self.batches.extend(batches);
        if info.flush_due {
            self.step(Flush);
        }
    }

    /// An offset at which a batch begins, or the end.
    fn boundary(&mut self, permille: i64) -> Offset {
        let index = self.batches.len() * permille as usize / 1000;
        let end = self.end();
        let batch = self.batches.get(index);
        batch.map_or(end, |batch| batch.header.base_offset)
    }
}

/// All batches, and that everything else fits them.
fn read_and_check(log: &Log, epochs_from: Offset) -> Vec<RecordBatch> {
    let reader = log.reader();
    let found = read_batches(&reader);
    let mut producers = HashMap::new();
    for batch in &found {
        let header = &batch.header;
        // Where the log starts again below its start, the epochs there are gone, as for Kafka.
        if header.base_offset >= epochs_from {
            let epoch = reader.leader_epochs().epoch_for(header.base_offset);
            assert_eq!(epoch, Some(header.partition_leader_epoch), "{header:?}");
        }
        let time = TimestampTarget::At(header.max_timestamp);
        let at = reader.offset_for_timestamp(time).unwrap();
        let at = at.map(|at| at.offset);
        assert_eq!(at, Some(header.last_offset()), "by time, of {}", state(log));
        if header.has_producer_id() && !header.is_control() {
            producers.insert(header.producer_id, header.last_sequence());
        }
    }
    for (id, sequence) in producers {
        let entry = log.producers().producer(id);
        let entry = entry.unwrap_or_else(|| panic!("{id:?} is known"));
        assert_eq!(entry.last_sequence(), sequence, "of {id:?}");
    }
    for window in found.windows(2) {
        let [first, second] = window else {
            unreachable!()
        };
        assert!(first.header.next_offset() <= second.header.base_offset);
    }
    found
}

fn read_batches(reader: &LogReader) -> Vec<RecordBatch> {
    let mut found = Vec::new();
    let (mut next, end) = (reader.log_start_offset(), reader.log_end_offset());
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

/// All that an opened log says of itself.
fn state(log: &Log) -> String {
    let reader = log.reader();
    let mut producers: Vec<_> = log.producers().producers().collect();
    producers.sort_by_key(|entry| entry.producer_id);
    format!(
        "{} {} {} {} {:?} {:?} {producers:?}",
        reader.log_start_offset(),
        reader.log_end_offset(),
        reader.recovery_point(),
        reader.last_stable_offset(),
        reader.segment_base_offsets(),
        reader.leader_epochs(),
    )
}

struct Checker<'a> {
    /// Where the scenario ran.
    prefix: PathBuf,
    trace: &'a Trace,
    history: &'a History,
    site: Site,
    opened: usize,
}

impl Checker<'_> {
    /// What must be there after so many changes, and where the log may start.
    fn expected(&self, count: usize) -> (Vec<&RecordBatch>, Offset) {
        let done = &self.history.done;
        let after = done.partition_point(|(changes, _)| *changes < count);
        let after = &done[after.min(done.len() - 1)].1;
        let before = done.partition_point(|(changes, _)| *changes <= count);
        let before = &done[before.saturating_sub(1)].1;
        let forced = before.forced.iter();
        let forced = forced
            .filter(|batch| after.forced.contains(batch))
            .collect();
        (forced, before.start.max(after.start))
    }

    /// Recovers what a crash has left and holds it against what had been forced.
    fn recover(&mut self, image: &Image, prefix: &Path, count: usize) -> (Trace, Image) {
        self.site.fill(image, prefix);
        self.opened += 1;
        trace::start(self.site.root.path());
        let (log, report) = self.site.open(false);
        let recovery = trace::stop();
        let (forced, latest_start) = self.expected(count);
        let found = read_and_check(&log, latest_start);
        assert_eq!(report.truncated_below_recovery_point, None);
        let start = log.log_start_offset();
        assert!(start <= latest_start, "{start} is behind {latest_start}");
        for batch in forced {
            assert!(found.contains(batch), "{:?} is lost", batch.header);
        }
        for batch in &found {
            let written = &self.history.written[&batch.header.base_offset];
            assert!(written.contains(batch), "{:?} is made up", batch.header);
        }
        let first = state(&log);
        drop(log);
        let files = trace::read_image(self.site.root.path());
        trace::start(self.site.root.path());
        let (log, _) = self.site.open(false);
        trace::stop();
        assert_eq!(state(&log), first, "recovered twice");
        assert_eq!(read_batches(&log.reader()), found, "recovered twice");
        drop(log);
        assert_eq!(trace::read_image(self.site.root.path()), files);
        (recovery, files)
    }

    /// The log goes on after recovery, and an orderly stop keeps it.
    fn go_on(&self) {
        trace::start(self.site.root.path());
        let (mut log, _) = self.site.open(false);
        let mut found = read_batches(&log.reader());
        let end = log.log_end_offset();
        let batch = build(end.0, 1, 1_000_000 + end.0, |builder| {
            builder.partition_leader_epoch(LeaderEpoch(1000))
        });
        log.append(std::slice::from_ref(&batch), Timestamp(1_000_000))
            .unwrap();
        found.push(batch);
        log.close().unwrap();
        let (log, report) = self.site.open(true);
        trace::stop();
        assert_eq!(report, RecoveryReport::default());
        assert_eq!(read_and_check(&log, Offset(i64::MAX)), found);
    }
}

/// Crashes after every change of a scenario, in every way; the seed is for what is chosen at random.
fn crash_everywhere(config: TopicConfig, steps: &[Step], seed: u64) {
    let (site, trace, history) = Scenario::run(config, steps);
    let config = site.config.clone();
    let mut checker = Checker {
        prefix: site.root.path().to_owned(),
        trace: &trace,
        history: &history,
        site: Site::new(config),
        opened: 0,
    };
    let mut random = Random(seed);
    for count in 0..=trace.len() {
        for loss in Loss::all(random.next()) {
            let image = trace.image(count, loss);
            let context = format!(
                "after {count} of {} changes, {}, loss of {loss:?}, seed {seed}, steps {steps:?}",
                trace.len(),
                trace.describe(count)
            );
            let check = std::panic::AssertUnwindSafe(|| {
                let prefix = checker.prefix.clone();
                let (recovery, _) = checker.recover(&image, &prefix, count);
                if matches!(loss, Loss::Reordered(_)) {
                    checker.go_on();
                }
                // Recovery itself is stopped at some moment.
                if random.below(8) == 0 && recovery.len() > 0 {
                    let stopped = random.below(recovery.len() + 1);
                    let loss = Loss::all(random.next())[random.below(8)];
                    let image = recovery.image(stopped, loss);
                    let prefix = checker.site.root.path().to_owned();
                    checker.recover(&image, &prefix, count);
                }
            });
            if let Err(panic) = std::panic::catch_unwind(check) {
                eprintln!("{context}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    assert!(checker.opened > trace.len());
    assert!(!checker.trace.describe(1).is_empty());
}

fn small_segments(change: impl FnOnce(&mut TopicConfig)) -> TopicConfig {
    let mut config = TopicConfig {
        segment_bytes: 1000,
        index_interval_bytes: 150,
        retention_ms: -1,
        file_delete_delay_ms: 0,
        ..TopicConfig::default()
    };
    change(&mut config);
    config
}

#[test]
fn appends_and_rolls() {
    let steps = [
        Append(3),
        Flush,
        Append(4),
        RunJobs,
        Append(5),
        Append(2),
        RunJobs,
        Elect,
        Append(6),
        DelayJobs,
        Append(4),
        Flush,
        Checkpoint,
        Append(5),
        RunJobs,
        Append(9),
        Kill,
        Append(5),
        Flush,
        RunJobs,
        Checkpoint,
        Append(1),
        Close,
        Append(7),
        RunJobs,
        Append(3),
    ];
    crash_everywhere(small_segments(|_| {}), &steps, 1);
}

#[test]
fn every_append_is_forced() {
    let steps = [
        Append(3),
        Append(4),
        Idempotent(1),
        RunJobs,
        Elect,
        Append(5),
        Checkpoint,
        Append(6),
        RunJobs,
        Idempotent(1),
        Append(4),
        Transactional(2),
        Append(3),
        EndTransaction(2, true),
        Append(5),
        RunJobs,
    ];
    crash_everywhere(
        small_segments(|config| config.flush_messages = 1),
        &steps,
        2,
    );
}

#[test]
fn producers_and_transactions() {
    let steps = [
        Idempotent(1),
        Transactional(2),
        Append(3),
        Transactional(3),
        EndTransaction(2, true),
        Flush,
        Idempotent(1),
        Transactional(2),
        Append(4),
        RunJobs,
        EndTransaction(3, false),
        Transactional(3),
        Append(5),
        EndTransaction(3, true),
        Flush,
        Checkpoint,
        Idempotent(1),
        Append(4),
        RunJobs,
        EndTransaction(2, true),
        Truncate(800),
        Idempotent(1),
        Transactional(2),
        Append(6),
        Flush,
        RunJobs,
        EndTransaction(2, false),
        Close,
        Idempotent(1),
        Append(3),
        RunJobs,
    ];
    crash_everywhere(small_segments(|_| {}), &steps, 3);
}

#[test]
fn truncations() {
    let steps = [
        Append(9),
        Flush,
        RunJobs,
        Append(9),
        RunJobs,
        Checkpoint,
        Elect,
        Append(8),
        Truncate(700),
        Elect,
        Append(7),
        Flush,
        Checkpoint,
        Append(6),
        DelayJobs,
        Truncate(300),
        Elect,
        Append(9),
        RunJobs,
        Flush,
        Truncate(990),
        Append(2),
        Checkpoint,
        TruncateFully(5),
        Append(8),
        Flush,
        RunJobs,
        TruncateFully(0),
        Append(4),
        Truncate(0),
        Append(2),
        RunJobs,
    ];
    crash_everywhere(small_segments(|_| {}), &steps, 4);
}

#[test]
fn retention() {
    let steps = [
        Append(9),
        RunJobs,
        Append(9),
        RunJobs,
        Idempotent(1),
        DeleteRecords(300),
        DeleteSegments,
        RunJobs,
        Flush,
        Checkpoint,
        Append(9),
        RunJobs,
        DeleteRecords(600),
        Append(4),
        DeleteSegments,
        DelayJobs,
        Append(9),
        RunJobs,
        Elect,
        Append(3),
        DeleteRecords(1000),
        DeleteSegments,
        RunJobs,
        Append(2),
        Flush,
        Checkpoint,
        Close,
        Append(9),
        RunJobs,
        DeleteSegments,
    ];
    crash_everywhere(
        small_segments(|config| config.retention_bytes = 2500),
        &steps,
        5,
    );
}

#[test]
fn preallocated_segments() {
    let steps = [
        Append(4),
        Append(5),
        RunJobs,
        Append(6),
        Flush,
        Append(6),
        RunJobs,
        Truncate(600),
        Append(7),
        RunJobs,
        Close,
        Append(4),
        RunJobs,
        Append(9),
    ];
    crash_everywhere(
        small_segments(|config| config.preallocate = true),
        &steps,
        6,
    );
}

#[test]
fn anything() {
    let seeds = std::env::var("OTTLA_CRASH_SEEDS").ok();
    let seeds: u64 = seeds.map_or(2, |seeds| seeds.parse().expect("a number"));
    for seed in 0..seeds {
        let mut random = Random(seed);
        let steps: Vec<Step> = (0..25).map(|_| any_step(&mut random)).collect();
        let flush_messages = [1, 7, i64::MAX][random.below(3)];
        let config = small_segments(|config| {
            config.flush_messages = flush_messages;
            config.retention_bytes = 4000;
        });
        crash_everywhere(config, &steps, seed);
    }
}

fn any_step(random: &mut Random) -> Step {
    let permille = random.below(1001) as i64;
    let id = 1 + random.below(3) as i64;
    match random.below(26) {
        0..=6 => Append(1 + random.below(9)),
        7 | 8 => Idempotent(0),
        9 | 10 => Transactional(id),
        11 => EndTransaction(id, true),
        12 => EndTransaction(id, false),
        13 => Elect,
        14 | 15 => Flush,
        16 | 17 => RunJobs,
        18 => DelayJobs,
        19 => Checkpoint,
        20 => Truncate(permille),
        21 => TruncateFully(permille % 4),
        22 => DeleteRecords(permille),
        23 => DeleteSegments,
        24 => Close,
        _ => Kill,
    }
}

/// What is done to a log until something fails, and what had been forced to disk by then.
fn work(log: &mut Log, forced: &mut Vec<RecordBatch>) -> Result<(), Box<dyn std::error::Error>> {
    let now = Timestamp(1_000_000);
    let mut batches = Vec::new();
    for round in 0..6 {
        for _ in 0..5 {
            let end = log.log_end_offset();
            let batch = build(end.0, 2, 1_000_000 + end.0, |builder| builder);
            log.append(std::slice::from_ref(&batch), now)?;
            log.set_high_watermark(batch.header.next_offset());
            batches.push(batch);
        }
        if round == 3 {
            let target = Offset(42);
            let is_kept = |batch: &RecordBatch| batch.header.base_offset < target;
            forced.retain(is_kept);
            batches.retain(is_kept);
            log.truncate_to(target, now)?;
        }
        if let Some(job) = log.flush_job() {
            job.run()?;
            forced.clone_from(&batches);
        }
        for job in log.take_jobs() {
            match job.run()? {
                JobOutcome::Unlink(job) => job.run()?,
                outcome => log.on_job_done(outcome),
            }
        }
    }
    log.close_job().run()?;
    Ok(())
}

#[test]
fn any_change_may_fail() {
    let config = Arc::new(small_segments(|_| {}));
    for change in 0.. {
        let site = Site::new(config.clone());
        let (mut log, _) = site.open(true);
        trace::start(site.root.path());
        trace::fail_in(change);
        let mut forced = Vec::new();
        let result = work(&mut log, &mut forced);
        let is_done = result.is_ok();
        drop(log);
        trace::stop();
        trace::start(site.root.path());
        let (log, _) = site.open(false);
        trace::stop();
        let found = read_and_check(&log, Offset::ZERO);
        for batch in &forced {
            assert!(found.contains(batch), "change {change}: {:?}", batch.header);
        }
        if is_done {
            assert!(change > 100, "only {change} changes were made to fail");
            break;
        }
    }
}
