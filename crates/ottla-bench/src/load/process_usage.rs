//! What a process has used, from `/proc`: processor time of all its threads, and memory.

use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

/// A reading of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessUsage {
    /// User and system time of all threads, ended ones too; in steps of a clock tick, mostly 10 ms.
    pub cpu: Duration,
    /// `VmRSS`
    pub resident_bytes: u64,
    /// `VmHWM`
    pub peak_resident_bytes: u64,
}

/// What a process used between two readings.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct UsageReport {
    pub cpu_seconds: f64,
    /// Per 10^9 bytes of batches.
    pub cpu_seconds_per_gb: f64,
    /// Per 10^9 bytes of record values.
    pub cpu_seconds_per_payload_gb: f64,
    /// At the end.
    pub resident_bytes: u64,
    /// Since the process started.
    pub peak_resident_bytes: u64,
}

impl ProcessUsage {
    pub fn of(pid: u32) -> Result<ProcessUsage> {
        let missing =
            || format!("there is no process {pid} on this machine; give the broker's --broker-pid");
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).with_context(missing)?;
        let status =
            std::fs::read_to_string(format!("/proc/{pid}/status")).with_context(missing)?;
        let ticks = cpu_ticks(&stat).context("/proc/PID/stat is not as expected")?;
        let tick = rustix::param::clock_ticks_per_second() as f64;
        Ok(ProcessUsage {
            cpu: Duration::from_secs_f64(ticks as f64 / tick),
            resident_bytes: status_bytes(&status, "VmRSS:").unwrap_or(0),
            peak_resident_bytes: status_bytes(&status, "VmHWM:").unwrap_or(0),
        })
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

/// Fields 14 and 15. The second one, the name, may hold spaces and parentheses, so counting starts behind it.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

fn status_bytes(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{ProcessUsage, cpu_ticks, status_bytes};

    #[test]
    fn fields_are_found_behind_a_strange_name() {
        let stat = "7 (a) b (c) S 1 1 1 0 -1 4194304 100 0 0 0 250 17 3 4 20 0 5 0 1000 9 8";
        assert_eq!(cpu_ticks(stat), Some(267));
        assert_eq!(cpu_ticks("7 (x) S 1"), None);
        assert_eq!(
            status_bytes("VmPeak:  9 kB\nVmRSS:\t  12 kB\n", "VmRSS:"),
            Some(12 * 1024)
        );
    }

    #[test]
    fn work_shows_up() {
        let before = ProcessUsage::of_this_process().unwrap();
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(200) {
            std::hint::spin_loop();
        }
        let after = ProcessUsage::of_this_process().unwrap();
        let report = after.since(&before, 1_000_000_000, 500_000_000);
        assert!(report.cpu_seconds > 0.0 && report.resident_bytes > 0);
        assert!((report.cpu_seconds_per_payload_gb - 2.0 * report.cpu_seconds_per_gb).abs() < 1e-9);
        assert!(ProcessUsage::of(0x3fff_ffff).is_err());
    }
}
