//! Resource usage of a process, from `/proc`: CPU time of all its threads, and memory.

use std::time::Duration;

use anyhow::{Context, Result};
use procfs::process::Process;
use serde::Serialize;

/// The resource usage of a process at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ProcessUsage {
    /// User and system time of all threads, including exited ones, with the resolution of a clock
    /// tick, usually 10 ms.
    pub cpu: Duration,
    /// `VmRSS`
    pub resident_bytes: u64,
    /// `VmHWM`
    pub peak_resident_bytes: u64,
    pub minor_page_faults: u64,
    pub major_page_faults: u64,
    /// Bytes read from disks; 0 if the system does not report them.
    pub disk_read_bytes: u64,
    /// Bytes written to disks, including those still in the page cache.
    pub disk_written_bytes: u64,
    /// Voluntary context switches of the threads that currently exist.
    pub voluntary_switches: u64,
    pub involuntary_switches: u64,
}

/// The resource usage of a process between two readings.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct UsageReport {
    pub cpu_seconds: f64,
    /// Per 10^9 bytes of batches.
    pub cpu_seconds_per_gb: f64,
    /// Per 10^9 bytes of record values.
    pub cpu_seconds_per_payload_gb: f64,
    /// Resident memory at the end.
    pub resident_bytes: u64,
    /// Peak resident memory since the process started.
    pub peak_resident_bytes: u64,
}

impl ProcessUsage {
    pub fn of(pid: u32) -> Result<ProcessUsage> {
        let missing =
            || format!("there is no process {pid} on this machine; give the broker's --broker-pid");
        let process = Process::new(pid.cast_signed()).with_context(missing)?;
        let (stat, status) = (process.stat()?, process.status()?);
        let (disk_read_bytes, disk_written_bytes) = match process.io() {
            Ok(io) => (io.read_bytes, io.write_bytes),
            Err(_) => (0, 0),
        };
        let (voluntary_switches, involuntary_switches) = switches(&process);
        let tick = procfs::ticks_per_second() as f64;
        Ok(ProcessUsage {
            cpu: Duration::from_secs_f64((stat.utime + stat.stime) as f64 / tick),
            resident_bytes: status.vmrss.unwrap_or(0) * 1024,
            peak_resident_bytes: status.vmhwm.unwrap_or(0) * 1024,
            minor_page_faults: stat.minflt,
            major_page_faults: stat.majflt,
            disk_read_bytes,
            disk_written_bytes,
            voluntary_switches,
            involuntary_switches,
        })
    }

    /// The sum of both.
    pub fn plus(&self, other: &ProcessUsage) -> ProcessUsage {
        ProcessUsage {
            cpu: self.cpu + other.cpu,
            resident_bytes: self.resident_bytes + other.resident_bytes,
            peak_resident_bytes: self.peak_resident_bytes + other.peak_resident_bytes,
            minor_page_faults: self.minor_page_faults + other.minor_page_faults,
            major_page_faults: self.major_page_faults + other.major_page_faults,
            disk_read_bytes: self.disk_read_bytes + other.disk_read_bytes,
            disk_written_bytes: self.disk_written_bytes + other.disk_written_bytes,
            voluntary_switches: self.voluntary_switches + other.voluntary_switches,
            involuntary_switches: self.involuntary_switches + other.involuntary_switches,
        }
    }

    pub fn of_this_process() -> Result<ProcessUsage> {
        ProcessUsage::of(std::process::id())
    }

    pub fn since(&self, before: &ProcessUsage, bytes: u64, payload_bytes: u64) -> UsageReport {
        let cpu_seconds = self.cpu.saturating_sub(before.cpu).as_secs_f64();
        UsageReport {
            cpu_seconds,
            cpu_seconds_per_gb: cpu_seconds / (bytes as f64 / 1e9),
            cpu_seconds_per_payload_gb: cpu_seconds / (payload_bytes as f64 / 1e9),
            resident_bytes: self.resident_bytes,
            peak_resident_bytes: self.peak_resident_bytes,
        }
    }
}

/// Voluntary and involuntary context switches of all threads.
fn switches(process: &Process) -> (u64, u64) {
    let threads = process.tasks().into_iter().flatten().flatten();
    threads
        .filter_map(|thread| thread.status().ok())
        .fold((0, 0), |(voluntary, forced), status| {
            (
                voluntary + status.voluntary_ctxt_switches.unwrap_or(0),
                forced + status.nonvoluntary_ctxt_switches.unwrap_or(0),
            )
        })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::ProcessUsage;

    #[test]
    fn cpu_time_is_measured() {
        let before = ProcessUsage::of_this_process().unwrap();
        // The kernel counts in ticks, and a busy machine may give this thread few of them.
        let deadline = Instant::now() + Duration::from_secs(60);
        let after = loop {
            let now = ProcessUsage::of_this_process().unwrap();
            if now.cpu > before.cpu {
                break now;
            }
            assert!(Instant::now() < deadline, "no time is counted");
        };
        let report = after.since(&before, 1_000_000_000, 500_000_000);
        assert!(report.cpu_seconds > 0.0 && report.resident_bytes > 0);
        assert!(after.minor_page_faults > 0 && after.voluntary_switches > 0);
        assert_eq!(after.plus(&after).resident_bytes, 2 * after.resident_bytes);
        assert!((report.cpu_seconds_per_payload_gb - 2.0 * report.cpu_seconds_per_gb).abs() < 1e-9);
        assert!(ProcessUsage::of(0x3fff_ffff).is_err());
    }
}
