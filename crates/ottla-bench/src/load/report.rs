//! What a run found out, for programs (JSON) and for people (a table).

use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::process_usage::UsageReport;

/// Latencies, from a microsecond to minutes with three digits.
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
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.0.saturating_record(nanoseconds);
    }

    pub fn add(&mut self, other: &Latencies) {
        self.0.add(&other.0).expect("all have the same bounds");
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

/// One run of one mode.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub mode: &'static str,
    pub bootstrap: String,
    pub topic: String,
    pub partitions: usize,
    pub connections: usize,
    pub seconds: f64,
    pub requests: u64,
    pub records: u64,
    /// Of batches with their headers, as they went over the wire.
    pub bytes: u64,
    /// Of record values; unknown where records are not looked at.
    pub payload_bytes: Option<u64>,
    pub records_per_second: f64,
    /// 10^6 bytes of batches per second.
    pub megabytes_per_second: f64,
    /// What the latencies are of.
    pub latency_of: &'static str,
    pub latency: Option<LatencyReport>,
    /// A second distribution where the mode has one.
    pub acknowledgement_latency: Option<LatencyReport>,
    /// The broker's process, where it was given.
    pub broker: Option<UsageReport>,
    /// This process.
    pub generator: UsageReport,
}

impl Report {
    pub fn set_records(&mut self, records: u64) {
        self.records = records;
        self.records_per_second = records as f64 / self.seconds;
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} against {}, topic {} with {} partitions, {} connections",
            self.mode, self.bootstrap, self.topic, self.partitions, self.connections
        )?;
        writeln!(
            f,
            "  {:.2} s  {} requests  {} records  {:.1} MB",
            self.seconds,
            self.requests,
            self.records,
            self.bytes as f64 / 1e6
        )?;
        writeln!(
            f,
            "  {:.0} records/s  {:.1} MB/s",
            self.records_per_second, self.megabytes_per_second
        )?;
        if let Some(latency) = &self.latency {
            show_latency(f, self.latency_of, latency)?;
        }
        if let Some(latency) = &self.acknowledgement_latency {
            show_latency(f, "send to acknowledgement", latency)?;
        }
        if let Some(broker) = &self.broker {
            show_usage(f, "broker", broker)?;
        }
        show_usage(f, "this tool", &self.generator)
    }
}

fn show_latency(f: &mut fmt::Formatter<'_>, of: &str, latency: &LatencyReport) -> fmt::Result {
    writeln!(
        f,
        "  {of}, µs: p50 {:.0}  p90 {:.0}  p99 {:.0}  p99.9 {:.0}  p99.99 {:.0}  max {:.0}  mean {:.0}",
        latency.p50_us,
        latency.p90_us,
        latency.p99_us,
        latency.p99_9_us,
        latency.p99_99_us,
        latency.max_us,
        latency.mean_us
    )
}

fn show_usage(f: &mut fmt::Formatter<'_>, whose: &str, usage: &UsageReport) -> fmt::Result {
    writeln!(
        f,
        "  {whose}: {:.2} CPU s, {:.3} per GB; {:.1} MiB resident, {:.1} MiB at most",
        usage.cpu_seconds,
        usage.cpu_seconds_per_gb,
        usage.resident_bytes as f64 / f64::from(1 << 20),
        usage.peak_resident_bytes as f64 / f64::from(1 << 20)
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Latencies;

    #[test]
    fn quantiles_are_of_what_was_recorded() {
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
    fn what_is_off_the_scale_is_counted_at_its_end() {
        let mut latencies = Latencies::default();
        latencies.record(Duration::from_secs(100_000));
        assert_eq!(latencies.report().unwrap().count, 1);
    }
}
