//! Settings whose effect a client or the files on disk can show: each is tested with two values at
//! which a broker behaves differently. A setting without effect would give the same result for
//! both.

use std::time::Duration;

use bytes::Bytes;
use bytestring::ByteString;
use ottla_protocol::Records;
use ottla_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use ottla_protocol::messages::delete_topics_request::DeleteTopicState;
use ottla_protocol::messages::describe_topic_partitions_request::TopicRequest;
use ottla_protocol::messages::fetch_request::FetchPartition;
use ottla_protocol::messages::{
    DeleteRecordsRequest, DeleteTopicsRequest, DescribeTopicPartitionsRequest, FetchResponse,
    GetTelemetrySubscriptionsRequest, JoinGroupResponse, MetadataRequest, PushTelemetryRequest,
};
use ottla_protocol::metadata_records::{ConfigRecord, MetadataRecord};
use ottla_types::ErrorCode;

use super::TestBroker;
use super::groups::{committing, coordinating_broker, error, joining};
use super::produce_and_fetch::{batch, fetch_from, produce_to};

const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// Not a member, like a consumer that assigns its partitions itself.
fn nobody() -> JoinGroupResponse {
    JoinGroupResponse {
        generation_id: -1,
        ..Default::default()
    }
}

/// The size of the records of each partition of the first topic.
fn lengths(response: &FetchResponse) -> Vec<usize> {
    let partitions = response.responses.first().map(|topic| &topic.partitions);
    let partitions = partitions.into_iter().flatten();
    partitions
        .map(|partition| match &partition.records {
            Some(Records::Bytes(bytes)) => bytes.len(),
            _ => 0,
        })
        .collect()
}

/// The first batch of a partition.
async fn first_batch(broker: &TestBroker, topic: &'static str, partition: i32) -> Bytes {
    let mut client = broker.connect().await;
    let response = client.ask(12, &fetch_from(topic, partition, 0)).await;
    match &response.responses[0].partitions[0].records {
        Some(Records::Bytes(bytes)) => bytes.clone(),
        other => panic!("no records: {other:?}"),
    }
}

#[tokio::test]
async fn offset_metadata_max_bytes() {
    for (max_bytes, expected) in [
        ("4", ErrorCode::None),
        ("3", ErrorCode::OffsetMetadataTooLarge),
    ] {
        let broker = coordinating_broker(&[("offset.metadata.max.bytes", max_bytes)]).await;
        let mut commit = committing(&nobody(), 5);
        commit.topics[0].partitions[0].committed_metadata = Some("four".into());
        let answer = broker.connect().await.ask(9, &commit).await;
        let code = error(answer.topics[0].partitions[0].error_code);
        assert_eq!(code, expected, "{max_bytes}");
    }
}

#[tokio::test]
async fn group_session_timeouts() {
    for (setting, value, expected) in [
        (
            "group.min.session.timeout.ms",
            "10000",
            ErrorCode::MemberIdRequired,
        ),
        (
            "group.min.session.timeout.ms",
            "10001",
            ErrorCode::InvalidSessionTimeout,
        ),
        (
            "group.max.session.timeout.ms",
            "10000",
            ErrorCode::MemberIdRequired,
        ),
        (
            "group.max.session.timeout.ms",
            "9999",
            ErrorCode::InvalidSessionTimeout,
        ),
    ] {
        let broker = coordinating_broker(&[(setting, value)]).await;
        let asked = joining(&ByteString::new());
        assert_eq!(asked.session_timeout_ms, 10_000);
        let answer = broker.connect().await.ask(9, &asked).await;
        assert_eq!(error(answer.error_code), expected, "{setting}={value}");
    }
}

#[tokio::test]
async fn offsets_topic_compression_codec() {
    for (value, codec) in [("0", 0), ("1", 1), ("4", 4)] {
        let broker = coordinating_broker(&[("offsets.topic.compression.codec", value)]).await;
        let mut client = broker.connect().await;
        let answer = client.ask(9, &committing(&nobody(), 5)).await;
        assert_eq!(answer.topics[0].partitions[0].error_code, 0);
        let ends = [0, 1].map(|index| broker.partition(OFFSETS_TOPIC, index).reader());
        let written = ends.iter().position(|log| log.log_end_offset().0 > 0);
        let partition = written.expect("the commit is in one of them") as i32;
        let batch = first_batch(&broker, OFFSETS_TOPIC, partition).await;
        // The low byte of the attributes. Three of its bits are the codec.
        assert_eq!(batch[22] & 7, codec, "{value}");
    }
}

#[tokio::test]
async fn fetch_max_bytes() {
    let large = "x".repeat(2000);
    for (value, expected) in [("1024", 1), ("57671680", 2)] {
        let broker = TestBroker::start_with(&[("fetch.max.bytes", value)]).await;
        broker.create_topic("orders", 2, &[]).await;
        let mut client = broker.connect().await;
        for partition in [0, 1] {
            let request = produce_to("orders", partition, 1, batch(&[&large]));
            client.ask(9, &request).await;
        }
        let mut both = fetch_from("orders", 0, 0);
        let second = FetchPartition {
            partition: 1,
            ..both.topics[0].partitions[0].clone()
        };
        both.topics[0].partitions.push(second);
        let answer = client.ask(12, &both).await;
        let lengths = lengths(&answer);
        let filled = lengths.iter().filter(|length| **length > 0).count();
        assert_eq!(filled, expected, "fetch.max.bytes={value}: {lengths:?}");
    }
}

#[tokio::test]
async fn max_incremental_fetch_session_cache_slots() {
    for (slots, has_session) in [("0", false), ("1000", true)] {
        let setting = ("max.incremental.fetch.session.cache.slots", slots);
        let broker = TestBroker::start_with(&[setting]).await;
        broker.create_topic("orders", 1, &[]).await;
        let mut client = broker.connect().await;
        let mut full = fetch_from("orders", 0, 0);
        full.session_epoch = 0;
        full.max_wait_ms = 1;
        let answer = client.ask(12, &full).await;
        assert_eq!(answer.error_code, 0);
        assert_eq!(answer.session_id != 0, has_session, "{slots}");
    }
}

#[tokio::test]
async fn max_request_partition_size_limit() {
    for (limit, expected) in [("2", 2), ("3", 3)] {
        let setting = ("max.request.partition.size.limit", limit);
        let broker = TestBroker::start_with(&[setting]).await;
        broker.create_topic("orders", 3, &[]).await;
        let request = DescribeTopicPartitionsRequest {
            topics: vec![TopicRequest {
                name: "orders".into(),
                ..Default::default()
            }],
            response_partition_limit: 2000,
            ..Default::default()
        };
        let answer = broker.connect().await.ask(0, &request).await;
        assert_eq!(answer.topics[0].partitions.len(), expected, "{limit}");
        assert_eq!(answer.next_cursor.is_some(), expected < 3, "{limit}");
    }
}

#[tokio::test]
async fn delete_topic_enable() {
    for (value, expected) in [
        ("false", ErrorCode::TopicDeletionDisabled),
        ("true", ErrorCode::UnknownTopicOrPartition),
    ] {
        let broker = TestBroker::start_with(&[("delete.topic.enable", value)]).await;
        let request = DeleteTopicsRequest {
            topics: vec![DeleteTopicState {
                name: Some("nothing".into()),
                ..Default::default()
            }],
            timeout_ms: 10_000,
            ..Default::default()
        };
        let answer = broker.connect().await.ask(6, &request).await;
        assert_eq!(
            error(answer.responses[0].error_code),
            expected,
            "delete.topic.enable={value}"
        );
    }
}

#[tokio::test]
async fn compression_levels_of_topics() {
    // Text in which a thorough search finds more than a quick one.
    let words: Vec<String> = (0..4000_u64)
        .map(|number| format!("{} ", number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50))
        .collect();
    let text = words.concat();
    let broker = TestBroker::start().await;
    let mut client = broker.connect().await;
    for (codec, quick, thorough, [with_quick, with_thorough]) in [
        ("gzip", "1", "9", ["gzip-1", "gzip-9"]),
        ("lz4", "1", "17", ["lz4-1", "lz4-17"]),
        ("zstd", "1", "19", ["zstd-1", "zstd-19"]),
    ] {
        let level_of = match codec {
            "gzip" => "compression.gzip.level",
            "lz4" => "compression.lz4.level",
            _ => "compression.zstd.level",
        };
        let mut lengths = Vec::new();
        for (topic, level) in [(with_quick, quick), (with_thorough, thorough)] {
            let settings = [("compression.type", codec), (level_of, level)];
            broker.create_topic(topic, 1, &settings).await;
            let answer = client
                .ask(9, &produce_to(topic, 0, 1, batch(&[&text])))
                .await;
            assert_eq!(answer.responses[0].partition_responses[0].error_code, 0);
            lengths.push(first_batch(&broker, topic, 0).await.len());
        }
        assert!(lengths[1] < lengths[0], "{codec}: {lengths:?}");
    }
}

#[tokio::test]
async fn metadata_log_settings() {
    for (setting, value, of_what, expected) in [
        (
            "metadata.log.max.record.bytes.between.snapshots",
            "1",
            ".checkpoint",
            true,
        ),
        (
            "metadata.log.max.snapshot.interval.ms",
            "1",
            ".checkpoint",
            true,
        ),
        (
            "metadata.log.max.snapshot.interval.ms",
            "3600000",
            ".checkpoint",
            false,
        ),
        ("metadata.log.segment.ms", "1", ".log", true),
        ("metadata.log.segment.ms", "604800000", ".log", false),
    ] {
        let broker = TestBroker::start_with(&[(setting, value)]).await;
        for topic in ["one", "two", "three"] {
            tokio::time::sleep(Duration::from_millis(10)).await;
            broker.create_topic(topic, 1, &[]).await;
        }
        let dir = broker.data.path().join("__cluster_metadata-0");
        let names = std::fs::read_dir(dir).expect("the metadata log");
        let names = names.map(|entry| entry.expect("an entry").file_name());
        let names: Vec<String> = names.filter_map(|name| name.into_string().ok()).collect();
        // The first segment, and the snapshot that formatting wrote, always exist.
        let beyond_the_first = names
            .iter()
            .any(|name| name.ends_with(of_what) && !name.starts_with("00000000000000000000"));
        assert_eq!(beyond_the_first, expected, "{setting}={value}: {names:?}");
    }
}

#[tokio::test]
async fn metadata_log_segment_bytes() {
    for (value, expected) in [("8388608", 2), ("1073741824", 1)] {
        let broker = TestBroker::start_with(&[("metadata.log.segment.bytes", value)]).await;
        // Each fits into a segment of 8 MiB, and both together do not. A string is shorter than 32
        // KiB.
        for topic in ["one", "two"] {
            let record = |key: i32| {
                MetadataRecord::Config(ConfigRecord {
                    resource_type: 2,
                    resource_name: topic.into(),
                    name: format!("of.no.meaning.{key}").into(),
                    value: Some("x".repeat(30_000).into()),
                    ..Default::default()
                })
            };
            broker.write((0..170).map(record).collect()).await;
        }
        let dir = broker.data.path().join("__cluster_metadata-0");
        let names = std::fs::read_dir(dir).expect("the metadata log");
        let names = names.map(|entry| entry.expect("an entry").file_name());
        let names: Vec<String> = names.filter_map(|name| name.into_string().ok()).collect();
        let segments = names.iter().filter(|name| name.ends_with(".log")).count();
        assert_eq!(segments, expected, "{value}: {names:?}");
    }
}

#[tokio::test]
async fn intervals_of_the_checkpoints() {
    const OFTEN: &str = "20";
    const NEVER: &str = "3600000";
    for (setting, file) in [
        (
            "log.flush.offset.checkpoint.interval.ms",
            "recovery-point-offset-checkpoint",
        ),
        (
            "log.flush.start.offset.checkpoint.interval.ms",
            "log-start-offset-checkpoint",
        ),
        (
            "replica.high.watermark.checkpoint.interval.ms",
            "replication-offset-checkpoint",
        ),
    ] {
        for (value, expected) in [(OFTEN, true), (NEVER, false)] {
            // At each checkpoint of the recovery points, the start offsets of the logs are written
            // too.
            let mut settings = vec![
                ("log.flush.offset.checkpoint.interval.ms", NEVER),
                ("log.initial.task.delay.ms", "0"),
            ];
            settings.push((setting, value));
            let broker = TestBroker::start_with(&settings).await;
            // The checkpoints of the start are complete. A late one would look like one that is not to be.
            let start_ms = if expected { 100 } else { 1_000 };
            tokio::time::sleep(Duration::from_millis(start_ms)).await;
            broker.create_topic("orders", 1, &[]).await;
            let mut client = broker.connect().await;
            client
                .ask(9, &produce_to("orders", 0, 1, batch(&["a", "b"])))
                .await;
            let delete = DeleteRecordsRequest {
                topics: vec![DeleteRecordsTopic {
                    name: "orders".into(),
                    partitions: vec![DeleteRecordsPartition {
                        partition_index: 0,
                        offset: 1,
                        ..Default::default()
                    }],
                    ..Default::default()
                }],
                timeout_ms: 10_000,
                ..Default::default()
            };
            client.ask(2, &delete).await;
            let path = broker.data.path().join(file);
            let mut is_written = false;
            for _ in 0..if expected { 3_000 } else { 20 } {
                let text = std::fs::read_to_string(&path).unwrap_or_default();
                is_written |= text.contains("orders 0 ");
                if is_written {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            assert_eq!(is_written, expected, "{setting}={value}");
        }
    }
}

#[tokio::test]
async fn telemetry_max_bytes() {
    for value in ["1000", "2000"] {
        let broker = TestBroker::start_with(&[
            ("telemetry.max.bytes", value),
            ("ottla.http.listener", "127.0.0.1:0"),
        ])
        .await;
        let mut client = broker.connect().await;
        let get = GetTelemetrySubscriptionsRequest::default();
        let asked = client.ask(0, &get).await;
        assert_eq!(asked.telemetry_max_bytes.to_string(), value);
        let push = PushTelemetryRequest {
            client_instance_id: asked.client_instance_id,
            subscription_id: asked.subscription_id,
            metrics: vec![0; 1500].into(),
            ..Default::default()
        };
        let code = error(client.ask(0, &push).await.error_code);
        let is_too_large = code == ErrorCode::TelemetryTooLarge;
        assert_eq!(is_too_large, value == "1000", "{value}: {code}");
    }
}

#[tokio::test]
async fn broker_rack() {
    for rack in ["here", "there"] {
        let broker = TestBroker::start_with(&[("broker.rack", rack)]).await;
        let mut client = broker.connect().await;
        let answer = client.ask(9, &MetadataRequest::default()).await;
        assert_eq!(answer.brokers[0].rack.as_deref(), Some(rack));
    }
}
