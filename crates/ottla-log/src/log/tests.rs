//! Each operation of a log with its exact effects, on real files.

mod append;
mod broken_cases;
mod clean_logs;
mod cleaning;
mod cleaning_model;
mod closing;
mod crash;
mod crash_points;
mod failed_writes;
mod model;
mod open;
mod retention;
mod simulated_disk;
mod tiered;
mod timestamps;
mod transactions;
mod truncate;
mod writeback;

use std::path::Path;
use std::sync::Arc;

use ottla_config::TopicConfig;
use ottla_records::{Compression, RecordBatch, RecordBatchBuilder};
use ottla_types::{
    LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp, TopicPartition,
};

use crate::{AppendInfo, Job, JobOutcome, Log, LogReader, OpenParams, RecoveryReport};

/// A log in its own directory with its own clock.
struct TestLog {
    dir: tempfile::TempDir,
    config: TopicConfig,
    now: Timestamp,
    handles: Arc<crate::Handles>,
    log: Option<Log>,
}

impl TestLog {
    fn new() -> TestLog {
        TestLog::with_config(|_| {})
    }

    fn with_config(change: impl FnOnce(&mut TopicConfig)) -> TestLog {
        let mut config = TopicConfig::default();
        change(&mut config);
        let mut test = TestLog {
            dir: tempfile::tempdir().unwrap(),
            config,
            now: Timestamp(1_000_000),
            handles: crate::Handles::unlimited(),
            log: None,
        };
        let report = test.open(0, true);
        assert_eq!(report, RecoveryReport::default());
        test
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn log(&mut self) -> &mut Log {
        self.log.as_mut().expect("the log is open")
    }

    fn reader(&self) -> LogReader {
        self.log.as_ref().expect("the log is open").reader()
    }

    fn params(&self, recovery_point: i64, clean_shutdown: bool) -> OpenParams {
        OpenParams {
            dir: self.path().to_owned(),
            topic_partition: TopicPartition::new("topic", 0),
            config: Arc::new(self.config.clone()),
            recovery_point: Offset(recovery_point),
            log_start_offset: Offset(0),
            clean_shutdown,
            now: self.now,
            producer_id_expiration_ms: 86_400_000,
            random_seed: 7,
            handles: Arc::clone(&self.handles),
            checkpoint_marks: Arc::default(),
        }
    }

    /// Opens the directory again; no log holds it.
    fn open(&mut self, recovery_point: i64, clean_shutdown: bool) -> RecoveryReport {
        let params = self.params(recovery_point, clean_shutdown);
        let (log, report) = Log::open(params).unwrap();
        self.log = Some(log);
        report
    }

    fn close(&mut self) {
        self.log.take().unwrap().close().unwrap();
    }

    fn reopen(&mut self) {
        self.close();
        let report = self.open(0, true);
        assert_eq!(report, RecoveryReport::default());
    }

    /// Drops the log like a killed process, and opens the directory again.
    fn crash(&mut self) -> RecoveryReport {
        let recovery_point = self.reader().recovery_point();
        self.log = None;
        self.open(recovery_point.0, false)
    }

    /// Appends one batch of `count` records at the end and advances the high watermark.
    fn append(&mut self, count: i32) -> AppendInfo {
        let offset = self.log().log_end_offset();
        self.append_batch(batch(offset.0, count))
    }

    fn append_batch(&mut self, batch: RecordBatch) -> AppendInfo {
        let now = self.now;
        let info = self.log().append(&[batch], now).unwrap();
        let end = self.log().log_end_offset();
        self.log().set_high_watermark(end);
        info
    }

    /// Runs all jobs, including delayed ones.
    fn run_jobs(&mut self) {
        for job in self.log().take_jobs() {
            match job.run().unwrap() {
                JobOutcome::Unlink(job) => job.run().unwrap(),
                outcome => self.log().on_job_done(outcome),
            }
        }
    }

    fn flush(&mut self) {
        if let Some(job) = self.log().flush_job() {
            Job::Flush(job).run().unwrap();
        }
    }

    /// The offsets of all batches from `from` on, as (first, last).
    fn read_all(&self, from: i64) -> Vec<(i64, i64)> {
        read_all(&self.reader(), from)
    }

    fn bases(&self) -> Vec<i64> {
        let bases = self.reader().segment_base_offsets();
        bases.into_iter().map(|offset| offset.0).collect()
    }

    fn files(&self) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn file_len(&self, name: &str) -> u64 {
        std::fs::metadata(self.path().join(name)).unwrap().len()
    }
}

fn read_all(reader: &LogReader, from: i64) -> Vec<(i64, i64)> {
    let mut found = Vec::new();
    let mut next = Offset(from);
    let end = reader.log_end_offset();
    while next < end {
        let result = reader.read(next, 1 << 20, end, true).unwrap();
        let Some(region) = &result.region else {
            break;
        };
        let before = next;
        for batch in RecordBatch::read_all(region.read().unwrap()) {
            let batch = batch.unwrap();
            batch.verify_crc().unwrap();
            found.push((batch.header.base_offset.0, batch.header.last_offset().0));
            next = batch.header.next_offset();
        }
        assert!(next > before, "a read makes progress");
    }
    found
}

/// A batch whose records are a millisecond apart, the first with its offset as the timestamp.
fn batch(base_offset: i64, count: i32) -> RecordBatch {
    batch_at(base_offset, count, 1_000_000 + base_offset)
}

fn batch_at(base_offset: i64, count: i32, timestamp: i64) -> RecordBatch {
    build(base_offset, count, timestamp, |builder| builder)
}

fn build(
    base_offset: i64,
    count: i32,
    timestamp: i64,
    change: impl FnOnce(RecordBatchBuilder) -> RecordBatchBuilder,
) -> RecordBatch {
    let mut builder = change(
        RecordBatchBuilder::new(Compression::None)
            .base_offset(Offset(base_offset))
            .partition_leader_epoch(LeaderEpoch(0)),
    );
    for index in 0..count {
        let value = format!("value {:012}", base_offset + i64::from(index));
        let timestamp = Timestamp(timestamp + i64::from(index));
        builder.append(timestamp, None, Some(value.as_bytes()), &[]);
    }
    builder.build()
}

fn idempotent(base_offset: i64, count: i32, id: i64, epoch: i16, sequence: i32) -> RecordBatch {
    build(base_offset, count, 1_000_000 + base_offset, |builder| {
        builder.producer(ProducerId(id), ProducerEpoch(epoch), Sequence(sequence))
    })
}
