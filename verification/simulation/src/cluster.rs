//! The nodes of a run, and their state.

use std::collections::BTreeSet;
use std::sync::Arc;

use ottla_metadata::MetadataImage;
use ottla_sync::simulation::stream;
use ottla_types::BrokerId;

use crate::node::Node;

/// The replication factor, which is also the number of replicas that `acks=all` needs.
pub(crate) const REPLICAS: i16 = 3;
const MIN_ISR: &str = "2";

pub(crate) struct Cluster {
    pub nodes: Vec<Node>,
}

impl Cluster {
    /// Three nodes that are both brokers and controllers, or three of each, chosen by the seed.
    pub fn drawn() -> Cluster {
        let has_separate_roles = stream("cluster").one_in(3);
        let nodes = if has_separate_roles {
            let controllers = (101..=103).map(|id| (id, "controller"));
            let brokers = (1..=3).map(|id| (id, "broker"));
            let voters = voters("controller", 101..=103);
            let all = controllers.chain(brokers);
            all.map(|(id, roles)| node(id, roles, &voters)).collect()
        } else {
            let voters = voters("broker", 1..=3);
            let ids = 1..=3;
            ids.map(|id| node(id, "broker,controller", &voters))
                .collect()
        };
        Cluster { nodes }
    }

    /// Formats every disk and starts every node.
    pub fn start(&mut self) {
        self.nodes.iter().for_each(Node::format);
        self.nodes.iter_mut().for_each(Node::start);
    }

    pub fn bootstrap(&self) -> String {
        let brokers = self.nodes.iter().filter(|node| node.is_broker);
        let addresses: Vec<String> = brokers.map(|node| format!("{}:9092", node.name)).collect();
        addresses.join(",")
    }

    /// Where the node is in `nodes`.
    pub fn index_of(&self, id: BrokerId) -> Option<usize> {
        self.nodes.iter().position(|node| node.id() == id)
    }

    /// The newest metadata that a node has published.
    pub fn newest_metadata(&self) -> Option<Arc<MetadataImage>> {
        let running = self.nodes.iter().filter_map(Node::broker);
        let images = running.map(|broker| Arc::clone(&broker.metadata()));
        images.max_by_key(|image| image.provenance.last_contained_offset)
    }

    /// The addresses at which the controllers listen.
    pub fn controllers(&self) -> Vec<String> {
        let voters = self.nodes.iter().filter(|node| node.holds_metadata_vote());
        voters.map(|node| format!("{}:9093", node.name)).collect()
    }

    /// Whether every node runs, and every replica is in sync in the metadata of all nodes.
    pub fn is_in_sync(&self) -> bool {
        let are_in_sync = |node: &Node| {
            let Some(broker) = node.broker() else {
                return false;
            };
            let image = broker.metadata();
            let mut partitions = image.topics.iter().flat_map(|topic| topic.partitions());
            !image.topics.is_empty()
                && partitions.all(|(_, partition)| {
                    let isr: BTreeSet<_> = partition.isr.iter().collect();
                    isr.len() == partition.replicas.len()
                })
        };
        self.nodes.iter().all(are_in_sync)
    }
}

fn voters(prefix: &str, ids: std::ops::RangeInclusive<i32>) -> String {
    let voters: Vec<String> = ids.map(|id| format!("{id}@{prefix}-{id}:9093")).collect();
    voters.join(",")
}

fn node(id: i32, roles: &str, voters: &str) -> Node {
    let is_broker = roles.contains("broker");
    let is_controller = roles.contains("controller");
    let name = match is_broker {
        true => format!("broker-{id}"),
        false => format!("controller-{id}"),
    };
    let listeners = match (is_broker, is_controller) {
        (true, true) => "PLAINTEXT://:9092,CONTROLLER://:9093",
        (true, false) => "PLAINTEXT://:9092",
        _ => "CONTROLLER://:9093",
    };
    let (id, replicas) = (id.to_string(), REPLICAS.to_string());
    let advertised = format!("PLAINTEXT://{name}:9092");
    let mut settings = vec![
        ("process.roles", roles),
        ("node.id", &id),
        ("listeners", listeners),
        ("controller.listener.names", "CONTROLLER"),
        ("controller.quorum.voters", voters),
        ("log.dirs", "/data"),
        // Small values, so that rare events are frequent.
        ("metadata.log.max.record.bytes.between.snapshots", "4000"),
        ("broker.session.timeout.ms", "3000"),
        ("broker.heartbeat.interval.ms", "500"),
    ];
    if is_broker {
        settings.extend([
            ("advertised.listeners", &*advertised),
            ("offsets.topic.num.partitions", "1"),
            ("offsets.topic.replication.factor", &replicas),
            ("transaction.state.log.num.partitions", "2"),
            ("transaction.state.log.replication.factor", &replicas),
            ("transaction.state.log.min.isr", MIN_ISR),
            ("min.insync.replicas", MIN_ISR),
            ("auto.create.topics.enable", "false"),
            ("replica.lag.time.max.ms", "3000"),
            ("log.roll.ms", "5000"),
            ("log.flush.offset.checkpoint.interval.ms", "1000"),
            ("group.consumer.min.session.timeout.ms", "1000"),
            ("group.consumer.session.timeout.ms", "4000"),
            ("group.consumer.min.heartbeat.interval.ms", "500"),
            ("group.consumer.heartbeat.interval.ms", "1000"),
            ("group.share.min.session.timeout.ms", "1000"),
            ("group.share.session.timeout.ms", "4000"),
            ("group.share.min.heartbeat.interval.ms", "500"),
            ("group.share.heartbeat.interval.ms", "1000"),
            ("group.share.min.record.lock.duration.ms", "1000"),
            ("group.share.record.lock.duration.ms", "2000"),
            ("share.coordinator.state.topic.num.partitions", "1"),
            (
                "share.coordinator.state.topic.replication.factor",
                &replicas,
            ),
            ("share.coordinator.state.topic.min.isr", MIN_ISR),
        ]);
    }
    Node::new(&name, is_broker, &settings)
}
