//! The machine of a measurement: its hardware, the speed of its parts without a broker, and its noise.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use procfs::{CpuInfo, Current, Meminfo};
use serde::{Deserialize, Serialize};

/// Properties of the machine. MB are 2^20 bytes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Machine {
    pub processor: String,
    pub cores: usize,
    pub memory_mb: f64,
    pub kernel: String,
    /// Throughput of one loopback connection in one direction.
    pub loopback_mb_per_second: f64,
    /// Throughput of writing and fsyncing a file in the directory of local brokers.
    pub disk_mb_per_second: f64,
    /// Median time of a 4 KB fsync.
    pub disk_sync_ms: f64,
    pub crc32c_gb_per_second: f64,
    /// Cost of reading the clock.
    pub clock_ns: f64,
    /// The longest time that a thread bound to one core, which only reads the clock, did not run.
    pub longest_stall_ms: f64,
    /// Fraction of the time lost in stalls of more than 0.1 ms.
    pub stalled: f64,
    /// Variation of repeated identical work: half the distance between the 10th and the 90th
    /// percentile, as a fraction of the median. A smaller difference between targets is not
    /// significant.
    pub noise: f64,
}

impl Machine {
    /// Takes about three seconds. Temporary files are created below `dir`.
    pub fn measure(dir: &Path) -> Result<Machine> {
        let (disk_mb_per_second, disk_sync_ms) = disk(dir)?;
        let (longest_stall_ms, stalled) = stalls(Duration::from_secs(1));
        let (crc32c_gb_per_second, noise) = checksums();
        Ok(Machine {
            processor: processor(),
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            memory_mb: Meminfo::current().map_or(0, |it| it.mem_total) as f64 / 1_048_576.0,
            kernel: kernel(),
            loopback_mb_per_second: loopback().context("measuring the loopback")?,
            disk_mb_per_second,
            disk_sync_ms,
            crc32c_gb_per_second,
            clock_ns: clock(),
            longest_stall_ms,
            stalled,
            noise,
        })
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "{}, {} cores, {:.0} GB, Linux {}",
            self.processor,
            self.cores,
            self.memory_mb / 1024.0,
            self.kernel
        )?;
        writeln!(
            f,
            "without a broker: loopback {:.0} MB/s, disk {:.0} MB/s, sync {:.2} ms, CRC-32C {:.1} GB/s, clock {:.0} ns",
            self.loopback_mb_per_second,
            self.disk_mb_per_second,
            self.disk_sync_ms,
            self.crc32c_gb_per_second,
            self.clock_ns
        )?;
        write!(
            f,
            "noise: the same work varies by {:.1} %, longest stall of a core {:.2} ms, {:.2} % of its time lost",
            self.noise * 100.0,
            self.longest_stall_ms,
            self.stalled * 100.0
        )
    }
}

fn processor() -> String {
    let model = CpuInfo::current()
        .ok()
        .and_then(|it| it.model_name(0).map(str::to_owned));
    model.unwrap_or_else(|| "unknown processor".to_owned())
}

fn kernel() -> String {
    let name = rustix::system::uname();
    name.release().to_string_lossy().into_owned()
}

/// Allocates memory, writes to every page, and frees it: on a virtual machine whose host reclaims
/// idle memory, the first touch is expensive. Returns the bytes touched.
pub fn touch_memory(wanted: u64) -> u64 {
    const PIECE: u64 = 64 << 20;
    const PAGE: usize = 4096;
    let available = Meminfo::current()
        .ok()
        .and_then(|it| it.mem_available)
        .unwrap_or(0)
        / 2;
    let mut pieces = Vec::new();
    for _ in 0..wanted.min(available) / PIECE {
        let mut piece = vec![0u8; PIECE as usize];
        for at in (0..piece.len()).step_by(PAGE) {
            piece[at] = 1;
        }
        pieces.push(std::hint::black_box(piece));
    }
    pieces.len() as u64 * PIECE
}

fn loopback() -> Result<f64> {
    const LENGTH: Duration = Duration::from_millis(500);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut sender = TcpStream::connect(listener.local_addr()?)?;
    let (mut receiver, _) = listener.accept()?;
    let reader = std::thread::spawn(move || {
        let mut buffer = vec![0; 256 << 10];
        while receiver.read(&mut buffer).is_ok_and(|read| read > 0) {}
    });
    let buffer = vec![1; 256 << 10];
    let began = Instant::now();
    let mut sent = 0;
    while began.elapsed() < LENGTH {
        sender.write_all(&buffer)?;
        sent += buffer.len();
    }
    let rate = sent as f64 / 1_048_576.0 / began.elapsed().as_secs_f64();
    drop(sender);
    let _ = reader.join();
    Ok(rate)
}

fn disk(dir: &Path) -> Result<(f64, f64)> {
    const PIECES: usize = 64;
    let mut file = tempfile::tempfile_in(dir)
        .with_context(|| format!("{}: cannot create files there", dir.display()))?;
    let piece = vec![1; 1 << 20];
    let began = Instant::now();
    for _ in 0..PIECES {
        file.write_all(&piece)?;
    }
    file.sync_data()?;
    let rate = PIECES as f64 / began.elapsed().as_secs_f64();
    let mut syncs = Vec::new();
    for _ in 0..9 {
        let began = Instant::now();
        file.write_all(&piece[..4096])?;
        file.sync_data()?;
        syncs.push(began.elapsed().as_secs_f64() * 1e3);
    }
    syncs.sort_by(f64::total_cmp);
    Ok((rate, syncs[syncs.len() / 2]))
}

/// Checksums the same bytes repeatedly; returns the rate and its variation.
fn checksums() -> (f64, f64) {
    let bytes = vec![7; 1 << 20];
    let mut times = Vec::new();
    for _ in 0..100 {
        let began = Instant::now();
        for _ in 0..8 {
            let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes);
            std::hint::black_box(sum);
        }
        times.push(began.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
    let rate = 8.0 * bytes.len() as f64 / at(0.5) / 1e9;
    (rate, (at(0.9) - at(0.1)) / at(0.5) / 2.0)
}

fn clock() -> f64 {
    const TIMES: u32 = 200_000;
    let began = Instant::now();
    for _ in 0..TIMES {
        std::hint::black_box(Instant::now());
    }
    began.elapsed().as_nanos() as f64 / f64::from(TIMES)
}

/// The longest stall in milliseconds, and the fraction of the time lost in stalls.
fn stalls(length: Duration) -> (f64, f64) {
    let spinner = std::thread::spawn(move || {
        bind_to_this_core();
        let began = Instant::now();
        let (mut last, mut longest, mut lost) = (began, Duration::ZERO, Duration::ZERO);
        while last - began < length {
            let now = Instant::now();
            let gap = now - last;
            longest = longest.max(gap);
            if gap > Duration::from_micros(100) {
                lost += gap;
            }
            last = now;
        }
        (
            longest.as_secs_f64() * 1e3,
            lost.as_secs_f64() / length.as_secs_f64(),
        )
    });
    spinner.join().unwrap_or_default()
}

/// Pins the calling thread to its current core. Without permission, the thread may move.
fn bind_to_this_core() {
    let mut cores = rustix::thread::CpuSet::new();
    cores.set(rustix::thread::sched_getcpu());
    let _ = rustix::thread::sched_setaffinity(None, &cores);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_measured_without_leftover_files() {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine::measure(dir.path()).unwrap();
        assert!(machine.loopback_mb_per_second > 1.0 && machine.disk_mb_per_second > 0.1);
        assert!(machine.clock_ns > 0.0 && machine.noise >= 0.0 && machine.cores > 0);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(machine.to_string().contains("longest stall"));
    }

    #[test]
    fn touched_memory_is_bounded() {
        assert_eq!(touch_memory(100 << 20), 64 << 20);
    }
}
