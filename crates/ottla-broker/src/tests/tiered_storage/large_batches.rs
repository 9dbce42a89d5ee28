//! Batches in remote storage that are larger than what a consumer asks for, and consumers that ask for
//! more than there is memory for.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::Records;
use ottla_protocol::messages::fetch_request::FetchPartition;
use ottla_protocol::messages::{FetchRequest, FetchResponse};
use ottla_records::{Compression, RecordBatchBuilder};
use ottla_testkit::fault_server::{FaultKind, FaultServer};
use ottla_types::{Offset, Timestamp};

use super::super::produce_and_fetch::{fetch_from, produce_to};
use super::super::{Client, TestBroker};
use super::cancelled_reads::Unanswering;
use super::{
    FIRST_TIMESTAMP, PATIENCE, list, settings, settings_with, stored_files, wait_for_local_start,
    wait_until,
};

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
    append(client, partition, 2, 1, value_bytes).await
}

/// Appends batches with so many records of this size. Returns the size of a batch.
async fn append(
    client: &mut Client,
    partition: i32,
    batches: i64,
    records_of_batch: i64,
    value_bytes: usize,
) -> usize {
    let value = vec![7; value_bytes];
    let mut size = 0;
    for batch in 0..batches {
        let base_offset = batch * records_of_batch;
        let mut builder = RecordBatchBuilder::new(Compression::None);
        for offset in base_offset..base_offset + records_of_batch {
            let timestamp = Timestamp(FIRST_TIMESTAMP + offset);
            builder.append(timestamp, None, Some(value.as_slice()), &[]);
        }
        let records = builder.build().to_bytes();
        size = records.len();
        let request = produce_to("tiered", partition, -1, records);
        let produced = client.ask(9, &request).await;
        let partition = &produced.responses[0].partition_responses[0];
        let appended = (partition.error_code, partition.base_offset);
        assert_eq!(appended, (0, base_offset));
    }
    size
}

/// Two batches of this size, the first in remote storage, where each read of a log takes 1.5 s.
async fn with_large_batches(
    settings: &[(&'static str, &'static str)],
) -> (FaultServer, TestBroker, Client, usize) {
    let server = FaultServer::start().await;
    let broker = {
        let mut all = settings_with(&server.s3_settings());
        all.push(("remote.fetch.max.wait.ms", "60000"));
        all.extend_from_slice(settings);
        TestBroker::start_with(&all).await
    };
    broker.create_topic("tiered", 1, &SETTINGS).await;
    let mut client = broker.connect().await;
    let size = append_two(&mut client, 0, 3_000_000).await;
    wait_for_local_start(&broker, 1).await;
    let slow = FaultKind::Slow(Duration::from_millis(1500));
    server.fail(".log bytes=", usize::MAX, slow);
    (server, broker, client, size)
}

/// The bytes of logs that were requested since the last call, in this order.
fn requested_ranges(server: &FaultServer) -> Vec<Range<u64>> {
    let mut ranges = Vec::new();
    for request in server.requests() {
        if let Some((_, range)) = request.split_once(".log bytes=") {
            let (first, last) = range.split_once('-').expect("a range");
            let position = |digits: &str| digits.parse::<u64>().expect("a position");
            ranges.push(position(first)..position(last) + 1);
        }
    }
    ranges
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

const PARTITIONS: i32 = 12;

/// Memory for eight reads, and twelve partitions that each have a batch of the size of a read in remote
/// storage.
async fn with_little_memory(
    more: &[(&'static str, &'static str)],
) -> (tempfile::TempDir, TestBroker, Client) {
    let store = tempfile::tempdir().expect("a directory");
    let broker = {
        let mut all = settings(store.path());
        all.push(("ottla.memory.max.bytes", "268435456"));
        all.extend_from_slice(more);
        TestBroker::start_with(&all).await
    };
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
    let remote_logs = broker.broker().remote_logs().expect("it is tiered");
    assert_eq!(remote_logs.available_read_bytes(), 8 << 20);
    (store, broker, client)
}

/// A fetch of these partitions from offset 0, which may return a MiB of each.
fn fetch_all(partitions: Range<i32>) -> FetchRequest {
    let mut request = fetch_from("tiered", 0, 0);
    request.max_bytes = 16 << 20;
    let first = request.topics[0].partitions[0].clone();
    let of = |partition| FetchPartition {
        partition,
        ..first.clone()
    };
    request.topics[0].partitions = partitions.map(of).collect();
    request
}

/// How many partitions have records.
fn with_records(response: &FetchResponse) -> usize {
    let partitions = &response.responses[0].partitions;
    assert!(partitions.iter().all(|it| it.error_code == 0));
    let lengths = partitions
        .iter()
        .map(|it| it.records.as_ref().map_or(0, Records::len));
    lengths.filter(|length| *length > 0).count()
}

/// The log of the only segment of the first partition.
fn object_of_first_partition(store: &Path) -> PathBuf {
    let mut files = stored_files(store).into_iter();
    let is_of_it = |name: &String| name.contains("/tiered-0-") && name.ends_with(".log");
    PathBuf::from(files.find(is_of_it).expect("it is there"))
}

/// Clients that wait for the first partition, whose object is a pipe. Each holds the memory of a read.
async fn hold_memory(broker: &TestBroker, reads: usize) -> Vec<Client> {
    let mut clients = Vec::new();
    for _ in 0..reads {
        let mut client = broker.connect().await;
        client.send(12, &fetch_all(0..1)).await;
        clients.push(client);
    }
    let remote_logs = broker.broker().remote_logs().expect("it is tiered");
    wait_until("the reads do not begin", || {
        remote_logs.available_read_bytes() == (8 - reads) << 20
    })
    .await;
    clients
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_response_takes_at_most_half_of_the_memory() {
    let (_store, broker, mut client) = with_little_memory(&[]).await;
    let response = client.ask(12, &fetch_all(0..PARTITIONS)).await;
    assert_eq!(with_records(&response), 4);
    let remote_logs = broker.broker().remote_logs().expect("it is tiered");
    assert_eq!(remote_logs.expired_fetches(), 0);
}

/// Otherwise responses that each hold a part of the memory would wait for each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_response_that_holds_memory_does_not_wait_for_more() {
    let hour = [("remote.fetch.max.wait.ms", "3600000")];
    let (store, broker, mut client) = with_little_memory(&hour).await;
    let unanswering = Unanswering::instead_of(object_of_first_partition(store.path()));
    let holders = hold_memory(&broker, 5).await;
    let request = fetch_all(1..PARTITIONS);
    let response = tokio::time::timeout(PATIENCE, client.ask(12, &request)).await;
    let response = response.expect("it waits while it holds memory");
    assert_eq!(with_records(&response), 3);
    drop(holders);
    drop(unanswering);
}

/// Otherwise reads that have memory would wait for the turns of those that wait for memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_that_waits_for_memory_has_no_turn() {
    let hour = [("remote.fetch.max.wait.ms", "3600000")];
    let (store, broker, _client) = with_little_memory(&hour).await;
    let remote_logs = Arc::clone(broker.broker().remote_logs().expect("it is tiered"));
    let unanswering = Unanswering::instead_of(object_of_first_partition(store.path()));
    let holders = hold_memory(&broker, 8).await;
    let mut waiting = Vec::new();
    for _ in 0..3 {
        let mut client = broker.connect().await;
        let sent = client.send(12, &fetch_all(1..2)).await;
        waiting.push((client, sent));
    }
    // Two less than there are, because that many turns are free.
    let all_wait = || remote_logs.waiting_reads() == 1;
    wait_until("the reads do not wait", all_wait).await;
    // Until they would have taken a turn.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(all_wait());
    assert!(remote_logs.idle_readers() > 0.1, "two of ten are free");
    drop(holders);
    for (mut client, sent) in waiting {
        let response = client.receive::<FetchRequest>(12, sent);
        let response = tokio::time::timeout(PATIENCE, response).await;
        assert_eq!(with_records(&response.expect("there is memory")), 1);
    }
    drop(unanswering);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_batch_is_read_from_its_own_position() {
    let server = FaultServer::start().await;
    let broker = TestBroker::start_with(&settings_with(&server.s3_settings())).await;
    let mut settings = SETTINGS;
    settings[1] = ("internal.segment.bytes", "8000000");
    broker.create_topic("tiered", 1, &settings).await;
    let mut client = broker.connect().await;
    // Two batches are in the first segment. The index has no entry for the first offset of the second.
    let size = append(&mut client, 0, 3, 2, 1_500_000).await as u64;
    wait_for_local_start(&broker, 4).await;
    server.requests();
    let mut request = fetch_from("tiered", 0, 2);
    request.topics[0].partitions[0].partition_max_bytes = 1500;
    assert_eq!(length(&client.ask(12, &request).await), size);
    let ranges = requested_ranges(&server);
    let before = |position: u64| position.min(size);
    let skipped = ranges
        .iter()
        .map(|range| before(range.end) - before(range.start));
    assert_eq!(skipped.sum::<u64>(), size, "{ranges:?}");
}

/// Otherwise it would wait twice for all the reads that wait for their turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_batch_is_read_in_one_turn() {
    let settings = [
        ("remote.log.reader.threads", "1"),
        ("remote.fetch.max.wait.ms", "3600000"),
    ];
    let (server, broker, mut client, size) = with_large_batches(&settings).await;
    let remote_logs = Arc::clone(broker.broker().remote_logs().expect("it is tiered"));
    let mut other = broker.connect().await;
    let mut request = fetch_from("tiered", 0, 0);
    request.topics[0].partitions[0].partition_max_bytes = 1500;
    server.requests();
    let first = client.send(12, &request).await;
    let reads = || remote_logs.idle_readers() <= 0.0;
    wait_until("the first does not read", reads).await;
    let second = other.send(12, &request).await;
    let responses = tokio::join!(
        client.receive::<FetchRequest>(12, first),
        other.receive::<FetchRequest>(12, second)
    );
    let lengths = [length(&responses.0), length(&responses.1)];
    assert_eq!(lengths, [size as u64; 2]);
    // Each reads the start of the batch, and then the batch.
    let ranges = requested_ranges(&server).into_iter();
    let of_start = ranges.filter(|range| range.start == 0);
    let ends: Vec<u64> = of_start.map(|range| range.end).collect();
    assert!(ends[0] < ends[1], "{ends:?}");
    assert_eq!(ends, [ends[0], ends[1], ends[0], ends[1]]);
}
