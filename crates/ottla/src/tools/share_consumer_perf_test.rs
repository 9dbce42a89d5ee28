//! `share-consumer-perf-test`: Kafka's `kafka-share-consumer-perf-test.sh`.

mod progress;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, bail};
use clap::Args;
use ottla_client::{Client, ClientConfig, ClientError, ShareConsumer, ShareConsumerConfig};
use tokio::task::JoinSet;

use super::consumer_perf_test::number;
use super::simple_date_format::SimpleDateFormat;
use super::{block_on_while_receiving, connection_warnings, key_values, load_properties};
use progress::{Consumed, MemberProgress, Span};

const POLL: Duration = Duration::from_millis(100);
/// Kafka's default. It leaves the buffer to the kernel, which lets it grow further than it lets programs set it.
const SOCKET_BUFFER_SIZE: &str = "2097152";

/// Measure how fast records are consumed by the members of a share group.
#[derive(Args, Debug)]
#[command(arg_required_else_help = true)]
pub struct ShareConsumerPerfTestArgs {
    /// Brokers to connect to first: host:port, separated by commas.
    #[arg(long, value_name = "SERVERS")]
    bootstrap_server: Option<String>,
    /// The topic to consume.
    #[arg(long)]
    topic: Option<String>,
    /// The share group to join.
    #[arg(long, default_value = "perf-share-consumer")]
    group: String,
    /// Bytes to fetch at a time (fetch.max.bytes).
    #[arg(long, value_name = "BYTES", default_value = "1048576")]
    fetch_size: String,
    /// A setting of the consumer; can be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    command_property: Vec<String>,
    /// Bytes of the socket's receive buffer (receive.buffer.bytes).
    #[arg(long, value_name = "BYTES", default_value = SOCKET_BUFFER_SIZE)]
    socket_buffer_size: String,
    /// Deprecated: write --command-config.
    #[arg(long = "consumer.config", value_name = "FILE", hide = true)]
    consumer_config: Option<String>,
    /// Properties file with settings of the consumer.
    #[arg(long, value_name = "FILE")]
    command_config: Option<String>,
    /// Print the consumers' metrics at the end.
    #[arg(long)]
    print_metrics: bool,
    /// Print progress every --reporting-interval.
    #[arg(long)]
    show_detailed_stats: bool,
    /// End when no record has come for so long.
    #[arg(long, value_name = "MS", default_value = "10000", num_args = 0..=1, default_missing_value = "10000")]
    timeout: String,
    /// Deprecated: write --num-records.
    #[arg(long, value_name = "NUMBER", hide = true)]
    messages: Option<String>,
    /// How many records to consume, all members together.
    #[arg(long, value_name = "NUMBER")]
    num_records: Option<String>,
    /// How often to print progress.
    #[arg(long, value_name = "MS", default_value = "5000")]
    reporting_interval: String,
    /// How times are shown, a pattern of java.text.SimpleDateFormat.
    #[arg(long, value_name = "FORMAT", default_value = "yyyy-MM-dd HH:mm:ss:SSS")]
    date_format: String,
    /// Do not print the names of the columns.
    #[arg(long)]
    hide_header: bool,
    /// How many members consume.
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    threads: String,
    /// Print what each member has consumed.
    #[arg(long)]
    show_consumer_stats: bool,
    /// Words that are no flags have no effect, as in Kafka's tool.
    #[arg(hide = true)]
    ignored: Vec<String>,
}

pub fn run(args: ShareConsumerPerfTestArgs) -> ExitCode {
    if let Err(text) = check(&args) {
        eprintln!("{text}");
        return ExitCode::FAILURE;
    }
    if args.messages.is_some() {
        println!("Warning: --messages is deprecated. Use --num-records instead.");
    }
    if args.consumer_config.is_some() {
        println!("Warning: --consumer.config is deprecated. Use --command-config instead.");
    }
    if !args.hide_header {
        println!("{}", progress::HEADER);
    }
    block_on_while_receiving(async {
        match measure(&args).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error:#}");
                ExitCode::FAILURE
            }
        }
    })
}

/// What Kafka's tool refuses before it prints anything, in its words.
fn check(args: &ShareConsumerPerfTestArgs) -> Result<(), String> {
    for (name, value) in [
        ("topic", &args.topic),
        ("bootstrap-server", &args.bootstrap_server),
    ] {
        if value.is_none() {
            return Err(format!("Missing required argument \"[{name}]\""));
        }
    }
    if args.messages.is_some() == args.num_records.is_some() {
        return Err(
            "Exactly one of the following arguments is required: [messages], [num-records]".into(),
        );
    }
    if args.consumer_config.is_some() && args.command_config.is_some() {
        return Err(
            "Option \"[consumer.config]\" can't be used with option \"[command-config]\"".into(),
        );
    }
    Ok(())
}

/// Flags go before properties, these before the file.
fn settings(args: &ShareConsumerPerfTestArgs) -> anyhow::Result<BTreeMap<String, String>> {
    let file = args.consumer_config.as_ref();
    let mut settings = match file.or(args.command_config.as_ref()) {
        Some(path) => load_properties(path)?,
        None => BTreeMap::new(),
    };
    settings.extend(key_values(&args.command_property));
    let fetch_size: i32 = number("fetch-size", &args.fetch_size)?;
    let socket_buffer_size: i32 = number("socket-buffer-size", &args.socket_buffer_size)?;
    let receive_buffer = match args.socket_buffer_size == SOCKET_BUFFER_SIZE {
        true => "-1".to_owned(),
        false => socket_buffer_size.to_string(),
    };
    for (key, value) in [
        (
            "bootstrap.servers",
            args.bootstrap_server.clone().unwrap_or_default(),
        ),
        ("group.id", args.group.clone()),
        ("receive.buffer.bytes", receive_buffer),
        ("fetch.max.bytes", fetch_size.to_string()),
        ("check.crcs", "false".to_owned()),
    ] {
        settings.insert(key.to_owned(), value);
    }
    settings
        .entry("client.id".into())
        .or_insert_with(|| "perf-share-consumer-client".into());
    Ok(settings)
}

/// What all members of a run have in common.
struct Run {
    wanted: u64,
    timeout: Duration,
    interval: Duration,
    shows_progress: bool,
    format: SimpleDateFormat,
    records: AtomicU64,
    bytes: AtomicU64,
}

/// A member, and what it has consumed.
struct Member {
    client_id: String,
    consumer: ShareConsumer,
    consumed: Consumed,
}

async fn measure(args: &ShareConsumerPerfTestArgs) -> anyhow::Result<()> {
    let settings = settings(args)?;
    let (option, text) = match (&args.messages, &args.num_records) {
        (Some(text), _) => ("messages", text),
        (None, text) => ("num-records", text.as_ref().context("checked before")?),
    };
    let records: i64 = number(option, text)?;
    let timeout_ms: i64 = number("timeout", &args.timeout)?;
    let interval_ms: u64 = number("reporting-interval", &args.reporting_interval)?;
    let threads: usize = number("threads", &args.threads)?;
    if interval_ms == 0 {
        bail!("Reporting interval must be greater than 0.");
    }
    let run = Arc::new(Run {
        wanted: u64::try_from(records).unwrap_or_default(),
        timeout: Duration::from_millis(timeout_ms.max(0).cast_unsigned()),
        interval: Duration::from_millis(interval_ms),
        shows_progress: args.show_detailed_stats,
        format: SimpleDateFormat::new(&args.date_format)?,
        records: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
    });
    let begun = SystemTime::now();
    let mut members = JoinSet::new();
    let topic = args.topic.clone().unwrap_or_default();
    for index in 1..=threads {
        let member = new_member(&settings, &topic, (threads > 1).then_some(index))?;
        members.spawn(consume(Arc::clone(&run), member, index));
    }
    let mut finished = Vec::new();
    while let Some(member) = members.join_next().await {
        finished.push(member??);
    }
    finished.sort_by_key(|(index, _)| *index);
    let span = Span {
        begun,
        ended: SystemTime::now(),
    };
    if args.show_consumer_stats {
        for (index, member) in &finished {
            let line = member.consumed.line(&span, &run.format);
            println!(
                "Share consumer {index} having client id {} consumption metrics- {line}",
                member.client_id
            );
        }
    }
    let all = Consumed {
        records: run.records.load(Ordering::Relaxed),
        bytes: run.bytes.load(Ordering::Relaxed),
    };
    if all.records < run.wanted {
        println!(
            "WARNING: Exiting before consuming the expected number of records: timeout ({timeout_ms} ms) exceeded. \
             You can use the --timeout option to increase the timeout."
        );
    }
    for (_, member) in &mut finished {
        member.consumer.commit().await?;
    }
    println!("{}", all.line(&span, &run.format));
    for (_, member) in finished {
        if args.print_metrics {
            super::performance::print_metrics(member.consumer.metrics());
        }
        // What was consumed is counted; a group that cannot be left any more notices by itself.
        if let Err(error) = member.consumer.close().await {
            eprintln!("WARN the share group could not be left in order: {error}");
        }
    }
    Ok(())
}

fn new_member(
    settings: &BTreeMap<String, String>,
    topic: &str,
    index: Option<usize>,
) -> anyhow::Result<Member> {
    let mut settings = settings.clone();
    if let (Some(index), Some(client_id)) = (index, settings.get_mut("client.id")) {
        client_id.push_str(&format!("-{index}"));
    }
    let (mut client_config, mut config) = (ClientConfig::default(), ShareConsumerConfig::default());
    client_config
        .apply(&settings)
        .and_then(|_| config.apply(&settings))
        .context("Failed to construct Kafka share consumer")?;
    let client_id = client_config.client_id.clone();
    let client = Client::unconnected(client_config);
    let mut consumer = ShareConsumer::new(client, config)?;
    consumer.subscribe(&[topic.to_owned()]);
    Ok(Member {
        client_id,
        consumer,
        consumed: Consumed::default(),
    })
}

/// Consumes until all members together have enough records, or none have come to this one for too long.
async fn consume(
    run: Arc<Run>,
    mut member: Member,
    index: usize,
) -> anyhow::Result<(usize, Member)> {
    let who = format!("ShareConsumer clientId={}", member.client_id);
    let client = member.consumer.client().clone();
    let warnings = connection_warnings::warn_until_connected(client, &who);
    let mut progress = MemberProgress::begin(run.interval);
    let mut last_consumed = Instant::now();
    let mut has_warned = false;
    while run.records.load(Ordering::Relaxed) < run.wanted && last_consumed.elapsed() <= run.timeout
    {
        let records = match member.consumer.poll(POLL).await {
            Ok(records) => records,
            Err(error) if may_pass(&error) => {
                if !std::mem::replace(&mut has_warned, true) {
                    eprintln!("WARN {error:#}; trying again");
                }
                tokio::time::sleep(POLL).await;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        if records.is_empty() {
            continue;
        }
        last_consumed = Instant::now();
        let length = |part: &Option<bytes::Bytes>| part.as_ref().map_or(0, bytes::Bytes::len);
        let bytes = records
            .iter()
            .map(|it| length(&it.record.key) + length(&it.record.value))
            .sum::<usize>() as u64;
        let count = records.len() as u64;
        member.consumed.records += count;
        member.consumed.bytes += bytes;
        run.records.fetch_add(count, Ordering::Relaxed);
        run.bytes.fetch_add(bytes, Ordering::Relaxed);
        let line = progress.line_if_due(member.consumed, &run.format);
        if let Some(line) = line.filter(|_| run.shows_progress) {
            println!("{line} for share consumer {index}");
        }
    }
    warnings.abort();
    Ok((index, member))
}

fn may_pass(error: &ClientError) -> bool {
    matches!(error, ClientError::GaveUp { .. }) || error.is_retriable()
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, Command, FromArgMatches};

    use super::*;

    fn args(line: &str) -> ShareConsumerPerfTestArgs {
        let command = ShareConsumerPerfTestArgs::augment_args(Command::new("t"));
        let words = std::iter::once("t").chain(line.split_whitespace());
        ShareConsumerPerfTestArgs::from_arg_matches(&command.get_matches_from(words)).unwrap()
    }

    #[test]
    fn what_is_wrong_is_said_in_the_words_of_kafkas_tool() {
        for (line, text) in [
            (
                "--bootstrap-server h:1",
                "Missing required argument \"[topic]\"",
            ),
            (
                "--topic t",
                "Missing required argument \"[bootstrap-server]\"",
            ),
            (
                "--bootstrap-server h:1 --topic t",
                "Exactly one of the following arguments is required: [messages], [num-records]",
            ),
        ] {
            assert_eq!(check(&args(line)).unwrap_err(), text);
        }
    }

    #[test]
    fn flags_go_before_properties_and_members_have_names() {
        let line = "--bootstrap-server h:1 --num-records 5 --topic t --fetch-size 7 --command-property \
                    fetch.max.bytes=9 --command-property client.id=me";
        let settings = settings(&args(line)).unwrap();
        for (key, value) in [
            ("fetch.max.bytes", "7"),
            ("client.id", "me"),
            ("group.id", "perf-share-consumer"),
            ("receive.buffer.bytes", "-1"),
        ] {
            assert_eq!(settings[key], value);
        }
    }
}
