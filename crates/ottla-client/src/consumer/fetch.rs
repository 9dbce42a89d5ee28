//! Fetching: one request per leader, for partitions without buffered records, and for partitions
//! with known records after the buffered ones (see `position`).
//!
//! A node with buffered records is asked for more only if more records are known to exist, so that
//! it answers at once. A response that the node delays for `fetch.max.wait.ms` would prevent a
//! fetch of partitions whose buffers become empty during the delay (Kafka's
//! `org.apache.kafka.clients.consumer.internals.AbstractFetch` does not fetch from such a node at
//! all).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::messages::fetch_request::{
    FetchPartition, FetchRequest, FetchTopic, ForgottenTopic,
};
use ottla_protocol::messages::fetch_response::{FetchResponse, PartitionData};
use ottla_types::{ErrorCode, Uuid};

use super::fetched::{Answer, Fetched, HeldFetch};
use super::metrics::RequestTally;
use super::position::Position;
use super::records::{CompletedFetch, Extent};
use super::session::Wanted;
use super::{Consumer, Partition};
use crate::client::{Client, Owner};
use crate::error::ClientError;
use crate::metadata::{BrokerNode, Metadata, NamedLeader};
use crate::partitions::by_topic;

/// The partitions to fetch from one node.
#[derive(Default)]
struct NodeFetch {
    /// With the generations of their positions.
    partitions: BTreeMap<Partition, (Wanted, u64)>,
    /// Whether any of the node's partitions has buffered records.
    has_some_waiting: bool,
    /// Whether any of `partitions` is known to have records, or has not been fetched yet.
    has_more: bool,
}

impl NodeFetch {
    fn is_worth_asking(&self) -> bool {
        !self.partitions.is_empty() && (self.has_more || !self.has_some_waiting)
    }

    /// Skips prefetches if any partition has run dry.
    fn put_dry_first(&mut self, positions: &BTreeMap<Partition, Position>) {
        let is_dry = |partition: &Partition| !positions[partition].holds_some();
        if self.partitions.keys().any(is_dry) {
            self.partitions.retain(|partition, _| is_dry(partition));
        }
    }
}

impl Consumer {
    /// Fetches from every leader without a fetch in flight, for the partitions that have run dry.
    pub(super) async fn start_fetches(&mut self) -> Result<(), ClientError> {
        let names = self.topics_run_dry();
        if names.is_empty() {
            return Ok(());
        }
        let metadata = self.known_topics(&names).await?;
        self.start_fetches_by(&metadata)
    }

    /// The same from known metadata, without waiting. The next poll meets any error again.
    pub(super) fn start_known_fetches(&mut self) {
        let metadata = self.client.metadata();
        if let Err(error) = self.start_fetches_by(&metadata) {
            tracing::debug!(%error, "nothing is fetched ahead");
        }
    }

    fn topics_run_dry(&self) -> Vec<String> {
        let wanted: BTreeSet<String> = self
            .positions
            .iter()
            .filter(|(_, position)| {
                position.next.is_some() && !position.holds_some() && !position.is_fetching
            })
            .map(|((topic, _), _)| topic.clone())
            .collect();
        wanted.into_iter().collect()
    }

    fn start_fetches_by(&mut self, metadata: &Arc<Metadata>) -> Result<(), ClientError> {
        let now = ottla_sync::time::now();
        let mut by_leader: BTreeMap<i32, NodeFetch> = BTreeMap::new();
        for (partition, position) in &mut self.positions {
            let (topic, index) = partition;
            if position.next.is_none() || position.is_paused {
                continue;
            }
            let Some(info) = metadata.partition(topic, *index) else {
                if !metadata.topics.contains_key(topic) {
                    // A fetch is in flight.
                    continue;
                }
                return Err(ClientError::broker(
                    format!("{topic}-{index}"),
                    ErrorCode::UnknownTopicOrPartition.code(),
                    Some("the topic does not have this partition"),
                ));
            };
            let near = position.read_replica.filter(|(_, until)| *until > now);
            let node = near.map_or(info.leader, |(replica, _)| replica);
            if node < 0 || self.fetching.contains(&node) {
                continue;
            }
            let of_node = by_leader.entry(node).or_default();
            of_node.has_some_waiting |= position.holds_some();
            let read_committed = self.config.read_committed;
            let min_bytes = self.config.fetch_min_bytes;
            let Some(offset) = position.wanted(read_committed, min_bytes) else {
                continue;
            };
            let wanted = Wanted {
                offset,
                leader_epoch: info.leader_epoch,
            };
            of_node.has_more |= position.goes_on(read_committed) != Some(false);
            of_node
                .partitions
                .insert(partition.clone(), (wanted, position.generation));
        }
        for (leader, mut of_node) in by_leader {
            if !of_node.is_worth_asking() {
                continue;
            }
            // Without a session, the first partition of a request is served first: a partition that
            // is prefetched repeatedly would take all space from a partition without buffered
            // records.
            if !self
                .sessions
                .get(&leader)
                .is_some_and(|session| session.is_open())
            {
                of_node.put_dry_first(&self.positions);
            }
            self.fetch_from(leader, of_node.partitions, metadata);
        }
        Ok(())
    }

    /// Metadata with these topics, without topics that do not exist.
    async fn known_topics(&self, names: &[String]) -> Result<Arc<Metadata>, ClientError> {
        match self.client.topics(names).await {
            Err(error)
                if matches!(
                    error.code(),
                    Some(ErrorCode::UnknownTopicOrPartition | ErrorCode::LeaderNotAvailable)
                ) =>
            {
                Ok(self.client.metadata())
            }
            known => known,
        }
    }

    fn fetch_from(
        &mut self,
        leader: i32,
        partitions: BTreeMap<Partition, (Wanted, u64)>,
        metadata: &Metadata,
    ) {
        let asked = partitions.clone();
        for partition in partitions.keys() {
            if let Some(position) = self.positions.get_mut(partition) {
                position.is_fetching = true;
            }
        }
        let wanted = partitions
            .into_iter()
            .map(|(partition, (wanted, _))| (partition, wanted));
        let session = self.sessions.entry(leader).or_default();
        let (session_id, session_epoch) = (session.id(), session.epoch());
        let change = session.change_to(wanted);
        let requested = change.requested.iter().map(|(partition, wanted)| {
            let wanted = FetchPartition {
                partition: partition.1,
                current_leader_epoch: wanted.leader_epoch,
                fetch_offset: wanted.offset,
                log_start_offset: -1,
                partition_max_bytes: self.config.max_partition_fetch_bytes,
                ..Default::default()
            };
            (partition, wanted)
        });
        let topics = by_topic(requested).into_iter();
        let topics = topics.map(|(topic, partitions)| FetchTopic {
            topic: topic.to_owned().into(),
            topic_id: metadata.topic_id(topic),
            partitions,
            ..Default::default()
        });
        let forgotten = change.forgotten.iter().map(|it| (it, it.1));
        let forgotten = by_topic(forgotten).into_iter();
        let forgotten = forgotten.map(|(topic, partitions)| ForgottenTopic {
            topic: topic.to_owned().into(),
            topic_id: metadata.topic_id(topic),
            partitions,
            ..Default::default()
        });
        let request = FetchRequest {
            max_wait_ms: self.config.fetch_max_wait.as_millis() as i32,
            min_bytes: self.config.fetch_min_bytes,
            max_bytes: self.config.fetch_max_bytes,
            isolation_level: i8::from(self.config.read_committed),
            session_id,
            session_epoch,
            topics: topics.collect(),
            forgotten_topics_data: forgotten.collect(),
            rack_id: self.config.client_rack.clone().unwrap_or_default().into(),
            ..Default::default()
        };
        let names: BTreeMap<Uuid, String> = metadata
            .topics
            .values()
            .map(|topic| (topic.topic_id, topic.name.clone()))
            .collect();
        let (client, owner) = (self.client.clone(), self.fetch_owner);
        let held_back = self.config.fetch_max_wait;
        self.fetching.insert(leader);
        self.fetches.spawn(async move {
            let result = fetch(&client, owner, leader, request, held_back, &names).await;
            Fetched {
                leader,
                asked,
                result,
            }
        });
    }

    /// Handles the response of a fetch.
    pub(super) async fn on_fetched(&mut self, fetched: Fetched) -> Result<(), ClientError> {
        self.fetching.remove(&fetched.leader);
        for (partition, (_, generation)) in &fetched.asked {
            if let Some(position) = self.positions.get_mut(partition)
                && position.generation == *generation
            {
                position.is_fetching = false;
            }
        }
        let session = self.sessions.entry(fetched.leader).or_default();
        let answer = match fetched.result {
            Ok(answer) => {
                session.on_session(answer.session_id);
                self.sensors
                    .on_fetch_answered(answer.latency, answer.throttle_time_ms);
                answer
            }
            Err(error) => {
                session.on_failure(error.code());
                let is_about_session = matches!(
                    error.code(),
                    Some(
                        ErrorCode::FetchSessionIdNotFound
                            | ErrorCode::InvalidFetchSessionEpoch
                            | ErrorCode::FetchSessionTopicIdError
                            | ErrorCode::InconsistentTopicId
                    )
                );
                if is_about_session || self.may_go_on_without(fetched.leader, &fetched.asked) {
                    return Ok(());
                }
                if !error.is_retriable() {
                    return Err(error);
                }
                tracing::debug!(%error, "a fetch failed; trying again");
                ottla_sync::time::sleep(self.client.config().retry_backoff).await;
                return self.refresh(&fetched.asked).await;
            }
        };
        let metadata = self.client.metadata();
        let mut stale = false;
        let mut out_of_range = Vec::new();
        let tally = RequestTally::new(self.sensors.clone());
        for (partition, data) in answer.partitions {
            // It counts as answered, with any result.
            tally.on_drained(&self.shared_name(&partition.0), Extent::default());
            let Some(&(wanted, generation)) = fetched.asked.get(&partition) else {
                continue;
            };
            let offset = wanted.offset;
            let position = self.positions.get_mut(&partition);
            let Some(position) = position.filter(|it| it.is_asked_by(generation, offset)) else {
                continue;
            };
            match ErrorCode::from_code(data.error_code) {
                ErrorCode::None => self.on_data(&partition, offset, data, &tally),
                _ if position.forget_replica(fetched.leader) => {}
                _ if position.holds_some() => position.on_ahead_refused(),
                ErrorCode::OffsetOutOfRange => out_of_range.push(partition),
                code if code.is_retriable() => {
                    // If the leader has changed since the request, the new one is asked at once.
                    let known = metadata.partition(&partition.0, partition.1);
                    stale |= known.is_none_or(|it| it.leader_epoch <= wanted.leader_epoch);
                }
                code => {
                    let what = format!("fetching {}-{}", partition.0, partition.1);
                    return Err(ClientError::broker(what, code.code(), None::<&str>));
                }
            }
        }
        self.reset(&out_of_range, "the log does not have the offset any more")
            .await?;
        if stale {
            ottla_sync::time::sleep(self.client.config().retry_backoff).await;
            self.refresh(&fetched.asked).await?;
        }
        Ok(())
    }

    /// A node could not be reached. Returns whether each partition has another node to fetch from,
    /// or buffered records to return first. The error is met again after that.
    fn may_go_on_without(&mut self, node: i32, asked: &BTreeMap<Partition, (Wanted, u64)>) -> bool {
        let mut may_go_on = true;
        for (partition, (_, generation)) in asked {
            let position = self.positions.get_mut(partition);
            let Some(position) = position.filter(|it| it.generation == *generation) else {
                continue;
            };
            if position.forget_replica(node) {
                continue;
            }
            match position.holds_some() {
                true => position.on_ahead_refused(),
                false => may_go_on = false,
            }
        }
        may_go_on
    }

    /// The topic name that all records of the topic share.
    fn shared_name(&mut self, topic: &str) -> Arc<str> {
        match self.names.get(topic) {
            Some(name) => name.clone(),
            None => {
                let name: Arc<str> = topic.into();
                self.names.insert(topic.to_owned(), name.clone());
                name
            }
        }
    }

    async fn refresh(&self, asked: &BTreeMap<Partition, (Wanted, u64)>) -> Result<(), ClientError> {
        let mut names: Vec<String> = asked.keys().map(|(topic, _)| topic.clone()).collect();
        names.dedup();
        self.client
            .refresh_metadata(Some(&names), false)
            .await
            .map(drop)
    }

    pub(super) fn on_data(
        &mut self,
        partition: &Partition,
        from: i64,
        data: PartitionData,
        tally: &Arc<RequestTally>,
    ) {
        let name = self.shared_name(&partition.0);
        let Some(position) = self.positions.get_mut(partition) else {
            return;
        };
        position.high_watermark = Some(data.high_watermark).filter(|it| *it >= 0);
        position.last_stable_offset = Some(data.last_stable_offset).filter(|it| *it >= 0);
        position.log_start_offset = Some(data.log_start_offset).filter(|it| *it >= 0);
        if data.preferred_read_replica >= 0 {
            let until = ottla_sync::time::now() + self.client.config().metadata_max_age;
            position.read_replica = Some((data.preferred_read_replica, until));
            self.sensors
                .on_read_replica(partition, data.preferred_read_replica);
        }
        let records = data.records.as_ref();
        let bytes = records.and_then(|records| records.as_bytes().cloned());
        let Some(bytes) = bytes.filter(|bytes| !bytes.is_empty()) else {
            return;
        };
        let aborted = match self.config.read_committed {
            true => data.aborted_transactions.unwrap_or_default(),
            false => Vec::new(),
        };
        let topic = name.clone();
        let checks_crcs = self.config.check_crcs;
        let fetch = CompletedFetch::new(name, partition.1, bytes, from, aborted, checks_crcs);
        position.hold(HeldFetch {
            fetch: fetch.with_max_batch_bytes(self.config.max_batch_bytes),
            topic,
            tally: tally.clone(),
        });
    }
}

async fn fetch(
    client: &Client,
    owner: Owner,
    leader: i32,
    request: FetchRequest,
    held_back: Duration,
    names: &BTreeMap<Uuid, String>,
) -> Result<Answer, ClientError> {
    let connection = client.node_of(leader, Some(owner)).await?;
    let asked = ottla_sync::time::now();
    let response = connection.send_waiting(&request, held_back).await?;
    let latency = ottla_sync::time::elapsed(asked);
    ClientError::check_code(
        format!("fetching from {}", connection.address()),
        response.error_code,
    )?;
    Ok(read_answer(client, response, latency, names))
}

/// The partitions of a response. The client learns the leaders that it names.
pub(super) fn read_answer(
    client: &Client,
    response: FetchResponse,
    latency: Duration,
    names: &BTreeMap<Uuid, String>,
) -> Answer {
    let mut partitions = Vec::new();
    for topic in response.responses {
        // Newer responses have only the id.
        let name = match topic.topic.is_empty() {
            true => names.get(&topic.topic_id).map(String::as_str),
            false => Some(&*topic.topic),
        };
        let Some(name) = name else { continue };
        for partition in topic.partitions {
            partitions.push(((name.to_owned(), partition.partition_index), partition));
        }
    }
    let mut leaders = Vec::new();
    for ((topic, partition), data) in &partitions {
        if data.error_code != ErrorCode::None.code() {
            leaders.push(NamedLeader {
                topic: topic.as_str(),
                partition: *partition,
                leader: data.current_leader.leader_id,
                leader_epoch: data.current_leader.leader_epoch,
            });
        }
    }
    let nodes = response
        .node_endpoints
        .iter()
        .map(|node| BrokerNode::new(node.node_id, &node.host, node.port, node.rack.as_deref()));
    client.learn_leaders(&leaders, nodes);
    Answer {
        session_id: response.session_id,
        throttle_time_ms: response.throttle_time_ms,
        latency,
        partitions,
    }
}
