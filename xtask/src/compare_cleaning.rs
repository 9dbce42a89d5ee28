//! `cargo xtask compare-cleaning`: the same logs, compacted by Kafka's own cleaner and by Ottla's.
//!
//! First small logs of everything that the cleaner decides about (tombstones, transactions, idempotent producers,
//! every codec): Kafka's `DumpLogSegments` must print the same of both, batch by batch and record by record, and find
//! no fault with the indexes. Then, with `--megabytes`, a large log of 1 KB records, of which 10 % are live, for the
//! time and the CPU that both take, interleaved.
//!
//! The two run as processes of their own on one partition's directory, without a broker: `conformance/java/cleaner`
//! and the example `clean` of ottla-log.

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
    /// The size of the log that time and CPU are measured with; 0 for none.
    #[arg(long, default_value_t = 0)]
    megabytes: u64,
    /// How often each side is measured.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Where the logs are made; by default a temporary folder.
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// When the records of the logs are from.
const START_MS: u64 = 1_700_000_000_000;
const DAY_MS: u64 = 86_400_000;
const SMALL_SEGMENT_BYTES: u64 = 16 * 1024;
const LARGE_SEGMENT_BYTES: u64 = 256 * 1024 * 1024;

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
    if options.megabytes > 0 {
        measure(&cleaners, dir, options)?;
    }
    Ok(())
}

fn example() -> Result<PathBuf> {
    let arguments = ["build", "--quiet", "--release", "--package", "ottla-log"];
    let mut build = workspace::cargo();
    process::output_of(build.args(arguments).args(["--example", "clean"]))?;
    Ok(workspace::target_dir().join("release/examples/clean"))
}

fn command(words: &[String]) -> Command {
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

fn clean(
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

/// What one cleaning took.
#[derive(Clone, Copy)]
struct Took {
    elapsed_ms: u64,
    cpu_ms: u64,
    written: u64,
}

fn measure(cleaners: &Cleaners, dir: &Path, options: &Options) -> Result<()> {
    let records = options.megabytes * 1_000_000 / 1024;
    let filled = dir.join("filled").join("compacted-0");
    let mut fill = command(&cleaners.ottla);
    fill.arg("fill").arg(&filled);
    let sizes = [records, 1000, records / 10, LARGE_SEGMENT_BYTES];
    process::output_of(fill.args(sizes.map(|size| size.to_string())))?;
    let mut results: [Vec<Took>; 2] = [Vec::new(), Vec::new()];
    // The first round is not counted: it touches the memory that the others use.
    for round in 0..=options.rounds {
        let mut order = [
            (0, &cleaners.kafka, &[][..]),
            (1, &cleaners.ottla, &["run"][..]),
        ];
        if round % 2 == 1 {
            order.reverse();
        }
        for (side, cleaner, first) in order {
            let log = dir.join("measured").join("compacted-0");
            copy(&filled, &log)?;
            let time = [START_MS + 31 * DAY_MS];
            let output = clean(cleaner, first, &log, LARGE_SEGMENT_BYTES, &time)?;
            std::fs::remove_dir_all(&log)?;
            let took = took(&output).with_context(|| format!("not understood: {output}"))?;
            if round > 0 {
                results[side].push(took);
            }
        }
    }
    let [kafka, ottla] = &results;
    println!(
        "{} MB of 1 KB records, 10 % live, medians (lowest to highest) of {}:",
        options.megabytes, options.rounds
    );
    let rows: [(&str, fn(&Took) -> u64); 3] = [
        ("CPU, ms", |took| took.cpu_ms),
        ("time, ms", |took| took.elapsed_ms),
        ("bytes written", |took| took.written),
    ];
    for (name, of) in rows {
        let figures = |side: &[Took]| {
            let mut figures: Vec<u64> = side.iter().map(of).collect();
            figures.sort_unstable();
            (
                figures[figures.len() / 2],
                figures[0],
                figures[figures.len() - 1],
            )
        };
        let ((theirs, low, high), (ours, our_low, our_high)) = (figures(kafka), figures(ottla));
        let ratio = ours as f64 / theirs as f64;
        println!(
            "{name:14} Kafka {theirs} ({low} to {high}), Ottla {ours} ({our_low} to {our_high}), ratio {ratio:.2}"
        );
    }
    Ok(())
}

fn took(output: &str) -> Option<Took> {
    let line = output.lines().find(|line| line.starts_with("to="))?;
    let field = |name: &str| -> Option<u64> {
        let mut fields = line.split(' ').filter_map(|field| field.split_once('='));
        fields.find(|(key, _)| *key == name)?.1.parse().ok()
    };
    Some(Took {
        elapsed_ms: field("elapsed_ms")?,
        cpu_ms: field("cpu_ms")?,
        written: field("written")?,
    })
}

#[cfg(test)]
mod tests {
    use super::{comparable, took};

    #[test]
    fn what_may_differ_is_left_out_of_a_line() {
        let line = "baseOffset: 3 lastOffset: 4 position: 77 CreateTime: 5 size: 90 magic: 2 crc: 12 isvalid: true";
        let kept = "baseOffset: 3 lastOffset: 4 CreateTime: 5 magic: 2 isvalid: true";
        assert_eq!(comparable(line), kept);
    }

    #[test]
    fn figures_are_found_by_their_names() {
        let took = took("starting\nto=5 elapsed_ms=12 cpu_ms=34 read=9 written=8\n").unwrap();
        assert_eq!((took.elapsed_ms, took.cpu_ms, took.written), (12, 34, 8));
    }
}
