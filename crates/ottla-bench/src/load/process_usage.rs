//! Resource usage of a process, from `/proc`: CPU time of all its threads, and memory.

use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

/// A reading of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ProcessUsage {
    /// User and system time of all threads, ended ones too; in steps of a clock tick, mostly 10 ms.
    pub cpu: Duration,
    /// `VmRSS`
    pub resident_bytes: u64,
    /// `VmHWM`
    pub peak_resident_bytes: u64,
    pub minor_page_faults: u64,
    pub major_page_faults: u64,
    /// Bytes read from disks; 0 if the system does not report them.
    pub disk_read_bytes: u64,
    /// Bytes written to disks, sooner or later.
    pub disk_written_bytes: u64,
    /// Of the threads that run now.
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
        let io = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
        let (voluntary_switches, involuntary_switches) = switches(pid);
        let tick = rustix::param::clock_ticks_per_second() as f64;
        Ok(ProcessUsage {
            cpu: Duration::from_secs_f64(ticks as f64 / tick),
            resident_bytes: status_bytes(&status, "VmRSS:").unwrap_or(0),
            peak_resident_bytes: status_bytes(&status, "VmHWM:").unwrap_or(0),
            minor_page_faults: stat_field(&stat, 7).unwrap_or(0),
            major_page_faults: stat_field(&stat, 9).unwrap_or(0),
            disk_read_bytes: number_after(&io, "read_bytes:").unwrap_or(0),
            disk_written_bytes: number_after(&io, "\nwrite_bytes:").unwrap_or(0),
            voluntary_switches,
            involuntary_switches,
        })
    }

    /// Both together, as of one.
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

/// User and system time.
fn cpu_ticks(stat: &str) -> Option<u64> {
    Some(stat_field(stat, 11)? + stat_field(stat, 12)?)
}

/// The first two fields are the process ID and the name, and the name may contain spaces and parentheses, so counting
/// starts after it.
fn stat_field(stat: &str, index_after_name: usize) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace();
    fields.nth(index_after_name)?.parse().ok()
}

/// Context switches of all threads: voluntary ones, and those that were forced.
fn switches(pid: u32) -> (u64, u64) {
    let mut total = (0, 0);
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return total;
    };
    for thread in threads.flatten() {
        let status = std::fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        let count = |name| number_after(&status, name).unwrap_or(0);
        total.0 += count("\nvoluntary_ctxt_switches:");
        total.1 += count("\nnonvoluntary_ctxt_switches:");
    }
    total
}

fn number_after(text: &str, name: &str) -> Option<u64> {
    let (_, rest) = text.split_once(name)?;
    rest.split_whitespace().next()?.parse().ok()
}

fn status_bytes(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{ProcessUsage, cpu_ticks, number_after, stat_field, status_bytes};

    #[test]
    fn fields_are_found_behind_a_strange_name() {
        let stat = "7 (a) b (c) S 1 1 1 0 -1 4194304 100 0 0 0 250 17 3 4 20 0 5 0 1000 9 8";
        assert_eq!(cpu_ticks(stat), Some(267));
        assert_eq!(cpu_ticks("7 (x) S 1"), None);
        assert_eq!(
            (stat_field(stat, 7), stat_field(stat, 9)),
            (Some(100), Some(0))
        );
        let io = "rchar: 9\nread_bytes: 5\nwrite_bytes: 7\ncancelled_write_bytes: 8\n";
        assert_eq!(number_after(io, "\nwrite_bytes:"), Some(7));
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
        assert!(after.minor_page_faults > 0 && after.voluntary_switches > 0);
        assert_eq!(after.plus(&after).resident_bytes, 2 * after.resident_bytes);
        assert!((report.cpu_seconds_per_payload_gb - 2.0 * report.cpu_seconds_per_gb).abs() < 1e-9);
        assert!(ProcessUsage::of(0x3fff_ffff).is_err());
    }
}
