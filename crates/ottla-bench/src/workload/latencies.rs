//! Distributions of latencies.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Latencies from 0.1 µs to minutes with three significant digits, in an HDR histogram.
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

const LONGEST_NS: u64 = 600_000_000_000;

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies(Histogram::new_with_bounds(100, LONGEST_NS, 3).expect("the bounds are sound"))
    }
}

impl Latencies {
    pub fn record(&mut self, latency: Duration) {
        self.record_ns(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    #[inline]
    pub fn record_ns(&mut self, nanoseconds: u64) {
        self.0.saturating_record(nanoseconds);
    }

    /// Adds several records with the same latency, such as records of a batch that were sent with
    /// one clock reading.
    #[inline]
    pub fn record_many_ns(&mut self, nanoseconds: u64, count: u64) {
        self.0.saturating_record_n(nanoseconds, count);
    }

    pub fn add(&mut self, other: &Latencies) {
        self.0.add(&other.0).expect("all have the same bounds");
    }

    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Removes all records; the histogram's own `clear` keeps the maximum.
    pub fn clear(&mut self) {
        self.0.reset();
    }

    /// The latency that this fraction of the records does not exceed.
    pub fn at_quantile_ns(&self, quantile: f64) -> u64 {
        self.0.value_at_quantile(quantile)
    }

    pub fn mean_ns(&self) -> f64 {
        self.0.mean()
    }

    pub fn max_ns(&self) -> u64 {
        self.0.max()
    }

    /// The underlying histogram, in nanoseconds.
    pub fn histogram(&self) -> &Histogram<u64> {
        &self.0
    }

    pub fn report(&self) -> Option<LatencyReport> {
        let microseconds = |nanoseconds: u64| nanoseconds as f64 / 1000.0;
        let quantile = |quantile: f64| microseconds(self.0.value_at_quantile(quantile));
        (!self.0.is_empty()).then(|| LatencyReport {
            count: self.0.len(),
            mean_us: self.0.mean() / 1000.0,
            min_us: microseconds(self.0.min()),
            p50_us: quantile(0.5),
            p90_us: quantile(0.9),
            p99_us: quantile(0.99),
            p99_9_us: quantile(0.999),
            p99_99_us: quantile(0.9999),
            max_us: microseconds(self.0.max()),
        })
    }
}

/// A distribution in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LatencyReport {
    pub count: u64,
    pub mean_us: f64,
    pub min_us: f64,
    pub p50_us: f64,
    pub p90_us: f64,
    pub p99_us: f64,
    pub p99_9_us: f64,
    pub p99_99_us: f64,
    pub max_us: f64,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Latencies;

    #[test]
    fn an_interval_starts_empty() {
        let mut interval = Latencies::default();
        interval.record(Duration::from_millis(500));
        interval.clear();
        interval.record(Duration::from_millis(2));
        assert!(interval.max_ns() < 2_100_000, "{}", interval.max_ns());
    }

    #[test]
    fn quantiles_match_recorded_values() {
        let mut all = Latencies::default();
        assert!(all.report().is_none());
        for microseconds in 1..=1000 {
            let mut one = Latencies::default();
            one.record(Duration::from_micros(microseconds));
            all.add(&one);
        }
        let report = all.report().unwrap();
        assert_eq!(report.count, 1000);
        for (value, expected) in [
            (report.p50_us, 500.0),
            (report.p99_us, 990.0),
            (report.max_us, 1000.0),
            (report.mean_us, 500.5),
        ] {
            assert!(
                (value - expected).abs() / expected < 0.002,
                "{value} {expected}"
            );
        }
    }

    #[test]
    fn values_above_the_range_count_as_its_maximum() {
        let mut latencies = Latencies::default();
        latencies.record(Duration::from_secs(100_000));
        assert_eq!(latencies.report().unwrap().count, 1);
    }
}
