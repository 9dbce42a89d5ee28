//! `consumer-perf-test`: Kafka's `kafka-consumer-perf-test.sh`.

pub(super) mod arguments;
mod progress;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use ottla_client::{Client, ClientConfig, ClientError, Consumer, ConsumerConfig};
use regex::Regex;

use super::{block_on_while_receiving, connection_watch, report_plainly, warn_of_unknown};
use arguments::{MeasuringArgs, Wanted, number};
use progress::Progress;

const POLL: Duration = Duration::from_millis(100);

/// Measure how fast records are consumed.
#[derive(Args, Debug)]
#[command(arg_required_else_help = true)]
pub struct ConsumerPerfTestArgs {
    /// The topic to consume.
    #[arg(long)]
    topic: Option<String>,
    /// Consume the topics whose whole names match a regular expression.
    #[arg(long, value_name = "REGEX")]
    include: Option<String>,
    /// The group to join; by default a new one.
    #[arg(long)]
    group: Option<String>,
    /// Bytes to fetch from a partition at a time (max.partition.fetch.bytes).
    #[arg(long, value_name = "BYTES", default_value = "1048576")]
    fetch_size: String,
    /// Start at the end instead of the beginning if the group has no offset.
    #[arg(long)]
    from_latest: bool,
    /// Has no effect, as since Kafka 0.9: there is one thread.
    #[arg(long, value_name = "NUMBER", hide = true)]
    threads: Option<String>,
    /// Has no effect, as since Kafka 0.9.
    #[arg(long, value_name = "NUMBER", hide = true)]
    num_fetch_threads: Option<String>,
    #[command(flatten)]
    measuring: MeasuringArgs,
}

pub fn run(args: ConsumerPerfTestArgs) -> ExitCode {
    if let Err(text) = check(&args) {
        eprintln!("{text}");
        return ExitCode::FAILURE;
    }
    args.measuring.warn_of_deprecated();
    for (flag, value) in [
        ("--threads", &args.threads),
        ("--num-fetch-threads", &args.num_fetch_threads),
    ] {
        if value.is_some() {
            eprintln!("{flag} has no effect: the test has one thread");
        }
    }
    if !args.measuring.hide_header {
        println!("{}", progress::header(args.measuring.show_detailed_stats));
    }
    block_on_while_receiving(async { report_plainly(measure(&args).await) })
}

/// Rejects the arguments that Kafka's tool rejects before it prints anything, with the same
/// messages.
fn check(args: &ConsumerPerfTestArgs) -> Result<(), String> {
    if args.measuring.bootstrap_server.is_none() {
        return Err("Missing required argument \"[bootstrap-server]\"".into());
    }
    if args.topic.is_some() == args.include.is_some() {
        return Err(
            "Exactly one of the following arguments is required: [topic], [include]".into(),
        );
    }
    args.measuring.check()
}

fn settings(args: &ConsumerPerfTestArgs) -> anyhow::Result<BTreeMap<String, String>> {
    let fetch_size: i32 = number("fetch-size", &args.fetch_size)?;
    let group = args.group.clone();
    let group =
        group.unwrap_or_else(|| format!("perf-consumer-{}", rand::random_range(0..100_000)));
    let reset = if args.from_latest {
        "latest"
    } else {
        "earliest"
    };
    let own = [
        ("group.id", group),
        ("max.partition.fetch.bytes", fetch_size.to_string()),
        ("auto.offset.reset", reset.to_owned()),
    ];
    args.measuring.settings(own, "perf-consumer-client")
}

async fn measure(args: &ConsumerPerfTestArgs) -> anyhow::Result<()> {
    let settings = settings(args)?;
    let mut client_config = ClientConfig::default();
    let mut config = ConsumerConfig::default();
    let unknown = client_config
        .apply(&settings)
        .and_then(|unknown| Ok([unknown, config.apply(&settings)?]))
        .context("Failed to construct kafka consumer")?;
    warn_of_unknown(&settings, &unknown);
    let wanted = args.measuring.wanted()?;
    let client = Client::unconnected(client_config);
    let group = config.group_id.clone().unwrap_or_default();
    let who = format!(
        "Consumer clientId={}, groupId={group}",
        client.config().client_id
    );
    let watch = connection_watch::watch(&client, &who);
    let mut consumer = Consumer::new(client.clone(), config);
    let shows_progress = args.measuring.show_detailed_stats;
    let mut progress = Progress::start(wanted.interval, shows_progress);
    consume(args, &client, &mut consumer, &wanted, &mut progress).await?;
    if progress.records() < wanted.records {
        wanted.warn_of_too_few();
    }
    progress.end();
    if !shows_progress {
        println!("{}", progress.total_line(&wanted.format));
    }
    if args.measuring.print_metrics {
        super::performance::print_metrics(consumer.metrics());
    }
    drop(watch);
    // The consumed records are counted in any case; the group removes the member after its session
    // timeout.
    if let Err(error) = consumer.close().await {
        eprintln!("WARN could not leave the group cleanly: {error}");
    }
    Ok(())
}

/// Consumes until there are enough records, or none have arrived for too long.
async fn consume(
    args: &ConsumerPerfTestArgs,
    client: &Client,
    consumer: &mut Consumer,
    wanted: &Wanted,
    progress: &mut Progress,
) -> anyhow::Result<()> {
    let timeout = wanted.timeout;
    let mut is_subscribed = false;
    let mut has_warned = false;
    let mut last_consumed = Instant::now();
    while progress.records() < wanted.records && last_consumed.elapsed() <= timeout {
        // An unreachable cluster is retried only as long as the tool waits for records.
        let patience = timeout.saturating_sub(last_consumed.elapsed()) + POLL;
        let polled = tokio::time::timeout(patience, async {
            if !is_subscribed {
                is_subscribed = subscribe(args, client, consumer).await?;
            }
            if is_subscribed {
                consumer
                    .poll_batches(POLL)
                    .await
                    .map_err(anyhow::Error::from)
            } else {
                tokio::time::sleep(POLL).await;
                Ok(Vec::new())
            }
        });
        let batches = match polled.await {
            Err(_) => continue,
            Ok(Ok(batches)) => batches,
            Ok(Err(error)) if may_pass(&error) => {
                if !std::mem::replace(&mut has_warned, true) {
                    eprintln!("WARN {error:#}; trying again");
                }
                tokio::time::sleep(POLL).await;
                continue;
            }
            Ok(Err(error)) => return Err(error),
        };
        progress.on_assignment(!consumer.has_assignment());
        let (mut records, mut read) = (0, 0);
        for record in batches.iter().flat_map(|batch| batch.iter()) {
            let record = record.context("a batch cannot be read")?;
            let bytes = |part: Option<&[u8]>| part.map_or(0, <[u8]>::len) as u64;
            records += 1;
            read += bytes(record.key) + bytes(record.value);
        }
        if records == 0 {
            continue;
        }
        last_consumed = Instant::now();
        if let Some(line) = progress.on_records(records, read, &wanted.format) {
            println!("{line}");
        }
    }
    Ok(())
}

fn may_pass(error: &anyhow::Error) -> bool {
    match error.downcast_ref::<ClientError>() {
        Some(ClientError::GaveUp { .. }) => true,
        Some(error) => error.is_retriable(),
        None => false,
    }
}

/// False while no topic matches the pattern.
async fn subscribe(
    args: &ConsumerPerfTestArgs,
    client: &Client,
    consumer: &mut Consumer,
) -> anyhow::Result<bool> {
    let topics = match (&args.topic, &args.include) {
        (Some(topic), _) => vec![topic.clone()],
        (None, pattern) => {
            let pattern = pattern.as_deref().unwrap_or_default();
            let pattern = Regex::new(&format!("^(?:{pattern})$"))?;
            let metadata = client.refresh_metadata(None, false).await?;
            let topics = metadata.topics.values();
            topics
                .filter(|topic| !topic.is_internal && pattern.is_match(&topic.name))
                .map(|topic| topic.name.clone())
                .collect()
        }
    };
    if topics.is_empty() {
        return Ok(false);
    }
    consumer.subscribe(&topics)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, Command, FromArgMatches};

    use super::*;

    fn args(line: &str) -> ConsumerPerfTestArgs {
        let command = ConsumerPerfTestArgs::augment_args(Command::new("t"));
        let words = std::iter::once("t").chain(line.split_whitespace());
        ConsumerPerfTestArgs::from_arg_matches(&command.get_matches_from(words)).unwrap()
    }

    #[test]
    fn invalid_arguments_have_the_messages_of_kafka() {
        for (line, text) in [
            (
                "--topic t",
                "Missing required argument \"[bootstrap-server]\"",
            ),
            (
                "--bootstrap-server h:1",
                "Exactly one of the following arguments is required: [topic], [include]",
            ),
            (
                "--bootstrap-server h:1 --topic t --include t --num-records 1",
                "Exactly one of the following arguments is required: [topic], [include]",
            ),
            (
                "--bootstrap-server h:1 --topic t --num-records 1 --messages 1",
                "Exactly one of the following arguments is required: [messages], [num-records]",
            ),
            (
                "--bootstrap-server h:1 --topic t --messages 1 --consumer.config a --command-config b",
                "Option \"[consumer.config]\" can't be used with option \"[command-config]\"",
            ),
        ] {
            assert_eq!(check(&args(line)).unwrap_err(), text);
        }
        assert_eq!(
            number::<i64>("num-records", "x").unwrap_err().to_string(),
            "Cannot parse argument 'x' of option num-records"
        );
    }

    /// The published command of 2014, without ZooKeeper.
    #[test]
    fn flags_take_precedence_over_properties() {
        let line = "--bootstrap-server h:1 --messages 50000000 --topic test --threads 1 --fetch-size 7 \
             --command-property max.partition.fetch.bytes=9 --command-property client.id=me --timeout 5";
        check(&args(line)).unwrap();
        let with_buffer = format!("{line} --socket-buffer-size 8");
        let with_buffer = settings(&args(&with_buffer)).unwrap();
        assert_eq!(with_buffer["receive.buffer.bytes"], "8");
        let settings = settings(&args(line)).unwrap();
        for (key, value) in [
            ("max.partition.fetch.bytes", "7"),
            ("client.id", "me"),
            ("auto.offset.reset", "earliest"),
            ("receive.buffer.bytes", "-1"),
        ] {
            assert_eq!(settings[key], value);
        }
        assert!(settings["group.id"].starts_with("perf-consumer-"));
    }
}
