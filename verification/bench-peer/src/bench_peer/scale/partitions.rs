//! Thousands of partitions on one node, more than it has file handles: created, idle, written and
//! read one by one, stopped, started, killed and started again.
//!
//! A native broker gets the handles of `--handles`. A broker in a Java virtual machine raises its
//! limit to the hard one by itself, and gets memory for its partitions.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Resource, getrlimit};
use serde_json::Value;

use super::{Turn, is_java};
use crate::bench_peer::broker;
use crate::bench_peer::disk::Scratch;
use crate::bench_peer::load::number_at;
use crate::bench_peer::machine::{ProcessReading, available_memory};
use crate::bench_peer::setting::{Options, Setting};
use crate::bench_peer::table::Results;

/// Size of a partition's files, in bytes, on a file system with 4 KiB blocks.
const PARTITION_BYTES: u64 = 32 << 10;
/// Partitions of a topic. A controller takes 10,000 records in one operation.
const OF_A_TOPIC: usize = 5000;
/// Time for work that was deferred while partitions were created.
const REST: Duration = Duration::from_secs(5);
/// Of a core, at which a broker counts as settled.
const SETTLED_SHARE: f64 = 0.05;
const MOST_SETTLING: Duration = Duration::from_secs(120);
const IDLE: Duration = Duration::from_secs(20);
const LEAST_HANDLES: usize = 1024;
/// Heap of a Java broker for a partition, on top of its default.
const HEAP_OF_A_PARTITION: u64 = 64 << 10;

pub fn settings_in_words(options: &Options) -> String {
    format!(
        "{} partitions in topics of {OF_A_TOPIC}, {} file handles for a native broker and all that the system grants for \
         a Java one, idle for {} s, {} s for a step",
        options.partitions_or(10_000),
        handles(options),
        IDLE.as_secs(),
        step_seconds(options.partitions_or(10_000))
    )
}

/// A step that has not ended by then counts as far as it came.
fn step_seconds(partitions: usize) -> usize {
    120 + partitions / 500
}

/// At most the limit of the system.
fn handles(options: &Options) -> usize {
    let tenth = options.partitions_or(10_000) / 10;
    let wanted = options.handles.unwrap_or(tenth.max(LEAST_HANDLES));
    let granted = getrlimit(Resource::Nofile).maximum;
    granted.map_or(wanted, |granted| wanted.min(granted as usize))
}

pub fn measure(setting: &Setting<'_>, results: &mut Results) -> Result<()> {
    let partitions = setting.options.partitions_or(10_000);
    ensure!(partitions > 0, "--partitions must be 1 or more");
    // Deleted after all measurements: see the group `cluster`.
    let mut done = Vec::new();
    setting.alternate(results, |side, round, results| {
        let scratch = Scratch::new(
            &format!("partitions-{round}-{side}"),
            partitions as u64 * PARTITION_BYTES,
        )?;
        let mut add = |measure: &str, value| {
            results.add(side, round, format!("partitions: {measure}"), value);
        };
        let outcome = start(setting, side, &scratch, partitions)
            .and_then(|turn| measured(turn, partitions, &mut add));
        done.push(scratch);
        setting.or_noted(side, round, results, outcome)
    })
}

fn start<'a>(
    setting: &'a Setting<'a>,
    side: usize,
    scratch: &'a Scratch,
    partitions: usize,
) -> Result<Turn<'a>> {
    let (mut environment, mut launcher) = (Vec::new(), Vec::new());
    if is_java(setting.sides[side]) {
        let heap = (1 << 30) + partitions as u64 * HEAP_OF_A_PARTITION;
        let heap = heap.min(available_memory() / 2) >> 20;
        // Takes precedence over the command line.
        environment.push(("_JAVA_OPTIONS".to_owned(), format!("-Xmx{heap}M")));
    } else {
        let limit = format!(
            "ulimit -n {} && exec \"$0\" \"$@\"",
            handles(setting.options)
        );
        launcher.extend(["sh".to_owned(), "-c".to_owned(), limit]);
    }
    let overrides = setting.options.overrides.clone();
    let dir = scratch.path();
    Turn::start_with(setting, side, dir, overrides, environment, launcher)
}

/// When the broker has done what it deferred, such as the files of the new partitions: it uses little
/// of a core, or the time is up.
fn settled(turn: &Turn<'_>) -> Result<ProcessReading> {
    let until = Instant::now() + MOST_SETTLING;
    let mut before = ProcessReading::of(turn.node.pid())?;
    loop {
        std::thread::sleep(REST);
        let now = ProcessReading::of(turn.node.pid())?;
        let used = now.since(&before).cpu_seconds;
        if used < REST.as_secs_f64() * SETTLED_SHARE || Instant::now() >= until {
            return Ok(now);
        }
        before = now;
    }
}

fn measured(mut turn: Turn<'_>, partitions: usize, add: &mut dyn FnMut(&str, f64)) -> Result<()> {
    std::thread::sleep(REST);
    let empty = ProcessReading::of(turn.node.pid())?;
    let step = |turn: &Turn<'_>, name: &str, partitions: usize| {
        turn.load(&format!(
            "partitions {name} --partitions {partitions} --of-each {OF_A_TOPIC} --patience-seconds {}",
            step_seconds(partitions)
        ))
    };

    let created = step(&turn, "create", partitions)?;
    let count = report(add, "created", &created)?;
    if let Some(status) = turn.node.ended()? {
        bail!(
            "the broker ended ({status}) after {count} partitions: {}",
            created["stopped_by"]
        );
    }
    if count < partitions as f64 {
        println!("    stopped by: {}", created["stopped_by"]);
    }
    ensure!(count > 0.0, "no partition was created: {created}");
    let settling = Instant::now();
    let before = settled(&turn)?;
    add(
        "created: settled after, s",
        settling.elapsed().as_secs_f64(),
    );
    std::thread::sleep(IDLE);
    let idle = ProcessReading::of(turn.node.pid())?;
    let used = idle.since(&before).cpu_seconds;
    add("idle, % of a core", used / IDLE.as_secs_f64() * 100.0);
    add("memory with all, MB", idle.resident_mb());
    // Of a Java heap it says nothing.
    let is_native = !turn.is_java();
    let each = |now: &ProcessReading| (now.resident_mb() - empty.resident_mb()) * 1e6 / count;
    if is_native {
        add("memory of each, idle, bytes", each(&idle));
    }
    add("open files, idle", open_files(&turn)?);
    // A broker that refuses some is measured with the accepted ones.
    let (wanted, partitions) = (partitions as f64, count as usize);

    let written = report(add, "written", &step(&turn, "write", partitions)?)?;
    let read = report(add, "read", &step(&turn, "read", partitions)?)?;
    add("open files after that", open_files(&turn)?);
    if is_native {
        std::thread::sleep(REST);
        let now = ProcessReading::of(turn.node.pid())?;
        add("memory of each when written and read, bytes", each(&now));
    }

    let began = Instant::now();
    broker::stop(&mut turn.node)?;
    add("orderly stop, ms", ms(began.elapsed()));
    let restarted = started_again(&mut turn, partitions, "start after a stop", add)?;
    std::thread::sleep(REST);
    let now = ProcessReading::of(turn.node.pid())?;
    add("memory with all after a start, MB", now.resident_mb());
    let read_again = report(add, "read after a start", &step(&turn, "read", partitions)?)?;
    let missing = [written, read, restarted, read_again].into_iter();
    let missing = missing.map(|done| wanted - done);
    add(
        "not created, written, read and restarted",
        missing.fold(0.0, f64::max),
    );

    // A log without a record after its recovery point would have nothing to recover.
    step(&turn, "write", partitions)?;
    turn.node.kill()?;
    started_again(&mut turn, partitions, "start after kill -9", add)?;
    broker::stop(&mut turn.node)
}

/// Starts the broker and waits until it serves all partitions. Returns how many those are.
fn started_again(
    turn: &mut Turn<'_>,
    partitions: usize,
    name: &str,
    add: &mut dyn FnMut(&str, f64),
) -> Result<f64> {
    rustix::fs::sync();
    turn.start_again()?;
    let answered = turn.node.time_to_first_answer();
    let (ready, served) = turn.node.wait_until_served(partitions)?;
    let used = ProcessReading::of(turn.node.pid())?;
    add(&format!("{name}, exec to first answer, ms"), ms(answered));
    add(&format!("{name}, exec to all served, ms"), ms(ready));
    add(
        &format!("{name}, broker CPU s until then"),
        used.cpu_seconds,
    );
    Ok(served.partitions.min(partitions) as f64)
}

/// Adds the results of a step of the load generator. Returns the number of partitions that it
/// processed.
fn report(add: &mut dyn FnMut(&str, f64), name: &str, report: &Value) -> Result<f64> {
    let done = number_at(report, "/done")?;
    let refused = report["refused"].as_object();
    let refused = refused.context("the load generator's report has no refusals")?;
    let refused: u64 = refused.values().filter_map(Value::as_u64).sum();
    add(name, done);
    add(&format!("{name}: time, s"), number_at(report, "/seconds")?);
    add(&format!("{name}: refused at first"), refused as f64);
    Ok(done)
}

fn open_files(turn: &Turn<'_>) -> Result<f64> {
    let folder = format!("/proc/{}/fd", turn.node.pid());
    let files = std::fs::read_dir(&folder).with_context(|| folder.clone())?;
    Ok(files.count() as f64)
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
