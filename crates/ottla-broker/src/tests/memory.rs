//! The memory that clients can make a broker with little memory use.

use std::time::{Duration, Instant};

use bytestring::ByteString;
use ottla_metrics::Metric;
use ottla_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use ottla_protocol::messages::create_topics_request::CreatableTopic;
use ottla_protocol::messages::metadata_request::MetadataRequestTopic;
use ottla_protocol::messages::{
    ConsumerGroupHeartbeatRequest, CreatePartitionsRequest, CreateTopicsRequest,
    DescribeGroupsRequest, InitProducerIdRequest, JoinGroupRequest, JoinGroupResponse,
    MetadataRequest, OffsetCommitRequest, ShareGroupHeartbeatRequest, StreamsGroupHeartbeatRequest,
};
use ottla_types::ErrorCode;

use super::TestBroker;
use super::client::Client;
use super::groups::{committing, coordinating_broker, error, joining};

/// The smallest budgets: 4 MiB each.
const LITTLE: (&str, &str) = ("ottla.memory.max.bytes", "1048576");

/// Requests many unknown topics, so that the response is large, and does not read it.
async fn does_not_read(broker: &TestBroker) -> Client {
    let name = "x".repeat(200);
    let topic = |number| MetadataRequestTopic {
        name: Some(format!("{name}{number}").into()),
        ..Default::default()
    };
    let request = MetadataRequest {
        topics: Some((0..10_000).map(topic).collect()),
        allow_auto_topic_creation: false,
        ..Default::default()
    };
    let mut client = broker.connect().await;
    client.send(9, &request).await;
    client
}

fn unsent_bytes(broker: &TestBroker) -> usize {
    broker.broker().network.unsent_answers.bytes()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_do_not_read_are_closed_when_others_need_memory() {
    let broker = TestBroker::start_with(&[LITTLE]).await;
    let bound = broker.broker().context.budgets().unsent_answer_bytes;
    assert_eq!(bound, 4 * 1024 * 1024);
    let mut silent = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(120);
    while unsent_bytes(&broker) < bound {
        assert!(Instant::now() < deadline, "{} bytes", unsent_bytes(&broker));
        if silent.len() < 40 {
            silent.push(does_not_read(&broker).await);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // Further clients get no response that would have to be kept, and a client that reads gets its response
    // when one of those that do not has been closed.
    for _ in 0..10 {
        silent.push(does_not_read(&broker).await);
    }
    let mut reads = broker.connect().await;
    let request = MetadataRequest::default();
    let answer = reads.ask(9, &request);
    let answer = tokio::time::timeout(Duration::from_secs(60), answer).await;
    assert_eq!(answer.expect("it is answered").brokers.len(), 1);
    let most = unsent_bytes(&broker);
    assert!(most < 4 * bound, "{most} bytes");
    let metrics = &broker.broker().context.metrics;
    assert!(metrics.get(Metric::ConnectionsClosedForMemory) > 0);
}

/// A JoinGroup waits for the other members, for minutes if they do not come. If it held the memory
/// of its decoded form, its connection would be closed when other requests need memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_member_does_not_hold_the_memory_of_its_request() {
    let broker = coordinating_broker(&[("group.initial.rebalance.delay.ms", "60000")]).await;
    let available = || broker.broker().network.decoded_memory.available_bytes();
    let all = available();
    let mut client = broker.connect().await;
    let required = client.ask(9, &joining(&ByteString::new())).await;
    let mut join = joining(&required.member_id);
    // Version 1, topic t, 20,000 bytes of the user, no owned partitions.
    let mut metadata = b"\0\x01\0\0\0\x01\0\x01t".to_vec();
    metadata.extend(20_000_i32.to_be_bytes());
    metadata.resize(metadata.len() + 20_000 + 4, 0);
    join.protocols[0].metadata = metadata.into();
    client.send(9, &join).await;
    let mut other = broker.connect().await;
    let describe = DescribeGroupsRequest {
        groups: vec!["g".into()],
        ..Default::default()
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while other.ask(5, &describe).await.groups[0].group_state != "PreparingRebalance" {
        assert!(Instant::now() < deadline, "the member waits");
    }
    while available() != all {
        assert!(Instant::now() < deadline, "{} of {all}", available());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Makes the heap count as full at the next check.
pub(super) async fn fill_heap(broker: &TestBroker) {
    broker.broker().context.set_heap_budget(0);
    while !broker.broker().context.is_heap_full() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_heap_refuses_new_state_and_keeps_existing_state() {
    let broker = coordinating_broker(&[("group.consumer.assignment.interval.ms", "0")]).await;
    let mut client = broker.connect().await;
    let consumer = |member_id: &str, member_epoch| ConsumerGroupHeartbeatRequest {
        group_id: "g".into(),
        member_id: member_id.to_owned().into(),
        member_epoch,
        rebalance_timeout_ms: 10_000,
        subscribed_topic_names: Some(vec!["t".into()]),
        topic_partitions: Some(Vec::new()),
        ..Default::default()
    };
    let joined = client.ask(1, &consumer("m1", 0)).await;
    assert_eq!(error(joined.error_code), ErrorCode::None);

    fill_heap(&broker).await;
    let later = ErrorCode::CoordinatorLoadInProgress;
    let answer = client.ask(1, &consumer("m2", 0)).await;
    assert_eq!(error(answer.error_code), later);
    let join = JoinGroupRequest {
        group_id: "classic".into(),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 10_000,
        protocol_type: "consumer".into(),
        ..Default::default()
    };
    assert_eq!(error(client.ask(9, &join).await.error_code), later);
    for transactional_id in [None, Some("t".into())] {
        let init = InitProducerIdRequest {
            transactional_id,
            transaction_timeout_ms: 10_000,
            producer_id: -1,
            producer_epoch: -1,
            ..Default::default()
        };
        assert_eq!(error(client.ask(4, &init).await.error_code), later);
    }
    let goes_on = ConsumerGroupHeartbeatRequest {
        subscribed_topic_names: None,
        topic_partitions: None,
        ..consumer("m1", joined.member_epoch)
    };
    let heard = client.ask(1, &goes_on).await;
    assert_eq!(error(heard.error_code), ErrorCode::None);

    broker.broker().context.set_heap_budget(u64::MAX);
    while broker.broker().context.is_heap_full() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let answer = client.ask(1, &consumer("m2", 0)).await;
    assert_eq!(error(answer.error_code), ErrorCode::None);
}

#[tokio::test]
async fn members_of_the_other_protocols_are_refused_too() {
    let broker = TestBroker::start().await;
    fill_heap(&broker).await;
    let refused = |error_code| error(error_code) == ErrorCode::CoordinatorLoadInProgress;
    let mut client = broker.connect().await;
    let share = ShareGroupHeartbeatRequest {
        group_id: "share".into(),
        member_id: "AAAAAAAAAAAAAAAAAAAAAQ".into(),
        subscribed_topic_names: Some(vec!["t".into()]),
        ..Default::default()
    };
    let answer = client.ask(1, &share).await;
    assert!(refused(answer.error_code), "{answer:?}");
    let streams = StreamsGroupHeartbeatRequest {
        group_id: "streams".into(),
        member_id: "AAAAAAAAAAAAAAAAAAAAAQ".into(),
        rebalance_timeout_ms: 1_000,
        topology: Some(Default::default()),
        active_tasks: Some(Vec::new()),
        standby_tasks: Some(Vec::new()),
        warmup_tasks: Some(Vec::new()),
        process_id: Some("p".into()),
        client_tags: Some(Vec::new()),
        ..Default::default()
    };
    let answer = client.ask(0, &streams).await;
    assert!(refused(answer.error_code), "{answer:?}");
}

/// The error of a commit for one partition.
async fn commit(client: &mut Client, request: &OffsetCommitRequest) -> ErrorCode {
    let answer = client.ask(10, request).await;
    error(answer.topics[0].partitions[0].error_code)
}

/// A commit needs no member, and a group has as many offsets as its clients like, with metadata.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_heap_refuses_commits_that_add_offsets() {
    let broker = coordinating_broker(&[]).await;
    let mut client = broker.connect().await;
    let nobody = JoinGroupResponse::default();
    assert_eq!(
        commit(&mut client, &committing(&nobody, 7)).await,
        ErrorCode::None
    );

    fill_heap(&broker).await;
    let mut other_group = committing(&nobody, 7);
    other_group.group_id = "other".into();
    let mut other_partition = committing(&nobody, 7);
    other_partition.topics[0].partitions[0].partition_index = 0;
    let mut metadata = committing(&nobody, 7);
    metadata.topics[0].partitions[0].committed_metadata = Some("m".into());
    for growing in [&other_group, &other_partition, &metadata] {
        let refused = commit(&mut client, growing).await;
        assert_eq!(refused, ErrorCode::CoordinatorLoadInProgress, "{growing:?}");
    }
    assert_eq!(
        commit(&mut client, &committing(&nobody, 8)).await,
        ErrorCode::None
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_heap_refuses_new_partitions() {
    let (broker, mut client) = TestBroker::with_topic("t", 1).await;
    fill_heap(&broker).await;
    let mut create = CreateTopicsRequest {
        topics: vec![CreatableTopic {
            name: "new".into(),
            num_partitions: 1,
            replication_factor: 1,
            ..Default::default()
        }],
        timeout_ms: 10_000,
        ..Default::default()
    };
    let refused = client.ask(7, &create).await;
    let refused = &refused.topics[0];
    assert_eq!(error(refused.error_code), ErrorCode::PolicyViolation);
    assert!(refused.error_message.is_some());
    let grow = CreatePartitionsRequest {
        topics: vec![CreatePartitionsTopic {
            name: "t".into(),
            count: 2,
            assignments: None,
            ..Default::default()
        }],
        timeout_ms: 10_000,
        ..Default::default()
    };
    let refused = client.ask(3, &grow).await;
    let code = refused.results[0].error_code;
    assert_eq!(error(code), ErrorCode::PolicyViolation);
    create.validate_only = true;
    let possible = client.ask(7, &create).await;
    assert_eq!(error(possible.topics[0].error_code), ErrorCode::None);
    let produced_to = MetadataRequest {
        topics: Some(vec![MetadataRequestTopic {
            name: Some("auto".into()),
            ..Default::default()
        }]),
        allow_auto_topic_creation: true,
        ..Default::default()
    };
    let refusals = || {
        let metrics = &broker.broker().context.metrics;
        metrics.get(Metric::RefusedForMemory)
    };
    let before = refusals();
    client.ask(9, &produced_to).await;
    assert_eq!(refusals(), before + 1);
    tokio::time::sleep(Duration::from_millis(200)).await;
    let image = broker.broker().metadata().clone();
    assert!(image.topics.by_name("auto").is_none());
    // A broker asks for topics of its own, such as a dead-letter queue.
    let mut node = Client::connect(broker.controller_address()).await;
    create.validate_only = false;
    let created = node.ask(7, &create).await;
    assert_eq!(error(created.topics[0].error_code), ErrorCode::None);
}

/// A member could join with little and then again with as much as a request may have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_heap_refuses_members_with_much_metadata() {
    let broker = coordinating_broker(&[]).await;
    let mut client = broker.connect().await;
    let required = client.ask(9, &joining(&ByteString::new())).await;
    let mut join = joining(&required.member_id);
    fill_heap(&broker).await;
    let little = join.protocols[0].metadata.clone();
    join.protocols[0].metadata = vec![0; 20_000].into();
    let refused = client.ask(9, &join).await;
    let later = ErrorCode::CoordinatorLoadInProgress;
    assert_eq!(error(refused.error_code), later);
    join.protocols[0].metadata = little;
    let joined = client.ask(9, &join).await;
    assert_eq!(error(joined.error_code), ErrorCode::None);
}

/// Otherwise a group whose members have much metadata would lose them in its next rebalance, and
/// static members could not restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_heap_lets_members_join_again_with_what_they_had() {
    let broker = coordinating_broker(&[]).await;
    let mut client = broker.connect().await;
    let required = client.ask(9, &joining(&ByteString::new())).await;
    let mut join = joining(&required.member_id);
    join.protocols[0].metadata = vec![0; 20_000].into();
    let joined = client.ask(9, &join).await;
    assert_eq!(error(joined.error_code), ErrorCode::None);
    let mut of_instance = joining(&ByteString::new());
    of_instance.group_id = "static".into();
    of_instance.group_instance_id = Some("i".into());
    let joined = client.ask(9, &of_instance).await;
    assert_eq!(error(joined.error_code), ErrorCode::None);

    fill_heap(&broker).await;
    let again = client.ask(9, &join).await;
    assert_eq!(error(again.error_code), ErrorCode::None);
    let restarted = client.ask(9, &of_instance).await;
    assert_eq!(error(restarted.error_code), ErrorCode::None);
    assert_ne!(restarted.member_id, joined.member_id);
    let later = ErrorCode::CoordinatorLoadInProgress;
    join.protocols[0].metadata = vec![0; 20_001].into();
    let longer = client.ask(9, &join).await;
    assert_eq!(error(longer.error_code), later);
    of_instance.group_instance_id = Some("j".into());
    let other = client.ask(9, &of_instance).await;
    assert_eq!(error(other.error_code), later);
}
