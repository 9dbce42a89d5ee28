//! Idempotent producers (KIP-98): duplicates, gaps, epochs.

use bytes::Bytes;
use ottla_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use ottla_protocol::messages::describe_producers_request::TopicRequest;
use ottla_protocol::messages::produce_response::PartitionProduceResponse;
use ottla_protocol::messages::{DeleteRecordsRequest, DescribeProducersRequest};
use ottla_records::{Compression, RecordBatchBuilder};
use ottla_types::{ErrorCode, ProducerEpoch, ProducerId, Sequence, Timestamp};

use super::memory::fill_heap;
use super::produce_and_fetch::{batch, produce_to};
use super::{Client, TestBroker};

/// Three records of producer 7.
fn batch_of_producer(producer_epoch: i16, base_sequence: i32) -> Bytes {
    let mut builder = RecordBatchBuilder::new(Compression::None).producer(
        ProducerId(7),
        ProducerEpoch(producer_epoch),
        Sequence(base_sequence),
    );
    for value in ["a", "b", "c"] {
        builder.append(
            Timestamp(1_700_000_000_000),
            None,
            Some(value.as_bytes()),
            &[],
        );
    }
    builder.build().to_bytes()
}

async fn produce(
    client: &mut Client,
    producer_epoch: i16,
    base_sequence: i32,
) -> PartitionProduceResponse {
    let records = batch_of_producer(producer_epoch, base_sequence);
    let response = client.ask(9, &produce_to("orders", 0, -1, records)).await;
    response.responses[0].partition_responses[0].clone()
}

/// Clients choose producer IDs as they like.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_heap_refuses_producers_that_a_partition_does_not_know() {
    let (broker, mut client) = TestBroker::with_topic("orders", 2).await;
    let answer = produce(&mut client, 0, 0).await;
    assert_eq!(ErrorCode::from_code(answer.error_code), ErrorCode::None);
    fill_heap(&broker).await;
    let answer = produce(&mut client, 0, 3).await;
    assert_eq!(ErrorCode::from_code(answer.error_code), ErrorCode::None);
    let mut of_partition = async |partition: i32, records: Bytes| {
        let request = produce_to("orders", partition, -1, records);
        let response = client.ask(9, &request).await;
        ErrorCode::from_code(response.responses[0].partition_responses[0].error_code)
    };
    let refused = of_partition(1, batch_of_producer(0, 0)).await;
    assert_eq!(refused, ErrorCode::KafkaStorageError);
    let without_id = of_partition(1, batch(&["a"])).await;
    assert_eq!(without_id, ErrorCode::None);
    assert_eq!(broker.partition("orders", 1).reader().log_end_offset().0, 1);
}

#[tokio::test]
async fn duplicates_gaps_and_old_epochs_are_answered_as_in_kafka() {
    let (broker, mut client) = TestBroker::with_topic("orders", 1).await;
    // Epoch and base sequence; the expected error and base offset.
    let story = [
        (0, 0, ErrorCode::None, 0),
        (0, 3, ErrorCode::None, 3),
        (0, 0, ErrorCode::None, 0),
        (0, 3, ErrorCode::None, 3),
        (0, 9, ErrorCode::OutOfOrderSequenceNumber, -1),
        (0, 6, ErrorCode::None, 6),
        (1, 5, ErrorCode::OutOfOrderSequenceNumber, -1),
        (1, 0, ErrorCode::None, 9),
        (0, 9, ErrorCode::InvalidProducerEpoch, -1),
        (1, 3, ErrorCode::None, 12),
    ];
    for (producer_epoch, base_sequence, expected, base_offset) in story {
        let answer = produce(&mut client, producer_epoch, base_sequence).await;
        let what = format!("epoch {producer_epoch}, sequence {base_sequence}");
        assert_eq!(ErrorCode::from_code(answer.error_code), expected, "{what}");
        assert_eq!(answer.base_offset, base_offset, "{what}");
        assert_eq!(answer.log_start_offset, 0, "{what}");
    }
    assert_eq!(
        broker.partition("orders", 0).reader().log_end_offset().0,
        15
    );

    let request = DescribeProducersRequest {
        topics: vec![TopicRequest {
            name: "orders".into(),
            partition_indexes: vec![0],
            ..Default::default()
        }],
        ..Default::default()
    };
    let described = client.ask(0, &request).await;
    let producers = &described.topics[0].partitions[0].active_producers;
    assert_eq!(producers.len(), 1);
    assert_eq!(
        (producers[0].producer_id, producers[0].producer_epoch),
        (7, 1)
    );
    assert_eq!(producers[0].last_sequence, 5);
}

#[tokio::test]
async fn producers_of_unknown_partitions_are_not_described() {
    let (_broker, mut client) = TestBroker::with_topic("orders", 1).await;
    let invalid = ErrorCode::InvalidTopicException;
    let unknown = ErrorCode::UnknownTopicOrPartition;
    for (name, index, expected, message) in [
        ("orders", 7, unknown, None),
        ("nowhere", 0, unknown, Some(unknown.message())),
        (
            "",
            0,
            invalid,
            Some("Topic name is invalid: the empty string is not allowed"),
        ),
    ] {
        let request = DescribeProducersRequest {
            topics: vec![TopicRequest {
                name: name.into(),
                partition_indexes: vec![index],
                ..Default::default()
            }],
            ..Default::default()
        };
        let described = client.ask(0, &request).await;
        let partition = &described.topics[0].partitions[0];
        assert_eq!(ErrorCode::from_code(partition.error_code), expected);
        assert_eq!(partition.error_message.as_deref(), message, "{name}");
    }
}

#[tokio::test]
async fn a_producer_may_have_five_requests_in_flight() {
    let (_broker, mut client) = TestBroker::with_topic("orders", 1).await;
    let mut sent = Vec::new();
    for index in 0..50 {
        let request = produce_to("orders", 0, -1, batch_of_producer(0, 3 * index));
        sent.push(client.send(9, &request).await);
    }
    for (index, correlation_id) in sent.into_iter().enumerate() {
        let response = client
            .receive::<ottla_protocol::messages::ProduceRequest>(9, correlation_id)
            .await;
        let partition = &response.responses[0].partition_responses[0];
        assert_eq!(
            (partition.error_code, partition.base_offset),
            (0, 3 * index as i64)
        );
    }
}

#[tokio::test]
async fn records_are_deleted_up_to_the_high_watermark_at_most() {
    let broker = TestBroker::start().await;
    broker.create_topic("orders", 1, &[]).await;
    broker
        .create_topic("compacted", 1, &[("cleanup.policy", "compact")])
        .await;
    let mut client = broker.connect().await;
    for _ in 0..3 {
        client
            .ask(9, &produce_to("orders", 0, -1, batch(&["a", "b"])))
            .await;
    }
    let delete = |topic: &'static str, offset| DeleteRecordsRequest {
        topics: vec![DeleteRecordsTopic {
            name: topic.into(),
            partitions: vec![DeleteRecordsPartition {
                partition_index: 0,
                offset,
                ..Default::default()
            }],
            ..Default::default()
        }],
        timeout_ms: 1000,
        ..Default::default()
    };
    for (topic, offset, expected, low_watermark) in [
        ("orders", 3, ErrorCode::None, 3),
        ("orders", 2, ErrorCode::None, 3),
        ("orders", 7, ErrorCode::OffsetOutOfRange, -1),
        ("orders", -2, ErrorCode::OffsetOutOfRange, -1),
        ("orders", -1, ErrorCode::None, 6),
        ("compacted", 0, ErrorCode::PolicyViolation, -1),
        ("nowhere", 0, ErrorCode::UnknownTopicOrPartition, -1),
    ] {
        let response = client.ask(2, &delete(topic, offset)).await;
        let partition = &response.topics[0].partitions[0];
        let code = ErrorCode::from_code(partition.error_code);
        assert_eq!(
            (code, partition.low_watermark),
            (expected, low_watermark),
            "{topic} {offset}"
        );
    }
}
