//! Consumer groups over the wire: members that join, commit and leave, with coordinators that
//! reload their partitions.

mod loading;

use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use bytestring::ByteString;
use ottla_coordinator::group::{JoinContext, Requester};
use ottla_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use ottla_protocol::messages::leave_group_request::MemberIdentity;
use ottla_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use ottla_protocol::messages::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use ottla_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use ottla_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use ottla_protocol::messages::{
    DeleteGroupsRequest, DescribeGroupsRequest, FindCoordinatorRequest, HeartbeatRequest,
    JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, ListGroupsRequest, OffsetCommitRequest,
    OffsetDeleteRequest, OffsetFetchRequest, SyncGroupRequest,
};
use ottla_protocol::metadata_records::{MetadataRecord, PartitionRecord};
use ottla_types::{ErrorCode, Uuid};

use super::client::Client;
use super::{TestBroker, topic_id};

const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// A broker that coordinates groups in two partitions, with a topic `t` of two partitions.
pub(super) async fn coordinating_broker(settings: &[(&str, &str)]) -> TestBroker {
    let mut all = vec![
        ("group.initial.rebalance.delay.ms", "0"),
        ("offsets.topic.replication.factor", "1"),
    ];
    all.extend_from_slice(settings);
    let broker = TestBroker::start_with(&all).await;
    broker.create_topic("t", 2, &[]).await;
    broker
        .create_topic(OFFSETS_TOPIC, 2, &[("cleanup.policy", "compact")])
        .await;
    wait_until_loaded(&broker).await;
    broker
}

async fn wait_until_loaded(broker: &TestBroker) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let list = broker
            .connect()
            .await
            .ask(5, &ListGroupsRequest::default())
            .await;
        if list.error_code == 0 {
            return;
        }
        assert_eq!(error(list.error_code), ErrorCode::CoordinatorLoadInProgress);
        assert!(Instant::now() < deadline, "the coordinators load");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(super) fn error(code: i16) -> ErrorCode {
    ErrorCode::from_code(code)
}

pub(super) fn joining(member_id: &ByteString) -> JoinGroupRequest {
    JoinGroupRequest {
        group_id: "g".into(),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 10_000,
        member_id: member_id.clone(),
        protocol_type: "consumer".into(),
        protocols: vec![JoinGroupRequestProtocol {
            name: "range".into(),
            metadata: Bytes::from_static(b"\0\x01\0\0\0\x01\0\x01t\xff\xff\xff\xff\0\0\0\0"),
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn syncing(
    joined: &JoinGroupResponse,
    assignments: &[(&ByteString, &'static str)],
) -> SyncGroupRequest {
    SyncGroupRequest {
        group_id: "g".into(),
        generation_id: joined.generation_id,
        member_id: joined.member_id.clone(),
        protocol_type: Some("consumer".into()),
        protocol_name: Some("range".into()),
        assignments: assignments
            .iter()
            .map(|(member_id, assignment)| SyncGroupRequestAssignment {
                member_id: (*member_id).clone(),
                assignment: Bytes::from_static(assignment.as_bytes()),
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    }
}

/// Joins as the only member of `g`. The generation has started, and has no assignment yet.
async fn join_alone(client: &mut Client) -> JoinGroupResponse {
    let required = client.ask(9, &joining(&ByteString::new())).await;
    assert_eq!(error(required.error_code), ErrorCode::MemberIdRequired);
    assert_eq!(required.protocol_name, None);
    assert!(
        required.member_id.starts_with("test-"),
        "{}",
        required.member_id
    );
    let joined = client.ask(9, &joining(&required.member_id)).await;
    assert_eq!(error(joined.error_code), ErrorCode::None);
    joined
}

pub(super) fn committing(joined: &JoinGroupResponse, offset: i64) -> OffsetCommitRequest {
    OffsetCommitRequest {
        group_id: "g".into(),
        generation_id_or_member_epoch: joined.generation_id,
        member_id: joined.member_id.clone(),
        topics: vec![OffsetCommitRequestTopic {
            name: "t".into(),
            topic_id: topic_id("t"),
            partitions: vec![OffsetCommitRequestPartition {
                partition_index: 1,
                committed_offset: offset,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

pub(super) fn fetching() -> OffsetFetchRequest {
    OffsetFetchRequest {
        groups: vec![OffsetFetchRequestGroup {
            group_id: "g".into(),
            topics: Some(vec![OffsetFetchRequestTopics {
                name: "t".into(),
                topic_id: topic_id("t"),
                partition_indexes: vec![0, 1],
                ..Default::default()
            }]),
            ..Default::default()
        }],
        require_stable: true,
        ..Default::default()
    }
}

/// Partition, error and offset of each partition in the response.
async fn fetched(client: &mut Client) -> Vec<(i32, ErrorCode, i64)> {
    let response = client.ask(10, &fetching()).await;
    let group = &response.groups[0];
    assert_eq!(error(group.error_code), ErrorCode::None);
    let partitions = group.topics[0].partitions.iter();
    partitions
        .map(|partition| {
            let code = error(partition.error_code);
            (partition.partition_index, code, partition.committed_offset)
        })
        .collect()
}

/// The responses are not delayed by timer ticks, which are as long as a whole rebalance of nearby
/// members, and members that join at the same time are in one generation. Kafka: in
/// `CoordinatorTimerImpl.schedule`, an expired timer is queued after the pending events.
#[tokio::test]
async fn a_first_rebalance_without_a_delay_waits_for_known_members() {
    let broker = coordinating_broker(&[]).await;
    let broker = broker.broker();
    let coordinator = broker.groups.coordinator_of("g").expect("it is here");
    let mut members: Vec<_> = (1..=3)
        .map(|random| {
            let context = JoinContext {
                client_id: "test".into(),
                client_host: "/127.0.0.1".into(),
                requires_known_member_id: false,
                supports_skipping_assignment: true,
                random: [random; 16],
                requester: Requester::none(),
            };
            Box::pin(coordinator.request(&broker.groups, |groups, to, now| {
                groups.handle_join(to, joining(&ByteString::new()), context, now)
            }))
        })
        .collect();
    let mut sizes = Vec::new();
    let mut turns = 0;
    while !members.is_empty() {
        turns += 1;
        assert!(turns < 10, "{} wait for a clock", members.len());
        members.retain_mut(|member| {
            let polled = member
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()));
            let Poll::Ready(answer) = polled else {
                return true;
            };
            let Ok(joined) = answer else {
                panic!("{answer:?}");
            };
            assert_eq!(error(joined.error_code), ErrorCode::None);
            assert_eq!(joined.generation_id, 1);
            sizes.push(joined.members.len());
            false
        });
    }
    sizes.sort_unstable();
    assert_eq!(sizes, [0, 0, 3], "the leader receives all members");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_joins_commits_leaves_and_its_group_is_deleted() {
    let broker = coordinating_broker(&[]).await;
    let mut client = broker.connect().await;
    let joined = join_alone(&mut client).await;
    assert_eq!(joined.leader, joined.member_id);
    let synced = client
        .ask(5, &syncing(&joined, &[(&joined.member_id, "all")]))
        .await;
    assert_eq!(
        (error(synced.error_code), &synced.assignment[..]),
        (ErrorCode::None, &b"all"[..])
    );

    let heartbeat = HeartbeatRequest {
        group_id: "g".into(),
        generation_id: joined.generation_id,
        member_id: joined.member_id.clone(),
        ..Default::default()
    };
    assert_eq!(client.ask(4, &heartbeat).await.error_code, 0);
    let committed = client.ask(10, &committing(&joined, 42)).await;
    assert_eq!(committed.topics[0].partitions[0].error_code, 0);
    assert_eq!(
        fetched(&mut client).await,
        [(0, ErrorCode::None, -1), (1, ErrorCode::None, 42)]
    );

    let describe = DescribeGroupsRequest {
        groups: vec!["g".into(), "x".into()],
        include_authorized_operations: true,
        ..Default::default()
    };
    let described = client.ask(5, &describe).await.groups;
    assert_eq!(described[0].group_state, "Stable");
    assert_eq!(described[0].members[0].client_id, "test");
    assert_eq!(described[0].members[0].client_host, "/127.0.0.1");
    assert_eq!(described[0].members[0].member_assignment, "all");
    // READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS.
    assert_eq!(described[0].authorized_operations, 0b1101_0100_1000);
    assert_eq!(
        (&*described[1].group_state, described[1].error_code),
        ("Dead", 0)
    );
    let listed = client.ask(5, &ListGroupsRequest::default()).await.groups;
    assert_eq!(listed.len(), 1);
    assert_eq!(
        (&*listed[0].group_state, &*listed[0].group_type),
        ("Stable", "classic")
    );

    let delete = DeleteGroupsRequest {
        groups_names: vec!["g".into()],
        ..Default::default()
    };
    let results = client.ask(2, &delete).await.results;
    assert_eq!(error(results[0].error_code), ErrorCode::NonEmptyGroup);
    let leave = LeaveGroupRequest {
        group_id: "g".into(),
        members: vec![MemberIdentity {
            member_id: joined.member_id,
            ..Default::default()
        }],
        ..Default::default()
    };
    assert_eq!(client.ask(5, &leave).await.members[0].error_code, 0);
    let results = client.ask(2, &delete).await.results;
    assert_eq!(error(results[0].error_code), ErrorCode::None);
    assert_eq!(
        client.ask(5, &ListGroupsRequest::default()).await.groups,
        []
    );
    assert_eq!(
        fetched(&mut client).await,
        [(0, ErrorCode::None, -1), (1, ErrorCode::None, -1)]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_member_makes_the_first_rejoin() {
    let broker = coordinating_broker(&[]).await;
    let (mut first, mut second) = (broker.connect().await, broker.connect().await);
    let joined = join_alone(&mut first).await;
    first
        .ask(5, &syncing(&joined, &[(&joined.member_id, "all")]))
        .await;

    let required = second.ask(9, &joining(&ByteString::new())).await;
    // Parked until the first member rejoins.
    let parked = second.send(9, &joining(&required.member_id)).await;
    let heartbeat = HeartbeatRequest {
        group_id: "g".into(),
        generation_id: joined.generation_id,
        member_id: joined.member_id.clone(),
        ..Default::default()
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while error(first.ask(4, &heartbeat).await.error_code) != ErrorCode::RebalanceInProgress {
        assert!(Instant::now() < deadline, "the group rebalances");
    }
    let rejoined = first.ask(9, &joining(&joined.member_id)).await;
    let followed = second.receive::<JoinGroupRequest>(9, parked).await;
    assert_eq!((rejoined.generation_id, followed.generation_id), (2, 2));
    assert_eq!((rejoined.members.len(), followed.members.len()), (2, 0));

    // The follower waits for the leader's assignment.
    let parked = second.send(5, &syncing(&followed, &[])).await;
    let parts = [(&rejoined.member_id, "0"), (&followed.member_id, "1")];
    let synced = first.ask(5, &syncing(&rejoined, &parts)).await;
    assert_eq!(synced.assignment, "0");
    let synced = second.receive::<SyncGroupRequest>(5, parked).await;
    assert_eq!(synced.assignment, "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_coordinator_continues_with_the_state_of_the_group() {
    let broker = coordinating_broker(&[]).await;
    let mut client = broker.connect().await;
    let joined = join_alone(&mut client).await;
    client
        .ask(5, &syncing(&joined, &[(&joined.member_id, "all")]))
        .await;
    client.ask(10, &committing(&joined, 42)).await;

    // A new leader epoch: the old coordinator is closed, and the new one loads the log.
    for partition_id in 0..2 {
        broker
            .write(vec![MetadataRecord::Partition(PartitionRecord {
                partition_id,
                topic_id: topic_id(OFFSETS_TOPIC),
                replicas: vec![1],
                isr: vec![1],
                leader: 1,
                leader_epoch: 1,
                partition_epoch: 1,
                directories: vec![Uuid::DIRECTORY_MIGRATING],
                ..Default::default()
            })])
            .await;
    }
    wait_until_loaded(&broker).await;
    let synced = client.ask(5, &syncing(&joined, &[])).await;
    assert_eq!(
        (error(synced.error_code), &synced.assignment[..]),
        (ErrorCode::None, &b"all"[..])
    );
    assert_eq!(fetched(&mut client).await[1], (1, ErrorCode::None, 42));
    let committed = client.ask(10, &committing(&joined, 43)).await;
    assert_eq!(committed.topics[0].partitions[0].error_code, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_answers_waiting_members_with_not_coordinator() {
    let broker = coordinating_broker(&[("group.initial.rebalance.delay.ms", "60000")]).await;
    let mut client = broker.connect().await;
    let required = client.ask(9, &joining(&ByteString::new())).await;
    let parked = client.send(9, &joining(&required.member_id)).await;
    let mut other = broker.connect().await;
    let describe = DescribeGroupsRequest {
        groups: vec!["g".into()],
        ..Default::default()
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while other.ask(5, &describe).await.groups[0].group_state != "PreparingRebalance" {
        assert!(Instant::now() < deadline, "the member waits");
    }
    drop(other);
    let answer = client.receive::<JoinGroupRequest>(9, parked);
    let (joined, ()) = tokio::join!(answer, broker.running.stop());
    assert_eq!(error(joined.error_code), ErrorCode::NotCoordinator);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_too_large_for_a_record_are_refused() {
    let broker = coordinating_broker(&[]).await;
    let mut client = broker.connect().await;
    let joined = join_alone(&mut client).await;
    let huge: &'static str = "x".repeat(2 * 1024 * 1024).leak();
    let synced = client
        .ask(5, &syncing(&joined, &[(&joined.member_id, huge)]))
        .await;
    assert_eq!(error(synced.error_code), ErrorCode::UnknownServerError);
    // The group rebalances and works again.
    let rejoined = client.ask(9, &joining(&joined.member_id)).await;
    assert_eq!(rejoined.generation_id, 2);
    let synced = client
        .ask(5, &syncing(&rejoined, &[(&rejoined.member_id, "ok")]))
        .await;
    assert_eq!(error(synced.error_code), ErrorCode::None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_for_unknown_partitions_are_refused_individually() {
    let broker = coordinating_broker(&[]).await;
    let mut client = broker.connect().await;
    let nobody = JoinGroupResponse::default();
    let mut commit = committing(&nobody, 7);
    commit.topics[0]
        .partitions
        .push(OffsetCommitRequestPartition {
            partition_index: 9,
            committed_offset: 7,
            ..Default::default()
        });
    let mut unknown = commit.topics[0].clone();
    (unknown.name, unknown.topic_id) = ("nowhere".into(), Uuid::from_u128(99));
    commit.topics.push(unknown);
    for (version, of_topic) in [
        (9, ErrorCode::UnknownTopicOrPartition),
        (10, ErrorCode::UnknownTopicId),
    ] {
        let topics = client.ask(version, &commit).await.topics;
        let codes = |index: usize| {
            let partitions = topics[index].partitions.iter();
            let mut codes: Vec<_> = partitions
                .map(|partition| (partition.partition_index, error(partition.error_code)))
                .collect();
            codes.sort_by_key(|(index, _)| *index);
            codes
        };
        assert_eq!(
            codes(0),
            [
                (1, ErrorCode::None),
                (9, ErrorCode::UnknownTopicOrPartition)
            ]
        );
        assert_eq!(codes(1), [(1, of_topic), (9, of_topic)]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_version_is_answered_in_its_own_format() {
    let broker = coordinating_broker(&[]).await;
    let mut client = broker.connect().await;
    let nobody = JoinGroupResponse::default();
    for version in 2..=10 {
        let mut commit = committing(&nobody, i64::from(version));
        commit.retention_time_ms = -1;
        let committed = client.ask(version, &commit).await;
        assert_eq!(
            committed.topics[0].partitions[0].error_code, 0,
            "OffsetCommit {version}"
        );
    }
    for version in 1..=7 {
        let request = OffsetFetchRequest {
            group_id: "g".into(),
            topics: Some(vec![OffsetFetchRequestTopic {
                name: "t".into(),
                partition_indexes: vec![1],
                ..Default::default()
            }]),
            ..Default::default()
        };
        let response = client.ask(version, &request).await;
        let partition = &response.topics[0].partitions[0];
        assert_eq!(partition.committed_offset, 10, "OffsetFetch {version}");
        if version >= 2 {
            let all = OffsetFetchRequest {
                topics: None,
                ..request
            };
            let response = client.ask(version, &all).await;
            assert_eq!(response.topics[0].partitions[0].committed_offset, 10);
        }
    }
    for version in 8..=10 {
        let response = client.ask(version, &fetching()).await;
        let partition = &response.groups[0].topics[0].partitions[1];
        assert_eq!(partition.committed_offset, 10, "OffsetFetch {version}");
        let mut all = fetching();
        all.groups[0].topics = None;
        let response = client.ask(version, &all).await;
        assert_eq!(
            response.groups[0].topics[0].partitions[0].committed_offset,
            10
        );
    }
    for version in 0..=9 {
        let mut client = broker.connect().await;
        let response = client.ask(version, &joining(&"stranger".into())).await;
        let code = error(response.error_code);
        // The group is empty, so the member is unknown.
        assert_eq!(code, ErrorCode::UnknownMemberId, "JoinGroup {version}");
        let is_absent = response.protocol_name.is_none();
        assert_eq!(is_absent, version >= 7, "JoinGroup {version}");
    }
    for version in 0..=5 {
        let request = SyncGroupRequest {
            protocol_type: (version >= 5).then(|| "consumer".into()),
            protocol_name: (version >= 5).then(|| "range".into()),
            ..syncing(&nobody, &[])
        };
        let response = client.ask(version, &request).await;
        let code = error(response.error_code);
        assert_eq!(code, ErrorCode::UnknownMemberId, "SyncGroup {version}");
        let response = client
            .ask(
                version,
                &LeaveGroupRequest {
                    group_id: "g".into(),
                    member_id: if version < 3 {
                        "stranger".into()
                    } else {
                        ByteString::new()
                    },
                    members: if version < 3 {
                        Vec::new()
                    } else {
                        vec![MemberIdentity {
                            member_id: "stranger".into(),
                            ..Default::default()
                        }]
                    },
                    ..Default::default()
                },
            )
            .await;
        let code = match version {
            0..=2 => response.error_code,
            _ => response.members[0].error_code,
        };
        assert_eq!(
            error(code),
            ErrorCode::UnknownMemberId,
            "LeaveGroup {version}"
        );
    }
    for version in 0..=4 {
        let request = HeartbeatRequest {
            group_id: "g".into(),
            ..Default::default()
        };
        let response = client.ask(version, &request).await;
        let code = error(response.error_code);
        assert_eq!(code, ErrorCode::UnknownMemberId, "Heartbeat {version}");
    }
    for version in 0..=6 {
        let request = DescribeGroupsRequest {
            groups: vec!["x".into()],
            ..Default::default()
        };
        let group = &client.ask(version, &request).await.groups[0];
        let expected = if version < 6 {
            ErrorCode::None
        } else {
            ErrorCode::GroupIdNotFound
        };
        assert_eq!(
            error(group.error_code),
            expected,
            "DescribeGroups {version}"
        );
        assert_eq!(group.group_state, "Dead");
    }
    for version in 0..=5 {
        let groups = client
            .ask(version, &ListGroupsRequest::default())
            .await
            .groups;
        assert_eq!(groups[0].group_id, "g", "ListGroups {version}");
    }
    let delete = OffsetDeleteRequest {
        group_id: "g".into(),
        topics: vec![OffsetDeleteRequestTopic {
            name: "t".into(),
            partitions: vec![
                OffsetDeleteRequestPartition { partition_index: 1 },
                OffsetDeleteRequestPartition { partition_index: 9 },
            ],
        }],
    };
    let response = client.ask(0, &delete).await;
    let partitions = response.topics[0].partitions.iter();
    let mut codes: Vec<_> = partitions
        .map(|partition| (partition.partition_index, error(partition.error_code)))
        .collect();
    codes.sort_by_key(|(index, _)| *index);
    assert_eq!(
        codes,
        [
            (1, ErrorCode::None),
            (9, ErrorCode::UnknownTopicOrPartition)
        ]
    );
    for version in 0..=2 {
        let request = DeleteGroupsRequest {
            groups_names: vec!["x".into(), "x".into()],
            ..Default::default()
        };
        let results = client.ask(version, &request).await.results;
        assert_eq!(results.len(), 1, "DeleteGroups {version}");
        assert_eq!(error(results[0].error_code), ErrorCode::GroupIdNotFound);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_of_other_coordinators_are_refused() {
    let broker = TestBroker::start().await;
    let mut client = broker.connect().await;
    let joined = client.ask(9, &joining(&ByteString::new())).await;
    assert_eq!(error(joined.error_code), ErrorCode::NotCoordinator);
    let described = client
        .ask(
            6,
            &DescribeGroupsRequest {
                groups: vec!["g".into()],
                ..Default::default()
            },
        )
        .await;
    assert_eq!(
        error(described.groups[0].error_code),
        ErrorCode::NotCoordinator
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_offsets_topic_is_created_by_find_coordinator() {
    let broker = TestBroker::start_with(&[
        ("offsets.topic.replication.factor", "1"),
        ("offsets.topic.num.partitions", "3"),
        ("offsets.topic.segment.bytes", "1048576"),
    ])
    .await;
    let mut client = broker.connect().await;
    let request = FindCoordinatorRequest {
        coordinator_keys: vec!["g".into(), "h".into()],
        ..Default::default()
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    let coordinators = loop {
        let coordinators = client.ask(6, &request).await.coordinators;
        if error(coordinators[0].error_code) != ErrorCode::CoordinatorNotAvailable {
            break coordinators;
        }
        assert!(Instant::now() < deadline, "the topic is created");
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    let port = i32::from(broker.running.listeners()[0].local_addr.port());
    for coordinator in coordinators {
        assert_eq!(error(coordinator.error_code), ErrorCode::None);
        assert_eq!((coordinator.node_id, coordinator.port), (1, port));
        assert_eq!(coordinator.host, "127.0.0.1");
    }
    let older = FindCoordinatorRequest {
        key: "g".into(),
        ..Default::default()
    };
    let found = client.ask(0, &older).await;
    assert_eq!((found.node_id, found.port), (1, port));

    // The published change takes effect: the coordinator loads, and then responds.
    let joined = loop {
        let joined = client.ask(9, &joining(&ByteString::new())).await;
        if error(joined.error_code) != ErrorCode::CoordinatorLoadInProgress {
            break joined;
        }
        assert!(Instant::now() < deadline, "the coordinator loads");
    };
    assert_eq!(error(joined.error_code), ErrorCode::MemberIdRequired);

    let image = broker.broker().metadata().clone();
    let topic = image.topics.by_name(OFFSETS_TOPIC).expect("it was created");
    assert_eq!(topic.partition_count(), 3);
    let settings = ottla_metadata::ConfigResource::topic(OFFSETS_TOPIC);
    let setting = |key| {
        image
            .configs
            .value(&settings, key)
            .map(|value| value.to_string())
    };
    assert_eq!(setting("cleanup.policy").as_deref(), Some("compact"));
    assert_eq!(setting("segment.bytes").as_deref(), Some("1048576"));
    assert_eq!(setting("compression.type").as_deref(), Some("producer"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_coordinator_types_are_refused() {
    let broker = TestBroker::start().await;
    let mut client = broker.connect().await;
    let share = FindCoordinatorRequest {
        key_type: 2,
        coordinator_keys: vec!["g:AAAAAAAAAAAAAAAAAAAAAQ:0".into(), "nonsense".into()],
        ..Default::default()
    };
    for (version, expected) in [
        (5, [ErrorCode::InvalidRequest, ErrorCode::InvalidRequest]),
        (
            6,
            [
                ErrorCode::CoordinatorNotAvailable,
                ErrorCode::InvalidRequest,
            ],
        ),
    ] {
        let coordinators = client.ask(version, &share).await.coordinators;
        let codes: Vec<_> = coordinators
            .iter()
            .map(|coordinator| error(coordinator.error_code))
            .collect();
        assert_eq!(codes, expected);
    }
}

/// Each commit waits for its fsync. Most fsyncs take longer than the client waits, except on a file
/// system in memory. The client then learns that the outcome is unknown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_with_a_slow_fsync_is_not_rolled_back() {
    let settings = [
        ("offsets.commit.timeout.ms", "1"),
        ("log.flush.interval.messages", "1"),
    ];
    let broker = coordinating_broker(&settings).await;
    let mut client = broker.connect().await;
    let nobody = JoinGroupResponse {
        generation_id: -1,
        ..Default::default()
    };
    for offset in 1..=30 {
        let committed = client.ask(10, &committing(&nobody, offset)).await;
        let answered = error(committed.topics[0].partitions[0].error_code);
        assert!(
            matches!(
                answered,
                // The errors of a commit that timed out.
                ErrorCode::None | ErrorCode::CoordinatorNotAvailable | ErrorCode::RequestTimedOut
            ),
            "{answered}"
        );
        let deadline = Instant::now() + Duration::from_secs(60);
        while fetched_unstable(&mut client).await != offset {
            assert!(Instant::now() < deadline, "commit {offset} came to nothing");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// The committed offset of partition 1.
async fn fetched_unstable(client: &mut Client) -> i64 {
    let request = OffsetFetchRequest {
        require_stable: false,
        ..fetching()
    };
    let response = client.ask(10, &request).await;
    response.groups[0].topics[0].partitions[1].committed_offset
}
