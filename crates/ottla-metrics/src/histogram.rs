//! A latency histogram in microseconds. Each core records into its own shard without locks.
//!
//! Each power of two has eight buckets, so a quantile is at most 12.5 % above the measured value.
//! Quantiles cover the last few minutes, as in Kafka. Kafka's histograms decay exponentially; these
//! cover the current and the previous window ([`Histogram::on_window_ended`]).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ottla_sync::Mutex;

use crate::sharded::Sharded;

/// Buckets per power of two, as a base-2 logarithm.
const SUB_BITS: u32 = 3;
const SUB: u64 = 1 << SUB_BITS;
/// Values above 2^36 µs, about 19 hours, fall into the last bucket.
const MAX_BITS: u32 = 36;
const BUCKETS: usize = ((MAX_BITS - SUB_BITS + 1) as usize) << SUB_BITS;

/// The bucket index of a value.
fn bucket_of(micros: u64) -> usize {
    if micros < SUB {
        return micros as usize;
    }
    let exponent = 63 - micros.leading_zeros();
    let bucket = (((exponent - SUB_BITS + 1) as u64) << SUB_BITS)
        + ((micros >> (exponent - SUB_BITS)) & (SUB - 1));
    (bucket as usize).min(BUCKETS - 1)
}

/// The largest value that falls into a bucket.
fn upper_bound(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < SUB {
        return bucket;
    }
    let exponent = (bucket >> SUB_BITS) as u32 - 1;
    (((bucket & (SUB - 1)) + SUB + 1) << exponent) - 1
}

#[derive(Debug)]
struct Buckets {
    counts: [AtomicU64; BUCKETS],
    sum_micros: AtomicU64,
}

impl Default for Buckets {
    fn default() -> Self {
        Buckets {
            counts: [const { AtomicU64::new(0) }; BUCKETS],
            sum_micros: AtomicU64::new(0),
        }
    }
}

/// Bucket counts summed over all cores at one moment.
type Counts = Box<[u64; BUCKETS]>;

#[derive(Debug, Default)]
pub struct Histogram {
    shards: Sharded<Buckets>,
    windows: Mutex<Windows>,
}

/// Counts at the start of the previous and of the current window. `None` means the start of the
/// broker, when all counts were 0.
#[derive(Debug, Default)]
struct Windows {
    previous: Option<Counts>,
    current: Option<Counts>,
}

/// A summary of a histogram.
#[derive(Clone, PartialEq, Debug)]
pub struct Summary {
    /// Number of values since the start.
    pub count: u64,
    /// Sum of the values since the start, in milliseconds.
    pub sum_ms: f64,
    /// [`QUANTILES`] over the last windows, in milliseconds; 0 if they hold no value.
    pub quantiles_ms: [f64; QUANTILES.len()],
}

/// The quantiles of Kafka's JMX histograms, as labels under the JMX exporter's rules.
pub const QUANTILES: [&str; 6] = ["0.50", "0.75", "0.95", "0.98", "0.99", "0.999"];

impl Histogram {
    pub fn record(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let buckets = self.shards.of_this_thread();
        buckets.counts[bucket_of(micros)].fetch_add(1, Ordering::Relaxed);
        buckets.sum_micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Ends the current window. Quantiles then exclude the values before that window.
    pub fn on_window_ended(&self) {
        let now = self.counts();
        let mut windows = self.windows.lock();
        windows.previous = windows.current.replace(now);
    }

    pub fn summary(&self) -> Summary {
        let now = self.counts();
        let count = now.iter().sum();
        let sum_micros: u64 = self
            .shards
            .iter()
            .map(|shard| shard.sum_micros.load(Ordering::Relaxed))
            .fold(0, u64::wrapping_add);
        let windows = self.windows.lock();
        let recent: Vec<u64> = match &windows.previous {
            Some(before) => now.iter().zip(before.iter()).map(|(n, b)| n - b).collect(),
            None => now.to_vec(),
        };
        Summary {
            count,
            sum_ms: sum_micros as f64 / 1000.0,
            quantiles_ms: QUANTILES.map(|quantile| {
                let quantile = quantile.parse().expect("a constant that is a number");
                quantile_micros(&recent, quantile) as f64 / 1000.0
            }),
        }
    }

    fn counts(&self) -> Counts {
        let mut counts = Box::new([0; BUCKETS]);
        for shard in self.shards.iter() {
            for (sum, count) in counts.iter_mut().zip(&shard.counts) {
                *sum += count.load(Ordering::Relaxed);
            }
        }
        counts
    }
}

fn quantile_micros(counts: &[u64], quantile: f64) -> u64 {
    let total: u64 = counts.iter().sum();
    let rank = (quantile * total as f64).ceil().max(1.0) as u64;
    let mut seen = 0;
    for (bucket, count) in counts.iter().enumerate() {
        seen += count;
        if seen >= rank {
            return upper_bound(bucket);
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_at_most_an_eighth_too_large() {
        let mut last = 0;
        for value in (0..4096).chain((12..=35).map(|bits| (1 << bits) + 7)) {
            let bound = upper_bound(bucket_of(value));
            assert!(
                bound >= value,
                "{value} is above the bound {bound} of its bucket"
            );
            assert!(bound - value <= value / 8, "{value} is shown as {bound}");
            assert!(bucket_of(value) >= last);
            last = bucket_of(value);
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_those_of_the_last_two_windows() {
        let histogram = Histogram::default();
        for _ in 0..100 {
            histogram.record(Duration::from_millis(100));
        }
        histogram.on_window_ended();
        for millis in 1..=100 {
            histogram.record(Duration::from_millis(millis) / 10);
        }
        // The first window still counts.
        assert!(histogram.summary().quantiles_ms[4] >= 100.0);
        histogram.on_window_ended();
        let summary = histogram.summary();
        assert_eq!(summary.count, 200);
        assert_eq!(summary.sum_ms, 10_000.0 + 505.0);
        let [p50, .., p999] = summary.quantiles_ms;
        assert!((5.0..=5.7).contains(&p50), "{p50}");
        assert!((10.0..=11.3).contains(&p999), "{p999}");
        histogram.on_window_ended();
        assert_eq!(histogram.summary().quantiles_ms, [0.0; 6]);
    }
}
