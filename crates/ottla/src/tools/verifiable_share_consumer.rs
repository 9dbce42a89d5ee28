//! `verifiable-share-consumer`: Kafka's `kafka-verifiable-share-consumer.sh`, which prints the
//! events of a share group member as lines of JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, ValueEnum};
use ottla_client::admin::{ConfigOperation, ConfigResourceType};
use ottla_client::{
    Admin, Client, ClientConfig, ClientError, ShareConsumer, ShareConsumerConfig, ShareRecord,
};
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use super::{block_on, load_client_properties_if_given, warn_of_unknown};

const POLL: Duration = Duration::from_secs(5);

/// Consume a topic as a member of a share group, and print each event as JSON.
#[derive(Args, Debug)]
#[command(arg_required_else_help = true)]
pub struct VerifiableShareConsumerArgs {
    /// Brokers to connect to first: host:port, separated by commas.
    #[arg(long, value_name = "SERVERS")]
    bootstrap_server: String,
    /// The topic to consume.
    #[arg(long)]
    topic: String,
    /// The share group to join.
    #[arg(long)]
    group_id: String,
    /// Exit after this many acknowledged records; -1 runs until the process is stopped.
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = -1,
        allow_hyphen_values = true
    )]
    max_messages: i64,
    /// Print each record.
    #[arg(long)]
    verbose: bool,
    /// When records are acknowledged: with the next poll, or after each record, with or without
    /// waiting for the response.
    #[arg(long, value_enum, ignore_case = true, default_value = "auto")]
    acknowledgement_mode: Acknowledging,
    /// Start offset of the group; sets its share.auto.offset.reset.
    #[arg(long, value_enum, ignore_case = true)]
    offset_reset_strategy: Option<OffsetReset>,
    /// Properties file with settings of the clients.
    #[arg(long, value_name = "FILE")]
    command_config: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Acknowledging {
    Auto,
    Async,
    Sync,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum OffsetReset {
    Earliest,
    Latest,
}

impl OffsetReset {
    fn name(self) -> &'static str {
        match self {
            OffsetReset::Earliest => "earliest",
            OffsetReset::Latest => "latest",
        }
    }
}

/// An event, with the fields in the order of Kafka's tool.
#[derive(Serialize)]
struct Line<T: Serialize> {
    timestamp: u64,
    name: &'static str,
    #[serde(flatten)]
    event: T,
}

#[derive(Serialize)]
struct Nothing {}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OffsetResetSet {
    offset_reset_strategy: &'static str,
}

#[derive(Serialize)]
struct RecordData<'a> {
    key: Option<String>,
    value: Option<String>,
    topic: &'a str,
    partition: i32,
    offset: i64,
}

#[derive(Serialize)]
struct RecordsConsumed {
    count: usize,
    partitions: Vec<Offsets>,
}

#[derive(Serialize)]
struct OffsetsAcknowledged {
    count: usize,
    partitions: Vec<Offsets>,
    success: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Serialize)]
struct Offsets {
    topic: String,
    partition: i32,
    count: usize,
    offsets: BTreeSet<i64>,
}

impl Offsets {
    fn new(topic: &str, partition: i32, offsets: BTreeSet<i64>) -> Offsets {
        Offsets {
            topic: topic.to_owned(),
            partition,
            count: offsets.len(),
            offsets,
        }
    }
}

fn say<T: Serialize>(name: &'static str, event: T) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let line = Line {
        timestamp: now.unwrap_or_default().as_millis() as u64,
        name,
        event,
    };
    match serde_json::to_string(&line) {
        Ok(text) => println!("{text}"),
        Err(error) => println!("Bad data can't be written as json: {error}"),
    }
}

pub fn run(args: VerifiableShareConsumerArgs) -> ExitCode {
    block_on(async {
        match begin(&args) {
            Ok(consumer) => {
                consume(&args, consumer).await;
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("{error:#}");
                ExitCode::FAILURE
            }
        }
    })
}

fn begin(args: &VerifiableShareConsumerArgs) -> anyhow::Result<ShareConsumer> {
    let mut settings = load_client_properties_if_given(args.command_config.as_ref())?;
    settings.insert("group.id".into(), args.group_id.clone());
    settings.insert("bootstrap.servers".into(), args.bootstrap_server.clone());
    let (mut client, mut config) = (ClientConfig::default(), ShareConsumerConfig::default());
    let unknown = [client.apply(&settings)?, config.apply(&settings)?];
    warn_of_unknown(&settings, &unknown);
    Ok(ShareConsumer::new(Client::unconnected(client), config)?)
}

/// An error is printed to standard error and ends the consumer like an interrupt.
async fn consume(args: &VerifiableShareConsumerArgs, mut consumer: ShareConsumer) {
    say("startup_complete", Nothing {});
    let (interrupt, terminate) = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
    );
    if let (Ok(mut interrupt), Ok(mut terminate)) = (interrupt, terminate) {
        let ended = tokio::select! {
            ended = until_enough(args, &mut consumer) => ended,
            _ = interrupt.recv() => Ok(()),
            _ = terminate.recv() => Ok(()),
        };
        if let Err(error) = ended {
            eprintln!("Error during processing, terminating share consumer process: {error}");
        }
    }
    if let Err(error) = consumer.close().await {
        eprintln!("could not leave the share group cleanly: {error}");
    }
    say("shutdown_complete", Nothing {});
}

async fn until_enough(
    args: &VerifiableShareConsumerArgs,
    consumer: &mut ShareConsumer,
) -> Result<(), ClientError> {
    if let Some(reset) = args.offset_reset_strategy {
        set_offset_reset(consumer.client(), &args.group_id, reset).await?;
        let offset_reset_strategy = reset.name();
        let event = OffsetResetSet {
            offset_reset_strategy,
        };
        say("offset_reset_strategy_set", event);
    }
    let acknowledged = Arc::new(AtomicU64::new(0));
    consumer.subscribe(std::slice::from_ref(&args.topic));
    let counted = Arc::clone(&acknowledged);
    consumer.set_listener(Box::new(move |partition, offsets, result| {
        on_acknowledged(&counted, partition, offsets, result);
    }));
    let is_enough = |count: u64| u64::try_from(args.max_messages).is_ok_and(|max| count >= max);
    while !is_enough(acknowledged.load(Ordering::Relaxed)) {
        let records = consumer.poll(POLL).await?;
        if records.is_empty() {
            continue;
        }
        on_consumed(&records, args.verbose);
        match args.acknowledgement_mode {
            Acknowledging::Auto => {}
            Acknowledging::Async => consumer.commit_async(),
            Acknowledging::Sync => {
                for ((topic, partition), result) in consumer.commit().await? {
                    if let Err(error) = result {
                        eprintln!("acknowledging records of {topic}-{partition} failed: {error}");
                    }
                }
            }
        }
    }
    Ok(())
}

async fn set_offset_reset(
    client: &Client,
    group: &str,
    reset: OffsetReset,
) -> Result<(), ClientError> {
    let key = "share.auto.offset.reset".to_owned();
    let operations = BTreeMap::from([(key, ConfigOperation::Set(reset.name().to_owned()))]);
    Admin::new(client.clone())
        .alter_configs(ConfigResourceType::Group, group, &operations, false)
        .await
}

fn on_consumed(records: &[ShareRecord], is_verbose: bool) {
    let text = |bytes: &Option<bytes::Bytes>| {
        let bytes = bytes.as_ref()?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    };
    let mut offsets: BTreeMap<(&str, i32), BTreeSet<i64>> = BTreeMap::new();
    for ShareRecord { record, .. } in records {
        let partition = (&*record.topic, record.partition);
        offsets.entry(partition).or_default().insert(record.offset);
        if is_verbose {
            let event = RecordData {
                key: text(&record.key),
                value: text(&record.value),
                topic: &record.topic,
                partition: record.partition,
                offset: record.offset,
            };
            say("record_data", event);
        }
    }
    let partitions = offsets.into_iter();
    let partitions = partitions.map(|((topic, partition), it)| Offsets::new(topic, partition, it));
    let event = RecordsConsumed {
        count: records.len(),
        partitions: partitions.collect(),
    };
    say("records_consumed", event);
}

fn on_acknowledged(
    counted: &AtomicU64,
    (topic, partition): &(String, i32),
    offsets: &[RangeInclusive<i64>],
    result: &Result<(), ClientError>,
) {
    let offsets = offsets.iter().cloned().flatten().collect();
    let partition = Offsets::new(topic, *partition, offsets);
    let count = partition.count;
    if result.is_ok() {
        counted.fetch_add(count as u64, Ordering::Relaxed);
    }
    let event = OffsetsAcknowledged {
        count,
        partitions: vec![partition],
        success: result.is_ok(),
        error: result.as_ref().err().map(ClientError::broker_message),
    };
    say("offsets_acknowledged", event);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_have_the_format_of_kafka() {
        let event = OffsetsAcknowledged {
            count: 2,
            partitions: vec![Offsets::new("t", 1, BTreeSet::from([4, 5]))],
            success: true,
            error: None,
        };
        let line = Line {
            timestamp: 7,
            name: "offsets_acknowledged",
            event,
        };
        assert_eq!(
            serde_json::to_string(&line).unwrap(),
            "{\"timestamp\":7,\"name\":\"offsets_acknowledged\",\"count\":2,\"partitions\":[{\"topic\":\"t\",\
             \"partition\":1,\"count\":2,\"offsets\":[4,5]}],\"success\":true}"
        );
    }
}
