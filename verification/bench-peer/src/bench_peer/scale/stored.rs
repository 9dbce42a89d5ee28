//! One partition with more and more stored data: the cost to append, to read at the end and from
//! the start, and to start the broker.
//!
//! All data is produced. So that it fits on the disk, the middle of each sealed segment becomes a
//! hole afterwards: the files keep their names, sizes, indexes, and both ends. Nothing reads the
//! holes, because a catch-up read ends before the first.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::fs::FallocateFlags;

use super::Turn;
use crate::bench_peer::broker;
use crate::bench_peer::disk::Scratch;
use crate::bench_peer::load::number_at;
use crate::bench_peer::setting::{Options, Setting};
use crate::bench_peer::table::Results;

const TOPIC: &str = "stored";
/// Parts of `--gigabytes` that are stored when the costs are measured.
const PARTS: [f64; 3] = [0.01, 0.1, 1.0];
/// Written between two visits to the sealed segments.
const PIECE_BYTES: f64 = 2e9;
const MEASURED_BYTES: u64 = 500_000_000;
/// Written before, so that the least amount is not measured with a cold broker.
const WARM_UP_BYTES: u64 = 250_000_000;
/// The bytes of a catch-up read, from the start of the log.
const CATCH_UP_BYTES: u64 = 64_000_000;
const CATCH_UP_PASSES: usize = 8;
/// The bytes that remain of the first segment, and of both ends of the other segments.
const KEPT_AT_START: u64 = 128 << 20;
const KEPT_AT_ENDS: u64 = 1 << 20;
/// A peer that has not written a piece by then is given up.
const SLOWEST_BYTES_PER_SECOND: f64 = 20e6;

pub fn settings_in_words(options: &Options) -> String {
    let most = options.gigabytes_or(10.0);
    let sizes = PARTS.map(|part| format!("{}", part * most)).join(", ");
    format!(
        "one partition with {sizes} GB in batches of 64 KiB, all produced, the middle of sealed segments replaced by \
         holes; {CATCH_UP_BYTES} bytes read from the start {CATCH_UP_PASSES} times"
    )
}

pub fn measure(setting: &Setting<'_>, results: &mut Results) -> Result<()> {
    let most = setting.options.gigabytes_or(10.0) * 1e9;
    // The pieces, an unsealed segment, and the measured writes.
    let disk = most.min(3.0 * PIECE_BYTES) as u64 + 3 * (WARM_UP_BYTES + MEASURED_BYTES);
    setting.alternate(results, |side, round, results| {
        let scratch = Scratch::new(&format!("stored-{side}"), disk)?;
        let mut add = |measure: &str, value| {
            results.add(side, round, format!("stored: {measure}"), value);
        };
        let outcome = Turn::start(setting, side, scratch.path())
            .and_then(|turn| measured(turn, most, &mut add));
        setting.or_noted(side, round, results, outcome)
    })
}

/// The results with one amount of stored data.
struct Costs {
    produce: f64,
    tail: f64,
    catch_up: f64,
    start: f64,
}

fn measured(mut turn: Turn<'_>, most: f64, add: &mut dyn FnMut(&str, f64)) -> Result<()> {
    let mut all = Vec::new();
    for part in PARTS {
        let wanted = part * most;
        fill(&turn, wanted)?;
        let name = format!("{} GB", wanted / 1e9);
        all.push(costs(&mut turn, &name, add).with_context(|| name.clone())?);
    }
    if let [least, .., most] = all.as_slice() {
        for (measure, ratio) in [
            ("produce, broker CPU s per GB", most.produce / least.produce),
            ("tail, p50", most.tail / least.tail),
            (
                "catch-up, broker CPU s per GB",
                most.catch_up / least.catch_up,
            ),
            ("start", most.start / least.start),
        ] {
            add(&format!("{measure}, most / least"), ratio);
        }
    }
    broker::stop(&mut turn.node)
}

/// Produces until this much is stored.
fn fill(turn: &Turn<'_>, wanted: f64) -> Result<()> {
    loop {
        let stored = make_holes(&partition(turn))? as f64;
        let left = wanted - stored;
        if left < 1e6 {
            return Ok(());
        }
        let piece = left.min(PIECE_BYTES);
        let report = produce(turn, piece as u64)?;
        let rate = number_at(&report, "/megabytes_per_second")? * 1e6;
        ensure!(
            rate > SLOWEST_BYTES_PER_SECOND,
            "given up at {:.1} GB: it stores only {:.1} MB/s",
            stored / 1e9,
            rate / 1e6
        );
    }
}

fn produce(turn: &Turn<'_>, bytes: u64) -> Result<serde_json::Value> {
    turn.load_with_usage(&format!(
        "produce --topic {TOPIC} --partitions 1 --batch-bytes 65536 --bytes {bytes}"
    ))
}

fn costs(turn: &mut Turn<'_>, name: &str, add: &mut dyn FnMut(&str, f64)) -> Result<Costs> {
    rustix::fs::sync();
    produce(turn, WARM_UP_BYTES)?;
    let report = produce(turn, MEASURED_BYTES)?;
    let produce = number_at(&report, "/broker/cpu_seconds_per_gb")?;
    let rate = number_at(&report, "/megabytes_per_second")?;
    let report = turn.load(&format!(
        "end-to-end --topic {TOPIC} --records 5000 --warmup-records 1000"
    ))?;
    let tail = number_at(&report, "/latency/p50_us")?;
    let tail_p99 = number_at(&report, "/latency/p99_us")?;
    let read = |passes: usize| {
        turn.load_with_usage(&format!(
            "fetch --topic {TOPIC} --connections 1 --passes {passes} --partition-bytes {CATCH_UP_BYTES}"
        ))
    };
    // Brings it into the page cache.
    read(1)?;
    let catch_up = number_at(&read(CATCH_UP_PASSES)?, "/broker/cpu_seconds_per_gb")?;

    broker::stop(&mut turn.node)?;
    rustix::fs::sync();
    turn.start_again()?;
    let (ready, _) = turn.node.wait_until_served(1)?;
    let start = ready.as_secs_f64() * 1e3;
    for (measure, value) in [
        ("produce, MB/s", rate),
        ("produce, broker CPU s per GB", produce),
        ("tail, p50, µs", tail),
        ("tail, p99, µs", tail_p99),
        ("catch-up, broker CPU s per GB", catch_up),
        ("start, exec to served, ms", start),
    ] {
        add(&format!("{name}: {measure}"), value);
    }
    // Work that a start puts off would be measured with the next amount.
    std::thread::sleep(Duration::from_secs(2));
    Ok(Costs {
        produce,
        tail,
        catch_up,
        start,
    })
}

fn partition(turn: &Turn<'_>) -> PathBuf {
    turn.node.data_dir().join(format!("{TOPIC}-0"))
}

/// Frees the middle of each sealed segment. Returns the size of the log.
fn make_holes(partition: &Path) -> Result<u64> {
    let mut segments = Vec::new();
    let entries = match std::fs::read_dir(partition) {
        Ok(entries) => entries,
        // Nothing was produced yet.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error).with_context(|| partition.display().to_string()),
    };
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "log") {
            let bytes = std::fs::metadata(&path)?.len();
            segments.push((path, bytes));
        }
    }
    segments.sort();
    let sealed = segments.len().saturating_sub(1);
    for (number, (path, bytes)) in segments.iter().take(sealed).enumerate() {
        let from = if number == 0 {
            KEPT_AT_START
        } else {
            KEPT_AT_ENDS
        };
        let to = bytes.saturating_sub(KEPT_AT_ENDS);
        if from < to {
            let file = OpenOptions::new().write(true).open(path)?;
            let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&file, mode, from, to - from)
                .with_context(|| format!("a hole in {}", path.display()))?;
        }
    }
    Ok(segments.iter().map(|(_, bytes)| bytes).sum())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn holes_are_in_the_middle_of_sealed_segments_only() {
        let dir = tempfile::tempdir().unwrap();
        let bytes = vec![7u8; 4 << 20];
        for name in ["00.log", "01.log", "02.log", "01.index"] {
            std::fs::write(dir.path().join(name), &bytes).unwrap();
        }
        assert_eq!(make_holes(dir.path()).unwrap(), 3 * bytes.len() as u64);
        let blocks = |name: &str| std::fs::metadata(dir.path().join(name)).unwrap().blocks();
        assert!(blocks("01.log") < blocks("02.log"));
        assert_eq!(std::fs::read(dir.path().join("00.log")).unwrap(), bytes);
        let middle = std::fs::read(dir.path().join("01.log")).unwrap();
        assert_eq!(middle.len(), bytes.len());
        assert_eq!(
            (middle[0], middle[2 << 20], middle[bytes.len() - 1]),
            (7, 0, 7)
        );
        assert_eq!(make_holes(&dir.path().join("none")).unwrap(), 0);
    }
}
