//! `cargo xtask compare-cleaning`: compacts the same logs with Kafka's cleaner and with Ottla's.
//!
//! First, small logs cover everything that the cleaner decides about (tombstones, transactions,
//! idempotent producers, every codec). Kafka's `DumpLogSegments` must print the same of both
//! results, batch by batch and record by record, and find no fault in the indexes.
//!
//! Both cleaners run as processes on one partition's directory, without a broker:
//! `conformance/java/cleaner` and the example `clean` of ottla-log. `cargo xtask bench-peer --only
//! compaction` measures them.
//!
//! Then Kafka's broker is started on a directory with the last of the logs that Ottla compacted,
//! and its console consumer must read every record in the dump.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use ottla_peers::java;
use ottla_peers::{InstalledPeer, NodeOptions, Peer};
use ottla_workspace::report::Tally;
use ottla_workspace::{process, workspace};

#[derive(clap::Args)]
pub struct Options {
    /// Number of small logs to compare.
    #[arg(long, default_value_t = 5)]
    logs: u64,
    /// The first of their seeds.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Directory for the logs; by default a temporary one.
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// The timestamp of the logs' first records, in milliseconds since 1970.
pub const START_MS: u64 = 1_700_000_000_000;
pub const DAY_MS: u64 = 86_400_000;
const SMALL_SEGMENT_BYTES: u64 = 16 * 1024;
const TOPIC: &str = "compacted";
const PARTITION: &str = "compacted-0";

/// The two cleaners, as commands without their arguments.
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
        ottla: vec![example(Build::ToCompare)?.display().to_string()],
        peer,
    };
    let mut tally = Tally::default();
    let mut last = None;
    for seed in options.seed..options.seed + options.logs {
        let lines = compare(&cleaners, dir, seed).with_context(|| format!("seed {seed}"))?;
        println!(
            "ok   seed {seed}: {} batches and records alike",
            lines.len()
        );
        tally.add(Tally::of(true));
        last = Some((seed, lines));
    }
    if let Some((seed, lines)) = last {
        let read = serve(&cleaners.peer, dir, seed, &lines).with_context(|| {
            format!("Kafka's broker on the log that Ottla compacted, seed {seed}")
        })?;
        println!("ok   Kafka's broker serves the {read} records that Ottla's compaction left");
        tally.add(Tally::of(true));
    }
    println!("{tally}");
    Ok(())
}

/// The purpose of the build of the cleaning program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Build {
    /// To compare results: a fast build, with debug assertions.
    ToCompare,
    /// To measure time.
    ToMeasure,
}

/// The program that creates logs and compacts them with Ottla's cleaner.
pub fn example(built: Build) -> Result<PathBuf> {
    let (profile, folder) = match built {
        Build::ToCompare => ("dev", "debug"),
        Build::ToMeasure => ("release", "release"),
    };
    if built == Build::ToMeasure || !workspace::is_suite() {
        let mut build = workspace::cargo();
        build.args(["build", "--quiet", "--profile", profile]);
        process::output_of(build.args(["--package", "ottla-log", "--example", "clean"]))?;
    }
    Ok(workspace::target_dir().join(folder).join("examples/clean"))
}

pub fn command(words: &[String]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}

/// The path of one side's log for a seed.
fn log_of(dir: &Path, side: &str, seed: u64) -> PathBuf {
    dir.join(format!("{side}-{seed}")).join(PARTITION)
}

/// The dump, which is the same for both.
fn compare(cleaners: &Cleaners, dir: &Path, seed: u64) -> Result<Vec<String>> {
    let (kafka, ottla) = (log_of(dir, "kafka", seed), log_of(dir, "ottla", seed));
    let mut make = command(&cleaners.ottla);
    process::output_of(make.arg("mix").arg(&ottla).arg(seed.to_string()))?;
    copy(&ottla, &kafka)?;
    // Two cleanings within the retention of tombstones, and one after it.
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
    Ok(ours)
}

/// Serves the log that Ottla compacted from a Kafka broker, as a topic with that name, and consumes
/// it. Returns the number of records.
fn serve(kafka: &InstalledPeer, dir: &Path, seed: u64, dumped: &[String]) -> Result<usize> {
    let options = NodeOptions {
        dir: dir.join("broker"),
        // The log's records are older than any retention.
        overrides: vec![("log.cleaner.enable".to_owned(), "false".to_owned())],
        ..NodeOptions::default()
    };
    let mut node = kafka.start(options.clone())?;
    let mut create = kafka.tool("org.apache.kafka.tools.TopicCommand");
    create.args(["--bootstrap-server", &node.bootstrap(), "--create"]);
    create.args(["--topic", TOPIC, "--config", "cleanup.policy=compact"]);
    process::output_of(&mut create)?;
    node.stop()?;

    let held = node.data_dir().join(PARTITION);
    for entry in std::fs::read_dir(&held)? {
        let path = entry?.path();
        if path
            .file_name()
            .is_some_and(|name| name != "partition.metadata")
        {
            std::fs::remove_file(path)?;
        }
    }
    copy(&log_of(dir, "ottla", seed), &held)?;

    let mut node = kafka.start(options)?;
    let written: BTreeSet<u64> = dumped
        .iter()
        .filter_map(|line| record_offset(line))
        .collect();
    let mut consume = kafka.tool("org.apache.kafka.tools.consumer.ConsoleConsumer");
    consume.args(["--bootstrap-server", &node.bootstrap(), "--topic", TOPIC]);
    consume.args(["--from-beginning", "--timeout-ms", "20000"]);
    consume.args(["--max-messages", &written.len().to_string()]);
    for (property, is_printed) in [("print.offset", "true"), ("print.value", "false")] {
        consume.args(["--formatter-property", &format!("{property}={is_printed}")]);
    }
    let printed = process::output_of(&mut consume)?;
    let read: BTreeSet<u64> = printed
        .lines()
        .filter_map(|line| line.strip_prefix("Offset:")?.trim().parse().ok())
        .collect();
    if read != written {
        let lacking: Vec<&u64> = written.symmetric_difference(&read).take(5).collect();
        bail!(
            "of {} records {} were read; the first that only one of both has: {lacking:?}\n{}",
            written.len(),
            read.len(),
            node.output_tail()
        );
    }
    node.stop()?;
    Ok(read.len())
}

/// The offset of a record visible to consumers, in a line of the dump.
fn record_offset(line: &str) -> Option<u64> {
    let rest = line.strip_prefix("| offset: ")?;
    if rest.contains("endTxnMarker: ") {
        return None;
    }
    rest.split(' ').next()?.parse().ok()
}

/// Runs a cleaner on a log at each of these times, and returns its output.
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

/// The output of Kafka's tool for all segments, without fields that may differ: positions, sizes
/// and checksums of batches, because the codec implementations differ.
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

/// A line without fields that may differ.
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
    use super::{comparable, record_offset};

    #[test]
    fn only_records_visible_to_consumers_count() {
        assert_eq!(
            record_offset("| offset: 7 CreateTime: 5 keySize: 3"),
            Some(7)
        );
        let marker =
            "| offset: 8 CreateTime: 5 keySize: 4 endTxnMarker: COMMIT coordinatorEpoch: 0";
        assert_eq!(record_offset(marker), None);
        assert_eq!(record_offset("baseOffset: 7 lastOffset: 9"), None);
    }

    #[test]
    fn fields_that_may_differ_are_removed_from_a_line() {
        let line = "baseOffset: 3 lastOffset: 4 position: 77 CreateTime: 5 size: 90 magic: 2 crc: 12 isvalid: true";
        let kept = "baseOffset: 3 lastOffset: 4 CreateTime: 5 magic: 2 isvalid: true";
        assert_eq!(comparable(line), kept);
    }
}
