//! Transactions over the wire: started, committed, aborted, fenced and timed out, in both versions
//! of the protocol, and the records that consumers read in between.

mod full_heap;
mod loading;
mod markers;
mod too_few_replicas;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use bytestring::ByteString;
use ottla_protocol::messages::add_partitions_to_txn_request::{
    AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction,
};
use ottla_protocol::messages::fetch_response::PartitionData;
use ottla_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use ottla_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use ottla_protocol::messages::{
    AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, DescribeTransactionsRequest, EndTxnRequest,
    FindCoordinatorRequest, InitProducerIdRequest, ListTransactionsRequest, OffsetFetchRequest,
    ProduceRequest, TxnOffsetCommitRequest,
};
use ottla_protocol::metadata_records::{MetadataRecord, PartitionChangeRecord};
use ottla_records::{Compression, RecordBatch, RecordBatchBuilder};
use ottla_types::{ErrorCode, ProducerEpoch, ProducerId, Sequence, Timestamp};

use super::client::Client;
use super::groups::coordinating_broker;
use super::produce_and_fetch::{fetch_from, list_offsets, produce_to};
use super::{TestBroker, topic_id};

const ID: &str = "payments";
const LOG: &str = "__transaction_state";
/// The newest API versions of the protocol in which a transaction does not increment the epoch.
const OLD_PRODUCE: i16 = 11;
const OLD_END: i16 = 4;
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Producer {
    id: i64,
    epoch: i16,
}

fn code(code: i16) -> ErrorCode {
    ErrorCode::from_code(code)
}

/// A broker with a topic `t` of two partitions that coordinates groups and transactions.
async fn broker(settings: &[(&str, &str)]) -> (TestBroker, Client) {
    let mut all = vec![
        ("transaction.state.log.replication.factor", "1"),
        ("transaction.state.log.min.isr", "1"),
        ("transaction.state.log.num.partitions", "3"),
    ];
    all.extend_from_slice(settings);
    let broker = coordinating_broker(&all).await;
    let mut client = broker.connect().await;
    let find = FindCoordinatorRequest {
        key_type: 1,
        coordinator_keys: vec![ID.into()],
        ..Default::default()
    };
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = client.ask(4, &find).await;
        if found.coordinators[0].error_code == 0 {
            assert_eq!(found.coordinators[0].node_id, 1);
            return (broker, client);
        }
        assert_eq!(
            code(found.coordinators[0].error_code),
            ErrorCode::CoordinatorNotAvailable,
            "while its topic is made"
        );
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Retries like a client while the coordinator is busy.
async fn init(client: &mut Client, timeout_ms: i32) -> Producer {
    let request = InitProducerIdRequest {
        transactional_id: Some(ID.into()),
        transaction_timeout_ms: timeout_ms,
        ..Default::default()
    };
    let deadline = Instant::now() + PATIENCE;
    loop {
        let response = client.ask(5, &request).await;
        match code(response.error_code) {
            ErrorCode::None => {
                return Producer {
                    id: response.producer_id,
                    epoch: response.producer_epoch,
                };
            }
            ErrorCode::ConcurrentTransactions
            | ErrorCode::CoordinatorLoadInProgress
            | ErrorCode::NotCoordinator => {}
            error => panic!("{error}"),
        }
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn records(producer: Producer, sequence: i32, value: &str) -> Bytes {
    let (id, epoch) = (ProducerId(producer.id), ProducerEpoch(producer.epoch));
    let mut builder = RecordBatchBuilder::new(Compression::None)
        .producer(id, epoch, Sequence(sequence))
        .transactional(true);
    // Markers have the current time. Much older records would be in another segment.
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = Timestamp(now.expect("after 1970").as_millis() as i64);
    builder.append(now, None, Some(value.as_bytes()), &[]);
    builder.build().to_bytes()
}

fn producing(
    producer: Producer,
    partition: i32,
    sequence: i32,
    value: &str,
    version: i16,
) -> ProduceRequest {
    let records = records(producer, sequence, value);
    let mut request = produce_to("t", partition, -1, records);
    request.transactional_id = Some(ID.into());
    if version >= 13 {
        request.topic_data[0].topic_id = topic_id("t");
    }
    request
}

async fn produce(
    client: &mut Client,
    producer: Producer,
    partition: i32,
    sequence: i32,
    value: &str,
    version: i16,
) -> ErrorCode {
    let request = producing(producer, partition, sequence, value, version);
    let response = client.ask(version, &request).await;
    code(response.responses[0].partition_responses[0].error_code)
}

async fn end(
    client: &mut Client,
    producer: Producer,
    committed: bool,
    version: i16,
) -> Result<Producer, ErrorCode> {
    let request = EndTxnRequest {
        transactional_id: ID.into(),
        producer_id: producer.id,
        producer_epoch: producer.epoch,
        committed,
        ..Default::default()
    };
    let deadline = Instant::now() + PATIENCE;
    loop {
        let response = client.ask(version, &request).await;
        match code(response.error_code) {
            ErrorCode::None => {
                return Ok(Producer {
                    id: response.producer_id,
                    epoch: response.producer_epoch,
                });
            }
            ErrorCode::ConcurrentTransactions => {}
            error => return Err(error),
        }
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn add(client: &mut Client, producer: Producer, partitions: &[i32]) -> Vec<ErrorCode> {
    let request = AddPartitionsToTxnRequest {
        v3_and_below_transactional_id: ID.into(),
        v3_and_below_producer_id: producer.id,
        v3_and_below_producer_epoch: producer.epoch,
        v3_and_below_topics: vec![AddPartitionsToTxnTopic {
            name: "t".into(),
            partitions: partitions.to_vec(),
            ..Default::default()
        }],
        ..Default::default()
    };
    let deadline = Instant::now() + PATIENCE;
    loop {
        let response = client.ask(3, &request).await;
        let topics = response.results_by_topic_v3_and_below.iter();
        let results = topics.flat_map(|topic| &topic.results_by_partition);
        let codes: Vec<_> = results.map(|it| code(it.partition_error_code)).collect();
        if !codes.contains(&ErrorCode::ConcurrentTransactions) {
            return codes;
        }
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn fetch(client: &mut Client, partition: i32, isolation_level: i8) -> PartitionData {
    let mut request = fetch_from("t", partition, 0);
    request.isolation_level = isolation_level;
    request.max_wait_ms = 0;
    let answer = client.ask(12, &request).await;
    answer.responses[0].partitions[0].clone()
}

/// The values that a consumer reads: without markers, and without batches of aborted transactions.
async fn read(client: &mut Client, partition: i32, isolation_level: i8) -> Vec<String> {
    let data = fetch(client, partition, isolation_level).await;
    let mut aborted = data.aborted_transactions.clone().unwrap_or_default();
    aborted.sort_by_key(|it| it.first_offset);
    let mut open: Vec<i64> = Vec::new();
    let Some(ottla_protocol::Records::Bytes(bytes)) = data.records else {
        return Vec::new();
    };
    let mut values = Vec::new();
    for batch in RecordBatch::read_all(bytes) {
        let Ok(batch) = batch else { break };
        let header = &batch.header;
        let producer_id = header.producer_id.0;
        aborted.retain(|it| {
            let begins = it.first_offset <= header.base_offset.0;
            if begins {
                open.push(it.producer_id);
            }
            !begins
        });
        if header.is_control() {
            open.retain(|id| *id != producer_id);
            continue;
        }
        if header.is_transactional() && open.contains(&producer_id) {
            continue;
        }
        for record in batch.records(1 << 20).expect("readable").iter() {
            let record = record.expect("a record");
            let value = record.value.expect("a value");
            values.push(String::from_utf8(value.to_vec()).expect("text"));
        }
    }
    values
}

async fn read_until(client: &mut Client, partition: i32, isolation_level: i8, expected: &[&str]) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let values = read(client, partition, isolation_level).await;
        if values == expected {
            return;
        }
        assert!(Instant::now() < deadline, "{values:?}, not {expected:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn state(client: &mut Client) -> (ErrorCode, ByteString, usize) {
    let request = DescribeTransactionsRequest {
        transactional_ids: vec![ID.into()],
        ..Default::default()
    };
    let described = client.ask(0, &request).await.transaction_states.remove(0);
    let partitions = described.topics.iter().map(|topic| topic.partitions.len());
    let count = partitions.sum();
    (
        code(described.error_code),
        described.transaction_state,
        count,
    )
}

async fn state_until(client: &mut Client, expected: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (_, name, _) = state(client).await;
        if *name == *expected {
            return;
        }
        assert!(Instant::now() < deadline, "{name}, not {expected}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn offsets(producer: Producer, offset: i64) -> TxnOffsetCommitRequest {
    TxnOffsetCommitRequest {
        transactional_id: ID.into(),
        group_id: "g".into(),
        producer_id: producer.id,
        producer_epoch: producer.epoch,
        topics: vec![TxnOffsetCommitRequestTopic {
            name: "t".into(),
            partitions: vec![TxnOffsetCommitRequestPartition {
                partition_index: 0,
                committed_offset: offset,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

async fn commit_offsets(
    client: &mut Client,
    producer: Producer,
    offset: i64,
    version: i16,
) -> ErrorCode {
    let response = client.ask(version, &offsets(producer, offset)).await;
    code(response.topics[0].partitions[0].error_code)
}

async fn committed_offset(client: &mut Client) -> Result<i64, ErrorCode> {
    let request = OffsetFetchRequest {
        groups: vec![OffsetFetchRequestGroup {
            group_id: "g".into(),
            topics: Some(vec![OffsetFetchRequestTopics {
                name: "t".into(),
                partition_indexes: vec![0],
                ..Default::default()
            }]),
            ..Default::default()
        }],
        require_stable: true,
        ..Default::default()
    };
    let response = client.ask(8, &request).await;
    let partition = &response.groups[0].topics[0].partitions[0];
    match code(partition.error_code) {
        ErrorCode::None => Ok(partition.committed_offset),
        error => Err(error),
    }
}

async fn committed_offset_until(client: &mut Client, expected: i64) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match committed_offset(client).await {
            Ok(offset) if offset == expected => return,
            Ok(_) | Err(ErrorCode::UnstableOffsetCommit) => {}
            Err(error) => panic!("{error}"),
        }
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_over_partitions_and_offsets_is_atomic() {
    let (_broker, mut client) = broker(&[]).await;
    let producer = init(&mut client, 60_000).await;
    assert_eq!(producer.epoch, 0);
    for partition in [0, 1] {
        let error = produce(&mut client, producer, partition, 0, "a", 12).await;
        assert_eq!(error, ErrorCode::None);
    }
    let error = commit_offsets(&mut client, producer, 5, 5).await;
    assert_eq!(error, ErrorCode::None);
    let expected = (ErrorCode::None, "Ongoing".into(), 3);
    assert_eq!(state(&mut client).await, expected);

    assert_eq!(read(&mut client, 0, 0).await, ["a"]);
    let data = fetch(&mut client, 0, 1).await;
    assert_eq!((data.last_stable_offset, data.high_watermark), (0, 1));
    assert!(read(&mut client, 0, 1).await.is_empty());
    let mut request = list_offsets("t", -1);
    request.isolation_level = 1;
    let listed = client.ask(4, &request).await;
    assert_eq!(listed.topics[0].partitions[0].offset, 0);
    let unstable = Err(ErrorCode::UnstableOffsetCommit);
    assert_eq!(committed_offset(&mut client).await, unstable);

    let next = end(&mut client, producer, true, 5)
        .await
        .expect("committed");
    assert_eq!(
        next,
        Producer {
            id: producer.id,
            epoch: 1
        }
    );
    for partition in [0, 1] {
        read_until(&mut client, partition, 1, &["a"]).await;
    }
    committed_offset_until(&mut client, 5).await;
    state_until(&mut client, "CompleteCommit").await;

    // The next transaction uses the epoch that the end of the previous one returned.
    let error = produce(&mut client, producer, 0, 1, "zombie", 12).await;
    assert_eq!(error, ErrorCode::InvalidProducerEpoch);
    let error = produce(&mut client, next, 0, 0, "b", 12).await;
    assert_eq!(error, ErrorCode::None);
    assert_eq!(
        commit_offsets(&mut client, next, 9, 5).await,
        ErrorCode::None
    );
    let last = end(&mut client, next, false, 5).await.expect("aborted");
    assert_eq!(last.epoch, 2);
    state_until(&mut client, "CompleteAbort").await;
    assert_eq!(read(&mut client, 0, 1).await, ["a"]);
    assert_eq!(read(&mut client, 0, 0).await, ["a", "b"]);
    committed_offset_until(&mut client, 5).await;
    // A repeated request is recognised by its epoch.
    assert_eq!(end(&mut client, next, false, 5).await, Ok(last));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn offsets_are_committed_by_the_id_of_their_topic() {
    let (_broker, mut client) = broker(&[]).await;
    let producer = init(&mut client, 60_000).await;
    for (id, error) in [
        (topic_id("gone"), ErrorCode::UnknownTopicId),
        (topic_id("t"), ErrorCode::None),
    ] {
        let mut request = offsets(producer, 5);
        request.topics[0].name = Default::default();
        request.topics[0].topic_id = id;
        let response = client.ask(6, &request).await;
        let topic = &response.topics[0];
        assert_eq!(
            (topic.topic_id, code(topic.partitions[0].error_code)),
            (id, error)
        );
    }
    end(&mut client, producer, true, 5)
        .await
        .expect("committed");
    committed_offset_until(&mut client, 5).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn older_clients_add_partitions_themselves() {
    let (_broker, mut client) = broker(&[]).await;
    let producer = init(&mut client, 60_000).await;
    // Nothing is written that the coordinator does not know.
    for (version, expected) in [
        (10, ErrorCode::InvalidTxnState),
        (OLD_PRODUCE, ErrorCode::TransactionAbortable),
    ] {
        let error = produce(&mut client, producer, 0, 0, "a", version).await;
        assert_eq!(error, expected);
    }
    assert_eq!(
        commit_offsets(&mut client, producer, 5, 4).await,
        ErrorCode::TransactionAbortable
    );
    let unknown = add(&mut client, producer, &[0, 7]).await;
    assert_eq!(
        unknown,
        [
            ErrorCode::OperationNotAttempted,
            ErrorCode::UnknownTopicOrPartition
        ]
    );
    assert_eq!(add(&mut client, producer, &[0]).await, [ErrorCode::None]);
    let error = produce(&mut client, producer, 0, 0, "a", OLD_PRODUCE).await;
    assert_eq!(error, ErrorCode::None);
    let request = AddOffsetsToTxnRequest {
        transactional_id: ID.into(),
        producer_id: producer.id,
        producer_epoch: producer.epoch,
        group_id: "g".into(),
        ..Default::default()
    };
    assert_eq!(client.ask(3, &request).await.error_code, 0);
    assert_eq!(
        commit_offsets(&mut client, producer, 5, 3).await,
        ErrorCode::None
    );
    end(&mut client, producer, true, OLD_END)
        .await
        .expect("committed");
    read_until(&mut client, 0, 1, &["a"]).await;
    committed_offset_until(&mut client, 5).await;
    // The epoch is unchanged, and each partition is added again.
    let error = produce(&mut client, producer, 0, 1, "b", OLD_PRODUCE).await;
    assert_eq!(error, ErrorCode::TransactionAbortable);
    assert_eq!(add(&mut client, producer, &[0]).await, [ErrorCode::None]);
    let error = produce(&mut client, producer, 0, 1, "b", OLD_PRODUCE).await;
    assert_eq!(error, ErrorCode::None);
    end(&mut client, producer, false, OLD_END)
        .await
        .expect("aborted");
    state_until(&mut client, "CompleteAbort").await;
    assert_eq!(read(&mut client, 0, 1).await, ["a"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_that_wait_for_the_coordinator_keep_their_order() {
    let (_broker, mut client) = broker(&[]).await;
    let producer = init(&mut client, 60_000).await;
    let values: Vec<String> = (0..20).map(|index| index.to_string()).collect();
    let mut sent = Vec::new();
    for (sequence, value) in (0..).zip(&values) {
        let request = producing(producer, 0, sequence, value, 12);
        sent.push(client.send(12, &request).await);
    }
    for correlation_id in sent {
        let response = client.receive::<ProduceRequest>(12, correlation_id).await;
        let partition = &response.responses[0].partition_responses[0];
        assert_eq!(code(partition.error_code), ErrorCode::None);
    }
    end(&mut client, producer, true, 5)
        .await
        .expect("committed");
    let expected: Vec<&str> = values.iter().map(String::as_str).collect();
    read_until(&mut client, 0, 1, &expected).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_refused_for_too_few_replicas_may_be_sent_again() {
    let (broker, mut client) = broker(&[]).await;
    broker
        .create_topic("few", 1, &[("min.insync.replicas", "2")])
        .await;
    // Another replica, on a broker that does not run.
    let log_dirs = broker.broker().log_dirs().expect("the broker runs");
    let directory = log_dirs.online_directory_ids()[0];
    let change = PartitionChangeRecord {
        partition_id: 0,
        topic_id: topic_id("few"),
        replicas: Some(vec![1, 2]),
        directories: Some(vec![directory, directory]),
        leader: 1,
        ..Default::default()
    };
    let change = MetadataRecord::PartitionChange(change);
    broker.write(vec![change]).await;
    let producer = init(&mut client, 60_000).await;
    let mut sent = Vec::new();
    for sequence in 0..3 {
        let mut request = producing(producer, 0, sequence, "a", 12);
        request.topic_data[0].name = "few".into();
        sent.push(client.send(12, &request).await);
    }
    for correlation_id in sent {
        let response = client.receive::<ProduceRequest>(12, correlation_id).await;
        let partition = &response.responses[0].partition_responses[0];
        assert_eq!(code(partition.error_code), ErrorCode::NotEnoughReplicas);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_instance_aborts_the_transaction_of_the_first() {
    let (_broker, mut client) = broker(&[]).await;
    let first = init(&mut client, 60_000).await;
    produce(&mut client, first, 0, 0, "a", 12).await;
    let second = init(&mut client, 60_000).await;
    assert_eq!((second.id, second.epoch), (first.id, 2));
    assert_eq!(
        produce(&mut client, first, 0, 1, "b", 12).await,
        ErrorCode::InvalidProducerEpoch
    );
    assert_eq!(
        end(&mut client, first, true, 5).await,
        Err(ErrorCode::ProducerFenced)
    );
    assert_eq!(
        add(&mut client, first, &[0]).await,
        [ErrorCode::ProducerFenced]
    );
    produce(&mut client, second, 0, 0, "c", 12).await;
    end(&mut client, second, true, 5).await.expect("committed");
    read_until(&mut client, 0, 1, &["c"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_is_aborted_at_its_timeout() {
    let settings = [(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        "20",
    )];
    let (_broker, mut client) = broker(&settings).await;
    // Long enough for the record to be written.
    let producer = init(&mut client, 5_000).await;
    produce(&mut client, producer, 0, 0, "a", 12).await;
    state_until(&mut client, "CompleteAbort").await;
    assert!(read(&mut client, 0, 1).await.is_empty());
    assert_eq!(fetch(&mut client, 0, 1).await.last_stable_offset, 2);
    assert_eq!(
        produce(&mut client, producer, 0, 1, "b", 12).await,
        ErrorCode::InvalidProducerEpoch
    );
}

/// Gives every partition of the topic a new leader epoch, and so a new coordinator.
async fn elect_other_coordinators(broker: &TestBroker) {
    let image = broker.broker().metadata().clone();
    let topic = image.topics.by_name(LOG).expect("made");
    let changes = (0..3).map(|partition_id| {
        MetadataRecord::PartitionChange(PartitionChangeRecord {
            partition_id,
            topic_id: topic.id,
            leader: 1,
            ..Default::default()
        })
    });
    broker.write(changes.collect()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_coordinator_completes_transactions_from_its_log() {
    let (broker, mut client) = broker(&[]).await;
    let producer = init(&mut client, 60_000).await;
    produce(&mut client, producer, 0, 0, "a", 12).await;
    elect_other_coordinators(&broker).await;
    let deadline = Instant::now() + PATIENCE;
    loop {
        match state(&mut client).await {
            (ErrorCode::None, name, 1) if &*name == "Ongoing" => break,
            (ErrorCode::CoordinatorLoadInProgress, ..) => {}
            other => panic!("{other:?}"),
        }
        assert!(Instant::now() < deadline);
    }
    let next = end(&mut client, producer, true, 5)
        .await
        .expect("committed");
    read_until(&mut client, 0, 1, &["a"]).await;
    produce(&mut client, next, 0, 0, "b", 12).await;
    end(&mut client, next, true, 5).await.expect("committed");
    read_until(&mut client, 0, 1, &["a", "b"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactional_ids_are_listed_and_expire() {
    let settings = [
        ("transactional.id.expiration.ms", "5000"),
        (
            "transaction.remove.expired.transaction.cleanup.interval.ms",
            "20",
        ),
    ];
    let (_broker, mut client) = broker(&settings).await;
    let producer = init(&mut client, 60_000).await;
    let request = |pattern: &'static str, state: &'static str| ListTransactionsRequest {
        state_filters: vec![state.into()],
        producer_id_filters: vec![producer.id],
        transactional_id_pattern: Some(pattern.into()),
        ..Default::default()
    };
    let listed = client.ask(2, &request("pay.*", "Empty")).await;
    assert_eq!(listed.transaction_states[0].transactional_id, ID);
    for (pattern, state) in [("pay", "Empty"), ("pay.*", "Ongoing")] {
        let listed = client.ask(2, &request(pattern, state)).await;
        assert!(listed.transaction_states.is_empty(), "{pattern} {state}");
    }
    let listed = client.ask(2, &request("", "Nothing")).await;
    assert_eq!(listed.unknown_state_filters, ["Nothing"]);
    let listed = client.ask(2, &request("(", "Empty")).await;
    assert_eq!(code(listed.error_code), ErrorCode::InvalidRegularExpression);
    let deadline = Instant::now() + PATIENCE;
    while state(&mut client).await.0 != ErrorCode::TransactionalIdNotFound {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(
        add(&mut client, producer, &[0]).await,
        [ErrorCode::InvalidProducerIdMapping]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn brokers_verify_many_transactions_in_one_request() {
    let (_broker, mut client) = broker(&[]).await;
    let producer = init(&mut client, 60_000).await;
    let transaction = |id: &'static str, verify_only| AddPartitionsToTxnTransaction {
        transactional_id: id.into(),
        producer_id: producer.id,
        producer_epoch: producer.epoch,
        verify_only,
        topics: vec![AddPartitionsToTxnTopic {
            name: "t".into(),
            partitions: vec![1],
            ..Default::default()
        }],
        ..Default::default()
    };
    for (verify_only, expected) in [
        (true, ErrorCode::TransactionAbortable),
        (false, ErrorCode::None),
        (true, ErrorCode::None),
    ] {
        let request = AddPartitionsToTxnRequest {
            transactions: vec![
                transaction(ID, verify_only),
                transaction("other", verify_only),
            ],
            ..Default::default()
        };
        let response = client.ask(5, &request).await;
        for result in response.results_by_transaction {
            let partition = &result.topic_results[0].results_by_partition[0];
            let expected = match &*result.transactional_id {
                ID => expected,
                _ => ErrorCode::InvalidProducerIdMapping,
            };
            assert_eq!(code(partition.partition_error_code), expected);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn offsets_are_not_committed_without_coordinators() {
    let (_broker, mut client) = TestBroker::with_topic("t", 2).await;
    let no_producer = Producer { id: 5, epoch: 0 };
    for version in [4, 5] {
        let error = commit_offsets(&mut client, no_producer, 5, version).await;
        assert_eq!(error, ErrorCode::CoordinatorNotAvailable);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_without_a_producer_are_refused() {
    let (_broker, mut client) = broker(&[]).await;
    let known = init(&mut client, 60_000).await;
    let no_producer = Producer {
        id: 999_999,
        epoch: 0,
    };
    for version in [OLD_PRODUCE, 12] {
        let error = produce(&mut client, no_producer, 0, 0, "a", version).await;
        assert_eq!(error, ErrorCode::InvalidProducerIdMapping);
    }
    let mut without_id = producing(known, 0, 0, "a", 12);
    without_id.transactional_id = None;
    let response = client.ask(12, &without_id).await;
    assert_eq!(
        code(response.responses[0].partition_responses[0].error_code),
        ErrorCode::TransactionalIdAuthorizationFailed
    );
    // Nothing of such a request is written, not even records outside a transaction.
    let mut plain = RecordBatchBuilder::new(Compression::None);
    plain.append(Timestamp(0), None, Some(b"plain"), &[]);
    let plain = produce_to("t", 1, -1, plain.build().to_bytes());
    without_id.topic_data.extend(plain.topic_data);
    let response = client.ask(12, &without_id).await;
    assert_eq!(
        code(response.responses[1].partition_responses[0].error_code),
        ErrorCode::TransactionalIdAuthorizationFailed
    );
    // Only the group coordinator adds offsets.
    let internal = AddPartitionsToTxnRequest {
        v3_and_below_transactional_id: ID.into(),
        v3_and_below_producer_id: known.id,
        v3_and_below_producer_epoch: known.epoch,
        v3_and_below_topics: vec![AddPartitionsToTxnTopic {
            name: "__consumer_offsets".into(),
            partitions: vec![0],
            ..Default::default()
        }],
        ..Default::default()
    };
    let response = client.ask(3, &internal).await;
    let topic = &response.results_by_topic_v3_and_below[0];
    assert_eq!(
        code(topic.results_by_partition[0].partition_error_code),
        ErrorCode::TopicAuthorizationFailed
    );
    let two_phase = InitProducerIdRequest {
        transactional_id: Some(ID.into()),
        transaction_timeout_ms: 60_000,
        ..Default::default()
    };
    for (timeout_ms, id) in [(0, ID), (i32::MAX, ID), (1000, "")] {
        let mut request = two_phase.clone();
        request.transaction_timeout_ms = timeout_ms;
        request.transactional_id = Some(id.into());
        let error = code(client.ask(4, &request).await.error_code);
        let expected = match id {
            "" => ErrorCode::InvalidRequest,
            _ => ErrorCode::InvalidTransactionTimeout,
        };
        assert_eq!(error, expected);
    }
    assert_eq!(
        commit_offsets(&mut client, no_producer, 5, 5).await,
        ErrorCode::InvalidProducerIdMapping
    );
}
