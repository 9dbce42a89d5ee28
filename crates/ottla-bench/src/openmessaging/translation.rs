//! Translates a workload and a driver to the text of a scenario.
//!
//! The benchmark's topics become partitions of one topic, because a scenario has one topic: with
//! the same number of partitions, producers and consumers, and the same bytes. Its payloads of
//! random bytes and zeros become values with the same compressibility.

use std::collections::BTreeMap;

use anyhow::Result;
use ottla_config::Properties;
use toml::{Table, Value};

use super::{Driver, Workload};
use crate::workload::stamp::STAMP_BYTES;

/// The number of keys that the benchmark draws from.
const KEYS: i64 = 10_000;
/// Settings that name JVM classes; records are bytes here.
const OF_THE_JVM: &[&str] = &[
    "key.serializer",
    "value.serializer",
    "key.deserializer",
    "value.deserializer",
];

/// The brokers that the driver names.
pub fn bootstrap_servers(driver: &Driver) -> Result<Option<String>> {
    let mut common = properties(&driver.common_config)?;
    Ok(common.remove("bootstrap.servers"))
}

/// A scenario equivalent to the workload, with the driver's settings.
pub fn scenario_text(workload: &Workload, driver: &Driver) -> Result<String> {
    let notes = notes(workload, driver);
    let common = properties(&driver.common_config)?;
    let of_client = |text: &str| -> Result<Table> {
        let mut settings = common.clone();
        settings.extend(properties(text)?);
        settings.remove("bootstrap.servers");
        settings.retain(|key, _| !OF_THE_JVM.contains(&key.as_str()));
        Ok(table_of(settings))
    };
    let topics = i64::from(workload.topics);
    let mut records = Table::from_iter([("size".into(), size(workload.message_size))]);
    if workload.use_randomized_payloads {
        // As many of a number's 32 bits are random as of the benchmark's bytes.
        let bound = 2f64.powf(32.0 * workload.random_bytes_ratio);
        let bound = bound.clamp(1.0, f64::from(u32::MAX)) as i64;
        records.insert("value_bound".into(), Value::Integer(bound));
    }
    let keys = match workload.key_distributor.as_str() {
        "KEY_ROUND_ROBIN" => Some("range"),
        "RANDOM_NANO" => Some("random"),
        _ => None,
    };
    if let Some(keys) = keys {
        records.insert("keys".into(), Value::String(keys.into()));
        records.insert("key_range".into(), Value::Integer(KEYS));
    }
    let mut load = Table::new();
    if workload.producer_rate > 0.0 {
        load.insert("kind".into(), Value::String("rate".into()));
        load.insert("rate".into(), Value::Float(workload.producer_rate));
    }
    let groups = i64::from(workload.subscriptions_per_topic);
    let consumers = topics * groups * i64::from(workload.consumer_per_subscription);
    let mut of_consumers = Table::from_iter([("count".into(), Value::Integer(consumers))]);
    if consumers > 0 {
        of_consumers.insert("shared".into(), Value::Boolean(true));
        of_consumers.insert("groups".into(), Value::Integer(groups));
    }
    of_consumers.insert(
        "settings".into(),
        Value::Table(of_client(&driver.consumer_config)?),
    );
    let seconds = |minutes: f64| Value::String(format!("{}s", minutes * 60.0));
    let sections = [
        (
            "topic",
            Table::from_iter([
                (
                    "partitions".into(),
                    Value::Integer(topics * i64::from(workload.partitions_per_topic)),
                ),
                (
                    "replicas".into(),
                    Value::Integer(i64::from(driver.replication_factor)),
                ),
                (
                    "settings".into(),
                    Value::Table(table_of(properties(&driver.topic_config)?)),
                ),
            ]),
        ),
        ("records", records),
        (
            "producers",
            Table::from_iter([
                (
                    "count".into(),
                    Value::Integer(topics * i64::from(workload.producers_per_topic)),
                ),
                (
                    "settings".into(),
                    Value::Table(of_client(&driver.producer_config)?),
                ),
            ]),
        ),
        ("consumers", of_consumers),
        ("load", load),
        (
            "measure",
            Table::from_iter([
                ("warm_up".into(), seconds(workload.warmup_duration_minutes)),
                ("time".into(), seconds(workload.test_duration_minutes)),
                ("repetitions".into(), Value::Integer(1)),
                (
                    "end_to_end".into(),
                    Value::Boolean(consumers > 0 && workload.message_size >= STAMP_BYTES),
                ),
            ]),
        ),
    ];
    let mut document = Table::new();
    let title = format!("{} with {}", workload.name, driver.name);
    document.insert("title".into(), Value::String(title));
    let question = format!(
        "A workload and a driver of the OpenMessaging Benchmark. {}",
        notes.join(" ")
    );
    let question = question.trim_end().to_owned();
    document.insert("question".into(), Value::String(question));
    for (name, section) in sections {
        if !section.is_empty() {
            document.insert(name.into(), Value::Table(section));
        }
    }
    Ok(toml::to_string(&document)?)
}

/// Differences between the scenario and the benchmark.
fn notes(workload: &Workload, driver: &Driver) -> Vec<String> {
    let mut notes = Vec::new();
    if workload.topics > 1 {
        notes.push(format!(
            "Its {} topics are one topic here, with as many partitions, producers and consumers.",
            workload.topics
        ));
    }
    if workload.producer_rate <= 0.0 {
        notes.push("It gives no rate, so that records are sent as fast as they are taken.".into());
    }
    if workload.payload_file.is_some() && !workload.use_randomized_payloads {
        notes.push("Values are random capital letters in place of its payload file.".into());
    }
    let unknown: Vec<&str> = workload
        .others
        .keys()
        .chain(driver.others.keys())
        .map(String::as_str)
        .collect();
    // `reset` deletes topics of earlier runs; here every run deletes its own.
    let unknown: Vec<&str> = unknown.into_iter().filter(|key| *key != "reset").collect();
    if !unknown.is_empty() {
        notes.push(format!("Not known here: {}.", unknown.join(", ")));
    }
    notes
}

fn size(bytes: u64) -> Value {
    Value::Integer(i64::try_from(bytes).unwrap_or(i64::MAX))
}

fn table_of(settings: BTreeMap<String, String>) -> Table {
    let entries = settings.into_iter();
    entries
        .map(|(key, value)| (key, Value::String(value)))
        .collect()
}

/// Parses Java properties, as used in drivers.
fn properties(text: &str) -> Result<BTreeMap<String, String>> {
    Ok(Properties::parse(text, "a driver's settings")?.into_map())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Changes, Load, Scenario};
    use crate::workload::keys::KeyDistribution;

    fn read<T>(text: &str, read: impl Fn(&std::path::Path) -> Result<T>) -> Result<T> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("100-topics.yaml");
        std::fs::write(&path, text).unwrap();
        read(&path)
    }

    const WORKLOAD: &str = "\
topics: 2\npartitionsPerTopic: 10\nmessageSize: 1024\nuseRandomizedPayloads: true\nrandomBytesRatio: 0.5\n\
randomizedPayloadPoolSize: 1000\n\nsubscriptionsPerTopic: 3\nconsumerPerSubscription: 4\nproducersPerTopic: 5\n\
producerRate: 50000\nkeyDistributor: \"RANDOM_NANO\"\nconsumerBacklogSizeGB: 0\ntestDurationMinutes: 15\n";

    const DRIVER: &str = "\
name : Kafka-exactly-once\ndriverClass: io.openmessaging.benchmark.driver.kafka.KafkaBenchmarkDriver\n\
# comment\nreplicationFactor: 3\nreset: true\n\ntopicConfig: |\n    min.insync.replicas=2\n\n\
commonConfig: |\n    bootstrap.servers=a:9092,b:9092\n    request.timeout.ms=120000\n\n\
producerConfig: |\n    acks=all\n    linger.ms=1\n    key.serializer=org.apache.X\n\n\
consumerConfig: |\n    auto.offset.reset=earliest\n";

    #[test]
    fn a_workload_and_a_driver_are_a_scenario() {
        let workload = read(WORKLOAD, Workload::read).unwrap();
        assert_eq!(workload.name, "100-topics");
        let driver = read(DRIVER, Driver::read).unwrap();
        assert_eq!(
            bootstrap_servers(&driver).unwrap().as_deref(),
            Some("a:9092,b:9092")
        );
        let text = scenario_text(&workload, &driver).unwrap();
        let scenario = Scenario::parse("w", "w.yaml", &text).unwrap_or_else(|it| panic!("{it}"));
        assert_eq!(scenario.title, "100-topics with Kafka-exactly-once");
        assert!(
            scenario.question.contains("2 topics are one topic"),
            "{text}"
        );
        let points = scenario.points(&Changes::default()).unwrap();
        let spec = &points[0].spec;
        assert_eq!((spec.topic.partitions, spec.topic.replicas), (20, 3));
        assert_eq!(spec.topic.settings["min.insync.replicas"], "2");
        assert_eq!(spec.records.keys, KeyDistribution::Random(10_000));
        assert_eq!(spec.records.value_bound, Some(65_536));
        assert_eq!(spec.producers.count, 10);
        let keys: Vec<&String> = spec.producers.settings.keys().collect();
        assert_eq!(keys, ["acks", "linger.ms", "request.timeout.ms"]);
        assert_eq!((spec.consumers.count, spec.consumers.groups), (24, 3));
        assert_eq!(spec.consumers.per_group(), 8);
        let rate = Load::Rate {
            records_per_second: 50_000.0,
        };
        assert_eq!(spec.load, rate);
        assert_eq!(spec.measure.time.unwrap().as_secs(), 900);
        assert_eq!(spec.measure.warm_up.as_secs(), 60);
        assert!(spec.measure.end_to_end);
    }

    #[test]
    fn the_error_names_an_unsupported_setting() {
        let refused = |text: &str| read(text, Workload::read).unwrap_err().to_string();
        let backlog = WORKLOAD.replace("SizeGB: 0", "SizeGB: 5");
        assert!(refused(&backlog).contains("consumerBacklogSizeGB = 5"));
        let keys = WORKLOAD.replace("RANDOM_NANO", "NONE");
        assert!(refused(&keys).contains("keyDistributor = NONE"));
        assert!(refused("topics: 1\n").contains("messageSize must be above 0"));
        assert!(refused("topics: [").contains("is not a workload"));
        let driver = "driverClass: io.openmessaging.benchmark.driver.pulsar.PulsarBenchmarkDriver";
        let error = read(driver, Driver::read).unwrap_err().to_string();
        assert!(error.contains("only the driver of Kafka"), "{error}");
    }

    #[test]
    fn without_a_rate_and_consumers_the_load_is_unlimited() {
        let text =
            "name: max\nmessageSize: 8\nproducersPerTopic: 1\ntestDurationMinutes: 1\nfuture: 5\n";
        let workload = read(text, Workload::read).unwrap();
        let text = scenario_text(&workload, &Driver::default()).unwrap();
        let scenario = Scenario::parse("w", "w.yaml", &text).unwrap();
        let points = scenario.points(&Changes::default()).unwrap();
        assert_eq!(points[0].spec.load, Load::Closed);
        assert!(!points[0].spec.measure.end_to_end);
        assert!(scenario.question.contains("Not known here: future."));
    }
}
