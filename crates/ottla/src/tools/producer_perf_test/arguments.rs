//! Parses and validates the command line, with the error messages of Kafka's tool.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use ottla_bench::workload::keys::KeyDistribution;
use ottla_bench::workload::values::{Content, ValueSizes};
use regex::Regex;

use crate::tools::performance::{ILLEGAL_ARGUMENT, Trouble, settings_of_file};

/// The values of the records.
#[derive(Debug)]
pub(super) enum Payload {
    Random { content: Content, sizes: ValueSizes },
    Listed(Vec<Vec<u8>>),
    Counted,
}

/// A validated command line.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) topic: String,
    pub(super) records: u64,
    pub(super) warmup_records: u64,
    pub(super) threads: u64,
    pub(super) transaction_duration: Option<Duration>,
    pub(super) records_per_second: Option<f64>,
    pub(super) payload: Payload,
    pub(super) keys: KeyDistribution,
    pub(super) seed: u64,
    /// In milliseconds.
    pub(super) reporting_interval: u64,
    pub(super) settings: BTreeMap<String, String>,
}

/// Why a command line is invalid.
#[derive(Debug)]
pub(super) enum Refusal {
    Usage(String),
    Trouble(Trouble),
}

impl From<Trouble> for Refusal {
    fn from(trouble: Trouble) -> Refusal {
        Refusal::Trouble(trouble)
    }
}

fn usage<T>(text: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::Usage(text.into()))
}

const MOST_THREADS: i64 = 1024;
const DEFAULT_TRANSACTION_DURATION_MS: i64 = 3000;

pub(super) fn plan(args: &ProducerPerfTestArgs) -> Result<Plan, Refusal> {
    let rewritten;
    let args = if args.positional.is_empty() {
        args
    } else {
        rewritten = of_kafka_0_8(args)?;
        &rewritten
    };
    for (flag, value) in [
        ("--throughput", &args.throughput),
        ("--num-records", &args.num_records),
        ("--topic", &args.topic),
    ] {
        if value.is_none() {
            return usage(format!("argument {flag} is required"));
        }
    }
    exactly_one_payload(args)?;
    let records = long("--num-records", args.num_records.as_deref())?.unwrap_or_default();
    let warmup_records = long("--warmup-records", Some(&args.warmup_records))?
        .unwrap_or_default()
        .max(0);
    let sizes = sizes(args)?;
    let throughput = double("--throughput", args.throughput.as_deref())?;
    let transaction_duration = long(
        "--transaction-duration-ms",
        args.transaction_duration_ms.as_deref(),
    )?;
    let reporting_interval =
        long("--reporting-interval", Some(&args.reporting_interval))?.unwrap_or_default();
    let Some(records) = u64::try_from(records).ok().filter(|records| *records > 0) else {
        return usage("--num-records should be greater than zero.");
    };
    if warmup_records as u64 >= records {
        return usage(
            "The value for --warmup-records must be strictly fewer than the number of records in the test, \
             --num-records.",
        );
    }
    if sizes.is_some_and(|sizes| sizes.most == 0) {
        return usage("--record-size should be greater than zero.");
    }
    if args.bootstrap_server.is_none()
        && args.command_property.is_none()
        && args.producer_props.is_none()
        && args.producer_config.is_none()
        && args.command_config.is_none()
    {
        return usage(
            "At least one of --bootstrap-server, --command-property, --producer-props, --producer.config or \
             --command-config must be specified.",
        );
    }
    if args.command_property.is_some() && args.producer_props.is_some() {
        return usage("--command-property and --producer-props cannot be specified together.");
    }
    if args.command_config.is_some() && args.producer_config.is_some() {
        return usage("--command-config and --producer.config cannot be specified together.");
    }
    if transaction_duration.is_some_and(|duration| duration <= 0) {
        return usage("--transaction-duration-ms should be greater than zero.");
    }
    if reporting_interval <= 0 {
        return usage("--reporting-interval should be greater than zero.");
    }
    let threads = long("--num-threads", Some(&args.num_threads))?.unwrap_or_default();
    if !(1..=MOST_THREADS).contains(&threads) {
        return usage(format!("--num-threads should be from 1 to {MOST_THREADS}."));
    }
    let Some(throughput) = throughput.filter(|rate| *rate != 0.0 && !rate.is_nan()) else {
        return usage("--throughput should not be zero; -1 sets no limit.");
    };
    let keys = keys(args)?;
    let content = content(args)?;
    let seed = long("--random-seed", Some(&args.random_seed))?.unwrap_or_default();

    let payload = match (&args.payload_file, sizes) {
        (Some(path), _) => Payload::Listed(read_payload_file(path, &args.payload_delimiter)?),
        (None, Some(sizes)) => Payload::Random { content, sizes },
        (None, None) => Payload::Counted,
    };
    let mut settings = settings(args)?;
    let is_transactional = transaction_duration.is_some()
        || args.transactional_id.is_some()
        || settings.contains_key("transactional.id");
    if is_transactional {
        if threads > 1 {
            return usage(
                "--num-threads should be 1 with transactions: a producer can have only one open transaction.",
            );
        }
        let given = args.transactional_id.clone();
        let id = given
            .or_else(|| settings.get("transactional.id").cloned())
            .unwrap_or_else(|| format!("performance-producer-{:032x}", rand::random::<u128>()));
        settings.insert("transactional.id".into(), id);
    }
    let transaction_duration = is_transactional.then(|| {
        let milliseconds = transaction_duration.unwrap_or(DEFAULT_TRANSACTION_DURATION_MS);
        Duration::from_millis(milliseconds.cast_unsigned())
    });
    Ok(Plan {
        topic: args.topic.clone().unwrap_or_default(),
        records,
        warmup_records: warmup_records as u64,
        threads: threads as u64,
        transaction_duration,
        records_per_second: Some(throughput).filter(|rate| *rate > 0.0),
        payload,
        keys,
        seed: seed.cast_unsigned(),
        reporting_interval: reporting_interval as u64,
        settings,
    })
}

/// Converts `TOPIC NUM-RECORDS RECORD-SIZE THROUGHPUT [PROP-NAME=PROP-VALUE]...` to flags.
fn of_kafka_0_8(args: &ProducerPerfTestArgs) -> Result<ProducerPerfTestArgs, Refusal> {
    let [topic, records, size, throughput, properties @ ..] = &args.positional[..] else {
        let words = args.positional.join(" ");
        return usage(format!("unrecognized arguments: '{words}'"));
    };
    if args.topic.is_some() || args.num_records.is_some() {
        let words = args.positional.join(" ");
        return usage(format!("unrecognized arguments: '{words}'"));
    }
    Ok(ProducerPerfTestArgs {
        topic: Some(topic.clone()),
        num_records: Some(records.clone()),
        record_size: Some(size.clone()),
        throughput: Some(throughput.clone()),
        command_property: Some(properties.to_vec()),
        bootstrap_server: args.bootstrap_server.clone(),
        payload_delimiter: args.payload_delimiter.clone(),
        warmup_records: args.warmup_records.clone(),
        reporting_interval: args.reporting_interval.clone(),
        num_threads: args.num_threads.clone(),
        value_bound: args.value_bound.clone(),
        key_distribution: args.key_distribution.clone(),
        record_key_range: args.record_key_range.clone(),
        random_seed: args.random_seed.clone(),
        print_metrics: args.print_metrics,
        ..ProducerPerfTestArgs::default()
    })
}

fn exactly_one_payload(args: &ProducerPerfTestArgs) -> Result<(), Refusal> {
    let given: Vec<&str> = [
        ("--record-size", args.record_size.is_some()),
        ("--payload-file", args.payload_file.is_some()),
        ("--payload-monotonic", args.payload_monotonic),
    ]
    .into_iter()
    .filter_map(|(flag, is_given)| is_given.then_some(flag))
    .collect();
    match given[..] {
        [] => usage(
            "one of the arguments --record-size --payload-file --payload-monotonic is required",
        ),
        [_] => Ok(()),
        [first, second, ..] => usage(format!(
            "argument {second}: not allowed with argument {first}"
        )),
    }
}

fn sizes(args: &ProducerPerfTestArgs) -> Result<Option<ValueSizes>, Refusal> {
    let Some(text) = &args.record_size else {
        return Ok(None);
    };
    if text.parse::<i32>().is_ok_and(|size| size <= 0) {
        return usage("--record-size should be greater than zero.");
    }
    match ValueSizes::parse(text) {
        Some(sizes) => Ok(Some(sizes)),
        None => usage(format!(
            "argument --record-size: could not convert '{text}' to Integer (For input string: \"{text}\")"
        )),
    }
}

fn content(args: &ProducerPerfTestArgs) -> Result<Content, Refusal> {
    let Some(bound) = long("--value-bound", args.value_bound.as_deref())? else {
        return Ok(Content::Letters);
    };
    match u32::try_from(bound) {
        Ok(bound) if bound > 0 => Ok(Content::Numbers { bound }),
        _ => usage(format!(
            "--value-bound should be greater than zero and at most {}.",
            u32::MAX
        )),
    }
}

fn keys(args: &ProducerPerfTestArgs) -> Result<KeyDistribution, Refusal> {
    let range = match long("--record-key-range", args.record_key_range.as_deref())? {
        None => None,
        Some(range) if (1..=i64::from(i32::MAX)).contains(&range) => Some(range as u32),
        Some(_) => return usage("--record-key-range should be greater than zero."),
    };
    match (args.key_distribution.to_ascii_lowercase().as_str(), range) {
        ("none", None) => Ok(KeyDistribution::None),
        ("none", Some(_)) => {
            usage("--record-key-range can only be used with --key-distribution range or random.")
        }
        ("range", Some(range)) => Ok(KeyDistribution::Range(range)),
        ("random", Some(range)) => Ok(KeyDistribution::Random(range)),
        ("range" | "random", None) => {
            usage("--record-key-range is required with --key-distribution range or random.")
        }
        (other, _) => usage(format!(
            "argument --key-distribution: invalid choice: '{other}' (choose from {{none,range,random}})"
        )),
    }
}

/// Properties override the file, `--bootstrap-server` overrides both.
fn settings(args: &ProducerPerfTestArgs) -> Result<BTreeMap<String, String>, Refusal> {
    if args.producer_props.is_some() {
        println!(
            "Option --producer-props has been deprecated and will be removed in a future version. Use \
             --command-property instead."
        );
    }
    if args.producer_config.is_some() {
        println!(
            "Option --producer.config has been deprecated and will be removed in a future version. Use \
             --command-config instead."
        );
    }
    let file = args
        .producer_config
        .as_ref()
        .or(args.command_config.as_ref());
    let mut settings = settings_of_file(file.map(String::as_str))?;
    let properties = args
        .producer_props
        .as_ref()
        .or(args.command_property.as_ref());
    for property in properties.into_iter().flatten() {
        let pieces: Vec<&str> = property.split('=').collect();
        let [key, value] = pieces[..] else {
            return Err(Refusal::Trouble(Trouble::Uncaught(
                ILLEGAL_ARGUMENT,
                format!("Invalid property: {property}"),
            )));
        };
        settings.insert(key.to_owned(), value.to_owned());
    }
    settings
        .entry("client.id".into())
        .or_insert_with(|| "perf-producer-client".into());
    if let Some(servers) = &args.bootstrap_server {
        settings.insert("bootstrap.servers".into(), servers.clone());
    }
    Ok(settings)
}

/// Splits a file like Java's `Scanner`: a separator at the beginning or the end does not produce an
/// empty part.
fn read_payload_file(path: &str, delimiter: &str) -> Result<Vec<Vec<u8>>, Refusal> {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.into());
    println!("Reading payloads from: {}", absolute.display());
    let bytes = std::fs::read(path).unwrap_or_default();
    if bytes.is_empty() {
        return Err(Refusal::Trouble(Trouble::Uncaught(
            ILLEGAL_ARGUMENT,
            "File does not exist or empty file provided.".into(),
        )));
    }
    let pattern = if delimiter == "\\n" { "\n" } else { delimiter };
    let pattern = Regex::new(pattern).map_err(|error| {
        Refusal::Trouble(Trouble::Other(anyhow::anyhow!(
            "--payload-delimiter {delimiter}: {error}"
        )))
    })?;
    let text = String::from_utf8_lossy(&bytes);
    let mut parts: Vec<&str> = pattern.split(&text).collect();
    if parts.first() == Some(&"") {
        parts.remove(0);
    }
    if parts.last() == Some(&"") {
        parts.pop();
    }
    println!("Number of records read: {}", parts.len());
    Ok(parts
        .into_iter()
        .map(|part| part.as_bytes().to_vec())
        .collect())
}

fn long(flag: &str, text: Option<&str>) -> Result<Option<i64>, Refusal> {
    number(flag, text, "Long")
}

fn double(flag: &str, text: Option<&str>) -> Result<Option<f64>, Refusal> {
    number(flag, text, "Double")
}

fn number<T: std::str::FromStr>(
    flag: &str,
    text: Option<&str>,
    kind: &str,
) -> Result<Option<T>, Refusal> {
    let Some(text) = text else { return Ok(None) };
    match text.parse() {
        Ok(number) => Ok(Some(number)),
        Err(_) => usage(format!(
            "argument {flag}: could not convert '{text}' to {kind} (For input string: \"{text}\")"
        )),
    }
}

/// Measure how fast, and with what latency, records are produced.
///
/// Standard output has what Kafka's tool prints; standard error has the rest: with a rate, both
/// latencies (from when records were due, and from when they were sent) and the number of records
/// that could not be sent.
///
/// The form of Kafka 0.8 is accepted too: TOPIC NUM-RECORDS RECORD-SIZE THROUGHPUT
/// [PROP-NAME=PROP-VALUE]...
#[derive(Args, Debug, Default)]
#[command(args_override_self = true)]
pub struct ProducerPerfTestArgs {
    /// Brokers to connect to first; overrides bootstrap.servers of properties.
    #[arg(long, value_name = "SERVERS")]
    pub(super) bootstrap_server: Option<String>,
    /// Produce records to this topic.
    #[arg(long)]
    pub(super) topic: Option<String>,
    /// How many records to produce.
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
    pub(super) num_records: Option<String>,
    /// Bytes of each record; `0-1800` draws each record's size evenly from that range.
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    pub(super) record_size: Option<String>,
    /// A text file. Each record is a randomly chosen part of it.
    #[arg(long, value_name = "FILE")]
    pub(super) payload_file: Option<String>,
    /// Records are 0, 1, 2 and so on, in decimal.
    #[arg(long)]
    pub(super) payload_monotonic: bool,
    /// Regular expression that separates the parts of --payload-file; the end of a line by default.
    #[arg(long, value_name = "REGEX", default_value = "\\n")]
    pub(super) payload_delimiter: String,
    /// Records per second, of all threads together; -1 for no limit.
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    pub(super) throughput: Option<String>,
    /// Deprecated: write --command-property.
    #[arg(long, value_name = "KEY=VALUE", num_args = 1.., hide = true)]
    pub(super) producer_props: Option<Vec<String>>,
    /// Settings of the producer; they override those of --command-config.
    #[arg(long, value_name = "KEY=VALUE", num_args = 1..)]
    pub(super) command_property: Option<Vec<String>>,
    /// Deprecated: write --command-config.
    #[arg(long = "producer.config", value_name = "FILE", hide = true)]
    pub(super) producer_config: Option<String>,
    /// Properties file with settings of the producer.
    #[arg(long, value_name = "FILE")]
    pub(super) command_config: Option<String>,
    /// Print the producer's metrics at the end.
    #[arg(long)]
    pub(super) print_metrics: bool,
    /// Produce in transactions under this id.
    #[arg(long, value_name = "ID")]
    pub(super) transactional_id: Option<String>,
    /// Time after which each transaction is committed; by default 3000 if there are transactions.
    #[arg(long, value_name = "MS", allow_hyphen_values = true)]
    pub(super) transaction_duration_ms: Option<String>,
    /// Exclude this many first records from a second summary.
    #[arg(
        long,
        value_name = "NUMBER",
        default_value = "0",
        allow_hyphen_values = true
    )]
    pub(super) warmup_records: String,
    /// How often to print progress.
    #[arg(
        long,
        value_name = "MS",
        default_value = "5000",
        allow_hyphen_values = true
    )]
    pub(super) reporting_interval: String,
    /// Send from this many threads over one producer (KAFKA-3554).
    #[arg(
        long,
        value_name = "NUMBER",
        default_value = "1",
        allow_hyphen_values = true
    )]
    pub(super) num_threads: String,
    /// Fill records with 32-bit numbers below this one instead of capital letters; a lower number
    /// makes records compress better (KAFKA-3554).
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
    pub(super) value_bound: Option<String>,
    /// The keys of records: none, range (0, 1 and so on, repeatedly) or random (KIP-1299).
    #[arg(long, value_name = "DISTRIBUTION", default_value = "none")]
    pub(super) key_distribution: String,
    /// Number of different keys.
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
    pub(super) record_key_range: Option<String>,
    /// Seed of random sizes, values and keys.
    #[arg(
        long,
        value_name = "NUMBER",
        default_value = "0",
        allow_hyphen_values = true
    )]
    pub(super) random_seed: String,
    /// Write the distribution of latencies to this file, in HdrHistogram's percentile format; with
    /// a rate, a second file beside it, `.sent`, counts from when records were sent.
    #[arg(long, value_name = "FILE")]
    pub(super) histogram_out: Option<PathBuf>,
    /// TOPIC NUM-RECORDS RECORD-SIZE THROUGHPUT [PROP-NAME=PROP-VALUE]..., as in Kafka 0.8.
    #[arg(hide = true, allow_negative_numbers = true)]
    pub(super) positional: Vec<String>,
}

#[cfg(test)]
mod tests;
