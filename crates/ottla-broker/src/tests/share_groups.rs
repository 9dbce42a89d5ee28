//! Share groups over the wire. The tests of the delivery of records and of groups are in the child
//! modules; here are their requests, and the persisted state. Membership is not checked: any client can
//! use any member ID.

mod administration;
mod delivery;

use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_coordination::share_groups::StateQuestion;
use ottla_coordinator::persister::{InitializeState, SharePartitionKey};
use ottla_protocol::messages::initialize_share_group_state_request::{
    InitializeStateData, PartitionData,
};
use ottla_protocol::messages::read_share_group_state_summary_request;
use ottla_protocol::messages::share_acknowledge_request::{
    self, AcknowledgePartition, AcknowledgeTopic,
};
use ottla_protocol::messages::share_fetch_request::{
    AcknowledgementBatch, FetchPartition, FetchTopic,
};
use ottla_protocol::messages::share_fetch_response::{self, PartitionData as Fetched};
use ottla_protocol::messages::{
    InitializeShareGroupStateRequest, ReadShareGroupStateSummaryRequest, ShareAcknowledgeRequest,
    ShareFetchRequest, ShareFetchResponse,
};
use ottla_types::{ErrorCode, Offset};

use super::client::Client;
use super::produce_and_fetch::{batch, produce_to};
use super::{TestBroker, topic_id};

const PATIENCE: Duration = Duration::from_secs(60);
const ACCEPT: i8 = 1;
const RELEASE: i8 = 2;
const RENEW: i8 = 4;

fn code(code: i16) -> ErrorCode {
    ErrorCode::from_code(code)
}

/// A broker with a topic `t` of one partition that group `g` reads from its start.
pub(super) async fn broker(settings: &[(&str, &str)]) -> (TestBroker, Client) {
    broker_with(settings, &[]).await
}

/// As [`broker`], with settings of the topic.
pub(super) async fn broker_with(
    settings: &[(&str, &str)],
    of_topic: &[(&'static str, &str)],
) -> (TestBroker, Client) {
    let mut all = vec![
        ("share.coordinator.state.topic.replication.factor", "1"),
        ("share.coordinator.state.topic.min.isr", "1"),
        ("share.coordinator.state.topic.num.partitions", "2"),
    ];
    all.extend_from_slice(settings);
    let broker = TestBroker::start_with(&all).await;
    broker.create_topic("t", 1, of_topic).await;
    let mut client = broker.connect().await;
    initialize(&broker, &mut client).await;
    (broker, client)
}

/// Threads that decide at the same time append their writes in order. A write is never reported as
/// committed before an earlier one: the share coordinator asserts this, because it deletes
/// everything before its snapshots.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn writes_of_many_threads_are_reported_in_order() {
    let one_partition = ("share.coordinator.state.topic.num.partitions", "1");
    let (broker, _client) = broker(&[one_partition]).await;
    let writers = (0..32).map(|writer| {
        let broker = Arc::clone(broker.broker());
        tokio::spawn(async move {
            for epoch in 1..1_000 {
                let request = InitializeState {
                    key: SharePartitionKey {
                        group_id: format!("g{writer}").into(),
                        topic_id: topic_id("t"),
                        partition: 0,
                    },
                    state_epoch: epoch,
                    start_offset: Offset(0),
                };
                let initialized = request.ask_here(&broker.share_groups.coordinators);
                initialized.await.expect("it is written");
            }
        })
    });
    for writer in Vec::from_iter(writers) {
        writer.await.expect("no coordinator panics");
    }
}

/// Initialises the group's start offset like its coordinator, which creates the state topic.
async fn initialize(broker: &TestBroker, client: &mut Client) {
    let state_topic = vec!["__share_group_state".into()];
    broker
        .broker()
        .auto_topic_creation
        .create_topics_in_background(None, state_topic);
    initialize_at(client, 1, 0).await;
}

/// With -1, the settings of the group determine the offset.
pub(super) async fn initialize_at(client: &mut Client, state_epoch: i32, start_offset: i64) {
    let request = InitializeShareGroupStateRequest {
        group_id: "g".into(),
        topics: vec![InitializeStateData {
            topic_id: topic_id("t"),
            partitions: vec![PartitionData {
                partition: 0,
                state_epoch,
                start_offset,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let deadline = Instant::now() + PATIENCE;
    loop {
        let response = client.ask(0, &request).await;
        match code(response.results[0].partitions[0].error_code) {
            ErrorCode::None => return,
            ErrorCode::NotCoordinator | ErrorCode::CoordinatorLoadInProgress => {}
            error => panic!("{error}"),
        }
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub(super) async fn produce(client: &mut Client, values: &[&str]) {
    let mut request = produce_to("t", 0, -1, batch(values));
    request.topic_data[0].topic_id = topic_id("t");
    let response = client.ask(13, &request).await;
    let answer = &response.responses[0].partition_responses[0];
    assert_eq!(code(answer.error_code), ErrorCode::None);
}

pub(super) fn fetching(
    member: &'static str,
    epoch: i32,
    batches: &[(i64, i64, i8)],
) -> ShareFetchRequest {
    let acknowledged = batches
        .iter()
        .map(|(first, last, kind)| AcknowledgementBatch {
            first_offset: *first,
            last_offset: *last,
            acknowledge_types: vec![*kind],
            ..Default::default()
        });
    ShareFetchRequest {
        group_id: Some("g".into()),
        member_id: Some(member.into()),
        share_session_epoch: epoch,
        max_wait_ms: 5_000,
        min_bytes: 1,
        max_bytes: 1024 * 1024,
        max_records: 100,
        batch_size: 100,
        topics: vec![FetchTopic {
            topic_id: topic_id("t"),
            partitions: vec![FetchPartition {
                partition_index: 0,
                acknowledgement_batches: acknowledged.collect(),
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// The only partition of the response.
fn partition_of(response: ShareFetchResponse) -> Fetched {
    assert_eq!(code(response.error_code), ErrorCode::None);
    let mut partitions = response
        .responses
        .into_iter()
        .flat_map(|topic| topic.partitions);
    partitions.next().unwrap_or_default()
}

/// The records that a member acquired: first offset, last offset, delivery count.
pub(super) fn acquired(fetched: &Fetched) -> Vec<(i64, i64, i16)> {
    assert_eq!(code(fetched.error_code), ErrorCode::None, "{fetched:?}");
    let batches: &[share_fetch_response::AcquiredRecords] = &fetched.acquired_records;
    let batches = batches.iter();
    batches
        .map(|it| (it.first_offset, it.last_offset, it.delivery_count))
        .collect()
}

pub(super) async fn fetch(client: &mut Client, request: &ShareFetchRequest) -> Fetched {
    partition_of(client.ask(2, request).await)
}

pub(super) async fn acknowledge(
    client: &mut Client,
    member: &'static str,
    epoch: i32,
    batch: (i64, i64, i8),
) -> ErrorCode {
    let (first_offset, last_offset, kind) = batch;
    let request = ShareAcknowledgeRequest {
        group_id: Some("g".into()),
        member_id: Some(member.into()),
        share_session_epoch: epoch,
        is_renew_ack: kind == RENEW,
        topics: vec![AcknowledgeTopic {
            topic_id: topic_id("t"),
            partitions: vec![AcknowledgePartition {
                partition_index: 0,
                acknowledgement_batches: vec![share_acknowledge_request::AcknowledgementBatch {
                    first_offset,
                    last_offset,
                    acknowledge_types: vec![kind],
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let response = client.ask(2, &request).await;
    match code(response.error_code) {
        ErrorCode::None => code(response.responses[0].partitions[0].error_code),
        error => error,
    }
}

/// The start offset according to the share coordinator.
pub(super) async fn persisted_start(client: &mut Client) -> i64 {
    use read_share_group_state_summary_request::{PartitionData, ReadStateSummaryData};
    let request = ReadShareGroupStateSummaryRequest {
        group_id: "g".into(),
        topics: vec![ReadStateSummaryData {
            topic_id: topic_id("t"),
            partitions: vec![PartitionData::default()],
            ..Default::default()
        }],
        ..Default::default()
    };
    let response = client.ask(1, &request).await;
    let result = &response.results[0].partitions[0];
    assert_eq!(code(result.error_code), ErrorCode::None);
    result.start_offset
}
