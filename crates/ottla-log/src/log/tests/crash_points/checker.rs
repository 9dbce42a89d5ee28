//! Recovers the log after a crash and compares it with the fsynced state.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use ottla_config::TopicConfig;
use ottla_records::RecordBatch;
use ottla_records::control::ControlRecordType;
use ottla_types::{LeaderEpoch, Offset, Timestamp};

use super::super::build;
use super::scenario::{History, Scenario, Site, Step};
use crate::checkpoint::RECOVERY_POINT_CHECKPOINT;
use crate::disk::trace::{self, Image, Loss, Random, Trace};
use crate::{Log, LogReader, RecoveryReport, TimestampTarget};

/// Reads all batches and checks indexes, epochs and producers against them.
pub(super) fn read_and_check(log: &Log, epochs_from: Offset) -> Vec<RecordBatch> {
    let reader = log.reader();
    let found = read_batches(&reader);
    let mut producers = HashMap::new();
    check_aborted(&reader, &found);
    for batch in &found {
        let header = &batch.header;
        // If the log restarts below its start offset, the epochs there are gone, as in Kafka.
        if header.base_offset >= epochs_from {
            let epoch = reader.leader_epochs().epoch_for(header.base_offset);
            assert_eq!(epoch, Some(header.partition_leader_epoch), "{header:?}");
        }
        // A timestamp lookup does not find a batch that the cleaner left without records.
        if header.record_count > 0 {
            let time = TimestampTarget::At(header.max_timestamp);
            let at = reader.offset_for_timestamp(time).unwrap();
            let at = at.map(|at| at.offset);
            assert_eq!(at, Some(header.last_offset()), "by time, of {}", state(log));
        }
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

/// Compares the aborted transactions of the batches with the indexes.
fn check_aborted(reader: &LogReader, found: &[RecordBatch]) {
    let mut open = HashMap::new();
    let mut aborted = Vec::new();
    for batch in found.iter().filter(|it| it.header.is_transactional()) {
        let header = &batch.header;
        if !header.is_control() {
            open.entry(header.producer_id).or_insert(header.base_offset);
            continue;
        }
        let marker = batch.records(1000).unwrap().next().unwrap().unwrap();
        let kind = ControlRecordType::parse_key(marker.key.as_deref().unwrap());
        let first = open.remove(&header.producer_id);
        if let (Ok(Some(ControlRecordType::Abort)), Some(first)) = (kind, first) {
            aborted.push((header.producer_id, first, header.base_offset));
        }
    }
    let (start, end) = (reader.log_start_offset(), reader.log_end_offset());
    let indexed = reader.aborted_transactions(start, end).unwrap();
    // A transaction that begins before the log start has lost its first records, possibly all of
    // them.
    let indexed = indexed.iter().filter(|txn| txn.first_offset >= start);
    let indexed = indexed.map(|txn| (txn.producer_id, txn.first_offset, txn.last_offset));
    assert_eq!(indexed.collect::<Vec<_>>(), aborted, "aborted transactions");
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

/// The complete state of an opened log.
fn state(log: &Log) -> String {
    let reader = log.reader();
    let mut producers: Vec<_> = log.producers().producers().collect();
    producers.sort_by_key(|entry| entry.producer_id);
    // A snapshot has one timestamp for a producer's last batch and a later marker.
    let producers = producers.iter().map(|entry| {
        let batches = entry.batches().map(|it| (it.last_sequence, it.last_offset));
        (
            entry.producer_id,
            entry.producer_epoch,
            entry.coordinator_epoch,
            entry.last_timestamp,
            entry.current_txn_first_offset,
            batches.collect::<Vec<_>>(),
        )
    });
    let producers: Vec<_> = producers.collect();
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

impl<'a> Checker<'a> {
    /// The batches that must be there after `count` changes, and the allowed log start offset.
    fn expected(&self, count: usize) -> (Vec<&'a RecordBatch>, Offset) {
        let history: &'a History = self.history;
        let done = &history.done;
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

    /// Recovers the files of a crash and compares them with the fsynced state.
    fn recover(&mut self, image: &Image, prefix: &Path, count: usize) -> (Trace, Image) {
        self.site.fill(image, prefix);
        self.opened += 1;
        trace::start(self.site.root.path());
        let (log, report) = self.site.open(false);
        let recovery = trace::stop();
        let (forced, latest_start) = self.expected(count);
        let found = read_and_check(&log, latest_start);
        // A crash between a truncation and its lowered checkpoint is reported as a loss.
        if report.truncated_below_recovery_point.is_some() {
            let recovery_point = log.reader().recovery_point();
            assert!(
                forced
                    .iter()
                    .all(|batch| batch.header.last_offset() < recovery_point)
            );
        }
        let start = log.log_start_offset();
        assert!(start <= latest_start, "{start} is after {latest_start}");
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

    /// The log is usable after recovery, and a clean stop preserves it.
    fn go_on(&self) {
        trace::start(self.site.root.path());
        let (mut log, _) = self.site.open(false);
        let mut found = read_batches(&log.reader());
        let end = log.log_end_offset();
        // A leader keeps gaps.
        log.keep_gaps();
        let batch = build(end.0, 1, 1_000_000 + end.0, |builder| {
            builder.partition_leader_epoch(LeaderEpoch(1000))
        });
        log.append(std::slice::from_ref(&batch), Timestamp(1_000_000))
            .unwrap();
        found.push(batch);
        let end = log.close().unwrap();
        self.site.checkpoint(RECOVERY_POINT_CHECKPOINT, end);
        let (log, report) = self.site.open(true);
        trace::stop();
        assert_eq!(report, RecoveryReport::default());
        assert_eq!(read_and_check(&log, Offset(i64::MAX)), found);
    }
}

/// Crashes after every change of a scenario, in every way; `seed` drives the random choices.
pub(super) fn crash_everywhere(config: TopicConfig, steps: &[Step], seed: u64) {
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
    let mut expected = None;
    // What was recovered with these expectations. The recovery of the same files is the same.
    let mut recovered = HashSet::new();
    for count in 0..=trace.len() {
        let disk = trace.disk_after(count);
        let expected_now = Some(checker.expected(count));
        if expected != expected_now {
            expected = expected_now;
            recovered.clear();
        }
        for loss in Loss::all(random.next()) {
            let goes_on = matches!(loss, Loss::Reordered(_));
            let is_interrupted = random.below(8) == 0;
            let crash = (disk.crash(loss), goes_on);
            if recovered.contains(&crash) && !is_interrupted {
                continue;
            }
            let image = &crash.0;
            let context = format!(
                "after {count} of {} changes, {}, loss of {loss:?}, seed {seed}, steps {steps:?}",
                trace.len(),
                trace.describe(count)
            );
            let check = std::panic::AssertUnwindSafe(|| {
                let prefix = checker.prefix.clone();
                let (recovery, _) = checker.recover(image, &prefix, count);
                if goes_on {
                    checker.go_on();
                }
                // Crashes during recovery as well.
                if is_interrupted && recovery.len() > 0 {
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
            recovered.insert(crash);
        }
    }
    assert!(checker.opened > trace.len());
    assert!(!checker.trace.describe(1).is_empty());
}
