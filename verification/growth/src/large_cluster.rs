//! A controller of 1,000 brokers and 1,000,000 partitions, without the brokers: one of them dies, and a
//! new controller takes over.
//!
//! The goals are absolute, so this is a separate table. The code is the code of a controller and a
//! broker: the decision, the batch for the metadata log, the image, the changes of a broker's
//! replicas, and the reading of a snapshot and of the log after it. The file is in the page cache.
//! Not measured are the append to the log, its replication, and the network.

use std::path::Path;
use std::time::{Duration, Instant};

use ottla_controller::BrokerSessions;
use ottla_metadata::{MetadataDelta, MetadataImage, MetadataLoader};
use ottla_protocol::metadata_records::{MetadataRecord, PartitionChangeRecord};
use ottla_raft::KRaftVersion;
use ottla_records::RecordBatch;
use ottla_storage::metadata::record_batches::{MetadataBatch, records_batch};
use ottla_storage::metadata::snapshot_file::{BOOTSTRAP_FILE, Snapshot, read_snapshot};
use ottla_types::{BrokerId, Offset, Timestamp};
use procfs::process::Process;

use crate::broker_events::{DEAD, NEIGHBOUR, after, cluster, fence};
use crate::measure::written;

pub const NAME: &str = "large-cluster";
pub const OPERATION: &str =
    "a controller of 1,000 brokers and 1,000,000 partitions, beside its goals";

const BROKERS: i32 = 1_000;
const PARTITIONS: i32 = 1_000_000;
const RUNS: usize = 5;
const SESSION_TIMEOUT_MS: i32 = 9_000;
/// The log after the snapshot: Kafka's default of `metadata.log.max.record.bytes.between.snapshots`.
const LOG_BYTES: usize = 20 << 20;
const RECORDS_OF_BATCH: i32 = 1_000;
const DECISION_GOAL: Duration = Duration::from_millis(100);
const TAKE_OVER_GOAL: Duration = Duration::from_secs(3);
const MEMORY_GOAL_MB: f64 = 1_000.0;

/// Measures, and prints the table.
pub fn print() {
    let (empty_mb, _) = memory_mb();
    let image = cluster(PARTITIONS, BROKERS);
    let (full_mb, _) = memory_mb();
    println!("\n| {BROKERS} brokers, {PARTITIONS} partitions | median (lowest–highest) | goal | |");
    println!("| --- | --- | --- | --- |");

    let mut changed = 0;
    let deaths: Vec<[Duration; 4]> = (0..RUNS)
        .map(|_| {
            let (times, count) = death(&image);
            changed = count;
            times
        })
        .collect();
    let of = |part: usize| deaths.iter().map(|times| times[part]).collect::<Vec<_>>();
    let decided = format!("a broker dies: the leaders of its {changed} partitions are decided");
    row(&decided, of(0), Some(DECISION_GOAL));
    row("the same, encoded and applied", of(1), Some(DECISION_GOAL));
    row(
        "the changes of a broker that shares partitions",
        of(2),
        None,
    );
    row("the changes of a broker that shares none", of(3), None);

    let dir = tempfile::tempdir().expect("a directory");
    let snapshot = Snapshot {
        last_contained_log_time: Timestamp(0),
        kraft_version: KRaftVersion::V0,
        voters: None,
        records: image.to_records(),
    };
    let bytes = snapshot.write_bootstrap(dir.path(), Timestamp(0));
    let bytes = bytes.expect("a written snapshot");
    drop(snapshot);
    let log = log_after(&image);
    println!(
        "| memory of the image, MB | {:.0} | | |",
        full_mb - empty_mb
    );
    drop(image);
    let times = (0..RUNS).map(|_| take_over(&dir.path().join(BOOTSTRAP_FILE), &log));
    let what = format!(
        "a new controller: a snapshot of {} MB and {} MB of log loaded, and a broker fenced",
        bytes / 1_000_000,
        log.iter().map(RecordBatch::size_in_bytes).sum::<usize>() / 1_000_000
    );
    row(&what, times.collect(), Some(TAKE_OVER_GOAL));
    let (_, peak_mb) = memory_mb();
    println!(
        "| memory of this process at its peak, MB | {peak_mb:.0} | ≤ {MEMORY_GOAL_MB} | {} |",
        verdict(peak_mb <= MEMORY_GOAL_MB)
    );
}

fn row(what: &str, mut times: Vec<Duration>, goal: Option<Duration>) {
    times.sort_unstable();
    let (median, lowest, highest) = (times[times.len() / 2], times[0], times[times.len() - 1]);
    let (bound, met) = match goal {
        Some(goal) => (format!("≤ {}", written(goal)), verdict(median <= goal)),
        None => (String::new(), ""),
    };
    println!(
        "| {what} | {} ({}–{}) | {bound} | {met} |",
        written(median),
        written(lowest),
        written(highest)
    );
}

fn verdict(is_met: bool) -> &'static str {
    match is_met {
        true => "met",
        false => "missed",
    }
}

/// A broker dies. Returns the times of the decision, of the decision with its batch and its
/// application, and of the local changes of two other brokers, and the number of changed
/// partitions.
fn death(image: &MetadataImage) -> ([Duration; 4], usize) {
    let mut loader = MetadataLoader::new(image.clone());
    let (decided, records) = fence(image);
    let began = Instant::now();
    let next = image.provenance.last_contained_offset.plus(1);
    let epoch = image.provenance.last_contained_epoch;
    let version = image.metadata_version();
    let batch = records_batch(next, epoch, Timestamp(0), &records, version);
    let batch = batch.expect("records that can be encoded");
    let provenance = after(image, records.len());
    let delta = loader.load_batch(records, provenance);
    let delta = delta.expect("good records").expect("a change");
    let applied = decided + began.elapsed();
    assert!(batch.size_in_bytes() > 0);
    check_leaders(&delta);

    let changes_of = |broker: BrokerId| {
        let began = Instant::now();
        let changes = delta.local_changes(broker);
        (began.elapsed(), changes)
    };
    let (shared, changes) = changes_of(NEIGHBOUR);
    assert!(!changes.leaders.is_empty() && !changes.followers.is_empty());
    let (unshared, changes) = changes_of(BrokerId(BROKERS / 2));
    assert!(changes.is_empty());
    let changed = delta.topics.changed.values().map(|indexes| indexes.len());
    ([decided, applied, shared, unshared], changed.sum())
}

/// Each partition that the broker led has another leader.
fn check_leaders(delta: &MetadataDelta) {
    let mut moved = 0;
    for (id, indexes) in &delta.topics.changed {
        let topic_of = |image: &MetadataImage| image.topics.by_id(*id).cloned().expect("a topic");
        let (before, after) = (topic_of(&delta.before), topic_of(&delta.after));
        for index in indexes {
            let leader = |topic: &ottla_metadata::TopicImage| {
                topic.partition(*index).expect("a partition").leader
            };
            assert!(![DEAD, BrokerId::NONE].contains(&leader(&after)));
            moved += usize::from(leader(&before) == DEAD);
        }
    }
    assert_eq!(moved as i32, PARTITIONS / BROKERS);
}

/// The batches of a log that follows the image: leaders that are elected again.
fn log_after(image: &MetadataImage) -> Vec<RecordBatch> {
    let version = image.metadata_version();
    let mut next = image.provenance.last_contained_offset.plus(1);
    let epoch = image.provenance.last_contained_epoch;
    let (mut batches, mut bytes) = (Vec::new(), 0);
    let topics: Vec<_> = image.topics.iter().collect();
    for topic in topics.iter().cycle() {
        let records: Vec<MetadataRecord> = topic
            .partitions()
            .take(RECORDS_OF_BATCH as usize)
            .map(|(index, partition)| {
                MetadataRecord::PartitionChange(PartitionChangeRecord {
                    partition_id: index.value(),
                    topic_id: topic.id,
                    leader: partition.leader.value(),
                    ..Default::default()
                })
            })
            .collect();
        let batch = records_batch(next, epoch, Timestamp(0), &records, version);
        let batch = batch.expect("records that can be encoded");
        next = batch.header.next_offset();
        bytes += batch.size_in_bytes();
        batches.push(batch);
        if bytes >= LOG_BYTES {
            break;
        }
    }
    batches
}

/// From the files of a stopped controller to its first decision.
fn take_over(snapshot: &Path, log: &[RecordBatch]) -> Duration {
    let began = Instant::now();
    let mut loader = MetadataLoader::default();
    let snapshot = read_snapshot(snapshot).expect("a snapshot");
    let first = log.first().expect("a log").header.base_offset;
    let provenance = ottla_metadata::Provenance {
        last_contained_offset: Offset(first.value() - 1),
        ..ottla_metadata::Provenance::EMPTY
    };
    let loaded = loader.load_snapshot(&snapshot.records, provenance);
    loaded.expect("good records");
    drop(snapshot);
    for batch in log {
        let batch = MetadataBatch::read(batch).expect("a batch");
        batch.load_into(&mut loader).expect("good records");
    }
    let sessions = BrokerSessions::new(SESSION_TIMEOUT_MS, None);
    sessions.begin(loader.image(), 0);
    let (_, records) = fence(loader.image());
    let time = began.elapsed();
    assert!(!records.is_empty());
    time
}

/// Resident memory of this process, and its peak, in units of 10^6 bytes.
fn memory_mb() -> (f64, f64) {
    let status = Process::myself().and_then(|process| process.status());
    let status = status.expect("/proc/self/status");
    let megabytes = |kib: Option<u64>| kib.unwrap_or(0) as f64 * 1024.0 / 1e6;
    (megabytes(status.vmrss), megabytes(status.vmhwm))
}
