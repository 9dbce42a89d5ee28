//! `cargo xtask compare-cleaning`: the same logs, compacted by Kafka's own cleaner and by Ottla's.
//!
//! First small logs of everything that the cleaner decides about (tombstones, transactions, idempotent producers,
//! every codec): Kafka's `DumpLogSegments` must print the same of both, batch by batch and record by record, and find
//! no fault with the indexes.
//!
//! The two run as processes of their own on one partition's directory, without a broker: `conformance/java/cleaner`
//! and the example `clean` of ottla-log. `cargo xtask bench-peer --only compaction` measures them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::peer::{InstalledPeer, Peer};
use crate::{java, process, workspace};

#[derive(clap::Args)]
pub struct Options {
    /// How many small logs are compared.
    #[arg(long, default_value_t = 5)]
    logs: u64,
    /// The first of their seeds.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the logs are made; by default a temporary folder.
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// When the records of the logs are from.
pub const START_MS: u64 = 1_700_000_000_000;
pub const DAY_MS: u64 = 86_400_000;
const SMALL_SEGMENT_BYTES: u64 = 16 * 1024;

/// The two cleaners, as commands but for their arguments.
struct Cleaners {
    kafka: Vec<String>,
    ottla: Vec<String>,
    peer: InstalledPeer,
}

pub fn run(options: &Options) -> Result<()> {
    let temporary = tempfile::tempdir()?;
    let dir = options.dir.as_deref().unwrap_or(temporary.path());
    std::fs::create_dir_all(dir)?;
    let peer = Peer::load("kafka")?.install()?;
    let cleaners = Cleaners {
        kafka: java::program(&peer, "cleaner", "CleanLog")?,
        ottla: vec![example()?.display().to_string()],
        peer,
    };
    for seed in options.seed..options.seed + options.logs {
        let lines = compare(&cleaners, dir, seed).with_context(|| format!("seed {seed}"))?;
        println!("ok   seed {seed}: {lines} batches and records alike");
    }
    Ok(())
}

/// The program that makes logs and has Ottla's cleaner compact them.
pub fn example() -> Result<PathBuf> {
    let arguments = ["build", "--quiet", "--release", "--package", "ottla-log"];
    let mut build = workspace::cargo();
    process::output_of(build.args(arguments).args(["--example", "clean"]))?;
    Ok(workspace::target_dir().join("release/examples/clean"))
}

pub fn command(words: &[String]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}

fn compare(cleaners: &Cleaners, dir: &Path, seed: u64) -> Result<usize> {
    let log = |side: &str| dir.join(format!("{side}-{seed}")).join("compacted-0");
    let (kafka, ottla) = (log("kafka"), log("ottla"));
    let mut make = command(&cleaners.ottla);
    process::output_of(make.arg("mix").arg(&ottla).arg(seed.to_string()))?;
    copy(&ottla, &kafka)?;
    // Twice within the retention of tombstones, and once behind it.
    let later = START_MS + 31 * DAY_MS;
    let times = [later, later + 1_000, later + 61_000, later + 200_000];
    let ends = |output: &str| -> Vec<String> {
        let lines = output.lines().filter(|line| line.starts_with("to="));
        lines
            .map(|line| line.split(' ').next().unwrap_or_default().to_owned())
            .collect()
    };
    let theirs = ends(&clean(
        &cleaners.kafka,
        &[],
        &kafka,
        SMALL_SEGMENT_BYTES,
        &times,
    )?);
    let ours = ends(&clean(
        &cleaners.ottla,
        &["run"],
        &ottla,
        SMALL_SEGMENT_BYTES,
        &times,
    )?);
    if theirs != ours || ours.len() != times.len() {
        bail!("Kafka cleaned up to {theirs:?}, Ottla up to {ours:?}");
    }
    let theirs = dump(&cleaners.peer, &kafka)?;
    let ours = dump(&cleaners.peer, &ottla)?;
    if let Some((at, (kafka, ottla))) = theirs
        .iter()
        .zip(&ours)
        .enumerate()
        .find(|(_, (kafka, ottla))| kafka != ottla)
    {
        bail!("line {at} of the dumps\n  Kafka: {kafka}\n  Ottla: {ottla}");
    }
    if theirs.len() != ours.len() {
        bail!(
            "Kafka's dump has {} lines, Ottla's {}",
            theirs.len(),
            ours.len()
        );
    }
    Ok(ours.len())
}

/// Has a cleaner compact a log at each of these times, and gives back what it printed.
pub fn clean(
    cleaner: &[String],
    first: &[&str],
    dir: &Path,
    segment_bytes: u64,
    times: &[u64],
) -> Result<String> {
    let mut run = command(cleaner);
    run.args(first).arg(dir).arg(segment_bytes.to_string());
    run.args(times.iter().map(u64::to_string));
    process::output_of(&mut run)
}

/// What Kafka's tool prints of all segments, but for what may differ: where batches lie, and how large they are
/// and with what checksum, where the codecs are not the same code.
fn dump(peer: &InstalledPeer, dir: &Path) -> Result<Vec<String>> {
    let of_kind = |suffix: &str| -> Result<String> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            let path = entry?.path();
            if path.display().to_string().ends_with(suffix) {
                files.push(path.display().to_string());
            }
        }
        files.sort();
        Ok(files.join(","))
    };
    let tool = || peer.tool("org.apache.kafka.tools.DumpLogSegments");
    let indexes = format!("{},{}", of_kind(".index")?, of_kind(".timeindex")?);
    let sane = process::output_of(tool().args(["--index-sanity-check", "--files", &indexes]))?;
    if sane.contains("Found") || sane.contains("ismatch") || sane.contains("corrupt") {
        bail!("the indexes do not fit their segments:\n{sane}");
    }
    let mut records = tool();
    records.args([
        "--deep-iteration",
        "--print-data-log",
        "--files",
        &of_kind(".log")?,
    ]);
    let printed = process::output_of(&mut records)?;
    if printed.contains("isvalid: false") || printed.contains("Found") {
        bail!("Kafka's tool complains of {}", dir.display());
    }
    let lines = printed.lines().filter(|line| line.contains("ffset: "));
    Ok(lines.map(comparable).collect())
}

/// A line without what may differ.
fn comparable(line: &str) -> String {
    let mut kept = Vec::new();
    let mut words = line.split(' ');
    while let Some(word) = words.next() {
        match word {
            "position:" | "size:" | "crc:" => drop(words.next()),
            word => kept.push(word),
        }
    }
    kept.join(" ")
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        std::fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::comparable;

    #[test]
    fn what_may_differ_is_left_out_of_a_line() {
        let line = "baseOffset: 3 lastOffset: 4 position: 77 CreateTime: 5 size: 90 magic: 2 crc: 12 isvalid: true";
        let kept = "baseOffset: 3 lastOffset: 4 CreateTime: 5 magic: 2 isvalid: true";
        assert_eq!(comparable(line), kept);
    }
}
