//! Voters are added and removed while a combined node serves its clients (KIP-853).

use std::path::Path;
use std::time::Duration;

use ottla_config::{BrokerConfig, Properties};
use ottla_metadata::MetadataVersion;
use ottla_protocol::ApiKey;
use ottla_protocol::messages::add_raft_voter_request::Listener;
use ottla_protocol::messages::{
    AddRaftVoterRequest, DescribeQuorumRequest, RemoveRaftVoterRequest, describe_quorum_request,
};
use ottla_testkit::lease_ports;
use ottla_types::{ErrorCode, Uuid};

use super::client::Client;
use super::creation;
use super::produce_and_fetch::api_versions;
use crate::{Broker, Endpoint, RunningBroker};
use ottla_storage::format::{FormatOptions, InitialQuorum, format, read_identity};

const CLUSTER_ID: &str = "AAAAAAAAAAAAAAAAAAAAZA";
const PATIENCE: Duration = Duration::from_secs(60);

/// A node whose controller port is known in advance, and the directory of its metadata.
struct Node {
    config: BrokerConfig,
    port: u16,
    directory_id: Uuid,
}

impl Node {
    fn new(data: &Path, id: i32, roles: &str, ports: [u16; 3], quorum: InitialQuorum) -> Node {
        let port = ports[id as usize - 1];
        let bootstrap = ports.map(|port| format!("127.0.0.1:{port}")).join(",");
        let listeners = match roles {
            "controller" => format!("CONTROLLER://127.0.0.1:{port}"),
            _ => format!("PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{port}"),
        };
        let mut properties = Properties::new("the test");
        for (key, value) in [
            ("process.roles", roles),
            ("node.id", &id.to_string()),
            ("listeners", &listeners),
            ("controller.listener.names", "CONTROLLER"),
            ("controller.quorum.bootstrap.servers", &bootstrap),
            ("controller.quorum.auto.join.enable", &(id == 3).to_string()),
            ("log.dirs", &data.join(id.to_string()).display().to_string()),
        ] {
            properties.set(key, value);
        }
        let (config, _) = BrokerConfig::from_properties(&properties).expect("good settings");
        let options = FormatOptions {
            cluster_id: CLUSTER_ID.to_owned(),
            quorum,
            metadata_version: MetadataVersion::LATEST_PRODUCTION,
            feature_levels: Default::default(),
            scram_records: Vec::new(),
            ignore_formatted: false,
        };
        format(&config, &options).expect("formats");
        let identity = read_identity(&config).expect("reads").expect("is there");
        Node {
            config,
            port,
            directory_id: identity.metadata_directory_id,
        }
    }

    async fn start(&self) -> RunningBroker {
        let started = Broker::start(self.config.clone()).await;
        started.expect("the node starts")
    }
}

async fn client_of(node: &RunningBroker) -> Client {
    let mut listeners = node.listeners().iter();
    let of_broker = listeners.find(|listener| Endpoint::of(listener) == Endpoint::Broker);
    Client::connect(of_broker.expect("is a broker").local_addr).await
}

/// Sends requests until the quorum has these voters, through the node that the client is connected
/// to.
async fn until_voters_are(client: &mut Client, expected: &[i32]) {
    let request = DescribeQuorumRequest {
        topics: vec![describe_quorum_request::TopicData {
            topic_name: "__cluster_metadata".into(),
            partitions: vec![Default::default()],
            ..Default::default()
        }],
        ..Default::default()
    };
    let found = async {
        loop {
            let answer = client.ask(2, &request).await;
            let partition = answer.topics.first().map(|topic| &topic.partitions[0]);
            let voters = partition.map(|it| it.current_voters.iter().map(|voter| voter.replica_id));
            let mut voters: Vec<i32> = voters.into_iter().flatten().collect();
            voters.sort_unstable();
            if voters == expected {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let found = tokio::time::timeout(PATIENCE, found).await;
    found.unwrap_or_else(|_| panic!("the voters are not {expected:?}"));
}

async fn create(client: &mut Client, name: &'static str) {
    let request = creation(name, 1, 1);
    let created = client.ask(7, &request).await;
    assert_eq!(created.topics[0].error_code, 0, "{created:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_node_grows_to_several_voters_and_hands_over_leadership() {
    let data = tempfile::tempdir().expect("a directory");
    let ports: [u16; 3] = lease_ports().expect("free ports");
    let node = |id, roles, quorum| Node::new(data.path(), id, roles, ports, quorum);
    let first = node(1, "broker,controller", InitialQuorum::Standalone);
    let second = node(2, "controller", InitialQuorum::None);
    let third = node(3, "controller", InitialQuorum::None);
    let running = first.start().await;
    let mut client = client_of(&running).await;
    create(&mut client, "alone").await;
    until_voters_are(&mut client, &[1]).await;

    // Through the broker, like `metadata-quorum --bootstrap-server add-controller`.
    let other = second.start().await;
    let add = AddRaftVoterRequest {
        cluster_id: Some(CLUSTER_ID.into()),
        timeout_ms: 30_000,
        voter_id: 2,
        voter_directory_id: second.directory_id,
        listeners: vec![Listener {
            name: "CONTROLLER".into(),
            host: "127.0.0.1".into(),
            port: second.port,
            ..Default::default()
        }],
        ..Default::default()
    };
    let added = async {
        loop {
            let answer = client.ask(0, &add).await;
            match ErrorCode::from_code(answer.error_code) {
                ErrorCode::None => return,
                // It has not fetched all of the log yet.
                ErrorCode::RequestTimedOut => {}
                code => panic!("{code}: {answer:?}"),
            }
        }
    };
    tokio::time::timeout(PATIENCE, added)
        .await
        .expect("in time");
    until_voters_are(&mut client, &[1, 2]).await;
    let again = client.ask(0, &add).await;
    assert_eq!(again.error_code, ErrorCode::DuplicateVoter.code());

    // It adds itself.
    let third = third.start().await;
    until_voters_are(&mut client, &[1, 2, 3]).await;

    // The leader is removed from the voters, and continues as a broker.
    let remove = RemoveRaftVoterRequest {
        cluster_id: Some(CLUSTER_ID.into()),
        voter_id: 1,
        voter_directory_id: first.directory_id,
        ..Default::default()
    };
    let removed = async {
        loop {
            let answer = client.ask(0, &remove).await;
            match ErrorCode::from_code(answer.error_code) {
                ErrorCode::None => return,
                // Not every node knows the newest voter yet.
                ErrorCode::RequestTimedOut => {}
                code => panic!("{code}: {answer:?}"),
            }
        }
    };
    tokio::time::timeout(PATIENCE, removed)
        .await
        .expect("in time");
    until_voters_are(&mut client, &[2, 3]).await;
    create(&mut client, "under-others").await;
    let status = running.broker().node.quorum().expect("runs").status();
    assert!(!status.is_active && status.leader.is_some_and(|id| id.value() != 1));
    // The change has arrived where it is needed by now.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let heard = running.broker().metadata();
    assert!(heard.cluster.brokers().all(|broker| !broker.fenced));
    drop(heard);
    // The APIs of the new controllers are advertised.
    let advertised = client.ask(4, &api_versions()).await;
    let has = |key: ApiKey| {
        advertised
            .api_keys
            .iter()
            .any(|api| api.api_key == key.code())
    };
    assert!(has(ApiKey::AddRaftVoter) && has(ApiKey::CreateTopics) && has(ApiKey::Produce));
    running.stop().await;
    other.stop().await;
    third.stop().await;
}
