//! Consuming records as a member of a share group (KIP-932): members share partitions, and say of each record what has
//! become of it.
//!
//! Like the [`Consumer`](crate::Consumer), `poll` does everything but the heartbeats, and there is one owner. A poll asks
//! while it waits and not ahead: what has been acquired is locked for this member, and waits for nobody else.
//!
//! The pure parts are `member`, `session` and `acknowledgements`; the rest is the shell around them.
//! Kafka has this in `org.apache.kafka.clients.consumer.internals.ShareConsumerImpl` and `ShareConsumeRequestManager`.

mod acknowledgements;
mod config;
mod member;
mod membership;
mod requests;
mod session;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_types::Uuid;
use tokio::task::JoinSet;

use crate::client::{Client, Owner};
use crate::consumer::{ConsumerRecord, ConsumerWaker, Partition, new_member_id};
use crate::error::ClientError;
use crate::metrics::{Metrics, Sheet};
use acknowledgements::InHand;
use membership::ShareMembership;
use requests::{Answered, Node};
use session::TopicIdAndPartition;

pub use acknowledgements::AcknowledgeType;
pub use config::{AcknowledgementMode, AcquireMode, ShareConsumerConfig};

/// A record that is locked for this member until it says what has become of it, or the lock runs out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShareRecord {
    pub record: ConsumerRecord,
    /// How often it has been delivered to anybody, this time included.
    pub delivery_count: i16,
}

/// Is told of a partition which offsets were acknowledged, and whether that came to pass. Called from within `poll`,
/// `commit` and `close`.
pub type AcknowledgementListener =
    Box<dyn FnMut(&(String, i32), &[i64], &Result<(), ClientError>) + Send>;

/// Reads records that it shares with the other members of its group.
pub struct ShareConsumer {
    client: Client,
    /// Of the connections that are fetched over.
    owner: Owner,
    config: ShareConsumerConfig,
    member_id: String,
    subscription: BTreeSet<String>,
    /// The place in the group, from the first subscription on.
    membership: Option<ShareMembership>,
    nodes: BTreeMap<i32, Node>,
    requests: JoinSet<Answered>,
    /// By the broker that has given it.
    in_hand: BTreeMap<(i32, TopicIdAndPartition), InHand>,
    /// Acquired, and not handed out.
    fetched: VecDeque<((i32, TopicIdAndPartition), ShareRecord)>,
    /// To be handed out again.
    renewed: Vec<((i32, TopicIdAndPartition), ShareRecord)>,
    /// What came of what was said since the last commit began.
    committed: BTreeMap<Partition, Result<(), ClientError>>,
    names: BTreeMap<Uuid, Arc<str>>,
    lock_timeout: Option<Duration>,
    listener: Option<AcknowledgementListener>,
    waker: ConsumerWaker,
    /// Leaders may be others by now.
    is_stale: bool,
}

impl ShareConsumer {
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
            requests: JoinSet::new(),
            in_hand: BTreeMap::new(),
            fetched: VecDeque::new(),
            renewed: Vec::new(),
            committed: BTreeMap::new(),
            names: BTreeMap::new(),
            lock_timeout: None,
            listener: None,
            waker: ConsumerWaker::default(),
            is_stale: false,
        })
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    /// What goes over the connections of its client.
    pub fn metrics(&self) -> Metrics {
        let mut sheet = Sheet::new(&self.client.config().client_id);
        self.client
            .write_metrics(&mut sheet, "consumer-metrics", "consumer-node-metrics");
        sheet.finish()
    }

    pub fn config(&self) -> &ShareConsumerConfig {
        &self.config
    }

    /// Reads these topics from the next poll on, and no others.
    pub fn subscribe(&mut self, topics: &[String]) {
        self.subscription = topics.iter().cloned().collect();
        let membership = self.membership.get_or_insert_with(|| {
            ShareMembership::new(self.client.clone(), &self.config, self.member_id.clone())
        });
        membership.subscribe(self.subscription.clone());
    }

    pub fn subscription(&self) -> &BTreeSet<String> {
        &self.subscription
    }

    /// How long records are locked for this member, as a broker has told it; nothing before one has.
    pub fn acquisition_lock_timeout(&self) -> Option<Duration> {
        self.lock_timeout
    }

    /// What wakes this consumer while it waits.
    pub fn waker(&self) -> ConsumerWaker {
        self.waker.clone()
    }

    pub fn set_listener(&mut self, listener: AcknowledgementListener) {
        self.listener = Some(listener);
    }

    /// The next records, or none if none come within the time. Implicitly, what the last poll gave is done; explicitly,
    /// all of it must have been acknowledged.
    pub async fn poll(&mut self, timeout: Duration) -> Result<Vec<ShareRecord>, ClientError> {
        let deadline = Instant::now() + timeout;
        match self.config.acknowledgement_mode {
            AcknowledgementMode::Implicit => self.accept_open(),
            AcknowledgementMode::Explicit if self.in_hand.values().any(InHand::has_open) => {
                return Err(ClientError::Config(
                    "share.acknowledgement.mode=explicit: all records of the last poll must be acknowledged before the \
                     next one"
                        .to_owned(),
                ));
            }
            AcknowledgementMode::Explicit => {}
        }
        if self.in_hand.values().any(InHand::has_renewals) {
            self.commit_said().await?;
        }
        loop {
            if let Some(membership) = &self.membership {
                membership.on_polled()?;
            }
            while let Some(answered) = self.requests.try_join_next() {
                if let Ok(answered) = answered {
                    self.on_answered(answered)?;
                }
            }
            let records = self.hand_out();
            if !records.is_empty() {
                return Ok(records);
            }
            self.start_fetches().await?;
            if self.waker.take() {
                return Err(ClientError::WokenUp);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Vec::new());
            }
            // A new assignment is noticed, and a broker asked again after a failure, in between.
            let pause = left.min(Duration::from_millis(100));
            if let Some(answered) = self.next_event(pause).await {
                self.on_answered(answered)?;
            }
        }
    }

    async fn next_event(&mut self, pause: Duration) -> Option<Answered> {
        let news = self.membership.as_ref().map(ShareMembership::news);
        let told = async {
            match &news {
                Some(news) => news.notified().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(answered) = self.requests.join_next() => answered.ok(),
            () = told => None,
            () = self.waker.notified() => None,
            () = tokio::time::sleep(pause) => None,
        }
    }

    fn hand_out(&mut self) -> Vec<ShareRecord> {
        if !self.renewed.is_empty() {
            let mut records = Vec::with_capacity(self.renewed.len());
            for (key, record) in self.renewed.drain(..) {
                self.in_hand.entry(key).or_default().on_handed_out(&record);
                records.push(record);
            }
            return records;
        }
        let limit = match self.config.acquire_mode {
            AcquireMode::BatchOptimized => usize::MAX,
            AcquireMode::RecordLimit => self.config.max_poll_records,
        };
        let count = self.fetched.len().min(limit);
        let mut records = Vec::with_capacity(count);
        for (key, record) in self.fetched.drain(..count) {
            self.in_hand.entry(key).or_default().on_handed_out(&record);
            records.push(record);
        }
        records
    }

    /// What holds a record.
    fn holder_of(&mut self, record: &ConsumerRecord) -> Option<&mut InHand> {
        let mut names = self.names.iter();
        let (topic_id, _) = names.find(|(_, name)| ***name == *record.topic)?;
        let partition = (*topic_id, record.partition);
        let mut in_hand = self.in_hand.iter_mut();
        let held = in_hand.find(|((_, of), it)| *of == partition && it.holds(record.offset));
        held.map(|(_, in_hand)| in_hand)
    }

    /// Says what has become of a record that the last poll gave; it is sent with the next poll or commit. Only where
    /// acknowledging is explicit.
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
        let holder = self.holder_of(&record.record);
        match holder.is_some_and(|in_hand| in_hand.acknowledge(offset, kind)) {
            true => Ok(()),
            false => {
                let (topic, partition) = (&record.record.topic, record.record.partition);
                Err(ClientError::Config(format!(
                    "the record {topic}-{partition}@{offset} cannot be acknowledged: it was not delivered by the last poll"
                )))
            }
        }
    }

    fn accept_open(&mut self) {
        self.in_hand.values_mut().for_each(InHand::accept_open);
    }

    /// Sends what is to be said, and waits for the answers: by partition, whether all was heard. Implicitly, what the
    /// last poll gave is done.
    pub async fn commit(
        &mut self,
    ) -> Result<BTreeMap<(String, i32), Result<(), ClientError>>, ClientError> {
        if self.config.acknowledgement_mode == AcknowledgementMode::Implicit {
            self.accept_open();
        }
        self.commit_said().await?;
        Ok(std::mem::take(&mut self.committed))
    }

    async fn commit_said(&mut self) -> Result<(), ClientError> {
        self.committed.clear();
        self.finish_requests().await?;
        let said = self.in_hand.iter().filter(|(_, it)| it.has_said());
        let nodes: BTreeSet<i32> = said.map(|((node, _), _)| *node).collect();
        for node in nodes {
            self.start_acknowledge(node, false);
        }
        self.finish_requests().await
    }

    /// Waits for all answers that are on their way.
    async fn finish_requests(&mut self) -> Result<(), ClientError> {
        let mut finished = Ok(());
        while let Some(answered) = self.requests.join_next().await {
            if let Ok(answered) = answered {
                finished = finished.and(self.on_answered(answered));
            }
        }
        finished
    }

    /// Says what is to be said, gives back what was acquired and not handed out, and leaves the group. Implicitly, what
    /// the last poll gave is done; explicitly, what is not acknowledged is given back.
    pub async fn close(mut self) -> Result<(), ClientError> {
        if self.config.acknowledgement_mode == AcknowledgementMode::Implicit {
            self.accept_open();
        }
        let finished = self.finish_requests().await;
        let nodes: Vec<i32> = self.nodes.keys().copied().collect();
        for node in nodes {
            self.start_acknowledge(node, true);
        }
        let finished = finished.and(self.finish_requests().await);
        if let Some(membership) = self.membership.take() {
            membership.leave().await;
        }
        finished
    }

    /// The name of a topic, shared by all of its records; nothing where it is not known any more.
    fn name_of(&mut self, topic_id: Uuid) -> Option<Arc<str>> {
        if let Some(name) = self.names.get(&topic_id) {
            return Some(name.clone());
        }
        let metadata = self.client.metadata();
        let name: Arc<str> = metadata.topic_name(topic_id)?.into();
        self.names.insert(topic_id, name.clone());
        Some(name)
    }
}

impl Drop for ShareConsumer {
    fn drop(&mut self) {
        self.client.disown(self.owner);
    }
}
