//! The machine under the measurement: what a process has used, how much memory there is, and how noisy it is.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Processor time and memory of a process, from `/proc`.
#[derive(Debug, Clone, Copy)]
pub struct ProcessReading {
    pub cpu_seconds: f64,
    resident_kb: u64,
    peak_kb: u64,
}

impl ProcessReading {
    pub fn of(pid: u32) -> Result<ProcessReading> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .with_context(|| format!("process {pid} is gone"))?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        Ok(ProcessReading {
            cpu_seconds: cpu_seconds(&stat, OWN).context("/proc/PID/stat is not as expected")?,
            resident_kb: field_kb(&status, "VmRSS:").context("no VmRSS in /proc/PID/status")?,
            peak_kb: field_kb(&status, "VmHWM:").context("no VmHWM in /proc/PID/status")?,
        })
    }

    pub fn since(&self, before: &ProcessReading) -> ProcessReading {
        ProcessReading {
            cpu_seconds: self.cpu_seconds - before.cpu_seconds,
            ..*self
        }
    }

    /// 10^6 bytes in memory now.
    pub fn resident_mb(&self) -> f64 {
        self.resident_kb as f64 * 1024.0 / 1e6
    }

    pub fn peak_mb(&self) -> f64 {
        self.peak_kb as f64 * 1024.0 / 1e6
    }
}

/// Processor time of all children of this process that have ended.
pub fn cpu_seconds_of_ended_children() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    cpu_seconds(&stat, OF_ENDED_CHILDREN).context("/proc/self/stat is not as expected")
}

/// Fields of `/proc/PID/stat` behind the program's name: in user mode, and in the kernel's behind it.
const OWN: usize = 11;
const OF_ENDED_CHILDREN: usize = 13;

fn cpu_seconds(stat: &str, field: usize) -> Option<f64> {
    // The program's name, in parentheses, may hold spaces; the fields after it do not.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |field: usize| fields.get(field)?.parse::<u64>().ok();
    let ticks = ticks(field)? + ticks(field + 1)?;
    Some(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

fn field_kb(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// Bytes that processes could still use.
pub fn available_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    field_kb(&text, "MemAvailable:").unwrap_or(0) * 1024
}

/// Takes that much memory from the system, writes to every page, and gives it back.
pub fn touch_memory(bytes: u64) -> Result<()> {
    const PIECE: usize = 64 << 20;
    const PAGE: usize = 4096;
    let mut pieces = Vec::new();
    for _ in 0..bytes / PIECE as u64 {
        let mut piece = vec![0u8; PIECE];
        for at in (0..PIECE).step_by(PAGE) {
            piece[at] = 1;
        }
        pieces.push(std::hint::black_box(piece));
    }
    Ok(())
}

/// How long a thread that does nothing but look at the clock was kept from running.
#[derive(Debug, Clone, Copy)]
pub struct Noise {
    pub longest_gap_ms: f64,
    /// Share of the time lost in gaps longer than 0.1 ms.
    pub lost_percent: f64,
}

/// Spins for two seconds.
pub fn noise() -> Noise {
    const LENGTH: Duration = Duration::from_secs(2);
    let began = Instant::now();
    let (mut last, mut longest, mut lost) = (began, Duration::ZERO, Duration::ZERO);
    while last - began < LENGTH {
        let now = Instant::now();
        let gap = now - last;
        longest = longest.max(gap);
        if gap > Duration::from_micros(100) {
            lost += gap;
        }
        last = now;
    }
    Noise {
        longest_gap_ms: longest.as_secs_f64() * 1e3,
        lost_percent: lost.as_secs_f64() / LENGTH.as_secs_f64() * 100.0,
    }
}

/// Processor, cores, memory and kernel.
pub fn description() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or("unknown processor", |(_, name)| name.trim());
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let gib = field_kb(&memory, "MemTotal:").unwrap_or(0) as f64 / (1 << 20) as f64;
    let kernel = rustix::system::uname();
    format!(
        "{model}, {cores} cores, {gib:.0} GiB, Linux {}",
        kernel.release().to_string_lossy()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read_whatever_the_programs_name() {
        let stat = "7 (a b) c) S 1 2 3 4 5 6 7 8 9 10 150 50 30 10 0 0";
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        assert_eq!(cpu_seconds(stat, OWN), Some(200.0 / ticks));
        assert_eq!(cpu_seconds(stat, OF_ENDED_CHILDREN), Some(40.0 / ticks));
        assert_eq!(cpu_seconds("7 (a", OWN), None);
    }

    #[test]
    fn this_process_has_used_memory() {
        let reading = ProcessReading::of(std::process::id()).unwrap();
        assert!(reading.resident_mb() > 0.1 && reading.peak_mb() >= reading.resident_mb());
        assert!(available_memory() > 0);
    }

    #[test]
    fn noise_is_measured() {
        let noise = noise();
        assert!(noise.longest_gap_ms > 0.0 && noise.lost_percent <= 100.0);
    }
}
