//! Producers of 100-byte records for a topic of six partitions with three replicas: one of Kafka's
//! Java tool, and three native ones in parallel.
//!
//! The settings come from the scenarios `linkedin-2014/asynchronous-replication`,
//! `synchronous-replication` and `three-producers`; runs with other batch sizes isolate the
//! difference between `acks=all` and `acks=1`. Values are read from a file, because Kafka's tool
//! would otherwise generate each letter while its clock runs. CPU time counts until all replicas
//! have all records. The clients' CPU time is shown beside the brokers', because both share the
//! cores and the clients' use bounds what any broker can reach.

use std::path::Path;

use anyhow::{Context, Result, bail};

use super::bench::{Bench, PARTITIONS, RECORD_BYTES};
use crate::bench_peer::clients::letters;
use crate::bench_peer::machine::cpu_seconds_of_ended_children;
use crate::bench_peer::rows::{self, producer_summary};
use crate::bench_peer::setting::{BROKERS, Options};
use ottla_workspace::process;

/// Batch size of the scenario with acks=1, also used for its counterpart with acks=all.
const SMALL: &str = "batch.size=8196";
const LARGE: &str = "batch.size=64000";
const BUFFER: &str = "buffer.memory=67108864";

/// Runs of Kafka's tool: name, acks, and batch size.
const JAVA: [(&str, &str, &str); 3] = [
    ("Java producer, acks=1", "acks=1", SMALL),
    (
        "Java producer, acks=1 and batches of 64 kB",
        "acks=1",
        LARGE,
    ),
    ("Java producer, acks=all", "acks=all", LARGE),
];

/// Runs of native producers.
const NATIVE: [(&str, &str, &str); 2] = [
    ("three native producers, acks=1", "acks=1", SMALL),
    (
        "three native producers, acks=1 and batches of 64 kB",
        "acks=1",
        LARGE,
    ),
];
const NATIVE_PRODUCERS: u64 = 3;

pub fn settings_in_words(options: &Options) -> String {
    format!(
        "{} records of {RECORD_BYTES} bytes a run, {PARTITIONS} partitions, {BROKERS} replicas, {SMALL} with acks=1 and {LARGE} \
         with acks=all unless the row says otherwise, {BUFFER}",
        options.cluster_records()
    )
}

pub fn measure(bench: &mut Bench<'_>) -> Result<()> {
    let records = bench.setting.options.cluster_records();
    let values = bench.scratch.path().join("values.txt");
    std::fs::write(&values, letters())?;
    // Warm-up: Kafka's brokers JIT-compile code while it runs.
    let (_, acks, batch_size) = JAVA[0];
    bench.create_topic("warm-up")?;
    java(bench, &values, "warm-up", [acks, batch_size], records / 5)?;
    bench.delete_topic("warm-up")?;

    let mut rates = Vec::new();
    for (number, (name, acks, batch_size)) in JAVA.into_iter().enumerate() {
        let topic = format!("java-{number}");
        let produce = |bench: &Bench<'_>| java(bench, &values, &topic, [acks, batch_size], records);
        rates.push(measured(bench, name, &topic, records, produce)?);
    }
    if let [_, one, all] = rates[..] {
        bench.add("Java producer, acks=all / acks=1", all / one);
    }
    for (number, (name, acks, batch_size)) in NATIVE.into_iter().enumerate() {
        let topic = format!("native-{number}");
        let each = records / NATIVE_PRODUCERS;
        let settings = [acks, batch_size];
        let produce = |bench: &Bench<'_>| native(bench, &values, &topic, settings, each);
        measured(bench, name, &topic, each * NATIVE_PRODUCERS, produce)?;
    }
    let largest = |sizes: &mut dyn Iterator<Item = f64>| sizes.fold(0.0, f64::max);
    let readings = bench.readings()?;
    let now = largest(&mut readings.iter().map(|it| it.resident_mb()));
    let peak = largest(&mut readings.iter().map(|it| it.peak_mb()));
    bench.add("memory after the producers, the largest broker, MB", now);
    bench.add("memory at its peak, the largest broker, MB", peak);
    Ok(())
}

/// Produces to a new topic, records and returns the rate, and records the brokers' usage.
fn measured(
    bench: &mut Bench<'_>,
    name: &str,
    topic: &str,
    records: u64,
    produce: impl FnOnce(&Bench<'_>) -> Result<f64>,
) -> Result<f64> {
    bench.create_topic(topic)?;
    let before = bench.readings()?;
    let clients_before = cpu_seconds_of_ended_children()?;
    let rate = produce(bench).with_context(|| name.to_owned())?;
    let used_by_clients = cpu_seconds_of_ended_children()? - clients_before;
    bench.wait_until_replicated(topic, records)?;
    let used = bench.cpu_seconds_since(&before)?;
    bench.delete_topic(topic)?;
    let gigabytes = (records * RECORD_BYTES) as f64 / 1e9;
    bench.add(format!("{name}: records/s"), rate);
    bench.add(
        format!("{name}: CPU s per GB, all brokers"),
        used / gigabytes,
    );
    bench.add(
        format!("{name}: CPU s per GB, the clients"),
        used_by_clients / gigabytes,
    );
    Ok(rate)
}

/// One producer of Kafka's tool. Returns the rate that it prints.
fn java(
    bench: &Bench<'_>,
    values: &Path,
    topic: &str,
    settings: [&str; 2],
    records: u64,
) -> Result<f64> {
    let mut tool = rows::kafka_tool(bench.setting.kafka, "ProducerPerformance")?;
    tool.args(["--topic", topic, "--num-records", &records.to_string()])
        .arg("--payload-file")
        .arg(values)
        .args(["--throughput", "-1", "--command-property"])
        .arg(format!("bootstrap.servers={}", bench.cluster.bootstrap()))
        .args(settings)
        .arg(BUFFER);
    let printed = process::output_of(&mut tool)?;
    Ok(producer_summary(&printed)?.records_per_second)
}

/// Several processes of Ottla's tool in parallel. Returns acknowledged records per second, from
/// before the first process started until the last one exited.
fn native(
    bench: &Bench<'_>,
    values: &Path,
    topic: &str,
    settings: [&str; 2],
    records: u64,
) -> Result<f64> {
    let began = std::time::Instant::now();
    std::thread::scope(|scope| {
        let producers: Vec<_> = (0..NATIVE_PRODUCERS)
            .map(|_| {
                let mut tool = bench.tool("producer-perf-test");
                tool.args(["--topic", topic, "--num-records", &records.to_string()])
                    .arg("--payload-file")
                    .arg(values)
                    .args(["--throughput", "-1", "--command-property"])
                    .arg(format!("bootstrap.servers={}", bench.cluster.bootstrap()))
                    .args(settings)
                    .arg(BUFFER);
                scope.spawn(move || process::output_of(&mut tool))
            })
            .collect();
        producers.into_iter().try_for_each(|producer| {
            let printed = producer.join();
            let printed = printed.unwrap_or_else(|_| bail!("a thread of a producer panicked"))?;
            producer_summary(&printed).map(drop)
        })
    })?;
    Ok((records * NATIVE_PRODUCERS) as f64 / began.elapsed().as_secs_f64())
}
