//! The result of a run, as JSON and as a table.

use std::fmt;

use serde::Serialize;

use super::process_usage::UsageReport;
use crate::workload::latencies::LatencyReport;

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
    /// Bytes of batches with their headers, as sent on the wire.
    pub bytes: u64,
    /// Bytes of record values; `None` if records are not parsed.
    pub payload_bytes: Option<u64>,
    pub records_per_second: f64,
    /// 10^6 bytes of batches per second.
    pub megabytes_per_second: f64,
    /// The operation whose latency is measured.
    pub latency_of: &'static str,
    pub latency: Option<LatencyReport>,
    /// A second distribution, if the mode has one.
    pub acknowledgement_latency: Option<LatencyReport>,
    /// Resource usage of the broker's process, if given.
    pub broker: Option<UsageReport>,
    /// CPU seconds of the machine without this process per 10^9 bytes of batches, until they are on the
    /// disk, if asked for.
    pub rest_of_machine_cpu_seconds_per_gb: Option<f64>,
    /// Resource usage of this process.
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
        if let Some(cpu) = self.rest_of_machine_cpu_seconds_per_gb {
            show_rest_of_machine(f, cpu)?;
        }
        show_usage(f, "this tool", &self.generator)
    }
}

/// Writes a line with percentiles.
pub(super) fn show_latency(
    f: &mut fmt::Formatter<'_>,
    of: &str,
    latency: &LatencyReport,
) -> fmt::Result {
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

/// Writes a line with the CPU time of the machine without this process.
pub(super) fn show_rest_of_machine(f: &mut fmt::Formatter<'_>, per_gb: f64) -> fmt::Result {
    writeln!(
        f,
        "  machine without this tool: {per_gb:.3} CPU s per GB, until all is on the disk"
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
