//! Process usage, available memory, and noise of the machine under the measurement.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use procfs::process::Process;
use procfs::{CpuInfo, Current, CurrentSI, KernelStats, Meminfo};

/// CPU time and memory of a process, from `/proc`.
#[derive(Debug, Clone, Copy)]
pub struct ProcessReading {
    pub cpu_seconds: f64,
    resident_kb: u64,
    peak_kb: u64,
}

impl ProcessReading {
    pub fn of(pid: u32) -> Result<ProcessReading> {
        let gone = || format!("process {pid} is gone");
        let process = Process::new(pid.cast_signed()).with_context(gone)?;
        let (stat, status) = (process.stat()?, process.status()?);
        Ok(ProcessReading {
            cpu_seconds: seconds(stat.utime + stat.stime),
            resident_kb: status.vmrss.context("no VmRSS in /proc/PID/status")?,
            peak_kb: status.vmhwm.context("no VmHWM in /proc/PID/status")?,
        })
    }

    pub fn since(&self, before: &ProcessReading) -> ProcessReading {
        ProcessReading {
            cpu_seconds: self.cpu_seconds - before.cpu_seconds,
            ..*self
        }
    }

    /// Resident memory in units of 10^6 bytes.
    pub fn resident_mb(&self) -> f64 {
        self.resident_kb as f64 * 1024.0 / 1e6
    }

    pub fn peak_mb(&self) -> f64 {
        self.peak_kb as f64 * 1024.0 / 1e6
    }
}

/// CPU time of all exited children of this process.
pub fn cpu_seconds_of_ended_children() -> Result<f64> {
    let stat = Process::myself()?.stat()?;
    Ok(seconds((stat.cutime + stat.cstime).cast_unsigned()))
}

fn seconds(ticks: u64) -> f64 {
    ticks as f64 / procfs::ticks_per_second() as f64
}

/// The time of all processors since the start of the machine, from `/proc/stat`, in ticks.
#[derive(Debug, Clone, Copy)]
pub struct ProcessorTime {
    idle: u64,
    all: u64,
}

impl ProcessorTime {
    pub fn now() -> Result<ProcessorTime> {
        let total = KernelStats::current()?.total;
        let idle = total.idle + total.iowait.unwrap_or(0);
        // Time of guests is user time too.
        let interrupts = total.irq.unwrap_or(0) + total.softirq.unwrap_or(0);
        let busy = total.user + total.nice + total.system + interrupts + total.steal.unwrap_or(0);
        Ok(ProcessorTime {
            idle,
            all: idle + busy,
        })
    }

    /// The percentage of the time since then in which processors had nothing to do.
    pub fn idle_percent_since(&self, before: &ProcessorTime) -> f64 {
        // The part that waits for disks may decrease.
        let idle = self.idle.saturating_sub(before.idle) as f64;
        let all = self.all.saturating_sub(before.all) as f64;
        idle / all.max(1.0) * 100.0
    }
}

/// Memory available to processes, in bytes.
pub fn available_memory() -> u64 {
    let memory = Meminfo::current().ok();
    memory.and_then(|memory| memory.mem_available).unwrap_or(0)
}

/// Allocates this much memory, writes to every page, and frees it.
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

/// How long a spinning thread was kept from running.
#[derive(Debug, Clone, Copy)]
pub struct Noise {
    pub longest_gap_ms: f64,
    /// Percentage of the time lost in gaps longer than 0.1 ms.
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

/// CPU model, cores, memory and kernel.
pub fn description() -> String {
    let processor = CpuInfo::current().ok();
    let model = processor.as_ref().and_then(|it| it.model_name(0));
    let model = model.unwrap_or("unknown processor");
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let gib = Meminfo::current().map_or(0, |memory| memory.mem_total) as f64 / (1 << 30) as f64;
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
    fn this_process_has_used_memory() {
        let reading = ProcessReading::of(std::process::id()).unwrap();
        assert!(reading.resident_mb() > 0.1 && reading.peak_mb() >= reading.resident_mb());
        assert!(available_memory() > 0);
    }

    #[test]
    fn the_idle_part_of_the_processor_time_is_measured() {
        let time = |idle, all| ProcessorTime { idle, all };
        assert_eq!(time(15, 100).idle_percent_since(&time(10, 80)), 25.0);
        assert_eq!(time(9, 100).idle_percent_since(&time(10, 100)), 0.0);
        let before = ProcessorTime::now().unwrap();
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(1) {
            std::hint::spin_loop();
        }
        let after = ProcessorTime::now().unwrap();
        assert!(after.all > before.all && after.all > after.idle);
        assert!((0.0..100.0).contains(&after.idle_percent_since(&before)));
    }

    #[test]
    fn noise_is_measured() {
        let noise = noise();
        assert!(noise.longest_gap_ms > 0.0 && noise.lost_percent <= 100.0);
    }
}
