//! The cost of a broker's work by the number of partitions that a producer writes to, of
//! connections, and of consumers of one partition. Each pair alternates on one broker.

use anyhow::{Context, Result, ensure};
use rustix::process::{Resource, getrlimit, setrlimit};

use super::{Turn, mean};
use crate::bench_peer::broker;
use crate::bench_peer::disk::Scratch;
use crate::bench_peer::load::number_at;
use crate::bench_peer::setting::{Options, Setting};
use crate::bench_peer::table::Results;

/// A controller takes 10,000 records in one operation, and a topic is one of them.
const MANY_PARTITIONS: usize = 9_900;
const FEW_PARTITIONS: usize = 10;
const BATCH_BYTES: usize = 16 << 10;
const CREATION_SECONDS: u64 = 120;
const CONNECTIONS: usize = 10_000;
const CONSUMERS: usize = 1_000;
/// The bytes that each of the many consumers reads. A single consumer reads them once per consumer
/// of the other case.
const READ_BYTES: u64 = 16_000_000;
const FETCH_BYTES: usize = 64 << 10;
const TURNS: usize = 2;
/// The files of a partition, in bytes.
const PARTITION_BYTES: u64 = 32 << 10;

pub fn settings_in_words(options: &Options) -> String {
    format!(
        "{} GB a run, batches of {BATCH_BYTES} bytes, to {FEW_PARTITIONS} and {MANY_PARTITIONS} partitions in turn; \
         {CONNECTIONS} connections used in turn; {READ_BYTES} bytes of one partition read by {CONSUMERS} consumers and \
         {CONSUMERS} times by one, {FETCH_BYTES} bytes a fetch",
        options.gigabytes_or(2.0)
    )
}

/// Measures one thing on a running broker.
type Part = fn(&Turn<'_>, &mut dyn FnMut(&str, f64)) -> Result<()>;

pub fn measure(setting: &Setting<'_>, results: &mut Results) -> Result<()> {
    // The load generator opens a socket for each connection.
    let mut files = getrlimit(Resource::Nofile);
    files.current = files.maximum;
    setrlimit(Resource::Nofile, files).context("the limit of open files")?;
    let gigabytes = setting.options.gigabytes_or(2.0);
    let disk = 2.5 * gigabytes * TURNS as f64 * 1e9;
    let disk = disk as u64 + MANY_PARTITIONS as u64 * PARTITION_BYTES;
    setting.alternate(results, |side, round, results| {
        let scratch = Scratch::new(&format!("scale-{round}-{side}"), disk)?;
        // The parts are independent, because a peer may fail in one of them.
        let parts: [Part; 3] = [connections, consumers, round_robin];
        for part in parts {
            let mut add = |measure: &str, value| {
                results.add(side, round, format!("scale: {measure}"), value);
            };
            let dir = scratch.path();
            let outcome = Turn::start(setting, side, dir).and_then(|mut turn| {
                part(&turn, &mut add)?;
                broker::stop(&mut turn.node)
            });
            setting.or_noted(side, round, results, outcome)?;
        }
        Ok(())
    })
}

/// The same batches to few partitions and to many, one after the other.
fn round_robin(turn: &Turn<'_>, add: &mut dyn FnMut(&str, f64)) -> Result<()> {
    let created = turn.load(&format!(
        "partitions create --topic many --partitions {MANY_PARTITIONS} --of-each {MANY_PARTITIONS} \
         --patience-seconds {CREATION_SECONDS}"
    ))?;
    let done = number_at(&created, "/done")? as usize;
    ensure!(
        done == MANY_PARTITIONS,
        "creation: {}",
        created["stopped_by"]
    );
    let bytes = turn.setting.options.gigabytes_or(2.0) * 1e9;
    let produce = |topic: &str, partitions: usize| -> Result<f64> {
        let report = turn.load_with_usage(&format!(
            "produce --topic {topic} --partitions {partitions} --connections 2 --batch-bytes {BATCH_BYTES} \
             --bytes {bytes:.0} --warmup-bytes {:.0}",
            bytes / 4.0
        ))?;
        number_at(&report, "/broker/cpu_seconds_per_gb")
    };
    let (mut few, mut many) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        few.push(produce("few", FEW_PARTITIONS)?);
        many.push(produce("many-0", MANY_PARTITIONS)?);
    }
    let (few, many) = (mean(&few), mean(&many));
    add("produce to 10 partitions, broker CPU s per GB", few);
    add("produce to 9,900 partitions, broker CPU s per GB", many);
    add(
        "produce, broker CPU s per GB, many partitions / 10",
        many / few,
    );
    Ok(())
}

fn connections(turn: &Turn<'_>, add: &mut dyn FnMut(&str, f64)) -> Result<()> {
    let report = turn.load_with_usage(&format!("connections --connections {CONNECTIONS}"))?;
    let value = |pointer: &str| number_at(&report, pointer);
    add("connections, open", value("/open")?);
    if !turn.is_java() {
        // Of a Java heap it says nothing.
        add("memory of a connection, bytes", value("/bytes_each")?);
        add(
            "memory of a connection after use, bytes",
            value("/bytes_each_used")?,
        );
    }
    let cpu = value("/broker_cpu_us_per_request")?;
    add("CPU of a request at 10,000 connections, µs", cpu);
    add(
        "requests/s at 10,000 connections",
        value("/requests_per_second")?,
    );
    Ok(())
}

/// One partition, in the page cache, read by one consumer and by many.
fn consumers(turn: &Turn<'_>, add: &mut dyn FnMut(&str, f64)) -> Result<()> {
    turn.load(&format!(
        "produce --topic read --partitions 1 --batch-bytes {BATCH_BYTES} --bytes {READ_BYTES}"
    ))?;
    let fetch = |consumers: usize, passes: usize| -> Result<f64> {
        let report = turn.load_with_usage(&format!(
            "fetch --topic read --connections {consumers} --passes {passes} --fetch-bytes {FETCH_BYTES}"
        ))?;
        number_at(&report, "/broker/cpu_seconds_per_gb")
    };
    let (mut one, mut many) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        one.push(fetch(1, CONSUMERS)?);
        many.push(fetch(CONSUMERS, 1)?);
    }
    let (one, many) = (mean(&one), mean(&many));
    add("1 consumer, broker CPU s per GB", one);
    add("1,000 consumers, broker CPU s per GB", many);
    add("broker CPU s per GB, 1,000 consumers / 1", many / one);
    Ok(())
}
