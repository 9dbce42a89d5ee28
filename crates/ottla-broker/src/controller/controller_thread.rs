//! The thread of the controller: decides requests one after the other, appends what was decided, forces
//! it to disk, publishes the image and answers.
//!
//! Requests that wait together share one fsync: each is decided on the image that includes the records of
//! those before it, and all are answered when all are on disk. A response therefore never tells of
//! something that a crash could take back.
//!
//! A full disk refuses requests and nothing else: what was decided and is not committed is taken back, and
//! the controller goes on. Any other error of the log ends the controller for good, and the node with it:
//! what was not answered is refused.
//!
//! In Kafka: `QuorumController`, `KafkaRaftClient.poll`, `SnapshotGenerator`.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use ottla_config::BrokerConfig;
use ottla_controller::ControllerContext;
use ottla_metadata::{MetadataDelta, MetadataLoader, Provenance};
use ottla_protocol::metadata_records::MetadataRecord;
use ottla_raft::{
    Effect, Event, Moment, Quorum, SnapshotId, SnapshotPolicy, SnapshotProgress, SnapshotRetention,
};
use ottla_types::{ErrorCode, LeaderEpoch, Offset, Timestamp};
use tokio::sync::oneshot;

use super::handle::{Decided, QuorumStatus, Reply, Work};
use super::requests::Facts;
use crate::metadata::metadata_log::{MetadataLog, MetadataLogError};
use crate::metadata::publish::effective_config;
use crate::metadata::record_batches::{ControlValue, control_batch, records_batch};
use crate::metadata::snapshot_file::Snapshot;

#[cfg(test)]
mod tests;

/// Requests that share one fsync at most.
const MAX_REQUESTS_PER_FLUSH: usize = 256;
/// How often an idle controller looks whether a snapshot is due by time.
const IDLE_CHECK: Duration = Duration::from_secs(60);

/// Told of every committed change, one after the other, on the controller's thread.
pub(crate) type Publish = Box<dyn FnMut(&MetadataDelta) + Send>;

/// The controller while it leads the quorum.
pub(crate) struct Controller {
    log: MetadataLog,
    /// Everything that was decided, committed or not.
    loader: MetadataLoader,
    /// What is committed, and where that ends in the log: what is gone back to.
    committed: (MetadataLoader, Offset),
    quorum: Quorum,
    /// Where the clock of the quorum begins.
    clock: Instant,
    /// The node's configuration without dynamic settings.
    file_config: BrokerConfig,
    /// The same with them, as of `loader`.
    config: BrokerConfig,
    cluster_id: String,
    snapshot_progress: SnapshotProgress,
    status: Arc<ArcSwap<QuorumStatus>>,
    /// Decided and not on disk yet, in order.
    pending: Vec<Pending>,
    bytes_pending: u64,
}

/// What waits for the flush.
enum Pending {
    Delta(Box<MetadataDelta>),
    Reply(Reply),
}

impl Controller {
    /// Takes the lead of the quorum: an epoch of its own, the leader's first records on disk, and the
    /// activation records of the cluster's first start decided (not yet on disk).
    pub fn lead(
        log: MetadataLog,
        loader: MetadataLoader,
        mut quorum: Quorum,
        file_config: BrokerConfig,
        cluster_id: String,
        bytes_since_snapshot: u64,
        bootstrap: &[MetadataRecord],
    ) -> Result<Controller, MetadataLogError> {
        let clock = Instant::now();
        let effects = quorum.step(moment(clock), Event::Started);
        let now = timestamp();
        let mut snapshot_progress = SnapshotProgress::new(now);
        snapshot_progress.add_loaded(bytes_since_snapshot);
        let status = Arc::new(ArcSwap::from_pointee(status_of(&quorum)));
        let mut controller = Controller {
            committed: (loader.clone(), log.log_end_offset()),
            log,
            loader,
            quorum,
            clock,
            config: file_config.clone(),
            file_config,
            cluster_id,
            snapshot_progress,
            status,
            pending: Vec::new(),
            bytes_pending: 0,
        };
        controller.refresh_config();
        controller.execute(effects)?;
        let is_in_transaction = controller.loader.is_in_transaction();
        let records = controller.with_context(|context, _| {
            ottla_controller::activation_records(context, bootstrap, is_in_transaction)
        });
        controller.append(records)?;
        Ok(controller)
    }

    pub fn status(&self) -> Arc<ArcSwap<QuorumStatus>> {
        Arc::clone(&self.status)
    }

    /// Everything that was decided so far.
    pub fn image(&self) -> &ottla_metadata::MetadataImage {
        self.loader.image()
    }

    /// Decides a request at once, for the start of the node, before the thread runs.
    pub fn decide_now<R: super::ControllerRequest>(
        &mut self,
        request: &R,
    ) -> Result<R::Response, MetadataLogError> {
        let decision = self.with_context(|context, facts| request.decide(context, facts));
        self.append(decision.records)?;
        Ok(decision.response)
    }

    /// Serves requests until it is told to stop. `on_failure` is told why the log cannot be used any more;
    /// the node must stop then. Blocks: this is the body of the controller's thread.
    pub fn run(
        mut self,
        work: &mpsc::Receiver<Work>,
        publish: &mut Publish,
        on_failure: impl FnOnce(String),
    ) {
        if let Err(error) = self.log.write_partition_metadata() {
            tracing::error!("{error}");
        }
        loop {
            let first = match work.recv_timeout(IDLE_CHECK) {
                Ok(first) => first,
                Err(RecvTimeoutError::Timeout) => {
                    if let Err(error) = self.write_snapshot_if_due() {
                        tracing::error!("{error}");
                    }
                    continue;
                }
                // Nobody can ask any more.
                Err(RecvTimeoutError::Disconnected) => return self.close(),
            };
            let mut stop = None;
            let outcome = self.serve(first, work, publish, &mut stop);
            if let Err(error) = outcome {
                self.refuse_pending();
                on_failure(error.to_string());
                return refuse_all(work, stop);
            }
            if let Some(stopped) = stop {
                self.close();
                let _ = stopped.send(());
                return;
            }
        }
    }

    /// Decides what waits, and brings it to the disk with one fsync.
    fn serve(
        &mut self,
        first: Work,
        work: &mpsc::Receiver<Work>,
        publish: &mut Publish,
        stop: &mut Option<oneshot::Sender<()>>,
    ) -> Result<(), MetadataLogError> {
        let waiting = std::iter::once(first).chain(std::iter::from_fn(|| work.try_recv().ok()));
        for item in waiting.take(MAX_REQUESTS_PER_FLUSH) {
            match item {
                Work::Decide(decide) => {
                    let Decided { records, reply } = self.with_context(decide);
                    match self.append(records) {
                        Ok(()) => self.pending.push(Pending::Reply(reply)),
                        // Neither log nor image have changed.
                        Err(error) if error.is_disk_full => {
                            tracing::warn!("a request to the controller is refused: {error}");
                            reply(Err(ErrorCode::KafkaStorageError));
                        }
                        Err(error) => {
                            reply(Err(ErrorCode::KafkaStorageError));
                            return Err(error);
                        }
                    }
                }
                Work::Stop(stopped) => {
                    *stop = Some(stopped);
                    break;
                }
            }
        }
        match self.commit(publish) {
            Err(error) if error.is_disk_full => {
                tracing::warn!("requests to the controller are refused: {error}");
                self.roll_back()?;
            }
            outcome => outcome?,
        }
        // A snapshot that fails costs nothing but a longer log: the controller goes on.
        if let Err(error) = self.write_snapshot_if_due() {
            tracing::error!("{error}");
        }
        Ok(())
    }

    fn with_context<T>(
        &mut self,
        decide: impl FnOnce(&mut ControllerContext<'_>, &Facts<'_>) -> T,
    ) -> T {
        let mut context = ControllerContext {
            image: self.loader.image(),
            config: &self.config,
            kraft_version: self.quorum.kraft_version().feature_level(),
            random: &mut rand::random,
        };
        let facts = Facts {
            cluster_id: &self.cluster_id,
            next_offset: self.log.log_end_offset(),
            has_valid_session: false,
        };
        decide(&mut context, &facts)
    }

    /// Appends records as one batch and applies them to what was decided.
    fn append(&mut self, records: Vec<MetadataRecord>) -> Result<(), MetadataLogError> {
        if records.is_empty() {
            return Ok(());
        }
        let now = timestamp();
        let (offset, epoch) = (self.log.log_end_offset(), self.quorum.epoch());
        // The records that set `metadata.version` themselves are written by the new level.
        let metadata_version = records
            .iter()
            .find_map(|record| match record {
                MetadataRecord::FeatureLevel(feature)
                    if &*feature.name == ottla_metadata::MetadataVersion::FEATURE_NAME =>
                {
                    ottla_metadata::MetadataVersion::from_feature_level(feature.feature_level)
                }
                _ => None,
            })
            .unwrap_or(self.loader.image().metadata_version());
        let batch =
            records_batch(offset, epoch, now, &records, metadata_version).map_err(|error| {
                self.log
                    .error(format!("records cannot be encoded: {error}"))
            })?;
        self.log.append(&batch, now)?;
        self.bytes_pending += batch.size_in_bytes() as u64;
        let provenance = Provenance {
            last_contained_offset: batch.header.last_offset(),
            last_contained_epoch: epoch,
            last_contained_log_time: now,
        };
        let delta = self
            .loader
            .load_batch(records, provenance)
            .map_err(|error| {
                self.log
                    .error(format!("what was decided does not fit: {error}"))
            })?;
        if let Some(delta) = delta {
            if delta
                .configs
                .iter()
                .any(|resource| resource.kind == ottla_metadata::ConfigResourceType::Broker)
            {
                self.refresh_config();
            }
            self.pending.push(Pending::Delta(Box::new(delta)));
        }
        Ok(())
    }

    /// Forces everything to disk, publishes it, and answers.
    pub fn commit(&mut self, publish: &mut Publish) -> Result<(), MetadataLogError> {
        let flushed = self.log.flush()?;
        self.step_quorum(Event::LogFlushed {
            end_offset: flushed,
        })?;
        self.committed = (self.loader.clone(), flushed);
        let now = timestamp();
        let policy = self.snapshot_policy();
        self.snapshot_progress
            .on_committed(std::mem::take(&mut self.bytes_pending), now, &policy);
        for pending in self.pending.drain(..) {
            match pending {
                Pending::Delta(delta) => publish(&delta),
                Pending::Reply(reply) => reply(Ok(())),
            }
        }
        self.log.maintain()
    }

    /// Goes back to what is committed, and refuses what was decided since.
    fn roll_back(&mut self) -> Result<(), MetadataLogError> {
        let (loader, end) = &self.committed;
        self.log.truncate_to(*end, timestamp())?;
        self.loader = loader.clone();
        self.bytes_pending = 0;
        self.refresh_config();
        self.refuse_pending();
        Ok(())
    }

    fn refuse_pending(&mut self) {
        for pending in self.pending.drain(..) {
            if let Pending::Reply(reply) = pending {
                reply(Err(ErrorCode::KafkaStorageError));
            }
        }
    }

    fn step_quorum(&mut self, event: Event) -> Result<(), MetadataLogError> {
        let effects = self.quorum.step(moment(self.clock), event);
        self.execute(effects)
    }

    /// Carries out what the quorum asks for, in its order.
    fn execute(&mut self, effects: Vec<Effect>) -> Result<(), MetadataLogError> {
        for effect in effects {
            match effect {
                Effect::PersistElectionState(election) => {
                    let kraft_version = self.quorum.kraft_version();
                    self.log.write_election_state(&election, kraft_version)?;
                }
                Effect::StartEpoch {
                    epoch,
                    start_offset,
                    records,
                } => {
                    self.log.assign_leader_epoch(epoch, start_offset);
                    self.append_control(epoch, start_offset, records)?;
                }
                Effect::AdvanceHighWatermark(offset) => {
                    self.log.set_high_watermark(offset);
                    self.status.store(Arc::new(status_of(&self.quorum)));
                }
                Effect::ActivateLeader(epoch) => {
                    tracing::debug!("the controller of epoch {epoch} is active");
                }
                // A quorum of one has nobody to ask, to answer, to follow or to give way to.
                effect @ (Effect::AppendControlRecords { .. }
                | Effect::AppendFetched { .. }
                | Effect::TruncateLog { .. }
                | Effect::CreateSnapshot(_)
                | Effect::AppendSnapshot { .. }
                | Effect::InstallSnapshot(_)
                | Effect::DeactivateLeader(_)
                | Effect::ChangeLeader { .. }
                | Effect::Send { .. }
                | Effect::Respond { .. }
                | Effect::Report { .. }
                | Effect::CompleteShutdown { .. }) => {
                    let reason = format!("the only voter is asked for {effect:?}");
                    return Err(self.log.error(reason));
                }
            }
        }
        Ok(())
    }

    fn append_control(
        &mut self,
        epoch: LeaderEpoch,
        start_offset: Offset,
        records: Vec<ottla_raft::ControlRecord>,
    ) -> Result<(), MetadataLogError> {
        let values: Vec<ControlValue> = records.into_iter().map(ControlValue::from).collect();
        let now = timestamp();
        let batch = control_batch(start_offset, epoch, now, &values).map_err(|error| {
            self.log
                .error(format!("control records cannot be encoded: {error}"))
        })?;
        self.log.append(&batch, now)?;
        self.bytes_pending += batch.size_in_bytes() as u64;
        let provenance = Provenance {
            last_contained_offset: batch.header.last_offset(),
            last_contained_epoch: epoch,
            last_contained_log_time: now,
        };
        let delta = self
            .loader
            .load_batch(Vec::new(), provenance)
            .map_err(|error| self.log.error(error.to_string()))?;
        self.pending
            .extend(delta.map(|delta| Pending::Delta(Box::new(delta))));
        Ok(())
    }

    fn refresh_config(&mut self) {
        let id = ottla_types::BrokerId(self.file_config.node_id);
        // What is not accepted was reported where it was published.
        (self.config, _) = effective_config(&self.file_config, self.loader.image(), id);
    }

    fn snapshot_policy(&self) -> SnapshotPolicy {
        SnapshotPolicy {
            max_bytes_between: self
                .config
                .metadata_log_max_record_bytes_between_snapshots
                .max(1) as u64,
            max_interval_ms: self.config.metadata_log_max_snapshot_interval_ms,
        }
    }

    /// Called with everything committed.
    fn write_snapshot_if_due(&mut self) -> Result<(), MetadataLogError> {
        let now = timestamp();
        if !self.snapshot_progress.is_due(now, &self.snapshot_policy())
            || self.loader.is_in_transaction()
        {
            return Ok(());
        }
        let image = self.loader.image();
        let snapshot = Snapshot {
            last_contained_log_time: image.provenance.last_contained_log_time,
            kraft_version: self.quorum.kraft_version(),
            voters: self
                .quorum
                .kraft_version()
                .is_reconfig_supported()
                .then(|| self.quorum.voters().clone()),
            records: image.to_records(),
        };
        let id = SnapshotId {
            end_offset: image.provenance.last_contained_offset.plus(1),
            epoch: image.provenance.last_contained_epoch,
        };
        // Counted as done even if it fails: the next attempt comes with the next bytes, not at once.
        self.snapshot_progress.on_snapshot_written(now);
        self.log.write_snapshot(id, &snapshot, now)?;
        let retention = SnapshotRetention {
            max_bytes: self.config.metadata_max_retention_bytes,
            max_ms: self.config.metadata_max_retention_ms,
        };
        self.log.clean(&retention, now)?;
        self.step_quorum(Event::SnapshotsChanged {
            snapshots: self.log.snapshot_ids(),
            log_start_offset: self.log.log_start_offset(),
        })
    }

    fn close(self) {
        if let Err(error) = self.log.close() {
            tracing::error!("{error}");
        }
    }
}

/// After an error of the log: everything is refused until the node stops.
fn refuse_all(work: &mpsc::Receiver<Work>, stop: Option<oneshot::Sender<()>>) {
    let mut stop = stop;
    while stop.is_none() {
        match work.recv() {
            // Dropping the closure drops the sender of the answer, which tells the one who waits.
            Ok(Work::Decide(decide)) => drop(decide),
            Ok(Work::Stop(stopped)) => stop = Some(stopped),
            Err(mpsc::RecvError) => return,
        }
    }
    if let Some(stopped) = stop {
        let _ = stopped.send(());
    }
}

fn status_of(quorum: &Quorum) -> QuorumStatus {
    QuorumStatus {
        leader: quorum.leader(),
        epoch: quorum.epoch(),
        high_watermark: quorum.high_watermark().unwrap_or(Offset(-1)),
        log_end_offset: quorum.log_end().offset,
        kraft_version: quorum.kraft_version(),
        voters: quorum.voters().clone(),
        updated: timestamp(),
    }
}

fn moment(clock: Instant) -> Moment {
    Moment {
        now_ms: clock.elapsed().as_millis() as u64,
        random: rand::random(),
    }
}

pub(crate) fn timestamp() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    Timestamp(since_epoch.map_or(0, |elapsed| elapsed.as_millis() as i64))
}
