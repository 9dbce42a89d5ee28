//! `console-share-consumer`: Kafka's `kafka-console-share-consumer.sh`.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use ottla_client::{AcknowledgeType, Client, ClientConfig, ShareConsumer, ShareConsumerConfig};

use super::console_consumer::arguments::{PrintingArgs, SettingsArgs};
use super::console_consumer::formatter::{Formatter, WriteError};
use super::console_consumer::missing_topic;
use super::console_consumer::polling::Polling;
use super::{block_on, connection_watch, coordinator_watch, report_plainly, warn_of_unknown};

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
    /// The share group to join; by default console-share-consumer.
    #[arg(long)]
    group: Option<String>,
    /// Reject each record that is printed, so that it is not delivered again.
    #[arg(long)]
    reject: bool,
    /// Release each record that is printed, so that it is delivered again.
    #[arg(long, conflicts_with = "reject")]
    release: bool,
    /// Reject a record that cannot be printed, and continue.
    #[arg(long)]
    reject_message_on_error: bool,
    /// Exit after this many records.
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
    max_messages: Option<i64>,
    /// Exit when no record has arrived for this long.
    #[arg(long, value_name = "MS", allow_hyphen_values = true)]
    timeout_ms: Option<i64>,
    #[command(flatten)]
    printing: PrintingArgs,
    #[command(flatten)]
    given: SettingsArgs,
    /// Deprecated: write --command-config.
    #[arg(
        long,
        value_name = "FILE",
        hide = true,
        conflicts_with = "command_config"
    )]
    consumer_config: Option<String>,
}

impl ConsoleShareConsumerArgs {
    /// The value of the deprecated flag for a settings file.
    fn old_file(&self) -> (&'static str, Option<&String>) {
        ("--consumer-config", self.consumer_config.as_ref())
    }
}

pub fn run(args: ConsoleShareConsumerArgs) -> ExitCode {
    args.given.warn_of_deprecated(args.old_file());
    args.printing.warn_of_deprecated();
    block_on(async { report_plainly(consume(&args).await) })
}

async fn consume(args: &ConsoleShareConsumerArgs) -> anyhow::Result<()> {
    let mut formatter = args.printing.formatter()?;
    let (client_config, config) = settings(args)?;
    let client = Client::unconnected(client_config);
    let who = format!(
        "ShareConsumer clientId={}, groupId={}",
        client.config().client_id,
        config.group_id
    );
    let connecting = connection_watch::connect_within(&client, &who, timeout_of(args));
    let Some(_watch) = connecting.await? else {
        // As after a timeout without a record.
        eprintln!("Processed a total of 0 messages");
        return Ok(());
    };
    let _coordinator_watch =
        coordinator_watch::watch(&client, &who, &config.group_id, Some(&args.topic));
    missing_topic::warn(&client, &args.topic, false).await?;
    let mut consumer = ShareConsumer::new(client, config)?;
    consumer.subscribe(std::slice::from_ref(&args.topic));
    let (count, result) = print_records(args, &mut consumer, &mut formatter).await?;
    // Closing acknowledges the printed records and releases the others.
    if let Err(error) = consumer.close().await {
        eprintln!("could not leave the share group cleanly: {error}");
    }
    eprintln!("Processed a total of {count} messages");
    if args.printing.enable_systest_events {
        println!("shutdown_complete");
    }
    result
}

/// Maximum time without a record; `None` means no limit.
fn timeout_of(args: &ConsoleShareConsumerArgs) -> Option<Duration> {
    let ms = args.timeout_ms.and_then(|ms| u64::try_from(ms).ok())?;
    Some(Duration::from_millis(ms))
}

/// The number of printed records, and the result.
async fn print_records(
    args: &ConsoleShareConsumerArgs,
    consumer: &mut ShareConsumer,
    formatter: &mut Formatter,
) -> anyhow::Result<(u64, anyhow::Result<()>)> {
    // In Kafka's tool -1 means no limit, and any other negative number no records.
    let max_messages = args.max_messages.filter(|max| *max != -1);
    let max_messages = max_messages.map(|max| u64::try_from(max).unwrap_or(0));
    let became = match (args.reject, args.release) {
        (true, _) => AcknowledgeType::Reject,
        (false, true) => AcknowledgeType::Release,
        (false, false) => AcknowledgeType::Accept,
    };
    let mut polling = Polling::new(timeout_of(args))?;
    let mut output = std::io::BufWriter::new(std::io::stdout());
    let mut count = 0;
    let mut result = Ok(());
    while result.is_ok() && max_messages.is_none_or(|max| count < max) {
        let pause = polling.pause();
        let Some(records) = polling.next(consumer.poll(pause)).await else {
            break;
        };
        if records.is_empty() {
            continue;
        }
        let mut handled = Vec::with_capacity(records.len());
        for record in records {
            if max_messages.is_some_and(|max| count >= max) {
                break;
            }
            count += 1;
            let delivery_count = Some(record.delivery_count);
            match formatter.write(&record.record, delivery_count, &mut output) {
                Ok(()) => handled.push((record, became)),
                Err(WriteError::Output(error)) => {
                    eprintln!("Unable to write to standard out, closing consumer. ({error})");
                    return Ok((count, Ok(())));
                }
                Err(WriteError::Record(error)) if args.reject_message_on_error => {
                    eprintln!("Error processing message, rejecting this message: {error}");
                    handled.push((record, AcknowledgeType::Reject));
                }
                Err(WriteError::Record(error)) => {
                    result = Err(anyhow::anyhow!(error));
                    break;
                }
            }
        }
        if let Err(error) = output.flush() {
            eprintln!("Unable to write to standard out, closing consumer. ({error})");
            break;
        }
        // An accepted record is not delivered again, so it must have been written.
        for (record, kind) in handled {
            consumer.acknowledge(&record, kind)?;
        }
    }
    Ok((count, result))
}

fn settings(
    args: &ConsoleShareConsumerArgs,
) -> anyhow::Result<(ClientConfig, ShareConsumerConfig)> {
    let group = args.group.as_ref();
    let (mut settings, group) = args.given.settings(group, args.old_file())?;
    let group = group.unwrap_or_else(|| "console-share-consumer".to_owned());
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
    let unknown = [client.apply(&settings)?, consumer.apply(&settings)?];
    warn_of_unknown(&settings, &unknown);
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
    fn conflicting_groups_are_refused() {
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
