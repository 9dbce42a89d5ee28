//! `console-consumer`: Kafka's `kafka-console-consumer.sh`.

pub(super) mod arguments;
mod coordinator_formatter;
pub(super) mod formatter;
pub(super) mod missing_topic;
pub(super) mod polling;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::{ArgGroup, Args};
use ottla_client::{Client, ClientConfig, Consumer, ConsumerConfig, ConsumerRecord, OffsetReset};

use super::topic_filter::TopicFilter;
use super::{block_on, connection_watch, coordinator_watch, report_plainly, warn_of_unknown};
use arguments::{PrintingArgs, SettingsArgs};
use polling::Polling;

/// Print the records of a topic.
///
/// Properties of the formatter, given with --formatter-property: print.timestamp, print.key,
/// print.offset, print.epoch, print.partition, print.headers, print.value (true by default);
/// key.separator, line.separator, headers.separator, null.literal; key.deserializer,
/// value.deserializer, headers.deserializer with the names of Kafka's own deserializers.
///
/// Formatters, given with --formatter: org.apache.kafka.tools.consumer.DefaultMessageFormatter,
/// LoggingMessageFormatter and NoOpMessageFormatter, and for internal topics OffsetsMessageFormatter,
/// GroupMetadataMessageFormatter, TransactionLogMessageFormatter and
/// org.apache.kafka.tools.consumer.group.share.ShareGroupStateMessageFormatter.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("what").required(true))]
pub struct ConsoleConsumerArgs {
    /// Brokers to connect to first: host:port, separated by commas.
    #[arg(long, value_name = "SERVERS")]
    bootstrap_server: String,
    /// The topic to read.
    #[arg(long, group = "what")]
    topic: Option<String>,
    /// Read the topics that match a regular expression.
    #[arg(long, value_name = "REGEX", group = "what")]
    include: Option<String>,
    /// Read one partition, by default from its end, without joining a group.
    #[arg(
        long,
        value_name = "NUMBER",
        requires = "topic",
        conflicts_with = "group"
    )]
    partition: Option<i32>,
    /// The start offset in the partition: a number, earliest or latest.
    #[arg(long, requires = "partition", conflicts_with = "from_beginning")]
    offset: Option<String>,
    /// The group to join; by default a new one.
    #[arg(long)]
    group: Option<String>,
    /// Start with the first record if the group has no committed offset.
    #[arg(long)]
    from_beginning: bool,
    /// Exit after this many records.
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
    max_messages: Option<i64>,
    /// Exit when no record has arrived for this long.
    #[arg(long, value_name = "MS", allow_hyphen_values = true)]
    timeout_ms: Option<i64>,
    /// Continue after a record that cannot be printed.
    #[arg(long)]
    skip_message_on_error: bool,
    /// read_committed skips records of aborted and open transactions.
    #[arg(long, value_name = "LEVEL")]
    isolation_level: Option<String>,
    #[command(flatten)]
    printing: PrintingArgs,
    #[command(flatten)]
    given: SettingsArgs,
    /// Deprecated: write --command-config.
    #[arg(
        long = "consumer.config",
        value_name = "FILE",
        hide = true,
        conflicts_with = "command_config"
    )]
    consumer_config: Option<String>,
}

impl ConsoleConsumerArgs {
    /// The value of the deprecated flag for a settings file.
    fn old_file(&self) -> (&'static str, Option<&String>) {
        ("--consumer.config", self.consumer_config.as_ref())
    }
}

pub fn run(args: ConsoleConsumerArgs) -> ExitCode {
    args.given.warn_of_deprecated(args.old_file());
    args.printing.warn_of_deprecated();
    block_on(async { report_plainly(consume(&args).await) })
}

async fn consume(args: &ConsoleConsumerArgs) -> anyhow::Result<()> {
    let mut formatter = args.printing.formatter()?;
    let (client_config, config) = settings(args)?;
    let client = Client::unconnected(client_config);
    let who = format!(
        "Consumer clientId={}, groupId={}",
        client.config().client_id,
        config.group_id.as_deref().unwrap_or("null")
    );
    let connecting = connection_watch::connect_within(&client, &who, timeout_of(args));
    let Some(_watch) = connecting.await? else {
        // As after a timeout without a record.
        eprintln!("Processed a total of 0 messages");
        return Ok(());
    };
    // A single partition is read without a group.
    let group = config
        .group_id
        .as_ref()
        .filter(|_| args.partition.is_none());
    let _coordinator_watch =
        group.map(|group| coordinator_watch::watch(&client, &who, group, None));
    let mut consumer = start(args, &client, config).await?;

    let max_messages = args
        .max_messages
        .filter(|max| *max >= 0)
        .map(|max| max as u64);
    let mut polling = Polling::new(timeout_of(args))?;
    let mut output = std::io::BufWriter::new(std::io::stdout());
    let mut count = 0;
    let mut result = Ok(());
    let mut is_closed = false;
    let mut polled_from = BTreeMap::new();
    'reading: while max_messages.is_none_or(|max| count < max) {
        let pause = polling.pause();
        let Some(records) = polling.next(consumer.poll(pause)).await else {
            break;
        };
        if records.is_empty() {
            continue;
        }
        polled_from = first_offsets(&records);
        let mut records = records.into_iter();
        while let Some(record) = records.next() {
            if max_messages.is_some_and(|max| count >= max) {
                go_back(&mut consumer, std::iter::once(record).chain(records));
                break 'reading;
            }
            count += 1;
            match formatter.write(&record, None, &mut output) {
                Ok(()) => {}
                Err(formatter::WriteError::Output(error)) => {
                    eprintln!("Unable to write to standard out, closing consumer. ({error})");
                    is_closed = true;
                    break 'reading;
                }
                Err(formatter::WriteError::Record(error)) if args.skip_message_on_error => {
                    eprintln!("Error processing message, skipping this message: {error}");
                }
                Err(formatter::WriteError::Record(error)) => {
                    go_back(&mut consumer, records);
                    result = Err(anyhow::anyhow!(error));
                    break 'reading;
                }
            }
        }
        if let Err(error) = output.flush() {
            eprintln!("Unable to write to standard out, closing consumer. ({error})");
            is_closed = true;
            break;
        }
    }
    // The last records, if the loop ended within a poll.
    if let Err(error) = output.flush()
        && !is_closed
    {
        eprintln!("Unable to write to standard out, closing consumer. ({error})");
        is_closed = true;
    }
    if is_closed {
        // Which records of the last poll were written is unknown, so none of them is committed.
        for ((topic, partition), offset) in polled_from {
            consumer.seek(&(topic.to_string(), partition), offset);
        }
    }
    if let Err(error) = consumer.close().await {
        eprintln!("offsets could not be committed: {error}");
    }
    eprintln!("Processed a total of {count} messages");
    if args.printing.enable_systest_events {
        println!("shutdown_complete");
    }
    result
}

/// The offset of the first of these records in each partition.
fn first_offsets(records: &[ConsumerRecord]) -> BTreeMap<(Arc<str>, i32), i64> {
    let mut offsets = BTreeMap::new();
    let is_same = |one: &ConsumerRecord, next: &ConsumerRecord| {
        (&one.topic, one.partition) == (&next.topic, next.partition)
    };
    for run in records.chunk_by(is_same) {
        let partition = (Arc::clone(&run[0].topic), run[0].partition);
        offsets.entry(partition).or_insert(run[0].offset);
    }
    offsets
}

/// Seeks back to records that were returned by a poll and not printed, so that they are not
/// committed.
fn go_back(consumer: &mut Consumer, records: impl Iterator<Item = ConsumerRecord>) {
    let mut seen = BTreeSet::new();
    for record in records {
        let partition = (record.topic.to_string(), record.partition);
        if seen.insert(partition.clone()) {
            consumer.seek(&partition, record.offset);
        }
    }
}

fn settings(args: &ConsoleConsumerArgs) -> anyhow::Result<(ClientConfig, ConsumerConfig)> {
    let group = args.group.as_ref();
    let (mut settings, group) = args.given.settings(group, args.old_file())?;
    if group.is_some() && args.partition.is_some() {
        bail!("Options group and partition cannot be specified together.");
    }
    match settings.get("auto.offset.reset") {
        Some(reset) if args.from_beginning && reset != "earliest" => bail!(
            "Can't simultaneously specify --from-beginning and 'auto.offset.reset={reset}', please \
             remove one option"
        ),
        Some(_) => {}
        None => {
            let reset = if args.from_beginning {
                "earliest"
            } else {
                "latest"
            };
            settings.insert("auto.offset.reset".into(), reset.into());
        }
    }
    settings.insert("bootstrap.servers".into(), args.bootstrap_server.clone());
    settings
        .entry("client.id".into())
        .or_insert_with(|| "console-consumer".into());
    if let Some(level) = &args.isolation_level {
        settings.insert("isolation.level".into(), level.clone());
    }
    if group.is_none() {
        let number: u32 = rand::random_range(0..100_000);
        settings.insert("group.id".into(), format!("console-consumer-{number}"));
        // The group is used once, so its offsets need not be committed.
        settings
            .entry("enable.auto.commit".into())
            .or_insert_with(|| "false".into());
    }
    settings.extend(group.map(|group| ("group.id".to_owned(), group)));
    let (mut client, mut consumer) = (ClientConfig::default(), ConsumerConfig::default());
    let unknown = [client.apply(&settings)?, consumer.apply(&settings)?];
    warn_of_unknown(&settings, &unknown);
    Ok((client, consumer))
}

/// Maximum time without a record; `None` means no limit.
fn timeout_of(args: &ConsoleConsumerArgs) -> Option<Duration> {
    let ms = args.timeout_ms.and_then(|ms| u64::try_from(ms).ok())?;
    Some(Duration::from_millis(ms))
}

/// Waits until a topic exists. The metadata request may create it, as with Kafka's consumer.
async fn await_topic(
    client: &Client,
    topic: &str,
    config: &ConsumerConfig,
    timeout: Option<Duration>,
) -> anyhow::Result<()> {
    let began = Instant::now();
    let names = [topic.to_owned()];
    loop {
        let create = config.allow_auto_create_topics;
        let metadata = client.refresh_metadata(Some(&names), create).await?;
        if metadata.topics.contains_key(topic) {
            return Ok(());
        }
        if timeout.is_some_and(|timeout| began.elapsed() > timeout) {
            bail!(
                "topic {topic} does not exist and did not appear within {} ms; create it with `ottla topics \
                 --create --topic {topic}`",
                timeout.unwrap_or_default().as_millis()
            );
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Seeks to the position that the flags select.
async fn start(
    args: &ConsoleConsumerArgs,
    client: &Client,
    mut config: ConsumerConfig,
) -> anyhow::Result<Consumer> {
    if let Some(topic) = &args.topic {
        missing_topic::warn(client, topic, config.allow_auto_create_topics).await?;
    }
    if let (Some(topic), Some(partition)) = (&args.topic, args.partition) {
        let offset = match args.offset.as_deref() {
            None => None,
            Some(text) if text.eq_ignore_ascii_case("earliest") => {
                config.offset_reset = OffsetReset::Earliest;
                None
            }
            Some(text) if text.eq_ignore_ascii_case("latest") => {
                config.offset_reset = OffsetReset::Latest;
                None
            }
            Some(text) => match text.parse::<i64>() {
                Ok(offset) if offset >= 0 => Some(offset),
                _ => bail!(
                    "The provided offset value '{text}' is incorrect. Valid values are 'earliest', \
                     'latest', or a non-negative long."
                ),
            },
        };
        await_topic(client, topic, &config, timeout_of(args)).await?;
        config.group_id = None;
        config.auto_commit = false;
        let mut consumer = Consumer::new(client.clone(), config);
        let assigned = (topic.clone(), partition);
        consumer.assign(std::slice::from_ref(&assigned));
        if let Some(offset) = offset {
            consumer.seek(&assigned, offset);
        }
        return Ok(consumer);
    }
    let topics = match (&args.topic, &args.include) {
        (Some(topic), _) => vec![topic.clone()],
        (None, pattern) => {
            let filter = TopicFilter::new(pattern.as_deref().unwrap_or_default())?;
            let metadata = client.refresh_metadata(None, false).await?;
            let names = metadata.topics.values().filter(|topic| !topic.is_internal);
            names
                .map(|topic| topic.name.clone())
                .filter(|name| filter.is_allowed(name, true))
                .collect()
        }
    };
    if topics.is_empty() {
        bail!(
            "no topic matches --include {}",
            args.include.as_deref().unwrap_or_default()
        );
    }
    let mut consumer = Consumer::new(client.clone(), config);
    consumer.subscribe(&topics)?;
    Ok(consumer)
}
