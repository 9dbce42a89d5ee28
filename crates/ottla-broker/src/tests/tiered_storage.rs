//! Topics whose closed segments are in remote storage: one broker, and a directory as the store.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_metadata::ConfigResource;
use ottla_protocol::Records;
use ottla_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use ottla_protocol::messages::list_offsets_response::ListOffsetsPartitionResponse;
use ottla_protocol::messages::{DeleteTopicsRequest, ListOffsetsRequest};
use ottla_protocol::metadata_records::{ConfigRecord, MetadataRecord};
use ottla_records::{Compression, RecordBatch, RecordBatchBuilder};
use ottla_remote::TierCounter;
use ottla_types::{ErrorCode, Offset, Timestamp, TopicPartition};

use super::produce_and_fetch::{fetch_from, produce_to};
use super::quorum_of_three::Quorum;
use super::{Client, TestBroker, creation_with, share_groups};
use crate::{Endpoint, Partition, RunningBroker};

mod cancelled_reads;
mod damaged_objects;
mod large_batches;
mod refusing_store;

const CLASS: &str = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage";
const PATIENCE: Duration = Duration::from_secs(60);
/// The timestamp of the first record; each record is a millisecond younger than the one before.
const FIRST_TIMESTAMP: i64 = 1_700_000_000_000;

pub(super) fn settings(store: &Path) -> Vec<(&str, &str)> {
    let store = store.to_str().expect("a path of characters");
    settings_with(&[
        ("remote.log.storage.manager.class.name", CLASS),
        ("rsm.config.dir", store),
    ])
}

fn settings_with<'a>(store: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut all = vec![
        ("remote.log.storage.system.enable", "true"),
        (
            "rlmm.config.remote.log.metadata.topic.replication.factor",
            "1",
        ),
        ("rlmm.config.remote.log.metadata.topic.min.isr", "1"),
        ("rlmm.config.remote.log.metadata.topic.num.partitions", "3"),
        ("remote.log.manager.task.interval.ms", "100"),
        ("remote.fetch.max.wait.ms", "10000"),
        ("log.retention.check.interval.ms", "100"),
        ("log.initial.task.delay.ms", "100"),
        ("log.flush.start.offset.checkpoint.interval.ms", "200"),
    ];
    all.extend_from_slice(store);
    all
}

async fn broker(store: &Path) -> TestBroker {
    TestBroker::start_with(&settings(store)).await
}

/// Small segments, which go as soon as they are copied.
pub(super) const SETTINGS: [(&str, &str); 5] = [
    ("remote.storage.enable", "true"),
    ("internal.segment.bytes", "2000"),
    ("local.retention.bytes", "1"),
    ("retention.ms", "-1"),
    ("file.delete.delay.ms", "0"),
];

/// A store, a broker with it, a topic `tiered` with these settings, and a client.
async fn with_topic(
    partitions: i32,
    settings: &[(&'static str, &'static str)],
) -> (tempfile::TempDir, TestBroker, Client) {
    let store = tempfile::tempdir().expect("a directory");
    let broker = broker(store.path()).await;
    broker.create_topic("tiered", partitions, settings).await;
    let client = broker.connect().await;
    (store, broker, client)
}

fn value(offset: i64) -> String {
    format!("the record at offset {offset:010}")
}

/// Produces batches of ten records, each with its offset in it.
async fn produce(client: &mut Client, from: i64, batches: i64) {
    produce_in(client, 0, from, batches).await;
}

async fn produce_in(client: &mut Client, index: i32, from: i64, batches: i64) {
    for first in (from..).step_by(10).take(batches as usize) {
        let mut builder = RecordBatchBuilder::new(Compression::None);
        for offset in first..first + 10 {
            let timestamp = Timestamp(FIRST_TIMESTAMP + offset);
            builder.append(timestamp, None, Some(value(offset).as_bytes()), &[]);
        }
        let records = builder.build().to_bytes();
        let request = produce_to("tiered", index, -1, records);
        let answer = client.ask(9, &request).await;
        let partition = &answer.responses[0].partition_responses[0];
        assert_eq!((partition.error_code, partition.base_offset), (0, first));
    }
}

/// Fetches all records from an offset on, as a consumer does.
async fn read_all(client: &mut Client, from: i64, end: i64) -> Vec<(i64, String)> {
    let mut found = Vec::new();
    let mut next = from;
    let began = Instant::now();
    while next < end {
        assert!(began.elapsed() < PATIENCE, "stuck at offset {next}");
        let mut request = fetch_from("tiered", 0, next);
        request.topics[0].partitions[0].partition_max_bytes = 1500;
        let response = client.ask(12, &request).await;
        let partition = &response.responses[0].partitions[0];
        assert_eq!(partition.error_code, 0, "at offset {next}");
        let Some(Records::Bytes(bytes)) = &partition.records else {
            continue;
        };
        for batch in RecordBatch::read_all(bytes.clone()) {
            let batch = batch.expect("a whole batch");
            batch.verify_crc().expect("the checksum");
            for record in batch.records(1 << 20).expect("records") {
                let record = record.expect("a record");
                if record.offset.0 >= next {
                    let value = record.value.expect("a value").to_vec();
                    found.push((record.offset.0, String::from_utf8(value).expect("text")));
                }
            }
            next = batch.header.next_offset().0;
        }
    }
    found
}

fn expected(from: i64, end: i64) -> Vec<(i64, String)> {
    (from..end).map(|offset| (offset, value(offset))).collect()
}

async fn list(client: &mut Client, timestamp: i64) -> (i64, i32) {
    let partition = listed(client, timestamp).await;
    assert_eq!(partition.error_code, 0, "timestamp {timestamp}");
    (partition.offset, partition.leader_epoch)
}

async fn listed(client: &mut Client, timestamp: i64) -> ListOffsetsPartitionResponse {
    let request = ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic {
            name: "tiered".into(),
            partitions: vec![ListOffsetsPartition {
                partition_index: 0,
                current_leader_epoch: -1,
                timestamp,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let mut answer = client.ask(11, &request).await;
    answer.topics.remove(0).partitions.remove(0)
}

/// Waits until only the active segment is on the local disk, which starts at an offset or later.
async fn wait_for_local_start(broker: &TestBroker, offset: i64) {
    let began = Instant::now();
    loop {
        let partition = broker.partition("tiered", 0);
        let local = partition.reader().local_log_start_offset();
        if local >= Offset(offset) && partition.reader().number_of_segments() == 1 {
            return;
        }
        assert!(
            began.elapsed() < PATIENCE,
            "the local log starts at {local}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Changes settings of the topic. They are in force when this returns.
async fn set(broker: &TestBroker, settings: &[(&'static str, &'static str)]) {
    let records = settings.iter().map(|&(name, value)| {
        MetadataRecord::Config(ConfigRecord {
            resource_type: 2,
            resource_name: "tiered".into(),
            name: name.into(),
            value: Some(value.into()),
            ..Default::default()
        })
    });
    broker.write(records.collect()).await;
}

fn stored_logs(store: &Path) -> usize {
    let files = stored_files(store).into_iter();
    files.filter(|name| name.ends_with(".log")).count()
}

/// The log of the first segment.
fn first_object(store: &Path) -> PathBuf {
    let mut files = stored_files(store).into_iter().map(PathBuf::from);
    let is_first = |path: &PathBuf| {
        let name = path.file_name().expect("a file").to_string_lossy();
        name.starts_with("00000000000000000000-") && name.ends_with(".log")
    };
    files.find(is_first).expect("the first segment")
}

fn stored_files(store: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut dirs = vec![store.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).expect("a directory") {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true => dirs.push(path),
                false => found.push(path.display().to_string()),
            }
        }
    }
    found
}

/// Each segment is in the store once. The names of its objects begin with its base offset.
fn assert_uploaded_once(objects: &[String]) {
    let logs = objects.iter().filter(|name| name.ends_with(".log"));
    let mut starts: Vec<&str> = logs
        .map(|name| name.rsplit('/').next().unwrap_or(name))
        .map(|name| &name[..20])
        .collect();
    let all = starts.len();
    starts.sort_unstable();
    starts.dedup();
    assert_eq!(starts.len(), all, "a segment was uploaded twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn segments_are_copied_deleted_locally_and_read_remotely() {
    let (store, broker, mut client) = with_topic(1, &SETTINGS).await;
    produce(&mut client, 0, 30).await;
    wait_for_local_start(&broker, 250).await;
    let reader = broker.partition("tiered", 0).reader().clone();
    assert_eq!(reader.log_start_offset(), Offset(0));
    let logs = stored_logs(store.path());
    assert!(logs >= 5, "{logs} segments are in the store");

    assert_eq!(read_all(&mut client, 0, 300).await, expected(0, 300));
    assert_eq!(read_all(&mut client, 123, 300).await, expected(123, 300));
    assert!(broker.broker().context.metrics.remote_reads().count > 10);
    assert_eq!(list(&mut client, -2).await, (0, 0));
    let local = reader.local_log_start_offset().0;
    assert_eq!(list(&mut client, -4).await, (local, 0));
    assert_eq!(list(&mut client, -5).await, (local - 1, 0));
    assert_eq!(list(&mut client, -6).await, (local, 0));
    assert_eq!(list(&mut client, FIRST_TIMESTAMP + 77).await.0, 77);
    assert_eq!(
        list(&mut client, FIRST_TIMESTAMP + local + 1).await.0,
        local + 1
    );

    let broker = broker.restart().await;
    let mut client = broker.connect().await;
    let reader = broker.partition("tiered", 0).reader().clone();
    assert_eq!(reader.log_start_offset(), Offset(0));
    assert_eq!(reader.local_log_start_offset(), Offset(local));
    // The metadata of remote segments is read again at first.
    let began = Instant::now();
    loop {
        let response = client.ask(12, &fetch_from("tiered", 0, 0)).await;
        match response.responses[0].partitions[0].error_code {
            0 => break,
            // REPLICA_NOT_AVAILABLE
            9 => assert!(began.elapsed() < PATIENCE, "the metadata is not read"),
            code => panic!("error {code}"),
        }
    }
    assert_eq!(read_all(&mut client, 0, 300).await, expected(0, 300));
    produce(&mut client, 300, 30).await;
    wait_for_local_start(&broker, 550).await;
    assert_eq!(read_all(&mut client, 0, 600).await, expected(0, 600));

    let request = DeleteTopicsRequest {
        topic_names: vec!["tiered".into()],
        timeout_ms: 5_000,
        ..Default::default()
    };
    let answer = client.ask(5, &request).await;
    assert_eq!(answer.responses[0].error_code, 0);
    wait_until("the store keeps files", || {
        stored_files(store.path()).is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retention_moves_the_start_of_the_log_and_empties_the_store() {
    let mut settings = SETTINGS.to_vec();
    // Of either tier.
    settings.push(("retention.bytes", "8000"));
    let (store, _broker, mut client) = with_topic(1, &settings).await;
    produce(&mut client, 0, 60).await;
    let began = Instant::now();
    let (start, _) = loop {
        let listed = list(&mut client, -2).await;
        // The last that moves it: the log's 20 segments have 30 records each, and what is left is more than
        // 8,000 bytes.
        if listed.0 >= 400 {
            break listed;
        }
        assert!(began.elapsed() < PATIENCE, "the log starts at {}", listed.0);
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(
        read_all(&mut client, start, 600).await,
        expected(start, 600)
    );
    let response = client.ask(12, &fetch_from("tiered", 0, 0)).await;
    // OFFSET_OUT_OF_RANGE
    assert_eq!(response.responses[0].partitions[0].error_code, 1);
    wait_until("remote segments stay", || stored_logs(store.path()) <= 5).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_fetch_reads_several_remote_partitions() {
    let (_store, broker, mut client) = with_topic(2, &SETTINGS).await;
    for index in [0, 1] {
        produce_in(&mut client, index, 0, 20).await;
        let reader = broker.partition("tiered", index).reader().clone();
        wait_until("the segments stay", || {
            reader.local_log_start_offset() >= Offset(100)
        })
        .await;
    }
    let mut request = fetch_from("tiered", 0, 0);
    let asked = &mut request.topics[0].partitions;
    asked[0].partition_max_bytes = 1500;
    let mut second = asked[0].clone();
    second.partition = 1;
    second.fetch_offset = 50;
    asked.push(second);
    let response = client.ask(12, &request).await;
    let found = response.responses[0].partitions.iter();
    let first_batches = found.map(|partition| {
        assert_eq!(partition.error_code, 0);
        let Some(Records::Bytes(bytes)) = &partition.records else {
            panic!("partition {} has no records", partition.partition_index);
        };
        let batch = RecordBatch::read_all(bytes.clone()).next();
        let batch = batch.expect("a batch").expect("a whole batch");
        (partition.partition_index, batch.header.next_offset().0)
    });
    let first_batches: Vec<_> = first_batches.collect();
    assert_eq!(first_batches, [(0, 10), (1, 60)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tiering_that_ends_with_deletion_leaves_the_local_log_and_may_begin_again() {
    let (store, broker, mut client) = with_topic(1, &SETTINGS).await;
    produce(&mut client, 0, 20).await;
    wait_for_local_start(&broker, 150).await;
    let reader = broker.partition("tiered", 0).reader().clone();
    let local = reader.local_log_start_offset().0;
    let disabled = [
        ("remote.log.delete.on.disable", "true"),
        ("remote.storage.enable", "false"),
    ];
    set(&broker, &disabled).await;
    wait_until("the store keeps files", || {
        stored_files(store.path()).is_empty()
    })
    .await;
    assert_eq!(list(&mut client, -2).await.0, local);
    let response = client.ask(12, &fetch_from("tiered", 0, local - 1)).await;
    // OFFSET_OUT_OF_RANGE
    assert_eq!(response.responses[0].partitions[0].error_code, 1);
    assert_eq!(
        read_all(&mut client, local, 200).await,
        expected(local, 200)
    );

    set(&broker, &[("remote.storage.enable", "true")]).await;
    produce(&mut client, 200, 20).await;
    wait_for_local_start(&broker, 350).await;
    assert_eq!(list(&mut client, -2).await.0, local);
    assert_eq!(
        read_all(&mut client, local, 400).await,
        expected(local, 400)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_copying_is_disabled_remote_segments_are_read_and_expire() {
    let (store, broker, mut client) = with_topic(1, &SETTINGS).await;
    produce(&mut client, 0, 20).await;
    wait_for_local_start(&broker, 150).await;
    let disabled = [
        ("remote.log.copy.disable", "true"),
        ("local.retention.bytes", "-2"),
    ];
    set(&broker, &disabled).await;
    // A copy that had begun ends: nothing is added for longer than the interval of the tasks.
    let mut copied = stored_logs(store.path());
    loop {
        tokio::time::sleep(Duration::from_millis(1000)).await;
        let now = stored_logs(store.path());
        if now == copied {
            break;
        }
        copied = now;
    }
    produce(&mut client, 200, 20).await;
    tokio::time::sleep(Duration::from_millis(1000)).await;
    assert_eq!(stored_logs(store.path()), copied);
    assert_eq!(read_all(&mut client, 0, 400).await, expected(0, 400));

    // The retention of the log counts for local segments too, and the log starts after them.
    set(&broker, &[("retention.bytes", "4000")]).await;
    wait_until("remote segments stay", || stored_logs(store.path()) == 0).await;
    let reader = broker.partition("tiered", 0).reader().clone();
    wait_until("local segments stay", || {
        reader.log_start_offset() > Offset(200)
    })
    .await;
    let (start, _) = list(&mut client, -2).await;
    assert_eq!(
        read_all(&mut client, start, 400).await,
        expected(start, 400)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quotas_delay_copies_and_leave_responses_empty() {
    let store = tempfile::tempdir().expect("a directory");
    let mut all = settings(store.path());
    all.extend([
        ("remote.log.manager.copy.max.bytes.per.second", "1"),
        ("remote.log.manager.copy.quota.window.num", "60"),
        ("remote.log.manager.fetch.max.bytes.per.second", "1"),
        ("remote.log.manager.fetch.quota.window.num", "60"),
        ("remote.fetch.max.wait.ms", "500"),
    ]);
    let broker = TestBroker::start_with(&all).await;
    broker.create_topic("tiered", 1, &SETTINGS).await;
    let mut client = broker.connect().await;
    produce(&mut client, 0, 20).await;
    let reader = broker.partition("tiered", 0).reader().clone();
    wait_until("the first segment stays", || {
        reader.local_log_start_offset() > Offset(0)
    })
    .await;
    // Four segments are closed. The first one uses up the quota for a minute.
    tokio::time::sleep(Duration::from_millis(1000)).await;
    assert_eq!(stored_logs(store.path()), 1);

    let began = Instant::now();
    while !gets_records(&mut client).await {
        assert!(began.elapsed() < PATIENCE, "nothing is read");
    }
    assert!(!gets_records(&mut client).await);
    let remote_logs = broker.broker().remote_logs().expect("it is tiered");
    for time in remote_logs.throttle_times() {
        assert!(time.max > 0.0 && time.average <= time.max, "{time:?}");
    }
}

/// Whether a fetch from offset 0 is answered with records.
async fn gets_records(client: &mut Client) -> bool {
    let response = client.ask(12, &fetch_from("tiered", 0, 0)).await;
    let partition = &response.responses[0].partitions[0];
    assert_eq!(partition.error_code, 0);
    let records = partition.records.as_ref();
    records.is_some_and(|records| !records.is_empty())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_store_delays_only_deletion() {
    let (store, broker, mut client) = with_topic(1, &SETTINGS).await;
    // A file in the place of the store's directory.
    let root = store.path().join("kafka-tiered-storage");
    std::fs::remove_dir(&root).expect("it is empty");
    std::fs::write(&root, b"").expect("a file");
    produce(&mut client, 0, 20).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let reader = broker.partition("tiered", 0).reader().clone();
    assert_eq!(reader.local_log_start_offset(), Offset(0));
    assert_eq!(read_all(&mut client, 0, 200).await, expected(0, 200));
    std::fs::remove_file(&root).expect("the file goes");
    std::fs::create_dir(&root).expect("the store is there again");
    wait_for_local_start(&broker, 150).await;
    assert_eq!(read_all(&mut client, 0, 200).await, expected(0, 200));
    // Objects that are gone are an error after which clients try again.
    std::fs::remove_dir_all(&root).expect("the store goes");
    let response = client.ask(12, &fetch_from("tiered", 0, 0)).await;
    // KAFKA_STORAGE_ERROR
    assert_eq!(response.responses[0].partitions[0].error_code, 56);
    assert_eq!(response.responses[0].partitions[0].log_start_offset, -1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_moves_to_another_directory_without_its_remote_segments() {
    let (store, data) = (tempfile::tempdir(), tempfile::tempdir());
    let (store, data) = (store.expect("a directory"), data.expect("a directory"));
    let dirs = ["first", "second"].map(|name| data.path().join(name).display().to_string());
    let dirs = dirs.join(",");
    let mut all = settings(store.path());
    all.push(("log.dirs", &*dirs));
    let broker = TestBroker::start_with(&all).await;
    broker.create_topic("tiered", 1, &SETTINGS).await;
    let mut client = broker.connect().await;
    produce(&mut client, 0, 20).await;
    wait_for_local_start(&broker, 150).await;
    let directory = || {
        let dir = broker.partition("tiered", 0).reader().dir();
        dir.parent().expect("a log directory").to_owned()
    };
    let from = directory();
    let node = Arc::clone(broker.broker());
    let others = node.log_dirs().expect("directories").describe();
    let mut others = others.into_iter().map(|dir| dir.path);
    let to = others.find(|path| *path != from).expect("another one");
    let (path, moved) = (to.display().to_string(), TopicPartition::new("tiered", 0));
    let altering = move || node.directory_moves.alter_replica_log_dir(&moved, &path);
    let altered = tokio::task::spawn_blocking(altering).await;
    assert_eq!(altered.expect("no panic"), Ok(()));
    wait_until("the replica is moved", || directory() == to).await;
    assert_eq!(list(&mut client, -2).await.0, 0);
    assert_eq!(read_all(&mut client, 0, 200).await, expected(0, 200));
    // Copying and local retention continue.
    produce(&mut client, 200, 10).await;
    wait_for_local_start(&broker, 250).await;
    assert_eq!(read_all(&mut client, 0, 300).await, expected(0, 300));
}

/// A broker whose topic of share groups has 30 records, the first 20 of them only in this store.
async fn for_share_groups(store: &Path) -> (TestBroker, Client) {
    let (broker, mut client) = share_groups::broker_with(&settings(store), &SETTINGS).await;
    for offset in 0..30 {
        // Five batches to a segment.
        share_groups::produce(&mut client, &[&format!("{offset:0300}")]).await;
    }
    let reader = broker.partition("t", 0).reader().clone();
    wait_until("the segments stay", || {
        reader.local_log_start_offset() >= Offset(20)
    })
    .await;
    (broker, client)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_share_group_acquires_remote_records() {
    let store = tempfile::tempdir().expect("a directory");
    let (_broker, mut client) = for_share_groups(store.path()).await;
    let began = Instant::now();
    let (mut epoch, mut next) = (0, 0);
    while next < 30 {
        assert!(began.elapsed() < PATIENCE, "stuck at offset {next}");
        let request = share_groups::fetching("m1", epoch, &[]);
        let fetched = share_groups::fetch(&mut client, &request).await;
        epoch += 1;
        let acquired = share_groups::acquired(&fetched);
        for (first, last, delivery_count) in &acquired {
            assert_eq!((*first, *delivery_count), (next, 1));
            next = last + 1;
        }
        if acquired.is_empty() {
            continue;
        }
        let Some(Records::Bytes(bytes)) = fetched.records else {
            panic!("acquired without records");
        };
        let batches = RecordBatch::read_all(bytes);
        let last = batches.last().expect("a batch").expect("a whole batch");
        last.verify_crc().expect("the checksum");
        assert_eq!(last.header.next_offset(), Offset(next));
    }
}

/// The broker cannot know whether the object comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_share_group_stands_still_at_a_lost_object_until_it_is_back() {
    let store = tempfile::tempdir().expect("a directory");
    let (broker, mut client) = for_share_groups(store.path()).await;
    let object = first_object(store.path());
    let aside = store.path().join("aside");
    std::fs::rename(&object, &aside).expect("it is there");
    let failed = || {
        let remote_logs = broker.broker().remote_logs().expect("it is tiered");
        remote_logs.numbers().0.counts[TierCounter::FetchErrors as usize]
    };
    let before = failed();
    let request = share_groups::fetching("m1", 0, &[]);
    let fetched = share_groups::fetch(&mut client, &request).await;
    assert_eq!(fetched.error_code, ErrorCode::KafkaStorageError.code());
    assert!(fetched.acquired_records.is_empty());
    assert!(failed() > before);
    std::fs::rename(&aside, &object).expect("it is back");
    let request = share_groups::fetching("m1", 1, &[]);
    let fetched = share_groups::fetch(&mut client, &request).await;
    assert_eq!(share_groups::acquired(&fetched)[0].0, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_share_group_starts_by_time_at_a_remote_record() {
    let store = tempfile::tempdir().expect("a directory");
    let (broker, mut client) = for_share_groups(store.path()).await;
    let (key, group) = ("share.auto.offset.reset", ConfigResource::group("g"));
    let all_that_is_younger = MetadataRecord::Config(ConfigRecord {
        resource_type: 32,
        resource_name: "g".into(),
        name: key.into(),
        value: Some("by_duration:P9999D".into()),
        ..Default::default()
    });
    broker.write(vec![all_that_is_younger]).await;
    wait_until("the group has no setting", || {
        broker
            .broker()
            .metadata()
            .configs
            .value(&group, key)
            .is_some()
    })
    .await;
    share_groups::initialize_at(&mut client, 2, -1).await;
    let request = share_groups::fetching("m1", 0, &[]);
    let fetched = share_groups::fetch(&mut client, &request).await;
    assert_eq!(share_groups::acquired(&fetched)[0].0, 0);
}

fn replica(node: &RunningBroker) -> Arc<Partition> {
    let found = node.broker().partitions.get("tiered", 0);
    found.expect("each has a replica")
}

async fn connect(node: &RunningBroker) -> Client {
    let mut listeners = node.listeners().iter();
    let found = listeners.find(|it| Endpoint::of(it) == Endpoint::Broker);
    Client::connect(found.expect("it is a broker").local_addr).await
}

/// The index of the node that leads the partition now.
async fn leader(quorum: &Quorum) -> usize {
    let began = Instant::now();
    loop {
        let mut running = quorum.running();
        if let Some((index, _)) = running.find(|(_, node)| {
            let found = node.broker().partitions.get("tiered", 0);
            found.is_some_and(|partition| partition.is_leader())
        }) {
            return index;
        }
        assert!(began.elapsed() < PATIENCE, "the partition has no leader");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_returning_follower_continues_after_the_tiered_offsets_and_may_lead() {
    let store = tempfile::tempdir().expect("a directory");
    let listener = "PLAINTEXT://127.0.0.1:0,";
    let mut settings = settings(store.path());
    settings.push((
        "rlmm.config.remote.log.metadata.topic.replication.factor",
        "3",
    ));
    let mut quorum = Quorum::start_as("broker,controller", listener, &settings).await;
    let (_, first) = quorum.running().next().expect("one runs");
    let request = creation_with("tiered", 1, 3, &SETTINGS);
    let answer = connect(first).await.ask(7, &request).await;
    assert_eq!(answer.topics[0].error_code, 0, "{:?}", answer.topics[0]);

    let led_by = leader(&quorum).await;
    let node = quorum.nodes[led_by].as_ref().expect("it runs");
    let mut client = connect(node).await;
    produce(&mut client, 0, 10).await;
    for (index, node) in quorum.running() {
        let replica = replica(node);
        wait_until(&format!("node {index} keeps its segments"), || {
            replica.reader().local_log_start_offset() >= Offset(60)
        })
        .await;
        assert_eq!(replica.reader().log_start_offset(), Offset(0));
    }

    // A follower misses records that then are only in remote storage.
    let away = (led_by + 1) % 3;
    quorum.nodes[away].take().expect("it runs").stop().await;
    produce(&mut client, 100, 20).await;
    let leading = replica(quorum.nodes[led_by].as_ref().expect("it runs"));
    wait_until("the leader keeps its segments", || {
        leading.reader().local_log_start_offset() >= Offset(250)
    })
    .await;
    quorum.restart(away).await;
    let back = replica(quorum.nodes[away].as_ref().expect("it runs"));
    wait_until("the follower does not catch up", || {
        back.reader().log_end_offset() == Offset(300)
    })
    .await;
    assert_eq!(back.reader().log_start_offset(), Offset(0));
    assert!(back.reader().local_log_start_offset() >= Offset(250));
    let epochs = |partition: &Partition| partition.reader().leader_epochs().entries().to_vec();
    assert_eq!(epochs(&back)[0], epochs(&leading)[0]);

    // It leads, when no other is left that could.
    let other = (led_by + 2) % 3;
    produce(&mut client, 300, 5).await;
    wait_until("the follower is behind", || {
        back.reader().log_end_offset() == Offset(350)
    })
    .await;
    quorum.nodes[other].take().expect("it runs").stop().await;
    quorum.restart(other).await;
    quorum.nodes[led_by].take().expect("it runs").stop().await;
    let led_by = leader(&quorum).await;
    let node = quorum.nodes[led_by].as_ref().expect("it runs");
    let mut client = connect(node).await;
    wait_until("the metadata is not read", || {
        replica(node).reader().highest_remote_offset() >= Offset(250)
    })
    .await;
    assert_eq!(read_all(&mut client, 0, 350).await, expected(0, 350));
    produce(&mut client, 350, 20).await;
    wait_until("the new leader does not copy", || {
        replica(node).reader().local_log_start_offset() >= Offset(500)
    })
    .await;
    assert_eq!(read_all(&mut client, 0, 550).await, expected(0, 550));
    assert_uploaded_once(&stored_files(store.path()));
}
