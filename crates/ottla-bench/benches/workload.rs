//! The generator's own cost per record: its value and key, its due time, and recording its latency.
//! A run cannot be faster than this, and its measurements include this cost.
//!
//! `cargo bench -p ottla-bench --bench workload` prints the median and the spread of several rounds.

use std::hint::black_box;
use std::time::{Duration, Instant};

use ottla_bench::workload::keys::{KeyDistribution, Keys};
use ottla_bench::workload::latencies::Latencies;
use ottla_bench::workload::pacing::{Pacer, RunClock, Schedule};
use ottla_bench::workload::values::{Content, ValueSizes, ValueSource, Values};

const ROUNDS: usize = 15;
const ROUND: Duration = Duration::from_millis(100);
/// Records between two reads of the clock.
const RECORDS: u32 = 10_000;
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

fn main() {
    for sizes in ["100", "0-1800"] {
        let mut values = values(sizes);
        measure(&format!("value, {sizes} bytes"), |record| {
            black_box(values.next(record));
        });
    }
    let mut keys = Keys::new(KeyDistribution::Random(1_000_000), 0, 0);
    measure("key", |record| {
        black_box(keys.next(record));
    });
    for (name, schedule) in [
        ("pacing, as fast as possible", None),
        (
            "pacing, at a rate",
            Some(Schedule::new(RECORDS_PER_SECOND, 1, 0)),
        ),
    ] {
        let mut pacer = Pacer::new(RunClock::start(), schedule);
        measure(name, |_| {
            black_box(pacer.wait_for_turn());
        });
    }
    let mut latencies = Latencies::default();
    measure("histogram", |record| {
        latencies.record_ns(black_box(1_000_000 + record * 100));
    });

    let mut values = values("100");
    let mut pacer = Pacer::new(
        RunClock::start(),
        Some(Schedule::new(RECORDS_PER_SECOND, 1, 0)),
    );
    let (mut from_due, mut from_sent) = (Latencies::default(), Latencies::default());
    measure("all: 100 bytes, at a rate, two histograms", |record| {
        let moment = pacer.wait_for_turn();
        black_box(read(values.next(record)));
        from_due.record_ns(moment.sent - moment.due + 1_000_000);
        from_sent.record_ns(1_000_000 + record);
    });
}

/// Calls `operation` with the numbers of records from 0 on, again and again.
fn measure(name: &str, mut operation: impl FnMut(u64)) {
    let mut round = || {
        let (began, mut count) = (Instant::now(), 0_u32);
        while began.elapsed() < ROUND {
            for record in 0..RECORDS {
                operation(u64::from(record));
            }
            count += RECORDS;
        }
        began.elapsed().as_secs_f64() * 1e9 / f64::from(count)
    };
    round();
    let mut costs: Vec<f64> = (0..ROUNDS).map(|_| round()).collect();
    costs.sort_by(f64::total_cmp);
    let (least, median, most) = (costs[0], costs[ROUNDS / 2], costs[ROUNDS - 1]);
    println!("{name:<44} {median:7.2} ns per record (from {least:.2} to {most:.2})");
}
