//! Share groups over the wire: persisted state, and records that are acquired, acknowledged,
//! renewed, released and delivered again. Membership is not checked: any client can use any member
//! ID.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_coordination::share_groups::StateQuestion;
use ottla_coordinator::persister::{InitializeState, ReadState, SharePartitionKey, StateBatch};
use ottla_protocol::Records;
use ottla_protocol::messages::alter_share_group_offsets_request::{
    AlterShareGroupOffsetsRequestPartition, AlterShareGroupOffsetsRequestTopic,
};
use ottla_protocol::messages::delete_share_group_offsets_request::DeleteShareGroupOffsetsRequestTopic;
use ottla_protocol::messages::describe_share_group_offsets_request::{
    DescribeShareGroupOffsetsRequestGroup, DescribeShareGroupOffsetsRequestTopic,
};
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
    AlterShareGroupOffsetsRequest, DeleteGroupsRequest, DeleteShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest, InitializeShareGroupStateRequest, ListGroupsRequest,
    ReadShareGroupStateSummaryRequest, ShareAcknowledgeRequest, ShareFetchRequest,
    ShareFetchResponse, ShareGroupDescribeRequest, ShareGroupHeartbeatRequest,
};
use ottla_protocol::metadata_records::{FeatureLevelRecord, MetadataRecord, PartitionChangeRecord};
use ottla_types::{ErrorCode, LeaderEpoch, Offset};

use super::client::Client;
use super::produce_and_fetch::{batch, produce_to};
use super::{TestBroker, metrics, topic_id};

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

#[tokio::test(flavor = "multi_thread")]
async fn records_are_acquired_and_acknowledged() {
    let (broker, mut client) = broker(&[]).await;
    produce(&mut client, &["a", "b", "c"]).await;
    produce(&mut client, &["d", "e"]).await;
    let first = fetch(&mut client, &fetching("m1", 0, &[])).await;
    assert_eq!(acquired(&first), [(0, 4, 1)]);
    let records = first.records.as_ref().map_or(0, Records::len);
    assert_eq!(
        records,
        (batch(&["a", "b", "c"]).len() + batch(&["d", "e"]).len()) as u64
    );

    // Another member receives none of it, and waits.
    let mut other = broker.connect().await;
    let waiting = tokio::spawn(async move {
        let fetched = fetch(&mut other, &fetching("m2", 0, &[])).await;
        (fetched, other)
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!waiting.is_finished());
    assert_eq!(
        acknowledge(&mut client, "m1", 1, (0, 2, ACCEPT)).await,
        ErrorCode::None
    );
    assert_eq!(
        acknowledge(&mut client, "m1", 2, (3, 4, RELEASE)).await,
        ErrorCode::None
    );
    let (released, mut other) = waiting.await.expect("it is answered");
    assert_eq!(acquired(&released), [(3, 4, 2)]);
    // Only the acquired records are sent.
    let records = released.records.as_ref().map_or(0, Records::len);
    assert_eq!(records, batch(&["d", "e"]).len() as u64);

    let not_its_own = acknowledge(&mut client, "m1", 3, (3, 4, ACCEPT)).await;
    assert_eq!(not_its_own, ErrorCode::InvalidRecordState);
    assert_eq!(
        acknowledge(&mut other, "m2", 1, (3, 4, ACCEPT)).await,
        ErrorCode::None
    );
    // Written together with the previous change: the start offset advances.
    produce(&mut client, &["f"]).await;
    let next = fetch(&mut other, &fetching("m2", 2, &[])).await;
    assert_eq!(acquired(&next), [(5, 5, 1)]);
    assert_eq!(
        acknowledge(&mut other, "m2", 3, (5, 5, ACCEPT)).await,
        ErrorCode::None
    );
    assert_eq!(persisted_start(&mut client).await, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledgements_of_a_fetch_are_applied_first() {
    let (_broker, mut client) = broker(&[]).await;
    produce(&mut client, &["a", "b"]).await;
    assert_eq!(
        acquired(&fetch(&mut client, &fetching("m1", 0, &[])).await),
        [(0, 1, 1)]
    );
    let again = fetch(
        &mut client,
        &fetching("m1", 1, &[(0, 0, RELEASE), (1, 1, ACCEPT)]),
    )
    .await;
    assert_eq!(acquired(&again), [(0, 0, 2)]);
    assert_eq!(code(again.acknowledge_error_code), ErrorCode::None);
    let mut wrong = fetching("m1", 2, &[(1, 1, ACCEPT)]);
    wrong.max_wait_ms = 0;
    let wrong = fetch(&mut client, &wrong).await;
    assert_eq!(acquired(&wrong), []);
    assert_eq!(
        code(wrong.acknowledge_error_code),
        ErrorCode::InvalidRecordState
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn acquisition_locks_expire_and_are_renewed() {
    let (broker, mut client) = broker(&[
        ("group.share.min.record.lock.duration.ms", "6000"),
        ("group.share.record.lock.duration.ms", "6000"),
    ])
    .await;
    produce(&mut client, &["a"]).await;
    produce(&mut client, &["b"]).await;
    let begun = Instant::now();
    let mut request = fetching("m1", 0, &[]);
    request.batch_size = 1;
    assert_eq!(
        acquired(&fetch(&mut client, &request).await),
        [(0, 0, 1), (1, 1, 1)]
    );
    tokio::time::sleep(Duration::from_millis(3000)).await;
    assert_eq!(
        acknowledge(&mut client, "m1", 1, (1, 1, RENEW)).await,
        ErrorCode::None
    );
    let mut other = broker.connect().await;
    let mut patient = fetching("m2", 0, &[]);
    patient.max_wait_ms = 30_000;
    let freed = fetch(&mut other, &patient).await;
    assert_eq!(acquired(&freed), [(0, 0, 2)]);
    assert!(begun.elapsed() >= Duration::from_millis(5990));
    assert_eq!(
        acknowledge(&mut client, "m1", 2, (1, 1, ACCEPT)).await,
        ErrorCode::None
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn records_of_a_member_that_leaves_are_released() {
    let (broker, mut client) = broker(&[]).await;
    produce(&mut client, &["a"]).await;
    let mut gone = broker.connect().await;
    assert_eq!(
        acquired(&fetch(&mut gone, &fetching("m1", 0, &[])).await),
        [(0, 0, 1)]
    );
    let waiting = tokio::spawn(async move {
        let fetched = fetch(&mut client, &fetching("m2", 0, &[])).await;
        (fetched, client)
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop(gone);
    let (fetched, mut client) = waiting.await.expect("it is answered");
    assert_eq!(acquired(&fetched), [(0, 0, 2)]);
    // Ending the session does the same.
    let end = client.ask(2, &fetching("m2", -1, &[])).await;
    assert_eq!(code(end.error_code), ErrorCode::None);
    assert_eq!(
        acquired(&fetch(&mut client, &fetching("m3", 0, &[])).await),
        [(0, 0, 3)]
    );
}

/// Well before the locks of their records time out.
#[tokio::test(flavor = "multi_thread")]
async fn a_closed_connection_releases_the_records_of_all_its_members() {
    let (broker, mut client) = broker(&[]).await;
    produce(&mut client, &["a"]).await;
    produce(&mut client, &["b"]).await;
    let mut gone = broker.connect().await;
    for (member, expected) in [("m1", (0, 0, 1)), ("m2", (1, 1, 1))] {
        let mut request = fetching(member, 0, &[]);
        request.max_records = 1;
        assert_eq!(acquired(&fetch(&mut gone, &request).await), [expected]);
    }
    drop(gone);
    // The two releases may be persisted one after the other.
    let mut released = acquired(&fetch(&mut client, &fetching("m3", 0, &[])).await);
    if released.len() == 1 {
        let rest = fetch(&mut client, &fetching("m3", 1, &[])).await;
        released.extend(acquired(&rest));
    }
    released.sort_unstable();
    // Both in one range if they were released together.
    assert!(
        released == [(0, 1, 2)] || released == [(0, 0, 2), (1, 1, 2)],
        "{released:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_requests_are_answered() {
    let (_broker, mut client) = broker(&[]).await;
    let mut error_of = async |request: ShareFetchRequest| {
        let response = client.ask(2, &request).await;
        code(response.error_code)
    };
    assert_eq!(
        error_of(fetching("m1", 1, &[])).await,
        ErrorCode::ShareSessionNotFound
    );
    assert_eq!(
        error_of(fetching("", 0, &[])).await,
        ErrorCode::InvalidRequest
    );
    assert_eq!(
        error_of(fetching("m1", 0, &[(0, 0, ACCEPT)])).await,
        ErrorCode::InvalidRequest
    );
    let nameless = ShareFetchRequest {
        group_id: None,
        ..fetching("m1", 0, &[])
    };
    assert_eq!(error_of(nameless).await, ErrorCode::InvalidRequest);
    let renewing = ShareFetchRequest {
        is_renew_ack: true,
        ..fetching("m1", 0, &[])
    };
    assert_eq!(error_of(renewing).await, ErrorCode::InvalidRequest);
    // A group that was not initialised.
    let mut unknown = fetching("m1", 0, &[]);
    unknown.group_id = Some("other".into());
    let response = client.ask(2, &unknown).await;
    let answer = partition_of(response);
    assert_eq!(code(answer.error_code), ErrorCode::UnknownServerError);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_without_share_groups_refuses_their_requests() {
    let broker = TestBroker::start().await;
    let level = MetadataRecord::FeatureLevel(FeatureLevelRecord {
        name: "share.version".into(),
        feature_level: 0,
        ..Default::default()
    });
    broker.write(vec![level]).await;
    let mut client = broker.connect().await;
    let response = client.ask(2, &fetching("m1", 0, &[])).await;
    assert_eq!(code(response.error_code), ErrorCode::UnsupportedVersion);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_is_assigned_partitions_once_their_state_is_initialized() {
    let settings = [
        ("offsets.topic.replication.factor", "1"),
        ("group.share.assignment.interval.ms", "0"),
        metrics::HTTP,
    ];
    let (broker, mut client) = broker(&settings).await;
    let offsets_topic = [("cleanup.policy", "compact")];
    broker
        .create_topic("__consumer_offsets", 1, &offsets_topic)
        .await;
    broker.create_topic("u", 2, &[]).await;
    let mut heartbeat = ShareGroupHeartbeatRequest {
        group_id: "h".into(),
        member_id: "m".into(),
        subscribed_topic_names: Some(vec!["u".into()]),
        ..Default::default()
    };
    let deadline = Instant::now() + PATIENCE;
    let told = loop {
        let told = client.ask(1, &heartbeat).await;
        match code(told.error_code) {
            ErrorCode::None => {
                heartbeat.member_epoch = told.member_epoch;
                heartbeat.subscribed_topic_names = None;
                if let Some(assignment) = told.assignment
                    && !assignment.topic_partitions.is_empty()
                {
                    break assignment.topic_partitions;
                }
            }
            ErrorCode::CoordinatorLoadInProgress | ErrorCode::NotCoordinator => {}
            error => panic!("{error}"),
        }
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert_eq!(
        (told[0].topic_id, &*told[0].partitions),
        (topic_id("u"), &[0, 1][..])
    );

    let describe = ShareGroupDescribeRequest {
        group_ids: vec!["h".into(), "unknown".into()],
        ..Default::default()
    };
    let described = client.ask(1, &describe).await.groups;
    assert_eq!(&*described[0].group_state, "Stable");
    assert_eq!(
        &*described[0].members[0].assignment.topic_partitions[0].topic_name,
        "u"
    );
    assert_eq!(code(described[1].error_code), ErrorCode::GroupIdNotFound);
    let listed = client.ask(5, &ListGroupsRequest::default()).await.groups;
    assert_eq!(
        (&*listed[0].group_type, &*listed[0].group_state),
        ("share", "Stable")
    );

    let http = broker.running.http_addr().expect("it listens");
    let (_, text) = metrics::get_path(http, "/metrics").await;
    for (metric, expected) in [
        ("group_count{protocol=\"share\"}", 1.0),
        ("group_count{protocol=\"classic\"}", 0.0),
        ("share_group_count{state=\"Stable\"}", 1.0),
        ("share_group_count{state=\"Empty\"}", 0.0),
    ] {
        let metric = format!("kafka_server_group_coordinator_metrics_{metric}");
        assert_eq!(metrics::value(&text, &metric), expected, "{metric}");
    }
    let of_classic = "kafka_coordinator_group_groupmetadatamanager_numgroups";
    assert_eq!(metrics::value(&text, of_classic), 0.0);
}

/// Sets a group's offset of `t`, as soon as it has a coordinator.
async fn set_offset(client: &mut Client, group: &str, offset: i64) -> Vec<ErrorCode> {
    let partition = |partition_index, start_offset| AlterShareGroupOffsetsRequestPartition {
        partition_index,
        start_offset,
        ..Default::default()
    };
    let request = AlterShareGroupOffsetsRequest {
        group_id: group.to_owned().into(),
        topics: vec![AlterShareGroupOffsetsRequestTopic {
            topic_name: "t".into(),
            partitions: vec![partition(0, offset), partition(9, offset)],
            ..Default::default()
        }],
        ..Default::default()
    };
    let deadline = Instant::now() + PATIENCE;
    loop {
        let response = client.ask(0, &request).await;
        match code(response.error_code) {
            ErrorCode::None => {
                let partitions = response.responses[0].partitions.iter();
                return partitions.map(|it| code(it.error_code)).collect();
            }
            ErrorCode::CoordinatorLoadInProgress | ErrorCode::NotCoordinator => {}
            error => panic!("{error}"),
        }
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The start offset and the lag of group `set`, by partition of `t`.
async fn described_offsets(client: &mut Client) -> Vec<(i64, i64)> {
    let request = DescribeShareGroupOffsetsRequest {
        groups: vec![DescribeShareGroupOffsetsRequestGroup {
            group_id: "set".into(),
            topics: None,
            ..Default::default()
        }],
        ..Default::default()
    };
    let response = client.ask(1, &request).await;
    assert_eq!(code(response.groups[0].error_code), ErrorCode::None);
    let topics = response.groups[0].topics.iter();
    let partitions = topics.flat_map(|topic| &topic.partitions);
    partitions.map(|it| (it.start_offset, it.lag)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn offsets_are_altered_described_and_deleted() {
    let (broker, mut client) = broker(&[("offsets.topic.replication.factor", "1")]).await;
    let offsets_topic = [("cleanup.policy", "compact")];
    broker
        .create_topic("__consumer_offsets", 1, &offsets_topic)
        .await;
    produce(&mut client, &["a", "b", "c"]).await;
    assert_eq!(
        set_offset(&mut client, "set", 2).await,
        [ErrorCode::None, ErrorCode::UnknownTopicOrPartition]
    );
    assert_eq!(described_offsets(&mut client).await, [(2, 1)]);
    let of_set = |epoch| ShareFetchRequest {
        group_id: Some("set".into()),
        ..fetching("m1", epoch, &[])
    };
    assert_eq!(acquired(&fetch(&mut client, &of_set(0)).await), [(2, 2, 1)]);
    client.ask(2, &of_set(-1)).await;
    // The release of the record is persisted before the answer, so that it cannot overwrite the
    // offsets that are set below.
    let read = ReadState {
        key: SharePartitionKey {
            group_id: "set".into(),
            topic_id: topic_id("t"),
            partition: 0,
        },
        leader_epoch: LeaderEpoch::UNKNOWN,
    };
    let read = read.ask_here(&broker.broker().share_groups.coordinators);
    let released = StateBatch {
        first_offset: Offset(2),
        last_offset: Offset(2),
        delivery_state: 0,
        delivery_count: 1,
    };
    assert_eq!(read.await.expect("it has state").batches, [released]);

    let forget = DeleteShareGroupOffsetsRequest {
        group_id: "set".into(),
        topics: ["t", "nowhere"]
            .map(|topic| DeleteShareGroupOffsetsRequestTopic {
                topic_name: topic.into(),
                ..Default::default()
            })
            .into(),
        ..Default::default()
    };
    let forgotten = client.ask(0, &forget).await;
    let topics = forgotten.responses.iter();
    let topics: Vec<_> = topics
        .map(|it| (&*it.topic_name, code(it.error_code)))
        .collect();
    assert_eq!(
        topics,
        [
            ("t", ErrorCode::None),
            ("nowhere", ErrorCode::UnknownTopicOrPartition)
        ]
    );
    assert_eq!(described_offsets(&mut client).await, []);

    // Any offset is accepted. One before the start of the log is read from there.
    for (offset, lag) in [(i64::MAX, 3 - i64::MAX), (i64::MIN, i64::MAX), (-5, 8)] {
        assert_eq!(
            set_offset(&mut client, "set", offset).await,
            [ErrorCode::None, ErrorCode::UnknownTopicOrPartition]
        );
        assert_eq!(described_offsets(&mut client).await, [(offset, lag)]);
    }
    set_offset(&mut client, "before", -5).await;
    let of_before = |epoch| ShareFetchRequest {
        group_id: Some("before".into()),
        ..fetching("m1", epoch, &[])
    };
    let mut from_the_beginning = fetch(&mut client, &of_before(0)).await;
    for epoch in 1..10 {
        if acquired(&from_the_beginning).is_empty() {
            from_the_beginning = fetch(&mut client, &of_before(epoch)).await;
        }
    }
    assert_eq!(acquired(&from_the_beginning), [(0, 2, 1)]);
    client.ask(2, &of_before(-1)).await;

    set_offset(&mut client, "set", 1).await;
    assert_eq!(described_offsets(&mut client).await, [(1, 2)]);
    let delete = DeleteGroupsRequest {
        groups_names: vec!["set".into(), "unknown".into()],
        ..Default::default()
    };
    let deleted = client.ask(2, &delete).await.results;
    let error_of = |group: &str| {
        let result = deleted.iter().find(|it| &*it.group_id == group);
        result.map(|it| code(it.error_code))
    };
    assert_eq!(error_of("set"), Some(ErrorCode::None));
    assert_eq!(error_of("unknown"), Some(ErrorCode::GroupIdNotFound));
    // The share coordinator has deleted it too.
    let summary = read_share_group_state_summary_request::ReadStateSummaryData {
        topic_id: topic_id("t"),
        partitions: vec![Default::default()],
        ..Default::default()
    };
    let summary = ReadShareGroupStateSummaryRequest {
        group_id: "set".into(),
        topics: vec![summary],
        ..Default::default()
    };
    let summary = client.ask(1, &summary).await;
    assert_eq!(summary.results[0].partitions[0].start_offset, -1);
}

/// An absent coordinator is searched for during six seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_are_described_and_deleted_concurrently() {
    let (broker, mut client) = broker(&[("offsets.topic.replication.factor", "1")]).await;
    let offsets_topic = [("cleanup.policy", "compact")];
    broker
        .create_topic("__consumer_offsets", 2, &offsets_topic)
        .await;
    let groups = ["a", "b", "c", "d", "e"];
    for group in groups {
        set_offset(&mut client, group, 2).await;
    }
    let state_topic = {
        let image = broker.broker().metadata();
        let topic = image.topics.by_name("__share_group_state");
        topic.expect("it was made").id
    };
    let leaderless = [0, 1].map(|partition_id| {
        MetadataRecord::PartitionChange(PartitionChangeRecord {
            partition_id,
            topic_id: state_topic,
            leader: -1,
            ..Default::default()
        })
    });
    broker.write(leaderless.into()).await;

    let describe = DescribeShareGroupOffsetsRequest {
        groups: groups
            .map(|group| DescribeShareGroupOffsetsRequestGroup {
                group_id: group.into(),
                topics: Some(vec![DescribeShareGroupOffsetsRequestTopic {
                    topic_name: "t".into(),
                    partitions: vec![0],
                    ..Default::default()
                }]),
                ..Default::default()
            })
            .into(),
        ..Default::default()
    };
    let delete = DeleteGroupsRequest {
        groups_names: groups.map(Into::into).into(),
        ..Default::default()
    };
    let mut other = broker.connect().await;
    let begun = Instant::now();
    let (described, deleted) = tokio::join!(client.ask(1, &describe), other.ask(2, &delete));
    let took = begun.elapsed();
    let described = described.groups.iter();
    let described: Vec<_> = described
        .map(|it| (&*it.group_id, it.topics[0].partitions[0].start_offset))
        .collect();
    assert_eq!(described, groups.map(|group| (group, -1)));
    for result in &deleted.results {
        assert_eq!(
            code(result.error_code),
            ErrorCode::CoordinatorNotAvailable,
            "{}",
            result.group_id
        );
    }
    assert_eq!(deleted.results.len(), groups.len());
    // One after the other, they would take 30 s.
    assert!(took < Duration::from_secs(25), "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_returning_group_starts_at_the_altered_offset() {
    let (_broker, mut client) = broker(&[]).await;
    produce(&mut client, &["a", "b", "c"]).await;
    let first = fetch(&mut client, &fetching("m1", 0, &[])).await;
    assert_eq!(acquired(&first), [(0, 2, 1)]);
    // It leaves, and its connection keeps the share partition open.
    fetch(&mut client, &fetching("m1", -1, &[])).await;
    initialize_at(&mut client, 2, 1).await;
    let mut epoch = 0;
    let again = loop {
        // One answer may be that the share partition was closed.
        let fetched = fetch(&mut client, &fetching("m1", epoch, &[])).await;
        if !fetched.acquired_records.is_empty() {
            break acquired(&fetched);
        }
        epoch += 1;
        assert!(epoch < 100, "{fetched:?}");
    };
    assert_eq!(again, [(1, 2, 1)]);
}
