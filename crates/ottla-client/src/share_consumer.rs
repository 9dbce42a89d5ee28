//! Consuming records as a member of a share group (KIP-932): members share partitions, and
//! acknowledge individual records.
//!
//! As in the [`Consumer`](crate::Consumer), `poll` does everything except heartbeats, and there is
//! one owner. A poll does not prefetch: acquired records are locked for this member, and
//! unavailable to other members.
//!
//! The modules `member`, `session`, `acquired` and `acknowledgements` are pure; the others are the
//! shell around them. In Kafka: `org.apache.kafka.clients.consumer.internals.ShareConsumerImpl` and
//! `ShareConsumeRequestManager`.

mod acknowledgements;
mod acquired;
mod config;
mod member;
mod membership;
mod node;
mod record;
mod requests;
mod session;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_sync::task::JoinSet;
use ottla_types::{ErrorCode, Uuid};

use crate::client::{Client, Owner};
use crate::consumer::{ConsumerWaker, Partition};
use crate::error::ClientError;
use crate::heartbeats::new_member_id;
use crate::metrics::{Metrics, Sheet};
use acknowledgements::HeldRecords;
use acquired::Acquired;
use membership::ShareMembership;
use node::{Finished, Node, Purpose};
use record::Source;
use session::TopicIdAndPartition;

pub use acknowledgements::AcknowledgeType;
pub use config::{AcknowledgementMode, AcquireMode, ShareConsumerConfig};
pub use record::ShareRecord;

/// The timeout of closing (`KafkaShareConsumer.DEFAULT_CLOSE_TIMEOUT_MS`).
const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);

/// How often a poll checks for a new assignment, and the backoff after a failed request to a
/// broker.
const PAUSE: Duration = Duration::from_millis(100);

/// Called with a partition, the acknowledged offsets, including those without a record, and the
/// result. Called from within `poll`, `commit` and `close`.
///
/// ```no_run
/// # fn example(consumer: &mut ottla_client::ShareConsumer) {
/// use ottla_client::AcknowledgementListener;
///
/// let tell: AcknowledgementListener = Box::new(|(topic, partition), offsets, result| {
///     println!("{topic}-{partition} {offsets:?}: {result:?}");
/// });
/// consumer.set_listener(tell);
/// # }
/// ```
pub type AcknowledgementListener =
    Box<dyn FnMut(&(String, i32), &[RangeInclusive<i64>], &Result<(), ClientError>) + Send>;

/// Reads records that it shares with the other members of its group.
///
/// ```no_run
/// # async fn example(consumer: &mut ottla_client::ShareConsumer) -> Result<(), ottla_client::ClientError> {
/// use std::time::Duration;
///
/// // In implicit mode, each poll accepts the records of the one before.
/// consumer.subscribe(&["jobs".to_owned()]);
/// for job in consumer.poll(Duration::from_secs(1)).await? {
///     println!("{:?}", job.record.value);
/// }
/// consumer.commit().await?;
/// # Ok(())
/// # }
/// ```
pub struct ShareConsumer {
    client: Client,
    /// The owner of the connections for fetches.
    owner: Owner,
    config: ShareConsumerConfig,
    member_id: String,
    subscription: BTreeSet<String>,
    /// The membership in the group, from the first subscription on.
    membership: Option<ShareMembership>,
    nodes: BTreeMap<i32, Node>,
    /// The last broker that was asked, if only one is asked at a time.
    last_asked: Option<i32>,
    tasks: JoinSet<Finished>,
    in_hand: BTreeMap<Source, HeldRecords>,
    /// Acquired records that have not been returned.
    fetched: VecDeque<(Source, Acquired)>,
    /// Renewed records that are returned again.
    renewed: Vec<ShareRecord>,
    /// The results of the last commit.
    committed: BTreeMap<Partition, Result<(), ClientError>>,
    /// An error for the next poll.
    untold: Option<ClientError>,
    names: BTreeMap<Uuid, Arc<str>>,
    lock_timeout: Option<Duration>,
    listener: Option<AcknowledgementListener>,
    waker: ConsumerWaker,
    /// Whether leaders may have changed.
    is_stale: bool,
    is_refreshing: bool,
    /// The earliest time of the next metadata refresh.
    refreshed_from: Option<Instant>,
}

impl ShareConsumer {
    /// A member of the share group `group.id`.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), ottla_client::ClientError> {
    /// use ottla_client::{Client, ClientConfig, ShareConsumer, ShareConsumerConfig};
    ///
    /// let client = Client::connect(ClientConfig::new("127.0.0.1:9092")?).await?;
    /// let config = ShareConsumerConfig { group_id: "workers".to_owned(), ..Default::default() };
    /// let consumer = ShareConsumer::new(client, config)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(client: Client, config: ShareConsumerConfig) -> Result<ShareConsumer, ClientError> {
        if config.group_id.is_empty() {
            return Err(ClientError::Config(
                "group.id: a share consumer is a member of a group; give its name".to_owned(),
            ));
        }
        Ok(ShareConsumer {
            owner: client.new_owner(),
            client,
            config,
            member_id: new_member_id(),
            subscription: BTreeSet::new(),
            membership: None,
            nodes: BTreeMap::new(),
            last_asked: None,
            tasks: JoinSet::new(),
            in_hand: BTreeMap::new(),
            fetched: VecDeque::new(),
            renewed: Vec::new(),
            committed: BTreeMap::new(),
            untold: None,
            names: BTreeMap::new(),
            lock_timeout: None,
            listener: None,
            waker: ConsumerWaker::default(),
            is_stale: false,
            is_refreshing: false,
            refreshed_from: None,
        })
    }

    /// The client that sends the requests.
    ///
    /// ```no_run
    /// # fn example(consumer: &ottla_client::ShareConsumer) {
    /// println!("connected: {}", consumer.client().is_connected());
    /// # }
    /// ```
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The metrics of the client's connections.
    ///
    /// ```no_run
    /// # fn example(consumer: &ottla_client::ShareConsumer) {
    /// println!("{:?}", consumer.metrics().value("request-rate"));
    /// # }
    /// ```
    pub fn metrics(&self) -> Metrics {
        let mut sheet = Sheet::new(&self.client.config().client_id);
        self.client
            .write_metrics(&mut sheet, "consumer-metrics", "consumer-node-metrics");
        sheet.finish()
    }

    /// The settings of this consumer.
    ///
    /// ```no_run
    /// # fn example(consumer: &ottla_client::ShareConsumer) {
    /// println!("a member of {}", consumer.config().group_id);
    /// # }
    /// ```
    pub fn config(&self) -> &ShareConsumerConfig {
        &self.config
    }

    /// Subscribes to these topics only, from the next poll on. Without topics it leaves the group.
    ///
    /// ```no_run
    /// # fn example(consumer: &mut ottla_client::ShareConsumer) {
    /// consumer.subscribe(&["jobs".to_owned()]);
    /// # }
    /// ```
    pub fn subscribe(&mut self, topics: &[String]) {
        self.subscription = topics.iter().cloned().collect();
        let membership = self.membership.get_or_insert_with(|| {
            ShareMembership::new(self.client.clone(), &self.config, self.member_id.clone())
        });
        membership.change(|member| member.subscribe(self.subscription.clone()));
    }

    /// The topics that are subscribed to.
    ///
    /// ```no_run
    /// # fn example(consumer: &ottla_client::ShareConsumer) {
    /// println!("{:?}", consumer.subscription());
    /// # }
    /// ```
    pub fn subscription(&self) -> &BTreeSet<String> {
        &self.subscription
    }

    /// The duration of acquisition locks as a broker has sent it; `None` before that.
    ///
    /// ```no_run
    /// # fn example(consumer: &ottla_client::ShareConsumer) {
    /// if let Some(limit) = consumer.acquisition_lock_timeout() {
    ///     println!("acknowledge each record within {limit:?}");
    /// }
    /// # }
    /// ```
    pub fn acquisition_lock_timeout(&self) -> Option<Duration> {
        self.lock_timeout
    }

    /// A handle that wakes up this consumer.
    ///
    /// ```no_run
    /// # fn example(consumer: &ottla_client::ShareConsumer) {
    /// let waker = consumer.waker();
    /// std::thread::spawn(move || waker.wake_up());
    /// # }
    /// ```
    pub fn waker(&self) -> ConsumerWaker {
        self.waker.clone()
    }

    /// Sets the listener, which is told the result of each acknowledgement.
    ///
    /// ```no_run
    /// # fn example(consumer: &mut ottla_client::ShareConsumer) {
    /// consumer.set_listener(Box::new(|partition, _offsets, result| {
    ///     if let Err(error) = result {
    ///         eprintln!("{partition:?}: {error}");
    ///     }
    /// }));
    /// # }
    /// ```
    pub fn set_listener(&mut self, listener: AcknowledgementListener) {
        self.listener = Some(listener);
    }

    /// The next records; empty if none arrive within the timeout. Returns whole batches, until
    /// there are at least `max.poll.records`. In implicit mode, this accepts the records of the
    /// last poll; in explicit mode, all of them must have been acknowledged.
    ///
    /// A batch that cannot be read is rejected, and reported with [`ClientError::Records`] after
    /// the records before it. The next poll continues after it.
    ///
    /// ```no_run
    /// # async fn example(consumer: &mut ottla_client::ShareConsumer) -> Result<(), ottla_client::ClientError> {
    /// use std::time::Duration;
    ///
    /// for job in consumer.poll(Duration::from_secs(1)).await? {
    ///     println!("{:?}, delivery {}", job.record.value, job.delivery_count);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn poll(&mut self, timeout: Duration) -> Result<Vec<ShareRecord>, ClientError> {
        let begun = ottla_sync::time::now();
        self.take_finished();
        match self.config.acknowledgement_mode {
            AcknowledgementMode::Implicit => self.accept_open(),
            AcknowledgementMode::Explicit if self.in_hand.values().any(HeldRecords::has_open) => {
                return Err(ClientError::Config(
                    "share.acknowledgement.mode=explicit: all records of the last poll must be acknowledged before the \
                     next one"
                        .to_owned(),
                ));
            }
            AcknowledgementMode::Explicit => {}
        }
        if self.subscription.is_empty() {
            return Err(ClientError::Config(
                "the share consumer is not subscribed to any topic; subscribe it before it polls"
                    .to_owned(),
            ));
        }
        loop {
            if let Some(membership) = &self.membership {
                membership.on_polled()?;
            }
            self.take_finished();
            if self.waker.take() {
                return Err(ClientError::WokenUp);
            }
            if let Some(error) = self.untold.take() {
                return Err(error);
            }
            if !self.fetched.is_empty() {
                // Sent now, because the next fetch, which would carry the acknowledgements, is sent
                // only after all of these records are returned.
                self.start_acknowledgements(Purpose::Poll);
            }
            let records = self.hand_out();
            if !records.is_empty() {
                return Ok(records);
            }
            if self.untold.is_some() {
                continue;
            }
            self.start_requests();
            let left = timeout.saturating_sub(ottla_sync::time::elapsed(begun));
            if left.is_zero() {
                return Ok(Vec::new());
            }
            self.wait(left.min(PAUSE)).await;
        }
    }

    /// Waits until there is an event, or the pause is over.
    async fn wait(&mut self, pause: Duration) {
        let news = self.membership.as_ref().map(ShareMembership::news);
        let told = async {
            match &news {
                Some(news) => news.notified().await,
                None => std::future::pending().await,
            }
        };
        let finished = ottla_sync::select! {
            Some(finished) = self.tasks.join_next() => finished.ok(),
            () = told => None,
            () = self.waker.notified() => None,
            () = ottla_sync::time::sleep(pause) => None,
        };
        if let Some(finished) = finished {
            self.on_finished(finished);
        }
    }

    fn take_finished(&mut self) {
        while let Some(finished) = self.tasks.try_join_next() {
            if let Ok(finished) = finished {
                self.on_finished(finished);
            }
        }
    }

    /// While records are being renewed, no other records are returned.
    fn hand_out(&mut self) -> Vec<ShareRecord> {
        let mut records = std::mem::take(&mut self.renewed);
        if records.is_empty() && !self.is_renewing() {
            while records.len() < self.config.max_poll_records && self.untold.is_none() {
                let Some((source, acquired)) = self.fetched.front_mut() else {
                    break;
                };
                let source = *source;
                let piece = acquired.next_piece();
                if acquired.is_done() {
                    self.fetched.pop_front();
                }
                self.in_hand.entry(source).or_default().say(piece.said);
                let read = piece.records.into_iter();
                records.extend(read.map(|(record, delivery_count)| ShareRecord {
                    record,
                    delivery_count,
                    source,
                }));
                if let Some(error) = piece.error {
                    let partition = self.partition_name(source.1);
                    self.untold = Some(ClientError::Records { partition, error });
                }
            }
        }
        for record in &records {
            let in_hand = self.in_hand.entry(record.source).or_default();
            in_hand.on_handed_out(record);
        }
        records
    }

    /// Acknowledges a record of the last poll. It is sent with the next poll or commit; until then
    /// the last call for a record counts. Only in explicit mode.
    ///
    /// ```no_run
    /// # async fn example(consumer: &mut ottla_client::ShareConsumer) -> Result<(), ottla_client::ClientError> {
    /// use std::time::Duration;
    /// use ottla_client::AcknowledgeType;
    ///
    /// for job in consumer.poll(Duration::from_secs(1)).await? {
    ///     let was_seen_often = job.delivery_count > 3;
    ///     let became = if was_seen_often { AcknowledgeType::Reject } else { AcknowledgeType::Accept };
    ///     consumer.acknowledge(&job, became)?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn acknowledge(
        &mut self,
        record: &ShareRecord,
        kind: AcknowledgeType,
    ) -> Result<(), ClientError> {
        if self.config.acknowledgement_mode == AcknowledgementMode::Implicit {
            return Err(ClientError::Config(
                "share.acknowledgement.mode=implicit: nothing can be acknowledged by hand; set explicit"
                    .to_owned(),
            ));
        }
        let offset = record.record.offset;
        let holder = self.in_hand.get_mut(&record.source);
        if holder.is_some_and(|in_hand| in_hand.acknowledge(offset, kind)) {
            Ok(())
        } else {
            let (topic, partition) = (&record.record.topic, record.record.partition);
            Err(ClientError::Config(format!(
                "the record {topic}-{partition}@{offset} cannot be acknowledged: it was not delivered by the last poll"
            )))
        }
    }

    fn accept_open(&mut self) {
        self.in_hand.values_mut().for_each(HeldRecords::accept_open);
    }

    /// Sends the acknowledgements and waits for the responses. Returns the result of each
    /// partition. Retriable errors are retried within `default.api.timeout.ms`. In implicit mode,
    /// this accepts the records of the last poll.
    ///
    /// ```no_run
    /// # async fn example(consumer: &mut ottla_client::ShareConsumer) -> Result<(), ottla_client::ClientError> {
    /// for ((topic, partition), result) in consumer.commit().await? {
    ///     if let Err(error) = result {
    ///         println!("{topic}-{partition}: {error}; its records are delivered again");
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn commit(
        &mut self,
    ) -> Result<BTreeMap<(String, i32), Result<(), ClientError>>, ClientError> {
        let until = ottla_sync::time::now() + self.client.config().default_api_timeout;
        self.take_finished();
        if self.config.acknowledgement_mode == AcknowledgementMode::Implicit {
            self.accept_open();
        }
        self.committed.clear();
        loop {
            self.take_finished();
            self.start_acknowledgements(Purpose::Commit { until });
            let is_committing = self.nodes.values().any(Node::is_committing);
            if !is_committing && !self.in_hand.values().any(HeldRecords::has_said) {
                return Ok(std::mem::take(&mut self.committed));
            }
            if self.waker.take() {
                return Err(ClientError::WokenUp);
            }
            self.wait(PAUSE).await;
        }
    }

    /// As [`ShareConsumer::commit`] without waiting. The listener gets the results.
    ///
    /// ```no_run
    /// # fn example(consumer: &mut ottla_client::ShareConsumer) {
    /// consumer.commit_async();
    /// # }
    /// ```
    pub fn commit_async(&mut self) {
        let until = ottla_sync::time::now() + self.client.config().default_api_timeout;
        self.take_finished();
        if self.config.acknowledgement_mode == AcknowledgementMode::Implicit {
            self.accept_open();
        }
        self.start_acknowledgements(Purpose::Commit { until });
    }

    /// Sends the acknowledgements, releases acquired records that are not acknowledged, and leaves
    /// the group, within 30 seconds or `request.timeout.ms`. Does not accept anything implicitly:
    /// the records of the last poll are delivered to other members unless they were committed.
    ///
    /// ```no_run
    /// # async fn example(consumer: ottla_client::ShareConsumer) -> Result<(), ottla_client::ClientError> {
    /// consumer.close().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn close(mut self) -> Result<(), ClientError> {
        let limit = CLOSE_TIMEOUT.min(self.client.config().request_timeout);
        if ottla_sync::time::timeout(limit, self.leave())
            .await
            .is_err()
        {
            tracing::warn!(
                ?limit,
                "the share consumer could not leave its group within the limit"
            );
        }
        let is_told = |error: &ClientError| {
            !matches!(
                error.code(),
                Some(ErrorCode::GroupAuthorizationFailed | ErrorCode::TopicAuthorizationFailed)
            )
        };
        self.untold.take().filter(is_told).map_or(Ok(()), Err)
    }

    async fn leave(&mut self) {
        self.finish_requests().await;
        self.start_acknowledgements(Purpose::Close);
        self.finish_requests().await;
        if let Some(membership) = self.membership.take() {
            membership.leave().await;
        }
    }

    /// Waits for all requests in flight.
    async fn finish_requests(&mut self) {
        while self.nodes.values().any(Node::is_busy)
            && let Some(finished) = self.tasks.join_next().await
        {
            if let Ok(finished) = finished {
                self.on_finished(finished);
            }
        }
    }

    /// The name of a topic, shared by all its records; `None` if it is not known any more.
    fn name_of(&mut self, topic_id: Uuid) -> Option<Arc<str>> {
        if let Some(name) = self.names.get(&topic_id) {
            return Some(name.clone());
        }
        let metadata = self.client.metadata();
        let name: Arc<str> = metadata.topic_name(topic_id)?.into();
        self.names.insert(topic_id, name.clone());
        Some(name)
    }

    fn partition_name(&mut self, (topic_id, partition): TopicIdAndPartition) -> String {
        let name = self.name_of(topic_id);
        format!("{}-{partition}", name.as_deref().unwrap_or("a topic"))
    }
}

impl Drop for ShareConsumer {
    fn drop(&mut self) {
        self.client.disown(self.owner);
    }
}
