//! Compacted topics while they are written, read and deleted.

use std::time::{Duration, Instant};

use bytes::Bytes;
use ottla_log::checkpoint::{CLEANER_OFFSET_CHECKPOINT, OffsetCheckpoint};
use ottla_protocol::Records;
use ottla_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use ottla_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use ottla_protocol::messages::{FindCoordinatorRequest, OffsetCommitRequest, OffsetFetchRequest};
use ottla_records::{Compression, RecordBatch, RecordBatchBuilder};
use ottla_types::ErrorCode;
use ottla_types::{Offset, Timestamp, TopicPartition};

use super::TestBroker;
use super::client::Client;
use super::directories::{Node, create};
use super::produce_and_fetch::{fetch_from, produce_to};
use ottla_metrics::cleaner::CleanerGauge;

const NOW: i64 = 1_700_000_000_000;

/// A batch with one record, whose timestamp starts a new segment with `segment.ms=1000`.
fn keyed(n: i64, key: &str, value: &str) -> Bytes {
    let mut builder = RecordBatchBuilder::new(Compression::None);
    let at = Timestamp(NOW + n * 10_000);
    builder.append(at, Some(key.as_bytes()), Some(value.as_bytes()), &[]);
    builder.build().to_bytes()
}

/// Offset, key and value of all records, segment by segment.
async fn read(client: &mut Client) -> Vec<(i64, String, String)> {
    let (mut found, mut next, mut end) = (Vec::new(), 0, i64::MAX);
    while next < end {
        let response = client.ask(12, &fetch_from("orders", 0, next)).await;
        let partition = &response.responses[0].partitions[0];
        assert_eq!(partition.error_code, 0);
        end = partition.high_watermark;
        let Some(Records::Bytes(bytes)) = &partition.records else {
            break;
        };
        for batch in RecordBatch::read_all(bytes.clone()) {
            let batch = batch.unwrap();
            next = batch.header.next_offset().0;
            for record in batch.records(1000).unwrap() {
                let record = record.unwrap();
                let text =
                    |bytes: Option<Bytes>| String::from_utf8(bytes.unwrap().to_vec()).unwrap();
                found.push((record.offset.0, text(record.key), text(record.value)));
            }
        }
    }
    found
}

/// The number of logs that could not be cleaned.
fn uncleanable(broker: &TestBroker) -> usize {
    let dirs = broker.broker().log_dirs().unwrap().describe();
    dirs.iter().map(|dir| dir.uncleanable_partitions).sum()
}

/// Compacts everything that is dirty. Every record of these tests starts a segment.
const COMPACTED: [(&str, &str); 3] = [
    ("cleanup.policy", "compact"),
    ("segment.ms", "1000"),
    ("min.cleanable.dirty.ratio", "0.01"),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_compacted_topic_is_cleaned_while_it_is_used() {
    let broker = TestBroker::start_with(&[("log.cleaner.backoff.ms", "20")]).await;
    broker.create_topic("orders", 1, &COMPACTED).await;
    let mut client = broker.connect().await;
    for n in 0..9 {
        let records = keyed(n, &format!("key {}", n % 3), &format!("value {n}"));
        client.ask(9, &produce_to("orders", 0, 1, records)).await;
    }
    let last = |offset: i64| {
        (
            offset,
            format!("key {}", offset % 3),
            format!("value {offset}"),
        )
    };
    let expected: Vec<_> = [5, 6, 7, 8].map(last).to_vec();
    let deadline = Instant::now() + Duration::from_secs(30);
    // The newest record of a key is in the active segment, so the older one is kept.
    while read(&mut client).await != expected {
        assert!(Instant::now() < deadline, "{:?}", read(&mut client).await);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let orders = TopicPartition::new("orders", 0);
    let dir = broker.partition("orders", 0).reader().dir();
    let checkpoint = dir.parent().unwrap().join(CLEANER_OFFSET_CHECKPOINT);
    while OffsetCheckpoint::read(&checkpoint)
        .unwrap()
        .offsets
        .get(&orders)
        != Some(&Offset(8))
    {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let metrics = &broker.broker().context.metrics.cleaner;
    assert_eq!(metrics.get(CleanerGauge::DeadThreadCount), 0);
    assert_eq!(uncleanable(&broker), 0);
    // A paused log is skipped, and cleaned when it is resumed.
    let log_dirs = broker.broker().log_dirs().unwrap().clone();
    let (dirs, partition) = (log_dirs.clone(), orders.clone());
    let pause = move || dirs.cleaner().pause(&partition);
    let pause = tokio::task::spawn_blocking(pause).await.unwrap();
    for n in 9..21 {
        let records = keyed(n, &format!("key {}", n % 3), &format!("value {n}"));
        client.ask(9, &produce_to("orders", 0, 1, records)).await;
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(read(&mut client).await.len(), 16);
    drop(pause);
    let expected: Vec<_> = [17, 18, 19, 20].map(last).to_vec();
    while read(&mut client).await != expected {
        assert!(Instant::now() < deadline, "{:?}", read(&mut client).await);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::task::spawn_blocking(move || log_dirs.delete_log(&orders))
        .await
        .unwrap();
    assert_eq!(
        OffsetCheckpoint::read(&checkpoint).unwrap(),
        OffsetCheckpoint::default()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_uncleanable_partition_does_not_stop_the_cleaner() {
    let broker = TestBroker::start_with(&[("log.cleaner.backoff.ms", "20")]).await;
    // Not compacted yet, so that it can be damaged first.
    broker
        .create_topic("broken", 1, &[("segment.ms", "1000")])
        .await;
    let mut client = broker.connect().await;
    for n in 0..3 {
        client
            .ask(9, &produce_to("broken", 0, 1, keyed(n, "key", "value")))
            .await;
    }
    let dir = broker.partition("broken", 0).reader().dir();
    let path = dir.join("00000000000000000000.log");
    let mut bytes = std::fs::read(&path).unwrap();
    // The number of records does not match the records.
    bytes[60] = 9;
    std::fs::write(&path, bytes).unwrap();
    let config = ottla_config::TopicConfig {
        cleanup_policy: ottla_config::CleanupPolicy {
            delete: false,
            compact: true,
        },
        ..ottla_config::TopicConfig::default()
    };
    broker
        .partition("broken", 0)
        .set_config(&broker.broker().host, config.into());
    let metrics = &broker.broker().context.metrics.cleaner;
    let deadline = Instant::now() + Duration::from_secs(30);
    while uncleanable(&broker) != 1 {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    broker.create_topic("orders", 1, &COMPACTED).await;
    for n in 0..4 {
        client
            .ask(9, &produce_to("orders", 0, 1, keyed(n, "key", "value")))
            .await;
    }
    while read(&mut client).await.len() != 2 {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(metrics.get(CleanerGauge::DeadThreadCount), 0);
}

async fn commit(client: &mut Client, partition_index: i32, committed_offset: i64) {
    let request = OffsetCommitRequest {
        group_id: "readers".into(),
        generation_id_or_member_epoch: -1,
        topics: vec![OffsetCommitRequestTopic {
            name: "orders".into(),
            partitions: vec![OffsetCommitRequestPartition {
                partition_index,
                committed_offset,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let answer = client.ask(9, &request).await;
        // The coordinator may be found before it has loaded its log.
        match ErrorCode::from_code(answer.topics[0].partitions[0].error_code) {
            ErrorCode::None => return,
            ErrorCode::CoordinatorLoadInProgress if Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            code => panic!("the commit was answered with {code}"),
        }
    }
}

async fn until_the_coordinator_is_there(client: &mut Client) {
    let request = FindCoordinatorRequest {
        coordinator_keys: vec!["readers".into()],
        ..Default::default()
    };
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let answer = client.ask(4, &request).await;
        if answer.coordinators[0].error_code == 0 {
            return;
        }
        assert!(Instant::now() < deadline, "{answer:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn committed(client: &mut Client) -> Vec<(i32, i64)> {
    let request = OffsetFetchRequest {
        groups: vec![OffsetFetchRequestGroup {
            group_id: "readers".into(),
            topics: Some(vec![OffsetFetchRequestTopics {
                name: "orders".into(),
                partition_indexes: vec![0, 1],
                ..Default::default()
            }]),
            ..Default::default()
        }],
        ..Default::default()
    };
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let answer = client.ask(9, &request).await;
        if answer.groups[0].error_code == 0 {
            let partitions = answer.groups[0].topics[0].partitions.iter();
            let offsets = partitions.map(|known| (known.partition_index, known.committed_offset));
            return offsets.collect();
        }
        assert!(Instant::now() < deadline, "the group is not loaded");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_coordinator_loads_groups_from_a_compacted_log() {
    let settings = [
        ("log.cleaner.backoff.ms", "20"),
        ("log.cleaner.min.cleanable.ratio", "0.01"),
        ("offsets.topic.num.partitions", "1"),
        ("offsets.topic.replication.factor", "1"),
        ("log.roll.ms", "1"),
    ];
    let mut node = Node::start(&settings).await;
    let mut client = node.connect().await;
    create(&mut client, 2).await;
    until_the_coordinator_is_there(&mut client).await;
    // One offset is committed once, and must survive the removal of all older commits of the other.
    commit(&mut client, 1, 7).await;
    for offset in 0..60 {
        commit(&mut client, 0, offset).await;
    }
    let log = node.broker().partitions.get("__consumer_offsets", 0);
    let log = log.unwrap();
    let dir = log.reader().dir();
    let checkpoint = dir.parent().unwrap().join(CLEANER_OFFSET_CHECKPOINT);
    let clean = || {
        let offsets = OffsetCheckpoint::read(&checkpoint).unwrap().offsets;
        let of_groups = offsets.get(&TopicPartition::new("__consumer_offsets", 0));
        of_groups.copied().unwrap_or_default()
    };
    let deadline = Instant::now() + Duration::from_secs(30);
    while clean() < Offset(45) {
        assert!(Instant::now() < deadline, "clean up to {}", clean());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let end = log.reader().log_end_offset();
    let read = log.reader().read(Offset::ZERO, 1 << 20, end, true).unwrap();
    let first = read.region.unwrap().read().unwrap();
    let first = RecordBatch::read_all(first).map_while(Result::ok);
    assert!(first.count() < 30, "old commits are gone");
    drop(log);
    node.stop().await;
    node.start_again(&settings).await;
    let mut client = node.connect().await;
    until_the_coordinator_is_there(&mut client).await;
    assert_eq!(committed(&mut client).await, [(0, 59), (1, 7)]);
}
