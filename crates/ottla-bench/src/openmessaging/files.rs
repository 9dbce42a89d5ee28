//! Workload and driver files, as the benchmark's own programs read them.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The workload. Names and defaults are the benchmark's.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Workload {
    pub name: String,
    pub topics: u32,
    pub partitions_per_topic: u32,
    /// `NO_KEY`, `KEY_ROUND_ROBIN` or `RANDOM_NANO`.
    pub key_distributor: String,
    pub message_size: u64,
    /// Payloads that are partly random and otherwise zeros, instead of the payload file.
    pub use_randomized_payloads: bool,
    pub random_bytes_ratio: f64,
    pub randomized_payload_pool_size: u64,
    pub payload_file: Option<String>,
    pub subscriptions_per_topic: u32,
    pub consumer_per_subscription: u32,
    pub producers_per_topic: u32,
    /// Records per second of all producers together; 0 for as fast as possible.
    pub producer_rate: f64,
    #[serde(rename = "consumerBacklogSizeGB")]
    pub consumer_backlog_size_gb: u64,
    pub test_duration_minutes: f64,
    pub warmup_duration_minutes: f64,
    /// Unknown keys.
    #[serde(flatten)]
    pub others: BTreeMap<String, serde_json::Value>,
}

impl Default for Workload {
    fn default() -> Workload {
        Workload {
            name: String::new(),
            topics: 1,
            partitions_per_topic: 1,
            key_distributor: "NO_KEY".to_owned(),
            message_size: 0,
            use_randomized_payloads: false,
            random_bytes_ratio: 0.0,
            randomized_payload_pool_size: 0,
            payload_file: None,
            subscriptions_per_topic: 0,
            consumer_per_subscription: 0,
            producers_per_topic: 0,
            producer_rate: 0.0,
            consumer_backlog_size_gb: 0,
            test_duration_minutes: 0.0,
            warmup_duration_minutes: 1.0,
            others: BTreeMap::new(),
        }
    }
}

/// How to connect to a cluster, and the settings of its clients and topics.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Driver {
    pub name: String,
    pub driver_class: String,
    pub replication_factor: u32,
    /// In the format of Java properties.
    pub topic_config: String,
    pub common_config: String,
    pub producer_config: String,
    pub consumer_config: String,
    #[serde(flatten)]
    pub others: BTreeMap<String, serde_json::Value>,
}

impl Default for Driver {
    fn default() -> Driver {
        Driver {
            name: "Kafka".to_owned(),
            driver_class: String::new(),
            replication_factor: 1,
            topic_config: String::new(),
            common_config: String::new(),
            producer_config: String::new(),
            consumer_config: String::new(),
            others: BTreeMap::new(),
        }
    }
}

impl Workload {
    pub fn read(path: &Path) -> Result<Workload> {
        let mut workload: Workload = read_yaml(path, "a workload")?;
        if workload.name.is_empty() {
            let stem = path.file_stem().unwrap_or_default();
            workload.name = stem.to_string_lossy().into_owned();
        }
        let file = path.display();
        for (key, is_given) in [
            ("topics", workload.topics > 0),
            ("partitionsPerTopic", workload.partitions_per_topic > 0),
            ("messageSize", workload.message_size > 0),
            ("producersPerTopic", workload.producers_per_topic > 0),
            ("testDurationMinutes", workload.test_duration_minutes > 0.0),
        ] {
            ensure!(is_given, "{file}: {key} must be above 0");
        }
        if workload.consumer_backlog_size_gb > 0 {
            bail!(
                "{file}: consumerBacklogSizeGB = {}: a backlog that is built up and drained cannot be run; give 0, or \
                 measure reading with a scenario such as linkedin-2014/single-consumer",
                workload.consumer_backlog_size_gb
            );
        }
        if !["NO_KEY", "KEY_ROUND_ROBIN", "RANDOM_NANO"].contains(&&*workload.key_distributor) {
            bail!(
                "{file}: keyDistributor = {}: not accepted; give NO_KEY, KEY_ROUND_ROBIN or RANDOM_NANO",
                workload.key_distributor
            );
        }
        ensure!(
            !workload.use_randomized_payloads || (0.0..=1.0).contains(&workload.random_bytes_ratio),
            "{file}: randomBytesRatio = {}: not accepted; give 0 to 1",
            workload.random_bytes_ratio
        );
        Ok(workload)
    }
}

impl Driver {
    pub fn read(path: &Path) -> Result<Driver> {
        let driver: Driver = read_yaml(path, "a driver")?;
        let is_kafka = driver.driver_class.ends_with(".KafkaBenchmarkDriver");
        ensure!(
            is_kafka || driver.driver_class.is_empty(),
            "{}: driverClass = {}: only the driver of Kafka can be run",
            path.display(),
            driver.driver_class
        );
        Ok(driver)
    }
}

fn read_yaml<T: DeserializeOwned>(path: &Path, what: &str) -> Result<T> {
    let file = path.display();
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("{file} cannot be read; check the path"))?;
    match serde_saphyr::from_str(&text) {
        Ok(read) => Ok(read),
        Err(error) => {
            // The remaining lines of the message are an excerpt of the file.
            let error = error.to_string();
            let first = error.lines().next().unwrap_or_default();
            bail!("{file} is not {what} of the OpenMessaging Benchmark: {first}")
        }
    }
}
