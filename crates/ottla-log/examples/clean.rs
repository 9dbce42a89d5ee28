//! Creates logs for compaction and compacts them, for `cargo xtask compare-cleaning`, which runs
//! Kafka's own cleaner on the same logs:
//!
//! - `clean fill DIR RECORDS VALUE_BYTES KEYS SEGMENT_BYTES`: records with random keys.
//! - `clean mix DIR SEED`: a small log with every case the cleaner distinguishes.
//! - `clean run DIR SEGMENT_BYTES NOW…`: compacts all logs at each of these times and prints the
//!   cost.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use ottla_config::{CleanupPolicy, TopicConfig};
use ottla_log::{
    CleanerParams, CleaningStopped, IoPace, Log, LogAccess, LogToClean, OpenParams, clean,
};
use ottla_records::control::{ControlRecordType, EndTxnMarker, end_txn_batch};
use ottla_records::{Compression, CompressionType, RecordBatch, RecordBatchBuilder};
use ottla_sync::Mutex;
use ottla_types::{
    LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp, TopicPartition,
};

/// The timestamp of the first record.
const START: i64 = 1_700_000_000_000;
const RECORDS_PER_BATCH: u64 = 16;
const DELETE_RETENTION_MS: i64 = 60_000;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| arguments[at].parse::<u64>().expect("a number");
    let dir = Path::new(&arguments[1]);
    match arguments[0].as_str() {
        "fill" => fill(dir, number(2), number(3) as usize, number(4), number(5)),
        "mix" => mix(dir, number(2)),
        "run" => run(dir, number(2), &arguments[3..]),
        other => panic!("no command {other}"),
    }
}

fn open(dir: &Path, segment_bytes: u64) -> Log {
    let config = TopicConfig {
        cleanup_policy: CleanupPolicy {
            delete: false,
            compact: true,
        },
        segment_bytes: segment_bytes as i32,
        delete_retention_ms: DELETE_RETENTION_MS,
        file_delete_delay_ms: 0,
        ..TopicConfig::default()
    };
    let (mut log, _) = Log::open(OpenParams {
        dir: dir.to_owned(),
        topic_partition: TopicPartition::new("compacted", 0),
        config: Arc::new(config),
        recovery_point: Offset(0),
        log_start_offset: Offset(0),
        clean_shutdown: dir.join("00000000000000000000.log").exists(),
        now: Timestamp(START),
        producer_id_expiration_ms: 86_400_000,
        random_seed: 1,
        handles: ottla_log::Handles::unlimited(),
        checkpoint_marks: Arc::default(),
    })
    .expect("a log");
    let end = log.log_end_offset();
    log.set_high_watermark(end);
    log
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

fn append(log: &mut Log, batch: RecordBatch) {
    log.append(&[batch], Timestamp(START)).expect("an append");
    let end = log.log_end_offset();
    log.set_high_watermark(end);
}

fn builder(log: &Log, codec: Compression) -> RecordBatchBuilder {
    RecordBatchBuilder::new(codec)
        .base_offset(log.log_end_offset())
        .partition_leader_epoch(LeaderEpoch(0))
}

/// Rolls to a last segment that is not cleaned, by passing `segment.ms`.
fn end_segment(log: &mut Log) {
    let mut batch = builder(log, Compression::None);
    let at = Timestamp(START + 30 * 86_400_000);
    batch.append(at, Some(b"last"), Some(b"segment"), &[]);
    append(log, batch.build());
}

fn fill(dir: &Path, records: u64, value_bytes: usize, keys: u64, segment_bytes: u64) {
    let mut log = open(dir, segment_bytes);
    let mut random = Random(1);
    let mut value = vec![0; value_bytes];
    for n in 0..records / RECORDS_PER_BATCH {
        let mut batch = builder(&log, Compression::None);
        for _ in 0..RECORDS_PER_BATCH {
            let key = format!("key-{:012}", random.below(keys));
            value[..8].copy_from_slice(&random.next().to_be_bytes());
            batch.append(
                Timestamp(START + n as i64 / 100),
                Some(key.as_bytes()),
                Some(&value),
                &[],
            );
        }
        append(&mut log, batch.build());
    }
    end_segment(&mut log);
    log.close().expect("a close");
}

fn mix(dir: &Path, seed: u64) {
    let mut log = open(dir, 16 * 1024);
    let mut random = Random(seed);
    let mut sequences = [0; 6];
    let mut is_open = [false; 6];
    for n in 0..1500 {
        let producer = random.below(9) as usize;
        let is_transactional = (3..6).contains(&producer);
        if is_transactional && is_open[producer] && random.below(3) == 0 {
            let kind = match random.below(2) {
                0 => ControlRecordType::Abort,
                _ => ControlRecordType::Commit,
            };
            let marker = EndTxnMarker {
                coordinator_epoch: 0,
            };
            let (id, now) = (ProducerId(producer as i64), Timestamp(START + n));
            let mut batch = end_txn_batch(id, ProducerEpoch(0), kind, marker, now);
            batch.assign_offset(log.log_end_offset(), LeaderEpoch(0));
            append(&mut log, batch);
            is_open[producer] = false;
            continue;
        }
        let codec = CompressionType::from_id(random.below(5) as u8).expect("a codec");
        let mut batch = builder(&log, Compression::from(codec));
        if random.below(8) == 0 {
            batch = batch.log_append_time(Timestamp(START + n));
        }
        let count = 1 + random.below(5);
        if producer < 6 {
            let sequence = Sequence(sequences[producer]);
            sequences[producer] += count as i32;
            is_open[producer] = is_transactional;
            batch = batch
                .producer(ProducerId(producer as i64), ProducerEpoch(0), sequence)
                .transactional(is_transactional);
        }
        for at in 0..count {
            let key = format!("key-{}", random.below(60));
            let value = format!("value {} {}", n, "x".repeat(random.below(200) as usize));
            let value = Some(value.as_bytes()).filter(|_| random.below(5) > 0);
            let key = Some(key.as_bytes()).filter(|_| random.below(40) > 0);
            batch.append(Timestamp(START + n + at as i64), key, value, &[]);
        }
        append(&mut log, batch.build());
    }
    end_segment(&mut log);
    log.close().expect("a close");
}

struct Owner(Mutex<Log>);

impl LogAccess for Owner {
    fn with_log<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Log) -> R + Send + 'static,
    ) -> Option<R> {
        Some(work(&mut self.0.lock()))
    }
}

struct Unhurried;

impl IoPace for Unhurried {
    fn on_io(&self, _: u64) -> Result<(), CleaningStopped> {
        Ok(())
    }
}

fn run(dir: &Path, segment_bytes: u64, times: &[String]) {
    let log = open(dir, segment_bytes);
    let reader = log.reader();
    let owner = Owner(Mutex::new(log));
    for now in times {
        let now = Timestamp(now.parse().expect("a time"));
        let to_clean = LogToClean::examine(&reader, None, now).expect("a readable log");
        let params = CleanerParams {
            dedupe_buffer_bytes: 128 * 1024 * 1024,
            load_factor: 0.9,
            io_buffer_bytes: 256 * 1024,
            hash_key: [1, 2],
            now,
        };
        let (started, cpu_before) = (Instant::now(), cpu_ms());
        let unlink = |job: ottla_log::UnlinkJob| job.run().expect("files to unlink");
        let cleaned = clean(&reader, &to_clean, &owner, &Unhurried, &params, unlink);
        let (end, stats) = cleaned.expect("a cleaned log");
        println!(
            "to={} elapsed_ms={} cpu_ms={} read={} written={}",
            end,
            started.elapsed().as_millis(),
            cpu_ms() - cpu_before,
            stats.bytes_read,
            stats.bytes_written
        );
    }
    owner.0.into_inner().close().expect("a close");
}

/// User and system time of this process so far.
fn cpu_ms() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("a /proc");
    let fields = stat.rsplit(')').next().expect("fields behind the name");
    let ticks = |at: usize| -> u64 {
        let field = fields.split_whitespace().nth(at);
        field
            .expect("the times of a process")
            .parse()
            .expect("a number")
    };
    // utime and stime, fields 14 and 15, in hundredths of a second.
    (ticks(11) + ticks(12)) * 10
}
