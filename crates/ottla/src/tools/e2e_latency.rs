//! `e2e-latency`: Kafka's `kafka-e2e-latency.sh`. One record at a time is produced, acknowledged and consumed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use bytes::Bytes;
use clap::Args;
use ottla_bench::workload::latencies::Latencies;
use ottla_bench::workload::random::Random;
use ottla_client::admin::{NewTopic, OffsetSpec};
use ottla_client::{
    Admin, Client, ClientConfig, ClientError, Consumer, ConsumerConfig, ConsumerRecord, Producer,
    ProducerConfig, RecordRef,
};
use ottla_records::RecordHeader;

use super::consumer_perf_test::arguments::number;
use super::java_numbers::{double_to_string, fixed};
use super::performance::{show_latency, write_histogram};
use super::{
    block_on, connection_watch, load_client_properties_if_given, report_plainly, warn_of_unknown,
};

const POLL_TIMEOUT: Duration = Duration::from_secs(60);
const POSITIONAL_IS_DEPRECATED: &str = "WARNING: Positional argument usage is deprecated and will be removed in \
    Apache Kafka 5.0. Please use named arguments instead: --bootstrap-server, --topic, --num-records, --producer-acks, \
    --record-size, --command-config";
/// Number of records per progress line.
const RECORDS_PER_LINE: usize = 1000;

/// Measure the latency of records from producer to consumer.
///
/// The form without flags is accepted too: SERVERS TOPIC NUM-RECORDS PRODUCER-ACKS RECORD-SIZE
/// [COMMAND-CONFIG], and that of Kafka 0.8: SERVERS ZOOKEEPER TOPIC NUM-RECORDS.
#[derive(Args, Debug, Default)]
#[command(arg_required_else_help = true, args_override_self = true)]
pub struct E2eLatencyArgs {
    /// Brokers to connect to first: host:port, separated by commas.
    #[arg(long, value_name = "SERVERS")]
    bootstrap_server: Option<String>,
    /// The topic, which is created with one partition if it does not exist.
    #[arg(long)]
    topic: Option<String>,
    /// How many records to send.
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
    num_records: Option<String>,
    /// The replicas that must have a record before it is acknowledged: 1 for the leader, or all.
    #[arg(long, value_name = "ACKS", allow_hyphen_values = true)]
    producer_acks: Option<String>,
    /// Bytes of each record's value.
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    record_size: Option<String>,
    /// Bytes of each record's key.
    #[arg(long, value_name = "BYTES", default_value = "0", num_args = 0..=1, default_missing_value = "0", allow_hyphen_values = true)]
    record_key_size: String,
    /// Bytes of the key of each header.
    #[arg(long, value_name = "BYTES", default_value = "0", num_args = 0..=1, default_missing_value = "0", allow_hyphen_values = true)]
    record_header_key_size: String,
    /// Bytes of the value of each header; -1 for null.
    #[arg(long, value_name = "BYTES", default_value = "0", num_args = 0..=1, default_missing_value = "0", allow_hyphen_values = true)]
    record_header_size: String,
    /// How many headers each record has.
    #[arg(long, value_name = "NUMBER", default_value = "0", num_args = 0..=1, default_missing_value = "0", allow_hyphen_values = true)]
    num_headers: String,
    /// Properties file with settings of the clients.
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    command_config: Option<Option<String>>,
    /// Write the distribution of latencies to this file, in HdrHistogram's percentile format.
    #[arg(long, value_name = "FILE")]
    histogram_out: Option<PathBuf>,
    /// SERVERS TOPIC NUM-RECORDS PRODUCER-ACKS RECORD-SIZE [COMMAND-CONFIG]
    #[arg(hide = true, allow_negative_numbers = true)]
    positional: Vec<String>,
}

/// A validated command line.
#[derive(Debug, PartialEq, Eq)]
struct Plan {
    servers: String,
    topic: String,
    records: usize,
    acks: String,
    value_bytes: usize,
    key_bytes: usize,
    headers: usize,
    header_key_bytes: usize,
    /// `None` for null.
    header_value_bytes: Option<usize>,
    command_config: Option<String>,
}

pub fn run(args: E2eLatencyArgs) -> ExitCode {
    block_on(async {
        report_plainly(match plan(&args) {
            Ok(plan) => measure(&plan, args.histogram_out.as_deref()).await,
            Err(error) => Err(error),
        })
    })
}

fn plan(args: &E2eLatencyArgs) -> anyhow::Result<Plan> {
    let named = [
        ("bootstrap-server", &args.bootstrap_server),
        ("topic", &args.topic),
        ("num-records", &args.num_records),
        ("producer-acks", &args.producer_acks),
        ("record-size", &args.record_size),
    ];
    let positional;
    let mut command_config = args.command_config.clone().flatten();
    let [servers, topic, records, acks, value_bytes] = if named.iter().any(|(_, it)| it.is_some()) {
        for (option, value) in named {
            if value.is_none() {
                bail!("Missing required argument \"[{option}]\"");
            }
        }
        named.map(|(_, value)| value.as_deref().unwrap_or_default())
    } else {
        positional = without_flags(&args.positional)?;
        // The form of 0.8, with four arguments, no longer exists in Kafka and gets no message.
        if args.positional.len() >= 5 {
            println!("{POSITIONAL_IS_DEPRECATED}");
        }
        command_config = positional.get(5).cloned().or(command_config);
        [0, 1, 2, 3, 4].map(|index| positional[index].as_str())
    };
    let records: i32 = number("num-records", records)?;
    let value_bytes = number("record-size", value_bytes)?;
    if !["1", "all"].contains(&acks) {
        bail!(
            "Invalid value for --producer-acks. Latency testing requires synchronous acknowledgement. Please use \
             '1' or 'all'."
        );
    }
    if records <= 0 {
        bail!("Value for --num-records must be a positive integer.");
    }
    let size = |option: &str, value: i32| {
        usize::try_from(value)
            .ok()
            .with_context(|| format!("Value for --{option} must be a non-negative integer."))
    };
    let header_value_bytes = match number::<i32>("record-header-size", &args.record_header_size)? {
        -1 => None,
        bytes => Some(usize::try_from(bytes).ok().context(
            "Value for --record-header-size must be a non-negative integer or -1 for null header value.",
        )?),
    };
    Ok(Plan {
        servers: servers.to_owned(),
        topic: topic.to_owned(),
        records: records as usize,
        acks: acks.to_owned(),
        value_bytes: size("record-size", value_bytes)?,
        key_bytes: size(
            "record-key-size",
            number("record-key-size", &args.record_key_size)?,
        )?,
        headers: size("num-headers", number("num-headers", &args.num_headers)?)?,
        header_key_bytes: size(
            "record-header-key-size",
            number("record-header-key-size", &args.record_header_key_size)?,
        )?,
        header_value_bytes,
        command_config,
    })
}

/// The five or six positional arguments of Kafka's older tools, derived from the four of 0.8 if
/// these are given.
fn without_flags(words: &[String]) -> anyhow::Result<Vec<String>> {
    match words {
        // The second is the ZooKeeper address, which is ignored. That version sent 21 bytes per
        // record.
        [servers, zookeeper, topic, records] if zookeeper.contains(':') => {
            let text = |word: &str| word.to_owned();
            Ok(vec![
                servers.clone(),
                topic.clone(),
                records.clone(),
                text("1"),
                text("21"),
            ])
        }
        words if words.len() == 5 || words.len() == 6 => Ok(words.to_vec()),
        words => bail!(
            "Invalid number of arguments. Expected 5 or 6 positional arguments, but got {}. Usage: bootstrap-server \
             topic num-records producer-acks record-size [optional] command-config",
            words.len()
        ),
    }
}

/// The settings of a client: the file, overridden by the test's own settings.
fn settings(plan: &Plan, own: &[(&str, &str)]) -> anyhow::Result<BTreeMap<String, String>> {
    let mut settings = load_client_properties_if_given(plan.command_config.as_ref())?;
    settings.insert("bootstrap.servers".into(), plan.servers.clone());
    for (key, value) in own {
        settings.insert((*key).to_owned(), (*value).to_owned());
    }
    Ok(settings)
}

async fn measure(plan: &Plan, histogram_out: Option<&std::path::Path>) -> anyhow::Result<()> {
    let for_consumer = settings(
        plan,
        &[
            ("enable.auto.commit", "false"),
            ("auto.offset.reset", "latest"),
            ("fetch.max.wait.ms", "0"),
        ],
    )?;
    let mut client_config = ClientConfig::default();
    let mut consumer_config = ConsumerConfig::default();
    let unknown = client_config
        .apply(&for_consumer)
        .and_then(|unknown| Ok([unknown, consumer_config.apply(&for_consumer)?]))
        .context("Failed to construct kafka consumer")?;
    warn_of_unknown(&for_consumer, &unknown);
    // Nothing is committed, because each run starts at the end.
    consumer_config.group_id = None;
    let for_producer = settings(plan, &[("linger.ms", "0"), ("acks", &plan.acks)])?;
    let mut producer_config = ProducerConfig::default();
    producer_config
        .apply(&for_producer)
        .context("Failed to construct kafka producer")?;
    let client = Client::unconnected(client_config);
    let watch = connection_watch::watch(&client, "Consumer clientId=e2e-latency");
    let admin = Admin::new(client.clone());
    if !admin.list_topics(true).await?.contains(&plan.topic) {
        create_topic(&admin, &plan.topic).await?;
    }
    let mut consumer = Consumer::new(client.clone(), consumer_config);
    go_to_the_end(&client, &admin, &mut consumer, &plan.topic).await?;
    let producer = Producer::new(client, producer_config)?;

    let mut random = Random::new(0);
    let mut latencies = Latencies::default();
    for index in 0..plan.records {
        let record = Sent::draw(plan, &mut random);
        let begin = Instant::now();
        let sent = producer.send_ref(record.as_ref(&plan.topic)).await?;
        sent.wait().await?;
        let records = consumer.poll(POLL_TIMEOUT).await?;
        let elapsed = begin.elapsed();
        record.check(&records)?;
        if index % RECORDS_PER_LINE == 0 {
            let milliseconds = elapsed.as_nanos() as f64 / 1000.0 / 1000.0;
            println!("{index}\t{}", double_to_string(milliseconds));
        }
        latencies.record(elapsed);
    }
    drop(watch);
    print_results(&latencies);
    show_latency("latency from sending to having consumed", &latencies);
    if let Some(path) = histogram_out {
        write_histogram(path, &latencies)?;
    }
    producer.close().await;
    consumer.close().await?;
    Ok(())
}

fn print_results(latencies: &Latencies) {
    let milliseconds = |quantile| latencies.at_quantile_ns(quantile) / 1_000_000;
    println!(
        "Avg latency: {} ms",
        fixed(latencies.mean_ns() / 1000.0 / 1000.0, 4)
    );
    println!(
        "Percentiles: 50th = {}, 99th = {}, 99.9th = {}",
        milliseconds(0.5),
        milliseconds(0.99),
        milliseconds(0.999)
    );
}

async fn create_topic(admin: &Admin, topic: &str) -> anyhow::Result<()> {
    println!(
        "Topic \"{topic}\" does not exist. Will create topic with 1 partition(s) and replication factor = 1"
    );
    let new = NewTopic {
        name: topic.to_owned(),
        partitions: Some(1),
        replication_factor: Some(1),
        ..NewTopic::default()
    };
    let created = admin
        .create_topics(&[new], false)
        .await
        .and_then(|results| {
            results.first().map_or(Ok(()), |result| {
                let message = result.error_message.as_ref();
                ClientError::check(format!("topic {topic}"), result.error_code, message)
            })
        });
    if created.is_err() {
        println!("Creation of topic {topic} failed");
    }
    Ok(created?)
}

/// Seeks to the end of every partition.
async fn go_to_the_end(
    client: &Client,
    admin: &Admin,
    consumer: &mut Consumer,
    topic: &str,
) -> anyhow::Result<()> {
    let names = [topic.to_owned()];
    let metadata = client
        .retrying("finding the topic's leaders", async || {
            client.topics(&names).await
        })
        .await?;
    let partitions: Vec<(String, i32)> = metadata
        .topics
        .get(topic)
        .map(|it| it.partitions.iter())
        .into_iter()
        .flatten()
        .map(|it| (topic.to_owned(), it.partition))
        .collect();
    let ends = admin
        .list_offsets(&partitions, OffsetSpec::Latest, false)
        .await;
    consumer.assign(&partitions);
    for (partition, end) in ends {
        consumer.seek(&partition, end?.offset);
    }
    Ok(())
}

/// A record in flight.
struct Sent {
    key: Bytes,
    value: Bytes,
    headers: Vec<RecordHeader>,
}

impl Sent {
    fn draw(plan: &Plan, random: &mut Random) -> Sent {
        // As in Kafka's tool: a single repeated letter.
        let mut letters = |count: usize| Bytes::from(vec![b'A' + random.below(26) as u8; count]);
        let (key, value) = (letters(plan.key_bytes), letters(plan.value_bytes));
        let headers = (0..plan.headers)
            .map(|_| {
                let key = letters(plan.header_key_bytes);
                RecordHeader::new(key, plan.header_value_bytes.map(&mut letters))
            })
            .collect();
        Sent {
            key,
            value,
            headers,
        }
    }

    fn as_ref<'a>(&'a self, topic: &'a str) -> RecordRef<'a> {
        RecordRef {
            key: Some(&self.key),
            headers: &self.headers,
            ..RecordRef::new(topic, &self.value)
        }
    }

    /// Checks that exactly this record was received, with the messages of Kafka's tool.
    fn check(&self, records: &[ConsumerRecord]) -> anyhow::Result<()> {
        let Some(record) = records.first() else {
            bail!(
                "poll() timed out before finding a result (timeout:[{}ms])",
                POLL_TIMEOUT.as_millis()
            );
        };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let read = record.value.as_deref().unwrap_or_default();
        if read != self.value {
            bail!(
                "The message value read [{}] did not match the message value sent [{}]",
                text(read),
                text(&self.value)
            );
        }
        match record.key.as_deref() {
            None => bail!("Expected message key but received null"),
            Some(read) if read != self.key => bail!(
                "The message key read [{}] did not match the message key sent [{}]",
                text(read),
                text(&self.key)
            ),
            Some(_) => {}
        }
        if !self.headers.is_empty() && record.headers.is_empty() {
            bail!("Expected message headers but received none");
        }
        for (sent, read) in self.headers.iter().zip(&record.headers) {
            if sent != read {
                let shown = |header: &RecordHeader| {
                    format!("{}:{:?}", text(&header.key), header.value.as_deref())
                };
                bail!(
                    "The message header read [{}] did not match the message header sent [{}]",
                    shown(read),
                    shown(sent)
                );
            }
        }
        if self.headers.len() != record.headers.len() {
            bail!("Header count mismatch between sent and received messages");
        }
        if records.len() != 1 {
            bail!(
                "Only one result was expected during this test. We found [{}]",
                records.len()
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, Command, FromArgMatches};

    use super::*;

    fn planned(line: &str) -> anyhow::Result<Plan> {
        let command = E2eLatencyArgs::augment_args(Command::new("t"));
        let words = std::iter::once("t").chain(line.split_whitespace());
        plan(&E2eLatencyArgs::from_arg_matches(&command.get_matches_from(words)).unwrap())
    }

    #[test]
    fn all_forms_of_the_command_line_are_equivalent() {
        let with_flags = planned(
            "--bootstrap-server h:1 --topic t --num-records 5000 --producer-acks 1 --record-size 21 --num-headers",
        )
        .unwrap();
        assert_eq!((with_flags.records, with_flags.value_bytes), (5000, 21));
        assert_eq!(planned("h:1 t 5000 1 21").unwrap(), with_flags);
        assert_eq!(planned("h:1 zoo:2181 t 5000").unwrap(), with_flags);
        let with_file = planned("h:1 t 5000 all 21 client.properties").unwrap();
        assert_eq!(
            with_file.command_config.as_deref(),
            Some("client.properties")
        );
    }

    #[test]
    fn invalid_arguments_have_the_messages_of_kafka() {
        const REST: &str = "--bootstrap-server h:1 --topic t --record-size 5";
        for (line, text) in [
            (
                "a b c".to_owned(),
                "Invalid number of arguments. Expected 5 or 6 positional arguments, but got 3. Usage: \
                 bootstrap-server topic num-records producer-acks record-size [optional] command-config",
            ),
            (
                "--topic t".to_owned(),
                "Missing required argument \"[bootstrap-server]\"",
            ),
            (
                format!("{REST} --num-records 0 --producer-acks 1"),
                "Value for --num-records must be a positive integer.",
            ),
            (
                format!("{REST} --num-records x --producer-acks 1"),
                "Cannot parse argument 'x' of option num-records",
            ),
            (
                format!("{REST} --num-records 1 --producer-acks 0"),
                "Invalid value for --producer-acks. Latency testing requires synchronous acknowledgement. Please \
                 use '1' or 'all'.",
            ),
            (
                format!("{REST} --num-records 1 --producer-acks 1 --record-header-size -2"),
                "Value for --record-header-size must be a non-negative integer or -1 for null header value.",
            ),
            (
                format!("{REST} --num-records 1 --producer-acks 1 --record-key-size -1"),
                "Value for --record-key-size must be a non-negative integer.",
            ),
        ] {
            assert_eq!(planned(&line).unwrap_err().to_string(), text, "{line}");
        }
    }

    #[test]
    fn a_received_record_must_match_the_sent_one() {
        let sent = Sent {
            key: Bytes::from_static(b"k"),
            value: Bytes::from_static(b"v"),
            headers: vec![RecordHeader::new("h", None)],
        };
        let read = ConsumerRecord {
            topic: "t".into(),
            partition: 0,
            offset: 0,
            leader_epoch: 0,
            timestamp: 0,
            timestamp_type: ottla_records::TimestampType::CreateTime,
            key: Some(sent.key.clone()),
            value: Some(sent.value.clone()),
            headers: sent.headers.clone(),
        };
        let check = |change: &dyn Fn(&mut ConsumerRecord)| {
            let mut record = read.clone();
            change(&mut record);
            sent.check(&[record]).map_err(|error| error.to_string())
        };
        assert_eq!(check(&|_| {}), Ok(()));
        for (change, text) in [
            (
                &(|record: &mut ConsumerRecord| record.value = None)
                    as &dyn Fn(&mut ConsumerRecord),
                "The message value read [] did not match the message value sent [v]",
            ),
            (
                &|record| record.key = None,
                "Expected message key but received null",
            ),
            (
                &|record| record.headers.clear(),
                "Expected message headers but received none",
            ),
        ] {
            assert_eq!(check(change), Err(text.to_owned()));
        }
        assert_eq!(
            sent.check(&[read.clone(), read.clone()])
                .unwrap_err()
                .to_string(),
            "Only one result was expected during this test. We found [2]"
        );
        assert!(sent.check(&[]).is_err());
    }
}
