//! The cost of recovery after a kill without the rest of a broker, for a profiler:
//!
//! - `recover fill DIR LOGS BYTES_PER_LOG BATCH_BYTES SEGMENT_BYTES [PRODUCERS]`: logs as a killed
//!   Kafka leaves them, with preallocated indexes.
//! - `recover run DIR THREADS`: recovers all of them from their start and prints the time.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use ottla_config::TopicConfig;
use ottla_log::{Log, OpenParams};
use ottla_records::{Compression, RecordBatchBuilder};
use ottla_types::{
    LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp, TopicPartition,
};

const NOW: Timestamp = Timestamp(1_700_000_000_000);
/// `segment.index.bytes`
const SIZED_AHEAD: u64 = 10 * 1024 * 1024;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| {
        arguments
            .get(at)
            .map_or(0, |text| text.parse().expect("a number"))
    };
    let dir = Path::new(&arguments[1]);
    match arguments[0].as_str() {
        "fill" => (0..number(2))
            .for_each(|log| fill(dir, log, number(3), number(4), number(5), number(6))),
        "run" => run(dir, number(2)),
        other => panic!("no command {other}"),
    }
}

fn open(dir: &Path, segment_bytes: usize, clean_shutdown: bool) -> Log {
    let config = TopicConfig {
        segment_bytes: segment_bytes as i32,
        ..TopicConfig::default()
    };
    let opened = Log::open(OpenParams {
        dir: dir.to_owned(),
        topic_partition: TopicPartition::new("recovered", 0),
        config: Arc::new(config),
        recovery_point: Offset(0),
        log_start_offset: Offset(0),
        clean_shutdown,
        now: NOW,
        producer_id_expiration_ms: 86_400_000,
        random_seed: 1,
        handles: ottla_log::Handles::unlimited(),
        checkpoint_marks: Arc::default(),
    });
    opened.expect("a log").0
}

fn fill(
    dir: &Path,
    log: usize,
    bytes: usize,
    batch_bytes: usize,
    segment_bytes: usize,
    producers: usize,
) {
    let dir = dir.join(format!("recovered-{log}"));
    let mut log = open(&dir, segment_bytes, true);
    let value = vec![b'v'; batch_bytes / 16];
    let mut written = 0;
    for n in 0.. {
        let mut batch = RecordBatchBuilder::new(Compression::None)
            .base_offset(log.log_end_offset())
            .partition_leader_epoch(LeaderEpoch(0));
        if producers > 0 {
            let id = ProducerId((n % producers) as i64);
            batch = batch.producer(id, ProducerEpoch(0), Sequence((n / producers * 16) as i32));
        }
        for _ in 0..16 {
            batch.append(NOW, None, Some(&value), &[]);
        }
        let batch = batch.build();
        written += batch.size_in_bytes();
        log.append(&[batch], NOW).expect("an append");
        if written >= bytes {
            break;
        }
    }
    let last = *log
        .reader()
        .segment_base_offsets()
        .last()
        .expect("a segment");
    drop(log);
    for suffix in ["index", "timeindex"] {
        let path = dir.join(format!("{:020}.{suffix}", last.0));
        let file = std::fs::File::options()
            .create(true)
            .write(true)
            .truncate(true)
            .open(path);
        file.and_then(|file| file.set_len(SIZED_AHEAD))
            .expect("an index");
    }
}

fn run(dir: &Path, threads: usize) {
    let logs = std::fs::read_dir(dir).expect("a directory");
    let logs: Vec<_> = logs.map(|log| log.expect("an entry").path()).collect();
    let next = AtomicUsize::new(0);
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(log) = logs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    drop(open(log, 1 << 30, false));
                }
            });
        }
    });
    println!(
        "logs={} elapsed_ms={}",
        logs.len(),
        started.elapsed().as_millis()
    );
}
