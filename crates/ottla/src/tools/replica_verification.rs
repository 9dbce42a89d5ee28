//! `replica-verification`: Kafka's `kafka-replica-verification.sh`.
//!
//! Works in rounds: every broker is asked for the next records of its replicas, and when all have
//! answered, the replicas of each partition are compared. A broker that does not answer delays only
//! its own partitions. Runs until it is stopped.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use ottla_client::admin::OffsetSpec;
use ottla_client::{Admin, ClientError};
use ottla_protocol::ApiKey;
use ottla_protocol::messages::fetch_request::{
    FetchPartition, FetchRequest, FetchTopic, ReplicaState,
};
use ottla_types::Uuid;

use super::topic_filter::TopicFilter;
use super::{admin_client, block_on, local_time, report_on_stderr};
use verification::{FetchedReplica, Verification};

mod verification;

/// Compare the replicas of partitions, and report the largest lag.
///
/// Reports at intervals until it is stopped. Kafka has deprecated this tool.
#[derive(Args, Debug)]
pub struct ReplicaVerificationArgs {
    /// Brokers to connect to first: host:port, separated by commas.
    #[arg(long, value_name = "SERVERS")]
    broker_list: String,
    /// Maximum bytes of a partition in one request.
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20)]
    fetch_size: i32,
    /// How long a request waits for records.
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    max_wait_ms: u32,
    /// Topics by a regular expression.
    #[arg(long, value_name = "PATTERN", default_value = ".*")]
    topics_include: String,
    /// Where to start: milliseconds since 1970, -1 for the end or -2 for the beginning.
    #[arg(long, default_value_t = -1, allow_hyphen_values = true)]
    time: i64,
    /// Time between reports.
    #[arg(long, value_name = "MS", default_value_t = 30_000)]
    report_interval_ms: u64,
}

/// The replica ID of a client that may read from any replica
/// (`FetchRequest.DEBUGGING_CONSUMER_ID`).
const DEBUGGING_CONSUMER: i32 = -2;

/// The replicas of one broker.
struct Source {
    broker: i32,
    partitions: BTreeSet<(String, i32)>,
}

pub fn run(args: ReplicaVerificationArgs) -> ExitCode {
    eprintln!("WARN This tool is deprecated and may be removed in a future major release.");
    block_on(async { report_on_stderr(verify(&args).await) })
}

async fn verify(args: &ReplicaVerificationArgs) -> anyhow::Result<()> {
    let filter = TopicFilter::new(&args.topics_include)?;
    let admin = admin_client::connect(&args.broker_list, None, "replica-verification").await?;
    let mut names = admin.list_topics(true).await?;
    names.retain(|name| filter.is_allowed(name, false));
    if names.is_empty() {
        anyhow::bail!(
            "No topics found: --topics-include {} matches none of the cluster's topics",
            args.topics_include
        );
    }
    let topics = admin.describe_topics(&names).await?;
    let mut replicas: BTreeMap<(String, i32), usize> = BTreeMap::new();
    let mut by_broker: BTreeMap<i32, BTreeSet<(String, i32)>> = BTreeMap::new();
    let mut topic_ids = BTreeMap::new();
    for topic in &topics {
        topic_ids.insert(topic.name.clone(), topic.topic_id);
        for partition in &topic.partitions {
            let key = (topic.name.clone(), partition.partition);
            for broker in &partition.replicas {
                by_broker.entry(*broker).or_default().insert(key.clone());
            }
            replicas.insert(key, partition.replicas.len());
        }
    }
    let sources: Vec<Source> = by_broker
        .into_iter()
        .map(|(broker, partitions)| Source { broker, partitions })
        .collect();
    let mut verification =
        Verification::new(replicas, initial_offsets(&admin, &topics, args.time).await?);
    println!("{}: verification process is started", local_time::now());
    let interval = Duration::from_millis(args.report_interval_ms);
    let mut reported = Instant::now();
    loop {
        let mut round = tokio::task::JoinSet::new();
        for source in &sources {
            let offsets = source
                .partitions
                .iter()
                .map(|partition| (partition.clone(), verification.offset(partition)));
            round.spawn(fetch(
                admin.clone(),
                source.broker,
                offsets.collect(),
                topic_ids.clone(),
                args.fetch_size,
                args.max_wait_ms,
            ));
        }
        let mut answers = Vec::new();
        let mut has_failed = false;
        while let Some(answer) = round.join_next().await {
            let (broker, answer) = answer?;
            match answer {
                Ok(partitions) => answers.push((broker, partitions)),
                Err(error) => {
                    eprintln!("WARN broker {broker} cannot be read from: {error}");
                    has_failed = true;
                }
            }
        }
        let outcome = verification.on_round(answers)?;
        for difference in &outcome.differences {
            println!("{}: {difference}", local_time::now());
        }
        if outcome.has_diverged {
            anyhow::bail!("the replicas of a partition do not have the same offsets");
        }
        if reported.elapsed() > interval {
            println!("{}: {}", local_time::now(), outcome.report);
            reported = Instant::now();
        }
        if has_failed {
            // A broker that refuses connections would otherwise be retried in a busy loop.
            tokio::time::sleep(Duration::from_millis(u64::from(args.max_wait_ms).max(100))).await;
        }
    }
}

/// The initial offset of each partition. A partition without a record at or after the time is read
/// from its end.
async fn initial_offsets(
    admin: &Admin,
    topics: &[ottla_client::admin::TopicDescription],
    time: i64,
) -> Result<BTreeMap<(String, i32), i64>, ClientError> {
    let partitions: Vec<(String, i32)> = topics
        .iter()
        .flat_map(|topic| {
            topic
                .partitions
                .iter()
                .map(|it| (topic.name.clone(), it.partition))
        })
        .collect();
    let mut offsets = BTreeMap::new();
    let listed = admin.list_offsets(&partitions, OffsetSpec::from_timestamp(time), false);
    for ((topic, partition), listed) in listed.await {
        let mut offset = listed?.offset;
        if offset < 0 {
            let latest = admin.list_offset(&topic, partition, OffsetSpec::Latest, false);
            offset = latest.await?.offset;
        }
        offsets.insert((topic, partition), offset);
    }
    Ok(offsets)
}

/// Fetches the next records of a broker's replicas.
async fn fetch(
    admin: Admin,
    broker: i32,
    offsets: BTreeMap<(String, i32), i64>,
    topic_ids: BTreeMap<String, Uuid>,
    fetch_size: i32,
    max_wait_ms: u32,
) -> (i32, Result<Vec<FetchedReplica>, ClientError>) {
    let mut topics: Vec<FetchTopic> = Vec::new();
    for ((topic, partition), offset) in &offsets {
        let wanted = FetchPartition {
            partition: *partition,
            current_leader_epoch: -1,
            fetch_offset: *offset,
            last_fetched_epoch: -1,
            log_start_offset: 0,
            partition_max_bytes: fetch_size,
            ..Default::default()
        };
        match topics.last_mut().filter(|last| *last.topic == **topic) {
            Some(last) => last.partitions.push(wanted),
            None => topics.push(FetchTopic {
                topic: topic.clone().into(),
                topic_id: topic_ids.get(topic).copied().unwrap_or(Uuid::ZERO),
                partitions: vec![wanted],
                ..Default::default()
            }),
        }
    }
    let answer = async {
        let connection = admin.client().node(broker).await?;
        let mut request = FetchRequest {
            max_wait_ms: i32::try_from(max_wait_ms).unwrap_or(i32::MAX),
            min_bytes: 1,
            max_bytes: i32::MAX,
            session_id: 0,
            session_epoch: -1,
            topics,
            ..Default::default()
        };
        // Since version 15 the replica ID is in a separate field (KIP-903).
        match connection.version(ApiKey::Fetch)? {
            0..15 => request.replica_id = DEBUGGING_CONSUMER,
            _ => {
                request.replica_state = ReplicaState {
                    replica_id: DEBUGGING_CONSUMER,
                    ..Default::default()
                }
            }
        }
        let held_back = Duration::from_millis(u64::from(max_wait_ms));
        let response = connection.send_waiting(&request, held_back).await?;
        ClientError::check("fetching", response.error_code, None::<&str>)?;
        let named = |topic_id: Uuid| {
            let of = |entry: &(&String, &Uuid)| *entry.1 == topic_id;
            topic_ids.iter().find(of).map(|(name, _)| name.clone())
        };
        let mut fetched = Vec::new();
        for topic in response.responses {
            let name = if topic.topic.is_empty() {
                named(topic.topic_id)
            } else {
                Some(topic.topic.to_string())
            };
            let Some(name) = name else { continue };
            fetched.extend(topic.partitions.into_iter().map(|data| {
                FetchedReplica {
                    partition: (name.clone(), data.partition_index),
                    high_watermark: data.high_watermark,
                    records: data
                        .records
                        .and_then(|records| records.as_bytes().cloned())
                        .unwrap_or_default(),
                }
            }));
        }
        Ok(fetched)
    };
    (broker, answer.await)
}
