//! The cost of an append and a read beyond the bare write: `cargo run --release -p ottla-log
//! --example cost`.
//!
//! Appends batches of 8 and 64 KiB to a log and writes the same bytes to a plain file, interleaved,
//! and prints nanoseconds per batch for both; then the cost of finding a region at the end and in
//! the middle of the log. Memory and page cache are warmed first.

use std::fs::File;
use std::io::IoSlice;
use std::sync::Arc;
use std::time::Instant;

use ottla_config::TopicConfig;
use ottla_log::{Log, OpenParams};
use ottla_records::{Compression, RecordBatch, RecordBatchBuilder};
use ottla_types::{Offset, Timestamp, TopicPartition};

const TOTAL: usize = 1 << 30;
const ROUNDS: usize = 5;

fn main() {
    let dir = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "target/log-cost".to_owned());
    for size in [8 * 1024, 64 * 1024] {
        let mut logs = Vec::new();
        let mut bares = Vec::new();
        // The first round warms the memory and is not counted.
        for round in 0..=ROUNDS {
            let _ = std::fs::remove_dir_all(&dir);
            std::fs::create_dir_all(&dir).expect("a directory to write to");
            let log = append(&dir, size, round == ROUNDS);
            let bare = write(&dir, size);
            if round > 0 {
                logs.push(log);
                bares.push(bare);
            }
        }
        logs.sort_unstable();
        bares.sort_unstable();
        println!(
            "{} KiB: log {} ns/batch, bare pwritev {} ns/batch (medians of {ROUNDS})",
            size / 1024,
            logs[ROUNDS / 2],
            bares[ROUNDS / 2]
        );
    }
    let _ = std::fs::remove_dir_all(&dir);
}

fn batch(size: usize) -> RecordBatch {
    let mut builder = RecordBatchBuilder::new(Compression::None);
    let value = vec![7; size - 61 - 20];
    builder.append(Timestamp(1), None, Some(&value), &[]);
    builder.build()
}

fn append(dir: &str, size: usize, measure_reads: bool) -> u128 {
    let (mut log, _) = Log::open(OpenParams {
        dir: std::path::Path::new(dir).join("cost-0"),
        topic_partition: TopicPartition::new("cost", 0),
        config: Arc::new(TopicConfig::default()),
        recovery_point: Offset(0),
        log_start_offset: Offset(0),
        clean_shutdown: true,
        now: Timestamp(1),
        producer_id_expiration_ms: 86_400_000,
        random_seed: 1,
        handles: ottla_log::Handles::unlimited(),
        checkpoint_marks: Arc::default(),
    })
    .expect("a log");
    let mut batch = batch(size);
    let count = TOTAL / size - 1;
    let started = Instant::now();
    for offset in 0..count {
        batch.assign_offset(Offset(offset as i64), 0.into());
        log.append(std::slice::from_ref(&batch), Timestamp(1))
            .expect("an append");
        log.set_high_watermark(Offset(offset as i64 + 1));
    }
    let cost = started.elapsed().as_nanos() / count as u128;
    if measure_reads {
        let reader = log.reader();
        let end = reader.log_end_offset();
        for (name, back) in [("at the end", 3), ("in the middle", count as i64 / 2)] {
            let from = Offset(end.0 - back);
            let rounds = 100_000;
            let started = Instant::now();
            for _ in 0..rounds {
                let found = reader.read(from, 1 << 20, end, true).expect("a read");
                assert!(!found.is_empty());
            }
            let cost = started.elapsed().as_nanos() / rounds;
            println!("{} KiB: finding a region {name}: {cost} ns", size / 1024);
        }
    }
    cost
}

fn write(dir: &str, size: usize) -> u128 {
    let file = File::create(std::path::Path::new(dir).join("bare")).expect("a file");
    let batch = batch(size);
    let count = TOTAL / size - 1;
    let started = Instant::now();
    let mut position = 0;
    for _ in 0..count {
        let header = batch.header.to_bytes();
        let slices = [IoSlice::new(&header), IoSlice::new(batch.body())];
        position += rustix::io::pwritev(&file, &slices, position).expect("a write") as u64;
    }
    started.elapsed().as_nanos() / count as u128
}
