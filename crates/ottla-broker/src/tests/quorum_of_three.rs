//! Three nodes that form a quorum, in one process and over sockets: controllers, or combined nodes.

use std::time::Duration;

use ottla_config::{BrokerConfig, Properties};
use ottla_metadata::MetadataVersion;
use ottla_protocol::messages::alter_client_quotas_request::{EntityData, EntryData, OpData};
use ottla_protocol::messages::{
    AlterClientQuotasRequest, DescribeQuorumRequest, UnregisterControllerRequest, VoteRequest,
    describe_quorum_request,
};
use ottla_protocol::metadata_records::MetadataRecord;
use ottla_testkit::lease_ports;
use ottla_types::ErrorCode;

use super::client::Client;
use super::creation;
use crate::start::RunningBroker;
use crate::{Broker, Endpoint};
use ottla_storage::format::{FormatOptions, InitialQuorum, format};

const CLUSTER_ID: &str = "AAAAAAAAAAAAAAAAAAAAZA";
const PATIENCE: Duration = Duration::from_secs(60);

/// The nodes 1 to 3; `None` for a stopped one.
pub(super) struct Quorum {
    pub configs: Vec<BrokerConfig>,
    pub nodes: Vec<Option<RunningBroker>>,
    _data: tempfile::TempDir,
}

impl Quorum {
    pub async fn start() -> Quorum {
        Quorum::start_as("controller", "", &[]).await
    }

    /// With these roles, with additional listeners before the controller's, and with additional
    /// settings.
    pub async fn start_as(roles: &str, listeners: &str, settings: &[(&str, &str)]) -> Quorum {
        Quorum::start_with_records(roles, listeners, settings, &[]).await
    }

    /// Like [`start_as`](Self::start_as), formatted with SCRAM credentials.
    pub async fn start_with_records(
        roles: &str,
        listeners: &str,
        settings: &[(&str, &str)],
        scram_records: &[MetadataRecord],
    ) -> Quorum {
        let data = tempfile::tempdir().expect("a directory");
        let ports: [u16; 3] = lease_ports().expect("free ports");
        let voters: Vec<String> = ports
            .iter()
            .enumerate()
            .map(|(index, port)| format!("{}@127.0.0.1:{port}", index + 1))
            .collect();
        let mut quorum = Quorum {
            configs: Vec::new(),
            nodes: Vec::new(),
            _data: data,
        };
        for (index, port) in ports.iter().enumerate() {
            let dir = quorum._data.path().join(format!("node-{index}"));
            let mut properties = Properties::new("the test");
            for (key, value) in [
                ("process.roles", roles),
                ("node.id", &(index + 1).to_string()),
                (
                    "listeners",
                    &format!("{listeners}CONTROLLER://127.0.0.1:{port}"),
                ),
                ("offsets.topic.replication.factor", "1"),
                ("controller.listener.names", "CONTROLLER"),
                ("controller.quorum.voters", &voters.join(",")),
                ("log.dirs", dir.to_str().expect("characters")),
            ] {
                properties.set(key, value);
            }
            for (key, value) in settings {
                properties.set(key, value);
            }
            let (config, _) = BrokerConfig::from_properties(&properties).expect("good settings");
            let options = FormatOptions {
                cluster_id: CLUSTER_ID.to_owned(),
                quorum: InitialQuorum::Static,
                metadata_version: MetadataVersion::LATEST_PRODUCTION,
                feature_levels: Default::default(),
                scram_records: scram_records.to_vec(),
                ignore_formatted: false,
            };
            format(&config, &options).expect("formats");
            quorum.configs.push(config);
            quorum.nodes.push(None);
        }
        quorum.start_all().await;
        quorum
    }

    /// Concurrently, because a broker waits for a leader.
    pub async fn start_all(&mut self) {
        let starts = self.configs.iter().map(|config| {
            let config = config.clone();
            tokio::spawn(async move { Broker::start(config).await })
        });
        for (index, start) in starts.collect::<Vec<_>>().into_iter().enumerate() {
            let started = start.await.expect("no panic").expect("the node starts");
            self.nodes[index] = Some(started);
        }
    }

    pub async fn restart(&mut self, index: usize) {
        let started = Broker::start(self.configs[index].clone()).await;
        self.nodes[index] = Some(started.expect("the node starts"));
    }

    pub fn running(&self) -> impl Iterator<Item = (usize, &RunningBroker)> {
        let nodes = self.nodes.iter().enumerate();
        nodes.filter_map(|(index, node)| Some((index, node.as_ref()?)))
    }

    /// Waits until a node is leader, and returns its index.
    pub async fn active(&self) -> usize {
        let is_active = |(_, node): &(usize, &RunningBroker)| {
            let quorum = node.broker().node.quorum();
            quorum.is_some_and(|quorum| quorum.status().is_active)
        };
        let found = async {
            loop {
                if let Some((index, _)) = self.running().find(is_active) {
                    return index;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, found)
            .await
            .expect("in time")
    }

    /// Makes the active controller write a quota. Returns when it is committed.
    pub async fn write(&self, user: &'static str) {
        let request = AlterClientQuotasRequest {
            entries: vec![EntryData {
                entity: vec![EntityData {
                    entity_type: "user".into(),
                    entity_name: Some(user.into()),
                    ..Default::default()
                }],
                ops: vec![OpData {
                    key: "producer_byte_rate".into(),
                    value: 1000.0,
                    remove: false,
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        };
        let written = async {
            loop {
                let active = self.active().await;
                let node = self.nodes[active].as_ref().expect("runs");
                match node.broker().node.ask_controller(request.clone()).await {
                    Ok(response) => {
                        assert_eq!(response.entries[0].error_code, 0);
                        return;
                    }
                    // Leadership was lost in the meantime.
                    Err(ErrorCode::NotController) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        };
        tokio::time::timeout(PATIENCE, written)
            .await
            .expect("in time");
    }

    /// Waits until all running nodes know this number of quotas and all three controllers.
    pub async fn all_know(&self, quotas: usize) {
        for (index, node) in self.running() {
            let known = async {
                loop {
                    let image = node.broker().metadata();
                    let controllers = image.cluster.controllers().count();
                    if image.client_quotas.iter().count() == quotas && controllers == 3 {
                        return;
                    }
                    drop(image);
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            let known = tokio::time::timeout(PATIENCE, known).await;
            known.unwrap_or_else(|_| panic!("node {} does not know of {quotas}", index + 1));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_majority_elects_another_leader_when_the_leader_stops() {
    let mut quorum = Quorum::start().await;
    quorum.write("alice").await;
    quorum.all_know(1).await;

    let first = quorum.active().await;
    quorum.nodes[first].take().expect("runs").stop().await;
    let second = quorum.active().await;
    assert_ne!(second, first);
    quorum.write("bob").await;
    quorum.all_know(2).await;

    quorum.restart(first).await;
    quorum.write("carol").await;
    quorum.all_know(3).await;

    let leader = quorum.nodes[quorum.active().await].as_ref().expect("runs");
    let described = leader
        .broker()
        .node
        .quorum()
        .expect("runs")
        .describe()
        .await;
    let described = described.expect("leads");
    assert_eq!(described.voter_states.len(), 3);
    assert!(described.high_watermark.value() > 0);
    for node in quorum.nodes.into_iter().flatten() {
        node.stop().await;
    }
}

/// A client of a combined node.
async fn client_of(node: &RunningBroker) -> Client {
    let mut listeners = node.listeners().iter();
    let of_broker = listeners.find(|listener| Endpoint::of(listener) == Endpoint::Broker);
    Client::connect(of_broker.expect("is a broker").local_addr).await
}

/// Waits until the condition is true.
pub(super) async fn until(what: &str, is_so: impl Fn() -> bool) {
    let waited = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, waited).await;
    waited.unwrap_or_else(|_| panic!("timed out waiting until {what}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn combined_nodes_hand_over_leaderships_and_return() {
    // Far longer than `until` waits, so that the end of a session does not help.
    let settings = [("broker.session.timeout.ms", "600000")];
    let listener = "PLAINTEXT://127.0.0.1:0,";
    let mut quorum = Quorum::start_as("broker,controller", listener, &settings).await;
    quorum.write("alice").await;
    quorum.all_know(1).await;
    let first = quorum.active().await;
    let other = (first + 1) % 3;

    // A request to a broker is decided by another node, and its result is known here afterwards.
    let node = quorum.nodes[other].as_ref().expect("runs");
    let created = client_of(node)
        .await
        .ask(7, &creation("orders", 6, 3))
        .await;
    assert_eq!(created.topics[0].error_code, 0, "{created:?}");
    let broker = std::sync::Arc::clone(node.broker());
    let led_by = |id: i32| {
        let image = broker.metadata();
        let topic = image.topics.by_name("orders");
        topic.map_or(0, |topic| {
            let partitions = topic.partitions();
            partitions
                .filter(|(_, it)| it.leader == ottla_types::BrokerId(id))
                .count()
        })
    };
    let first_id = first as i32 + 1;
    until("each leads two", || (1..=3).all(|id| led_by(id) == 2)).await;

    // The active controller, which is a broker, stops: no other node waits for its session to
    // expire.
    quorum.nodes[first].take().expect("runs").stop().await;
    // The metadata of a broker follows that of the controller a little later.
    until("its partitions are led by others", || {
        led_by(first_id) == 0 && (1..=3).map(led_by).sum::<usize>() == 6
    })
    .await;
    assert_ne!(quorum.active().await, first);
    quorum.write("bob").await;
    quorum.all_know(2).await;

    quorum.restart(first).await;
    quorum.write("carol").await;
    quorum.all_know(3).await;
    let node = quorum.nodes[first].as_ref().expect("runs");
    let image = node.broker().metadata().clone();
    let unfenced = image.cluster.brokers().filter(|broker| !broker.fenced);
    assert_eq!(unfenced.count(), 3);
    // All at the same time, as when their machines are shut down: the last one has no other node to
    // ask.
    let stops = quorum.nodes.into_iter().flatten().map(|node| {
        tokio::spawn(async move {
            let broker = std::sync::Arc::clone(node.broker());
            let stopping = node.stop();
            tokio::pin!(stopping);
            if tokio::time::timeout(Duration::from_secs(3), &mut stopping)
                .await
                .is_err()
            {
                broker.hurry();
                stopping.await;
            }
        })
    });
    for stop in stops.collect::<Vec<_>>() {
        let stopped = tokio::time::timeout(PATIENCE, stop).await;
        stopped.expect("in time").expect("no panic");
    }
}

/// The levels that it supports count when a feature is raised.
#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_is_unregistered_while_it_runs_registers_again() {
    let quorum = Quorum::start().await;
    quorum.write("alice").await;
    quorum.all_know(1).await;
    let active = quorum.active().await;
    let id = ottla_types::BrokerId((active as i32 + 1) % 3 + 1);
    let node = quorum.nodes[active].as_ref().expect("runs");
    let registration = || node.broker().metadata().cluster.controller(id).cloned();
    let before = registration().expect("it is registered");
    let request = UnregisterControllerRequest {
        controller_id: id.value(),
        ..Default::default()
    };
    let unregistered = node.broker().node.ask_controller(request).await;
    let unregistered = unregistered.expect("is decided");
    assert_eq!(unregistered.error_code, 0, "{unregistered:?}");
    until("it registers again", || {
        registration().is_some_and(|now| !std::sync::Arc::ptr_eq(&now, &before))
    })
    .await;
    for node in quorum.nodes.into_iter().flatten() {
        node.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_three_voters_cannot_commit() {
    let mut quorum = Quorum::start().await;
    quorum.write("alice").await;
    let active = quorum.active().await;
    for index in (0..3).filter(|index| *index != active) {
        quorum.nodes[index].take().expect("runs").stop().await;
    }
    // It resigns when no node has fetched for a while.
    let node = quorum.nodes[active].take().expect("runs");
    let given_up = async {
        while node
            .broker()
            .node
            .quorum()
            .expect("runs")
            .status()
            .is_active
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, given_up)
        .await
        .expect("in time");
    let listeners = node.listeners().iter();
    let controller = listeners.map(|listener| listener.local_addr).next();
    let mut client = Client::connect(controller.expect("listens")).await;
    let described = client
        .ask(
            2,
            &DescribeQuorumRequest {
                topics: vec![describe_quorum_request::TopicData {
                    topic_name: "__cluster_metadata".into(),
                    partitions: vec![Default::default()],
                    ..Default::default()
                }],
                ..Default::default()
            },
        )
        .await;
    let error = described.topics[0].partitions[0].error_code;
    assert_eq!(error, ErrorCode::NotLeaderOrFollower.code());
    let refused = client.ask(2, &VoteRequest::default()).await;
    assert_eq!(refused.error_code, ErrorCode::InvalidRequest.code());
    assert_eq!(Endpoint::of(&node.listeners()[0]), Endpoint::Controller);
    node.stop().await;
}
