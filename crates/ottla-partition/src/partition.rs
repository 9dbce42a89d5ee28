//! One partition of this broker: the replica, its log, and the requests that wait for them.
//!
//! Every change is an event in the [`Inbox`]. The thread that takes the run token steps the replica
//! at once, on the thread that read the request, and executes the effects; other threads enqueue
//! and return. Adjacent appends are written together. Readers never take the token: they use the
//! [`LogReader`] and the few published numbers.
//!
//! This file holds the state of a partition. The first group of modules below are its parts and
//! events, which do not use it. The second group uses it: `requests` fills the inbox, `stepping`
//! drains it, `execute` carries out the effects.
//!
//! Invariants:
//! 1. Only the holder of the run token touches the replica and the log. Their lock is never
//!    contended, because the token excludes other threads; a contended lock is a broken invariant.
//! 2. A holder drains at most `stepping::BUDGET_BYTES` and then passes the token to a task, so that
//!    its connection is not delayed by the appends of others.
//! 3. Nothing here waits for the disk. Flushes run on other threads and return as events.
//! 4. A panic between two events ends the process: see
//!    `docs/decisions/0007-what-ends-the-process.md`.
//!
//! Kafka does this under the leader's ISR lock and the log's lock in `Partition` and `UnifiedLog`.

mod append;
mod append_meter;
pub mod append_pace;
mod event;
mod follower_turns;
mod held_appends;
#[cfg(test)]
mod idle_memory_tests;
mod inbox;
#[cfg(test)]
mod inbox_tests;
mod isolation;
pub mod leader_answer;
mod log_location;
mod primitives;
pub mod producer_transaction;
mod rare_notify;
mod readers;
mod settings;
mod unverified;
mod waiters;

mod append_hold;
mod execute;
mod follower_fetches;
pub mod host;
pub mod page_cache;
mod requests;
mod stepping;
mod topic_ids;

use std::sync::Arc;

use ottla_log::{Log, ProducerStage, RemoteState, Verifications};
use ottla_metrics::topic_metrics::TopicMetrics;
use ottla_records::RecordBatch;
use ottla_records::legacy::LegacyMessage;
use ottla_replica::{AlterPartition, FetchPosition, Replica, ReplicaConfig};
use ottla_sync::ArcSwap;
use ottla_sync::Mutex;
use ottla_sync::atomic::{AtomicBool, AtomicI32, AtomicI64, Ordering};
use ottla_sync::oneshot;
use ottla_types::{
    BrokerId, ErrorCode, LeaderEpoch, Offset, TopicId, TopicIdPartition, TopicPartition,
};

use append_meter::AppendMeter;
use event::PartitionEvent;
use held_appends::HeldAppends;
use inbox::Inbox;
use rare_notify::RareNotify;
use readers::Readers;
use unverified::Unverified;

pub use append::{Ack, AppendPlace, AwaitsAppends, OfTransaction, PendingAppend};
pub use append_hold::AppendHold;
pub use follower_turns::{FollowerFetches, FollowerTurns, FollowerVerdict, LateTurns};
pub use isolation::Isolation;
pub use log_location::{DirResources, LogLocation, Reading};
pub use requests::ReservedSlot;
pub use settings::PartitionSettings;
pub use waiters::{Registration, Waiter, Waiters};

/// Above this size, connections that added to the inbox are not read.
const INBOX_BOUND_BYTES: usize = 16 * 1024 * 1024;

/// A partition with a replica on this broker.
pub struct Partition {
    pub topic_partition: TopicPartition,
    pub topic_id: TopicId,
    log_location: ArcSwap<LogLocation>,
    settings: ArcSwap<PartitionSettings>,
    inbox: Inbox<PartitionEvent>,
    state: Mutex<PartitionState>,
    pub topic_metrics: Arc<TopicMetrics>,
    /// Notified when the inbox has fallen below its bound, when the low watermark of the followers
    /// moves, and when this replica stops leading. One for all, because hardly any partition has
    /// ever somebody who waits for one of them.
    pub changes: RareNotify,
    /// Consumers waiting for the high watermark.
    pub waiters: Waiters,
    /// Followers waiting for the log end offset.
    pub followers: Waiters,
    pub follower_turns: FollowerTurns,
    pub readers: Readers,
    /// Published state of the replica, written by the holder of the token.
    is_leader: AtomicBool,
    is_lost: AtomicBool,
    leader_epoch: AtomicI32,
    /// `i64::MIN` if this replica does not lead.
    leader_epoch_start_offset: AtomicI64,
    /// The follower's lag behind the high watermark at the last fetch response, in records; -1 if
    /// unknown.
    fetch_lag: AtomicI64,
    has_failed_fetching: AtomicBool,
    /// The deadline of the first parked acknowledgement, if a task is waiting for it; `i64::MAX`
    /// otherwise.
    timer_ms: AtomicI64,
}

/// Fetches from one leader for the followers of this broker.
pub trait LeaderFetcher: std::fmt::Debug + Send + Sync {
    /// Whether this fetcher fetches the partition from `leader`.
    fn is_for(&self, leader: BrokerId, topic_partition: &TopicPartition) -> bool;

    /// Sets the position to fetch from, replacing the previous one.
    fn order(&self, partition: &Arc<Partition>, position: FetchPosition);

    /// Stops fetching the partition.
    fn stop(&self, partition: &Partition);

    /// Asks the leader for the log start and end offsets.
    fn list_leader_offsets(&self, partition: &Arc<Partition>, leader_epoch: LeaderEpoch);
}

/// State that only the holder of the run token touches.
struct PartitionState {
    replica: Replica<Ack>,
    log: Log,
    /// Batches of `WriteLog` effects that are not written yet.
    unwritten: Vec<RecordBatch>,
    /// The same for old formats. Only followers have them, and never together with `unwritten`.
    unwritten_legacy: Option<Box<LegacyMessages>>,
    /// The producer state after `unwritten`.
    stage: ProducerStage,
    flush: FlushState,
    /// The running step requested a flush and everything is flushed already. The replica receives
    /// `Flushed` after the step.
    is_flushed_already: bool,
    /// An event popped by a thread that must not wait for the disk. Boxed, because it is rare and
    /// most partitions are idle.
    deferred: Option<Box<PartitionEvent>>,
    held: HeldAppends,
    topic_id_file: TopicIdFile,
    verifications: Verifications,
    unverified: Unverified,
    replicating: Replicating,
    append_meter: AppendMeter,
}

/// Boxed, because hardly any partition has them.
#[derive(Default)]
struct LegacyMessages(Vec<LegacyMessage>);

/// Flushes of a log run one at a time; requests that wait for the same bytes share one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FlushState {
    Idle,
    /// A flush is running or waits for disk space. The offset is that of the next flush, if one is
    /// needed.
    Running(Option<Offset>),
}

/// Whether the log has `partition.metadata`.
#[derive(Default)]
enum TopicIdFile {
    #[default]
    OnDisk,
    Missing,
    /// It is being written; the senders are dropped after the attempt.
    Underway(Vec<oneshot::Sender<()>>),
    /// Writing it failed and is retried. Until then appends are refused.
    Failed,
}

impl TopicIdFile {
    fn is_missing(&self) -> bool {
        matches!(self, TopicIdFile::Missing)
    }
}

/// Replication state of a partition beyond the replica itself.
#[derive(Debug, Default)]
struct Replicating {
    /// The fetcher that has this follower's position.
    fetcher: Option<Arc<dyn LeaderFetcher>>,
    /// The last proposal that the controller refused.
    refused: Option<Box<AlterPartition>>,
    /// Fetched from remote storage, for the truncation that comes next.
    remote_state: Option<Box<RemoteState>>,
    /// The last proposal adds a replica to the ISR.
    proposes_more: bool,
    /// The error of the next truncation.
    #[cfg(test)]
    truncation_fault: Option<std::io::Error>,
}

impl PartitionState {
    fn new(replica: Replica<Ack>, log: Log) -> Self {
        PartitionState {
            replica,
            log,
            unwritten: Vec::new(),
            unwritten_legacy: None,
            stage: ProducerStage::default(),
            flush: FlushState::Idle,
            is_flushed_already: false,
            deferred: None,
            held: HeldAppends::default(),
            topic_id_file: TopicIdFile::default(),
            verifications: Verifications::default(),
            unverified: Unverified::default(),
            replicating: Replicating::default(),
            append_meter: AppendMeter::default(),
        }
    }
}

impl Partition {
    pub fn new(
        replica_config: Arc<ReplicaConfig>,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        log: Log,
        dir: Arc<DirResources>,
        topic_metrics: Arc<TopicMetrics>,
        settings: Arc<PartitionSettings>,
    ) -> Arc<Self> {
        let log_location = LogLocation {
            reader: log.reader(),
            dir,
        };
        let replica = Replica::new(
            replica_config,
            log.log_end_offset(),
            log.high_watermark(),
            log.reader().recovery_point(),
            log.latest_epoch(),
        )
        .doubtful_from(log.doubtful_from());
        Arc::new(Partition {
            topic_partition,
            topic_id,
            log_location: ArcSwap::from_pointee(log_location),
            settings: ArcSwap::new(settings),
            inbox: Inbox::new(INBOX_BOUND_BYTES),
            state: Mutex::new(PartitionState::new(replica, log)),
            topic_metrics,
            changes: RareNotify::default(),
            waiters: Waiters::default(),
            followers: Waiters::default(),
            follower_turns: FollowerTurns::default(),
            readers: Readers::default(),
            is_leader: AtomicBool::new(false),
            is_lost: AtomicBool::new(false),
            leader_epoch: AtomicI32::new(LeaderEpoch::UNKNOWN.0),
            leader_epoch_start_offset: AtomicI64::new(i64::MIN),
            fetch_lag: AtomicI64::new(-1),
            has_failed_fetching: AtomicBool::new(false),
            timer_ms: AtomicI64::new(i64::MAX),
        })
    }

    pub fn topic_id_partition(&self) -> TopicIdPartition {
        TopicIdPartition {
            topic_id: self.topic_id,
            partition: self.topic_partition.partition,
        }
    }

    /// The log's reader. Never waits for an append.
    pub fn reader(&self) -> Reading {
        Reading(self.log_location.load())
    }

    /// The current log and its directory's resources.
    pub fn log_location(&self) -> ottla_sync::Guard<Arc<LogLocation>> {
        self.log_location.load()
    }

    pub fn settings(&self) -> ottla_sync::Guard<Arc<PartitionSettings>> {
        self.settings.load()
    }

    pub fn is_leader(&self) -> bool {
        self.is_leader.load(Ordering::Acquire)
    }

    /// Whether its log was lost with its directory.
    pub fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }

    pub fn leader_epoch(&self) -> LeaderEpoch {
        LeaderEpoch(self.leader_epoch.load(Ordering::Acquire))
    }

    /// This follower's lag behind the leader's high watermark at the last fetch response, in
    /// records.
    pub fn fetch_lag(&self) -> Option<i64> {
        Some(self.fetch_lag.load(Ordering::Relaxed)).filter(|&lag| lag >= 0)
    }

    /// Whether this follower was fenced by its leader and waits for newer metadata.
    pub fn has_failed_fetching(&self) -> bool {
        self.has_failed_fetching.load(Ordering::Relaxed)
    }

    /// Whether this leader may not know all records committed by its predecessor: its high
    /// watermark is below the start of its epoch.
    pub fn is_high_watermark_behind(&self) -> bool {
        let epoch_start = self.leader_epoch_start_offset.load(Ordering::Acquire);
        epoch_start > self.reader().high_watermark().0
    }

    /// Checks that this broker leads the partition in the requested leader epoch (KIP-320); -1
    /// means any epoch. A lost log is `KAFKA_STORAGE_ERROR`, whatever the epoch.
    pub fn check_leader(&self, current_leader_epoch: i32) -> Result<(), ErrorCode> {
        self.check_replica(current_leader_epoch)?;
        match self.is_leader() {
            true => Ok(()),
            false => Err(ErrorCode::NotLeaderOrFollower),
        }
    }

    /// The same for requests that followers may serve.
    pub fn check_replica(&self, current_leader_epoch: i32) -> Result<(), ErrorCode> {
        if self.is_lost() {
            return Err(ErrorCode::KafkaStorageError);
        }
        let in_force = self.leader_epoch().0;
        if current_leader_epoch >= 0 && current_leader_epoch < in_force {
            return Err(ErrorCode::FencedLeaderEpoch);
        }
        if current_leader_epoch > in_force {
            return Err(ErrorCode::UnknownLeaderEpoch);
        }
        Ok(())
    }

    /// Wakes all waiting requests to check the partition again.
    pub fn wake_all(&self) {
        self.waiters.wake_all();
        self.followers.wake_all();
        self.changes.notify_waiters();
    }

    pub fn is_over_bound(&self) -> bool {
        self.inbox.is_over_bound()
    }

    /// Returns when the inbox is below its bound.
    pub async fn has_room(&self) {
        loop {
            let room = self.changes.to_wait().notified();
            if !self.inbox.is_over_bound() {
                return;
            }
            room.await;
        }
    }

    /// Publishes the replica's state for readers, and wakes them if its role or epoch changed or
    /// its log was lost.
    /// Called by the holder of the token.
    fn publish(&self, replica: &Replica<Ack>) {
        let (leader_epoch, is_leader) = (replica.leader_epoch().0, replica.is_leader());
        let epoch_start = replica.leader_epoch_start_offset();
        self.leader_epoch_start_offset
            .store(epoch_start.map_or(i64::MIN, |it| it.0), Ordering::Release);
        let is_lost = replica.is_lost();
        // Only the token holder writes them.
        let before = (
            self.leader_epoch.load(Ordering::Relaxed),
            self.is_leader.load(Ordering::Relaxed),
            self.is_lost.load(Ordering::Relaxed),
        );
        self.leader_epoch.store(leader_epoch, Ordering::Release);
        self.is_leader.store(is_leader, Ordering::Release);
        self.is_lost.store(is_lost, Ordering::Release);
        let fetch_lag = replica.fetch_lag().unwrap_or(-1);
        self.fetch_lag.store(fetch_lag, Ordering::Relaxed);
        let has_failed = replica.has_failed_fetching();
        self.has_failed_fetching
            .store(has_failed, Ordering::Relaxed);
        if before != (leader_epoch, is_leader, is_lost) {
            self.wake_all();
        }
    }
}

impl std::fmt::Debug for Partition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Partition({})", self.topic_partition)
    }
}
