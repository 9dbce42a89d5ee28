//! The errors that clients receive when the disk of a partition fails.

use ottla_protocol::messages::ProduceRequest;
use ottla_protocol::metadata_records::{ConfigRecord, MetadataRecord};
use ottla_replica::Event;
use ottla_types::ErrorCode;

use super::produce_and_fetch::{batch, fetch_from, produce_to};
use super::{TestBroker, creation};

fn orders(acks: i16) -> ProduceRequest {
    produce_to("orders", 0, acks, batch(&["one"]))
}

#[tokio::test]
async fn changed_settings_do_not_bring_a_lost_partition_back() {
    let (broker, mut client) = TestBroker::with_topic("orders", 1).await;
    let partition = broker.partition("orders", 0);
    partition.notify(&broker.broker().host, Event::LogLost);
    broker
        .write(vec![MetadataRecord::Config(ConfigRecord {
            resource_type: 2,
            resource_name: "orders".into(),
            name: "retention.ms".into(),
            value: Some("1000000".into()),
            ..Default::default()
        })])
        .await;
    assert!(!partition.is_leader());
    let answer = client.ask(9, &orders(1)).await;
    let answer = &answer.responses[0].partition_responses[0];
    assert_eq!(answer.error_code, ErrorCode::KafkaStorageError.code());
    let answer = client.ask(12, &fetch_from("orders", 0, 0)).await;
    let answer = &answer.responses[0].partitions[0];
    assert_eq!(answer.error_code, ErrorCode::KafkaStorageError.code());
}

#[tokio::test]
async fn a_partition_that_failed_to_open_is_opened_later() {
    let dirs = [tempfile::tempdir(), tempfile::tempdir()].map(|dir| dir.expect("a directory"));
    let paths = dirs.each_ref().map(|dir| dir.path().display().to_string());
    let broker = TestBroker::start_with(&[("log.dirs", &paths.join(","))]).await;
    // A file is in the place of the partition's directory.
    for path in &paths {
        std::fs::write(format!("{path}/orders-0"), "in the way").expect("a file");
    }
    let mut client = broker.connect().await;
    // Through the controller, because an image that it publishes during the test must still have
    // the topic.
    let creation = creation("orders", 1, 1);
    let created = client.ask(7, &creation).await;
    assert_eq!(created.topics[0].error_code, 0);
    let answer = client.ask(9, &orders(1)).await;
    let answer = &answer.responses[0].partition_responses[0];
    assert_eq!(answer.error_code, ErrorCode::KafkaStorageError.code());
    let answer = client.ask(12, &fetch_from("orders", 0, 0)).await;
    let answer = &answer.responses[0].partitions[0];
    assert_eq!(answer.error_code, ErrorCode::KafkaStorageError.code());
    for path in &paths {
        std::fs::remove_file(format!("{path}/orders-0")).expect("the file is there");
    }
    let opening = std::sync::Arc::clone(broker.broker());
    tokio::task::spawn_blocking(move || opening.open_missing_partitions())
        .await
        .expect("opens");
    let answer = client.ask(9, &orders(1)).await;
    let answer = &answer.responses[0].partition_responses[0];
    assert_eq!(answer.error_code, 0);
}
