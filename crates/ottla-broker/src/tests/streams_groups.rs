//! Streams groups (KIP-1071) over the wire: assignments of tasks, and creation of internal topics.

use std::time::{Duration, Instant};

use ottla_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use ottla_protocol::messages::streams_group_heartbeat_request::{
    Subtopology, TaskIds, TaskOffset, TopicInfo, Topology,
};
use ottla_protocol::messages::{
    DeleteGroupsRequest, ListGroupsRequest, OffsetCommitRequest, StreamsGroupDescribeRequest,
    StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse,
    StreamsGroupTopologyDescriptionUpdateRequest,
};
use ottla_types::ErrorCode;

use super::TestBroker;
use super::client::Client;
use super::groups::{coordinating_broker, error};

/// Permits a new assignment at any time, including the first.
const AT_ONCE: [(&str, &str); 2] = [
    ("group.streams.assignment.interval.ms", "0"),
    ("group.streams.initial.rebalance.delay.ms", "0"),
];
const CHANGELOG: &str = "g-store-changelog";

fn alive(member_id: &'static str, epoch: i32) -> StreamsGroupHeartbeatRequest {
    StreamsGroupHeartbeatRequest {
        group_id: "g".into(),
        member_id: member_id.into(),
        member_epoch: epoch,
        ..Default::default()
    }
}

/// A member of an application that reads `source` into a store. The topic `t` has two partitions.
fn joining(member_id: &'static str, source: &'static str) -> StreamsGroupHeartbeatRequest {
    StreamsGroupHeartbeatRequest {
        rebalance_timeout_ms: 10_000,
        process_id: Some(member_id.into()),
        active_tasks: Some(Vec::new()),
        standby_tasks: Some(Vec::new()),
        warmup_tasks: Some(Vec::new()),
        topology: Some(Topology {
            epoch: 0,
            subtopologies: vec![Subtopology {
                subtopology_id: "0".into(),
                source_topics: vec![source.into()],
                state_changelog_topics: vec![TopicInfo {
                    name: CHANGELOG.into(),
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        }),
        ..alive(member_id, 0)
    }
}

fn status(response: &StreamsGroupHeartbeatResponse) -> Vec<(i8, &str)> {
    let status = response.status.iter().flatten();
    status
        .map(|it| (it.status_code, &*it.status_detail))
        .collect()
}

fn active_tasks(response: &StreamsGroupHeartbeatResponse) -> Option<Vec<i32>> {
    let tasks = response.active_tasks.as_ref()?.iter();
    Some(tasks.flat_map(|tasks| tasks.partitions.clone()).collect())
}

/// Sends heartbeats until a response satisfies the condition.
async fn heartbeat_until(
    client: &mut Client,
    epoch: &mut i32,
    is_wished: impl Fn(&StreamsGroupHeartbeatResponse) -> bool,
) -> StreamsGroupHeartbeatResponse {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let reply = client.ask(0, &alive("m1", *epoch)).await;
        assert_eq!(error(reply.error_code), ErrorCode::None);
        *epoch = reply.member_epoch;
        if is_wished(&reply) {
            return reply;
        }
        assert!(Instant::now() < deadline, "the last answer was {reply:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn broker() -> (TestBroker, Client) {
    let broker = coordinating_broker(&AT_ONCE).await;
    let client = broker.connect().await;
    (broker, client)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_kafka_4_4_send_offsets_and_warm_up_tasks() {
    let (_broker, mut client) = broker().await;
    let mut join = joining("m1", "t");
    join.task_offsets = Some(Vec::new());
    join.task_end_offsets = Some(Vec::new());
    let joined = client.ask(1, &join).await;
    assert_eq!(error(joined.error_code), ErrorCode::None);
    assert_eq!(
        (
            joined.acceptable_recovery_lag,
            joined.task_offset_interval_ms
        ),
        (10_000, 60_000)
    );
    let mut beat = alive("m1", joined.member_epoch);
    beat.task_offsets = Some(vec![TaskOffset::default()]);
    beat.active_tasks = Some(Vec::new());
    beat.standby_tasks = Some(Vec::new());
    // Assigned by Kafka before the coordinator moved.
    beat.warmup_tasks = Some(vec![TaskIds {
        subtopology_id: "0".into(),
        partitions: vec![1],
        ..Default::default()
    }]);
    let heard = client.ask(1, &beat).await;
    assert_eq!(error(heard.error_code), ErrorCode::None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_gets_topics_and_tasks_and_is_described() {
    let (broker, mut client) = broker().await;
    let first = client.ask(0, &joining("m1", "t")).await;
    assert_eq!(error(first.error_code), ErrorCode::None);
    let missing = format!("Internal topics are missing: {CHANGELOG}");
    assert_eq!(status(&first), [(3, &*missing)]);
    assert_eq!(active_tasks(&first), Some(Vec::new()));
    let mut epoch = first.member_epoch;
    let reply = heartbeat_until(&mut client, &mut epoch, |reply| {
        active_tasks(reply).is_some_and(|tasks| !tasks.is_empty())
    });
    let reply = reply.await;
    assert_eq!(active_tasks(&reply), Some(vec![0, 1]));
    assert_eq!(status(&reply), []);
    let image = broker.broker().metadata().clone();
    let made = image.topics.by_name(CHANGELOG).expect("it was made");
    assert_eq!(made.partition_count(), 2);

    let describe = StreamsGroupDescribeRequest {
        group_ids: vec!["g".into(), "unknown".into(), "".into()],
        ..Default::default()
    };
    let described = client.ask(0, &describe).await.groups;
    assert_eq!(&*described[0].group_state, "Stable");
    let topology = described[0].topology.as_ref().expect("it has one");
    let subtopologies = topology.subtopologies.as_ref().expect("they are shown");
    assert_eq!(subtopologies[0].state_changelog_topics[0].partitions, 2);
    assert_eq!(described[0].members.len(), 1);
    let errors = described.iter().map(|group| error(group.error_code));
    let (missing, invalid) = (ErrorCode::GroupIdNotFound, ErrorCode::InvalidGroupId);
    assert_eq!(
        errors.collect::<Vec<_>>(),
        [ErrorCode::None, missing, invalid]
    );
    let mut with_topology = describe.clone();
    with_topology.include_topology_description = true;
    let described = client.ask(1, &with_topology).await.groups;
    let assignor = described[0].assignor_name.as_deref();
    // No member has sent a topology, and a group that does not exist has no status.
    assert_eq!(
        (assignor, described[0].topology_description_status),
        (Some("sticky"), 1)
    );
    assert_eq!(
        (
            &described[1].assignor_name,
            described[1].topology_description_status
        ),
        (&None, 0)
    );
    let update = StreamsGroupTopologyDescriptionUpdateRequest {
        group_id: "g".into(),
        member_id: "m1".into(),
        ..Default::default()
    };
    let refused = client.ask(0, &update).await;
    assert_eq!(error(refused.error_code), ErrorCode::UnsupportedVersion);
    let listed = client.ask(5, &ListGroupsRequest::default()).await.groups;
    assert_eq!(
        (&*listed[0].group_type, &*listed[0].group_state),
        ("streams", "Stable")
    );

    let delete = DeleteGroupsRequest {
        groups_names: vec!["g".into()],
        ..Default::default()
    };
    let deleted = client.ask(2, &delete).await.results;
    assert_eq!(error(deleted[0].error_code), ErrorCode::NonEmptyGroup);
    let left = client.ask(0, &alive("m1", -1)).await;
    assert_eq!(left.member_epoch, -1);
    let deleted = client.ask(2, &delete).await.results;
    assert_eq!(error(deleted[0].error_code), ErrorCode::None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_learns_why_its_topics_cannot_be_created() {
    let (_broker, mut client) = broker().await;
    let mut join = joining("m1", "t");
    let topology = join.topology.as_mut().expect("it has one");
    topology.subtopologies[0].state_changelog_topics[0].replication_factor = 9;
    let mut epoch = client.ask(0, &join).await.member_epoch;
    let reply = heartbeat_until(&mut client, &mut epoch, |reply| {
        status(reply)
            .first()
            .is_some_and(|(_, detail)| detail.contains("Creation failed"))
    });
    let reply = reply.await;
    let expected = format!(
        "Internal topics are missing: {CHANGELOG}; Creation failed: {CHANGELOG} (Unable to replicate \
         the partition 9 time(s): The target replication factor of 9 cannot be reached because only \
         1 broker(s) are registered or some brokers have all their log directories cordoned.)."
    );
    assert_eq!(status(&reply), [(3, &*expected)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_and_internal_topic_names_are_refused() {
    let (_broker, mut client) = broker().await;
    for (source, message) in [
        (
            "__consumer_offsets",
            "Use of Kafka internal topics __consumer_offsets in a Kafka Streams topology is prohibited.",
        ),
        ("a/b", "Topic names a/b are not valid topic names."),
    ] {
        let refused = client.ask(0, &joining("m1", source)).await;
        assert_eq!(error(refused.error_code), ErrorCode::StreamsInvalidTopology);
        assert_eq!(refused.error_message.as_deref(), Some(message));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_protocol_can_be_switched_off() {
    let others = ("group.coordinator.rebalance.protocols", "classic,consumer");
    let broker = coordinating_broker(&[others]).await;
    let mut client = broker.connect().await;
    let refused = client.ask(0, &joining("m1", "t")).await;
    assert_eq!(error(refused.error_code), ErrorCode::UnsupportedVersion);
    let describe = StreamsGroupDescribeRequest {
        group_ids: vec!["g".into()],
        ..Default::default()
    };
    let described = client.ask(0, &describe).await.groups;
    assert_eq!(
        error(described[0].error_code),
        ErrorCode::UnsupportedVersion
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_commits_in_its_epoch() {
    let (_broker, mut client) = broker().await;
    let epoch = client.ask(0, &joining("m1", "t")).await.member_epoch;
    let mut commit = async |member_id: &'static str, epoch| {
        let request = OffsetCommitRequest {
            group_id: "g".into(),
            member_id: member_id.into(),
            generation_id_or_member_epoch: epoch,
            topics: vec![OffsetCommitRequestTopic {
                name: "t".into(),
                partitions: vec![OffsetCommitRequestPartition {
                    committed_offset: 3,
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        };
        let response = client.ask(9, &request).await;
        error(response.topics[0].partitions[0].error_code)
    };
    assert_eq!(commit("m1", epoch).await, ErrorCode::None);
    assert_eq!(commit("m1", epoch + 1).await, ErrorCode::StaleMemberEpoch);
    assert_eq!(commit("m9", epoch).await, ErrorCode::UnknownMemberId);
    // Like an administrator.
    assert_eq!(commit("", -1).await, ErrorCode::UnknownMemberId);
}
