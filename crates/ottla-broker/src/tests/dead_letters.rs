//! Dead-letter queues of share groups (KIP-1191): rejected records are written to the topic that the
//! group names, and archived, also if they cannot be written.

use std::time::{Duration, Instant};

use ottla_coordination::share_groups::{DeadLetterCounts, GroupSettings};
use ottla_protocol::Records;
use ottla_protocol::messages::DeleteRecordsRequest;
use ottla_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use ottla_protocol::metadata_records::{ConfigRecord, FeatureLevelRecord, MetadataRecord};
use ottla_records::{Compression, Record, RecordBatch, RecordBatchBuilder};
use ottla_types::{ErrorCode, Offset, Timestamp};

use super::client::Client;
use super::produce_and_fetch::{fetch_from, produce_to};
use super::share_groups::{
    acknowledge, acquired, broker, broker_with, fetch, fetching, persisted_start, produce,
};
use super::{TestBroker, tiered_storage, topic_id};

const PATIENCE: Duration = Duration::from_secs(60);
const ACCEPT: i8 = 1;
const REJECT: i8 = 3;

/// The configuration of group `g`.
fn configs(settings: &[(&'static str, &'static str)]) -> Vec<MetadataRecord> {
    let configs = settings.iter().map(|(key, value)| {
        MetadataRecord::Config(ConfigRecord {
            resource_type: 32,
            resource_name: "g".into(),
            name: (*key).into(),
            value: Some((*value).into()),
            ..Default::default()
        })
    });
    configs.collect()
}

/// Raises `share.version`, and sets the configuration of group `g`.
async fn configure(broker: &TestBroker, settings: &[(&'static str, &'static str)]) {
    let level = MetadataRecord::FeatureLevel(FeatureLevelRecord {
        name: "share.version".into(),
        feature_level: 2,
        ..Default::default()
    });
    let mut records = configs(settings);
    records.push(level);
    broker.write(records).await;
    let deadline = Instant::now() + PATIENCE;
    while broker.broker().metadata().features.level("share.version") < 2 {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Creates the queue of group `g`, with more settings of the topic. Records are copied to it.
async fn start_queue(broker: &TestBroker, more: &[(&'static str, &str)]) {
    let mut of_queue = vec![("errors.deadletterqueue.group.enable", "true")];
    of_queue.extend_from_slice(more);
    broker.create_topic("dlq.t", 1, &of_queue).await;
    let settings = [
        ("errors.deadletterqueue.topic.name", "dlq.t"),
        ("errors.deadletterqueue.copy.record.enable", "true"),
    ];
    configure(broker, &settings).await;
}

/// Waits until the topic exists and has this many records.
pub(super) async fn letters(client: &mut Client, topic: &'static str, count: usize) -> Vec<Record> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut request = fetch_from(topic, 0, 0);
        request.max_wait_ms = 100;
        let response = client.ask(12, &request).await;
        let partition = &response.responses[0].partitions[0];
        let bytes = match &partition.records {
            Some(Records::Bytes(bytes)) => bytes.clone(),
            _ => Default::default(),
        };
        let mut found = Vec::new();
        for batch in RecordBatch::read_all(bytes) {
            let records = batch.expect("a batch").records(1 << 20);
            found.extend(records.expect("records").map(|it| it.expect("a record")));
        }
        if found.len() >= count {
            return found;
        }
        assert!(Instant::now() < deadline, "{topic} has {found:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn headers(letter: &Record) -> Vec<String> {
    let headers = letter.headers.iter();
    headers
        .map(|header| {
            let value = header.value.clone().unwrap_or_default();
            format!("{}={}", header.key_str(), String::from_utf8_lossy(&value))
        })
        .collect()
}

fn counts(broker: &TestBroker) -> DeadLetterCounts {
    let counts = broker
        .broker()
        .share_groups
        .partitions
        .dead_letters()
        .counts();
    counts.get("g").copied().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejected_record_is_copied_to_the_queue_and_archived() {
    let (broker, mut client) = broker(&[]).await;
    start_queue(&broker, &[]).await;
    produce(&mut client, &["a", "b", "c"]).await;
    let fetched = fetch(&mut client, &fetching("m1", 0, &[])).await;
    assert_eq!(acquired(&fetched), [(0, 2, 1)]);
    let rejected = acknowledge(&mut client, "m1", 1, (1, 2, REJECT)).await;
    assert_eq!(rejected, ErrorCode::None);

    let letters = letters(&mut client, "dlq.t", 2).await;
    let values: Vec<_> = letters.iter().map(|it| it.value.as_deref()).collect();
    assert_eq!(values, [Some(&b"b"[..]), Some(&b"c"[..])]);
    let expected = [
        "__dlq.errors.topic=t",
        "__dlq.errors.partition=0",
        "__dlq.errors.offset=1",
        "__dlq.errors.group=g",
        "__dlq.errors.delivery.count=1",
        "__dlq.errors.message=Offset rejected by client.",
    ];
    assert_eq!(headers(&letters[0]), expected);

    // They are not delivered again, and do not hold the start offset.
    let accepted = acknowledge(&mut client, "m1", 2, (0, 0, ACCEPT)).await;
    assert_eq!(accepted, ErrorCode::None);
    produce(&mut client, &["d"]).await;
    let next = fetch(&mut client, &fetching("m1", 3, &[])).await;
    assert_eq!(acquired(&next), [(3, 3, 1)]);
    let expected = DeadLetterCounts {
        records: 2,
        produce_requests: 1,
        failed_produce_requests: 0,
    };
    let deadline = Instant::now() + PATIENCE;
    while counts(&broker) != expected {
        assert!(Instant::now() < deadline, "{:?}", counts(&broker));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Without a queue, there is nothing to count.
    configure(&broker, &[("errors.deadletterqueue.topic.name", "")]).await;
    while counts(&broker) != DeadLetterCounts::default() {
        assert!(Instant::now() < deadline, "{:?}", counts(&broker));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Produces one batch of records with these keys.
async fn produce_with_keys(client: &mut Client, keys: &[Option<&str>]) {
    let mut builder = RecordBatchBuilder::new(Compression::None);
    for key in keys {
        let now = Timestamp(1_700_000_000_000);
        builder.append(now, key.map(str::as_bytes), Some(b"v".as_slice()), &[]);
    }
    let mut request = produce_to("t", 0, -1, builder.build().to_bytes());
    request.topic_data[0].topic_id = topic_id("t");
    let response = client.ask(13, &request).await;
    let answer = &response.responses[0].partition_responses[0];
    assert_eq!(ErrorCode::from_code(answer.error_code), ErrorCode::None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_the_queue_refuses_does_not_affect_others() {
    let (broker, mut client) = broker(&[]).await;
    // A compacted topic takes no record without a key.
    start_queue(&broker, &[("cleanup.policy", "compact")]).await;
    let keys = [Some("a"), Some("b"), None, Some("d"), Some("e")];
    produce_with_keys(&mut client, &keys).await;
    let fetched = fetch(&mut client, &fetching("m1", 0, &[])).await;
    assert_eq!(acquired(&fetched), [(0, 4, 1)]);
    let rejected = acknowledge(&mut client, "m1", 1, (0, 4, REJECT)).await;
    assert_eq!(rejected, ErrorCode::None);
    let letters = letters(&mut client, "dlq.t", 4).await;
    let keys: Vec<_> = letters.iter().map(|it| it.key.as_deref()).collect();
    assert_eq!(keys, [b"a", b"b", b"d", b"e"].map(|key| Some(&key[..])));
    let counts = counts(&broker);
    assert_eq!(counts.failed_produce_requests, 1, "{counts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn originals_are_copied_although_the_first_were_deleted() {
    let (broker, mut client) = broker(&[]).await;
    start_queue(&broker, &[]).await;
    produce(&mut client, &["a"]).await;
    produce(&mut client, &["b"]).await;
    let fetched = fetch(&mut client, &fetching("m1", 0, &[])).await;
    assert_eq!(acquired(&fetched), [(0, 1, 1)]);
    let request = DeleteRecordsRequest {
        topics: vec![DeleteRecordsTopic {
            name: "t".into(),
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
    let deleted = client.ask(2, &request).await;
    assert_eq!(deleted.topics[0].partitions[0].low_watermark, 1);
    let rejected = acknowledge(&mut client, "m1", 1, (0, 1, REJECT)).await;
    assert_eq!(rejected, ErrorCode::None);
    let letters = letters(&mut client, "dlq.t", 2).await;
    let values: Vec<_> = letters.iter().map(|it| it.value.as_deref()).collect();
    assert_eq!(values, [None, Some(&b"b"[..])]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn originals_are_copied_from_remote_storage() {
    let store = tempfile::tempdir().expect("a directory");
    let tiered = tiered_storage::settings(store.path());
    let (broker, mut client) = broker_with(&tiered, &tiered_storage::SETTINGS).await;
    start_queue(&broker, &[]).await;
    let value = |offset: i64| format!("{offset:0300}");
    for offset in 0..30 {
        // Five batches to a segment.
        produce(&mut client, &[&value(offset)]).await;
    }
    let reader = broker.partition("t", 0).reader().clone();
    let deadline = Instant::now() + Duration::from_secs(60);
    while reader.local_log_start_offset() < Offset(20) {
        assert!(Instant::now() < deadline, "the segments stay");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // All records are archived when they are acquired, which takes several reads of remote storage.
    let (mut epoch, mut next) = (0, 0);
    while next < 30 {
        assert!(Instant::now() < deadline, "stuck at offset {next}");
        let fetched = fetch(&mut client, &fetching("m1", epoch, &[])).await;
        epoch += 1;
        for (first, last, _) in acquired(&fetched) {
            let rejected = acknowledge(&mut client, "m1", epoch, (first, last, REJECT)).await;
            assert_eq!(rejected, ErrorCode::None);
            (epoch, next) = (epoch + 1, last + 1);
        }
    }
    let letters = letters(&mut client, "dlq.t", 30).await;
    for (letter, offset) in letters.iter().zip(0..) {
        let expected = value(offset);
        assert_eq!(letter.value.as_deref(), Some(expected.as_bytes()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_is_created_if_permitted() {
    let may_create = ("errors.deadletterqueue.auto.create.topics.enable", "true");
    let (broker, mut client) = broker(&[may_create]).await;
    configure(&broker, &[("errors.deadletterqueue.topic.name", "dlq.new")]).await;
    produce(&mut client, &["a"]).await;
    let fetched = fetch(&mut client, &fetching("m1", 0, &[])).await;
    assert_eq!(acquired(&fetched), [(0, 0, 1)]);
    let rejected = acknowledge(&mut client, "m1", 1, (0, 0, REJECT)).await;
    assert_eq!(rejected, ErrorCode::None);
    let letters = letters(&mut client, "dlq.new", 1).await;
    assert_eq!((&letters[0].key, &letters[0].value), (&None, &None));
    assert_eq!(headers(&letters[0])[2], "__dlq.errors.offset=0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn below_its_feature_level_a_queue_has_no_effect_and_this_is_reported() {
    let (broker, _client) = broker(&[]).await;
    let settings = || GroupSettings::of(&broker.broker().context, "g");
    assert!(!settings().ignores_dead_letter_queue, "there is none");
    let named = [("errors.deadletterqueue.topic.name", "dlq.t")];
    broker.write(configs(&named)).await;
    let deadline = Instant::now() + PATIENCE;
    while !settings().ignores_dead_letter_queue {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(!settings().partition.has_dead_letter_queue);
    configure(&broker, &[]).await;
    assert!(!settings().ignores_dead_letter_queue);
    assert!(settings().partition.has_dead_letter_queue);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_is_archived_although_the_queue_is_missing() {
    let (broker, mut client) = broker(&[]).await;
    configure(&broker, &[("errors.deadletterqueue.topic.name", "dlq.no")]).await;
    produce(&mut client, &["a"]).await;
    let fetched = fetch(&mut client, &fetching("m1", 0, &[])).await;
    assert_eq!(acquired(&fetched), [(0, 0, 1)]);
    let rejected = acknowledge(&mut client, "m1", 1, (0, 0, REJECT)).await;
    assert_eq!(rejected, ErrorCode::None);
    // The start offset passes the record once it is archived, and is persisted by the next write.
    let deadline = Instant::now() + PATIENCE;
    let (mut epoch, mut offset) = (2, 1);
    while persisted_start(&mut client).await == 0 {
        assert!(Instant::now() < deadline);
        produce(&mut client, &["b"]).await;
        let next = fetch(&mut client, &fetching("m1", epoch, &[])).await;
        assert_eq!(acquired(&next), [(offset, offset, 1)]);
        let accepted = (offset, offset, ACCEPT);
        let accepted = acknowledge(&mut client, "m1", epoch + 1, accepted).await;
        assert_eq!(accepted, ErrorCode::None);
        (epoch, offset) = (epoch + 2, offset + 1);
    }
    assert_eq!(counts(&broker), DeadLetterCounts::default());
}
