//! The thread of the metadata quorum: drives the state machine of the quorum in every role, keeps the metadata log,
//! and while this node leads decides requests to the controller.
//!
//! Events come in through a channel: requests to decide, answers of other nodes, their requests, and time.
//! The effects of each are carried out before the next is looked at (`effects`). What is committed is folded
//! into the image (`committed`). While this node leads, requests that wait together share one
//! fsync: each is decided on the image that includes the records of those before it, and all are answered
//! when all are committed (`deciding`). A response therefore never tells of something that a crash could take
//! back.
//!
//! This thread waits for the metadata log and for nothing else: the other nodes hold an election when it does not answer.
//! What is committed is put in force on a thread beside it (`publishing`), and written down as a snapshot on another
//! (`snapshots`).
//!
//! A full disk refuses requests and nothing else: what was decided and is not on disk is taken back, and
//! the controller goes on, and what it follows waits for space (`disk_space`). Any other error of the log ends the thread for good, and the node with it:
//! what was not answered is refused.
//!
//! In Kafka: `KafkaRaftClientDriver`, `KafkaRaftClient.poll`, `QuorumController`, `MetadataLoader`,
//! `SnapshotGenerator`.

use ottla_sync::atomic::AtomicBool;
use ottla_sync::thread_channel::{self, RecvTimeoutError};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_config::BrokerConfig;
use ottla_context::time_of_day;
use ottla_controller::{BrokerSessions, LeaderBalance};
use ottla_metadata::{MetadataImage, MetadataLoader, ScramImage};
use ottla_protocol::metadata_records::MetadataRecord;
use ottla_raft::{Event, Moment, Quorum, RequestId, Response, SnapshotProgress};
use ottla_sync::ArcSwap;
use ottla_sync::{oneshot, watch};
use ottla_tls::TlsContext;
use ottla_types::{BrokerId, ErrorCode, Offset};

use crate::quorum::network::QuorumNetwork;
use crate::quorum::outgoing::Payload;
use crate::quorum::served::ServedData;
use crate::quorum::status::QuorumStatus;
use crate::quorum::work::Work;
use ottla_storage::metadata::metadata_log::{LoadedMetadata, MetadataLog, MetadataLogError};
use ottla_storage::metadata::record_batches::MetadataBatch;

mod decisions;
mod publishing;
mod snapshot_writer;
mod trouble;

mod committed;
mod deciding;
mod disk_space;
mod effects;
mod peers;
mod snapshots;

#[cfg(test)]
mod tests;

use decisions::Decisions;
pub use publishing::Publish;
use publishing::Publisher;
use snapshot_writer::SnapshotWriter;
use trouble::Trouble;

/// Requests that share one fsync at most.
const MAX_REQUESTS_PER_FLUSH: usize = 256;
/// How often an idle thread looks whether a snapshot is due by time.
const IDLE_CHECK: Duration = Duration::from_secs(60);

/// What the thread begins with.
pub struct Opened {
    pub log: MetadataLog,
    pub loaded: LoadedMetadata,
    pub quorum: Quorum,
    pub config: BrokerConfig,
    pub cluster_id: String,
    /// What the first controller of the cluster writes; empty where the log has it.
    pub bootstrap: Vec<MetadataRecord>,
    /// The SCRAM credentials on this node's disk, committed or not.
    pub scram: ScramImage,
}

/// This node's part in the metadata quorum.
pub struct Controller {
    log: MetadataLog,
    quorum: Quorum,
    /// Where the clock of the quorum and of the sessions begins.
    clock: Instant,
    /// `None` before the thread runs.
    network: Option<QuorumNetwork>,
    /// The requests of other nodes that wait for their answers.
    asked: BTreeMap<RequestId, oneshot::Sender<(Response, ServedData)>>,
    next_request_id: u64,
    /// What came with the response that is being handled.
    incoming: Payload,
    trouble: Trouble,
    /// The node's configuration without dynamic settings.
    file_config: BrokerConfig,
    /// The same with them, as of what is decided or committed.
    config: BrokerConfig,
    cluster_id: String,
    bootstrap: Vec<MetadataRecord>,
    /// The SCRAM credentials on this node's disk at its start.
    pub scram_at_start: ScramImage,
    /// Folded from what is committed, and where that ends in the log. The high watermark may be further while
    /// this node leads.
    committed: (MetadataLoader, Offset),
    /// What the log holds behind `committed`, while this node does not lead.
    uncommitted: VecDeque<MetadataBatch>,
    /// While this node leads.
    deciding: Option<Decisions>,
    /// The newest committed image.
    image: MetadataImage,
    /// Where in the log it ends.
    image_end_offset: Offset,
    publisher: Publisher,
    is_publishing: bool,
    /// What the leader last called committed.
    leader_high_watermark: Option<Offset>,
    is_caught_up: bool,
    waiting_to_catch_up: Vec<oneshot::Sender<MetadataImage>>,
    /// Whoever begins to publish when the record at that offset is in the image.
    waiting_to_publish: Vec<(Offset, oneshot::Sender<Offset>)>,
    snapshot_progress: SnapshotProgress,
    snapshot_writer: SnapshotWriter,
    sessions: BrokerSessions,
    leader_balance: LeaderBalance,
    /// When to look for delegation tokens whose time is over.
    next_token_sweep_ms: u64,
    status: Arc<ArcSwap<QuorumStatus>>,
    is_shut_down: bool,
    stop_requested: Arc<AtomicBool>,
}

impl Controller {
    /// Takes the lead of a quorum of which this node is the only voter: an epoch of its own, the leader's
    /// first records, and the activation records of the cluster's first start decided (not yet on disk).
    pub fn lead(opened: Opened) -> Result<Controller, MetadataLogError> {
        let mut opened = opened;
        let applied = opened.loaded.apply_tail();
        applied.map_err(|reason| opened.log.error(reason))?;
        let log_end_offset = opened.log.log_end_offset();
        opened.log.set_high_watermark(log_end_offset);
        let mut controller = Controller::new(opened, log_end_offset);
        controller.refresh_config();
        controller.step(Event::Started)?;
        // Before its own first record is committed, so that both share a flush: nobody else can commit anything.
        controller.activate()?;
        Ok(controller)
    }

    /// Takes part in a quorum of others, or of several: begins with the newest snapshot, and sends nothing
    /// before the thread runs.
    pub fn join(opened: Opened) -> Controller {
        let mut opened = opened;
        let start = opened.loaded.loader.image().provenance;
        let committed_end = start
            .last_contained_offset
            .plus(1)
            .max(opened.log.log_start_offset());
        opened.log.set_high_watermark(committed_end);
        let mut controller = Controller::new(opened, committed_end);
        controller.refresh_config();
        controller
    }

    fn new(opened: Opened, committed_end: Offset) -> Controller {
        let Opened {
            log,
            loaded,
            quorum,
            config,
            cluster_id,
            bootstrap,
            scram,
        } = opened;
        let now = time_of_day();
        let mut snapshot_progress = SnapshotProgress::new(now);
        let tail_bytes: u64 = loaded.tail.iter().map(|batch| batch.size_bytes).sum();
        // What is in the tail is counted when it is committed.
        snapshot_progress.add_loaded(loaded.bytes_since_snapshot.saturating_sub(tail_bytes));
        let own_broker = config
            .process_roles
            .broker
            .then_some(BrokerId(config.node_id));
        Controller {
            leader_balance: LeaderBalance::new(
                config.auto_leader_rebalance_enable,
                config.leader_imbalance_check_interval_seconds,
            ),
            sessions: BrokerSessions::new(config.broker_session_timeout_ms, own_broker),
            next_token_sweep_ms: 0,
            status: Arc::new(ArcSwap::from_pointee(QuorumStatus::of(&quorum, now))),
            image: loaded.loader.image().clone(),
            image_end_offset: committed_end,
            committed: (loaded.loader, committed_end),
            uncommitted: loaded.tail,
            log,
            quorum,
            clock: ottla_sync::time::now(),
            network: None,
            asked: BTreeMap::new(),
            next_request_id: 0,
            incoming: Payload::None,
            trouble: Trouble::default(),
            config: config.clone(),
            file_config: config,
            cluster_id,
            bootstrap,
            scram_at_start: scram,
            deciding: None,
            publisher: Publisher::new(),
            is_publishing: false,
            leader_high_watermark: None,
            is_caught_up: false,
            waiting_to_catch_up: Vec::new(),
            waiting_to_publish: Vec::new(),
            snapshot_progress,
            snapshot_writer: SnapshotWriter::default(),
            is_shut_down: false,
            stop_requested: Arc::default(),
        }
    }

    pub fn status(&self) -> Arc<ArcSwap<QuorumStatus>> {
        Arc::clone(&self.status)
    }

    pub fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    /// Everything that was decided so far, or on a node that does not lead what is committed.
    pub fn image(&self) -> &MetadataImage {
        match &self.deciding {
            Some(deciding) => deciding.loader.image(),
            None => &self.image,
        }
    }

    /// Where in the log the metadata ends that this node acts by.
    pub fn published(&self) -> watch::Receiver<Offset> {
        self.publisher.published()
    }

    /// How the thread reaches other nodes, and where it hears of what others do for it.
    pub fn connect(
        &mut self,
        tls: Option<Arc<TlsContext>>,
        work: &Arc<thread_channel::Sender<Work>>,
    ) {
        let network = QuorumNetwork::new(&self.file_config, tls, &self.cluster_id, work);
        self.network = Some(network);
        self.snapshot_writer = SnapshotWriter::new(Arc::downgrade(work));
    }

    /// Works until it is told to stop. `on_failure` is told why the log cannot be used any more; the node
    /// must stop then. Who waits for the end is told of it when `publish`, and with it the locks of the directories, has been
    /// let go. Blocks: this is the body of the thread.
    pub fn run(
        mut self,
        work: &thread_channel::Receiver<Work>,
        publish: Publish,
        on_failure: impl FnOnce(String),
    ) {
        if let Err(error) = self.log.write_partition_metadata() {
            tracing::error!("{error}");
        }
        let mut stop = None;
        let started = self.publisher.start(publish);
        let outcome = started
            .map_err(|error| self.log.error(format!("no thread to follow it: {error}")))
            .and_then(|()| self.work(work, &mut stop));
        self.snapshot_writer.finish();
        let publisher = std::mem::replace(&mut self.publisher, Publisher::new());
        match outcome {
            Ok(()) => self.close(),
            Err(error) => {
                self.refuse_pending(ErrorCode::KafkaStorageError);
                match error.is_temporary && self.is_stop_requested() {
                    // It waited for space; the next start fetches again what is missing.
                    true => tracing::warn!("stopped on a full disk: {error}"),
                    false => on_failure(error.to_string()),
                }
                // Whoever waits for an answer learns that there is none.
                drop(self);
                stop = refuse_all(work, stop);
            }
        }
        publisher.stop();
        if let Some(stopped) = stop {
            let _ = stopped.send(());
        }
    }

    fn work(
        &mut self,
        work: &thread_channel::Receiver<Work>,
        stop: &mut Option<oneshot::Sender<()>>,
    ) -> Result<(), MetadataLogError> {
        if self.deciding.is_none() {
            self.step(Event::Started)?;
        }
        self.settle()?;
        while !self.is_shut_down {
            if self.publisher.has_failed() {
                return Err(self.log.error("it cannot be followed any more".to_owned()));
            }
            let next = work.recv_timeout(self.idle_time());
            let began = ottla_sync::time::now();
            match next {
                Ok(first) => self.serve(first, work, stop)?,
                Err(RecvTimeoutError::Timeout) => self.begin_snapshot_if_due(),
                // Nobody can ask any more.
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            let held_up_ms = (ottla_sync::time::now() - began).as_millis() as u64;
            self.sessions.on_held_up(held_up_ms, self.now_ms());
            self.fence_silent_brokers()?;
            self.balance_leaders()?;
            self.remove_expired_tokens()?;
            self.settle_or_refuse()?;
            if self.now_ms() >= self.quorum.wake_at_ms() {
                self.step(Event::Ticked)?;
                self.settle_or_refuse()?;
            }
        }
        Ok(())
    }

    /// For how long there is nothing to do unless somebody asks.
    fn idle_time(&self) -> Duration {
        let now_ms = self.now_ms();
        Duration::from_millis(self.quorum.wake_at_ms().saturating_sub(now_ms))
            .min(self.session_check().unwrap_or(IDLE_CHECK))
            .min(self.leader_check(now_ms).unwrap_or(IDLE_CHECK))
            .min(IDLE_CHECK)
    }

    /// Does what waits, and brings what was decided to the disk with one fsync.
    fn serve(
        &mut self,
        first: Work,
        work: &thread_channel::Receiver<Work>,
        stop: &mut Option<oneshot::Sender<()>>,
    ) -> Result<(), MetadataLogError> {
        let waiting = std::iter::once(first).chain(std::iter::from_fn(|| work.try_recv().ok()));
        for item in waiting.take(MAX_REQUESTS_PER_FLUSH) {
            if let Work::Decide(decide) = item {
                self.decide(decide)?;
                continue;
            }
            // The state machine has to know where the log ends before it is told anything else.
            self.settle_or_refuse()?;
            match item {
                Work::Decide(_) => {}
                Work::Answered(answered) => self.on_answered(answered)?,
                Work::Asked { request, respond } => self.on_asked(request, respond)?,
                Work::Describe(sender) => {
                    let _ = sender.send(self.describe());
                }
                Work::SnapshotWritten(written) => self.on_snapshot_written(written)?,
                Work::CatchUp(sender) => self.waiting_to_catch_up.push(sender),
                Work::BeginPublishing(offset, sender) => {
                    self.waiting_to_publish.push((offset, sender));
                }
                Work::Stop {
                    timeout_ms,
                    stopped,
                } => {
                    *stop = Some(stopped);
                    self.step(Event::ShutdownRequested { timeout_ms })?;
                }
            }
            self.settle_or_refuse()?;
            if self.is_shut_down {
                return Ok(());
            }
        }
        self.settle_or_refuse()?;
        self.begin_snapshot_if_due();
        Ok(())
    }

    /// Hands in an event and carries out what follows, up to where nothing does.
    fn step(&mut self, event: Event) -> Result<(), MetadataLogError> {
        let mut next = Some(event);
        while let Some(event) = next.take() {
            let effects = self.quorum.step(self.moment(), event);
            next = self.execute(effects)?;
        }
        self.apply_committed()?;
        self.note_leader();
        Ok(())
    }

    fn moment(&self) -> Moment {
        Moment {
            now_ms: self.now_ms(),
            random: ottla_sync::random::random("controller quorum"),
        }
    }

    fn now_ms(&self) -> u64 {
        (ottla_sync::time::now() - self.clock).as_millis() as u64
    }

    fn close(self) {
        if let Err(error) = self.log.close() {
            tracing::error!("{error}");
        }
    }
}

/// After an error of the log: everything is refused until the node stops. Returns who waits for the end, if anybody does.
fn refuse_all(
    work: &thread_channel::Receiver<Work>,
    stop: Option<oneshot::Sender<()>>,
) -> Option<oneshot::Sender<()>> {
    let mut stop = stop;
    while stop.is_none() {
        match work.recv() {
            Ok(Work::Stop { stopped, .. }) => stop = Some(stopped),
            // Dropping it drops the sender of the answer, which tells the one who waits.
            Ok(refused) => drop(refused),
            Err(thread_channel::RecvError) => return None,
        }
    }
    stop
}
