//! The metadata of a cluster: brokers, topics, leaders.

use std::collections::BTreeMap;

use ottla_protocol::messages::metadata_response::{MetadataResponse, MetadataResponseTopic};
use ottla_types::{ErrorCode, Uuid};

/// One broker.
///
/// ```no_run
/// # fn example(client: &ottla_client::Client) {
/// for broker in client.metadata().brokers.values() {
///     println!("{} in rack {:?}", broker.host, broker.rack);
/// }
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BrokerNode {
    pub id: i32,
    pub host: String,
    pub port: i32,
    pub rack: Option<String>,
}

impl BrokerNode {
    /// A broker that a response names.
    pub(crate) fn new(id: i32, host: &str, port: i32, rack: Option<&str>) -> BrokerNode {
        BrokerNode {
            id,
            host: host.to_owned(),
            port,
            rack: rack.map(str::to_owned),
        }
    }

    /// The address to connect to.
    ///
    /// ```
    /// use ottla_client::BrokerNode;
    ///
    /// let broker = BrokerNode { id: 1, host: "::1".to_owned(), port: 9092, rack: None };
    /// assert_eq!(broker.address(), "[::1]:9092");
    /// ```
    pub fn address(&self) -> String {
        address_of(&self.host, self.port)
    }
}

/// Host and port as one string, with brackets around an IPv6 address.
pub(crate) fn address_of(host: &str, port: i32) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

/// One partition.
///
/// ```no_run
/// # fn example(metadata: &ottla_client::Metadata) {
/// if let Some(partition) = metadata.partition("orders", 0) {
///     println!("leader {}, in sync {:?}", partition.leader, partition.isr);
/// }
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionInfo {
    pub partition: i32,
    pub error: ErrorCode,
    /// -1 if there is no leader.
    pub leader: i32,
    pub leader_epoch: i32,
    pub replicas: Vec<i32>,
    pub isr: Vec<i32>,
    pub offline_replicas: Vec<i32>,
}

/// One topic, with its partitions in the order of their numbers.
///
/// ```no_run
/// # fn example(metadata: &ottla_client::Metadata) {
/// for topic in metadata.topics.values().filter(|topic| !topic.is_internal) {
///     println!("{}: {} partitions", topic.name, topic.partitions.len());
/// }
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopicInfo {
    pub name: String,
    pub topic_id: Uuid,
    pub error: ErrorCode,
    pub is_internal: bool,
    pub partitions: Vec<PartitionInfo>,
}

impl TopicInfo {
    /// Keeps what is known of partitions in a newer leader epoch, unless the topic was created anew
    /// (`Metadata.updateLatestMetadata`). Without epochs, or without an ID that shows whether it was,
    /// the newest response counts.
    fn keep_newer_leaders(&mut self, known: &TopicInfo) {
        if self.topic_id == Uuid::ZERO || self.topic_id != known.topic_id {
            return;
        }
        let known = &known.partitions;
        for partition in &mut self.partitions {
            let place = known.binary_search_by_key(&partition.partition, |known| known.partition);
            if let Ok(place) = place
                && (0..known[place].leader_epoch).contains(&partition.leader_epoch)
            {
                *partition = known[place].clone();
            }
        }
    }
}

/// The leader of a partition according to the error of another broker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NamedLeader<'a> {
    pub(crate) topic: &'a str,
    pub(crate) partition: i32,
    pub(crate) leader: i32,
    pub(crate) leader_epoch: i32,
}

/// A snapshot of the cluster's metadata.
///
/// ```no_run
/// # async fn example(client: &ottla_client::Client) -> Result<(), ottla_client::ClientError> {
/// let metadata = client.refresh_metadata(None, false).await?;
/// println!("{} brokers, {} topics", metadata.brokers.len(), metadata.topics.len());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Metadata {
    pub cluster_id: Option<String>,
    pub controller_id: i32,
    pub brokers: BTreeMap<i32, BrokerNode>,
    pub topics: BTreeMap<String, TopicInfo>,
}

impl Metadata {
    /// A partition, if it is known.
    ///
    /// ```
    /// let metadata = ottla_client::Metadata::default();
    /// assert_eq!(metadata.partition("orders", 0), None);
    /// ```
    pub fn partition(&self, topic: &str, partition: i32) -> Option<&PartitionInfo> {
        self.topics
            .get(topic)?
            .partitions
            .iter()
            .find(|info| info.partition == partition)
    }

    /// The broker that leads a partition, if it has one.
    ///
    /// ```no_run
    /// # fn example(metadata: &ottla_client::Metadata) {
    /// match metadata.leader("orders", 0) {
    ///     Some(broker) => println!("{}", broker.address()),
    ///     None => println!("no leader"),
    /// }
    /// # }
    /// ```
    pub fn leader(&self, topic: &str, partition: i32) -> Option<&BrokerNode> {
        self.brokers.get(&self.partition(topic, partition)?.leader)
    }

    /// Zero if the topic is unknown.
    pub(crate) fn topic_id(&self, topic: &str) -> Uuid {
        let topic = self.topics.get(topic);
        topic.map_or(Uuid::ZERO, |topic| topic.topic_id)
    }

    /// A cluster of one broker, which leads the only partition of a topic.
    #[cfg(test)]
    pub(crate) fn of_topic(name: &str, leader: i32, leader_epoch: i32) -> Metadata {
        let node = BrokerNode::new(leader, &format!("host-{leader}"), 9092, None);
        let partition = PartitionInfo {
            partition: 0,
            error: ErrorCode::None,
            leader,
            leader_epoch,
            replicas: Vec::new(),
            isr: Vec::new(),
            offline_replicas: Vec::new(),
        };
        let topic = TopicInfo {
            name: name.to_owned(),
            topic_id: Uuid::ZERO,
            error: ErrorCode::None,
            is_internal: false,
            partitions: vec![partition],
        };
        Metadata {
            brokers: [(leader, node)].into(),
            topics: [(name.to_owned(), topic)].into(),
            ..Metadata::default()
        }
    }

    /// The name of the topic with this ID, if it is known.
    ///
    /// ```no_run
    /// # fn example(metadata: &ottla_client::Metadata, topic_id: ottla_client::ottla_types::Uuid) {
    /// // `topic_id` is from a message that has no names.
    /// println!("{:?}", metadata.topic_name(topic_id));
    /// # }
    /// ```
    pub fn topic_name(&self, topic_id: Uuid) -> Option<&str> {
        self.topics
            .values()
            .find(|topic| topic.topic_id == topic_id)
            .map(|topic| topic.name.as_str())
    }

    /// This snapshot with the leaders that a response names for partitions that have moved
    /// (KIP-951), and the addresses in it. `None` if it names no newer leader.
    pub(crate) fn with_leaders(
        &self,
        leaders: &[NamedLeader<'_>],
        nodes: Vec<BrokerNode>,
    ) -> Option<Metadata> {
        let is_news = |named: &&NamedLeader<'_>| {
            let known = self.partition(named.topic, named.partition);
            let has_address = self.brokers.contains_key(&named.leader)
                || nodes.iter().any(|node| node.id == named.leader);
            has_address && known.is_some_and(|known| known.leader_epoch < named.leader_epoch)
        };
        let news: Vec<&NamedLeader<'_>> = leaders.iter().filter(is_news).collect();
        if news.is_empty() {
            return None;
        }
        let mut updated = self.clone();
        for named in news {
            let topic = updated.topics.get_mut(named.topic);
            let mut partitions = topic.into_iter().flat_map(|it| &mut it.partitions);
            if let Some(known) = partitions.find(|it| it.partition == named.partition) {
                known.leader = named.leader;
                known.leader_epoch = named.leader_epoch;
                known.error = ErrorCode::None;
            }
        }
        updated
            .brokers
            .extend(nodes.into_iter().map(|node| (node.id, node)));
        Some(updated)
    }

    /// This snapshot updated with a response: brokers are replaced; the topics of the response are
    /// added, or replace all known topics if the response contains all topics of the cluster. The
    /// broker that sent it may know less than this snapshot: leaders of newer epochs stay.
    pub(crate) fn merged(&self, response: &MetadataResponse, has_all_topics: bool) -> Metadata {
        let brokers = response
            .brokers
            .iter()
            .map(|broker| {
                let rack = broker.rack.as_deref();
                let node = BrokerNode::new(broker.node_id, &broker.host, broker.port, rack);
                (node.id, node)
            })
            .collect();
        let mut topics = if has_all_topics {
            BTreeMap::new()
        } else {
            self.topics.clone()
        };
        for topic in &response.topics {
            let Some(name) = &topic.name else { continue };
            if topic.error_code == ErrorCode::UnknownTopicOrPartition.code() {
                topics.remove(&**name);
            } else {
                let mut info = topic_info(name, topic);
                if let Some(known) = self.topics.get(&**name) {
                    info.keep_newer_leaders(known);
                }
                topics.insert(name.to_string(), info);
            }
        }
        Metadata {
            cluster_id: response.cluster_id.as_ref().map(ToString::to_string),
            controller_id: response.controller_id,
            brokers,
            topics,
        }
    }
}

fn topic_info(name: &str, topic: &MetadataResponseTopic) -> TopicInfo {
    let mut partitions: Vec<PartitionInfo> = topic
        .partitions
        .iter()
        .map(|partition| PartitionInfo {
            partition: partition.partition_index,
            error: ErrorCode::from_code(partition.error_code),
            leader: partition.leader_id,
            leader_epoch: partition.leader_epoch,
            replicas: partition.replica_nodes.clone(),
            isr: partition.isr_nodes.clone(),
            offline_replicas: partition.offline_replicas.clone(),
        })
        .collect();
    partitions.sort_by_key(|partition| partition.partition);
    TopicInfo {
        name: name.to_owned(),
        topic_id: topic.topic_id,
        error: ErrorCode::from_code(topic.error_code),
        is_internal: topic.is_internal,
        partitions,
    }
}

#[cfg(test)]
mod tests {
    use ottla_protocol::messages::metadata_response::MetadataResponsePartition;

    use super::*;

    fn node(id: i32) -> BrokerNode {
        BrokerNode::new(id, &format!("host-{id}"), 9092, None)
    }

    fn named(partition: i32, leader: i32, leader_epoch: i32) -> NamedLeader<'static> {
        NamedLeader {
            topic: "t",
            partition,
            leader,
            leader_epoch,
        }
    }

    fn known(metadata: &Metadata) -> (i32, i32) {
        let partition = metadata.partition("t", 0).unwrap();
        (partition.leader, partition.leader_epoch)
    }

    /// Otherwise a broker that lags behind would send a producer back to the leader that has just
    /// named the new one.
    #[test]
    fn a_response_does_not_take_back_a_newer_leader() {
        const ID: Uuid = Uuid::from_u128(6);
        for (what, known_id, topic_id, leader_epoch, expected) in [
            ("older", ID, ID, 4, (1, 5)),
            ("as old", ID, ID, 5, (2, 5)),
            ("newer", ID, ID, 6, (2, 6)),
            ("without epochs", ID, ID, -1, (2, -1)),
            ("without IDs", Uuid::ZERO, Uuid::ZERO, 4, (2, 4)),
            ("another topic", ID, Uuid::from_u128(7), 0, (2, 0)),
        ] {
            let mut metadata = Metadata::of_topic("t", 1, 5);
            metadata.topics.get_mut("t").unwrap().topic_id = known_id;
            let partition = MetadataResponsePartition {
                leader_id: 2,
                leader_epoch,
                ..Default::default()
            };
            let topic = MetadataResponseTopic {
                name: Some("t".into()),
                topic_id,
                partitions: vec![partition],
                ..Default::default()
            };
            let response = MetadataResponse {
                topics: vec![topic],
                ..Default::default()
            };
            for has_all_topics in [false, true] {
                let merged = metadata.merged(&response, has_all_topics);
                assert_eq!(known(&merged), expected, "{what}");
            }
        }
    }

    #[test]
    fn a_named_leader_replaces_an_older_one_with_an_address() {
        let metadata = Metadata::of_topic("t", 1, 5);
        assert_eq!(known(&metadata), (1, 5));
        let moved = metadata.with_leaders(&[named(0, 2, 6)], vec![node(2)]);
        let moved = moved.expect("it is newer");
        assert_eq!(known(&moved), (2, 6));
        assert_eq!(moved.leader("t", 0).unwrap().address(), "host-2:9092");
        let back = moved.with_leaders(&[named(0, 1, 7)], Vec::new());
        assert_eq!(known(&back.expect("its address is known")), (1, 7));

        for (what, leader) in [
            ("as old", named(0, 2, 5)),
            ("none", named(0, -1, -1)),
            ("another partition", named(1, 2, 6)),
        ] {
            let updated = metadata.with_leaders(&[leader], vec![node(2)]);
            assert_eq!(updated, None, "{what}");
        }
        let without_address = metadata.with_leaders(&[named(0, 2, 6)], Vec::new());
        assert_eq!(without_address, None);
    }
}
