//! One partition as this broker keeps it: the replica, its log, and everybody who waits for either.
//!
//! Whatever changes a partition is an event in its [`Inbox`]. Whoever puts one in and finds the run token
//! free steps the replica on the spot, on the thread that read the request, and executes the effects;
//! whoever finds it taken goes on. Appends that stand next to each other are written at once. Readers
//! never take the token: they use the [`LogReader`] and the few published numbers.
//!
//! Invariants:
//! 1. Replica and log are touched only by the holder of the run token. The lock around them is never
//!    waited for: the token excludes others, and finding it taken is a broken invariant.
//! 2. A holder works for at most [`BUDGET_BYTES`] and then hands the token to a task of its own, so that a
//!    connection is not kept from its other requests by what others append.
//! 3. Nothing here waits for the disk. Flushes run on threads of their own and come back as events.
//! 4. A panic between two events ends the process: see `docs/decisions/0007-what-ends-the-process.md`.
//!
//! Kafka does the same under the leader's ISR lock and the log's lock in `Partition` and `UnifiedLog`.

pub mod append_pace;
mod execute;
mod follower_fetches;
mod held_appends;
pub mod host;
mod inbox;
#[cfg(test)]
mod inbox_tests;
mod isolation;
pub mod leader_answer;
mod page_cache;
mod primitives;
pub mod producer_transaction;
mod readers;
mod settings;
mod topic_ids;
mod waiters;

use std::sync::Arc;

use ottla_config::TopicConfig;
use ottla_coordinator::TransactionalProducer;
use ottla_log::{CloseJob, JobOutcome, Log, LogReader};
use ottla_records::RecordBatch;
use ottla_replica::{AckOutcome, Event, FollowerFetch, Replica, ReplicaConfig, RequiredAcks};
use ottla_sync::ArcSwap;
use ottla_sync::Mutex;
use ottla_sync::atomic::{AtomicBool, AtomicI32, AtomicI64, Ordering};
use ottla_sync::{Notify, oneshot};
use ottla_types::{ErrorCode, LeaderEpoch, Offset, TopicId, TopicIdPartition, TopicPartition};

use append_pace::AppendPace;
use execute::TopicIdEvent;
use execute::{BeginVerification, Stepped, Truncation, Verified};
use follower_fetches::Turn;
use host::PartitionHost;
use inbox::{Inbox, Place, RunToken};
use leader_answer::LeaderAnswer;
use ottla_metrics::stalls;
use ottla_metrics::topic_metrics::TopicMetrics;
use ottla_storage::log_dirs::{DirThreads, DiskSpace};
use readers::Readers;

pub use execute::OfTransaction;
pub use follower_fetches::{FollowerFetches, FollowerTurns, FollowerVerdict, LateTurns};
pub use held_appends::AppendHold;
pub use isolation::Isolation;
pub use settings::PartitionSettings;
pub use waiters::{Waiter, Waiters};

/// What a holder of the run token does before it hands it to a task.
const BUDGET_BYTES: usize = 4 * 1024 * 1024;
/// What an event that carries no records counts for in the budget.
const EVENT_BYTES: usize = 1024;
/// From here on, connections that have put something into the inbox stop being read.
const INBOX_BOUND_BYTES: usize = 16 * 1024 * 1024;

/// One batch on its way into a partition.
#[derive(Debug)]
pub struct PendingAppend {
    /// Validated; offset and leader epoch are assigned by the replica.
    pub batch: RecordBatch,
    pub required_acks: RequiredAcks,
    pub expected_leader_epoch: Option<LeaderEpoch>,
    pub of_transaction: OfTransaction,
    /// On the broker's own clock.
    pub deadline_ms: u64,
    pub ack: Ack,
}

/// Who waits for an append.
pub enum Ack {
    /// A part of a client's request.
    Request {
        request: Arc<dyn AwaitsAppends>,
        place: AppendPlace,
    },
    /// A coordinator of this broker.
    Internal(oneshot::Sender<AckOutcome>),
}

/// Where the answer for a partition stands in the response of a request: indices of its topic and of the partition there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AppendPlace {
    pub topic: usize,
    pub partition: usize,
}

/// A request that waits for appends to several partitions.
pub trait AwaitsAppends: Send + Sync {
    /// What became of one of them. Called once for each, by whichever thread steps the partition then.
    fn on_released(&self, place: AppendPlace, outcome: AckOutcome);
}

impl std::fmt::Debug for Ack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ack")
    }
}

impl PendingAppend {
    /// What it counts for in the inbox.
    fn bytes(&self) -> usize {
        EVENT_BYTES + self.batch.size_in_bytes()
    }
}

impl Ack {
    fn release(self, outcome: AckOutcome) {
        match self {
            Ack::Request { request, place } => request.on_released(place, outcome),
            // Nobody waits any more where the receiver is gone.
            Ack::Internal(waiting) => drop(waiting.send(outcome)),
        }
    }
}

/// What can be put into the inbox.
enum PartitionEvent {
    Append(PendingAppend),
    /// From here on appends are set aside, and whoever asked for it is told.
    HoldAppends(oneshot::Sender<()>),
    LetAppendsGo,
    /// How it stands with the file that says of which topic the log is.
    TopicId(TopicIdEvent),
    Replica(Event<Ack>),
    /// Another replica fetches from this one.
    FollowerFetch(FollowerFetch, Turn),
    /// The leader has answered this replica's fetch.
    LeaderAnswered(LeaderAnswer),
    /// The log is to be cut: runs next after the step that asked for it.
    Truncate(Truncation),
    /// A coordinator wants to append to a transaction, and asks whether it has begun here.
    BeginVerification(BeginVerification),
    /// The coordinator of a transaction has said whether this partition is part of it.
    TransactionVerified(Verified),
    /// Looks at how things stand between two steps.
    Look(Box<dyn FnOnce(&Replica<Ack>, &Log) + Send>),
    /// Maintenance of the log: runs between two steps.
    Work(Box<dyn FnOnce(&mut Log) + Send>),
    /// Another log takes the place of this one: runs between two steps, and may wait for the disk. Where it
    /// comes to nothing, the log is as it was.
    Replace(Box<dyn FnOnce(&mut Log) -> Option<Home> + Send>),
    /// What a job left that the log is to be told, if it is still the log of this partition.
    JobDone(LogReader, JobOutcome),
    /// The flush of everything before `up_to`, which ran on a maintenance thread, has ended. What is on the disk by it, the
    /// recovery point of the log says: one that a truncation has overtaken says nothing of what was written since.
    FlushEnded {
        log: LogReader,
        up_to: Offset,
        result: Result<(), ottla_log::StorageError>,
    },
    /// Somebody else has flushed the log.
    Flushed,
    /// It is time for the flush that a full disk refused.
    FlushDue,
    /// Maintenance that nobody waits for has failed: a spare file, a deletion, writeback.
    JobFailed(LogReader, ottla_log::StorageError),
}

impl PartitionEvent {
    fn bytes(&self) -> usize {
        match self {
            PartitionEvent::Append(append) => append.bytes(),
            PartitionEvent::LeaderAnswered(answer) => EVENT_BYTES + answer.size_in_bytes(),
            PartitionEvent::HoldAppends(_)
            | PartitionEvent::LetAppendsGo
            | PartitionEvent::TopicId(_)
            | PartitionEvent::Replica(_)
            | PartitionEvent::FollowerFetch(..)
            | PartitionEvent::Truncate(_)
            | PartitionEvent::BeginVerification(_)
            | PartitionEvent::TransactionVerified(_)
            | PartitionEvent::Look(_)
            | PartitionEvent::Work(_)
            | PartitionEvent::Replace(_)
            | PartitionEvent::JobDone(..)
            | PartitionEvent::FlushEnded { .. }
            | PartitionEvent::Flushed
            | PartitionEvent::FlushDue
            | PartitionEvent::JobFailed(..) => EVENT_BYTES,
        }
    }

    /// Whether the log may grow by it.
    fn brings_records(&self) -> bool {
        match self {
            PartitionEvent::Append(_) => true,
            PartitionEvent::LeaderAnswered(answer) => answer.size_in_bytes() > 0,
            _ => false,
        }
    }

    /// Only for a thread that serves no connections.
    fn may_wait(&self) -> bool {
        matches!(
            self,
            PartitionEvent::Replace(_) | PartitionEvent::Truncate(_)
        )
    }
}

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

/// Where the log of a partition lies. Another takes its place when the log is moved to another directory.
pub struct Home {
    pub reader: LogReader,
    pub pace: Arc<AppendPace>,
    pub space: Arc<DiskSpace>,
    pub threads: DirThreads,
}

/// A log that is read, and stays readable for as long as this is held, even if another takes its place.
pub struct Reading(ottla_sync::Guard<Arc<Home>>);

impl std::ops::Deref for Reading {
    type Target = LogReader;

    fn deref(&self) -> &LogReader {
        &self.0.reader
    }
}

/// A place in the inbox of a partition, given up when it is dropped unfilled.
pub struct ReservedPlace {
    host: Arc<PartitionHost>,
    partition: Arc<Partition>,
    place: Option<Place>,
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
        settings: PartitionSettings,
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
            settings: ArcSwap::from_pointee(settings),
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

    /// Appends a batch; its acknowledgement is released when its time has come.
    pub fn append(self: &Arc<Self>, host: &Arc<PartitionHost>, append: PendingAppend) {
        self.put(host, PartitionEvent::Append(append));
    }

    /// Tells the replica that something happened.
    pub fn notify(self: &Arc<Self>, host: &Arc<PartitionHost>, event: Event<Ack>) {
        self.put(host, PartitionEvent::Replica(event));
    }

    /// Tells the replica that more of its log is on the disk.
    pub fn on_flushed(self: &Arc<Self>, host: &Arc<PartitionHost>) {
        self.put(host, PartitionEvent::Flushed);
    }

    /// Begins to verify that this partition is part of a transaction, for a coordinator that is about to append
    /// to it. `None` where the transaction has begun here, and nobody needs to be asked.
    pub async fn begin_verification(
        self: &Arc<Self>,
        host: &Arc<PartitionHost>,
        producer: TransactionalProducer,
        raises_epoch: bool,
    ) -> Result<Option<u64>, ErrorCode> {
        let (done, begun) = oneshot::channel();
        let event = BeginVerification {
            producer,
            raises_epoch,
            done,
        };
        self.put(host, PartitionEvent::BeginVerification(event));
        begun.await.unwrap_or(Err(ErrorCode::NotLeaderOrFollower))
    }

    /// What the coordinator of a transaction says about this partition.
    pub fn on_transaction_verified(
        self: &Arc<Self>,
        host: &Arc<PartitionHost>,
        producer: TransactionalProducer,
        guard: u64,
        result: Result<(), ErrorCode>,
    ) {
        let event = Verified {
            producer,
            guard,
            result,
        };
        self.put(host, PartitionEvent::TransactionVerified(event));
    }

    /// Runs something on the log between two steps, and returns what it came to. The work must not
    /// wait: no flush, no unlink, no read from the disk.
    pub async fn with_log<R: Send + 'static>(
        self: &Arc<Self>,
        host: &Arc<PartitionHost>,
        work: impl FnOnce(&mut Log) -> R + Send + 'static,
    ) -> Option<R> {
        let (done, result) = oneshot::channel();
        let work = Box::new(move |log: &mut Log| drop(done.send(work(log))));
        self.put(host, PartitionEvent::Work(work));
        result.await.ok()
    }

    /// Hands over what the leader answered to an order of this replica.
    pub fn on_leader_answered(self: &Arc<Self>, host: &Arc<PartitionHost>, answer: LeaderAnswer) {
        self.put(host, PartitionEvent::LeaderAnswered(answer));
    }

    /// Looks at replica and log between two steps; `None` where the partition is gone.
    pub async fn look<R: Send + 'static>(
        self: &Arc<Self>,
        host: &Arc<PartitionHost>,
        look: impl FnOnce(&Replica<Ack>, &Log) -> R + Send + 'static,
    ) -> Option<R> {
        let (done, result) = oneshot::channel();
        // Whoever asked may have gone.
        let look = Box::new(move |replica: &Replica<Ack>, log: &Log| {
            drop(done.send(look(replica, log)));
        });
        self.put(host, PartitionEvent::Look(look));
        result.await.ok()
    }

    /// Has everybody who waits here look again.
    pub fn wake_all(&self) {
        self.waiters.wake_all();
        self.followers.wake_all();
        self.low_watermark_moved.notify_waiters();
    }

    /// Has another log take the place of this one between two steps: `replace` makes sure that it holds the
    /// same and puts it there, and may wait for the disk.
    pub fn replace_log(
        self: &Arc<Self>,
        host: &Arc<PartitionHost>,
        replace: impl FnOnce(&mut Log) -> Option<Home> + Send + 'static,
    ) {
        self.put(host, PartitionEvent::Replace(Box::new(replace)));
    }

    /// Takes nothing more, answers whoever waits, and returns the work that brings the log to rest.
    pub async fn close(self: &Arc<Self>, host: &Arc<PartitionHost>) -> Option<CloseJob> {
        self.notify(host, Event::LogLost);
        self.wake_all();
        self.with_log(host, Log::close_job).await
    }

    /// Puts changed settings in force.
    pub fn set_config(self: &Arc<Self>, host: &Arc<PartitionHost>, config: Arc<TopicConfig>) {
        let max_request_bytes = host.context.config().socket_request_max_bytes;
        let (partition, broker_id) = (self.topic_partition.partition, host.context.broker_id());
        let settings = PartitionSettings::new(&config, max_request_bytes, partition, broker_id);
        let of_replica = settings.replica;
        self.settings.store(Arc::new(settings));
        let work = Box::new(move |log: &mut Log| log.set_config(config));
        self.put(host, PartitionEvent::Work(work));
        self.notify(host, Event::SettingsChanged(of_replica));
    }

    /// Takes a turn for an append that is not ready yet.
    pub fn reserve(self: &Arc<Self>, host: &Arc<PartitionHost>, bytes: usize) -> ReservedPlace {
        ReservedPlace {
            host: Arc::clone(host),
            partition: Arc::clone(self),
            place: Some(self.inbox.reserve(bytes)),
        }
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

    fn put(self: &Arc<Self>, host: &Arc<PartitionHost>, event: PartitionEvent) {
        let bytes = event.bytes();
        if let Some(token) = self.inbox.push(event, bytes) {
            self.run_where_it_belongs(host, token);
        }
    }

    /// Works off the inbox: on this thread, or on one of its own where the log directory makes writers
    /// wait.
    fn run_where_it_belongs(self: &Arc<Self>, host: &Arc<PartitionHost>, token: RunToken) {
        if self.home.load().pace.is_slow(|| host.context.now_ms()) {
            self.run_elsewhere(host, token);
        } else {
            self.run(host, token, false);
        }
    }

    fn run_elsewhere(self: &Arc<Self>, host: &Arc<PartitionHost>, token: RunToken) {
        let (partition, host) = (Arc::clone(self), Arc::clone(host));
        self.home.load().threads.appends.start(move || {
            stalls::on_other_thread(|| partition.run(&host, token, true));
        });
    }

    /// Works off the inbox until it is empty, or the budget is used up and a task goes on. What may wait
    /// for the disk goes to a thread that `may_wait`.
    fn run(self: &Arc<Self>, host: &Arc<PartitionHost>, mut token: RunToken, may_wait: bool) {
        let mut budget = BUDGET_BYTES;
        loop {
            self.inbox.look(&mut token);
            let watched = stalls::watch();
            let unwinding = EndOnUnwind(&self.topic_partition);
            let mut stepped = self
                .stepped
                .try_lock()
                .expect("the run token excludes others");
            let mut is_used_up = false;
            let mut has_to_wait = false;
            while let Some(event) = self.next_event(&mut stepped, &mut token) {
                if event.may_wait() && !may_wait {
                    stepped.defer(event);
                    has_to_wait = true;
                    break;
                }
                let bytes = event.bytes();
                stepped.take(self, host, event);
                match budget.checked_sub(bytes) {
                    Some(rest) => budget = rest,
                    None => {
                        is_used_up = true;
                        break;
                    }
                }
            }
            stepped.finish(self, host);
            drop(stepped);
            std::mem::forget(unwinding);
            watched.end("holding the run token", &self.topic_partition);
            if token.take_room_made() {
                self.room.notify_waiters();
            }
            if has_to_wait {
                return self.run_elsewhere(host, token);
            }
            if is_used_up {
                let (partition, host) = (Arc::clone(self), Arc::clone(host));
                ottla_sync::task::spawn(
                    async move { partition.run_where_it_belongs(&host, token) },
                );
                return;
            }
            match self.inbox.release(token) {
                Some(still_mine) => token = still_mine,
                None => return,
            }
        }
    }

    /// What was put off comes before what came after it.
    fn next_event(&self, stepped: &mut Stepped, token: &mut RunToken) -> Option<PartitionEvent> {
        if let Some(deferred) = stepped.take_deferred() {
            return Some(deferred);
        }
        if let Some(let_go) = stepped.take_let_go() {
            self.inbox.uncount(token, let_go.bytes());
            return Some(let_go);
        }
        self.inbox.pop(token)
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

    /// Sees to it that the clock ticks for the replica when the first acknowledgement gives up.
    fn set_timer(self: &Arc<Self>, host: &Arc<PartitionHost>, deadline_ms: u64) {
        let deadline_ms = i64::try_from(deadline_ms).unwrap_or(i64::MAX);
        if self.timer_ms.fetch_min(deadline_ms, Ordering::AcqRel) <= deadline_ms {
            return;
        }
        let (partition, host) = (Arc::clone(self), Arc::clone(host));
        ottla_sync::task::spawn(async move {
            let wait_ms = (deadline_ms as u64).saturating_sub(host.context.now_ms());
            ottla_sync::time::sleep(std::time::Duration::from_millis(wait_ms)).await;
            partition.timer_ms.store(i64::MAX, Ordering::Release);
            let now_ms = host.context.now_ms().max(deadline_ms as u64);
            partition.notify(&host, Event::ClockTicked { now_ms });
        });
    }
}

/// Ends the process when it is dropped, which only a panic does: the replica may believe in appends that
/// the log does not have, or the other way round, and the token would never be given back. The next start
/// recovers from what is on disk, as after any crash.
struct EndOnUnwind<'a>(&'a TopicPartition);

impl Drop for EndOnUnwind<'_> {
    fn drop(&mut self) {
        tracing::error!(
            "aborting: a panic left {} in an unknown state; the next start recovers what was \
             acknowledged",
            self.0
        );
        ottla_sync::process::abort();
    }
}

impl ReservedPlace {
    pub fn fill(mut self, append: PendingAppend) {
        let Some(place) = self.place.take() else {
            return;
        };
        let event = PartitionEvent::Append(append);
        if let Some(token) = self.partition.inbox.fill(place, event) {
            self.partition.run_where_it_belongs(&self.host, token);
        }
    }
}

impl Drop for ReservedPlace {
    fn drop(&mut self) {
        let Some(place) = self.place.take() else {
            return;
        };
        if let Some(token) = self.partition.inbox.abandon(place) {
            self.partition.run_where_it_belongs(&self.host, token);
        }
    }
}

impl std::fmt::Debug for Partition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Partition({})", self.topic_partition)
    }
}
