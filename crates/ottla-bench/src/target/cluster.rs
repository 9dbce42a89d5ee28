//! Cluster operations of a run: its brokers, the topics that a run creates and deletes, and their
//! size on disk.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ottla_client::admin::{ConfigResourceType, EndpointType, NewTopic, OffsetSpec};
use ottla_client::{Admin, Client, ClientConfig, properties};
use ottla_types::ErrorCode;

use super::bandwidth;
use crate::results::TargetInfo;
use crate::scenario::point::TopicSpec;

/// Timeout of the first response.
const FIRST_ANSWER: Duration = Duration::from_secs(10);
/// Timeout from a broker accepting connections until the controller places replicas on it.
const ALL_BROKERS: Duration = Duration::from_secs(60);
/// Timeout for the leaders of a new topic.
const LEADERS: Duration = Duration::from_secs(30);

/// A connected cluster.
#[derive(Clone)]
pub struct Cluster {
    bootstrap: String,
    client: Client,
    admin: Admin,
    brokers: Vec<i32>,
    cluster_id: String,
    round_trip: Duration,
    bandwidth: Option<f64>,
    settings: BTreeMap<String, String>,
}

impl Cluster {
    /// `settings` apply to every client that connects to it.
    pub async fn connect(bootstrap: &str, settings: BTreeMap<String, String>) -> Result<Cluster> {
        let mut config =
            properties::admin(&settings).context("the settings of --command-config")?;
        config.set_bootstrap_servers(bootstrap)?;
        // An unreachable address, or one that is not a broker, fails quickly; later requests have
        // more time.
        let hasty = ClientConfig {
            default_api_timeout: FIRST_ANSWER,
            request_timeout: FIRST_ANSWER / 2,
            ..config.clone()
        };
        Client::connect(hasty)
            .await
            .with_context(|| format!("{bootstrap} cannot be measured"))?;
        let client = Client::connect(config).await?;
        let admin = Admin::new(client.clone());
        let described = admin
            .describe_cluster(EndpointType::Broker, false)
            .await
            .with_context(|| format!("{bootstrap} does not describe its cluster"))?;
        let mut times = Vec::new();
        for _ in 0..51 {
            let began = Instant::now();
            admin.api_versions(None).await?;
            times.push(began.elapsed());
        }
        times.sort_unstable();
        Ok(Cluster {
            bootstrap: bootstrap.to_owned(),
            client,
            admin,
            brokers: described.brokers.iter().map(|it| it.broker_id).collect(),
            cluster_id: described.cluster_id.to_string(),
            round_trip: times[times.len() / 2],
            bandwidth: None,
            settings,
        })
    }

    /// Waits until this many brokers are registered and unfenced. A newly started broker responds
    /// before the controller has unfenced it, and creating a topic then fails for lack of replicas.
    pub async fn wait_for_brokers(&mut self, count: usize) -> Result<()> {
        let began = Instant::now();
        while self.brokers.len() < count {
            if began.elapsed() > ALL_BROKERS {
                bail!(
                    "only {} of {count} brokers have joined the cluster after {} s",
                    self.brokers.len(),
                    ALL_BROKERS.as_secs()
                );
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
            let described = self
                .admin
                .describe_cluster(EndpointType::Broker, false)
                .await?;
            self.brokers = described.brokers.iter().map(|it| it.broker_id).collect();
        }
        Ok(())
    }

    /// Measures the bandwidth to the cluster; some clusters do not permit it.
    pub async fn measure_bandwidth(&mut self) {
        self.bandwidth = bandwidth::measure(&self.client).await.ok();
    }

    /// The configuration of a client of this cluster, with these additional settings.
    pub fn client_settings(&self, own: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let mut settings = self.settings.clone();
        settings.extend(own.clone());
        settings.insert("bootstrap.servers".to_owned(), self.bootstrap.clone());
        settings
    }

    pub fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    pub fn info(&self, name: &str, description: &str) -> TargetInfo {
        TargetInfo {
            name: name.to_owned(),
            description: description.to_owned(),
            bootstrap: self.bootstrap.clone(),
            cluster_id: Some(self.cluster_id.clone()),
            brokers: self.brokers.len(),
            round_trip_us: self.round_trip.as_secs_f64() * 1e6,
            network_mb_per_second: self.bandwidth,
        }
    }

    /// Fails if this many replicas are not possible.
    pub fn check_replicas(&self, replicas: u16) -> Result<()> {
        let brokers = self.brokers.len();
        ensure!(
            usize::from(replicas) <= brokers,
            "{replicas} replicas need as many brokers, and {} has {brokers}; give --replicas {brokers} (the result then \
             says in what it is not the published run)",
            self.bootstrap,
        );
        Ok(())
    }

    /// The broker settings that differ from the scenario's, one sentence each.
    pub async fn other_settings(&self, wanted: &BTreeMap<String, String>) -> Vec<String> {
        let mut sentences = BTreeSet::new();
        if wanted.is_empty() {
            return Vec::new();
        }
        for broker in &self.brokers {
            let described = self
                .admin
                .describe_configs(ConfigResourceType::Broker, &broker.to_string(), false)
                .await;
            let Ok(described) = described else {
                sentences.insert(format!("{} keeps its settings to itself", self.bootstrap));
                continue;
            };
            for (key, wanted) in wanted {
                let found = described.iter().find(|it| *it.name == **key);
                let found = found.and_then(|it| it.value.as_deref()).unwrap_or("?");
                if found != wanted {
                    let of = &self.bootstrap;
                    sentences.insert(format!("{of} has {key}={found} instead of {wanted}"));
                }
            }
        }
        sentences.into_iter().collect()
    }

    /// Creates a topic and waits until all its partitions have leaders.
    pub async fn create_topic(&self, name: &str, spec: &TopicSpec) -> Result<()> {
        let topic = NewTopic {
            name: name.to_owned(),
            partitions: Some(spec.partitions as i32),
            replication_factor: Some(spec.replicas as i16),
            configs: spec.settings.clone(),
            ..NewTopic::default()
        };
        let created = self.admin.create_topics(&[topic], false).await?;
        for topic in &created {
            ottla_client::ClientError::check(
                format!("creating topic {name}"),
                topic.error_code,
                topic.error_message.as_ref(),
            )?;
        }
        if let Err(error) = self.wait_for_leaders(name, spec).await {
            let _ = self.delete_topic(name).await;
            return Err(error);
        }
        Ok(())
    }

    async fn wait_for_leaders(&self, name: &str, spec: &TopicSpec) -> Result<()> {
        let began = Instant::now();
        loop {
            let names = [name.to_owned()];
            let metadata = self.client.refresh_metadata(Some(&names), false).await?;
            let led = metadata.topics.get(name).map_or(0, |topic| {
                let partitions = topic.partitions.iter();
                partitions.filter(|it| it.leader >= 0).count()
            });
            if led == spec.partitions as usize {
                return Ok(());
            }
            if began.elapsed() > LEADERS {
                bail!(
                    "only {led} of the {} partitions of {name} have leaders after {} s",
                    spec.partitions,
                    LEADERS.as_secs()
                );
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The number of partitions of a topic that each broker leads.
    pub async fn leaders(&self, topic: &str) -> Result<BTreeMap<i32, usize>> {
        let names = [topic.to_owned()];
        let metadata = self.client.refresh_metadata(Some(&names), false).await?;
        let mut led = BTreeMap::new();
        for partition in metadata
            .topics
            .get(topic)
            .iter()
            .flat_map(|it| &it.partitions)
        {
            *led.entry(partition.leader).or_default() += 1;
        }
        Ok(led)
    }

    /// The number of records in each partition of a topic without deletions. Waits for partitions
    /// that temporarily have no leader.
    pub async fn record_counts(&self, topic: &str, partitions: u32) -> Result<BTreeMap<i32, u64>> {
        let asked: Vec<(String, i32)> = (0..partitions as i32)
            .map(|partition| (topic.to_owned(), partition))
            .collect();
        let ends = self
            .admin
            .list_offsets(&asked, OffsetSpec::Latest, false)
            .await;
        let mut counts = BTreeMap::new();
        for ((_, partition), end) in ends {
            counts.insert(partition, u64::try_from(end?.offset)?);
        }
        Ok(counts)
    }

    /// Waits until all brokers of the cluster are available again.
    pub async fn wait_for_all(&self) -> Result<()> {
        let began = Instant::now();
        while began.elapsed() < ALL_BROKERS {
            let described = self
                .admin
                .describe_cluster(EndpointType::Broker, false)
                .await?;
            if described.brokers.len() >= self.brokers.len() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        bail!(
            "a broker that was killed has not come back to the cluster within {} s",
            ALL_BROKERS.as_secs()
        )
    }

    /// Checks that an existing topic matches the scenario.
    pub async fn check_topic(&self, name: &str, spec: &TopicSpec) -> Result<bool> {
        let names = [name.to_owned()];
        let metadata = self.client.refresh_metadata(Some(&names), false).await?;
        let Some(topic) = metadata
            .topics
            .get(name)
            .filter(|it| !it.partitions.is_empty())
        else {
            return Ok(false);
        };
        let partitions = topic.partitions.len();
        let replicas = topic.partitions[0].replicas.len();
        ensure!(
            partitions == spec.partitions as usize && replicas == usize::from(spec.replicas),
            "topic {name} exists with {partitions} partitions and {replicas} replicas, and the scenario has {} and {}; \
             give another --topic, or none",
            spec.partitions,
            spec.replicas
        );
        self.check_settings(name, spec).await?;
        Ok(true)
    }

    async fn check_settings(&self, name: &str, spec: &TopicSpec) -> Result<()> {
        if spec.settings.is_empty() {
            return Ok(());
        }
        let described = self
            .admin
            .describe_configs(ConfigResourceType::Topic, name, false)
            .await?;
        for (key, wanted) in &spec.settings {
            let found = described.iter().find(|it| *it.name == **key);
            let found = found.and_then(|it| it.value.as_deref());
            ensure!(
                found == Some(wanted.as_str()),
                "topic {name} exists with {key}={}, and the scenario has {wanted}; give another --topic, or none",
                found.unwrap_or_default()
            );
        }
        Ok(())
    }

    pub async fn delete_topic(&self, name: &str) -> Result<()> {
        self.admin.delete_topic(name).await?;
        Ok(())
    }

    /// Deletes the groups that a run created, with their committed offsets.
    pub async fn delete_groups(&self, groups: &[String]) -> Result<()> {
        for (_, deleted) in self.admin.delete_groups(groups).await {
            match deleted {
                // A member that never joined has not created its group.
                Err(error) if error.code() != Some(ErrorCode::GroupIdNotFound) => {
                    return Err(error.into());
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The size of a topic in bytes, counting each partition once by its largest replica, because followers may lag.
    pub async fn stored_bytes(&self, topic: &str) -> Result<u64> {
        let mut sizes: BTreeMap<i32, u64> = BTreeMap::new();
        for broker in &self.brokers {
            for dir in self.admin.describe_log_dirs(*broker).await? {
                let of_topic = dir.topics.iter().filter(|it| &*it.name == topic);
                for partition in of_topic.flat_map(|it| &it.partitions) {
                    let size = sizes.entry(partition.partition_index).or_default();
                    *size = (*size).max(partition.partition_size.max(0) as u64);
                }
            }
        }
        Ok(sizes.values().sum())
    }

    /// Free bytes on the log directories of all brokers that report them; `None` if none does.
    pub async fn usable_bytes(&self) -> Option<u64> {
        let mut found: Option<u64> = None;
        let mut devices = BTreeMap::new();
        for broker in &self.brokers {
            for dir in self.admin.describe_log_dirs(*broker).await.ok()? {
                if let Ok(usable) = u64::try_from(dir.usable_bytes) {
                    // Directories on the same disk report the same numbers and must be counted
                    // once.
                    devices.insert((*broker, dir.total_bytes), usable);
                }
            }
        }
        for usable in devices.values() {
            found = Some(found.unwrap_or(0) + usable);
        }
        found
    }
}
