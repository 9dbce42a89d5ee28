//! The server as an operator uses it: the real binary, killed, stopped, restarted, and refusing to
//! start.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use ottla_client::{
    Client, ClientConfig, Consumer, ConsumerConfig, OffsetReset, Producer, ProducerConfig,
    ProducerRecord,
};
use ottla_testkit::{BrokerBuilder, BrokerProcess, ottla_binary};

const TOPIC: &str = "orders";
const RECORDS: usize = 3_000;

async fn client(broker: &BrokerProcess) -> Client {
    let mut config = ClientConfig::new(&broker.bootstrap()).expect("an address");
    // How long a producer tries to reach a killed broker.
    config.default_api_timeout = Duration::from_secs(10);
    config.request_timeout = Duration::from_secs(1);
    Client::connect(config).await.expect("the broker answers")
}

fn record(index: usize) -> ProducerRecord {
    ProducerRecord {
        topic: TOPIC.to_owned(),
        partition: Some(0),
        key: None,
        value: Some(Bytes::from(format!("record {index}"))),
        headers: Vec::new(),
        timestamp: None,
    }
}

/// Number of records in flight.
const IN_FLIGHT: usize = 100;

/// Produces until all records are acknowledged or one fails. Returns the acknowledged values by
/// offset, and counts them in `count` as they are acknowledged.
async fn produce(client: Client, records: usize, count: Arc<AtomicUsize>) -> BTreeMap<i64, String> {
    let config = ProducerConfig {
        linger: Duration::from_millis(1),
        batch_size: 1_000,
        // A busy machine acknowledges everything in less; so long the producer waits for a killed broker.
        delivery_timeout: Duration::from_secs(10),
        enable_idempotence: Some(true),
        ..Default::default()
    };
    let producer = Producer::new(client, config).expect("settings that go together");
    let mut acknowledged = BTreeMap::new();
    for first in (0..records).step_by(IN_FLIGHT) {
        let mut deliveries = Vec::new();
        for index in first..records.min(first + IN_FLIGHT) {
            match producer.send(record(index)).await {
                Ok(delivery) => deliveries.push((index, delivery)),
                Err(_) => break,
            }
        }
        let sent = deliveries.len();
        for (index, delivery) in deliveries {
            if let Ok(metadata) = delivery.wait().await {
                acknowledged.insert(metadata.offset, format!("record {index}"));
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
        if acknowledged.len() < first + sent || sent == 0 {
            break;
        }
    }
    acknowledged
}

/// All records of the partition by offset.
async fn consume(broker: &BrokerProcess, at_least: usize) -> BTreeMap<i64, String> {
    let config = ConsumerConfig {
        offset_reset: OffsetReset::Earliest,
        ..Default::default()
    };
    let mut consumer = Consumer::new(client(broker).await, config);
    consumer.assign(&[(TOPIC.to_owned(), 0)]);
    let mut found = BTreeMap::new();
    let deadline = Instant::now() + Duration::from_secs(30);
    while found.len() < at_least && Instant::now() < deadline {
        let records = consumer.poll(Duration::from_millis(500)).await;
        for record in records.expect("the broker serves") {
            let value = record.value.expect("a value").to_vec();
            found.insert(record.offset, String::from_utf8(value).expect("text"));
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_keeps_acknowledged_records() {
    let mut broker = BrokerBuilder::new().start();
    let count = Arc::<AtomicUsize>::default();
    let producing = produce(client(&broker).await, usize::MAX, Arc::clone(&count));
    let producing = tokio::spawn(producing);
    while count.load(Ordering::Relaxed) < RECORDS && !producing.is_finished() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    broker.kill();
    let acknowledged = producing.await.expect("the producer ends");
    assert!(
        acknowledged.len() >= RECORDS,
        "{} were acknowledged",
        acknowledged.len()
    );
    broker.start_again();
    let found = consume(&broker, acknowledged.len()).await;
    for (offset, value) in &acknowledged {
        assert_eq!(
            found.get(offset),
            Some(value),
            "offset {offset} was acknowledged"
        );
    }
    let gaps = found
        .keys()
        .zip(0..)
        .find(|&(&offset, expected)| offset != expected);
    assert_eq!(gaps, None, "offsets follow each other");
    assert!(broker.stop().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clean_stop_leaves_its_marker_and_all_records() {
    let mut broker = BrokerBuilder::new().property("flush.messages", "1").start();
    let acknowledged = produce(client(&broker).await, RECORDS, Arc::default()).await;
    assert_eq!(acknowledged.len(), RECORDS);
    assert!(broker.stop().success());
    let marker = broker.data_dir().join(".kafka_cleanshutdown");
    assert!(marker.exists(), "the marker of a clean stop");
    broker.start_again();
    assert!(!marker.exists(), "the marker is taken at the start");
    assert_eq!(consume(&broker, RECORDS).await, acknowledged);
}

#[test]
fn a_closed_terminal_stops_it_cleanly() {
    let mut broker = BrokerBuilder::new().start();
    broker.signal(rustix::process::Signal::HUP);
    if is_hangup_ignored() {
        // A process started under `nohup` inherits the ignored SIGHUP and outlives its terminal.
        std::thread::sleep(Duration::from_millis(500));
        broker.signal(rustix::process::Signal::TERM);
    }
    let status = broker.wait();
    assert!(status.success(), "{status}: {}", broker.output());
    let marker = broker.data_dir().join(".kafka_cleanshutdown");
    assert!(marker.exists(), "the marker of a clean stop");
}

/// Whether SIGHUP is ignored in this process, as under `nohup`.
fn is_hangup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("the state of this process");
    let ignored = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.expect("a mask of signals") & 1 == 1
}

#[test]
fn a_closed_output_does_not_stop_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut broker = Command::new(ottla_binary())
        .current_dir(dir.path())
        .args(["server", "--override=listeners=PLAINTEXT://127.0.0.1:0"])
        .env("OTTLA_LOG", "info")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(broker.stdout.take().unwrap())
        .read_line(&mut first)
        .unwrap();
    assert!(first.starts_with("Ottla "), "{first}");
    // Both readers are gone, as after `ottla server 2>&1 | head -1`.
    drop(broker.stderr.take());
    let id = rustix::process::Pid::from_child(&broker);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    let status = broker.wait().unwrap();
    assert!(status.success(), "{status}");
    let marker = dir.path().join("ottla-data/.kafka_cleanshutdown");
    assert!(marker.exists(), "the marker of a clean stop");
}

#[test]
fn a_stop_during_the_start_is_clean() {
    let mut broker = BrokerBuilder::new().start();
    broker.create_topic("many", 100);
    broker.kill();
    let marker = broker.data_dir().join(".kafka_cleanshutdown");
    assert!(!marker.exists());
    broker.launch();
    // The port is bound after the signal handlers are installed, and before the logs are recovered.
    let taken = || std::net::TcpStream::connect(("127.0.0.1", broker.port())).is_ok();
    while !taken() {}
    broker.signal(rustix::process::Signal::TERM);
    let status = broker.wait();
    assert!(status.success(), "{status}: {}", broker.output());
    assert!(marker.exists(), "{}", broker.output());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_whose_last_log_directory_fails_exits_with_an_error() {
    let mut broker = BrokerBuilder::new().start();
    let client = client(&broker).await;
    let data = broker.data_dir();
    std::fs::rename(&data, data.with_extension("gone")).expect("the directory can be taken away");
    std::fs::write(&data, "no directory").expect("a file in its place");
    // A new topic needs a new directory on the missing disk; whether the request is answered does
    // not matter.
    let config = ProducerConfig {
        delivery_timeout: Duration::from_secs(2),
        ..Default::default()
    };
    let producer = Producer::new(client, config).expect("settings that go together");
    let _ = producer.send(record(0)).await;
    let status = broker.wait();
    assert_eq!(status.code(), Some(1), "{}", broker.output());
    let said = "all log directories have failed, the last one with: ";
    assert!(broker.output().contains(said), "{}", broker.output());
}

#[test]
fn a_log_that_goes_to_no_terminal_has_no_colours() {
    let mut broker = BrokerBuilder::new()
        .environment("OTTLA_LOG", "info")
        .environment("OTTLA_LOG_FORMAT", "text")
        // As if it were not set.
        .environment("NO_COLOR", "")
        .start();
    assert!(broker.stop().success(), "{}", broker.output());
    let output = broker.output();
    assert!(output.contains("is registered with epoch"), "{output}");
    assert!(!output.contains('\x1b'), "{output}");
}

#[test]
fn the_error_names_an_address_in_use_and_the_way_out() {
    let running = BrokerBuilder::new().start();
    let port = running.port();
    let refused = BrokerBuilder::new().port(port).start_refused();
    assert!(!refused.status.success());
    let address = format!("127.0.0.1:{port} is in use by another process");
    assert!(refused.output.contains(&address), "{}", refused.output);
    assert!(
        refused.output.contains("--override listeners="),
        "{}",
        refused.output
    );
}

#[test]
fn the_refusal_names_the_override_for_another_port() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let dir = tempfile::tempdir().unwrap();
    // The start gets as far as binding the address, so the override alone is a complete
    // configuration.
    let output = Command::new(ottla_binary())
        .current_dir(dir.path())
        .arg("server")
        .arg(format!("--override=listeners=PLAINTEXT://127.0.0.1:{port}"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("is in use by another process"), "{said}");
    // It replaces all listeners, so it has the controller's too.
    let other = port.wrapping_add(10);
    let complete =
        format!("--override listeners=PLAINTEXT://127.0.0.1:{other},CONTROLLER://127.0.0.1:0");
    assert!(said.contains(&complete), "{said}");
    assert!(!output.status.success());
}

#[test]
fn the_error_for_a_bad_setting_has_file_and_line() {
    let refused = BrokerBuilder::new()
        .unformatted()
        .property("log.retention.hours", "abc")
        .start_refused();
    assert!(!refused.status.success());
    let lines: Vec<&str> = refused.output.trim().lines().collect();
    for part in ["server.properties", "log.retention.hours", "abc"] {
        assert!(lines[0].contains(part), "{part}: {lines:?}");
    }
    // Further refusals are reported too.
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[1].contains("is not formatted"), "{lines:?}");
}
