//! The sender: sends batches to their leaders, and puts them back into the queue for a retry if
//! that can help (`org.apache.kafka.clients.producer.internals.Sender`).
//!
//! There is one task per producer. It never waits for a response: connections, responses and
//! metadata arrive as events, and after each it checks which batches are ready. Requests are sent
//! in the order in which their batches were taken, over the producer's own connections.

mod outcome;
mod producer_id;
mod request;

use ottla_sync::atomic::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_protocol::messages::produce_response::ProduceResponse;
use ottla_sync::mpsc;
use ottla_types::{ErrorCode, ProducerEpoch};

use super::accumulator::Leader;
use super::batch::ProducerBatch;
use super::sequences::Identity;
use super::shared::Shared;
use super::topics::PartitionQueue;
use crate::client::Owner;
use crate::connection::Connection;
use crate::error::ClientError;

/// The maximum sleep, when there is nothing to do or when batches wait for something without an
/// event.
const IDLE: Duration = Duration::from_secs(1);
const RESTLESS: Duration = Duration::from_millis(50);
/// The minimum sleep.
const MOMENT: Duration = Duration::from_millis(1);

enum Event {
    Connected(i32, Result<Arc<Connection>, ClientError>),
    /// `None` for acks=0, which has no response.
    Answered(u64, Result<Option<ProduceResponse>, ClientError>),
    MetadataRefreshed,
    Identified(Result<Identity, ClientError>),
    PartitionsAdded,
}

/// The state of a leader.
struct Node {
    connection: Option<Arc<Connection>>,
    is_connecting: bool,
    failures: u32,
    connect_after: Instant,
    throttled_until: Instant,
    in_flight: usize,
    /// The partition that is checked first, so that none starves.
    drain_index: usize,
    /// Since when it has had batches and accepted none.
    blocked_since: Option<Instant>,
}

struct InFlight {
    node: i32,
    connection: Arc<Connection>,
    sent: Instant,
    version: i16,
    batches: Vec<(Arc<PartitionQueue>, ProducerBatch)>,
}

pub(super) struct Sender {
    shared: Arc<Shared>,
    owner: Owner,
    nodes: BTreeMap<i32, Node>,
    in_flight: BTreeMap<u64, InFlight>,
    next_request: u64,
    events: mpsc::UnboundedReceiver<Event>,
    event_sender: mpsc::UnboundedSender<Event>,
    is_refreshing: bool,
    wants_metadata: bool,
    metadata_asked: Instant,
    is_identifying: bool,
    identify_after: Instant,
    /// Whether a partition cannot continue in the current epoch.
    wants_new_epoch: bool,
}

pub(super) async fn run(shared: Arc<Shared>) {
    let mut sender = Sender::new(shared);
    sender.serve().await;
    sender.shared.client.disown(sender.owner);
    let _ = sender.shared.sender_ended.set(());
}

impl Sender {
    fn new(shared: Arc<Shared>) -> Sender {
        let (event_sender, events) = mpsc::unbounded_channel();
        let now = ottla_sync::time::now();
        Sender {
            owner: shared.client.new_owner(),
            shared,
            nodes: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            next_request: 0,
            events,
            event_sender,
            is_refreshing: false,
            wants_metadata: false,
            metadata_asked: now,
            is_identifying: false,
            identify_after: now,
            wants_new_epoch: false,
        }
    }

    async fn serve(&mut self) {
        loop {
            while let Ok(event) = self.events.try_recv() {
                self.on_event(event);
            }
            let pause = self.step(ottla_sync::time::now());
            if self.is_over() {
                return;
            }
            let shared = self.shared.clone();
            ottla_sync::select! {
                event = self.events.recv() => {
                    if let Some(event) = event {
                        self.on_event(event);
                    }
                }
                () = shared.wake_sender.notified() => {}
                () = ottla_sync::time::sleep(pause) => {}
            }
        }
    }

    fn is_over(&self) -> bool {
        self.shared.is_closed.load(Ordering::Acquire)
            && self.in_flight.is_empty()
            && self.shared.accumulator.is_idle()
    }

    /// Does everything that is possible now. Returns when to check again if there is no event
    /// before.
    fn step(&mut self, now: Instant) -> Duration {
        self.give_up(now);
        self.close_late_connections(now);
        self.refresh_metadata(now);
        if self.shared.config.is_idempotent() && !self.is_identified(now) {
            return RESTLESS;
        }
        let shared = self.shared.clone();
        let metadata = shared.client.metadata();
        let limit = shared.config.partitioner_availability_timeout;
        let nodes = &self.nodes;
        let ready = shared.accumulator.ready(
            now,
            shared.is_closed.load(Ordering::Acquire) || shared.is_completing_transaction(),
            |topic, partition| {
                let known = metadata.partition(topic, partition)?;
                (known.leader >= 0).then_some(Leader {
                    node: known.leader,
                    epoch: known.leader_epoch,
                })
            },
            |node| {
                let blocked = nodes.get(&node).and_then(|node| node.blocked_since);
                limit.is_zero() || blocked.is_none_or(|since| now - since <= limit)
            },
        );
        let mut pause = ready.next_check.unwrap_or(IDLE);
        if !ready.topics_without_leader.is_empty() {
            self.wants_metadata = true;
            pause = pause.min(RESTLESS);
        }
        for (leader, queues) in ready.nodes {
            if !self.send_to(leader, &queues, now) {
                pause = pause.min(RESTLESS);
            }
        }
        self.add_partitions_to_transaction();
        if self.wants_metadata || self.wants_new_epoch {
            pause = pause.min(RESTLESS);
        }
        if self.wants_metadata && !self.is_refreshing {
            // Refused batches are sent again as soon, and must not meet the old leader once more.
            let due = self.metadata_asked + shared.client.config().retry_backoff;
            pause = pause.min(due.saturating_duration_since(now).max(MOMENT));
        }
        let request_timeout = shared.client.config().request_timeout;
        for request in self.in_flight.values() {
            pause = pause.min((request.sent + request_timeout).saturating_duration_since(now));
        }
        if shared.accumulator.is_idle() {
            return pause;
        }
        // Batches may expire while they wait.
        pause.min(shared.delivery_timeout()).min(IDLE)
    }

    /// Sends to a leader while it accepts requests. Returns false if it accepts none now.
    fn send_to(&mut self, leader: i32, queues: &[Arc<PartitionQueue>], now: Instant) -> bool {
        let shared = self.shared.clone();
        let limit = shared.config.max_in_flight_requests_per_connection;
        loop {
            let node = self.nodes.entry(leader).or_insert_with(|| Node {
                connection: None,
                is_connecting: false,
                failures: 0,
                connect_after: now,
                throttled_until: now,
                in_flight: 0,
                drain_index: 0,
                blocked_since: None,
            });
            let connection = match &node.connection {
                Some(connection) if connection.closed().is_none() => connection.clone(),
                _ => {
                    node.connection = None;
                    node.blocked_since.get_or_insert(now);
                    self.connect(leader, now);
                    return false;
                }
            };
            if node.in_flight >= limit || node.throttled_until > now {
                node.blocked_since.get_or_insert(now);
                return node.throttled_until <= now;
            }
            let start = node.drain_index;
            let identity = *shared.identity.lock();
            let batches = shared.accumulator.drain(
                queues,
                start,
                shared.config.max_request_size,
                identity.filter(|_| shared.config.is_idempotent()),
                now,
                |queue| shared.may_leave(queue),
            );
            if batches.is_empty() {
                return true;
            }
            node.drain_index = (start + batches.len()) % queues.len();
            node.blocked_since = None;
            node.in_flight += 1;
            self.send(leader, connection, batches, now);
            // More batches of the same partitions may be full by now.
            if !queues
                .iter()
                .any(|queue| queue.state.lock().batches.len() > 1)
            {
                return true;
            }
        }
    }

    fn connect(&mut self, leader: i32, now: Instant) {
        let Some(node) = self.nodes.get_mut(&leader) else {
            return;
        };
        if node.is_connecting || node.connect_after > now {
            return;
        }
        node.is_connecting = true;
        let (client, owner, events) = (
            self.shared.client.clone(),
            self.owner,
            self.event_sender.clone(),
        );
        ottla_sync::task::spawn(async move {
            let connected = client.node_of(leader, Some(owner)).await;
            let _ = events.send(Event::Connected(leader, connected));
        });
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Connected(leader, connected) => self.on_connected(leader, connected),
            Event::Answered(request, answer) => self.on_answered(request, answer),
            Event::MetadataRefreshed => {
                self.is_refreshing = false;
                self.learn_partitions();
            }
            Event::Identified(identified) => self.on_identified(identified),
            Event::PartitionsAdded => {}
        }
    }

    fn on_connected(&mut self, leader: i32, connected: Result<Arc<Connection>, ClientError>) {
        let config = self.shared.client.config();
        let Some(node) = self.nodes.get_mut(&leader) else {
            return;
        };
        node.is_connecting = false;
        match connected {
            Ok(connection) => {
                node.failures = 0;
                node.connection = Some(connection);
            }
            Err(error) => {
                tracing::debug!(%error, leader, "no connection to a leader");
                let grown = config.reconnect_backoff * 2u32.saturating_pow(node.failures.min(16));
                node.failures += 1;
                node.connect_after =
                    ottla_sync::time::now() + grown.min(config.reconnect_backoff_max);
                self.wants_metadata = true;
                if !error.is_retriable() && error.code().is_none() {
                    // Wrong credentials and similar errors: the waiting batches can never be sent.
                    for (queue, batch) in self.shared.accumulator.take_all() {
                        self.fail(&queue, batch, error.clone());
                    }
                }
            }
        }
    }

    /// Fails the batches that have exceeded their timeout, or all when the producer is aborted.
    fn give_up(&mut self, now: Instant) {
        let shared = self.shared.clone();
        let limit = shared.delivery_timeout();
        for (queue, batch) in shared.accumulator.take_expired(now, limit) {
            let error = self.expired(&queue, &batch, limit);
            self.fail(&queue, batch, error);
        }
        let mut late = Vec::new();
        for request in self.in_flight.values_mut() {
            for (queue, batch) in &mut request.batches {
                if !batch.is_told && batch.age(now) >= limit {
                    late.push((queue.clone(), batch.take_report()));
                }
            }
        }
        for (queue, told) in late {
            let error = ClientError::GaveUp {
                what: format!("producing to {}-{}", queue.topic, queue.partition),
                after: limit,
                last: Box::new(ClientError::Unsendable("no answer came".into())),
            };
            self.count_error(&queue, &told);
            // The transaction first, then the callers: a commit continues as soon as its last batch
            // is completed.
            shared.on_batch_failed(&error, true);
            self.tell(&queue, told, Err(error));
        }
        let is_aborted = shared.is_aborted.load(Ordering::Acquire);
        if is_aborted || shared.discards_batches() {
            for (queue, batch) in shared.accumulator.take_all() {
                let error = match is_aborted {
                    true => ClientError::ClientClosed,
                    false => shared.why_discarded(),
                };
                self.abort(&queue, batch, error);
            }
        }
        if is_aborted {
            for request in self.in_flight.values() {
                request.connection.close(ClientError::ClientClosed);
            }
        }
    }

    fn expired(
        &self,
        queue: &PartitionQueue,
        batch: &ProducerBatch,
        limit: Duration,
    ) -> ClientError {
        let why = match &batch.last_error {
            Some(error) => error.clone(),
            None => ClientError::Unsendable("it was not sent: no leader took it".into()),
        };
        ClientError::GaveUp {
            what: format!("producing to {}-{}", queue.topic, queue.partition),
            after: limit,
            last: Box::new(why),
        }
    }

    /// Closes connections whose requests have timed out. All their requests fail.
    fn close_late_connections(&mut self, now: Instant) {
        let timeout = self.shared.client.config().request_timeout;
        for request in self.in_flight.values() {
            if now.saturating_duration_since(request.sent) >= timeout {
                request.connection.close(ClientError::TimedOut {
                    address: request.connection.address().to_owned(),
                    what: "Produce".into(),
                    after: timeout,
                });
            }
        }
    }

    /// Refreshes the metadata if an error says that it is stale, or if it is old.
    fn refresh_metadata(&mut self, now: Instant) {
        let config = self.shared.client.config();
        let since = now.saturating_duration_since(self.metadata_asked);
        let is_due = self.wants_metadata && since >= config.retry_backoff
            || since >= config.metadata_max_age;
        if self.is_refreshing || !is_due {
            return;
        }
        let topics = self.shared.accumulator.topics.all();
        let names: Vec<String> = topics.map(|topic| topic.name.to_string()).collect();
        if names.is_empty() {
            return;
        }
        self.is_refreshing = true;
        self.wants_metadata = false;
        self.metadata_asked = now;
        let (client, events) = (self.shared.client.clone(), self.event_sender.clone());
        ottla_sync::task::spawn(async move {
            if let Err(error) = client.refresh_metadata(Some(&names), false).await {
                tracing::debug!(%error, "no metadata");
            }
            let _ = events.send(Event::MetadataRefreshed);
        });
    }

    fn learn_partitions(&self) {
        let metadata = self.shared.client.metadata();
        let topics = &self.shared.accumulator.topics;
        for known in topics.all() {
            if let Some(topic) = metadata.topics.get(&*known.name) {
                topics.set_partitions(&known.name, topic.partitions.len());
            }
        }
    }

    /// Whether the producer has its identity. Requests one if not.
    fn is_identified(&mut self, now: Instant) -> bool {
        let shared = self.shared.clone();
        let is_transactional = shared.transaction.is_some();
        let identity = *shared.identity.lock();
        if let Some(identity) = identity {
            if self.wants_new_epoch && !is_transactional {
                self.wants_new_epoch = shared.accumulator.has_broken_sequences();
                if self.wants_new_epoch && shared.accumulator.broken_sequences_are_quiet() {
                    if identity.epoch.0 == i16::MAX {
                        *shared.identity.lock() = None;
                        return false;
                    }
                    let next = Identity {
                        epoch: ProducerEpoch(identity.epoch.0 + 1),
                        ..identity
                    };
                    *shared.identity.lock() = Some(next);
                    shared.accumulator.begin_sequences_anew(next);
                    self.wants_new_epoch = false;
                }
            }
            return true;
        }
        // The owner of a transactional producer starts the request.
        if is_transactional || self.is_identifying || self.identify_after > now {
            return false;
        }
        if !shared.accumulator.has_undrained() {
            return false;
        }
        self.is_identifying = true;
        let events = self.event_sender.clone();
        ottla_sync::task::spawn(async move {
            let identified = producer_id::init_producer_id(&shared.client).await;
            let _ = events.send(Event::Identified(identified));
        });
        false
    }

    fn on_identified(&mut self, identified: Result<Identity, ClientError>) {
        self.is_identifying = false;
        match identified {
            Ok(identity) => {
                *self.shared.identity.lock() = Some(identity);
                self.shared.accumulator.begin_sequences_anew(identity);
                self.wants_new_epoch = false;
            }
            Err(error) => {
                let config = self.shared.client.config();
                self.identify_after = ottla_sync::time::now() + config.retry_backoff;
                let is_final =
                    !matches!(&error, ClientError::GaveUp { .. }) && !error.is_retriable();
                if is_final {
                    for (queue, batch) in self.shared.accumulator.take_all() {
                        self.abort(&queue, batch, error.clone());
                    }
                }
            }
        }
    }

    /// Adds new partitions to the transaction before their batches are sent.
    fn add_partitions_to_transaction(&self) {
        let shared = self.shared.clone();
        let Some(partitions) = shared.take_pending_partitions() else {
            return;
        };
        let events = self.event_sender.clone();
        ottla_sync::task::spawn(async move {
            shared.add_partitions_to_transaction(partitions).await;
            let _ = events.send(Event::PartitionsAdded);
        });
    }
}

impl Shared {
    /// The default is raised by `linger.ms` and `request.timeout.ms`, as in Kafka.
    fn delivery_timeout(&self) -> Duration {
        let least = self.config.linger + self.client.config().request_timeout;
        self.config.delivery_timeout.max(least)
    }
}

/// Whether an error says that the metadata is stale.
fn is_about_metadata(error: &ClientError) -> bool {
    match error.code() {
        Some(code) => matches!(
            code,
            ErrorCode::UnknownTopicOrPartition
                | ErrorCode::UnknownTopicId
                | ErrorCode::NotLeaderOrFollower
                | ErrorCode::LeaderNotAvailable
                | ErrorCode::FencedLeaderEpoch
                | ErrorCode::ReplicaNotAvailable
                | ErrorCode::KafkaStorageError
                | ErrorCode::ListenerNotFound
        ),
        None => true,
    }
}

#[cfg(test)]
mod tests;
