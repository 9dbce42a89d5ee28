//! Three clients of one Ottla: Kafka's own Java tools, librdkafka, and Ottla's tools.
//!
//! Each in turn produces to its own topic, which is then deleted, and consumes a shared topic, so
//! that only the client differs. Kafka's tools and Ottla's get the same command line. librdkafka
//! has no such tool and is driven by `conformance/rdkafka` through its batch interface. Its
//! settings follow the others' where it has equivalents; they are not tuned for its best speed.
//! Values are read from a file or generated beforehand, because Kafka's tool would otherwise
//! generate each letter while its clock runs. Rates are the rates that the tools print: for a
//! producer from the first record to the last acknowledgement, for a consumer from the assignment
//! of its partitions, with or without a group, to the last record. CPU time covers whole processes,
//! including JVM start-up.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::disk::{self, Scratch};
use super::machine::{self, ProcessReading};
use super::rows::{self, consumer_summary, producer_summary};
use super::setting::Setting;
use super::table::Results;
use super::{broker, node};
use ottla_peers::NodeOptions;
use ottla_workspace::toolchain::{self, C_COMPILER};
use ottla_workspace::{process, workspace};

/// In the order of [`Client`]; Ottla last, as [`Results`] requires.
pub const NAMES: [&str; 3] = ["Kafka's Java tools", "librdkafka", "Ottla's tools"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Client {
    Java,
    Librdkafka,
    Ottla,
}

const CLIENTS: [Client; 3] = [Client::Java, Client::Librdkafka, Client::Ottla];

const PARTITIONS: &str = "6";
const RECORD_BYTES: usize = 100;
/// Number of distinct values in the value file.
const VALUES: usize = 10_000;
/// The topic that all clients consume.
const CONSUMED: &str = "consumed";

/// Settings of Kafka's and Ottla's producers.
const PRODUCER: [&str; 3] = ["acks=1", "batch.size=65536", "buffer.memory=67108864"];
/// Settings of librdkafka's producer. With a linger of 0 it would send batches of few records.
const LIBRDKAFKA_PRODUCER: [&str; 5] = [
    "acks=1",
    "batch.size=65536",
    "linger.ms=5",
    "queue.buffering.max.messages=1000000",
    "queue.buffering.max.kbytes=65536",
];
const LIBRDKAFKA_CONSUMER: [&str; 2] = ["check.crcs=false", "queued.min.messages=1000000"];

pub fn settings_in_words() -> String {
    format!(
        "producers with {}, librdkafka's with {} and whole batches handed over, its consumer with {} and batches taken",
        PRODUCER.join(" "),
        LIBRDKAFKA_PRODUCER.join(" "),
        LIBRDKAFKA_CONSUMER.join(" ")
    )
}

pub fn measure(setting: &Setting<'_>, results: &mut Results) -> Result<()> {
    let records = setting.options.node_records();
    let scratch = Scratch::new("clients", records * 2 * 110 + 500_000_000)?;
    let (key, value) = node::DELETE_SOON;
    let mut overrides = vec![(key.to_owned(), value.to_owned())];
    overrides.extend(setting.options.overrides.iter().cloned());
    let [_, ottla] = setting.sides;
    let mut broker = ottla.start(NodeOptions {
        dir: scratch.path().to_path_buf(),
        overrides,
        ..NodeOptions::default()
    })?;
    let bench = Bench {
        setting,
        bootstrap: broker.bootstrap(),
        broker: broker.pid(),
        data: broker.data_dir(),
        values: scratch.path().join("values.txt"),
        ottla: workspace::release_binary("ottla", "ottla")?,
        rdkafka: rdkafka_program()?,
        records: records.to_string(),
    };
    std::fs::write(&bench.values, letters())?;
    bench.create(CONSUMED)?;
    bench.produce(Client::Ottla, CONSUMED)?;
    setting.alternate(results, |side, round, results| {
        let client = CLIENTS[side];
        let topic = format!("produced-{round}-{side}");
        bench.create(&topic)?;
        let produced = bench.produce(client, &topic)?;
        bench.delete(&topic)?;
        let consumed = bench.consume(client)?;
        for (what, took) in [("producer", produced), ("consumer", consumed)] {
            let mut add = |measure: &str, value: f64| {
                results.add(side, round, format!("{what}: {measure}"), value);
            };
            let millions = records as f64 / 1e6;
            add("records/s", took.records_per_second);
            add(
                "client CPU s per million",
                took.client_cpu_seconds / millions,
            );
            add(
                "broker CPU s per million",
                took.broker_cpu_seconds / millions,
            );
        }
        Ok(())
    })?;
    broker::stop(&mut broker)
}

/// Time and CPU time of a client for all records.
struct ClientUsage {
    records_per_second: f64,
    client_cpu_seconds: f64,
    broker_cpu_seconds: f64,
}

struct Bench<'a> {
    setting: &'a Setting<'a>,
    bootstrap: String,
    broker: u32,
    data: PathBuf,
    /// A file with one value per line.
    values: PathBuf,
    ottla: PathBuf,
    rdkafka: PathBuf,
    records: String,
}

impl Bench<'_> {
    fn produce(&self, client: Client, topic: &str) -> Result<ClientUsage> {
        let bootstrap = format!("bootstrap.servers={}", self.bootstrap);
        let mut command = match client {
            Client::Java => rows::kafka_tool(self.setting.kafka, "ProducerPerformance")?,
            Client::Librdkafka => self.subcommand(&self.rdkafka, "produce"),
            Client::Ottla => self.subcommand(&self.ottla, "producer-perf-test"),
        };
        command.args(["--topic", topic, "--num-records", &self.records]);
        if client == Client::Librdkafka {
            command
                .args(["--record-size", &RECORD_BYTES.to_string()])
                .arg(&bootstrap)
                .args(LIBRDKAFKA_PRODUCER);
            return self.measured(command, rate_in_json);
        }
        command
            .arg("--payload-file")
            .arg(&self.values)
            .args(["--throughput", "-1", "--command-property"])
            .arg(&bootstrap)
            .args(PRODUCER);
        self.measured(command, |printed| {
            Ok(producer_summary(printed)?.records_per_second)
        })
    }

    fn consume(&self, client: Client) -> Result<ClientUsage> {
        let mut command = match client {
            Client::Java => rows::kafka_tool(self.setting.kafka, "ConsumerPerformance")?,
            Client::Librdkafka => self.subcommand(&self.rdkafka, "consume"),
            Client::Ottla => self.subcommand(&self.ottla, "consumer-perf-test"),
        };
        command.args(["--topic", CONSUMED, "--num-records", &self.records]);
        if client == Client::Librdkafka {
            command
                .arg(format!("bootstrap.servers={}", self.bootstrap))
                .args(LIBRDKAFKA_CONSUMER);
            return self.measured(command, rate_in_json);
        }
        command
            .args(["--bootstrap-server", &self.bootstrap])
            .args(["--timeout", "60000"]);
        let wanted = self.setting.options.node_records();
        self.measured(command, |printed| {
            let summary = consumer_summary(printed)?;
            ensure!(
                summary.records >= wanted,
                "only {} of {wanted} records were read:\n{printed}",
                summary.records
            );
            Ok(summary.fetched_per_second)
        })
    }

    fn measured(
        &self,
        mut command: Command,
        rate: impl Fn(&str) -> Result<f64>,
    ) -> Result<ClientUsage> {
        let broker = ProcessReading::of(self.broker)?;
        let ended = machine::cpu_seconds_of_ended_children()?;
        let printed = process::output_of(&mut command)?;
        Ok(ClientUsage {
            records_per_second: rate(&printed)?,
            client_cpu_seconds: machine::cpu_seconds_of_ended_children()? - ended,
            broker_cpu_seconds: ProcessReading::of(self.broker)?.since(&broker).cpu_seconds,
        })
    }

    fn create(&self, topic: &str) -> Result<()> {
        self.topics(&["--create", "--topic", topic, "--partitions", PARTITIONS])
    }

    fn delete(&self, topic: &str) -> Result<()> {
        self.topics(&["--delete", "--topic", topic])?;
        disk::wait_until_deleted(&self.data, topic)
    }

    fn topics(&self, arguments: &[&str]) -> Result<()> {
        let mut command = self.subcommand(&self.ottla, "topics");
        command
            .args(["--bootstrap-server", &self.bootstrap])
            .args(arguments);
        process::output_of(&mut command).map(drop)
    }

    fn subcommand(&self, program: &Path, name: &str) -> Command {
        let mut command = Command::new(program);
        command.arg(name);
        command
    }
}

/// Lines of capital letters, as Kafka's tool generates them.
pub(super) fn letters() -> String {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut text = String::with_capacity(VALUES * (RECORD_BYTES + 1));
    for _ in 0..VALUES {
        for _ in 0..RECORD_BYTES {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            text.push(char::from(b'A' + (state % 26) as u8));
        }
        text.push('\n');
    }
    text
}

/// Parses the output of the `conformance/rdkafka` program.
fn rate_in_json(printed: &str) -> Result<f64> {
    let report: Value =
        serde_json::from_str(printed).with_context(|| format!("not JSON: {printed}"))?;
    report["records_per_second"]
        .as_f64()
        .with_context(|| format!("no rate in {report}"))
}

/// Builds the program that drives librdkafka. It is a separate workspace, because only it compiles
/// librdkafka's C sources.
fn rdkafka_program() -> Result<PathBuf> {
    toolchain::require(&C_COMPILER)?;
    let target = workspace::target_dir().join("rdkafka");
    let mut build = workspace::cargo();
    build
        .args(["build", "--quiet", "--release", "--locked"])
        .args(["--manifest-path", "conformance/rdkafka/Cargo.toml"])
        .arg("--target-dir")
        .arg(&target);
    process::output_of(&mut build).context("librdkafka cannot be built")?;
    Ok(target.join("release/rdkafka-perf"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_parsed_from_the_output() {
        let printed = r#"{"records":5,"seconds":2.0,"records_per_second":2.5}"#;
        assert_eq!(rate_in_json(printed).unwrap(), 2.5);
        assert!(rate_in_json("{}").is_err() && rate_in_json("no").is_err());
    }

    #[test]
    fn values_are_lines_of_the_size_of_a_record() {
        let text = letters();
        assert_eq!(text.lines().count(), VALUES);
        assert!(text.lines().all(|line| line.len() == RECORD_BYTES));
        let different: std::collections::BTreeSet<&str> = text.lines().collect();
        assert_eq!(different.len(), VALUES);
    }
}
