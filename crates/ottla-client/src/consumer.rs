//! Consuming records, alone or in a group of the classic protocol.
//!
//! `poll` does everything: it joins the group when there is one to join, finds where to begin, fetches
//! from every leader at once and hands out what has come. Only heartbeats run beside it. A consumer is
//! one owner's: its methods take `&mut self`.
//!
//! The pure parts are `records`, `session` and `assignors`; the rest is the shell around them.

mod assignors;
mod config;
mod fetch;
mod group;
mod offsets;
mod records;
mod session;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::{JoinHandle, JoinSet};

use crate::admin::Admin;
use crate::client::{Client, Owner};
use crate::error::ClientError;
use crate::producer::ConsumerGroupMetadata;
use fetch::Fetched;
use group::{Joined, Membership, Place};
use records::CompletedFetch;
use session::FetchSession;

pub use assignors::Assignor;
pub use config::{ConsumerConfig, GroupProtocol, OffsetReset};
pub use offsets::CommitOffset;
pub use records::{ConsumerRecord, FetchedBatch};

/// A partition by topic name and number.
pub(crate) type Partition = (String, i32);

/// Where a consumer stands in a partition.
#[derive(Debug, Default)]
struct Position {
    /// The offset of the next record to hand out; nothing until it has been found out.
    next: Option<i64>,
    /// Of the last record handed out, -1 where it is not known.
    leader_epoch: i32,
    /// What has been fetched from `next` on.
    fetched: Option<CompletedFetch>,
    is_fetching: bool,
    is_paused: bool,
    /// Changes when the position does otherwise than by handing out records, so that answers to older
    /// questions are told.
    generation: u64,
    /// As the last answer said; nothing before it.
    high_watermark: Option<i64>,
    last_stable_offset: Option<i64>,
    log_start_offset: Option<i64>,
    /// The replica that the leader said is nearer, and until when that is believed.
    read_replica: Option<(i32, Instant)>,
}

/// Is told when partitions come and go (`org.apache.kafka.clients.consumer.ConsumerRebalanceListener`).
/// Called from within `poll`.
pub trait RebalanceListener: Send {
    fn on_partitions_assigned(&mut self, _partitions: &[(String, i32)]) {}

    /// They are given up; what was handed out has been committed, if that is automatic.
    fn on_partitions_revoked(&mut self, _partitions: &[(String, i32)]) {}

    /// Others may have them already.
    fn on_partitions_lost(&mut self, partitions: &[(String, i32)]) {
        self.on_partitions_revoked(partitions);
    }
}

/// Reads records.
pub struct Consumer {
    client: Client,
    /// Of the connections that are fetched over.
    fetch_owner: Owner,
    admin: Admin,
    config: ConsumerConfig,
    positions: BTreeMap<Partition, Position>,
    next_generation: u64,
    sessions: BTreeMap<i32, FetchSession>,
    /// Leaders with a fetch under way: one at a time, since a broker answers one after the other.
    fetching: BTreeSet<i32>,
    fetches: JoinSet<Fetched>,
    /// Names shared by all records of a topic.
    names: BTreeMap<String, Arc<str>>,
    subscription: Vec<String>,
    listener: Option<Box<dyn RebalanceListener>>,
    /// The place in the group; away while it is being joined.
    membership: Option<Membership>,
    joining: Option<JoinHandle<Joined>>,
    /// The same place, at hand while the membership is away.
    place: Option<Place>,
    last_auto_commit: Instant,
    refreshing: Option<JoinHandle<()>>,
    last_refresh: Instant,
    /// Where the next poll begins to look, so that no partition starves.
    next_partition: usize,
}

impl Consumer {
    pub fn new(client: Client, config: ConsumerConfig) -> Consumer {
        Consumer {
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
            listener: None,
            membership: None,
            joining: None,
            place: None,
            last_auto_commit: Instant::now(),
            refreshing: None,
            last_refresh: Instant::now(),
            next_partition: 0,
        }
    }

    /// Reads these partitions and no group decides about them.
    pub fn assign(&mut self, partitions: &[Partition]) {
        self.subscription.clear();
        self.replace_assignment(partitions);
    }

    /// Shares these topics with the other members of the group.
    pub fn subscribe(&mut self, topics: &[String]) -> Result<(), ClientError> {
        let Some(group) = self.config.group_id.clone() else {
            return Err(ClientError::Config(
                "subscribing to topics needs a group; give group.id".into(),
            ));
        };
        if self.config.group_protocol == GroupProtocol::Consumer {
            return Err(ClientError::Config(
                "group.protocol=consumer: this client speaks the classic protocol only".into(),
            ));
        }
        self.subscription = topics.to_vec();
        if let Some(membership) = &self.membership {
            membership.rejoin();
            return Ok(());
        }
        let membership = Membership::new(self.client.clone(), group, self.config.clone());
        self.place = Some(membership.place());
        self.membership = Some(membership);
        Ok(())
    }

    /// As [`Consumer::subscribe`]; the listener is told of what comes and goes.
    pub fn subscribe_with_listener(
        &mut self,
        topics: &[String],
        listener: Box<dyn RebalanceListener>,
    ) -> Result<(), ClientError> {
        self.listener = Some(listener);
        self.subscribe(topics)
    }

    /// Reads nothing any more, and leaves the group.
    pub async fn unsubscribe(&mut self) {
        self.subscription.clear();
        if let Some(joining) = self.joining.take() {
            joining.abort();
            if let Some(place) = self.place.take() {
                place.give_up_while_joining().await;
            }
        }
        if let Some(membership) = self.membership.take() {
            membership.leave().await;
        }
        self.replace_assignment(&[]);
    }

    pub fn config(&self) -> &ConsumerConfig {
        &self.config
    }

    pub fn subscription(&self) -> &[String] {
        &self.subscription
    }

    /// The partitions that this consumer reads.
    pub fn assignment(&self) -> Vec<Partition> {
        self.positions.keys().cloned().collect()
    }

    /// Who this consumer is in its group, for [`crate::Producer::send_offsets_to_transaction`].
    pub fn group_metadata(&self) -> ConsumerGroupMetadata {
        let (generation_id, member_id) = match &self.membership {
            Some(membership) => membership.generation_and_id(),
            None => (-1, String::new()),
        };
        ConsumerGroupMetadata {
            group_id: self.config.group_id.clone().unwrap_or_default(),
            generation_id,
            member_id,
            group_instance_id: self.config.group_instance_id.clone(),
        }
    }

    /// Hands out nothing of these partitions until they are resumed, and keeps them.
    pub fn pause(&mut self, partitions: &[Partition]) {
        self.set_paused(partitions, true);
    }

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

    pub fn paused(&self) -> Vec<Partition> {
        let paused = self.positions.iter().filter(|(_, it)| it.is_paused);
        paused.map(|(partition, _)| partition.clone()).collect()
    }

    /// The next records, or none if none come within the time.
    pub async fn poll(&mut self, timeout: Duration) -> Result<Vec<ConsumerRecord>, ClientError> {
        let limit = self.config.max_poll_records;
        self.poll_for(timeout, |consumer| consumer.take_records(limit))
            .await
    }

    /// As [`Consumer::poll`], with the records where they are: whole batches, borrowed one record after the
    /// other, and so many that they hold `max.poll.records` or a little more.
    pub async fn poll_batches(
        &mut self,
        timeout: Duration,
    ) -> Result<Vec<FetchedBatch>, ClientError> {
        let limit = self.config.max_poll_records;
        self.poll_for(timeout, |consumer| consumer.take_batches(limit))
            .await
    }

    async fn poll_for<T>(
        &mut self,
        timeout: Duration,
        take: impl Fn(&mut Consumer) -> Result<Vec<T>, ClientError>,
    ) -> Result<Vec<T>, ClientError> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(membership) = &self.membership {
                membership.on_polled();
            }
            if !self.keep_membership(deadline).await? {
                return Ok(Vec::new());
            }
            self.watch_topics();
            self.auto_commit().await;
            // What has come by now is taken in without waiting.
            while let Some(finished) = self.fetches.try_join_next() {
                if let Ok(fetched) = finished {
                    self.on_fetched(fetched).await?;
                }
            }
            let taken = take(self)?;
            if !taken.is_empty() {
                // What comes next is fetched while the caller is busy with these.
                self.start_fetches().await?;
                return Ok(taken);
            }
            self.find_positions().await?;
            self.start_fetches().await?;
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Vec::new());
            }
            // Rebalances are noticed while nothing comes, and answers are awaited in between.
            let pause = left.min(Duration::from_millis(100));
            match tokio::time::timeout(pause, self.fetches.join_next()).await {
                Ok(Some(Ok(fetched))) => self.on_fetched(fetched).await?,
                Ok(Some(Err(_))) | Err(_) => {}
                Ok(None) => tokio::time::sleep(pause).await,
            }
        }
    }

    /// Commits, if that is automatic, and leaves the group.
    pub async fn close(mut self) -> Result<(), ClientError> {
        if let Some(joining) = self.joining.take() {
            joining.abort();
            if let Some(place) = self.place.take() {
                place.give_up_while_joining().await;
            }
            return Ok(());
        }
        let committed = match self.config.auto_commit && self.config.group_id.is_some() {
            true => self.commit().await,
            false => Ok(()),
        };
        if let Some(membership) = self.membership.take() {
            let held = self.assignment();
            if let Some(listener) = &mut self.listener
                && !held.is_empty()
            {
                listener.on_partitions_revoked(&held);
            }
            membership.leave().await;
        }
        committed
    }

    fn new_position(&mut self) -> Position {
        self.next_generation += 1;
        Position {
            leader_epoch: -1,
            generation: self.next_generation,
            ..Position::default()
        }
    }

    /// Keeps the positions of partitions that stay.
    fn replace_assignment(&mut self, partitions: &[Partition]) {
        let mut positions = BTreeMap::new();
        for partition in partitions {
            let position = match self.positions.remove(partition) {
                Some(position) => position,
                None => self.new_position(),
            };
            positions.insert(partition.clone(), position);
        }
        self.positions = positions;
    }

    /// Joins the group, or joins it again where the members are being redistributed; false while the
    /// others are waited for. Joining goes on between two polls: it takes as long as the slowest member,
    /// who may be waiting for the same caller.
    async fn keep_membership(&mut self, deadline: Instant) -> Result<bool, ClientError> {
        if self.joining.is_none() {
            let Some(membership) = &self.membership else {
                return Ok(true);
            };
            if !membership.must_join() {
                return Ok(true);
            }
            let is_lost = membership.is_forgotten();
            let keeps_reading = membership.is_cooperative() && !is_lost;
            if self.config.auto_commit && !self.positions.is_empty() && !is_lost {
                // Others will begin where this commit stands.
                self.commit_quietly().await;
            }
            if !keeps_reading {
                self.give_up_all(is_lost);
            }
            let Some(mut membership) = self.membership.take() else {
                return Ok(true);
            };
            let (topics, owned) = (self.subscription.clone(), self.assignment());
            self.joining = Some(tokio::spawn(async move {
                let joined = membership.join(&topics, &owned).await;
                (membership, joined)
            }));
        }
        let Some(joining) = &mut self.joining else {
            return Ok(true);
        };
        // What is kept is read on meanwhile.
        let left = match self.positions.is_empty() {
            true => deadline.saturating_duration_since(Instant::now()),
            false => Duration::ZERO,
        };
        let Ok(finished) = tokio::time::timeout(left, joining).await else {
            return Ok(!self.positions.is_empty());
        };
        self.joining = None;
        let (membership, joined) = finished.map_err(|_| ClientError::ClientClosed)?;
        self.membership = Some(membership);
        self.take_assignment(&joined?);
        self.last_auto_commit = Instant::now();
        Ok(true)
    }

    /// Gives everything up before joining.
    fn give_up_all(&mut self, is_lost: bool) {
        let held = self.assignment();
        self.positions.clear();
        if let Some(listener) = &mut self.listener
            && !held.is_empty()
        {
            match is_lost {
                true => listener.on_partitions_lost(&held),
                false => listener.on_partitions_revoked(&held),
            }
        }
    }

    fn take_assignment(&mut self, assigned: &[Partition]) {
        let held: BTreeSet<Partition> = self.positions.keys().cloned().collect();
        let kept: BTreeSet<Partition> = assigned.iter().cloned().collect();
        let revoked: Vec<Partition> = held.difference(&kept).cloned().collect();
        let added: Vec<Partition> = kept.difference(&held).cloned().collect();
        if !revoked.is_empty() {
            if let Some(listener) = &mut self.listener {
                listener.on_partitions_revoked(&revoked);
            }
            // Those that are to have them get them in another round.
            if let Some(membership) = &self.membership {
                membership.rejoin();
            }
        }
        self.replace_assignment(assigned);
        if let Some(listener) = &mut self.listener {
            listener.on_partitions_assigned(&added);
        }
    }

    /// Looks from time to time whether subscribed topics have come, gone or grown; sooner where one is
    /// missing. The member that assigned the partitions has them assigned anew.
    fn watch_topics(&mut self) {
        let metadata = self.client.metadata();
        if let Some(membership) = &self.membership {
            membership.on_metadata(&metadata);
        }
        if self
            .refreshing
            .as_ref()
            .is_some_and(|task| !task.is_finished())
        {
            return;
        }
        let mut names: BTreeSet<&String> = self.subscription.iter().collect();
        names.extend(self.positions.keys().map(|(topic, _)| topic));
        let is_missing = |name: &&String| !metadata.topics.contains_key(*name);
        let config = self.client.config();
        let patience = match names.iter().any(is_missing) {
            true => config.retry_backoff_max,
            false => config.metadata_max_age,
        };
        if names.is_empty() || self.last_refresh.elapsed() < patience {
            return;
        }
        self.last_refresh = Instant::now();
        let names: Vec<String> = names.into_iter().cloned().collect();
        let (client, creates) = (self.client.clone(), self.config.allow_auto_create_topics);
        self.refreshing = Some(tokio::spawn(async move {
            if let Err(error) = client.refresh_metadata(Some(&names), creates).await {
                tracing::debug!(%error, "no metadata");
            }
        }));
    }

    /// Takes up to so many records out of what has been fetched.
    fn take_records(&mut self, limit: usize) -> Result<Vec<ConsumerRecord>, ClientError> {
        let mut records = Vec::new();
        self.take(|partition, position| {
            let Some(fetched) = &mut position.fetched else {
                return Ok(records.len() < limit);
            };
            while records.len() < limit {
                match fetched.next_record() {
                    Ok(Some(record)) => {
                        position.next = Some(record.offset + 1);
                        position.leader_epoch = record.leader_epoch;
                        records.push(record);
                    }
                    Ok(None) => {
                        position.next = Some(fetched.next_offset());
                        position.fetched = None;
                        return Ok(true);
                    }
                    Err(error) => {
                        position.fetched = None;
                        // What came before it is handed out first; then it is met again.
                        return match records.is_empty() {
                            true => Err(unreadable(partition, error)),
                            false => Ok(true),
                        };
                    }
                }
            }
            Ok(false)
        })?;
        Ok(records)
    }

    fn take_batches(&mut self, limit: usize) -> Result<Vec<FetchedBatch>, ClientError> {
        let mut batches: Vec<FetchedBatch> = Vec::new();
        let mut count = 0;
        self.take(|partition, position| {
            let Some(fetched) = &mut position.fetched else {
                return Ok(count < limit);
            };
            while count < limit {
                match fetched.next_batch() {
                    Ok(Some(batch)) => {
                        position.next = Some(fetched.next_offset());
                        position.leader_epoch = batch.leader_epoch;
                        count += batch.record_count();
                        batches.push(batch);
                    }
                    Ok(None) => {
                        position.next = Some(fetched.next_offset());
                        position.fetched = None;
                        return Ok(true);
                    }
                    Err(error) => {
                        position.fetched = None;
                        return match batches.is_empty() {
                            true => Err(unreadable(partition, error)),
                            false => Ok(true),
                        };
                    }
                }
            }
            Ok(false)
        })?;
        Ok(batches)
    }

    /// Goes over the partitions, another first each time, until `from` has enough.
    fn take(
        &mut self,
        mut from: impl FnMut(&Partition, &mut Position) -> Result<bool, ClientError>,
    ) -> Result<(), ClientError> {
        let count = self.positions.len();
        if count == 0 {
            return Ok(());
        }
        let start = self.next_partition % count;
        // A partition is drained before the next one is begun, as far as the limit allows.
        for index in (start..count).chain(0..start) {
            let Some((partition, position)) = self.positions.iter_mut().nth(index) else {
                continue;
            };
            if position.is_paused {
                continue;
            }
            if !from(partition, position)? {
                self.next_partition = index;
                return Ok(());
            }
            self.next_partition = index + 1;
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
