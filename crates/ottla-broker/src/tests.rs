//! The broker from its clients' point of view: requests over a socket, malformed bytes, and the
//! responses.

mod admin;
mod applied_metadata;
mod audit_topic;
mod authorization;
mod bad_input;
mod changing_voters;
pub(crate) mod client;
mod compaction;
mod compatibility;
mod consumer_groups;
mod controller_listener;
mod dead_letters;
mod delegation_tokens;
mod directories;
mod directory_move;
mod every_api;
mod failures;
mod groups;
mod hanging_directories;
mod idempotence;
mod listeners;
mod lost_brokers;
mod memory;
mod metrics;
mod monitoring;
mod named_leader;
mod older_levels;
pub(crate) mod produce_and_fetch;
mod quorum_messages;
mod quorum_of_three;
mod quotas;
mod quotas_and_credentials;
mod raised_kraft_version;
mod reached_node;
mod replication;
mod resources_in_force;
mod sasl;
mod settings;
mod settings_in_force;
mod share_groups;
mod share_state_requests;
mod stalls;
mod streams_groups;
mod tiered_storage;
mod tls_files;
mod topic_id_files;
mod transactions;

pub(crate) use directories::{Node, create, produce};

use std::net::SocketAddr;
use std::sync::Arc;

use ottla_config::{BrokerConfig, Properties};
use ottla_controller::Decision;
use ottla_protocol::messages::CreateTopicsRequest;
use ottla_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use ottla_protocol::metadata_records::{
    ConfigRecord, MetadataRecord, PartitionRecord, TopicRecord,
};
use ottla_types::{TopicPartition, Uuid};

use crate::{Broker, Endpoint, Partition, RunningBroker};
use client::Client;

/// A broker on a free port, with its data in a temporary directory.
pub(crate) struct TestBroker {
    running: RunningBroker,
    config: BrokerConfig,
    data: tempfile::TempDir,
}

impl TestBroker {
    pub(crate) async fn start() -> TestBroker {
        TestBroker::start_with(&[]).await
    }

    pub(crate) async fn start_with(settings: &[(&str, &str)]) -> TestBroker {
        let data = tempfile::tempdir().expect("a directory");
        let mut properties = Properties::new("the test");
        for (key, value) in [
            ("process.roles", "broker,controller"),
            ("node.id", "1"),
            (
                "listeners",
                "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
            ),
            ("controller.listener.names", "CONTROLLER"),
            ("controller.quorum.bootstrap.servers", "127.0.0.1:0"),
            (
                "log.dirs",
                data.path().to_str().expect("a path of characters"),
            ),
        ] {
            properties.set(key, value);
        }
        for (key, value) in settings {
            properties.set(key, value);
        }
        let (config, _) = BrokerConfig::from_properties(&properties).expect("good settings");
        TestBroker::run(config, data).await
    }

    async fn run(config: BrokerConfig, data: tempfile::TempDir) -> TestBroker {
        let running = Broker::format_and_start(config.clone())
            .await
            .expect("the broker starts");
        TestBroker {
            running,
            config,
            data,
        }
    }

    /// Stops, and starts again with the same data.
    pub(crate) async fn restart(self) -> TestBroker {
        self.running.stop().await;
        TestBroker::run(self.config, self.data).await
    }

    /// Starts a broker with a topic, and connects a client.
    pub(crate) async fn with_topic(name: &'static str, partitions: i32) -> (TestBroker, Client) {
        let broker = TestBroker::start().await;
        broker.create_topic(name, partitions, &[]).await;
        let client = broker.connect().await;
        (broker, client)
    }

    pub(crate) fn broker(&self) -> &Arc<Broker> {
        self.running.broker()
    }

    pub(crate) async fn connect(&self) -> Client {
        Client::connect(self.address(Endpoint::Broker)).await
    }

    /// The address of a listener of this kind.
    fn address(&self, endpoint: Endpoint) -> SocketAddr {
        let mut listeners = self.running.listeners().iter();
        let found = listeners.find(|listener| Endpoint::of(listener) == endpoint);
        found.expect("both are there").local_addr
    }

    /// The address for other nodes of the quorum.
    pub(crate) fn controller_address(&self) -> SocketAddr {
        self.address(Endpoint::Controller)
    }

    /// Creates a topic that this broker leads, with the ID that [`topic_id`] returns. Settings are
    /// `key=value`.
    pub(crate) async fn create_topic(
        &self,
        name: &'static str,
        partitions: i32,
        settings: &[(&'static str, &str)],
    ) {
        let topic_id = topic_id(name);
        // The controller does not know the topic, so there must be no directory to report to it.
        let log_dirs = self.broker().log_dirs().expect("the broker runs");
        let directory = log_dirs.online_directory_ids()[0];
        let mut records = vec![MetadataRecord::Topic(TopicRecord {
            name: name.into(),
            topic_id,
            ..Default::default()
        })];
        for partition_id in 0..partitions {
            records.push(MetadataRecord::Partition(PartitionRecord {
                partition_id,
                topic_id,
                replicas: vec![1],
                isr: vec![1],
                leader: 1,
                leader_epoch: 0,
                partition_epoch: 0,
                directories: vec![directory],
                ..Default::default()
            }));
        }
        for (key, value) in settings {
            records.push(MetadataRecord::Config(ConfigRecord {
                resource_type: 2,
                resource_name: name.into(),
                name: (*key).into(),
                value: Some((*value).to_owned().into()),
                ..Default::default()
            }));
        }
        self.write(records).await;
    }

    /// Makes the controller write records that no request would lead to.
    pub(crate) async fn write(&self, records: Vec<MetadataRecord>) {
        let controller = self.broker().controller().expect("the broker has joined");
        let written = controller.decide(|_, _| Decision::new(records, ()));
        written.await.expect("good records");
    }

    pub(crate) fn partition(&self, topic: &'static str, index: i32) -> Arc<Partition> {
        let found = self
            .broker()
            .partitions
            .find(&TopicPartition::new(topic, index));
        found.expect("the partition is here")
    }
}

/// A request for a topic with this many partitions, each with this many replicas.
pub(crate) fn creation(
    name: &str,
    num_partitions: i32,
    replication_factor: i16,
) -> CreateTopicsRequest {
    CreateTopicsRequest {
        topics: vec![CreatableTopic {
            name: name.to_owned().into(),
            num_partitions,
            replication_factor,
            ..Default::default()
        }],
        timeout_ms: 60_000,
        ..Default::default()
    }
}

/// The same, with settings of the topic.
pub(crate) fn creation_with(
    name: &str,
    num_partitions: i32,
    replication_factor: i16,
    settings: &[(&str, &str)],
) -> CreateTopicsRequest {
    let mut request = creation(name, num_partitions, replication_factor);
    let configs = settings.iter().map(|(key, value)| CreatableTopicConfig {
        name: (*key).to_owned().into(),
        value: Some((*value).to_owned().into()),
        ..Default::default()
    });
    request.topics[0].configs = configs.collect();
    request
}

/// The ID of a topic, the same in all tests.
pub(crate) fn topic_id(name: &str) -> Uuid {
    let mut id = [7; 16];
    for (to, from) in id.iter_mut().zip(name.bytes()) {
        *to = from;
    }
    Uuid(id)
}
