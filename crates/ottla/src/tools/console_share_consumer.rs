//! `console-share-consumer`: Kafka's `kafka-console-share-consumer.sh`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Args;
use ottla_client::{AcknowledgeType, Client, ClientConfig, ShareConsumer, ShareConsumerConfig};
use tokio::signal::unix::{SignalKind, signal};

use super::console_consumer::formatter::{Formatter, WriteError};
use super::{block_on, connection_warnings, key_values, load_properties};

/// Print the records of a topic as a member of a share group.
///
/// Properties of the formatter, given with --formatter-property: print.timestamp, print.key,
/// print.offset, print.delivery, print.epoch, print.partition, print.headers, print.value (true by
/// default); key.separator, line.separator, headers.separator, null.literal; key.deserializer,
/// value.deserializer, headers.deserializer with the names of Kafka's own deserializers.
#[derive(Args, Debug)]
pub struct ConsoleShareConsumerArgs {
    /// Brokers to connect to first: host:port, separated by commas.
    #[arg(long, value_name = "SERVERS")]
    bootstrap_server: String,
    /// The topic to read.
    #[arg(long)]
    topic: String,
    /// The share group to join; console-share-consumer if not given.
    #[arg(long)]
    group: Option<String>,
    /// Reject records as they are printed, so that nobody gets them again.
    #[arg(long)]
    reject: bool,
    /// Release records as they are printed, so that somebody gets them again.
    #[arg(long, conflicts_with = "reject")]
    release: bool,
    /// Reject a record that cannot be printed, and go on.
    #[arg(long)]
    reject_message_on_error: bool,
    /// End after so many records.
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
    max_messages: Option<i64>,
    /// End when no record has come for so long.
    #[arg(long, value_name = "MS", allow_hyphen_values = true)]
    timeout_ms: Option<i64>,
    /// How records are printed: the name of one of Kafka's formatters.
    #[arg(long, value_name = "CLASS")]
    formatter: Option<String>,
    /// A property of the formatter, see above; can be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    formatter_property: Vec<String>,
    /// Deprecated: write --formatter-property.
    #[arg(
        long,
        value_name = "KEY=VALUE",
        hide = true,
        conflicts_with = "formatter_property"
    )]
    property: Vec<String>,
    /// Properties file for the formatter.
    #[arg(long, value_name = "FILE")]
    formatter_config: Option<String>,
    /// How keys are printed: the name of one of Kafka's deserializers.
    #[arg(long, value_name = "CLASS")]
    key_deserializer: Option<String>,
    /// How values are printed: the name of one of Kafka's deserializers.
    #[arg(long, value_name = "CLASS")]
    value_deserializer: Option<String>,
    /// A setting of the consumer; can be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    command_property: Vec<String>,
    /// Deprecated: write --command-property.
    #[arg(
        long,
        value_name = "KEY=VALUE",
        hide = true,
        conflicts_with = "command_property"
    )]
    consumer_property: Vec<String>,
    /// Properties file with settings of the consumer.
    #[arg(long, value_name = "FILE")]
    command_config: Option<String>,
    /// Deprecated: write --command-config.
    #[arg(
        long,
        value_name = "FILE",
        hide = true,
        conflicts_with = "command_config"
    )]
    consumer_config: Option<String>,
    /// Print a line when the tool has ended, for Kafka's system tests.
    #[arg(long, hide = true)]
    enable_systest_events: bool,
}

pub fn run(args: ConsoleShareConsumerArgs) -> ExitCode {
    let deprecated = [
        (
            !args.consumer_property.is_empty(),
            "--consumer-property",
            "--command-property",
        ),
        (
            args.consumer_config.is_some(),
            "--consumer-config",
            "--command-config",
        ),
        (
            !args.property.is_empty(),
            "--property",
            "--formatter-property",
        ),
    ];
    for (is_used, old, new) in deprecated {
        if is_used {
            println!(
                "Option {old} is deprecated and will be removed in a future version. Use {new} instead."
            );
        }
    }
    block_on(async {
        match consume(&args).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error:#}");
                ExitCode::FAILURE
            }
        }
    })
}

async fn consume(args: &ConsoleShareConsumerArgs) -> anyhow::Result<()> {
    let mut formatter = make_formatter(args)?;
    let (client_config, config) = settings(args)?;
    let client = Client::unconnected(client_config);
    let who = format!(
        "ShareConsumer clientId={}, groupId={}",
        client.config().client_id,
        config.group_id
    );
    let warnings = connection_warnings::warn_until_connected(client.clone(), &who);
    client.refresh_metadata(Some(&[]), false).await?;
    warnings.abort();
    let mut consumer = ShareConsumer::new(client, config)?;
    consumer.subscribe(std::slice::from_ref(&args.topic));
    let (count, result) = print_records(args, &mut consumer, &mut formatter).await?;
    // What was printed and not acknowledged on its way is acknowledged now; what was not printed goes to others.
    if let Err(error) = consumer.close().await {
        eprintln!("the share group could not be left in order: {error}");
    }
    eprintln!("Processed a total of {count} messages");
    if args.enable_systest_events {
        println!("shutdown_complete");
    }
    result
}

/// How many records were printed, and how that ended.
async fn print_records(
    args: &ConsoleShareConsumerArgs,
    consumer: &mut ShareConsumer,
    formatter: &mut Formatter,
) -> anyhow::Result<(u64, anyhow::Result<()>)> {
    let non_negative = |number: Option<i64>| number.and_then(|number| u64::try_from(number).ok());
    let timeout = non_negative(args.timeout_ms).map(Duration::from_millis);
    let max_messages = non_negative(args.max_messages);
    let became = match (args.reject, args.release) {
        (true, _) => AcknowledgeType::Reject,
        (false, true) => AcknowledgeType::Release,
        (false, false) => AcknowledgeType::Accept,
    };
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut output = std::io::BufWriter::new(std::io::stdout());
    let mut count = 0;
    let mut last_record = Instant::now();
    while max_messages.is_none_or(|max| count < max) {
        let second = Duration::from_secs(1);
        let pause = timeout.map_or(second, |timeout| {
            timeout.saturating_sub(last_record.elapsed()).min(second)
        });
        let records = tokio::select! {
            records = consumer.poll(pause) => match records {
                Ok(records) => records,
                Err(error) => {
                    // As Kafka's tool does: what went wrong is said, the end is an ordinary one.
                    eprintln!("Error processing message, terminating consumer process: {error}");
                    break;
                }
            },
            _ = interrupt.recv() => break,
            _ = terminate.recv() => break,
        };
        if records.is_empty() {
            if let Some(timeout) = timeout.filter(|timeout| last_record.elapsed() > *timeout) {
                eprintln!(
                    "Error processing message, terminating consumer process: no record came for {} ms",
                    timeout.as_millis()
                );
                break;
            }
            continue;
        }
        last_record = Instant::now();
        for record in records {
            if max_messages.is_some_and(|max| count >= max) {
                break;
            }
            count += 1;
            let delivery_count = Some(record.delivery_count);
            match formatter.write(&record.record, delivery_count, &mut output) {
                Ok(()) => consumer.acknowledge(&record, became)?,
                Err(WriteError::Output(error)) => {
                    eprintln!("Unable to write to standard out, closing consumer. ({error})");
                    return Ok((count, Ok(())));
                }
                Err(WriteError::Record(error)) if args.reject_message_on_error => {
                    eprintln!("Error processing message, rejecting this message: {error}");
                    consumer.acknowledge(&record, AcknowledgeType::Reject)?;
                }
                Err(WriteError::Record(error)) => {
                    let _ = output.flush();
                    return Ok((count, Err(anyhow::anyhow!(error))));
                }
            }
        }
        if output.flush().is_err() {
            eprintln!("Unable to write to standard out, closing consumer.");
            break;
        }
    }
    let _ = output.flush();
    Ok((count, Ok(())))
}

fn make_formatter(args: &ConsoleShareConsumerArgs) -> anyhow::Result<Formatter> {
    let mut properties = match &args.formatter_config {
        Some(path) => load_properties(path)?,
        None => BTreeMap::new(),
    };
    for (key, class) in [
        ("key.deserializer", &args.key_deserializer),
        ("value.deserializer", &args.value_deserializer),
    ] {
        if let Some(class) = class {
            properties.insert(key.to_owned(), class.clone());
        }
    }
    properties.extend(key_values(&args.property));
    properties.extend(key_values(&args.formatter_property));
    Formatter::new(args.formatter.as_deref(), &properties)
}

fn settings(
    args: &ConsoleShareConsumerArgs,
) -> anyhow::Result<(ClientConfig, ShareConsumerConfig)> {
    let file = args.command_config.as_ref();
    let mut settings = match file.or(args.consumer_config.as_ref()) {
        Some(path) => load_properties(path)?,
        None => BTreeMap::new(),
    };
    let in_file = settings.get("group.id").cloned();
    let mut given = key_values(&args.consumer_property);
    given.extend(key_values(&args.command_property));
    let groups: BTreeSet<String> = [args.group.clone(), in_file, given.get("group.id").cloned()]
        .into_iter()
        .flatten()
        .collect();
    if groups.len() > 1 {
        let groups: Vec<String> = groups.iter().map(|group| format!("'{group}'")).collect();
        bail!(
            "The group ids provided in different places (directly using '--group', via \
             '--consumer-property', or via '--consumer-config') do not match. Detected group ids: {}",
            groups.join(", ")
        );
    }
    let group = groups.into_iter().next();
    let group = group.unwrap_or_else(|| "console-share-consumer".to_owned());
    settings.extend(given);
    for (key, value) in [
        ("bootstrap.servers", args.bootstrap_server.clone()),
        ("group.id", group),
        ("share.acknowledgement.mode", "explicit".to_owned()),
    ] {
        settings.insert(key.to_owned(), value);
    }
    settings
        .entry("client.id".into())
        .or_insert_with(|| "console-share-consumer".into());
    let (mut client, mut consumer) = (ClientConfig::default(), ShareConsumerConfig::default());
    client.apply(&settings)?;
    consumer.apply(&settings)?;
    Ok((client, consumer))
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, Command, FromArgMatches};

    use super::*;

    fn args(line: &str) -> ConsoleShareConsumerArgs {
        let command = ConsoleShareConsumerArgs::augment_args(Command::new("t"));
        let words = std::iter::once("t").chain(line.split_whitespace());
        ConsoleShareConsumerArgs::from_arg_matches(&command.get_matches_from(words)).unwrap()
    }

    #[test]
    fn the_group_is_said_once_or_the_same_each_time() {
        let group = |line: &str| {
            let args = args(&format!("--bootstrap-server h:1 --topic t {line}"));
            settings(&args).map(|(_, config)| config.group_id)
        };
        assert_eq!(group("").unwrap(), "console-share-consumer");
        assert_eq!(group("--group g").unwrap(), "g");
        assert_eq!(group("--command-property group.id=g").unwrap(), "g");
        let error = group("--group g --command-property group.id=h").unwrap_err();
        assert!(error.to_string().ends_with("'g', 'h'"), "{error}");
    }
}
