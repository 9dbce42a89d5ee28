//! Prints what it costs to validate a produced batch of 100-byte records, by codec:
//! `cargo run --release -p ottla-records --example validation_cost`.
//!
//! The batches are too large for the processor's cache, like batches that arrive from a socket. The
//! best of several rounds is printed. The last column is the maximum time for which one batch
//! occupies a network thread of the broker: a batch of `INLINE_DECOMPRESSED_BYTES` in
//! `ottla-broker`, compressed well enough to be validated on that thread.

// A benchmark measures time. The crate itself uses no clock.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use ottla_records::{
    AppendOrigin, Compression, CompressionType, RecordBatch, RecordBatchBuilder, ValidationBuffers,
    ValidationRules, validate,
};
use ottla_types::Timestamp;

const BATCH_BYTES: usize = 64 * 1024;
/// As `INLINE_DECOMPRESSED_BYTES` in `ottla-broker`.
const LARGEST_BYTES: usize = 1024 * 1024;
const VALUE_BYTES: usize = 100;
const BATCHES: usize = 512;
const ROUNDS: usize = 40;
const NOW: Timestamp = Timestamp(1_700_000_000_000);

/// `fresh` bytes of each value are unique.
fn batch(codec: CompressionType, seed: u64, bytes: usize, fresh: usize) -> RecordBatch {
    let mut builder = RecordBatchBuilder::new(Compression::from(codec)).capacity(bytes);
    let mut state = seed | 1;
    let mut value = [0; VALUE_BYTES];
    while builder.uncompressed_size() + VALUE_BYTES + 20 < bytes {
        for byte in &mut value[..fresh] {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            *byte = b'A' + (state >> 60) as u8;
        }
        builder.append(NOW, None, Some(&value), &[]);
    }
    builder.build()
}

fn best(mut round: impl FnMut()) -> Duration {
    let times = (0..ROUNDS).map(|_| {
        let start = Instant::now();
        round();
        start.elapsed()
    });
    times.min().expect("there are rounds")
}

fn main() {
    println!("{BATCHES} batches of {BATCH_BYTES} bytes, records of {VALUE_BYTES} bytes");
    println!(
        "codec    crc GB/s  validate GB/s  ns/record (with crc)  ns/record (without crc)  largest inline, ms"
    );
    for codec in CompressionType::ALL {
        let batches: Vec<RecordBatch> = (0..BATCHES)
            .map(|i| batch(codec, i as u64, BATCH_BYTES, VALUE_BYTES))
            .collect();
        let records: i64 = batches
            .iter()
            .map(|batch| i64::from(batch.header.record_count))
            .sum();
        let stored: usize = batches.iter().map(RecordBatch::size_in_bytes).sum();
        let mut buffers = ValidationBuffers::default();
        let rules = ValidationRules::default();
        let crc = best(|| {
            for batch in &batches {
                black_box(batch.verify_crc()).expect("the checksum is right");
            }
        });
        let whole = best(|| {
            for batch in &batches {
                let origin = AppendOrigin::Client;
                let result = validate(batch.clone(), &rules, origin, &"t-0", NOW, &mut buffers);
                black_box(result).expect("the batch is valid");
            }
        });
        let large = batch(codec, 1, LARGEST_BYTES, 4);
        let largest = best(|| {
            let origin = AppendOrigin::Client;
            let result = validate(large.clone(), &rules, origin, &"t-0", NOW, &mut buffers);
            black_box(result).expect("the batch is valid");
        });
        let per_record = |time: Duration| time.as_nanos() as f64 / records as f64;
        println!(
            "{:8} {:8.1} {:14.2} {:21.2} {:24.2} {:19.2}",
            codec.name(),
            stored as f64 / crc.as_nanos() as f64,
            (records as usize * VALUE_BYTES) as f64 / whole.as_nanos() as f64,
            per_record(whole),
            per_record(whole.saturating_sub(crc)),
            largest.as_secs_f64() * 1e3,
        );
    }
}
