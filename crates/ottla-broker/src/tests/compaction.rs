//! Compacted topics while they are written to, read and deleted.

use std::time::{Duration, Instant};

use bytes::Bytes;
use ottla_log::checkpoint::{CLEANER_OFFSET_CHECKPOINT, OffsetCheckpoint};
use ottla_protocol::Records;
use ottla_records::{Compression, RecordBatch, RecordBatchBuilder};
use ottla_types::{Offset, Timestamp, TopicPartition};

use super::TestBroker;
use super::client::Client;
use super::produce_and_fetch::{fetch_from, produce_to};
use crate::metrics::CleanerGauge;

const NOW: i64 = 1_700_000_000_000;

/// One record in a batch of its own, whose time begins a new segment with `segment.ms=1000`.
fn keyed(n: i64, key: &str, value: &str) -> Bytes {
    let mut builder = RecordBatchBuilder::new(Compression::None);
    let at = Timestamp(NOW + n * 10_000);
    builder.append(at, Some(key.as_bytes()), Some(value.as_bytes()), &[]);
    builder.build().to_bytes()
}

/// Offset, key and value of all records, one segment after the other.
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

/// Compacts whatever is dirty; every record of these tests begins a segment.
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
    // The newest record of a key lies in the active segment, and the older stays.
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
    let metrics = &broker.broker().metrics.cleaner;
    assert_eq!(metrics.get(CleanerGauge::DeadThreadCount), 0);
    assert_eq!(metrics.get(CleanerGauge::UncleanablePartitionsCount), 0);
    // One that is paused is left alone, and goes on when it is resumed.
    let log_dirs = broker.broker().log_dirs().unwrap().clone();
    let (dirs, partition) = (log_dirs.clone(), orders.clone());
    let pause = move || dirs.pause_cleaning(&partition);
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
async fn what_cannot_be_cleaned_is_given_up_and_the_rest_goes_on() {
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
    // The number of records is not that of those which are there.
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
        .set_config(broker.broker(), config.into());
    let metrics = &broker.broker().metrics.cleaner;
    let deadline = Instant::now() + Duration::from_secs(30);
    while metrics.get(CleanerGauge::UncleanablePartitionsCount) != 1 {
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
