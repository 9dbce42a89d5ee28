//! `console-producer`: Kafka's `kafka-console-producer.sh`.

mod line_reader;

use std::collections::BTreeMap;
use std::io::{BufRead, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::bail;
use bytes::Bytes;
use clap::Args;
use ottla_client::{Client, ClientConfig, ClientError, Delivery, Producer, ProducerConfig};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::connection_watch::{Refusal, is_refused_login};
use super::{
    block_on, connection_watch, key_values, load_client_properties_if_given,
    load_properties_if_given, report_plainly, warn_of_unknown,
};
use crate::stop_signals::StopSignals;
use line_reader::LineReader;

/// Maximum number of failed records that are printed; all are counted. A refused login is printed once.
const SHOWN_FAILURES: u64 = 10;
/// After a refused login, records are only counted for this time, so that a wrong password is not tried for each.
const LOGIN_PAUSE: Duration = Duration::from_secs(1);
/// After an interrupt, a longer wait is explained.
const NOTICED_WAIT: Duration = Duration::from_millis(500);
/// The status of a process killed by SIGINT.
const INTERRUPTED_STATUS: u8 = 130;

/// Send each line of standard input as a record.
///
/// Properties of the line reader, given with --reader-property: parse.key=false, parse.headers=false,
/// ignore.error=false, key.separator=\t, headers.delimiter=\t, headers.separator=,
/// headers.key.separator=: and null.marker, a text that stands for null. With parse.headers and
/// parse.key a line is "h1:v1,h2:v2<tab>key<tab>value".
#[derive(Args, Debug)]
pub struct ConsoleProducerArgs {
    /// Brokers to connect to first: host:port, separated by commas.
    #[arg(long, value_name = "SERVERS")]
    bootstrap_server: String,
    /// The topic to send to.
    #[arg(long)]
    topic: String,
    /// Wait for each record before sending the next.
    #[arg(long)]
    sync: bool,
    /// none, gzip, snappy, lz4 or zstd; gzip without a value.
    #[arg(long, value_name = "CODEC", num_args = 0..=1, default_missing_value = "gzip")]
    compression_codec: Option<String>,
    /// Bytes of a batch (batch.size).
    #[arg(long, value_name = "BYTES")]
    batch_size: Option<usize>,
    /// Number of retries (retries); 3 by default.
    #[arg(long, value_name = "NUMBER")]
    message_send_max_retries: Option<u32>,
    /// Pause before a retry (retry.backoff.ms).
    #[arg(long, value_name = "MS")]
    retry_backoff_ms: Option<u64>,
    /// How long records wait for a batch to fill (linger.ms); 1000 by default.
    #[arg(long, value_name = "MS")]
    timeout: Option<u64>,
    /// Required acknowledgements: 0, 1, or -1 for all in-sync replicas (acks); -1 by default.
    #[arg(long, value_name = "ACKS", allow_hyphen_values = true)]
    request_required_acks: Option<String>,
    /// Request timeout (request.timeout.ms); 1500 by default.
    #[arg(long, value_name = "MS")]
    request_timeout_ms: Option<u64>,
    /// Maximum age of metadata (metadata.max.age.ms).
    #[arg(long, value_name = "MS")]
    metadata_expiry_ms: Option<u64>,
    /// Maximum time that a send may block (max.block.ms).
    #[arg(long, value_name = "MS")]
    max_block_ms: Option<u64>,
    /// Bytes of records that may be buffered (buffer.memory).
    #[arg(long, value_name = "BYTES")]
    max_memory_bytes: Option<usize>,
    /// Deprecated: write --batch-size.
    #[arg(long, value_name = "BYTES", hide = true)]
    max_partition_memory_bytes: Option<usize>,
    /// Only org.apache.kafka.tools.LineMessageReader, which is the default.
    #[arg(long, value_name = "CLASS", hide = true)]
    line_reader: Option<String>,
    /// Has no effect: the operating system sizes the buffer.
    #[arg(long, value_name = "BYTES", hide = true)]
    socket_buffer_size: Option<usize>,
    /// Deprecated: write --reader-property.
    #[arg(
        long,
        value_name = "KEY=VALUE",
        hide = true,
        conflicts_with = "reader_property"
    )]
    property: Vec<String>,
    /// A property of the line reader, see above; repeatable.
    #[arg(long, value_name = "KEY=VALUE")]
    reader_property: Vec<String>,
    /// Properties file for the line reader.
    #[arg(long, value_name = "FILE")]
    reader_config: Option<String>,
    /// Deprecated: write --command-property.
    #[arg(
        long,
        value_name = "KEY=VALUE",
        hide = true,
        conflicts_with = "command_property"
    )]
    producer_property: Vec<String>,
    /// A producer setting; repeatable.
    #[arg(long, value_name = "KEY=VALUE")]
    command_property: Vec<String>,
    /// Deprecated: write --command-config.
    #[arg(
        long = "producer.config",
        value_name = "FILE",
        hide = true,
        conflicts_with = "command_config"
    )]
    producer_config: Option<String>,
    /// Properties file with settings of the producer.
    #[arg(long, value_name = "FILE")]
    command_config: Option<String>,
}

pub fn run(args: ConsoleProducerArgs) -> ExitCode {
    warn_about_deprecated_flags(&args);
    block_on(async {
        match produce(&args).await {
            Ok(code) => code,
            Err(error) => report_plainly(Err(error)),
        }
    })
}

fn warn_about_deprecated_flags(args: &ConsoleProducerArgs) {
    #[rustfmt::skip]
    let deprecated = [
        (!args.producer_property.is_empty(), "--producer-property", "--command-property"),
        (args.producer_config.is_some(), "--producer.config", "--command-config"),
        (!args.property.is_empty(), "--property", "--reader-property"),
        (args.max_partition_memory_bytes.is_some(), "--max-partition-memory-bytes", "--batch-size"),
    ];
    for (is_used, old, new) in deprecated {
        if is_used {
            println!(
                "Warning: {old} is deprecated and will be removed in a future version. Use {new} instead."
            );
        }
    }
}

/// The producer's settings. Flags override properties, which override the file, which overrides the
/// tool's defaults.
fn settings(args: &ConsoleProducerArgs) -> anyhow::Result<BTreeMap<String, String>> {
    let file = args.command_config.as_ref();
    let mut settings = load_client_properties_if_given(file.or(args.producer_config.as_ref()))?;
    settings.extend(key_values(&args.producer_property));
    settings.extend(key_values(&args.command_property));
    let text = |number: Option<u64>| number.map(|number| number.to_string());
    let bytes = |number: Option<usize>| number.map(|number| number.to_string());
    #[rustfmt::skip]
    let flags = [
        ("linger.ms", text(args.timeout), "1000"),
        ("acks", args.request_required_acks.clone(), "-1"),
        ("request.timeout.ms", text(args.request_timeout_ms), "1500"),
        ("retries", args.message_send_max_retries.map(|it| it.to_string()), "3"),
        ("retry.backoff.ms", text(args.retry_backoff_ms), "100"),
        ("buffer.memory", bytes(args.max_memory_bytes), "33554432"),
        ("batch.size", bytes(args.max_partition_memory_bytes.or(args.batch_size)), "16384"),
        ("metadata.max.age.ms", text(args.metadata_expiry_ms), "300000"),
        ("max.block.ms", text(args.max_block_ms), "60000"),
    ];
    for (key, given, default) in flags {
        match given {
            Some(value) => {
                settings.insert(key.into(), value);
            }
            None => {
                settings.entry(key.into()).or_insert_with(|| default.into());
            }
        }
    }
    let codec = args
        .compression_codec
        .clone()
        .unwrap_or_else(|| "none".into());
    settings.insert("compression.type".into(), codec);
    settings
        .entry("client.id".into())
        .or_insert_with(|| "console-producer".into());
    if let Some(wait) = settings.get("max.block.ms").cloned() {
        // A send blocks only on topic metadata, for which the client has a separate limit.
        settings
            .entry("default.api.timeout.ms".into())
            .or_insert(wait);
    }
    Ok(settings)
}

async fn produce(args: &ConsoleProducerArgs) -> anyhow::Result<ExitCode> {
    if let Some(class) = &args.line_reader
        && !class.ends_with("LineMessageReader")
    {
        bail!(
            "--line-reader {class} is a Java class, which cannot be loaded here; only \
             org.apache.kafka.tools.LineMessageReader is known"
        );
    }
    let mut reader_properties = load_properties_if_given(args.reader_config.as_ref())?;
    reader_properties.extend(key_values(&args.property));
    reader_properties.extend(key_values(&args.reader_property));
    let mut reader = LineReader::new(&args.topic, &reader_properties)?;

    let mut settings = settings(args)?;
    settings.insert("bootstrap.servers".into(), args.bootstrap_server.clone());
    let mut client_config = ClientConfig::default();
    let mut config = ProducerConfig::default();
    let unknown = [client_config.apply(&settings)?, config.apply(&settings)?];
    warn_of_unknown(&settings, &unknown);
    let client = Client::unconnected(client_config);
    let who = format!("Producer clientId={}", client.config().client_id);
    let counts = Arc::new(Counts::default());
    let waiting = counts.clone();
    let watch = connection_watch::watch_unsent(&client, &who, move || waiting.outstanding());
    if args.sync {
        // The first error ends the tool, and is printed then.
        watch.refusal.claim();
    }
    let producer = Producer::new(client, config)?;
    let mut signals = StopSignals::listen()?;

    let mut deliveries = JoinSet::new();
    let interrupted = tokio::select! {
        sent = send_lines(args, &producer, &mut reader, &counts, &watch.refusal, &mut deliveries) => {
            sent?;
            false
        }
        () = signals.next() => true,
    };
    let sending_the_rest = async {
        producer.close().await;
        while deliveries.join_next().await.is_some() {}
    };
    tokio::select! {
        () = sending_the_rest => {}
        () = give_up(&mut signals, interrupted, &counts) => {}
    }
    let (unsent, taken) = (counts.unsent(), counts.taken.load(Ordering::Relaxed));
    if unsent > 0 {
        eprintln!("{unsent} of {taken} records were not acknowledged.");
        return Ok(ExitCode::FAILURE);
    }
    Ok(match interrupted {
        true => ExitCode::from(INTERRUPTED_STATUS),
        false => ExitCode::SUCCESS,
    })
}

/// Sends each line of standard input until its end.
async fn send_lines(
    args: &ConsoleProducerArgs,
    producer: &Producer,
    reader: &mut LineReader,
    counts: &Arc<Counts>,
    refusal: &Refusal,
    deliveries: &mut JoinSet<()>,
) -> anyhow::Result<()> {
    let mut lines = read_lines();
    let mut refused_at: Option<Instant> = None;
    while let Some(line) = lines.recv().await {
        let record = reader.read(&line?)?;
        let (key, value) = (record.key.clone(), record.value.clone());
        counts.taken.fetch_add(1, Ordering::Relaxed);
        if refused_at.is_some_and(|at| at.elapsed() < LOGIN_PAUSE) {
            counts.failed.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        let delivery = producer.send(record).await;
        let is_refused = delivery.as_ref().is_err_and(is_refused_login);
        refused_at = is_refused.then(Instant::now);
        if args.sync {
            delivery?.wait().await?;
            counts.sent.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        while deliveries.try_join_next().is_some() {}
        let (topic, counts, refusal) = (args.topic.clone(), counts.clone(), refusal.clone());
        deliveries.spawn(async move {
            match wait(delivery).await {
                Ok(()) => drop(counts.sent.fetch_add(1, Ordering::Relaxed)),
                Err(error) => {
                    let failed = counts.failed.fetch_add(1, Ordering::Relaxed);
                    let is_shown = match is_refused_login(&error) {
                        true => refusal.claim(),
                        false => failed < SHOWN_FAILURES,
                    };
                    if is_shown {
                        eprintln!("{}", failure(&topic, key, value, &error));
                    }
                }
            }
        });
    }
    Ok(())
}

/// The error message of Kafka's tool.
fn failure(topic: &str, key: Option<Bytes>, value: Option<Bytes>, error: &ClientError) -> String {
    let shown = |bytes: Option<Bytes>| {
        bytes.map_or_else(|| "null".into(), |it| format!("{} bytes", it.len()))
    };
    format!(
        "Error when sending message to topic {topic} with key: {}, value: {} with error: {error}",
        shown(key),
        shown(value)
    )
}

/// Waits for the next signal, upon which the outstanding records are abandoned.
async fn give_up(signals: &mut StopSignals, is_interrupted: bool, counts: &Counts) {
    if is_interrupted {
        tokio::select! {
            () = tokio::time::sleep(NOTICED_WAIT) => {
                eprintln!("{}", outstanding_text(counts.outstanding()));
            }
            () = signals.next() => return,
        }
    }
    signals.next().await;
}

fn outstanding_text(records: u64) -> String {
    match records {
        1 => "1 record is still to be sent; a second Ctrl-C discards it.".to_owned(),
        _ => format!("{records} records are still to be sent; a second Ctrl-C discards them."),
    }
}

/// Counts of records by outcome.
#[derive(Default)]
struct Counts {
    taken: AtomicU64,
    sent: AtomicU64,
    failed: AtomicU64,
}

impl Counts {
    /// Records that are neither acknowledged nor failed.
    fn outstanding(&self) -> u64 {
        self.unsent() - self.failed.load(Ordering::Relaxed).min(self.unsent())
    }

    /// Records that are not acknowledged.
    fn unsent(&self) -> u64 {
        let taken = self.taken.load(Ordering::Relaxed);
        taken.saturating_sub(self.sent.load(Ordering::Relaxed))
    }
}

async fn wait(delivery: Result<Delivery, ClientError>) -> Result<(), ClientError> {
    delivery?.wait().await.map(drop)
}

/// Reads the lines of standard input on a separate thread, because reading blocks.
fn read_lines() -> mpsc::Receiver<std::io::Result<String>> {
    let (sender, receiver) = mpsc::channel(1024);
    let prompts = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        loop {
            if prompts {
                print!(">");
                let _ = std::io::stdout().flush();
            }
            let mut line = Vec::new();
            let line = match input.read_until(b'\n', &mut line) {
                Ok(0) => return,
                Ok(_) => {
                    if line.last() == Some(&b'\n') {
                        line.pop();
                        if line.last() == Some(&b'\r') {
                            line.pop();
                        }
                    }
                    Ok(String::from_utf8_lossy(&line).into_owned())
                }
                Err(error) => Err(error),
            };
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    receiver
}
