//! The cost of a console in the broker's process: the latency of producers while many tabs are
//! open, and memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ottla_workspace::process;

use super::options::Options;
use super::stand::{Broker, free_address, status_kib};
use super::table::{Line, Spread};
use crate::console_api::http::Http;

/// The maximum ratio of the producers' p99 with and without tabs.
const MOST_RATIO: f64 = 1.2;
/// Of the producer.
const RATE: i64 = 2000;
const SECONDS: u64 = 10;
/// The interval at which the page refreshes.
const EVERY: Duration = Duration::from_secs(5);
/// Threads that ask for all tabs.
const ASKING: usize = 8;
/// The time in which a broker that was started comes to rest.
const REST: Duration = Duration::from_secs(5);
/// Pages of memory that the allocator happens to take, between two starts of the same broker.
const NOISE_KIB: f64 = 1024.0;

/// The tabs of a console: event streams that are open, and requests as the page sends them.
struct Tabs {
    has_ended: Arc<AtomicBool>,
    streams: usize,
    refused: usize,
    requests: Arc<AtomicUsize>,
    failed: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<()>>,
}

impl Tabs {
    fn open(address: &str, count: usize) -> Result<Tabs> {
        let mut tabs = Tabs {
            has_ended: Arc::default(),
            streams: 0,
            refused: 0,
            requests: Arc::default(),
            failed: Arc::default(),
            threads: Vec::new(),
        };
        for _ in 0..count {
            let path = "/api/topics/load/records?follow=true&from=end";
            let mut events = Http::new(address.to_owned()).send("GET", path, None)?;
            if events.status != 200 {
                tabs.refused += 1;
                continue;
            }
            tabs.streams += 1;
            let has_ended = tabs.has_ended.clone();
            tabs.threads.push(std::thread::spawn(move || {
                while !has_ended.load(Ordering::Relaxed) && matches!(events.event(), Ok(Some(_))) {}
            }));
        }
        for asking in 0..ASKING {
            let mine = (asking..count).step_by(ASKING).count();
            let address = address.to_owned();
            let (has_ended, requests, failed) = (
                tabs.has_ended.clone(),
                tabs.requests.clone(),
                tabs.failed.clone(),
            );
            tabs.threads.push(std::thread::spawn(move || {
                let http = Http::new(address);
                let pause = EVERY / mine.max(1) as u32;
                let mut due = Instant::now();
                while !has_ended.load(Ordering::Relaxed) {
                    let outcome = http.get("/api/topics");
                    requests.fetch_add(1, Ordering::Relaxed);
                    failed.fetch_add(usize::from(outcome.is_err()), Ordering::Relaxed);
                    due += pause;
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                }
            }));
        }
        Ok(tabs)
    }

    fn close(self) -> Result<()> {
        self.has_ended.store(true, Ordering::Relaxed);
        for thread in self.threads {
            let ended = thread.join();
            ensure!(ended.is_ok(), "a tab has panicked");
        }
        Ok(())
    }
}

/// The p99 of a producer without and with open tabs, in turns.
pub fn tabs(options: &Options) -> Result<Vec<Line>> {
    let address = free_address()?;
    let broker = Broker::start(&address)?;
    broker.create_topic("load", 4)?;
    produce(&broker)?;
    let (mut without, mut with, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let mut opened = String::new();
    for _ in 0..options.rounds {
        let before = produce(&broker)?;
        let tabs = Tabs::open(&address, options.tabs)?;
        let during = produce(&broker)?;
        opened = format!(
            "{} streams open, {} refused by the console's limit, {} requests, {} failed",
            tabs.streams,
            tabs.refused,
            tabs.requests.load(Ordering::Relaxed),
            tabs.failed.load(Ordering::Relaxed),
        );
        tabs.close()?;
        without.push(before);
        with.push(during);
        // The tool counts whole milliseconds.
        ratios.push(during.max(1.0) / before.max(1.0));
    }
    let ratio = Spread::of(&ratios)?;
    let (without, with) = (Spread::of(&without)?, Spread::of(&with)?);
    Ok(vec![
        Line::new(
            &format!("p99 of producers with {} tabs", options.tabs),
            "≤ 1.2 × of without",
            format!("{ratio} ×: {with} ms with, {without} ms without, in whole milliseconds"),
            ratio.median <= MOST_RATIO,
        ),
        Line::shown("those tabs", opened),
    ])
}

/// The 99th percentile of the latencies of a producer, in milliseconds.
fn produce(broker: &Broker) -> Result<f64> {
    let records = RATE as u64 * SECONDS;
    let mut producer = broker.producer("load", records, RATE);
    producer.args(["--record-size", "1000"]);
    let printed = process::output_of(&mut producer)?;
    percentile(&printed).with_context(|| format!("no percentiles in {printed}"))
}

fn percentile(printed: &str) -> Option<f64> {
    let line = printed.lines().rev().find(|it| it.contains(" ms 99th"))?;
    let (before, _) = line.split_once(" ms 99th")?;
    before.rsplit_once(' ')?.1.parse().ok()
}

/// The memory of brokers with an unused console, and without a console, in turns; then the memory
/// that the first visit adds.
pub fn memory(options: &Options) -> Result<Vec<Line>> {
    let (mut without, mut with, mut differences, mut opened) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        let plain = resident(&Broker::start("none")?)?;
        let address = free_address()?;
        let broker = Broker::start(&address)?;
        let waiting = resident(&broker)?;
        let http = Http::new(address);
        http.get("/api/cluster")?;
        http.send("GET", "/console.js", None)?.text()?;
        let visited = resident(&broker)?;
        without.push(plain);
        with.push(waiting);
        differences.push(waiting - plain);
        opened.push(visited - waiting);
    }
    let (without, with, difference) = (
        Spread::of(&without)?,
        Spread::of(&with)?,
        Spread::of(&differences)?,
    );
    // A difference within the spread of equal brokers is noise.
    let noise = (without.most - without.least).max(NOISE_KIB);
    Ok(vec![
        Line::new(
            "memory of an unused console",
            "nothing",
            format!(
                "{difference} KiB more; {with} KiB with, {without} KiB without; noise {noise:.0} KiB"
            ),
            difference.median <= noise,
        ),
        Line::shown(
            "memory after the first visitor",
            format!("{} KiB more", Spread::of(&opened)?),
        ),
    ])
}

/// The memory of a broker at rest, in KiB.
fn resident(broker: &Broker) -> Result<f64> {
    std::thread::sleep(REST);
    status_kib(broker.node.pid(), "VmRSS")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_percentile_is_that_of_the_last_summary() {
        let printed = "5 records sent, 1 ms 50th, 2 ms 95th, 3 ms 99th, 4 ms 99.9th.\n\
                       9 records sent, 5 ms 50th, 6 ms 95th, 17 ms 99th, 18 ms 99.9th.\n";
        assert_eq!(percentile(printed), Some(17.0));
        assert_eq!(percentile("nothing"), None);
    }
}
