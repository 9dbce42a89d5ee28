//! Consuming records, alone or in a group of the classic protocol.
//!
//! `poll` does everything: it joins the group when there is one to join, finds where to begin, fetches
//! from every leader at once and hands out what has come. Only heartbeats run beside it. A consumer is
//! one owner's: its methods take `&mut self`.

mod fetch;
mod group;
mod range_assignor;

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;
use ottla_records::{RecordHeader, TimestampType};
use ottla_types::ErrorCode;
use tokio::task::{JoinHandle, JoinSet};

use crate::admin::{Admin, CommittedOffset, OffsetSpec};
use crate::client::{Client, Owner};
use crate::config::milliseconds;
use crate::error::ClientError;
use fetch::Fetched;
use group::{Membership, Place};

/// What to do where there is no committed offset, or none that the log still has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OffsetReset {
    Earliest,
    Latest,
    /// An error.
    None,
}

/// Settings of a consumer. The defaults are Kafka's.
#[derive(Clone, Debug)]
pub struct ConsumerConfig {
    pub group_id: Option<String>,
    pub group_instance_id: Option<String>,
    pub offset_reset: OffsetReset,
    pub auto_commit: bool,
    pub auto_commit_interval: Duration,
    pub read_committed: bool,
    pub fetch_min_bytes: i32,
    pub fetch_max_bytes: i32,
    pub fetch_max_wait: Duration,
    pub max_partition_fetch_bytes: i32,
    pub max_poll_records: usize,
    pub session_timeout: Duration,
    pub heartbeat_interval: Duration,
    pub max_poll_interval: Duration,
    pub allow_auto_create_topics: bool,
}

impl Default for ConsumerConfig {
    fn default() -> Self {
        ConsumerConfig {
            group_id: None,
            group_instance_id: None,
            offset_reset: OffsetReset::Latest,
            auto_commit: true,
            auto_commit_interval: Duration::from_secs(5),
            read_committed: false,
            fetch_min_bytes: 1,
            fetch_max_bytes: 50 * 1024 * 1024,
            fetch_max_wait: Duration::from_millis(500),
            max_partition_fetch_bytes: 1024 * 1024,
            max_poll_records: 500,
            session_timeout: Duration::from_secs(45),
            heartbeat_interval: Duration::from_secs(3),
            max_poll_interval: Duration::from_secs(300),
            allow_auto_create_topics: true,
        }
    }
}

impl ConsumerConfig {
    /// Takes the settings of Kafka's consumer that apply here out of a properties file; returns those
    /// that this consumer does not know.
    pub fn apply(
        &mut self,
        settings: &BTreeMap<String, String>,
    ) -> Result<Vec<String>, ClientError> {
        let mut unknown = Vec::new();
        for (key, value) in settings {
            let value = value.trim();
            let wrong = |accepted: &str| {
                ClientError::Config(format!("{key}={value}: not accepted; give {accepted}"))
            };
            let bytes = || value.parse::<i32>().map_err(|_| wrong("a number of bytes"));
            let boolean = || value.parse::<bool>().map_err(|_| wrong("true or false"));
            match key.as_str() {
                "group.id" => self.group_id = Some(value.to_owned()).filter(|id| !id.is_empty()),
                "group.instance.id" => self.group_instance_id = Some(value.to_owned()),
                "auto.offset.reset" => {
                    self.offset_reset = match value.to_ascii_lowercase().as_str() {
                        "earliest" => OffsetReset::Earliest,
                        "latest" => OffsetReset::Latest,
                        "none" => OffsetReset::None,
                        _ => return Err(wrong("earliest, latest or none")),
                    };
                }
                "enable.auto.commit" => self.auto_commit = boolean()?,
                "auto.commit.interval.ms" => self.auto_commit_interval = milliseconds(key, value)?,
                "isolation.level" => {
                    self.read_committed = match value.to_ascii_lowercase().as_str() {
                        "read_committed" => true,
                        "read_uncommitted" => false,
                        _ => return Err(wrong("read_committed or read_uncommitted")),
                    };
                }
                "fetch.min.bytes" => self.fetch_min_bytes = bytes()?,
                "fetch.max.bytes" => self.fetch_max_bytes = bytes()?,
                "fetch.max.wait.ms" => self.fetch_max_wait = milliseconds(key, value)?,
                "max.partition.fetch.bytes" => self.max_partition_fetch_bytes = bytes()?,
                "max.poll.records" => {
                    self.max_poll_records = value.parse().map_err(|_| wrong("a number"))?;
                }
                "session.timeout.ms" => self.session_timeout = milliseconds(key, value)?,
                "heartbeat.interval.ms" => self.heartbeat_interval = milliseconds(key, value)?,
                "max.poll.interval.ms" => self.max_poll_interval = milliseconds(key, value)?,
                "allow.auto.create.topics" => self.allow_auto_create_topics = boolean()?,
                _ => unknown.push(key.clone()),
            }
        }
        Ok(unknown)
    }
}

/// A record that has been read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConsumerRecord {
    pub topic: String,
    pub partition: i32,
    pub offset: i64,
    pub leader_epoch: i32,
    pub timestamp: i64,
    pub timestamp_type: TimestampType,
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
    pub headers: Vec<RecordHeader>,
}

/// A partition by topic name and number.
pub(crate) type Partition = (String, i32);

/// Where a consumer stands in a partition.
#[derive(Clone, Debug, Default)]
struct Position {
    /// The offset of the next record to hand out; nothing until it has been found out.
    next: Option<i64>,
    leader_epoch: i32,
    /// What has been fetched from `next` on.
    buffered: VecDeque<ConsumerRecord>,
    /// The offset behind what has been fetched.
    fetched_to: Option<i64>,
    is_fetching: bool,
}

/// A place in a group with what came of joining.
type Joined = (Membership, Result<Vec<Partition>, ClientError>);

/// Reads records.
pub struct Consumer {
    client: Client,
    /// Of the connections that are fetched over.
    fetch_owner: Owner,
    admin: Admin,
    config: ConsumerConfig,
    positions: BTreeMap<Partition, Position>,
    /// Raised when the assignment or a position changes, so that old answers are told from new ones.
    epoch: u64,
    fetches: JoinSet<Fetched>,
    subscription: Vec<String>,
    /// The place in the group; away while it is being joined.
    membership: Option<Membership>,
    joining: Option<JoinHandle<Joined>>,
    /// The same place, at hand while the membership is away.
    place: Option<Place>,
    last_auto_commit: Instant,
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
            epoch: 0,
            fetches: JoinSet::new(),
            subscription: Vec::new(),
            membership: None,
            joining: None,
            place: None,
            last_auto_commit: Instant::now(),
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
        self.subscription = topics.to_vec();
        let membership = Membership::new(self.client.clone(), group, self.config.clone());
        self.place = Some(membership.place());
        self.membership = Some(membership);
        Ok(())
    }

    /// The partitions that this consumer reads.
    pub fn assignment(&self) -> Vec<Partition> {
        self.positions.keys().cloned().collect()
    }

    /// The offset of the next record that `poll` hands out for a partition, once it is known.
    pub fn position(&self, partition: &Partition) -> Option<i64> {
        self.positions.get(partition)?.next
    }

    /// Goes to an offset.
    pub fn seek(&mut self, partition: &Partition, offset: i64) {
        self.epoch += 1;
        if let Some(position) = self.positions.get_mut(partition) {
            *position = Position {
                next: Some(offset),
                leader_epoch: -1,
                ..Position::default()
            };
        }
    }

    /// The next records, or none if none come within the time.
    pub async fn poll(&mut self, timeout: Duration) -> Result<Vec<ConsumerRecord>, ClientError> {
        let deadline = Instant::now() + timeout;
        loop {
            if !self.keep_membership(deadline).await? {
                return Ok(Vec::new());
            }
            self.auto_commit().await;
            let records = self.take_buffered();
            if !records.is_empty() {
                // What comes next is fetched while the caller is busy with these.
                self.start_fetches().await?;
                return Ok(records);
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

    /// Commits the positions of everything handed out so far.
    pub async fn commit(&mut self) -> Result<(), ClientError> {
        let offsets: BTreeMap<Partition, (i64, i32)> = self
            .positions
            .iter()
            .filter_map(|(partition, position)| {
                Some((partition.clone(), (position.next?, position.leader_epoch)))
            })
            .collect();
        let Some(group) = self.config.group_id.clone() else {
            return Err(ClientError::Config(
                "committing offsets needs a group; give group.id".into(),
            ));
        };
        match &mut self.membership {
            Some(membership) => membership.commit(&offsets).await,
            None if self.joining.is_some() => Err(ClientError::broker(
                format!("committing offsets of group {group}"),
                ErrorCode::RebalanceInProgress.code(),
                Some("the members are being redistributed; commit again after the next poll"),
            )),
            None => {
                let plain = offsets
                    .into_iter()
                    .map(|(key, (offset, _))| (key, offset))
                    .collect();
                let results = self.admin.alter_offsets(&group, &plain).await?;
                results.into_values().collect()
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
            membership.leave().await;
        }
        committed
    }

    fn replace_assignment(&mut self, partitions: &[Partition]) {
        self.epoch += 1;
        let mut positions = BTreeMap::new();
        for partition in partitions {
            let mut kept = self.positions.remove(partition).unwrap_or(Position {
                leader_epoch: -1,
                ..Position::default()
            });
            kept.is_fetching = false;
            positions.insert(partition.clone(), kept);
        }
        self.positions = positions;
    }

    /// Joins the group, or joins it again where the members are being redistributed; false while the
    /// others are waited for. Joining goes on between two polls: it takes as long as the slowest member,
    /// who may be waiting for the same caller.
    async fn keep_membership(&mut self, deadline: Instant) -> Result<bool, ClientError> {
        if self.joining.is_none() {
            if !self.membership.as_ref().is_some_and(Membership::must_join) {
                return Ok(true);
            }
            if self.config.auto_commit && !self.positions.is_empty() {
                // Others will begin where this commit stands.
                self.commit_quietly().await;
            }
            let Some(mut membership) = self.membership.take() else {
                return Ok(true);
            };
            let topics = self.subscription.clone();
            self.joining = Some(tokio::spawn(async move {
                let joined = membership.join(&topics).await;
                (membership, joined)
            }));
        }
        let Some(joining) = &mut self.joining else {
            return Ok(true);
        };
        let left = deadline.saturating_duration_since(Instant::now());
        let Ok(finished) = tokio::time::timeout(left, joining).await else {
            return Ok(false);
        };
        self.joining = None;
        let (membership, joined) = finished.map_err(|_| ClientError::ClientClosed)?;
        self.membership = Some(membership);
        let assigned = joined?;
        // Whoever had a partition in between may have moved on: positions are asked for again.
        self.positions.clear();
        self.replace_assignment(&assigned);
        self.last_auto_commit = Instant::now();
        Ok(true)
    }

    async fn auto_commit(&mut self) {
        let due = self.config.auto_commit
            && self.config.group_id.is_some()
            && self.last_auto_commit.elapsed() >= self.config.auto_commit_interval;
        if due {
            self.last_auto_commit = Instant::now();
            self.commit_quietly().await;
        }
    }

    async fn commit_quietly(&mut self) {
        if let Err(error) = self.commit().await {
            tracing::warn!(%error, "offsets could not be committed");
        }
    }

    /// Takes up to `max.poll.records` out of what has been fetched.
    fn take_buffered(&mut self) -> Vec<ConsumerRecord> {
        let mut records = Vec::new();
        let count = self.positions.len();
        if count == 0 {
            return records;
        }
        let start = self.next_partition % count;
        for index in 0..count {
            let position = self.positions.values_mut().nth((start + index) % count);
            let position = position.expect("the index is below the count");
            while records.len() < self.config.max_poll_records {
                let Some(record) = position.buffered.pop_front() else {
                    break;
                };
                position.next = Some(record.offset + 1);
                position.leader_epoch = record.leader_epoch;
                records.push(record);
            }
            if position.buffered.is_empty() && position.fetched_to > position.next {
                // What was fetched ended in records that are not handed out, such as markers.
                position.next = position.fetched_to;
            }
            if records.len() >= self.config.max_poll_records {
                break;
            }
        }
        self.next_partition = start + 1;
        records
    }

    /// Finds out where to begin in partitions that have no position yet.
    async fn find_positions(&mut self) -> Result<(), ClientError> {
        let missing: Vec<Partition> = self
            .positions
            .iter()
            .filter(|(_, position)| position.next.is_none())
            .map(|(partition, _)| partition.clone())
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let committed: BTreeMap<Partition, CommittedOffset> = match &self.config.group_id {
            Some(group) => self.admin.committed_offsets(group).await?,
            None => BTreeMap::new(),
        };
        let mut to_reset = Vec::new();
        for partition in missing {
            match committed.get(&partition) {
                Some(committed) => {
                    let position = self.positions.get_mut(&partition).expect("it is assigned");
                    position.next = Some(committed.offset);
                    position.leader_epoch = committed.leader_epoch;
                }
                None => to_reset.push(partition),
            }
        }
        self.reset(&to_reset, "there is no committed offset").await
    }

    async fn reset(&mut self, partitions: &[Partition], why: &str) -> Result<(), ClientError> {
        let Some((topic, partition)) = partitions.first() else {
            return Ok(());
        };
        let spec = match self.config.offset_reset {
            OffsetReset::Earliest => OffsetSpec::Earliest,
            OffsetReset::Latest => OffsetSpec::Latest,
            OffsetReset::None => {
                return Err(ClientError::broker(
                    format!("{topic}-{partition}"),
                    ErrorCode::OffsetOutOfRange.code(),
                    Some(format!("{why}, and auto.offset.reset is none")),
                ));
            }
        };
        let offsets = self
            .admin
            .list_offsets(partitions, spec, self.config.read_committed)
            .await;
        for (partition, listed) in offsets {
            let listed = listed?;
            if let Some(position) = self.positions.get_mut(&partition) {
                *position = Position {
                    next: Some(listed.offset),
                    leader_epoch: -1,
                    ..Position::default()
                };
            }
        }
        Ok(())
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.client.disown(self.fetch_owner);
        if let Some(joining) = &self.joining {
            joining.abort();
        }
    }
}
