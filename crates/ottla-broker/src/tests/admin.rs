//! The admin APIs and the controller: an acknowledged change is on disk, and survives a restart.

use std::path::Path;

use ottla_config::{BrokerConfig, Properties, single_node_properties};
use ottla_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use ottla_protocol::messages::describe_configs_request::DescribeConfigsResource;
use ottla_protocol::messages::describe_topic_partitions_request::{Cursor, TopicRequest};
use ottla_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use ottla_protocol::messages::metadata_request::MetadataRequestTopic;
use ottla_protocol::messages::*;
use ottla_types::{BrokerEpoch, ErrorCode, LeaderEpoch, PartitionIndex};

use super::TestBroker;
use super::client::Client;
use crate::{Broker, Endpoint, RunningBroker};

fn config(data: &Path, settings: &[(&str, &str)]) -> BrokerConfig {
    let mut properties: Properties =
        single_node_properties(&data.display().to_string(), "127.0.0.1:0", "127.0.0.1:0");
    for (key, value) in settings {
        properties.set(key, value);
    }
    BrokerConfig::from_properties(&properties)
        .expect("good settings")
        .0
}

async fn start(data: &Path, settings: &[(&str, &str)]) -> (RunningBroker, Client) {
    let running = Broker::format_and_start(config(data, settings))
        .await
        .expect("the broker starts");
    let client = Client::connect(running.listeners()[0].local_addr).await;
    (running, client)
}

fn topic(name: &'static str, num_partitions: i32) -> CreatableTopic {
    CreatableTopic {
        name: name.into(),
        num_partitions,
        replication_factor: 1,
        ..Default::default()
    }
}

async fn create(client: &mut Client, topics: Vec<CreatableTopic>) -> CreateTopicsResponse {
    let request = CreateTopicsRequest {
        topics,
        timeout_ms: 10_000,
        ..Default::default()
    };
    client.ask(7, &request).await
}

async fn metadata(client: &mut Client, names: &[&'static str]) -> MetadataResponse {
    let request = MetadataRequest {
        topics: Some(
            names
                .iter()
                .map(|&name| MetadataRequestTopic {
                    name: Some(name.into()),
                    ..Default::default()
                })
                .collect(),
        ),
        allow_auto_topic_creation: false,
        ..Default::default()
    };
    client.ask(12, &request).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_changes_survive_a_crash_and_a_stop() {
    let data = tempfile::tempdir().unwrap();
    let (running, mut client) = start(data.path(), &[]).await;
    let created = create(
        &mut client,
        vec![CreatableTopic {
            configs: vec![CreatableTopicConfig {
                name: "retention.ms".into(),
                value: Some("1000".into()),
                ..Default::default()
            }],
            ..topic("orders", 2)
        }],
    )
    .await;
    assert_eq!(created.topics[0].error_code, 0);
    let topic_id = created.topics[0].topic_id;
    let first_epoch = running.broker().broker_epoch();
    assert!(first_epoch > BrokerEpoch::UNKNOWN);

    // A crash: nothing is closed. The copy has the state that another process would find on disk.
    let copy = tempfile::tempdir().unwrap();
    copy_dir(data.path(), copy.path());
    let (after_crash, mut client) = start(copy.path(), &[]).await;
    let response = metadata(&mut client, &["orders", "nothing"]).await;
    assert_eq!(response.topics[0].topic_id, topic_id);
    assert_eq!(response.topics[0].partitions.len(), 2);
    assert_eq!(response.topics[0].partitions[0].leader_id, 1);
    assert_eq!(
        response.topics[1].error_code,
        ErrorCode::UnknownTopicOrPartition.code()
    );
    assert!(after_crash.broker().broker_epoch() > first_epoch);
    after_crash.stop().await;

    running.stop().await;
    let (again, mut client) = start(data.path(), &[]).await;
    let response = metadata(&mut client, &["orders"]).await;
    assert_eq!(response.topics[0].topic_id, topic_id);
    let image = again.broker().metadata().clone();
    let partition = image.topics.partition("orders", PartitionIndex(0)).unwrap();
    // Resigned at the stop and elected at the start, like a single Kafka broker.
    assert_eq!(partition.leader_epoch, LeaderEpoch(2));
    let controller = again.broker().controller().unwrap();
    assert_eq!(controller.status().epoch, LeaderEpoch(2));
    again.stop().await;
}

fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_dir(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_reads_the_snapshot_and_the_log_after_it() {
    let data = tempfile::tempdir().unwrap();
    let settings = [("metadata.log.max.record.bytes.between.snapshots", "2000")];
    let (running, mut client) = start(data.path(), &settings).await;
    for name in ["a", "b", "c", "d", "e", "f"] {
        let response = create(&mut client, vec![topic(name, 10)]).await;
        assert_eq!(response.topics[0].error_code, 0);
    }
    let image = running.broker().metadata().clone();
    running.stop().await;
    let snapshots = std::fs::read_dir(data.path().join("__cluster_metadata-0"))
        .unwrap()
        .filter(|entry| {
            let name = entry.as_ref().unwrap().file_name();
            name.to_str().unwrap().ends_with(".checkpoint")
        })
        .count();
    assert!(snapshots > 1, "more snapshots than formatting wrote");
    let (again, _) = start(data.path(), &settings).await;
    let loaded = again.broker().metadata().clone();
    let names = |image: &ottla_metadata::MetadataImage| -> Vec<(String, usize)> {
        image
            .topics
            .iter()
            .map(|topic| (topic.name.to_string(), topic.partition_count()))
            .collect()
    };
    assert_eq!(names(&loaded), names(&image));
    assert_eq!(names(&loaded).len(), 6);
    again.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_requests_are_all_answered() {
    let broker = TestBroker::start().await;
    let mut tasks = Vec::new();
    for index in 0..20 {
        let mut client = broker.connect().await;
        tasks.push(tokio::spawn(async move {
            let request = CreateTopicsRequest {
                topics: vec![CreatableTopic {
                    name: format!("topic.{}", index % 10).into(),
                    ..topic("", 1)
                }],
                ..Default::default()
            };
            client.ask(7, &request).await.topics[0].error_code
        }));
    }
    let mut codes = Vec::new();
    for task in tasks {
        codes.push(ErrorCode::from_code(task.await.unwrap()));
    }
    let count = |code| codes.iter().filter(|other| **other == code).count();
    assert_eq!(count(ErrorCode::None), 10);
    assert_eq!(count(ErrorCode::TopicAlreadyExists), 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_of_topic_and_broker_take_effect_and_are_described() {
    let broker = TestBroker::start().await;
    let mut client = broker.connect().await;
    create(&mut client, vec![topic("orders", 1)]).await;
    let alter = |resource_type, name: &'static str, key: &'static str, value: &'static str| {
        IncrementalAlterConfigsRequest {
            resources: vec![AlterConfigsResource {
                resource_type,
                resource_name: name.into(),
                configs: vec![AlterableConfig {
                    name: key.into(),
                    value: Some(value.into()),
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        }
    };
    for request in [
        alter(4, "", "log.retention.ms", "5000"),
        alter(2, "orders", "max.message.bytes", "777"),
    ] {
        let response = client.ask(1, &request).await;
        assert_eq!(response.responses[0].error_code, 0);
    }
    // Both are in effect as soon as the request is answered.
    assert_eq!(broker.broker().config().topic_defaults.retention_ms, 5000);
    let log_config = broker.partition("orders", 0).reader().config();
    assert_eq!(
        (log_config.retention_ms, log_config.max_message_bytes),
        (5000, 777)
    );

    let request = DescribeConfigsRequest {
        resources: vec![DescribeConfigsResource {
            resource_type: 2,
            resource_name: "orders".into(),
            configuration_keys: Some(vec!["retention.ms".into(), "max.message.bytes".into()]),
            ..Default::default()
        }],
        include_synonyms: true,
        ..Default::default()
    };
    let described = client.ask(4, &request).await;
    let configs: Vec<_> = described.results[0]
        .configs
        .iter()
        .map(|config| {
            let value = config.value.as_ref().unwrap().to_string();
            (config.name.to_string(), value, config.config_source)
        })
        .collect();
    assert_eq!(
        configs,
        [
            ("max.message.bytes".to_owned(), "777".to_owned(), 1),
            ("retention.ms".to_owned(), "5000".to_owned(), 3),
        ]
    );
    let refused = client
        .ask(1, &alter(4, "1", "log.dirs", "/elsewhere"))
        .await;
    assert_eq!(
        refused.responses[0].error_code,
        ErrorCode::InvalidRequest.code()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_a_client_asks_for_is_created() {
    let broker = TestBroker::start().await;
    let mut client = broker.connect().await;
    let request = MetadataRequest {
        topics: Some(vec![MetadataRequestTopic {
            name: Some("new.topic".into()),
            ..Default::default()
        }]),
        ..Default::default()
    };
    let first = client.ask(12, &request).await;
    let unknown = ErrorCode::UnknownTopicOrPartition.code();
    assert_eq!(
        first.topics[0].error_code, unknown,
        "as Kafka answers the first time"
    );
    for _ in 0..3_000 {
        let next = client.ask(12, &request).await;
        if next.topics[0].error_code == 0 {
            assert_eq!(next.topics[0].partitions.len(), 1);
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("the topic was not created");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_topics_can_be_created_again() {
    let broker = TestBroker::start().await;
    let mut client = broker.connect().await;
    let first = create(&mut client, vec![topic("orders", 1)]).await.topics[0].topic_id;
    let request = DeleteTopicsRequest {
        topic_names: vec!["orders".into()],
        ..Default::default()
    };
    assert_eq!(client.ask(5, &request).await.responses[0].error_code, 0);
    let gone = metadata(&mut client, &["orders"]).await;
    assert_eq!(
        gone.topics[0].error_code,
        ErrorCode::UnknownTopicOrPartition.code()
    );
    let again = client.ask(5, &request).await;
    assert_eq!(
        again.responses[0].error_code,
        ErrorCode::UnknownTopicOrPartition.code()
    );
    let second = create(&mut client, vec![topic("orders", 1)]).await.topics[0].topic_id;
    assert_ne!(first, second);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn producer_ids_are_unique() {
    let broker = TestBroker::start().await;
    let mut ids = std::collections::BTreeSet::new();
    for version in [0, 3, 5] {
        let mut client = broker.connect().await;
        for _ in 0..600 {
            let request = InitProducerIdRequest {
                transactional_id: None,
                ..Default::default()
            };
            let response = client.ask(version, &request).await;
            assert_eq!((response.error_code, response.producer_epoch), (0, 0));
            assert!(ids.insert(response.producer_id));
        }
    }
    assert_eq!(ids.len(), 1800, "from two blocks");
    let half = InitProducerIdRequest {
        transactional_id: None,
        producer_id: 5,
        producer_epoch: -1,
        ..Default::default()
    };
    let refused = broker.connect().await.ask(3, &half).await;
    assert_eq!(refused.error_code, ErrorCode::InvalidRequest.code());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_are_described_page_by_page() {
    let broker = TestBroker::start().await;
    let mut client = broker.connect().await;
    create(&mut client, vec![topic("a", 3), topic("b", 3)]).await;
    let mut request = DescribeTopicPartitionsRequest {
        topics: vec![
            TopicRequest {
                name: "a".into(),
                ..Default::default()
            },
            TopicRequest {
                name: "b".into(),
                ..Default::default()
            },
        ],
        response_partition_limit: 2,
        ..Default::default()
    };
    let mut seen = Vec::new();
    loop {
        let response = client.ask(0, &request).await;
        for topic in &response.topics {
            let name = topic.name.as_ref().unwrap();
            seen.extend(
                topic
                    .partitions
                    .iter()
                    .map(|partition| format!("{name}{}", partition.partition_index)),
            );
        }
        match response.next_cursor {
            None => break,
            Some(next) => {
                request.cursor = Some(Cursor {
                    topic_name: next.topic_name,
                    partition_index: next.partition_index,
                    ..Default::default()
                });
            }
        }
    }
    assert_eq!(seen, ["a0", "a1", "a2", "b0", "b1", "b2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_refusal_of_an_unformatted_directory_has_the_format_command() {
    let data = tempfile::tempdir().unwrap();
    let error = Broker::start(config(data.path(), &[])).await.unwrap_err();
    assert!(
        error.0.contains("ottla storage format --standalone"),
        "{error}"
    );
    assert!(!data.path().join("meta.properties").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cluster_and_its_quorum_are_described() {
    let broker = TestBroker::start().await;
    let mut client = broker.connect().await;
    let cluster = client.ask(2, &DescribeClusterRequest::default()).await;
    assert_eq!(cluster.cluster_id, broker.broker().cluster_id());
    assert_eq!(cluster.cluster_id.len(), 22);
    assert_eq!(cluster.brokers.len(), 1);
    let port = broker.running.listeners()[0].local_addr.port();
    assert_eq!(cluster.brokers[0].port, i32::from(port));
    let controllers = DescribeClusterRequest {
        endpoint_type: 2,
        ..Default::default()
    };
    let refused = client.ask(2, &controllers).await;
    assert_eq!(refused.error_code, ErrorCode::MismatchedEndpointType.code());

    let request = DescribeQuorumRequest {
        topics: vec![describe_quorum_request::TopicData {
            topic_name: "__cluster_metadata".into(),
            partitions: vec![describe_quorum_request::PartitionData::default()],
            ..Default::default()
        }],
        ..Default::default()
    };
    let quorum = client.ask(2, &request).await;
    let partition = &quorum.topics[0].partitions[0];
    assert_eq!((partition.leader_id, partition.leader_epoch), (1, 1));
    assert_eq!(partition.current_voters.len(), 1);
    assert_eq!(
        partition.current_voters[0].log_end_offset,
        partition.high_watermark
    );
    let port = broker.address(Endpoint::Controller).port();
    assert_eq!(quorum.nodes[0].listeners[0].port, port);

    let resources = client.ask(1, &ListConfigResourcesRequest::default()).await;
    let brokers = resources
        .config_resources
        .iter()
        .filter(|resource| resource.resource_type == 4);
    assert_eq!(brokers.count(), 1);
}
