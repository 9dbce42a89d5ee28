//! Consuming records, alone or in a group.
//!
//! `poll` does everything: it joins the group, finds the start offsets, fetches from all leaders in
//! parallel and returns the records. Only heartbeats run in the background. A consumer has one
//! owner: its methods take `&mut self`.
//!
//! The modules `records`, `position`, `assignors` and `modern::member` are pure; the others are the
//! shell around them.

mod assignors;
mod classic;
mod commits;
mod config;
mod fetch;
mod fetched;
mod interceptor;
mod metrics;
mod modern;
pub(crate) mod offline;
mod offset_commits;
mod offsets;
mod pattern;
mod position;
mod rebalance;
mod records;
mod session;
mod waker;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, Range};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_sync::task::{JoinHandle, JoinSet};

use crate::admin::Admin;
use crate::client::{Client, Owner};
use crate::error::ClientError;
use crate::metrics::Metrics;
pub(crate) use crate::partitions::Partition;
use crate::producer::ConsumerGroupMetadata;
use classic::{Joined, MemberHandle, Membership};
use fetched::Fetched;
use modern::ModernMembership;
use offset_commits::Commits;
use pattern::Pattern;
use position::Position;
use session::FetchSession;

pub use assignors::Assignor;
pub use config::{ConsumerConfig, GroupProtocol, OffsetReset};
pub use interceptor::ConsumerInterceptor;
pub use metrics::ConsumerMetricsReader;
use metrics::ConsumerSensors;
pub(crate) use offset_commits::commit_topics;
pub use offset_commits::{CommitCallback, CommitOffset};
pub(crate) use records::CompletedFetch;
pub use records::{ConsumerRecord, FetchedBatch};
pub use waker::ConsumerWaker;

/// The initial capacity of a poll's result, if that many records are requested: the default of
/// `max.poll.records`.
const MAX_POLL_RESERVED: usize = 500;

/// Called from within `poll` when partitions are assigned or revoked
/// (`org.apache.kafka.clients.consumer.ConsumerRebalanceListener`). `Sync`, so that a task can own a
/// consumer.
///
/// ```no_run
/// # async fn example(consumer: &mut ottla_client::Consumer) -> Result<(), ottla_client::ClientError> {
/// use ottla_client::RebalanceListener;
///
/// struct Telling;
///
/// impl RebalanceListener for Telling {
///     fn on_partitions_assigned(&mut self, partitions: &[(String, i32)]) {
///         println!("assigned {partitions:?}");
///     }
///
///     fn on_partitions_revoked(&mut self, partitions: &[(String, i32)]) {
///         println!("revoked {partitions:?}");
///     }
///
///     fn on_partitions_lost(&mut self, partitions: &[(String, i32)]) {
///         println!("lost {partitions:?}");
///     }
/// }
///
/// consumer.subscribe_with_listener(&["orders".to_owned()], Box::new(Telling))?;
/// # Ok(())
/// # }
/// ```
pub trait RebalanceListener: Send + Sync {
    fn on_partitions_assigned(&mut self, _partitions: &[(String, i32)]) {}

    /// The partitions are revoked. With automatic commits, the records returned so far have been
    /// committed.
    fn on_partitions_revoked(&mut self, _partitions: &[(String, i32)]) {}

    /// The partitions are lost: other members may own them already.
    fn on_partitions_lost(&mut self, partitions: &[(String, i32)]) {
        self.on_partitions_revoked(partitions);
    }
}

/// Reads records.
///
/// ```no_run
/// # async fn example(consumer: &mut ottla_client::Consumer) -> Result<(), ottla_client::ClientError> {
/// use std::time::Duration;
///
/// consumer.subscribe(&["orders".to_owned()])?;
/// loop {
///     for record in consumer.poll(Duration::from_secs(1)).await? {
///         println!("{} {:?}", record.offset, record.value);
///     }
/// #     if consumer.paused().is_empty() { break; }
/// }
/// # Ok(())
/// # }
/// ```
pub struct Consumer {
    client: Client,
    /// The owner of the connections for fetches.
    fetch_owner: Owner,
    admin: Admin,
    config: ConsumerConfig,
    positions: BTreeMap<Partition, Position>,
    next_generation: u64,
    sessions: BTreeMap<i32, FetchSession>,
    /// Leaders with a fetch in flight. One at a time, because a broker answers them in order.
    fetching: BTreeSet<i32>,
    fetches: JoinSet<Fetched>,
    /// The topic names, shared by all records of a topic.
    names: BTreeMap<String, Arc<str>>,
    subscription: Vec<String>,
    /// The pattern of the subscription, if it is not by name.
    pattern: Option<Pattern>,
    listener: Option<Box<dyn RebalanceListener>>,
    /// The membership in a classic group; `None` while the join task has it.
    membership: Option<Membership>,
    joining: Option<JoinHandle<Joined>>,
    /// Leaves the group while the join task has the membership.
    member_handle: Option<MemberHandle>,
    /// Whether the subscription has changed while the join task had the membership.
    has_resubscribed: bool,
    /// The membership in a group whose coordinator assigns the partitions.
    modern: Option<ModernMembership>,
    commits: Commits,
    waker: ConsumerWaker,
    last_auto_commit: Instant,
    refreshing: Option<JoinHandle<()>>,
    last_refresh: Instant,
    /// When the names of assigned topics were last requested.
    last_naming: Option<Instant>,
    /// Where the next poll starts, so that no partition starves.
    next_partition: usize,
    interceptors: Vec<Box<dyn ConsumerInterceptor>>,
    sensors: Arc<ConsumerSensors>,
}

impl Consumer {
    /// A consumer with these settings. It has no partitions yet.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), ottla_client::ClientError> {
    /// use ottla_client::{Client, ClientConfig, Consumer, ConsumerConfig};
    ///
    /// let client = Client::connect(ClientConfig::new("127.0.0.1:9092")?).await?;
    /// let config = ConsumerConfig { group_id: Some("billing".to_owned()), ..Default::default() };
    /// let mut consumer = Consumer::new(client, config);
    /// consumer.subscribe(&["orders".to_owned()])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(client: Client, config: ConsumerConfig) -> Consumer {
        let windows = client.config().metrics_windows();
        Consumer {
            interceptors: Vec::new(),
            sensors: Arc::new(ConsumerSensors::new(windows, config.group_protocol)),
            admin: Admin::new(client.clone()),
            fetch_owner: client.new_owner(),
            client,
            config,
            positions: BTreeMap::new(),
            next_generation: 0,
            sessions: BTreeMap::new(),
            fetching: BTreeSet::new(),
            fetches: JoinSet::new(),
            names: BTreeMap::new(),
            subscription: Vec::new(),
            pattern: None,
            listener: None,
            membership: None,
            joining: None,
            member_handle: None,
            has_resubscribed: false,
            modern: None,
            commits: Commits::default(),
            waker: ConsumerWaker::default(),
            last_auto_commit: ottla_sync::time::now(),
            refreshing: None,
            last_refresh: ottla_sync::time::now(),
            last_naming: None,
            next_partition: 0,
        }
    }

    /// Assigns these partitions manually, without a group.
    ///
    /// ```no_run
    /// # async fn example(consumer: &mut ottla_client::Consumer) -> Result<(), ottla_client::ClientError> {
    /// use std::time::Duration;
    ///
    /// let partition = ("orders".to_owned(), 0);
    /// consumer.assign(std::slice::from_ref(&partition));
    /// consumer.seek(&partition, 4200);
    /// println!("{:?}", consumer.poll(Duration::from_secs(1)).await?.first());
    /// # Ok(())
    /// # }
    /// ```
    pub fn assign(&mut self, partitions: &[Partition]) {
        self.subscription.clear();
        self.replace_assignment(partitions);
    }

    /// Adds an interceptor after the existing ones, for the lifetime of the consumer.
    ///
    /// ```no_run
    /// # fn example(consumer: &mut ottla_client::Consumer) {
    /// use ottla_client::{ConsumerInterceptor, ConsumerRecord};
    ///
    /// struct WithValue;
    ///
    /// impl ConsumerInterceptor for WithValue {
    ///     fn on_consume(&mut self, mut records: Vec<ConsumerRecord>) -> Vec<ConsumerRecord> {
    ///         records.retain(|record| record.value.is_some());
    ///         records
    ///     }
    /// }
    ///
    /// consumer.add_interceptor(Box::new(WithValue));
    /// # }
    /// ```
    pub fn add_interceptor(&mut self, interceptor: Box<dyn ConsumerInterceptor>) {
        self.interceptors.push(interceptor);
    }

    /// The settings of this consumer.
    ///
    /// ```no_run
    /// # fn example(consumer: &ottla_client::Consumer) {
    /// println!("at most {} records per poll", consumer.config().max_poll_records);
    /// # }
    /// ```
    pub fn config(&self) -> &ConsumerConfig {
        &self.config
    }

    /// Changes `auto.offset.reset` for the positions that are lost from now on.
    ///
    /// ```no_run
    /// # fn example(consumer: &mut ottla_client::Consumer) {
    /// consumer.set_offset_reset(ottla_client::OffsetReset::Earliest);
    /// # }
    /// ```
    pub fn set_offset_reset(&mut self, offset_reset: OffsetReset) {
        self.config.offset_reset = offset_reset;
    }

    /// Changes [`ConsumerConfig::max_batch_bytes`] for data that is fetched from now on. After an error, it is fetched again.
    ///
    /// ```no_run
    /// # fn example(consumer: &mut ottla_client::Consumer) {
    /// consumer.set_max_batch_bytes(16 << 20);
    /// # }
    /// ```
    pub fn set_max_batch_bytes(&mut self, max_batch_bytes: usize) {
        self.config.max_batch_bytes = max_batch_bytes;
    }

    /// Seeks to the end of the batch of this partition that [`Consumer::poll_batches`] could not read
    /// last. Returns the skipped offsets; `None` if there is no such batch, or its end is unknown.
    ///
    /// ```no_run
    /// # async fn example(consumer: &mut ottla_client::Consumer) -> Result<(), ottla_client::ClientError> {
    /// use std::time::Duration;
    /// use ottla_client::ClientError;
    ///
    /// let partition = ("orders".to_owned(), 0);
    /// if let Err(ClientError::Records { error, .. }) =
    ///     consumer.poll_batches(Duration::from_secs(1)).await
    /// {
    ///     println!("{error}: skipping {:?}", consumer.skip_unreadable_batch(&partition));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn skip_unreadable_batch(&mut self, partition: &Partition) -> Option<Range<i64>> {
        let offsets = self.positions.get(partition)?.unreadable()?;
        self.seek(partition, offsets.end);
        Some(offsets)
    }

    /// The topics that are subscribed to by name.
    ///
    /// ```no_run
    /// # fn example(consumer: &ottla_client::Consumer) {
    /// println!("{:?}", consumer.subscription());
    /// # }
    /// ```
    pub fn subscription(&self) -> &[String] {
        &self.subscription
    }

    /// The assigned partitions.
    ///
    /// ```no_run
    /// # fn example(consumer: &ottla_client::Consumer) {
    /// for (topic, partition) in consumer.assignment() {
    ///     println!("{topic}-{partition}");
    /// }
    /// # }
    /// ```
    pub fn assignment(&self) -> Vec<Partition> {
        self.positions.keys().cloned().collect()
    }

    /// The metrics of this consumer and of its client's connections.
    ///
    /// ```no_run
    /// # fn example(consumer: &ottla_client::Consumer) {
    /// println!("{:?}", consumer.metrics().value("records-consumed-rate"));
    /// # }
    /// ```
    pub fn metrics(&self) -> Metrics {
        self.sensors.read(&self.client)
    }

    /// A reader of the metrics for another thread.
    ///
    /// ```no_run
    /// # fn example(consumer: &ottla_client::Consumer) {
    /// let reader = consumer.metrics_reader();
    /// std::thread::spawn(move || println!("{:?}", reader.read().value("records-lag-max")));
    /// # }
    /// ```
    pub fn metrics_reader(&self) -> ConsumerMetricsReader {
        ConsumerMetricsReader::new(self.client.clone(), self.sensors.clone())
    }

    /// Whether any partition is assigned.
    ///
    /// ```no_run
    /// # fn example(consumer: &ottla_client::Consumer) {
    /// if !consumer.has_assignment() {
    ///     println!("waiting for partitions");
    /// }
    /// # }
    /// ```
    pub fn has_assignment(&self) -> bool {
        !self.positions.is_empty()
    }

    /// A handle that wakes up this consumer.
    ///
    /// ```no_run
    /// # fn example(consumer: &ottla_client::Consumer) {
    /// let waker = consumer.waker();
    /// std::thread::spawn(move || waker.wake_up());
    /// # }
    /// ```
    pub fn waker(&self) -> ConsumerWaker {
        self.waker.clone()
    }

    /// The member's identity for [`crate::Producer::send_offsets_to_transaction`].
    ///
    /// ```no_run
    /// # async fn example(consumer: &ottla_client::Consumer, producer: &ottla_client::Producer) -> Result<(), ottla_client::ClientError> {
    /// use std::collections::BTreeMap;
    /// use ottla_client::CommitOffset;
    ///
    /// let offsets = BTreeMap::from([(("orders".to_owned(), 0), CommitOffset::new(4200))]);
    /// let group = consumer.group_metadata();
    /// producer.send_offsets_to_transaction(&offsets, &group).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn group_metadata(&self) -> ConsumerGroupMetadata {
        let (generation_id, member_id) = match (&self.membership, &self.modern) {
            (Some(membership), _) => membership.generation_and_id(),
            (None, Some(modern)) => modern.epoch_and_id(),
            (None, None) => (-1, String::new()),
        };
        ConsumerGroupMetadata {
            group_id: self.config.group_id.clone().unwrap_or_default(),
            generation_id,
            member_id,
            group_instance_id: self.config.group_instance_id.clone(),
        }
    }

    /// Returns no records of these partitions until they are resumed. They stay assigned.
    ///
    /// ```no_run
    /// # fn example(consumer: &mut ottla_client::Consumer) {
    /// // While the work on this partition is behind:
    /// consumer.pause(&[("orders".to_owned(), 0)]);
    /// # }
    /// ```
    pub fn pause(&mut self, partitions: &[Partition]) {
        self.set_paused(partitions, true);
    }

    /// Ends the pause of these partitions.
    ///
    /// ```no_run
    /// # fn example(consumer: &mut ottla_client::Consumer) {
    /// let paused = consumer.paused();
    /// consumer.resume(&paused);
    /// # }
    /// ```
    pub fn resume(&mut self, partitions: &[Partition]) {
        self.set_paused(partitions, false);
    }

    fn set_paused(&mut self, partitions: &[Partition], is_paused: bool) {
        for partition in partitions {
            if let Some(position) = self.positions.get_mut(partition) {
                position.is_paused = is_paused;
            }
        }
    }

    /// The paused partitions.
    ///
    /// ```no_run
    /// # fn example(consumer: &ottla_client::Consumer) {
    /// println!("{:?}", consumer.paused());
    /// # }
    /// ```
    pub fn paused(&self) -> Vec<Partition> {
        let paused = self.positions.iter().filter(|(_, it)| it.is_paused);
        paused.map(|(partition, _)| partition.clone()).collect()
    }

    /// The next records; empty if none arrive within the timeout.
    ///
    /// ```no_run
    /// # async fn example(consumer: &mut ottla_client::Consumer) -> Result<(), ottla_client::ClientError> {
    /// use std::time::Duration;
    ///
    /// for record in consumer.poll(Duration::from_secs(1)).await? {
    ///     println!("{}-{} {}: {:?}", record.topic, record.partition, record.offset, record.value);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn poll(&mut self, timeout: Duration) -> Result<Vec<ConsumerRecord>, ClientError> {
        let limit = self.config.max_poll_records;
        let records = self
            .poll_for(timeout, |consumer| consumer.take_records(limit))
            .await?;
        let interceptors = self.interceptors.iter_mut();
        Ok(match records.is_empty() {
            true => records,
            false => interceptors.fold(records, |records, it| it.on_consume(records)),
        })
    }

    /// As [`Consumer::poll`], with records that are not copied: whole batches whose records are
    /// borrowed, with at least `max.poll.records` in total if available. Batches are decompressed
    /// only until they have `fetch.max.bytes`.
    ///
    /// ```no_run
    /// # async fn example(consumer: &mut ottla_client::Consumer) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    ///
    /// let mut bytes = 0;
    /// for batch in &consumer.poll_batches(Duration::from_secs(1)).await? {
    ///     for record in batch.iter() {
    ///         bytes += record?.value.map_or(0, <[u8]>::len);
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn poll_batches(
        &mut self,
        timeout: Duration,
    ) -> Result<Vec<FetchedBatch>, ClientError> {
        let limit = self.config.max_poll_records;
        let batches = self
            .poll_for(timeout, |consumer| consumer.take_batches(limit))
            .await?;
        let interceptors = self.interceptors.iter_mut();
        Ok(match batches.is_empty() {
            true => batches,
            false => interceptors.fold(batches, |batches, it| it.on_consume_batches(batches)),
        })
    }

    async fn poll_for<T>(
        &mut self,
        timeout: Duration,
        take: impl Fn(&mut Consumer) -> Result<Vec<T>, ClientError>,
    ) -> Result<Vec<T>, ClientError> {
        self.sensors.on_poll_began();
        let polled = self
            .poll_until(ottla_sync::time::now() + timeout, take)
            .await;
        self.sensors.on_poll_ended();
        polled
    }

    async fn poll_until<T>(
        &mut self,
        deadline: Instant,
        take: impl Fn(&mut Consumer) -> Result<Vec<T>, ClientError>,
    ) -> Result<Vec<T>, ClientError> {
        loop {
            if !self.keep_membership(deadline).await? {
                return Ok(Vec::new());
            }
            self.watch_topics();
            self.auto_commit();
            self.call_back();
            // Takes all responses that have arrived, without waiting.
            while let Some(finished) = self.fetches.try_join_next() {
                if let Ok(fetched) = finished {
                    self.on_fetched(fetched).await?;
                }
            }
            // Everything that waits or fails comes before the records are taken, so that a
            // cancelled poll loses none.
            self.start_fetches().await?;
            let taken = take(self)?;
            if !taken.is_empty() {
                // Prefetches while the caller processes these records.
                self.start_known_fetches();
                return Ok(taken);
            }
            self.find_positions().await?;
            self.start_fetches().await?;
            if self.waker.take() {
                return Err(ClientError::WokenUp);
            }
            let left = deadline.saturating_duration_since(ottla_sync::time::now());
            if left.is_zero() {
                return Ok(Vec::new());
            }
            // The taken batches had no records to return, and there are more after them.
            if self.holds_some() {
                continue;
            }
            // Wakes up regularly to notice rebalances.
            let pause = left.min(Duration::from_millis(100));
            if let Some(fetched) = self.next_event(pause).await {
                self.on_fetched(fetched).await?;
            }
        }
    }

    /// Waits until a response arrives, the group has an event, or the pause is over.
    async fn next_event(&mut self, pause: Duration) -> Option<Fetched> {
        let news = self.modern.as_ref().map(ModernMembership::news);
        let told = async {
            match &news {
                Some(news) => news.notified().await,
                None => std::future::pending().await,
            }
        };
        ottla_sync::select! {
            Some(finished) = self.fetches.join_next() => finished.ok(),
            () = told => None,
            () = self.waker.notified() => None,
            () = ottla_sync::time::sleep(pause) => None,
        }
    }

    /// Commits, if commits are automatic, and leaves the group.
    ///
    /// ```no_run
    /// # async fn example(consumer: ottla_client::Consumer) -> Result<(), ottla_client::ClientError> {
    /// consumer.close().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn close(mut self) -> Result<(), ClientError> {
        self.finish_commits().await;
        if self.give_up_joining().await {
            return Ok(());
        }
        let committed = match self.config.auto_commit && self.config.group_id.is_some() {
            true => self.commit().await,
            false => Ok(()),
        };
        self.leave_group().await;
        committed
    }

    /// As [`Consumer::close`] with a timeout. After it, the membership expires by itself.
    ///
    /// ```no_run
    /// # async fn example(consumer: ottla_client::Consumer) -> Result<(), ottla_client::ClientError> {
    /// consumer.close_within(std::time::Duration::from_secs(5)).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn close_within(self, limit: Duration) -> Result<(), ClientError> {
        match ottla_sync::time::timeout(limit, self.close()).await {
            Ok(closed) => closed,
            Err(_) => Err(ClientError::Config(format!(
                "the consumer did not close within {} ms; give it more time",
                limit.as_millis()
            ))),
        }
    }

    fn new_position(&mut self) -> Position {
        self.next_generation += 1;
        Position::new(self.next_generation)
    }

    /// Whether there are fetched records that may be returned.
    fn holds_some(&self) -> bool {
        let mut positions = self.positions.values();
        positions.any(|position| position.holds_some() && !position.is_paused)
    }

    /// Takes up to `limit` of the fetched records.
    fn take_records(&mut self, limit: usize) -> Result<Vec<ConsumerRecord>, ClientError> {
        let mut records = Vec::new();
        self.take(|partition, position| {
            while records.len() < limit {
                let record = match position.next_record() {
                    Ok(Some(record)) => record,
                    Ok(None) => return Ok(true),
                    Err(error) if records.is_empty() => return Err(unreadable(partition, error)),
                    // The records before the error are returned first. The next call meets the
                    // error again.
                    Err(_) => return Ok(true),
                };
                if records.is_empty() {
                    records.reserve(limit.min(MAX_POLL_RESERVED));
                }
                records.push(record);
            }
            Ok(false)
        })?;
        Ok(records)
    }

    fn take_batches(&mut self, limit: usize) -> Result<Vec<FetchedBatch>, ClientError> {
        // A response of a few KiB can decompress to many GiB.
        let most = usize::try_from(self.config.fetch_max_bytes).unwrap_or(0);
        let mut batches: Vec<FetchedBatch> = Vec::new();
        let (mut count, mut bytes) = (0, 0);
        self.take(|partition, position| {
            while batches.is_empty() || count < limit && bytes < most {
                let batch = match position.next_batch() {
                    Ok(Some(batch)) => batch,
                    Ok(None) => return Ok(true),
                    Err(error) if batches.is_empty() => return Err(unreadable(partition, error)),
                    Err(_) => return Ok(true),
                };
                count += batch.record_count();
                bytes += batch.bytes().len();
                batches.push(batch);
            }
            Ok(false)
        })?;
        Ok(batches)
    }

    /// Iterates over the partitions, starting with another one each time, until `from` has enough.
    fn take(
        &mut self,
        mut from: impl FnMut(&Partition, &mut Position) -> Result<bool, ClientError>,
    ) -> Result<(), ClientError> {
        let count = self.positions.len();
        if count == 0 {
            return Ok(());
        }
        let start = self.next_partition % count;
        let Some(first) = self.positions.keys().nth(start).cloned() else {
            return Ok(());
        };
        let halves = [
            (start, (Bound::Included(&first), Bound::Unbounded)),
            (0, (Bound::Unbounded, Bound::Excluded(&first))),
        ];
        // The fetched records of a partition are returned before the next partition is started,
        // within the limit.
        for (begin, half) in halves {
            let half = self.positions.range_mut::<Partition, _>(half);
            for (index, (partition, position)) in (begin..).zip(half) {
                if position.is_paused {
                    continue;
                }
                let before = position.next;
                let wants_more = from(partition, position)?;
                if position.next != before {
                    let lag = position.lag(self.config.read_committed);
                    self.sensors.on_advanced(partition, lag, position.lead());
                }
                if !wants_more {
                    self.next_partition = index;
                    return Ok(());
                }
                self.next_partition = index + 1;
            }
        }
        Ok(())
    }
}

fn unreadable((topic, partition): &Partition, error: ottla_records::BatchError) -> ClientError {
    ClientError::Records {
        partition: format!("{topic}-{partition}"),
        error,
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.client.disown(self.fetch_owner);
        if let Some(joining) = &self.joining {
            joining.abort();
        }
        if let Some(refreshing) = &self.refreshing {
            refreshing.abort();
        }
    }
}

#[cfg(test)]
mod tests;
