//! Groups of the consumer protocol (KIP-848) over the wire.

use std::time::{Duration, Instant};

use ottla_protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use ottla_protocol::messages::{
    ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse,
    DescribeGroupsRequest, ListGroupsRequest,
};
use ottla_protocol::metadata_records::{ConfigRecord, MetadataRecord};
use ottla_types::ErrorCode;

use super::client::Client;
use super::groups::{coordinating_broker, error};
use super::topic_id;

/// Permits a new assignment at any time.
const AT_ONCE: (&str, &str) = ("group.consumer.assignment.interval.ms", "0");

fn alive(member_id: &str, epoch: i32) -> ConsumerGroupHeartbeatRequest {
    ConsumerGroupHeartbeatRequest {
        group_id: "g".into(),
        member_id: member_id.to_owned().into(),
        member_epoch: epoch,
        ..Default::default()
    }
}

fn joining(member_id: &str) -> ConsumerGroupHeartbeatRequest {
    ConsumerGroupHeartbeatRequest {
        rebalance_timeout_ms: 10_000,
        subscribed_topic_names: Some(vec!["t".into()]),
        topic_partitions: Some(Vec::new()),
        ..alive(member_id, 0)
    }
}

fn partitions_of(response: &ConsumerGroupHeartbeatResponse) -> Option<Vec<i32>> {
    let assignment = response.assignment.as_ref()?;
    let topics = assignment.topic_partitions.iter();
    Some(topics.flat_map(|topic| topic.partitions.clone()).collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_share_a_topic_and_are_described() {
    let broker = coordinating_broker(&[AT_ONCE]).await;
    let mut client = broker.connect().await;
    let first = client.ask(1, &joining("m1")).await;
    assert_eq!(error(first.error_code), ErrorCode::None);
    assert_eq!(partitions_of(&first), Some(vec![0, 1]));
    assert_eq!(first.heartbeat_interval_ms, 5_000);

    let second = client.ask(1, &joining("m2")).await;
    assert_eq!(partitions_of(&second), Some(Vec::new()));
    let reply = client.ask(1, &alive("m1", first.member_epoch)).await;
    assert_eq!(partitions_of(&reply), Some(vec![0]));
    let given_up = ConsumerGroupHeartbeatRequest {
        topic_partitions: Some(vec![TopicPartitions {
            topic_id: topic_id("t"),
            partitions: vec![0],
            ..Default::default()
        }]),
        ..alive("m1", first.member_epoch)
    };
    assert_eq!(
        client.ask(1, &given_up).await.member_epoch,
        second.member_epoch
    );
    let reply = client.ask(1, &alive("m2", second.member_epoch)).await;
    assert_eq!(partitions_of(&reply), Some(vec![1]));

    let describe = ConsumerGroupDescribeRequest {
        group_ids: vec!["g".into(), "unknown".into()],
        ..Default::default()
    };
    let described = client.ask(1, &describe).await.groups;
    let group = &described[0];
    assert_eq!(
        (&*group.group_state, &*group.assignor_name),
        ("Stable", "uniform")
    );
    assert_eq!(group.members.len(), 2);
    let assignment = &group.members[1].assignment.topic_partitions[0];
    assert_eq!(
        (&*assignment.topic_name, &*assignment.partitions),
        ("t", &[1][..])
    );
    assert_eq!(error(described[1].error_code), ErrorCode::GroupIdNotFound);
    let listed = client.ask(5, &ListGroupsRequest::default()).await.groups;
    assert_eq!(
        (&*listed[0].group_type, &*listed[0].group_state),
        ("consumer", "Stable")
    );
    let classic = DescribeGroupsRequest {
        groups: vec!["g".into()],
        ..Default::default()
    };
    let described = client.ask(6, &classic).await.groups;
    assert_eq!(
        described[0].error_message.as_deref(),
        Some("Group g is not a classic group.")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_regular_expression_is_resolved_and_follows_new_topics() {
    let broker = coordinating_broker(&[AT_ONCE]).await;
    let mut client = broker.connect().await;
    let join = ConsumerGroupHeartbeatRequest {
        subscribed_topic_names: Some(Vec::new()),
        subscribed_topic_regex: Some("t[a-z]*".into()),
        ..joining("m1")
    };
    let joined = client.ask(1, &join).await;
    assert_eq!(error(joined.error_code), ErrorCode::None);
    let mut epoch = joined.member_epoch;
    await_partitions(&mut client, &mut epoch, 2).await;

    let invalid = ConsumerGroupHeartbeatRequest {
        subscribed_topic_regex: Some("(".into()),
        ..joining("m2")
    };
    let refused = client.ask(1, &invalid).await;
    assert_eq!(
        error(refused.error_code),
        ErrorCode::InvalidRegularExpression
    );
    assert_eq!(
        refused.error_message.as_deref(),
        Some("SubscribedTopicRegex `(` is not a valid regular expression: missing closing ).")
    );
}

/// Sends heartbeats until the member has this number of partitions.
async fn await_partitions(client: &mut Client, epoch: &mut i32, count: usize) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let reply = client.ask(1, &alive("m1", *epoch)).await;
        assert_eq!(error(reply.error_code), ErrorCode::None);
        *epoch = reply.member_epoch;
        if partitions_of(&reply).is_some_and(|it| it.len() == count) {
            return;
        }
        assert!(Instant::now() < deadline, "the expression is resolved");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_protocol_can_be_switched_off() {
    let classic_only = ("group.coordinator.rebalance.protocols", "classic");
    let broker = coordinating_broker(&[classic_only]).await;
    let mut client = broker.connect().await;
    let refused = client.ask(1, &joining("m1")).await;
    assert_eq!(error(refused.error_code), ErrorCode::UnsupportedVersion);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_assignment_interval_is_a_dynamic_setting() {
    let (key, _) = AT_ONCE;
    let broker = coordinating_broker(&[(key, "15000")]).await;
    let mut client = broker.connect().await;
    let first = client.ask(1, &joining("m1")).await;
    assert_eq!(partitions_of(&first), Some(vec![0, 1]));
    client.ask(1, &joining("m2")).await;
    let reply = client.ask(1, &alive("m1", first.member_epoch)).await;
    assert_eq!(partitions_of(&reply), None);
    broker
        .write(vec![MetadataRecord::Config(ConfigRecord {
            resource_type: 4,
            resource_name: "".into(),
            name: key.into(),
            value: Some("0".into()),
            ..Default::default()
        })])
        .await;
    let reply = client.ask(1, &alive("m1", reply.member_epoch)).await;
    assert_eq!(partitions_of(&reply), Some(vec![0]));
}
