//! One partition as this broker keeps it: the replica, its log, and everybody who waits for either.
//!
//! Whatever changes a partition is an event in its [`Inbox`]. Whoever puts one in and finds the run token
//! free steps the replica on the spot, on the thread that read the request, and executes the effects;
//! whoever finds it taken goes on. Appends that stand next to each other are written at once. Readers
//! never take the token: they use the [`LogReader`] and the few published numbers.
//!
//! This file has the state of a partition. It uses the first group of modules, its parts and events, which know no partition.
//! The second group uses it: `requests` fill the inbox, `stepping` drains it, `execute` carries the effects out.
//!
//! Invariants:
//! 1. Replica and log are touched only by the holder of the run token. The lock around them is never
//!    waited for: the token excludes others, and finding it taken is a broken invariant.
//! 2. A holder works for at most `stepping::BUDGET_BYTES` and then hands the token to a task of its own, so that a
//!    connection is not kept from its other requests by what others append.
//! 3. Nothing here waits for the disk. Flushes run on threads of their own and come back as events.
//! 4. A panic between two events ends the process: see `docs/decisions/0007-what-ends-the-process.md`.
//!
//! Kafka does the same under the leader's ISR lock and the log's lock in `Partition` and `UnifiedLog`.

mod append;
pub mod append_pace;
mod event;
mod follower_turns;
mod held_appends;
mod home;
mod inbox;
#[cfg(test)]
mod inbox_tests;
mod isolation;
pub mod leader_answer;
mod primitives;
pub mod producer_transaction;
mod readers;
mod settings;
mod unverified;
mod waiters;

mod append_hold;
mod execute;
mod follower_fetches;
pub mod host;
mod page_cache;
mod requests;
mod stepping;
mod topic_ids;

use std::sync::Arc;

use ottla_log::{Log, ProducerStage, Verifications};
use ottla_metrics::topic_metrics::TopicMetrics;
use ottla_records::RecordBatch;
use ottla_records::legacy::LegacyMessage;
use ottla_replica::{AlterPartition, Effect, FetchPosition, Replica, ReplicaConfig};
use ottla_storage::log_dirs::{DirThreads, DiskSpace};
use ottla_sync::ArcSwap;
use ottla_sync::Mutex;
use ottla_sync::Notify;
use ottla_sync::atomic::{AtomicBool, AtomicI32, AtomicI64, Ordering};
use ottla_sync::oneshot;
use ottla_types::{
    BrokerId, ErrorCode, LeaderEpoch, Offset, TopicId, TopicIdPartition, TopicPartition,
};

use append_pace::AppendPace;
use event::PartitionEvent;
use held_appends::HeldAppends;
use inbox::Inbox;
use readers::Readers;
use unverified::Unverified;

pub use append::{Ack, AppendPlace, AwaitsAppends, OfTransaction, PendingAppend};
pub use append_hold::AppendHold;
pub use follower_turns::{FollowerFetches, FollowerTurns, FollowerVerdict, LateTurns};
pub use home::{Home, Reading};
pub use isolation::Isolation;
pub use requests::ReservedPlace;
pub use settings::PartitionSettings;
pub use waiters::{Waiter, Waiters};

/// From here on, connections that have put something into the inbox stop being read.
const INBOX_BOUND_BYTES: usize = 16 * 1024 * 1024;

/// One partition of which this broker has a replica.
pub struct Partition {
    pub topic_partition: TopicPartition,
    pub topic_id: TopicId,
    home: ArcSwap<Home>,
    settings: ArcSwap<PartitionSettings>,
    inbox: Inbox<PartitionEvent>,
    stepped: Mutex<Stepped>,
    pub topic_metrics: Arc<TopicMetrics>,
    /// Raised when the inbox has fallen below its bound.
    room: Notify,
    /// Consumers that wait for the high watermark.
    pub waiters: Waiters,
    /// Followers that wait for the log end.
    pub followers: Waiters,
    pub follower_turns: FollowerTurns,
    /// Raised when the low watermark of this leader's followers has moved, and when it leads no more.
    pub low_watermark_moved: Notify,
    pub readers: Readers,
    /// What readers know of the replica; written by the holder of the token.
    is_leader: AtomicBool,
    is_lost: AtomicBool,
    leader_epoch: AtomicI32,
    /// `i64::MIN` where this replica does not lead.
    leader_epoch_start_offset: AtomicI64,
    /// How far a follower was behind when it heard of its leader last; -1 where that is not known.
    fetch_lag: AtomicI64,
    has_failed_fetching: AtomicBool,
    /// When the first parked acknowledgement gives up and a task already waits for that; `i64::MAX`
    /// where none does.
    timer_ms: AtomicI64,
}

/// Fetches from one leader for the followers on this broker.
pub trait LeaderFetcher: std::fmt::Debug + Send + Sync {
    /// Whether this is the fetcher that fetches the partition from that leader.
    fn is_for(&self, leader: BrokerId, topic_partition: &TopicPartition) -> bool;

    /// Gives a standing order, which replaces the one before.
    fn order(&self, partition: &Arc<Partition>, position: FetchPosition);

    /// Takes the order of a partition back.
    fn stop(&self, partition: &Partition);

    /// Has the leader asked where its log starts and ends.
    fn list_leader_offsets(&self, partition: &Arc<Partition>, leader_epoch: LeaderEpoch);
}

/// What only the holder of the run token touches.
struct Stepped {
    replica: Replica<Ack>,
    log: Log,
    /// Batches that `WriteLog` asked for and that are not written.
    unwritten: Vec<RecordBatch>,
    /// The same of old formats. Only a follower has them, and never both.
    unwritten_legacy: Vec<LegacyMessage>,
    /// What `unwritten` will have made of the producers.
    stage: ProducerStage,
    /// Kept for its capacity.
    effects: Vec<Effect<Ack>>,
    flush: FlushState,
    /// Taken out of the inbox by a thread that may not wait for the disk.
    deferred: Option<PartitionEvent>,
    held: HeldAppends,
    topic_id_file: TopicIdFile,
    verifications: Verifications,
    unverified: Unverified,
    replicating: Replicating,
}

/// Flushes of one log run one at a time, so that those who wait for the same bytes share one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FlushState {
    Idle,
    /// One is under way, or waits for space on the disk; another is wanted up to here where there is an
    /// offset.
    Running(Option<Offset>),
}

/// Whether a log has `partition.metadata`. Only the holder of the run token changes it.
#[derive(Default)]
enum TopicIdFile {
    #[default]
    OnDisk,
    Missing,
    /// It is being written; whoever waits for that is told when it has been tried.
    Underway(Vec<oneshot::Sender<()>>),
    /// It could not be written and is tried again. Until then nothing is written to the log.
    Failed,
}

impl TopicIdFile {
    fn is_missing(&self) -> bool {
        matches!(self, TopicIdFile::Missing)
    }
}

/// What a partition has going with others about replication.
#[derive(Debug, Default)]
struct Replicating {
    /// Who has the order of this follower.
    fetcher: Option<Arc<dyn LeaderFetcher>>,
    /// The proposal that the controller refused last.
    refused: Option<AlterPartition>,
    /// The proposal that was made last adds a replica.
    proposes_more: bool,
    /// How the next truncation fails.
    #[cfg(test)]
    truncation_fault: Option<std::io::Error>,
}

impl Stepped {
    fn new(replica: Replica<Ack>, log: Log) -> Self {
        Stepped {
            replica,
            log,
            unwritten: Vec::new(),
            unwritten_legacy: Vec::new(),
            stage: ProducerStage::default(),
            effects: Vec::new(),
            flush: FlushState::Idle,
            deferred: None,
            held: HeldAppends::default(),
            topic_id_file: TopicIdFile::default(),
            verifications: Verifications::default(),
            unverified: Unverified::default(),
            replicating: Replicating::default(),
        }
    }
}

impl Partition {
    pub fn new(
        replica_config: ReplicaConfig,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        log: Log,
        pace: Arc<AppendPace>,
        space: Arc<DiskSpace>,
        threads: DirThreads,
        topic_metrics: Arc<TopicMetrics>,
        settings: Arc<PartitionSettings>,
    ) -> Arc<Self> {
        let home = Home {
            reader: log.reader(),
            pace,
            space,
            threads,
        };
        let replica = Replica::new(
            replica_config,
            log.log_end_offset(),
            log.high_watermark(),
            log.reader().recovery_point(),
            log.latest_epoch(),
        );
        Arc::new(Partition {
            topic_partition,
            topic_id,
            home: ArcSwap::from_pointee(home),
            settings: ArcSwap::new(settings),
            inbox: Inbox::new(INBOX_BOUND_BYTES),
            stepped: Mutex::new(Stepped::new(replica, log)),
            topic_metrics,
            room: Notify::new(),
            waiters: Waiters::default(),
            followers: Waiters::default(),
            follower_turns: FollowerTurns::default(),
            low_watermark_moved: Notify::new(),
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

    /// For reading: never waits for an append.
    pub fn reader(&self) -> Reading {
        Reading(self.home.load())
    }

    /// Where its log lies now.
    pub fn home(&self) -> ottla_sync::Guard<Arc<Home>> {
        self.home.load()
    }

    pub fn settings(&self) -> ottla_sync::Guard<Arc<PartitionSettings>> {
        self.settings.load()
    }

    pub fn is_leader(&self) -> bool {
        self.is_leader.load(Ordering::Acquire)
    }

    /// Whether its log is gone with its directory.
    pub fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }

    pub fn leader_epoch(&self) -> LeaderEpoch {
        LeaderEpoch(self.leader_epoch.load(Ordering::Acquire))
    }

    /// How far this follower was behind its leader's high watermark when it last heard of it.
    pub fn fetch_lag(&self) -> Option<i64> {
        Some(self.fetch_lag.load(Ordering::Relaxed)).filter(|&lag| lag >= 0)
    }

    /// Whether this follower was fenced by its leader and waits for newer metadata.
    pub fn has_failed_fetching(&self) -> bool {
        self.has_failed_fetching.load(Ordering::Relaxed)
    }

    /// Whether this leader may not know of all that its predecessor had committed: its high watermark lies before the
    /// start of its epoch.
    pub fn is_high_watermark_behind(&self) -> bool {
        let epoch_start = self.leader_epoch_start_offset.load(Ordering::Acquire);
        epoch_start > self.reader().high_watermark().0
    }

    /// Whether this broker leads the partition, in the leader epoch that the request names (KIP-320).
    /// -1 names none. Of a lost log nothing is said but that.
    pub fn check_leader(&self, current_leader_epoch: i32) -> Result<(), ErrorCode> {
        self.check_replica(current_leader_epoch)?;
        match self.is_leader() {
            true => Ok(()),
            false => Err(ErrorCode::NotLeaderOrFollower),
        }
    }

    /// The same, for those who may be served by a follower.
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

    /// Has everybody who waits here look again.
    pub fn wake_all(&self) {
        self.waiters.wake_all();
        self.followers.wake_all();
        self.low_watermark_moved.notify_waiters();
    }

    pub fn is_over_bound(&self) -> bool {
        self.inbox.is_over_bound()
    }

    /// Ends when the inbox is below its bound.
    pub async fn has_room(&self) {
        loop {
            let room = self.room.notified();
            if !self.inbox.is_over_bound() {
                return;
            }
            room.await;
        }
    }

    /// Publishes what readers have to know of the replica, and wakes them where it has another role. Called by the
    /// holder of the token.
    fn publish(&self, replica: &Replica<Ack>) {
        let (leader_epoch, is_leader) = (replica.leader_epoch().0, replica.is_leader());
        let epoch_start = replica.leader_epoch_start_offset();
        self.leader_epoch_start_offset
            .store(epoch_start.map_or(i64::MIN, |it| it.0), Ordering::Release);
        // Only the holder writes them.
        let before = (
            self.leader_epoch.load(Ordering::Relaxed),
            self.is_leader.load(Ordering::Relaxed),
        );
        self.leader_epoch.store(leader_epoch, Ordering::Release);
        self.is_leader.store(is_leader, Ordering::Release);
        self.is_lost.store(replica.is_lost(), Ordering::Release);
        let fetch_lag = replica.fetch_lag().unwrap_or(-1);
        self.fetch_lag.store(fetch_lag, Ordering::Relaxed);
        let has_failed = replica.has_failed_fetching();
        self.has_failed_fetching
            .store(has_failed, Ordering::Relaxed);
        if before != (leader_epoch, is_leader) {
            self.wake_all();
        }
    }
}

impl std::fmt::Debug for Partition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Partition({})", self.topic_partition)
    }
}
