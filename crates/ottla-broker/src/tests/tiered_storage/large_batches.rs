//! Batches in remote storage that are larger than what a consumer asks for, and consumers that ask for
//! more than there is memory for.

use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::Records;
use ottla_protocol::messages::FetchResponse;
use ottla_protocol::messages::fetch_request::FetchPartition;
use ottla_records::{Compression, RecordBatchBuilder};
use ottla_testkit::fault_server::{FaultKind, FaultServer};
use ottla_types::{Offset, Timestamp};

use super::super::produce_and_fetch::{fetch_from, produce_to};
use super::super::{Client, TestBroker};
use super::{FIRST_TIMESTAMP, list, settings, settings_with, wait_for_local_start, wait_until};

/// A segment for each batch.
const SETTINGS: [(&str, &str); 6] = [
    ("remote.storage.enable", "true"),
    ("internal.segment.bytes", "4000000"),
    ("max.message.bytes", "4000000"),
    ("local.retention.bytes", "1"),
    ("retention.ms", "-1"),
    ("file.delete.delay.ms", "0"),
];

/// Appends two batches with a record of this size. Returns the size of a batch.
async fn append_two(client: &mut Client, partition: i32, value_bytes: usize) -> usize {
    let value = vec![7; value_bytes];
    let mut size = 0;
    for offset in 0..2 {
        let mut builder = RecordBatchBuilder::new(Compression::None);
        let timestamp = Timestamp(FIRST_TIMESTAMP + offset);
        builder.append(timestamp, None, Some(value.as_slice()), &[]);
        let records = builder.build().to_bytes();
        size = records.len();
        let request = produce_to("tiered", partition, -1, records);
        let produced = client.ask(9, &request).await;
        let partition = &produced.responses[0].partition_responses[0];
        assert_eq!((partition.error_code, partition.base_offset), (0, offset));
    }
    size
}

/// Two batches of this size, the first in remote storage, where each read of a log takes 700 ms.
async fn with_large_batches(
    settings: &[(&'static str, &'static str)],
) -> (FaultServer, TestBroker, Client, usize) {
    let server = FaultServer::start().await;
    let broker = {
        let mut all = settings_with(&server.s3_settings());
        all.extend_from_slice(settings);
        TestBroker::start_with(&all).await
    };
    broker.create_topic("tiered", 1, &SETTINGS).await;
    let mut client = broker.connect().await;
    let size = append_two(&mut client, 0, 3_000_000).await;
    wait_for_local_start(&broker, 1).await;
    let slow = FaultKind::Slow(Duration::from_millis(700));
    server.fail(".log bytes=", usize::MAX, slow);
    (server, broker, client, size)
}

/// The size of the records of the only partition.
fn length(response: &FetchResponse) -> u64 {
    let partition = &response.responses[0].partitions[0];
    assert_eq!(partition.error_code, 0);
    partition.records.as_ref().map_or(0, Records::len)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_batch_takes_its_size_of_the_memory_for_remote_reads() {
    let (_server, broker, mut client, size) = with_large_batches(&[]).await;
    let remote_logs = Arc::clone(broker.broker().remote_logs().expect("it is tiered"));
    let budget = remote_logs.available_read_bytes();
    assert!(budget > 2 * size, "both batches have room");
    let mut request = fetch_from("tiered", 0, 0);
    request.topics[0].partitions[0].partition_max_bytes = 1500;
    let mut other = broker.connect().await;
    let counted = wait_until("the batches do not count", || {
        budget - remote_logs.available_read_bytes() >= 2 * size
    });
    let responses = tokio::join!(client.ask(12, &request), other.ask(12, &request), counted);
    let lengths = [length(&responses.0), length(&responses.1)];
    assert_eq!(lengths, [size as u64; 2]);
    let is_free = || remote_logs.available_read_bytes() == budget;
    wait_until("the memory of a response is kept", is_free).await;

    // So does a batch that a search by time reads.
    let counted = wait_until("the batch does not count", || {
        budget - remote_logs.available_read_bytes() >= size
    });
    let ((found, _), ()) = tokio::join!(list(&mut client, FIRST_TIMESTAMP), counted);
    assert_eq!(found, 0);
    wait_until("a search keeps memory", is_free).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_that_asks_for_more_than_all_memory_leaves_some_to_others() {
    let settings = [
        ("ottla.memory.max.bytes", "8589934592"),
        ("fetch.max.bytes", "2147483647"),
    ];
    let (_server, broker, mut client, size) = with_large_batches(&settings).await;
    let remote_logs = Arc::clone(broker.broker().remote_logs().expect("it is tiered"));
    let budget = remote_logs.available_read_bytes();
    assert!(budget < i32::MAX as usize, "{budget}");
    let mut request = fetch_from("tiered", 0, 0);
    request.max_bytes = i32::MAX;
    request.topics[0].partitions[0].partition_max_bytes = i32::MAX;
    let mut other = broker.connect().await;
    // Both are read at the same time.
    let counted = wait_until("one read takes all, and the other waits for it", || {
        let taken = budget - remote_logs.available_read_bytes();
        taken > budget / 5 && taken < budget / 2
    });
    let responses = tokio::join!(client.ask(12, &request), other.ask(12, &request), counted);
    let lengths = [length(&responses.0), length(&responses.1)];
    assert_eq!(lengths, [size as u64; 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_response_does_not_wait_for_memory_that_it_holds() {
    const PARTITIONS: i32 = 12;
    let store = tempfile::tempdir().expect("a directory");
    let mut all = settings(store.path());
    all.push(("ottla.memory.max.bytes", "268435456"));
    let broker = TestBroker::start_with(&all).await;
    let mut small = SETTINGS;
    small[1] = ("internal.segment.bytes", "1000000");
    broker.create_topic("tiered", PARTITIONS, &small).await;
    let mut client = broker.connect().await;
    for partition in 0..PARTITIONS {
        append_two(&mut client, partition, 900_000).await;
    }
    let is_remote = |index| {
        let partition = broker.partition("tiered", index);
        partition.reader().local_log_start_offset() >= Offset(1)
    };
    let all_are = || (0..PARTITIONS).all(is_remote);
    wait_until("a segment is only local", all_are).await;

    let remote_logs = Arc::clone(broker.broker().remote_logs().expect("it is tiered"));
    assert_eq!(remote_logs.available_read_bytes(), 8 << 20);
    let mut request = fetch_from("tiered", 0, 0);
    request.max_bytes = 16 << 20;
    let first = request.topics[0].partitions[0].clone();
    let of = |partition| FetchPartition {
        partition,
        ..first.clone()
    };
    request.topics[0].partitions = (0..PARTITIONS).map(of).collect();
    let response = client.ask(12, &request).await;
    let partitions = &response.responses[0].partitions;
    assert!(partitions.iter().all(|it| it.error_code == 0));
    let lengths = partitions
        .iter()
        .map(|it| it.records.as_ref().map_or(0, Records::len));
    // Each read may take 1 MiB, and all of them half of the memory.
    assert_eq!(lengths.filter(|length| *length > 0).count(), 4);
    assert_eq!(remote_logs.expired_fetches(), 0);
}
