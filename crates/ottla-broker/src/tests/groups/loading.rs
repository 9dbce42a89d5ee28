//! The responses of a group coordinator while it loads its log.

use ottla_protocol::messages::{ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest};
use ottla_protocol::metadata_records::PartitionChangeRecord;
use ottla_types::Offset;

use super::*;

/// The partitions of the offsets topic of [`coordinating_broker`].
const PARTITIONS: [i32; 2] = [0, 1];

/// Kafka: `CoordinatorRuntime.contextOrThrow`, and its handling in
/// `GroupCoordinatorService.heartbeat`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_requests_but_heartbeats_get_coordinator_load_in_progress() {
    let broker = coordinating_broker(&[]).await;
    let mut client = broker.connect().await;
    let joined = join_alone(&mut client).await;
    wait_until_written(&broker).await;
    let held = elect_anew(&broker).await;
    let loading = ErrorCode::CoordinatorLoadInProgress;
    let list = ListGroupsRequest::default();
    assert_eq!(error(client.ask(5, &list).await.error_code), loading);

    let answered = client.ask(9, &joining(&joined.member_id)).await;
    assert_eq!(error(answered.error_code), loading, "JoinGroup");
    let answered = client.ask(5, &syncing(&joined, &[])).await;
    assert_eq!(error(answered.error_code), loading, "SyncGroup");
    // A member is assumed to be alive while its group is not loaded.
    let heartbeat = HeartbeatRequest {
        group_id: "g".into(),
        generation_id: joined.generation_id,
        member_id: joined.member_id.clone(),
        ..Default::default()
    };
    let answered = client.ask(4, &heartbeat).await;
    assert_eq!(error(answered.error_code), ErrorCode::None, "Heartbeat");
    let leave = LeaveGroupRequest {
        group_id: "g".into(),
        members: vec![MemberIdentity {
            member_id: joined.member_id.clone(),
            ..Default::default()
        }],
        ..Default::default()
    };
    let answered = client.ask(5, &leave).await;
    assert_eq!(error(answered.error_code), loading, "LeaveGroup");
    let answered = client.ask(10, &committing(&joined, 1)).await;
    let partition = &answered.topics[0].partitions[0];
    assert_eq!(error(partition.error_code), loading, "OffsetCommit");
    let answered = client.ask(10, &fetching()).await;
    assert_eq!(error(answered.groups[0].error_code), loading, "OffsetFetch");
    let delete_offsets = OffsetDeleteRequest {
        group_id: "g".into(),
        topics: vec![OffsetDeleteRequestTopic {
            name: "t".into(),
            partitions: vec![OffsetDeleteRequestPartition::default()],
        }],
    };
    let answered = client.ask(0, &delete_offsets).await;
    assert_eq!(error(answered.error_code), loading, "OffsetDelete");
    let answered = client.ask(6, &describing()).await;
    assert_eq!(error(answered.groups[0].error_code), loading, "Describe");
    let delete = DeleteGroupsRequest {
        groups_names: vec!["g".into()],
        ..Default::default()
    };
    let answered = client.ask(2, &delete).await;
    assert_eq!(error(answered.results[0].error_code), loading, "Delete");
    let beat = ConsumerGroupHeartbeatRequest {
        group_id: "g".into(),
        member_id: "m".into(),
        rebalance_timeout_ms: 10_000,
        subscribed_topic_names: Some(vec!["t".into()]),
        topic_partitions: Some(Vec::new()),
        ..Default::default()
    };
    let answered = client.ask(1, &beat).await;
    assert_eq!(
        error(answered.error_code),
        loading,
        "ConsumerGroupHeartbeat"
    );
    let describe = ConsumerGroupDescribeRequest {
        group_ids: vec!["g".into()],
        ..Default::default()
    };
    let answered = client.ask(1, &describe).await;
    let described = error(answered.groups[0].error_code);
    assert_eq!(described, loading, "ConsumerGroupDescribe");

    drop(held);
    wait_until_loaded(&broker).await;
    let answered = client.ask(6, &describing()).await;
    assert_eq!(error(answered.groups[0].error_code), ErrorCode::None);
}

/// Kafka too responds before it appends: `GroupMetadataManager.classicGroupJoinNewDynamicMember`
/// completes the response with the member ID, and `completeClassicGroupJoin` those with the
/// generation, for which it writes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_of_an_unwritten_group_is_unknown_to_the_next_coordinator() {
    let broker = coordinating_broker(&[]).await;
    let mut client = broker.connect().await;
    let mut appends_held = Vec::new();
    for index in PARTITIONS {
        let partition = broker.partition(OFFSETS_TOPIC, index);
        appends_held.push(partition.hold_appends(&broker.broker().host).await);
    }
    let joined = join_alone(&mut client).await;
    drop(elect_anew(&broker).await);
    drop(appends_held);
    wait_until_loaded(&broker).await;

    let answered = client.ask(6, &describing()).await;
    let described = error(answered.groups[0].error_code);
    assert_eq!(described, ErrorCode::GroupIdNotFound);
    let answered = client.ask(9, &joining(&joined.member_id)).await;
    assert_eq!(error(answered.error_code), ErrorCode::UnknownMemberId);
}

fn describing() -> DescribeGroupsRequest {
    DescribeGroupsRequest {
        groups: vec!["g".into()],
        ..Default::default()
    }
}

/// Waits for the first record of groups, which may be delayed by the new log's
/// `partition.metadata`.
async fn wait_until_written(broker: &TestBroker) {
    let deadline = Instant::now() + Duration::from_secs(60);
    let is_written = |index| {
        let partition = broker.partition(OFFSETS_TOPIC, index);
        partition.reader().high_watermark() > Offset(0)
    };
    while !PARTITIONS.into_iter().any(is_written) {
        assert!(Instant::now() < deadline, "the group is written");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Makes the broker coordinator of all partitions again. Loading completes when the returned permit
/// is dropped.
async fn elect_anew(broker: &TestBroker) -> tokio::sync::SemaphorePermit<'_> {
    let groups = &broker.broker().groups;
    let held = groups.hold_loading().await;
    let image = broker.broker().metadata().clone();
    let topic = image.topics.by_name(OFFSETS_TOPIC).expect("made");
    let elections = PARTITIONS.map(|partition_id| {
        MetadataRecord::PartitionChange(PartitionChangeRecord {
            partition_id,
            topic_id: topic.id,
            leader: 1,
            ..Default::default()
        })
    });
    broker.write(elections.to_vec()).await;
    let deadline = Instant::now() + Duration::from_secs(60);
    let is_loading = |index| {
        let looked = groups.shard(index).and_then(|shard| shard.read(|_| ()));
        looked == Err(ErrorCode::CoordinatorLoadInProgress)
    };
    while !PARTITIONS.into_iter().all(is_loading) {
        assert!(Instant::now() < deadline, "the next coordinators load");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    held
}
