//! The measures of one node: which client drives the broker, and which values are taken from its
//! output and the broker's process.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::load::{Load, number_at, report};
use super::machine::ProcessReading;
use super::{broker, disk};
use ottla_peers::java;
use ottla_peers::{InstalledPeer, Node};
use ottla_workspace::process;

const PARTITIONS: &str = "6";
const RECORD_BYTES: u64 = 100;

/// A row of the node's table, which may give several measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Row {
    /// From exec to the first answered ApiVersions, of several starts, and memory at rest.
    Startup,
    /// Kafka's ProducerPerformance.
    Producer,
    /// Kafka's ConsumerPerformance over the same records, which are then deleted.
    Consumer,
    /// The native load generator, batches of 64 KiB.
    LargeBatches,
    /// The native load generator, batches of 8 KiB.
    SmallBatches,
    /// Reading the records of the large batches.
    Fetch,
    /// The native load generator against the broker, and against a loop that only receives, checksums
    /// and appends the same batches. Batches of 64 KiB and of 8 KiB.
    BareLoop,
    /// One record at a time, from send to fetched.
    EndToEnd,
    /// Kafka's EndToEndLatency, in whole milliseconds.
    KafkaEndToEnd,
    /// Produce requests at a fixed rate.
    FixedRate,
    /// A transaction of one record, begin to commit, one after the other.
    Transactions,
    /// Kafka's ProducerPerformance in transactions of 100 ms, and the same without transactions.
    ExactlyOnce,
    /// 1,000 members of 100 groups join at the same time, with both consumer protocols.
    Groups,
    /// A restart with 100,000 committed offsets, until all of them are served.
    Offsets,
    /// Memory after all other rows.
    Memory,
}

impl Row {
    /// The rows that are measured by default, in the order in which they depend on each other.
    pub const ALL: [Row; 10] = [
        Row::Startup,
        Row::EndToEnd,
        Row::KafkaEndToEnd,
        Row::FixedRate,
        Row::Producer,
        Row::Consumer,
        Row::SmallBatches,
        Row::LargeBatches,
        Row::Fetch,
        Row::Memory,
    ];
}

/// One broker under measurement.
pub struct Bench<'a> {
    pub node: Node,
    /// Restarts the broker on the node's data.
    pub start_again: &'a dyn Fn() -> Result<Node>,
    /// Has Kafka's own tools.
    pub kafka: &'a InstalledPeer,
    pub load_generator: &'a Path,
    pub records: u64,
    pub gigabytes: f64,
    pub measured: Vec<(String, f64)>,
}

impl Bench<'_> {
    pub fn run(&mut self, row: Row) -> Result<()> {
        match row {
            Row::Startup => self.at_rest(),
            Row::Producer => self.producer(),
            Row::Consumer => self.consumer(),
            Row::LargeBatches => self.large_batches(),
            Row::SmallBatches => self.small_batches(),
            Row::Fetch => self.fetch(),
            Row::BareLoop => self.bare_loop(),
            Row::EndToEnd => self.end_to_end(),
            Row::KafkaEndToEnd => self.kafka_end_to_end(),
            Row::FixedRate => self.fixed_rate(),
            Row::Transactions => self.transactions(),
            Row::ExactlyOnce => self.exactly_once(),
            Row::Groups => self.groups(),
            Row::Offsets => self.offsets(),
            Row::Memory => self.memory(),
        }
        .with_context(|| format!("{row:?}"))
    }

    fn add(&mut self, measure: &str, value: f64) {
        self.measured.push((measure.to_owned(), value));
    }

    fn at_rest(&mut self) -> Result<()> {
        std::thread::sleep(Duration::from_secs(5));
        let resident = ProcessReading::of(self.node.pid())?.resident_mb();
        self.add("memory at rest, MB", resident);
        Ok(())
    }

    fn producer(&mut self) -> Result<()> {
        self.topic_command("--create", "perf", &["--partitions", PARTITIONS])?;
        let before = ProcessReading::of(self.node.pid())?;
        let bootstrap = format!("bootstrap.servers={}", self.node.bootstrap());
        let records = self.records.to_string();
        let arguments = format!(
            "--topic perf --num-records {records} --record-size 100 --throughput -1 \
             --producer-props acks=1 {bootstrap} buffer.memory=67108864 batch.size=8196"
        );
        let printed = self.kafka_tool("ProducerPerformance", &arguments)?;
        let used = ProcessReading::of(self.node.pid())?.since(&before);
        let summary = producer_summary(&printed)?;
        let payload_gb = (self.records * RECORD_BYTES) as f64 / 1e9;
        self.add("ProducerPerformance: records/s", summary.records_per_second);
        self.add(
            "ProducerPerformance: payload MB/s",
            summary.records_per_second * RECORD_BYTES as f64 / 1e6,
        );
        self.add(
            "ProducerPerformance: broker CPU s per GB of payload",
            used.cpu_seconds / payload_gb,
        );
        self.add("ProducerPerformance: p99 latency, ms", summary.p99_ms);
        Ok(())
    }

    fn consumer(&mut self) -> Result<()> {
        let before = ProcessReading::of(self.node.pid())?;
        let bootstrap = self.node.bootstrap();
        let records = self.records.to_string();
        let arguments = format!(
            "--bootstrap-server {bootstrap} --topic perf --num-records {records} --timeout 60000"
        );
        let printed = self.kafka_tool("ConsumerPerformance", &arguments)?;
        let used = ProcessReading::of(self.node.pid())?.since(&before);
        let summary = consumer_summary(&printed)?;
        if summary.records < self.records {
            bail!(
                "only {} of {} records were read:\n{printed}",
                summary.records,
                self.records
            );
        }
        let payload_gb = (summary.records * RECORD_BYTES) as f64 / 1e9;
        self.add("ConsumerPerformance: records/s", summary.records_per_second);
        self.add(
            "ConsumerPerformance: broker CPU s per GB of payload",
            used.cpu_seconds / payload_gb,
        );
        self.topic_command("--delete", "perf", &[])?;
        disk::wait_until_deleted(&self.node.data_dir(), "perf")
    }

    fn large_batches(&mut self) -> Result<()> {
        let bytes = format!("{:.0}", self.gigabytes * 1e9);
        let report = self.load(&format!(
            "produce --topic large --batch-bytes 65536 --bytes {bytes} --warmup-bytes 500000000"
        ))?;
        self.add_load("64 KiB batches", &report)
    }

    fn small_batches(&mut self) -> Result<()> {
        let bytes = format!("{:.0}", self.gigabytes * 1e9 / 4.0);
        let report = self.load(&format!(
            "produce --topic small --batch-bytes 8192 --bytes {bytes} --warmup-bytes 200000000 \
             --delete-topic"
        ))?;
        disk::wait_until_deleted(&self.node.data_dir(), "small")?;
        self.add_load("8 KiB batches", &report)
    }

    fn fetch(&mut self) -> Result<()> {
        let report = self.load("fetch --topic large --fetch-bytes 1048576")?;
        self.add_load("fetch 1 MiB", &report)
    }

    fn bare_loop(&mut self) -> Result<()> {
        for (name, batch_bytes) in [("64 KiB", 65_536), ("8 KiB", 8192)] {
            let bytes = self.gigabytes * 1e9 / 4.0;
            let shape = format!(
                "--batch-bytes {batch_bytes} --bytes {bytes:.0} --warmup-bytes 200000000 --machine-cpu"
            );
            let broker = self.load(&format!("produce --topic beside {shape} --delete-topic"))?;
            let data_dir = self.node.data_dir();
            disk::wait_until_deleted(&data_dir, "beside")?;
            let mut command = Command::new(self.load_generator);
            command.args(["bare-loop", "--json"]);
            command.args(shape.split_whitespace());
            let same_disk = data_dir.parent().context("the node's directory")?;
            command.arg("--dir").arg(same_disk);
            let bare_loop = report(&process::output_of(&mut command)?)?;
            let (cpu, of_machine) = ("cpu_seconds_per_gb", "rest_of_machine_cpu_seconds_per_gb");
            let broker_cpu = number_at(&broker, &format!("/broker/{cpu}"))?;
            let broker_machine = number_at(&broker, &format!("/{of_machine}"))?;
            let loop_cpu = number_at(&bare_loop, &format!("/batches/server/{cpu}"))?;
            let loop_machine = number_at(&bare_loop, &format!("/batches/{of_machine}"))?;
            let exact_cpu = number_at(&bare_loop, &format!("/exact/server/{cpu}"))?;
            for (measure, value) in [
                ("broker CPU s per GB", broker_cpu),
                ("loop CPU s per GB", loop_cpu),
                ("loop CPU s per GB, whole pages", exact_cpu),
                ("broker / loop", broker_cpu / loop_cpu),
                ("broker / loop, whole pages", broker_cpu / exact_cpu),
                ("machine CPU s per GB, broker", broker_machine),
                ("machine CPU s per GB, loop", loop_machine),
                ("machine CPU, broker / loop", broker_machine / loop_machine),
            ] {
                self.add(&format!("{name} beside the bare loop: {measure}"), value);
            }
        }
        Ok(())
    }

    fn end_to_end(&mut self) -> Result<()> {
        let report = self.load("end-to-end --topic end-to-end --records 20000")?;
        self.add_latencies("end to end", &report["latency"])
    }

    fn kafka_end_to_end(&mut self) -> Result<()> {
        let bootstrap = self.node.bootstrap();
        let arguments = format!(
            "--bootstrap-server {bootstrap} --topic kafka-end-to-end --num-records 5000 \
             --producer-acks 1 --record-size 100"
        );
        let printed = self.kafka_tool("EndToEndLatency", &arguments)?;
        let line = printed
            .lines()
            .find(|line| line.contains("Percentiles"))
            .with_context(|| format!("no percentiles in:\n{printed}"))?;
        for (name, percentile) in [
            ("p50", "50th = "),
            ("p99", "99th = "),
            ("p99.9", "99.9th = "),
        ] {
            let value = number_after(line, percentile)?;
            self.add(&format!("Kafka's EndToEndLatency: {name}, ms"), value);
        }
        Ok(())
    }

    fn fixed_rate(&mut self) -> Result<()> {
        let report = self.load("produce-latency --topic fixed-rate --rate 10000")?;
        self.add_latencies("produce at 10,000 records/s", &report["latency"])
    }

    fn transactions(&mut self) -> Result<()> {
        let words = java::program(self.kafka, "load", "TransactionTimes")?;
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command.args([&self.node.bootstrap(), "transactions", "5000"]);
        let printed = process::output_of(&mut command)?;
        for (percentile, word) in ["p50", "p99"].iter().zip(printed.split_whitespace()) {
            let value = word.parse().with_context(|| printed.clone())?;
            let measure = format!("transaction of one record: {percentile}, µs");
            self.add(&measure, value);
        }
        Ok(())
    }

    fn exactly_once(&mut self) -> Result<()> {
        let records = (self.records / 4).to_string();
        let bootstrap = format!("bootstrap.servers={}", self.node.bootstrap());
        self.topic_command("--create", "once", &["--partitions", PARTITIONS])?;
        let mut rates = Vec::new();
        // Alternating, because a broker's first seconds differ from its later ones.
        for transactional in [false, true, false, true] {
            let transaction = if transactional {
                "--transactional-id once --transaction-duration-ms 100"
            } else {
                ""
            };
            let arguments = format!(
                "--topic once --num-records {records} --record-size 100 --throughput -1 {transaction} \
                 --producer-props acks=all {bootstrap} buffer.memory=67108864 batch.size=65536"
            );
            let printed = self.kafka_tool("ProducerPerformance", &arguments)?;
            rates.push(producer_summary(&printed)?.records_per_second);
        }
        let (idempotent, transactional) = (rates[0] + rates[2], rates[1] + rates[3]);
        self.add("idempotent: records/s", idempotent / 2.0);
        self.add("transactions of 100 ms: records/s", transactional / 2.0);
        self.add(
            "transactions of 100 ms: part of idempotent",
            transactional / idempotent,
        );
        self.topic_command("--delete", "once", &[])?;
        disk::wait_until_deleted(&self.node.data_dir(), "once")
    }

    fn groups(&mut self) -> Result<()> {
        // The first groups trigger the creation of the offsets topic.
        self.load("groups --groups 10 --members 100 --topic groups-before --partitions 10")?;
        for protocol in ["consumer", "classic"] {
            let before = ProcessReading::of(self.node.pid())?;
            let report = self.load(&format!("groups --topic groups --protocol {protocol}"))?;
            let used = ProcessReading::of(self.node.pid())?.since(&before);
            let name = format!("1,000 {protocol} members of 100 groups");
            let settled = number_at(&report, "/seconds")? * 1e3;
            self.add(&format!("{name}: settled after, ms"), settled);
            self.add(&format!("{name}: broker CPU s"), used.cpu_seconds);
            for (measure, pointer) in [
                (
                    "generator CPU s while they settle",
                    "/generator_cpu_seconds",
                ),
                ("joins", "/joins"),
                ("heartbeats", "/heartbeats"),
                ("epochs until settled, at most", "/last_epoch"),
            ] {
                self.add(&format!("{name}: {measure}"), number_at(&report, pointer)?);
            }
        }
        Ok(())
    }

    fn offsets(&mut self) -> Result<()> {
        self.load("commit-offsets --topic offsets")?;
        broker::stop(&mut self.node)?;
        let began = Instant::now();
        self.node = (self.start_again)()?;
        let answering = began.elapsed();
        self.load("fetch-offsets --topic offsets")?;
        let served = began.elapsed();
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        self.add("100,000 offsets: exec to all served, ms", ms(served));
        self.add(
            "100,000 offsets: first answer to all served, ms",
            ms(served - answering),
        );
        Ok(())
    }

    fn memory(&mut self) -> Result<()> {
        let reading = ProcessReading::of(self.node.pid())?;
        self.add("memory after the load, MB", reading.resident_mb());
        self.add("memory at its peak, MB", reading.peak_mb());
        Ok(())
    }

    // ---- parts of the rows
    // ---------------------------------------------------------------------------------

    fn topic_command(&self, action: &str, topic: &str, more: &[&str]) -> Result<()> {
        let bootstrap = self.node.bootstrap();
        let mut command = self.kafka.tool("org.apache.kafka.tools.TopicCommand");
        command
            .args(["--bootstrap-server", &bootstrap, action, "--topic", topic])
            .args(more);
        process::output_of(&mut command)?;
        Ok(())
    }

    fn kafka_tool(&self, tool: &str, line: &str) -> Result<String> {
        process::output_of(kafka_tool(self.kafka, tool)?.args(line.split_whitespace()))
    }

    /// `line` is a command of the load generator with its arguments.
    fn load(&self, line: &str) -> Result<Value> {
        Load::on(self.load_generator, &self.node).run(line)
    }

    fn add_load(&mut self, name: &str, report: &Value) -> Result<()> {
        let value = |pointer: &str| number_at(report, pointer);
        let rate = value("/megabytes_per_second")?;
        let cpu = value("/broker/cpu_seconds_per_gb")?;
        self.add(&format!("{name}: MB/s"), rate);
        self.add(&format!("{name}: broker CPU s per GB"), cpu);
        Ok(())
    }

    fn add_latencies(&mut self, name: &str, latency: &Value) -> Result<()> {
        for (percentile, key) in [
            ("p50", "/p50_us"),
            ("p99", "/p99_us"),
            ("p99.9", "/p99_9_us"),
        ] {
            let value = number_at(latency, key)?;
            self.add(&format!("{name}: {percentile}, µs"), value);
        }
        Ok(())
    }
}

/// One of Kafka's performance tools, with the default JVM settings of a tool.
pub fn kafka_tool(kafka: &InstalledPeer, tool: &str) -> Result<Command> {
    let Some(class_path) = kafka.class_path() else {
        bail!("the peer `kafka` has no class path");
    };
    let mut command = Command::new("java");
    command
        .args(["-Xmx512M", "-cp", class_path])
        .arg(format!("org.apache.kafka.tools.{tool}"));
    Ok(command)
}

/// The summary of a producing tool.
#[derive(Debug, PartialEq)]
pub struct ProducerSummary {
    pub records_per_second: f64,
    pub p99_ms: f64,
    pub p99_9_ms: f64,
}

/// Parses the last line of ProducerPerformance, the only one with percentiles.
pub fn producer_summary(printed: &str) -> Result<ProducerSummary> {
    let line = printed
        .lines()
        .rev()
        .find(|line| line.contains("99.9th"))
        .with_context(|| format!("ProducerPerformance printed no summary:\n{printed}"))?;
    let before = |unit: &str| -> Result<f64> {
        let head = line.split(unit).next().unwrap_or_default();
        let word = head
            .rsplit([' ', ','])
            .find(|word| !word.is_empty())
            .unwrap_or_default();
        word.parse()
            .with_context(|| format!("no number before `{unit}` in: {line}"))
    };
    Ok(ProducerSummary {
        records_per_second: before(" records/sec")?,
        p99_ms: before(" ms 99th")?,
        p99_9_ms: before(" ms 99.9th")?,
    })
}

/// The summary of a consuming tool.
#[derive(Debug, PartialEq)]
pub struct ConsumerSummary {
    pub records: u64,
    pub records_per_second: f64,
    /// Excludes the time to join the group.
    pub fetched_per_second: f64,
}

/// Parses the line of comma-separated values.
pub fn consumer_summary(printed: &str) -> Result<ConsumerSummary> {
    let line = printed
        .lines()
        .rev()
        .find(|line| {
            line.split(',').count() >= 10 && line.starts_with(|c: char| c.is_ascii_digit())
        })
        .with_context(|| format!("ConsumerPerformance printed no summary:\n{printed}"))?;
    let columns: Vec<&str> = line.split(',').map(str::trim).collect();
    Ok(ConsumerSummary {
        records: columns[4].parse()?,
        records_per_second: columns[5].parse()?,
        fetched_per_second: columns[9].parse()?,
    })
}

fn number_after(line: &str, label: &str) -> Result<f64> {
    // "50th = " must not match within "99.50th = ".
    let at = line
        .match_indices(label)
        .find(|(at, _)| !line[..*at].ends_with(|c: char| c.is_ascii_digit() || c == '.'))
        .with_context(|| format!("no `{label}` in: {line}"))?
        .0;
    let rest = &line[at + label.len()..];
    let end = rest
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(rest.len());
    rest[..end]
        .trim_end_matches('.')
        .parse()
        .with_context(|| format!("no number after {label}: {line}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_of_kafka_are_parsed() {
        let printed = "499,000 records sent\n10000000 records sent, 812345.6 records/sec (77.47 MB/sec), 12.31 ms avg \
                       latency, 345.00 ms max latency, 1 ms 50th, 5 ms 95th, 20 ms 99th, 50 ms 99.9th.\n";
        let found = producer_summary(printed).unwrap();
        assert_eq!(
            found,
            ProducerSummary {
                records_per_second: 812345.6,
                p99_ms: 20.0,
                p99_9_ms: 50.0
            }
        );
        assert!(producer_summary("nothing").is_err());

        let printed = "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, \
                       rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec\n\
                       2026-01-01 00:00:00:000, 2026-01-01 00:00:09:000, 953.6743, 105.9, 10000000, 1111111.1, 3000, \
                       6000, 158.9, 1666666.7";
        let expected = ConsumerSummary {
            records: 10_000_000,
            records_per_second: 1_111_111.1,
            fetched_per_second: 1_666_666.7,
        };
        assert_eq!(consumer_summary(printed).unwrap(), expected);
        assert!(consumer_summary("nothing").is_err());
    }

    #[test]
    fn a_percentile_is_not_found_within_another() {
        let line = "Percentiles: 50th = 1, 99th = 3, 99.9th = 14";
        assert_eq!(number_after(line, "99th = ").unwrap(), 3.0);
        assert_eq!(number_after(line, "99.9th = ").unwrap(), 14.0);
        assert!(number_after(line, "9th = ").is_err());
    }
}
