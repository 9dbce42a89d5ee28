//! Producing and fetching records.

use std::time::{Duration, Instant};

use bytes::Bytes;
use ottla_protocol::Records;
use ottla_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use ottla_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use ottla_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use ottla_protocol::messages::produce_response::PartitionProduceResponse;
use ottla_protocol::messages::{
    ApiVersionsRequest, FetchRequest, FetchResponse, ListOffsetsRequest, ProduceRequest,
};
use ottla_records::{Compression, RecordBatch, RecordBatchBuilder};
use ottla_types::{ErrorCode, Timestamp};
use tokio::io::AsyncWriteExt;

use super::client::frame;
use super::{TestBroker, topic_id};

/// A batch of records with these values.
pub(crate) fn batch(values: &[&str]) -> Bytes {
    let mut builder = RecordBatchBuilder::new(Compression::None);
    for value in values {
        let now = Timestamp(1_700_000_000_000);
        builder.append(now, None, Some(value.as_bytes()), &[]);
    }
    builder.build().to_bytes()
}

pub(crate) fn produce_to(
    topic: &'static str,
    partition: i32,
    acks: i16,
    records: Bytes,
) -> ProduceRequest {
    ProduceRequest {
        acks,
        // Replicas of a busy machine take seconds.
        timeout_ms: 15_000,
        topic_data: vec![TopicProduceData {
            name: topic.into(),
            topic_id: topic_id(topic),
            partition_data: vec![PartitionProduceData {
                index: partition,
                records: Some(Records::Bytes(records)),
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

pub(super) fn fetch_from(topic: &'static str, partition: i32, fetch_offset: i64) -> FetchRequest {
    FetchRequest {
        max_wait_ms: 10_000,
        min_bytes: 1,
        max_bytes: 1024 * 1024,
        session_epoch: -1,
        topics: vec![FetchTopic {
            topic: topic.into(),
            topic_id: topic_id(topic),
            partitions: vec![FetchPartition {
                partition,
                fetch_offset,
                partition_max_bytes: 1024 * 1024,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// The values of all records of the first partition.
fn values(response: &FetchResponse) -> Vec<String> {
    let partition = &response.responses[0].partitions[0];
    assert_eq!(partition.error_code, 0);
    let Some(Records::Bytes(bytes)) = &partition.records else {
        return Vec::new();
    };
    let mut values = Vec::new();
    for batch in RecordBatch::read_all(bytes.clone()) {
        let batch = batch.expect("a batch");
        batch.verify_crc().expect("the checksum");
        for record in batch.records(1024 * 1024).expect("records") {
            let record = record.expect("a record");
            let value = record.value.expect("a value");
            values.push(String::from_utf8(value.to_vec()).expect("text"));
        }
    }
    values
}

async fn produce(
    client: &mut super::Client,
    topic: &'static str,
    acks: i16,
    records: Bytes,
) -> PartitionProduceResponse {
    let response = client.ask(9, &produce_to(topic, 0, acks, records)).await;
    response.responses[0].partition_responses[0].clone()
}

#[tokio::test]
async fn produced_records_are_fetched_in_every_version() {
    let (_broker, mut client) = TestBroker::with_topic("orders", 2).await;
    let mut expected = Vec::new();
    for version in 3..=13 {
        let value = format!("produced in version {version}");
        let request = produce_to("orders", 1, -1, batch(&[&value]));
        let response = client.ask(version, &request).await;
        let partition = &response.responses[0].partition_responses[0];
        assert_eq!(partition.error_code, 0, "version {version}");
        assert_eq!(partition.base_offset, i64::from(version) - 3);
        assert_eq!(partition.index, 1);
        expected.push(value);
    }
    for version in 4..=18 {
        let response = client.ask(version, &fetch_from("orders", 1, 0)).await;
        assert_eq!(values(&response), expected, "version {version}");
        let partition = &response.responses[0].partitions[0];
        assert_eq!(partition.high_watermark, 11);
        assert_eq!(partition.last_stable_offset, 11);
    }
}

#[tokio::test]
async fn pipelined_produces_are_answered_in_order() {
    let (_broker, mut client) = TestBroker::with_topic("orders", 1).await;
    let mut sent = Vec::new();
    for index in 0..200 {
        let acks = [1, -1][index % 2];
        let request = produce_to("orders", 0, acks, batch(&["x"]));
        sent.push(client.send(9, &request).await);
    }
    // A request of another API after them is answered last.
    let versions = client.send(3, &api_versions()).await;
    for (index, correlation_id) in sent.into_iter().enumerate() {
        let response = client.receive::<ProduceRequest>(9, correlation_id).await;
        let partition = &response.responses[0].partition_responses[0];
        assert_eq!(partition.base_offset, index as i64);
    }
    client.receive::<ApiVersionsRequest>(3, versions).await;
}

pub(super) fn api_versions() -> ApiVersionsRequest {
    ApiVersionsRequest {
        client_software_name: "test".into(),
        client_software_version: "1".into(),
        ..Default::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_connections_get_offsets_without_gaps() {
    const CONNECTIONS: usize = 8;
    const REQUESTS: usize = 100;
    let broker = TestBroker::start().await;
    broker.create_topic("orders", 1, &[]).await;
    let mut tasks = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut client = broker.connect().await;
        tasks.push(tokio::spawn(async move {
            let mut offsets = Vec::new();
            let mut in_flight = std::collections::VecDeque::new();
            for _ in 0..REQUESTS {
                let request = produce_to("orders", 0, -1, batch(&["a", "b", "c"]));
                in_flight.push_back(client.send(9, &request).await);
                if in_flight.len() == 5 {
                    let first = in_flight.pop_front().unwrap();
                    offsets.push(client.receive::<ProduceRequest>(9, first).await);
                }
            }
            for correlation_id in in_flight {
                offsets.push(client.receive::<ProduceRequest>(9, correlation_id).await);
            }
            offsets
        }));
    }
    let mut offsets = Vec::new();
    for task in tasks {
        let answers = task.await.unwrap();
        let bases = answers.iter().map(|answer| {
            let partition = &answer.responses[0].partition_responses[0];
            assert_eq!(partition.error_code, 0);
            partition.base_offset
        });
        let bases: Vec<i64> = bases.collect();
        assert!(bases.is_sorted(), "a connection's appends keep their order");
        offsets.extend(bases);
    }
    offsets.sort();
    let expected: Vec<i64> = (0..CONNECTIONS * REQUESTS).map(|n| 3 * n as i64).collect();
    assert_eq!(offsets, expected);
}

#[tokio::test]
async fn a_fetch_waits_for_records() {
    let broker = TestBroker::start().await;
    broker.create_topic("orders", 1, &[]).await;
    let mut consumer = broker.connect().await;
    let mut long = fetch_from("orders", 0, 0);
    long.max_wait_ms = 120_000;
    let started = Instant::now();
    let waiting = consumer.send(12, &long).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let mut producer = broker.connect().await;
    assert_eq!(
        produce(&mut producer, "orders", 1, batch(&["now"]))
            .await
            .error_code,
        0
    );
    let response = consumer.receive::<FetchRequest>(12, waiting).await;
    assert_eq!(values(&response), ["now"]);
    assert!(started.elapsed() < Duration::from_secs(60), "it was woken");
    // At the end of the log it waits as long as requested, and no longer.
    let mut request = fetch_from("orders", 0, 1);
    request.max_wait_ms = 100;
    let started = Instant::now();
    assert_eq!(values(&consumer.ask(12, &request).await), [""; 0]);
    assert!(started.elapsed() >= Duration::from_millis(100));
}

#[tokio::test]
async fn a_fetch_waits_for_min_bytes() {
    let broker = TestBroker::start().await;
    broker.create_topic("orders", 1, &[]).await;
    let mut consumer = broker.connect().await;
    let mut request = fetch_from("orders", 0, 0);
    request.min_bytes = 2 * batch(&["x"]).len() as i32;
    request.max_wait_ms = 120_000;
    let waiting = consumer.send(12, &request).await;
    let mut producer = broker.connect().await;
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_millis(30)).await;
        produce(&mut producer, "orders", 1, batch(&["x"])).await;
    }
    let response = consumer.receive::<FetchRequest>(12, waiting).await;
    assert_eq!(values(&response), ["x", "x"]);
}

#[tokio::test]
async fn size_limits_do_not_apply_to_the_first_batch() {
    let (_broker, mut client) = TestBroker::with_topic("orders", 1).await;
    let large = "x".repeat(1000);
    for _ in 0..3 {
        produce(&mut client, "orders", 1, batch(&[&large])).await;
    }
    let mut request = fetch_from("orders", 0, 0);
    for (partition_max_bytes, max_bytes, expected) in [
        (10, 1 << 20, 1),
        (1 << 20, 10, 1),
        (2300, 1 << 20, 2),
        (1 << 20, 1 << 20, 3),
    ] {
        request.topics[0].partitions[0].partition_max_bytes = partition_max_bytes;
        request.max_bytes = max_bytes;
        let count = values(&client.ask(12, &request).await).len();
        assert_eq!(count, expected, "{partition_max_bytes} {max_bytes}");
    }
}

#[tokio::test]
async fn unreadable_partitions_have_an_error_code() {
    let (_broker, mut client) = TestBroker::with_topic("orders", 1).await;
    let code = |response: &FetchResponse| {
        ErrorCode::from_code(response.responses[0].partitions[0].error_code)
    };
    let unknown = client.ask(12, &fetch_from("nowhere", 0, 0)).await;
    assert_eq!(code(&unknown), ErrorCode::UnknownTopicOrPartition);
    let unknown = client.ask(13, &fetch_from("nowhere", 0, 0)).await;
    assert_eq!(code(&unknown), ErrorCode::UnknownTopicId);
    let unknown = client.ask(13, &fetch_from("orders", 7, 0)).await;
    assert_eq!(code(&unknown), ErrorCode::UnknownTopicOrPartition);
    let beyond = client.ask(13, &fetch_from("orders", 0, 99)).await;
    assert_eq!(code(&beyond), ErrorCode::OffsetOutOfRange);
    for (epoch, expected) in [(1, ErrorCode::UnknownLeaderEpoch), (0, ErrorCode::None)] {
        let mut request = fetch_from("orders", 0, 0);
        request.max_wait_ms = 0;
        request.topics[0].partitions[0].current_leader_epoch = epoch;
        assert_eq!(
            code(&client.ask(13, &request).await),
            expected,
            "epoch {epoch}"
        );
    }
}

#[tokio::test]
async fn produce_errors_are_per_partition_and_write_nothing() {
    let broker = TestBroker::start().await;
    broker
        .create_topic("orders", 1, &[("max.message.bytes", "2000")])
        .await;
    let mut client = broker.connect().await;
    let mut corrupt = batch(&["x"]).to_vec();
    *corrupt.last_mut().unwrap() ^= 1;
    let too_large = batch(&[&"x".repeat(3000)]);
    let two_batches = [batch(&["x"]), batch(&["y"])].concat();
    for (what, topic, records, expected) in [
        (
            "wrong checksum",
            "orders",
            corrupt.into(),
            ErrorCode::CorruptMessage,
        ),
        ("too large", "orders", too_large, ErrorCode::MessageTooLarge),
        (
            "two batches",
            "orders",
            two_batches.into(),
            ErrorCode::InvalidRecord,
        ),
        ("none", "orders", Bytes::new(), ErrorCode::InvalidRecord),
        (
            "no topic",
            "nowhere",
            batch(&["x"]),
            ErrorCode::UnknownTopicOrPartition,
        ),
    ] {
        let answer = produce(&mut client, topic, -1, records).await;
        assert_eq!(ErrorCode::from_code(answer.error_code), expected, "{what}");
        assert_eq!(answer.base_offset, -1, "{what}");
    }
    let answer = produce(&mut client, "orders", 2, batch(&["x"])).await;
    assert_eq!(answer.error_code, ErrorCode::InvalidRequiredAcks.code());
    assert_eq!(broker.partition("orders", 0).reader().log_end_offset().0, 0);
    assert_eq!(
        produce(&mut client, "orders", -1, batch(&["x"]))
            .await
            .base_offset,
        0
    );
}

#[tokio::test]
async fn a_batch_larger_than_a_segment_is_refused_alone() {
    let broker = TestBroker::start().await;
    let settings = [
        ("segment.bytes", "1048576"),
        ("max.message.bytes", "3000000"),
    ];
    broker.create_topic("orders", 1, &settings).await;
    let mut client = broker.connect().await;
    let too_large = batch(&[&"x".repeat(1_500_000)]);
    let answer = produce(&mut client, "orders", -1, too_large).await;
    let code = ErrorCode::from_code(answer.error_code);
    assert_eq!(code, ErrorCode::RecordListTooLarge);
    let answer = produce(&mut client, "orders", -1, batch(&["x"])).await;
    assert_eq!((answer.error_code, answer.base_offset), (0, 0));
}

#[tokio::test]
async fn acks_0_has_no_response_and_closes_on_an_error() {
    let (broker, mut client) = TestBroker::with_topic("orders", 1).await;
    client
        .send(9, &produce_to("orders", 0, 0, batch(&["x"])))
        .await;
    // The next response belongs to the next request.
    client.ask(3, &api_versions()).await;
    assert_eq!(broker.partition("orders", 0).reader().high_watermark().0, 1);
    client
        .send(9, &produce_to("nowhere", 0, 0, batch(&["x"])))
        .await;
    assert!(client.is_closed().await);
}

#[tokio::test]
async fn records_are_recompressed_in_order() {
    let broker = TestBroker::start().await;
    broker
        .create_topic("orders", 1, &[("compression.type", "gzip")])
        .await;
    let mut client = broker.connect().await;
    let mut sent = Vec::new();
    for index in 0..20 {
        let request = produce_to("orders", 0, -1, batch(&[&index.to_string()]));
        sent.push(client.send(9, &request).await);
    }
    for (index, correlation_id) in sent.into_iter().enumerate() {
        let response = client.receive::<ProduceRequest>(9, correlation_id).await;
        let partition = &response.responses[0].partition_responses[0];
        assert_eq!(
            (partition.error_code, partition.base_offset),
            (0, index as i64)
        );
    }
    let expected: Vec<String> = (0..20).map(|index| index.to_string()).collect();
    assert_eq!(
        values(&client.ask(12, &fetch_from("orders", 0, 0)).await),
        expected
    );
}

#[tokio::test]
async fn offsets_are_listed_by_time() {
    let (_broker, mut client) = TestBroker::with_topic("orders", 1).await;
    produce(&mut client, "orders", 1, batch(&["a", "b"])).await;
    let timestamps = [
        (-1, 2),
        (-2, 0),
        (-3, 0),
        (-4, 0),
        (-5, -1),
        (1_600_000_000_000, 0),
        (1_800_000_000_000, -1),
    ];
    for (timestamp, expected) in timestamps {
        let response = client.ask(9, &list_offsets("orders", timestamp)).await;
        let partition = &response.topics[0].partitions[0];
        assert_eq!(
            (partition.error_code, partition.offset),
            (0, expected),
            "{timestamp}"
        );
    }
    // The response contains the leader epoch from version 4 on.
    for (version, epoch) in [(1, -1), (2, -1), (3, -1), (4, 0), (11, 0)] {
        let response = client.ask(version, &list_offsets("orders", -1)).await;
        let partition = &response.topics[0].partitions[0];
        assert_eq!(
            (partition.offset, partition.leader_epoch),
            (2, epoch),
            "version {version}"
        );
    }
}

#[tokio::test]
async fn only_read_committed_fetches_list_aborted_transactions() {
    let (_broker, mut client) = TestBroker::with_topic("orders", 1).await;
    produce(&mut client, "orders", -1, batch(&["a"])).await;
    for (isolation_level, aborted) in [(0, None), (1, Some(0))] {
        let mut request = fetch_from("orders", 0, 0);
        request.isolation_level = isolation_level;
        let answer = client.ask(12, &request).await;
        let told = &answer.responses[0].partitions[0].aborted_transactions;
        assert_eq!(told.as_ref().map(Vec::len), aborted);
    }
}

#[tokio::test]
async fn an_unknown_isolation_level_is_refused_as_in_kafka() {
    let (_broker, mut client) = TestBroker::with_topic("orders", 1).await;
    produce(&mut client, "orders", -1, batch(&["a"])).await;
    let unknown = ErrorCode::UnknownServerError.code();
    for (version, partitions) in [(4, 1), (12, 1), (13, 0), (17, 0)] {
        let mut request = fetch_from("orders", 0, 0);
        request.isolation_level = 2;
        let answer = client.ask(version, &request).await;
        // Version 7 is the first with a top-level error.
        let of_all = if version < 7 { 0 } else { unknown };
        assert_eq!(answer.error_code, of_all, "version {version}");
        let all = answer.responses.iter().flat_map(|topic| &topic.partitions);
        let codes: Vec<_> = all.map(|partition| partition.error_code).collect();
        assert_eq!(codes, vec![unknown; partitions], "version {version}");
        request.topics.clear();
        let nothing_to_read = client.ask(version, &request).await;
        assert_eq!(nothing_to_read.error_code, 0, "version {version}");
    }
    let mut request = list_offsets("orders", -1);
    for (level, code) in [(-1, unknown), (0, 0), (1, 0), (2, unknown)] {
        for replica_id in [-1, -2, 1] {
            request.isolation_level = level;
            request.replica_id = replica_id;
            let answer = client.ask(5, &request).await;
            let found = answer.topics[0].partitions[0].error_code;
            assert_eq!(found, code, "level {level}, replica {replica_id}");
        }
    }
}

pub(super) fn list_offsets(topic: &'static str, timestamp: i64) -> ListOffsetsRequest {
    ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic {
            name: topic.into(),
            partitions: vec![ListOffsetsPartition {
                timestamp,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// A batch with one record of this number of zeros.
fn zeros(compression: Compression, bytes: usize) -> Bytes {
    let mut builder = RecordBatchBuilder::new(compression);
    builder.append(Timestamp(1), None, Some(&vec![0; bytes]), &[]);
    builder.build().to_bytes()
}

#[tokio::test]
async fn the_decompressed_size_of_records_is_limited() {
    let limit = [("socket.request.max.bytes", "4000000")];
    let broker = TestBroker::start_with(&limit).await;
    broker.create_topic("kept", 1, &[]).await;
    broker
        .create_topic("changed", 1, &[("compression.type", "lz4")])
        .await;
    let mut client = broker.connect().await;
    let codecs = [
        Compression::Gzip { level: -1 },
        Compression::Snappy,
        Compression::Zstd { level: 3 },
    ];
    for topic in ["kept", "changed"] {
        for compression in codecs {
            for (bytes, code) in [
                (3_000_000, ErrorCode::None),
                (5_000_000, ErrorCode::MessageTooLarge),
            ] {
                let answer = produce(&mut client, topic, 1, zeros(compression, bytes)).await;
                assert_eq!(
                    answer.error_code,
                    code.code(),
                    "{compression:?}, {bytes} bytes to {topic}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_recompressed_batch_counts_for_the_limit_of_the_inbox() {
    let broker = TestBroker::start().await;
    broker
        .create_topic("orders", 1, &[("compression.type", "gzip")])
        .await;
    broker.create_topic("others", 1, &[]).await;
    // A slot of another request fills the inbox.
    let turn = broker
        .partition("orders", 0)
        .reserve(&broker.broker().host, 17 << 20);
    let mut client = broker.connect().await;
    let first = produce_to("orders", 0, 1, batch(&["one"]));
    let second = produce_to("others", 0, 1, batch(&["two"]));
    let first = client.send(9, &first).await;
    let second = client.send(9, &second).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let others = broker.partition("others", 0);
    assert_eq!(
        others.reader().log_end_offset().0,
        0,
        "the connection waits"
    );
    drop(turn);
    client.receive::<ProduceRequest>(9, first).await;
    client.receive::<ProduceRequest>(9, second).await;
    assert_eq!(others.reader().log_end_offset().0, 1);
}

/// Responses may wait for other responses that are about to be ready, but not for the rest of a
/// request, because its client may wait for the response first.
#[tokio::test]
async fn a_response_does_not_wait_for_the_rest_of_the_next_request() {
    let broker = TestBroker::start().await;
    broker.create_topic("orders", 1, &[]).await;
    let large = "x".repeat(200_000);
    for (records, of_the_next) in [
        (batch(&["small"]), 0),
        (batch(&["small"]), 2),
        (batch(&["small"]), 20),
        (batch(&[&large]), 4),
        (batch(&[&large]), 100),
        (batch(&[&large]), 70_000),
    ] {
        let mut client = broker.connect().await;
        let request = |correlation_id| {
            let request = produce_to("orders", 0, 1, records.clone());
            frame(9, &request, correlation_id)
        };
        // More than one, so that there is something to collect.
        let next = request(3);
        let (begun, rest) = next.split_at(of_the_next);
        let sent = [&request(1)[..], &request(2), begun].concat();
        client.stream.write_all(&sent).await.unwrap();
        for correlation_id in [1, 2] {
            let answer = client.receive::<ProduceRequest>(9, correlation_id);
            let answer = tokio::time::timeout(Duration::from_secs(60), answer).await;
            let answer = answer.unwrap_or_else(|_| panic!("no answer {correlation_id}"));
            assert_eq!(answer.responses[0].partition_responses[0].error_code, 0);
        }
        client.stream.write_all(rest).await.unwrap();
        client.receive::<ProduceRequest>(9, 3).await;
    }
}

/// Like `nc -N` and scripts: the client shuts down its side and waits for the responses.
#[tokio::test]
async fn a_client_that_closed_its_sending_side_is_answered() {
    let (_broker, mut client) = TestBroker::with_topic("orders", 1).await;
    let request = |correlation_id| {
        let request = produce_to("orders", 0, 1, batch(&["last words"]));
        frame(9, &request, correlation_id)
    };
    let sent = [&request(1)[..], &request(2)].concat();
    client.stream.write_all(&sent).await.unwrap();
    client.stream.shutdown().await.unwrap();
    for correlation_id in [1, 2] {
        let answer = client.receive::<ProduceRequest>(9, correlation_id).await;
        assert_eq!(answer.responses[0].partition_responses[0].error_code, 0);
    }
    assert!(client.is_closed().await);
}

/// Earlier requests are not affected by malformed bytes after them.
#[tokio::test]
async fn requests_before_a_malformed_one_are_answered() {
    let (_broker, mut client) = TestBroker::with_topic("orders", 1).await;
    let request = produce_to("orders", 0, 1, batch(&["fine"]));
    let sent = [&frame(9, &request, 1)[..], &[0xff; 4]].concat();
    client.stream.write_all(&sent).await.unwrap();
    let answer = client.receive::<ProduceRequest>(9, 1).await;
    assert_eq!(answer.responses[0].partition_responses[0].error_code, 0);
    assert!(client.is_closed().await);
}
