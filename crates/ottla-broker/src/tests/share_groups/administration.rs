//! Members, and the description, the offsets and the deletion of share groups.

use ottla_coordinator::persister::{ReadState, StateBatch};
use ottla_protocol::messages::alter_share_group_offsets_request::{
    AlterShareGroupOffsetsRequestPartition, AlterShareGroupOffsetsRequestTopic,
};
use ottla_protocol::messages::delete_share_group_offsets_request::DeleteShareGroupOffsetsRequestTopic;
use ottla_protocol::messages::describe_share_group_offsets_request::{
    DescribeShareGroupOffsetsRequestGroup, DescribeShareGroupOffsetsRequestTopic,
};
use ottla_protocol::messages::{
    AlterShareGroupOffsetsRequest, DeleteGroupsRequest, DeleteShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest, ListGroupsRequest, ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
};
use ottla_protocol::metadata_records::{MetadataRecord, PartitionChangeRecord};
use ottla_types::LeaderEpoch;

use super::*;
use crate::tests::metrics;

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
