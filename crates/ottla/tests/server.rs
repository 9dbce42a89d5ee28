//! The server as an operator meets it: the real binary, killed, stopped, started on what it left, and
//! refusing to start.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ottla_client::{
    Client, ClientConfig, Consumer, ConsumerConfig, OffsetReset, Producer, ProducerConfig,
    ProducerRecord,
};
use ottla_testkit::{BrokerBuilder, BrokerProcess};

const TOPIC: &str = "orders";
const RECORDS: usize = 3_000;

async fn client(broker: &BrokerProcess) -> Client {
    let config = ClientConfig::new(&broker.bootstrap()).expect("an address");
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

/// Produces until all are acknowledged, or for as long as the broker lives. Returns the values of those
/// that were, by offset.
async fn produce(client: Client, linger: Duration, records: usize) -> BTreeMap<i64, String> {
    let config = ProducerConfig {
        linger,
        batch_size: 1_000,
        delivery_timeout: Duration::from_secs(2),
        idempotence: true,
        ..Default::default()
    };
    let producer = Producer::new(client, config);
    let mut deliveries = Vec::new();
    for index in 0..records {
        match producer.send(record(index)).await {
            Ok(delivery) => deliveries.push((index, delivery)),
            Err(_) => break,
        }
    }
    let mut acknowledged = BTreeMap::new();
    for (index, delivery) in deliveries {
        if let Ok(metadata) = delivery.wait().await {
            acknowledged.insert(metadata.offset, format!("record {index}"));
        }
    }
    acknowledged
}

/// Everything in the partition, by offset.
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
async fn kill_9_keeps_what_was_acknowledged() {
    let mut broker = BrokerBuilder::new().start();
    let producing = tokio::spawn(produce(client(&broker).await, Duration::ZERO, RECORDS * 100));
    tokio::time::sleep(Duration::from_millis(700)).await;
    broker.kill();
    let acknowledged = producing.await.expect("the producer ends");
    assert!(!acknowledged.is_empty(), "the broker was killed before it had acknowledged anything");
    broker.start_again();
    let found = consume(&broker, acknowledged.len()).await;
    for (offset, value) in &acknowledged {
        assert_eq!(found.get(offset), Some(value), "offset {offset} was acknowledged");
    }
    let gaps = found.keys().zip(0..).find(|&(&offset, expected)| offset != expected);
    assert_eq!(gaps, None, "offsets follow each other");
    assert!(broker.stop().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clean_stop_leaves_its_marker_and_everything_else() {
    let mut broker = BrokerBuilder::new().property("flush.messages", "1").start();
    let acknowledged = produce(client(&broker).await, Duration::from_millis(1), RECORDS).await;
    assert_eq!(acknowledged.len(), RECORDS);
    assert!(broker.stop().success());
    let marker = broker.data_dir().join(".kafka_cleanshutdown");
    assert!(marker.exists(), "the marker of a clean stop");
    broker.start_again();
    assert!(!marker.exists(), "the marker is taken at the start");
    assert_eq!(consume(&broker, RECORDS).await, acknowledged);
}

#[test]
fn an_address_in_use_is_named_with_a_way_out() {
    let running = BrokerBuilder::new().start();
    let port = running.port();
    let refused = BrokerBuilder::new().port(port).start_refused();
    assert!(!refused.status.success());
    let address = format!("127.0.0.1:{port} is in use by another process");
    assert!(refused.output.contains(&address), "{}", refused.output);
    assert!(refused.output.contains("--override listeners="), "{}", refused.output);
}

#[test]
fn a_bad_setting_is_named_with_file_and_line() {
    let refused = BrokerBuilder::new()
        .unformatted()
        .property("log.retention.hours", "abc")
        .start_refused();
    assert!(!refused.status.success());
    for part in ["server.properties", "log.retention.hours", "abc"] {
        assert!(refused.output.contains(part), "{part}: {}", refused.output);
    }
    assert_eq!(refused.output.trim().lines().count(), 1, "{}", refused.output);
}
