//! A fetcher: fetches the partitions it has orders for from one leader, in one session over one
//! connection, and puts the responses into their inboxes.
//!
//! One request is in flight at a time. Records are appended on the fetcher's thread if the
//! partition is free, as a Produce is on its connection's thread, and each append leads to the next
//! order, so that the next request covers all partitions again. A busy partition is awaited
//! briefly: a request without it could wait at the leader for `replica.fetch.wait.max.ms`.
//!
//! If the leader cannot be reached, the orders stay; it is retried after
//! `replica.fetch.backoff.ms`.
//!
//! Kafka: `AbstractFetcherThread`, `ReplicaFetcherThread`, `RemoteLeaderEndPoint`, `BrokerBlockingSender`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ottla_config::BrokerConfig;
use ottla_protocol::Records;
use ottla_protocol::fetch_session::client::Unusable;
use ottla_protocol::messages::FetchRequest;
use ottla_protocol::messages::fetch_request::{FetchPartition, ReplicaState};
use ottla_protocol::messages::fetch_response::PartitionData;
use ottla_records::BatchError;
use ottla_records::legacy::AnyBatch;
use ottla_replica::{EpochEnd, FetchPosition};
use ottla_sync::atomic::{AtomicU64, Ordering};
use ottla_types::{
    BrokerId, ErrorCode, LeaderEpoch, Offset, PartitionIndex, TopicIdPartition, TopicPartition,
};

use super::context::ReplicationContext;
use super::fetch_session::{Change, FetchSession, PositionedFetch, partitions_of, topics_of};
use super::leader_offsets::PendingQueries;
use super::orders::{Order, Orders};
use crate::partition::leader_answer::{Answered, LeaderAnswer};
use crate::partition::{LeaderFetcher, Partition};
use ottla_context::NodeContext;
use ottla_metrics::Metric;
use ottla_net::{PeerConnection, PeerError, PeerSecurity, PeerSettings};

/// How long to wait for the next order of a partition that was given records.
const REORDER_WAIT: Duration = Duration::from_millis(10);
/// Idle time after which the connection is closed and a fetcher without partitions ends.
const IDLE: Duration = Duration::from_secs(60);
/// Bytes after which the task yields.
const YIELD_BYTES: usize = 1024 * 1024;
/// The first version of Fetch with `ReplicaState`, which has the broker epoch.
const REPLICA_STATE_VERSION: i16 = 15;

/// Fetches from one leader.
#[derive(Debug)]
pub struct Fetcher {
    context: Arc<NodeContext>,
    leader: BrokerId,
    /// The number among the fetchers of this leader.
    number: u32,
    orders: Orders,
    queries: PendingQueries,
    /// Number of requests sent and bytes of records received.
    requests: AtomicU64,
    bytes: AtomicU64,
}

/// Why a fetch failed.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("the metadata names no address of it for {0}")]
    NoEndpoint(String),
    #[error(transparent)]
    Peer(#[from] PeerError),
    #[error("it answered {0}")]
    Refused(ErrorCode),
    #[error("it answered for partitions other than the requested ones")]
    WrongPartitions,
}

impl Fetcher {
    pub(super) fn new(context: &Arc<NodeContext>, leader: BrokerId, number: u32) -> Fetcher {
        Fetcher {
            context: Arc::clone(context),
            leader,
            number,
            orders: Orders::default(),
            queries: PendingQueries::default(),
            requests: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    /// Identifies a fetcher within the broker.
    pub fn key(&self) -> (BrokerId, u32) {
        (self.leader, self.number)
    }

    /// Number of requests sent and bytes of records received.
    pub fn counts(&self) -> (u64, u64) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (read(&self.requests), read(&self.bytes))
    }

    /// Fetches until it has had no order for a while and `forget_unused` confirms that it will get
    /// none.
    pub(super) async fn fetch_on_order(
        &self,
        context: &ReplicationContext,
        forget_unused: impl Fn() -> bool,
    ) {
        let mut connection = None;
        let mut session = FetchSession::default();
        let mut has_complained = false;
        let mut held_back = Vec::new();
        loop {
            if self.orders.is_empty() && self.queries.is_empty() {
                let ordered = self.orders.ordered();
                if ottla_sync::time::timeout(IDLE, ordered).await.is_err() {
                    connection = None;
                    session = FetchSession::default();
                    if forget_unused() {
                        return;
                    }
                }
                continue;
            }
            match self
                .exchange(context, &mut connection, &mut session, &mut held_back)
                .await
            {
                Ok(()) => has_complained = false,
                Err(trouble) => {
                    let (leader, number) = (self.leader.0, self.number);
                    if std::mem::replace(&mut has_complained, true) {
                        tracing::debug!(
                            leader,
                            number,
                            "cannot fetch from broker {leader}: {trouble}"
                        );
                    } else {
                        tracing::warn!(
                            leader,
                            number,
                            "cannot fetch from broker {leader}; trying again: {trouble}"
                        );
                    }
                    connection = None;
                    session.on_failure(None);
                    self.queries.give_up(&context.host);
                    if ottla_sync::planted::has("a follower gives up a leader that failed once") {
                        return;
                    }
                    self.back_off(context).await;
                }
            }
        }
    }

    /// One request and the processing of its response.
    async fn exchange(
        &self,
        context: &ReplicationContext,
        connection: &mut Option<PeerConnection>,
        session: &mut FetchSession,
        held_back: &mut Vec<TopicIdPartition>,
    ) -> Result<(), Trouble> {
        let connection = match connection.take().filter(|open| !open.is_closed()) {
            Some(open) => connection.insert(open),
            None => {
                // A new connection may lead to a new process that does not know the session.
                session.on_failure(None);
                connection.insert(self.connect(context).await?)
            }
        };
        self.queries.ask(&context.host, connection).await?;
        // Throttled partitions may be fetched again by now.
        self.orders.look_again(held_back.drain(..));
        let orders = match session.is_full() {
            true => self.orders.take_all(),
            false => self.orders.take_changed(),
        };
        let config = context.host.context.config().clone();
        let wanted = orders.into_iter().map(|(key, order)| {
            let wanted = order.and_then(|order| {
                if is_held_back(context, &config, &order) {
                    held_back.push(key);
                    return None;
                }
                let request = request_of(&order, &config);
                let position = order.position;
                Some(PositionedFetch { position, request })
            });
            (key, wanted)
        });
        let change = session.change(wanted);
        // If the session has just lost its last partition, the leader must still receive that.
        if session.is_empty() && change.forgotten.is_empty() {
            if !held_back.is_empty() {
                self.back_off(context).await;
            }
            return Ok(());
        }
        let request = |version| self.request(context, &config, session, change, version);
        self.requests.fetch_add(1, Ordering::Relaxed);
        let response = connection.send_with(request).await?;
        let error = ErrorCode::from_code(response.error_code);
        let partitions = partitions_of(&response);
        match session.on_answer(error, response.session_id, partitions) {
            Ok(()) => {}
            Err(Unusable::SessionLost) => return Ok(()),
            Err(Unusable::Refused(code)) => return Err(Trouble::Refused(code)),
            Err(Unusable::WrongPartitions) => return Err(Trouble::WrongPartitions),
        }
        let mut busy = Vec::new();
        let mut bytes = 0;
        for topic in response.responses {
            for data in topic.partitions {
                let key = TopicIdPartition {
                    topic_id: topic.topic_id,
                    partition: PartitionIndex(data.partition_index),
                };
                // The response to an order that was replaced or removed is ignored.
                let Some(order) = session.requested(&key).map(|fetch| fetch.position) else {
                    continue;
                };
                let Some(partition) = self.orders.answer(key, &order) else {
                    continue;
                };
                let result = read_answer(&context.host.context, &partition, data);
                let answer = LeaderAnswer { order, result };
                let size = answer.size_in_bytes();
                bytes += size;
                self.bytes.fetch_add(size as u64, Ordering::Relaxed);
                context
                    .host
                    .context
                    .metrics
                    .add(Metric::ReplicationBytesIn, size as u64);
                if partition.settings().is_throttled_as_follower {
                    let throttle = &context.follower_throttle;
                    throttle.record(&config, size as u64, context.host.context.now_ms());
                }
                partition.on_leader_answered(&context.host, answer);
                if size > 0 && !self.orders.is_standing(&key) {
                    busy.push(key);
                }
                if bytes >= YIELD_BYTES {
                    bytes = 0;
                    ottla_sync::task::yield_now().await;
                }
            }
        }
        self.wait_for_orders(busy).await;
        Ok(())
    }

    async fn connect(&self, context: &ReplicationContext) -> Result<PeerConnection, Trouble> {
        let (config, image) = (
            context.host.context.config().clone(),
            context.host.context.metadata().clone(),
        );
        let listener = &config.inter_broker_listener_name;
        let registration = image.cluster.broker(self.leader);
        let endpoint = registration.and_then(|registration| registration.listener(listener));
        let endpoint = endpoint.ok_or_else(|| Trouble::NoEndpoint(listener.clone()))?;
        let settings = PeerSettings {
            client_id: format!(
                "broker-{}-fetcher-{}",
                context.host.context.broker_id().0,
                self.number
            )
            .into(),
            request_timeout: Duration::from_millis(config.replica_socket_timeout_ms.max(1) as u64),
            security: PeerSecurity::at_brokers(&context.host.context, &config, listener),
            connection_setup_timeout: Duration::from_millis(
                config.socket_connection_setup_timeout_ms.max(1) as u64,
            ),
            // The first batch is returned whatever its size is, and a topic may allow any size.
            receive_limit: i32::MAX as usize,
        };
        Ok(PeerConnection::open(&endpoint.host, endpoint.port, &settings).await?)
    }

    fn request(
        &self,
        context: &ReplicationContext,
        config: &BrokerConfig,
        session: &FetchSession,
        change: Change,
        version: i16,
    ) -> FetchRequest {
        let (topics, forgotten_topics_data) = topics_of(change);
        let mut request = FetchRequest {
            max_wait_ms: config.replica_fetch_wait_max_ms,
            min_bytes: config.replica_fetch_min_bytes,
            max_bytes: config.replica_fetch_response_max_bytes,
            session_id: session.id(),
            session_epoch: session.epoch(),
            topics,
            forgotten_topics_data,
            ..Default::default()
        };
        if version >= REPLICA_STATE_VERSION {
            request.replica_state = ReplicaState {
                replica_id: context.host.context.broker_id().0,
                replica_epoch: context.node.broker_epoch().0,
                ..Default::default()
            };
        } else {
            request.replica_id = context.host.context.broker_id().0;
        }
        request
    }

    /// Waits briefly for the next orders of partitions that other threads are stepping.
    async fn wait_for_orders(&self, mut busy: Vec<TopicIdPartition>) {
        if busy.is_empty() {
            return;
        }
        let wait = async {
            loop {
                busy.retain(|key| !self.orders.is_standing(key));
                if busy.is_empty() {
                    return;
                }
                self.orders.ordered().await;
            }
        };
        // Later ones are left out of the next request.
        let _ = ottla_sync::time::timeout(REORDER_WAIT, wait).await;
    }

    async fn back_off(&self, context: &ReplicationContext) {
        let backoff_ms = context
            .host
            .context
            .config()
            .replica_fetch_backoff_ms
            .max(1) as u64;
        ottla_sync::time::sleep(Duration::from_millis(backoff_ms)).await;
    }
}

impl LeaderFetcher for Fetcher {
    fn is_for(&self, leader: BrokerId, topic_partition: &TopicPartition) -> bool {
        let fetchers = self.context.config().num_replica_fetchers;
        self.leader == leader && self.number == fetcher_number(topic_partition, fetchers)
    }

    fn order(&self, partition: &Arc<Partition>, position: FetchPosition) {
        self.orders.put(partition, position);
    }

    fn stop(&self, partition: &Partition) {
        self.orders.take_back(partition.topic_id_partition());
    }

    fn list_leader_offsets(&self, partition: &Arc<Partition>, leader_epoch: LeaderEpoch) {
        self.queries.put(partition, leader_epoch);
        self.orders.wake();
    }
}

/// Kafka: `AbstractFetcherManager.getFetcherId`.
pub(super) fn fetcher_number(topic_partition: &TopicPartition, fetchers: i32) -> u32 {
    let hash = topic_partition
        .topic
        .encode_utf16()
        .fold(0_i32, |hash, unit| {
            hash.wrapping_mul(31).wrapping_add(i32::from(unit))
        });
    let hash = hash
        .wrapping_mul(31)
        .wrapping_add(topic_partition.partition.0);
    (hash & i32::MAX) as u32 % fetchers.max(1) as u32
}

/// Whether the quota for throttled replicas holds the order back.
fn is_held_back(context: &ReplicationContext, config: &BrokerConfig, order: &Order) -> bool {
    let quota = config.follower_replication_throttled_rate;
    let (throttle, now_ms) = (&context.follower_throttle, context.host.context.now_ms());
    order.partition.settings().is_throttled_as_follower
        && throttle.holds_back(config, order.position.is_in_sync, quota, now_ms)
}

/// The request for one partition.
fn request_of(order: &Order, config: &BrokerConfig) -> FetchPartition {
    let position = &order.position;
    FetchPartition {
        partition: order.partition.topic_partition.partition.0,
        current_leader_epoch: position.leader_epoch.0,
        fetch_offset: position.fetch_offset.0,
        last_fetched_epoch: position.last_fetched_epoch.map_or(-1, |epoch| epoch.0),
        log_start_offset: order.partition.reader().log_start_offset().0,
        partition_max_bytes: config.replica_fetch_max_bytes,
        ..Default::default()
    }
}

/// The leader's response for one partition. Its batches are slices of the response.
fn read_answer(
    context: &NodeContext,
    partition: &Partition,
    data: PartitionData,
) -> Result<Answered, ErrorCode> {
    match ErrorCode::from_code(data.error_code) {
        ErrorCode::None => {}
        code => {
            tracing::debug!(partition = %partition.topic_partition, "the leader answered {code}");
            return Err(code);
        }
    }
    if data.diverging_epoch.epoch >= 0 {
        return Ok(Answered::Diverging(EpochEnd {
            leader_epoch: LeaderEpoch(data.diverging_epoch.epoch),
            end_offset: Offset(data.diverging_epoch.end_offset),
        }));
    }
    let records = match data.records {
        Some(Records::Bytes(bytes)) => bytes,
        // Decoding never produces a file region.
        Some(Records::File(_)) | None => Bytes::new(),
    };
    let batches = read_batches(records).map_err(|error| {
        let partition = &partition.topic_partition;
        context.failed_reads.say(partition, || {
            tracing::error!(
                %partition,
                "the records from the leader are damaged; fetching them again: {error}"
            );
        });
        ErrorCode::CorruptMessage
    })?;
    Ok(Answered::Records {
        batches,
        high_watermark: Offset(data.high_watermark),
        log_start_offset: Offset(data.log_start_offset),
    })
}

/// A cut-off batch at the end is ignored.
fn read_batches(mut records: Bytes) -> Result<Vec<AnyBatch>, BatchError> {
    let mut batches = Vec::new();
    while !records.is_empty() {
        match AnyBatch::read(&mut records) {
            Ok(batch) => {
                batch.verify_crc()?;
                batches.push(batch);
            }
            Err(BatchError::TruncatedHeader { .. } | BatchError::TruncatedBatch { .. }) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(batches)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_spread_over_fetchers_as_in_kafka() {
        // "orders".hashCode() is -1008770331 in Java; times 31, plus the partition, without the sign.
        let number = |partition| fetcher_number(&TopicPartition::new("orders", partition), 4);
        assert_eq!([0, 1, 2, 3, 4].map(number), [3, 0, 1, 2, 3]);
        assert_eq!(fetcher_number(&TopicPartition::new("orders", 7), 1), 0);
    }
}
