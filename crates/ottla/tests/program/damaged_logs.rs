//! Records that were damaged on the disk, with the real binary.

use std::os::unix::fs::FileExt;

use bytes::Bytes;
use ottla_client::{Client, ClientConfig, ErrorCode, Producer, ProducerConfig, ProducerRecord};
use ottla_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use ottla_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use ottla_protocol::messages::{FetchRequest, ListOffsetsRequest};
use ottla_testkit::{BrokerBuilder, BrokerProcess};
use ottla_types::Uuid;

const TOPIC: &str = "orders";

async fn client(broker: &BrokerProcess) -> Client {
    let config = ClientConfig::new(&broker.bootstrap()).expect("an address");
    Client::connect(config).await.expect("the broker answers")
}

/// Three records; each fills most of a segment.
async fn write(broker: &BrokerProcess) {
    let producer = Producer::new(client(broker).await, ProducerConfig::default());
    let producer = producer.expect("settings that go together");
    for _ in 0..3 {
        let record = ProducerRecord {
            topic: TOPIC.to_owned(),
            partition: Some(0),
            key: None,
            value: Some(Bytes::from(vec![b'x'; 600_000])),
            headers: Vec::new(),
            timestamp: None,
        };
        let delivery = producer.send(record).await.expect("it is sent");
        delivery.wait().await.expect("it is acknowledged");
    }
    producer.close().await;
}

/// The error of a fetch of the first record.
async fn fetch(client: &Client, topic_id: Uuid) -> ErrorCode {
    let response = client.send(|_| FetchRequest {
        max_bytes: i32::MAX,
        topics: vec![FetchTopic {
            topic: TOPIC.into(),
            topic_id,
            partitions: vec![FetchPartition {
                partition_max_bytes: 1 << 20,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    });
    let response = response.await.expect("an answer");
    ErrorCode::from_code(response.responses[0].partitions[0].error_code)
}

/// The error of a search for the first record.
async fn search(client: &Client) -> ErrorCode {
    let response = client.send(|_| ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic {
            name: TOPIC.into(),
            partitions: vec![ListOffsetsPartition {
                timestamp: 1,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    });
    let response = response.await.expect("an answer");
    ErrorCode::from_code(response.topics[0].partitions[0].error_code)
}

/// A consumer tries again and again, and each of its requests meets the same record.
#[tokio::test]
async fn requests_for_damaged_records_log_one_line_a_minute() {
    const REQUESTS: usize = 20;
    let broker = BrokerBuilder::new()
        .property("log.segment.bytes", "1048576")
        .start();
    broker.create_topic(TOPIC, 1);
    write(&broker).await;
    let log = broker.data_dir().join(format!("{TOPIC}-0/{:020}.log", 0));
    let log = std::fs::OpenOptions::new().write(true).open(log);
    let log = log.expect("the first segment");
    log.write_all_at(&[0; 61], 0).expect("a damaged header");

    let client = client(&broker).await;
    let topics = [TOPIC.to_owned()];
    let metadata = client.refresh_metadata(Some(&topics), false);
    let topic_id = metadata.await.expect("an answer").topics[TOPIC].topic_id;
    for _ in 0..REQUESTS {
        assert_eq!(fetch(&client, topic_id).await, ErrorCode::CorruptMessage);
        assert_eq!(search(&client).await, ErrorCode::CorruptMessage);
    }
    let output = broker.output();
    let lines = ["read failed", "search by time failed"].map(|it| output.matches(it).count());
    // A minute may end meanwhile.
    let lines: usize = lines.iter().sum();
    assert!((1..=2).contains(&lines), "{output}");
}
