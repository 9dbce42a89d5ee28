//! A live tail under load, and searches through many records.

use std::fmt::Write as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ottla_workspace::process::{self, OwnedChild};
use ottla_workspace::toolchain;
use serde_json::Value;

use super::options::Options;
use super::stand::{Stand, cpu_time};
use super::table::{Line, Spread};
use crate::console_page::page::Page;

/// Records per second of the tail, and for how long.
const TAIL_RATE: u64 = 50_000;
const TAIL_SECONDS: u64 = 15;
/// A tail that is up to date has seen the last record within this time.
const TAIL_DELAY_MS: f64 = 1000.0;
const PATIENCE: Duration = Duration::from_secs(60);

/// Of one processor.
const SEARCH_MB_PER_SECOND: f64 = 500.0;
/// A search that was stopped takes no processor time after this.
const STOP_MS: f64 = 500.0;
const RECORD_BYTES: u64 = 1000;

/// Produces 50,000 records a second, and follows them with the API and with the page.
pub fn tail(_options: &Options) -> Result<Vec<Line>> {
    toolchain::require(&toolchain::CHROMIUM)?;
    let stand = Stand::start()?;
    stand.broker.create_topic("tail", 4)?;
    let records = TAIL_RATE * TAIL_SECONDS;
    let mut page = Page::open("")?;
    page.go(&format!("{}/topics/tail/records?follow=true", stand.url()))?;
    let path = "/api/topics/tail/records?follow=true&from=end";
    let mut events = stand.http.send("GET", path, None)?;
    events.wait_for("the start of the tail", |event, _| event == "progress")?;
    let mut producer = stand.broker.producer("tail", records, TAIL_RATE as i64);
    producer
        .args(["--record-size", "100", "--command-property", "acks=1"])
        .stdout(Stdio::null());
    let before = cpu_time(stand.console.id())?;
    let began = Instant::now();
    let mut producer = OwnedChild::start(&mut producer)?;
    let (mut shown, mut scanned, mut ended) = (0, 0, None);
    while scanned < records {
        ensure!(
            ended.is_none_or(|it: Instant| it.elapsed() < PATIENCE),
            "the tail has seen {scanned} of {records} records, and receives no more"
        );
        let (event, data) = events.event()?.context("the tail has ended")?;
        match &*event {
            "records" => shown += data.as_array().map_or(0, Vec::len),
            "progress" => scanned = data["scanned"].as_u64().context("no number of records")?,
            _ => anyhow::bail!("the tail says {event}: {data}"),
        }
        if ended.is_none() && producer.try_wait()?.is_some() {
            ended = Some(Instant::now());
        }
    }
    let seen = Instant::now();
    let took = seen.duration_since(began);
    producer.wait(PATIENCE)?;
    let behind = ended.map_or(0.0, |it| seen.duration_since(it).as_secs_f64() * 1000.0);
    let share = (cpu_time(stand.console.id())? - before).as_secs_f64() / took.as_secs_f64();
    page.see("a sample:")?;
    page.check_log()?;
    let rate = scanned as f64 / took.as_secs_f64();
    Ok(vec![Line::new(
        "live tail of 50,000 records/s",
        "≤ 1 s behind, a sample",
        format!(
            "{rate:.0} records/s seen, the last one {behind:.0} ms after the producer's end; {shown} shown; two tails take \
             {:.0} % of a processor",
            share * 100.0
        ),
        behind <= TAIL_DELAY_MS && shown > 0 && rate >= 0.9 * TAIL_RATE as f64,
    )])
}

/// The searches. Nothing matches, so all records are read.
const SEARCHES: &[(&str, &str)] = &[
    ("a text with letters", "text=unfindable"),
    ("a number", "text=99999999999"),
    (
        "a value in JSON",
        "expression=value.status%20%3D%3D%20%22unfindable%22",
    ),
    ("a name in JSON", "json_path=%24.unfindable"),
    (
        "a number in JSON, of each record",
        "expression=value.amount%20%3E%201000000000",
    ),
];

/// Searches JSON of 1 kB a record, uncompressed and with lz4, from the first record to the last.
pub fn search(options: &Options) -> Result<Vec<Line>> {
    let stand = Stand::start()?;
    let payloads = stand.broker.dir.path().join("payloads");
    std::fs::write(&payloads, payloads_of(2000))?;
    let mut lines = Vec::new();
    for compression in ["none", "lz4"] {
        let topic = format!("search-{compression}");
        stand.broker.create_topic(&topic, 4)?;
        let records = options.search_mb * 1_000_000 / RECORD_BYTES;
        let mut producer = stand.broker.producer(&topic, records, -1);
        producer
            .arg("--payload-file")
            .arg(&payloads)
            .args(["--command-property", "batch.size=65536", "linger.ms=5"])
            .arg(format!("compression.type={compression}"));
        process::output_of(&mut producer)?;
        let mut results = vec![(Vec::new(), Vec::new()); SEARCHES.len()];
        for _ in 0..options.rounds {
            for ((_, filter), (of_cpu, of_wall)) in SEARCHES.iter().zip(&mut results) {
                let (cpu, wall) = searched(&stand, &topic, filter, records)?;
                of_cpu.push(cpu);
                of_wall.push(wall);
            }
        }
        for ((name, _), (of_cpu, of_wall)) in SEARCHES.iter().zip(&results) {
            let (of_cpu, of_wall) = (Spread::of(of_cpu)?, Spread::of(of_wall)?);
            // Parsing all JSON is not among the goals; it is shown because people do it.
            let measured = format!(
                "{of_cpu} MB per second of the console's CPU, {of_wall} MB/s with the broker on the same processors"
            );
            let what = format!("search for {name}, {compression}");
            lines.push(if name.contains("of each record") {
                Line::shown(&what, measured)
            } else {
                let is_met = of_cpu.median >= SEARCH_MB_PER_SECOND;
                Line::new(&what, "≥ 500 MB/s a core", measured, is_met)
            });
        }
    }
    let mut stops = Vec::new();
    for _ in 0..options.rounds {
        stops.push(stopped(&stand, "search-none")?);
    }
    let stops = Spread::of(&stops)?;
    lines.push(Line::new(
        "a search that is stopped",
        "≤ 500 ms",
        format!("{stops} ms until the console takes no processor time (counted in steps of 10 ms)"),
        stops.median <= STOP_MS,
    ));
    Ok(lines)
}

/// MB per second of processor time of the console, and of time.
fn searched(stand: &Stand, topic: &str, filter: &str, records: u64) -> Result<(f64, f64)> {
    let before = cpu_time(stand.console.id())?;
    let began = Instant::now();
    let path = format!("/api/topics/{topic}/records?from=beginning&limit=100&{filter}");
    let (found, done) = stand.http.records(&path)?;
    let took = began.elapsed().as_secs_f64();
    let cpu = (cpu_time(stand.console.id())? - before).as_secs_f64();
    let number = |name: &str| {
        let found = done[name].as_f64();
        found.with_context(|| format!("the search says no {name}: {done}"))
    };
    ensure!(found.is_empty(), "{filter} matches {}", Value::from(found));
    let scanned = number("scanned")?;
    ensure!(
        scanned == records as f64,
        "{filter} has read {scanned} of {records} records"
    );
    let mb = number("scanned_bytes")? / 1e6;
    Ok((mb / cpu.max(0.01), mb / took))
}

/// The time from the end of the connection until the console uses no more processor time, in
/// milliseconds, during a long search.
fn stopped(stand: &Stand, topic: &str) -> Result<f64> {
    /// For so long nothing must happen.
    const QUIET: Duration = Duration::from_millis(300);
    let filter = "expression=value.amount%20%3E%201000000000";
    let path = format!("/api/topics/{topic}/records?from=beginning&{filter}");
    let mut events = stand.http.send("GET", &path, None)?;
    for _ in 0..2 {
        events.wait_for("the search", |event, _| event == "progress")?;
    }
    drop(events);
    let began = Instant::now();
    let mut last = (began, cpu_time(stand.console.id())?);
    while last.0.elapsed() < QUIET {
        ensure!(
            began.elapsed() < PATIENCE,
            "the console works on after its search was stopped"
        );
        std::thread::sleep(Duration::from_millis(2));
        let now = cpu_time(stand.console.id())?;
        if now > last.1 {
            last = (Instant::now(), now);
        }
    }
    Ok(last.0.duration_since(began).as_secs_f64() * 1000.0)
}

/// Orders as JSON, a line each, all different, of about [`RECORD_BYTES`].
fn payloads_of(count: u64) -> String {
    let mut lines = String::new();
    let mut state = 1_u64;
    // Numbers that look random, the same ones each time (Knuth's MMIX).
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    for number in 0..count {
        let status = ["open", "paid", "shipped", "returned"][(next() % 4) as usize];
        let begin = lines.len();
        let _ = write!(
            lines,
            r#"{{"id": {number}, "status": "{status}", "amount": {}, "customer": {{"name": "Customer {}", "city": "Town {}"}}, "items": ["#,
            next() % 100_000,
            next(),
            next() % 1000,
        );
        while ((lines.len() - begin) as u64) < RECORD_BYTES - 80 {
            let _ = write!(
                lines,
                r#"{{"article": "part-{}", "count": {}, "price": {}.{:02}}}, "#,
                next(),
                next() % 10,
                next() % 500,
                next() % 100,
            );
        }
        lines.push_str("null]}\n");
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_json_of_the_size_of_a_record() {
        let payloads = payloads_of(50);
        for (number, line) in payloads.lines().enumerate() {
            let value: Value = serde_json::from_str(line).unwrap();
            assert_eq!(value["id"], number);
            assert!(line.len() as u64 > RECORD_BYTES - 100 && line.len() as u64 <= RECORD_BYTES);
        }
        assert_eq!(payloads.lines().count(), 50);
    }
}
