//! The generator's own cost per record: its value and key, its due time, and recording its latency.
//! A run cannot be faster than this, and its measurements include this cost.
//!
//! `cargo bench -p ottla-bench --bench workload`

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use ottla_bench::workload::keys::{KeyDistribution, Keys};
use ottla_bench::workload::latencies::Latencies;
use ottla_bench::workload::pacing::{Pacer, RunClock, Schedule};
use ottla_bench::workload::values::{Content, ValueSizes, ValueSource, Values};

/// Records per iteration.
const RECORDS: u64 = 10_000;
/// Far more than the loops below reach, so that they never wait for their schedule.
const RECORDS_PER_SECOND: f64 = 1e12;

fn values(text: &str) -> Values {
    let sizes = ValueSizes::parse(text).expect("sizes");
    ValueSource::random(Content::Letters, sizes, 0, u64::MAX).values(0, 0)
}

/// Reads as much of a value as copying it into a batch does.
fn read(value: &[u8]) -> u64 {
    let words = value.chunks_exact(8);
    words
        .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")))
        .fold(0, u64::wrapping_add)
}

fn each_part(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("generator, per record");
    group.throughput(Throughput::Elements(RECORDS));
    for sizes in ["100", "0-1800"] {
        let mut values = values(sizes);
        group.bench_function(BenchmarkId::new("value", sizes), |bench| {
            bench.iter(|| {
                for record in 0..RECORDS {
                    black_box(values.next(record));
                }
            });
        });
    }
    let mut keys = Keys::new(KeyDistribution::Random(1_000_000), 0, 0);
    group.bench_function("key", |bench| {
        bench.iter(|| {
            for record in 0..RECORDS {
                black_box(keys.next(record));
            }
        });
    });
    for (name, schedule) in [
        ("as fast as possible", None),
        ("at a rate", Some(Schedule::new(RECORDS_PER_SECOND, 1, 0))),
    ] {
        let mut pacer = Pacer::new(RunClock::start(), schedule);
        group.bench_function(BenchmarkId::new("pacing", name), |bench| {
            bench.iter(|| {
                for _ in 0..RECORDS {
                    black_box(pacer.wait_for_turn());
                }
            });
        });
    }
    let mut latencies = Latencies::default();
    group.bench_function("histogram", |bench| {
        bench.iter(|| {
            for record in 0..RECORDS {
                latencies.record_ns(black_box(1_000_000 + record * 100));
            }
        });
    });
}

fn everything(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("generator, all of it");
    group.throughput(Throughput::Elements(RECORDS));
    let mut values = values("100");
    let clock = RunClock::start();
    let mut pacer = Pacer::new(clock, Some(Schedule::new(RECORDS_PER_SECOND, 1, 0)));
    let (mut from_due, mut from_sent) = (Latencies::default(), Latencies::default());
    group.bench_function("100 bytes, at a rate, two histograms", |bench| {
        bench.iter(|| {
            for record in 0..RECORDS {
                let moment = pacer.wait_for_turn();
                black_box(read(values.next(record)));
                from_due.record_ns(moment.sent - moment.due + 1_000_000);
                from_sent.record_ns(1_000_000 + record);
            }
        });
    });
}

criterion_group!(benches, each_part, everything);
criterion_main!(benches);
