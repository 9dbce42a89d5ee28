//! `share-consumer-perf-test`: Kafka's `kafka-share-consumer-perf-test.sh`.

mod progress;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context;
use clap::Args;
use ottla_client::{Client, ClientConfig, ClientError, ShareConsumer, ShareConsumerConfig};
use tokio::task::JoinSet;

use super::consumer_perf_test::arguments::{MeasuringArgs, Wanted, number};
use super::{block_on_while_receiving, connection_watch, report_plainly, warn_of_unknown};
use progress::{Consumed, MemberProgress, Span};

const POLL: Duration = Duration::from_millis(100);

/// Measure how fast records are consumed by the members of a share group.
#[derive(Args, Debug)]
#[command(arg_required_else_help = true)]
pub struct ShareConsumerPerfTestArgs {
    /// The topic to consume.
    #[arg(long)]
    topic: Option<String>,
    /// The share group to join.
    #[arg(long, default_value = "perf-share-consumer")]
    group: String,
    /// Bytes to fetch at a time (fetch.max.bytes).
    #[arg(long, value_name = "BYTES", default_value = "1048576")]
    fetch_size: String,
    /// How many members consume.
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    threads: String,
    /// Print the result of each member.
    #[arg(long)]
    show_consumer_stats: bool,
    #[command(flatten)]
    measuring: MeasuringArgs,
}

pub fn run(args: ShareConsumerPerfTestArgs) -> ExitCode {
    if let Err(text) = check(&args) {
        eprintln!("{text}");
        return ExitCode::FAILURE;
    }
    args.measuring.warn_of_deprecated();
    if !args.measuring.hide_header {
        println!("{}", progress::HEADER);
    }
    block_on_while_receiving(async { report_plainly(measure(&args).await) })
}

/// Rejects the arguments that Kafka's tool rejects before it prints anything, with the same
/// messages.
fn check(args: &ShareConsumerPerfTestArgs) -> Result<(), String> {
    for (name, value) in [
        ("topic", &args.topic),
        ("bootstrap-server", &args.measuring.bootstrap_server),
    ] {
        if value.is_none() {
            return Err(format!("Missing required argument \"[{name}]\""));
        }
    }
    args.measuring.check()
}

fn settings(args: &ShareConsumerPerfTestArgs) -> anyhow::Result<BTreeMap<String, String>> {
    let fetch_size: i32 = number("fetch-size", &args.fetch_size)?;
    let own = [
        ("group.id", args.group.clone()),
        ("fetch.max.bytes", fetch_size.to_string()),
    ];
    args.measuring.settings(own, "perf-share-consumer-client")
}

/// State shared by all members of a run.
struct Run {
    wanted: Wanted,
    shows_progress: bool,
    records: AtomicU64,
    bytes: AtomicU64,
}

/// A member and its counters.
struct Member {
    client_id: String,
    consumer: ShareConsumer,
    consumed: Consumed,
}

async fn measure(args: &ShareConsumerPerfTestArgs) -> anyhow::Result<()> {
    let settings = settings(args)?;
    let wanted = args.measuring.wanted()?;
    let threads: usize = number("threads", &args.threads)?;
    let run = Arc::new(Run {
        wanted,
        shows_progress: args.measuring.show_detailed_stats,
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
            let line = member.consumed.line(&span, &run.wanted.format);
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
    if all.records < run.wanted.records {
        run.wanted.warn_of_too_few();
    }
    for (_, member) in &mut finished {
        member.consumer.commit().await?;
    }
    println!("{}", all.line(&span, &run.wanted.format));
    for (_, member) in finished {
        if args.measuring.print_metrics {
            super::performance::print_metrics(member.consumer.metrics());
        }
        // The consumed records are counted in any case; the coordinator removes the member after
        // its session timeout.
        if let Err(error) = member.consumer.close().await {
            eprintln!("WARN could not leave the share group cleanly: {error}");
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
    let unknown = client_config
        .apply(&settings)
        .and_then(|unknown| Ok([unknown, config.apply(&settings)?]))
        .context("Failed to construct Kafka share consumer")?;
    if index.is_none_or(|index| index == 0) {
        warn_of_unknown(&settings, &unknown);
    }
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

/// Consumes until all members together have enough records, or this one has received none for too
/// long.
async fn consume(
    run: Arc<Run>,
    mut member: Member,
    index: usize,
) -> anyhow::Result<(usize, Member)> {
    let who = format!("ShareConsumer clientId={}", member.client_id);
    let watch = connection_watch::watch(member.consumer.client(), &who);
    let mut progress = MemberProgress::begin(run.wanted.interval);
    let mut last_consumed = Instant::now();
    let mut has_warned = false;
    while run.records.load(Ordering::Relaxed) < run.wanted.records
        && last_consumed.elapsed() <= run.wanted.timeout
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
        let line = progress.line_if_due(member.consumed, &run.wanted.format);
        if let Some(line) = line.filter(|_| run.shows_progress) {
            println!("{line} for share consumer {index}");
        }
    }
    drop(watch);
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
    fn invalid_arguments_have_the_messages_of_kafka() {
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
    fn flags_take_precedence_and_members_have_names() {
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
