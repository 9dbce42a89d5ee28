//! The thread of the metadata quorum. It drives the Raft state machine in every role, maintains the
//! metadata log and, while this node is the active controller, decides requests.
//!
//! Events arrive through a channel: requests to decide, responses of other nodes, requests of other
//! nodes, and timer ticks. The effects of each event are executed before the next event is handled
//! (`effects`). Committed records are applied to the image (`committed`). While this node is
//! leader, requests that wait together share one fsync: each is decided on the image that includes
//! the records of the requests before it, and all are answered when their records are committed
//! (`deciding`). A response therefore never reports something that a crash could undo.
//!
//! This thread blocks on the metadata log and on nothing else, because the other nodes hold an
//! election when it does not answer. Committed metadata is published on a second thread
//! (`publishing`), and snapshots are written on a third (`snapshots`).
//!
//! If the disk is full, a leader takes back the decisions that it has not written, refuses their
//! requests, and continues; appends from the leader wait for space (`disk_space`). Any other error
//! of the log ends the thread and with it the node, and all pending requests are refused.
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
use ottla_net::PeerSecurity;
use ottla_protocol::metadata_records::MetadataRecord;
use ottla_raft::{Event, Moment, Quorum, RequestId, Response, SnapshotProgress};
use ottla_sync::ArcSwap;
use ottla_sync::{oneshot, watch};
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
use publishing::Publisher;
pub use publishing::{Publish, Unpublished};
use snapshot_writer::SnapshotWriter;
use trouble::Trouble;

/// The maximum number of requests that share one fsync.
const MAX_REQUESTS_PER_FLUSH: usize = 256;
/// How often an idle thread checks whether a time-based snapshot is due.
const IDLE_CHECK: Duration = Duration::from_secs(60);

/// The state with which the thread starts.
pub struct Opened {
    pub log: MetadataLog,
    pub loaded: LoadedMetadata,
    pub quorum: Quorum,
    pub config: BrokerConfig,
    pub cluster_id: String,
    /// The bootstrap records, written by the first controller of the cluster. Empty if the log has
    /// them already.
    pub bootstrap: Vec<MetadataRecord>,
    /// The SCRAM credentials on this node's disk, committed or not.
    pub scram: ScramImage,
}

/// This node's part in the metadata quorum.
pub struct Controller {
    log: MetadataLog,
    quorum: Quorum,
    /// The origin of the clock that the quorum and the sessions use.
    clock: Instant,
    /// `None` before the thread runs.
    network: Option<QuorumNetwork>,
    /// Requests of other nodes that have not been answered yet.
    asked: BTreeMap<RequestId, oneshot::Sender<(Response, ServedData)>>,
    next_request_id: u64,
    /// The payload of the response that is being handled.
    incoming: Payload,
    trouble: Trouble,
    /// The static configuration of the node, without dynamic settings.
    file_config: BrokerConfig,
    /// The configuration with the dynamic settings, as decided or committed.
    config: BrokerConfig,
    cluster_id: String,
    bootstrap: Vec<MetadataRecord>,
    /// The SCRAM credentials that were on this node's disk at its start.
    pub scram_at_start: ScramImage,
    /// The loader with everything applied up to the given end offset. While this node is leader,
    /// the high watermark can be larger than that offset.
    committed: (MetadataLoader, Offset),
    /// The batches after `committed`, while this node is not the leader.
    uncommitted: VecDeque<MetadataBatch>,
    /// `Some` while this node is the leader.
    deciding: Option<Decisions>,
    /// The newest committed image.
    image: MetadataImage,
    /// The end offset of `image` in the metadata log.
    image_end_offset: Offset,
    publisher: Publisher,
    is_publishing: bool,
    /// The high watermark in the leader's last response.
    leader_high_watermark: Option<Offset>,
    is_caught_up: bool,
    waiting_to_catch_up: Vec<oneshot::Sender<MetadataImage>>,
    /// Requests to begin publishing. Each waits until the record at its offset is in the image.
    waiting_to_publish: Vec<(Offset, oneshot::Sender<Offset>)>,
    snapshot_progress: SnapshotProgress,
    snapshot_writer: SnapshotWriter,
    sessions: BrokerSessions,
    leader_balance: LeaderBalance,
    /// When to look for expired delegation tokens next.
    next_token_sweep_ms: u64,
    next_unclean_elections_ms: u64,
    status: Arc<ArcSwap<QuorumStatus>>,
    is_shut_down: bool,
    stop_requested: Arc<AtomicBool>,
}

impl Controller {
    /// Becomes leader of a quorum in which this node is the only voter: starts a new epoch and
    /// appends the leader's first records and, on the first start of the cluster, the bootstrap
    /// records. They are not on disk yet.
    pub fn lead(opened: Opened) -> Result<Controller, MetadataLogError> {
        let mut opened = opened;
        let applied = opened.loaded.apply_tail();
        applied.map_err(|reason| opened.log.error(reason))?;
        let log_end_offset = opened.log.log_end_offset();
        opened.log.set_high_watermark(log_end_offset);
        let mut controller = Controller::new(opened, log_end_offset);
        controller.refresh_config();
        controller.step(Event::Started)?;
        // Done before the leader's first record is committed, so that both share a flush. No other
        // node can commit anything.
        controller.activate()?;
        Ok(controller)
    }

    /// Joins a quorum with other nodes: starts from the newest snapshot, and sends nothing before
    /// the thread runs.
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
            mut config,
            cluster_id,
            bootstrap,
            scram,
        } = opened;
        // The values are in files, which this thread must not wait for. They are for listeners and
        // logins, which the controller takes from the configuration of the node.
        config.ignore_variables();
        let now = time_of_day();
        let mut snapshot_progress = SnapshotProgress::new(now);
        let tail_bytes: u64 = loaded.tail.iter().map(|batch| batch.size_bytes).sum();
        // The tail after the snapshot is counted when it is committed.
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
            next_unclean_elections_ms: 0,
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

    /// The image of all decided records on the leader, and of all committed records on other nodes.
    pub fn image(&self) -> &MetadataImage {
        match &self.deciding {
            Some(deciding) => deciding.loader.image(),
            None => &self.image,
        }
    }

    /// The end offset of the metadata that is published on this node.
    pub fn published(&self) -> watch::Receiver<Offset> {
        self.publisher.published()
    }

    /// The committed changes that are not published on this node.
    pub fn unpublished(&self) -> Arc<Unpublished> {
        self.publisher.unpublished()
    }

    /// Sets the network, and the channel on which the thread receives responses and finished
    /// snapshots.
    pub fn connect(&mut self, security: PeerSecurity, work: &Arc<thread_channel::Sender<Work>>) {
        let network = QuorumNetwork::new(&self.file_config, security, &self.cluster_id, work);
        self.network = Some(network);
        self.snapshot_writer = SnapshotWriter::new(Arc::downgrade(work));
    }

    /// Runs until a stop is requested. `on_failure` is called with the reason when the log cannot
    /// be used any more; the node must stop then. The requester of the stop is answered after
    /// `publish`, which holds the locks of the directories, has been dropped. Blocks: this is the
    /// body of the thread.
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
                    // The append was waiting for space. The next start fetches the missing records
                    // again.
                    true => tracing::warn!("stopped on a full disk: {error}"),
                    false => on_failure(error.to_string()),
                }
                // The pending requesters see that their senders are dropped.
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
                // All senders are gone.
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            let held_up_ms = (ottla_sync::time::now() - began).as_millis() as u64;
            self.sessions.on_held_up(held_up_ms, self.now_ms());
            self.fence_silent_brokers()?;
            self.balance_leaders()?;
            self.elect_unclean_leaders()?;
            self.remove_expired_tokens()?;
            self.settle_or_refuse()?;
            if self.now_ms() >= self.quorum.wake_at_ms() {
                self.step(Event::Ticked)?;
                self.settle_or_refuse()?;
            }
        }
        Ok(())
    }

    /// How long the thread can wait for an event.
    fn idle_time(&self) -> Duration {
        let now_ms = self.now_ms();
        Duration::from_millis(self.quorum.wake_at_ms().saturating_sub(now_ms))
            .min(self.session_check().unwrap_or(IDLE_CHECK))
            .min(self.leader_check(now_ms).unwrap_or(IDLE_CHECK))
            .min(IDLE_CHECK)
    }

    /// Handles the waiting work, and flushes all decisions with one fsync.
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
            // The state machine must know the log end offset before the next event.
            self.settle_or_refuse()?;
            match item {
                Work::Decide(_) => {}
                Work::Answered(answered) => self.on_answered(answered)?,
                Work::PeerRequest { request, respond } => self.on_asked(request, respond)?,
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

    /// Feeds an event to the state machine and executes its effects, until there are none left.
    fn step(&mut self, event: Event) -> Result<(), MetadataLogError> {
        let mut next = Some(event);
        while let Some(event) = next.take() {
            let effects = self.quorum.step(self.moment(), event);
            next = self.execute(effects)?;
        }
        self.apply_committed()?;
        self.note_leader_and_state();
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

/// Refuses everything after an error of the log, until the node stops. Returns the requester of the
/// stop, if there is one.
fn refuse_all(
    work: &thread_channel::Receiver<Work>,
    stop: Option<oneshot::Sender<()>>,
) -> Option<oneshot::Sender<()>> {
    let mut stop = stop;
    while stop.is_none() {
        match work.recv() {
            Ok(Work::Stop { stopped, .. }) => stop = Some(stopped),
            // Dropping the work drops its reply sender, which the requester sees.
            Ok(refused) => drop(refused),
            Err(thread_channel::RecvError) => return None,
        }
    }
    stop
}
