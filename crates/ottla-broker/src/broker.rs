//! What all parts of a running broker share.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use arc_swap::{ArcSwap, Guard};
use bytestring::ByteString;
use hashbrown::HashMap;
use ottla_config::BrokerConfig;
use ottla_metadata::MetadataImage;
use ottla_replica::Event;
use ottla_types::{BrokerEpoch, BrokerId, ErrorCode, Timestamp};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::api::fetch::sessions::FetchSessions;
use crate::authorizer::Authorizer;
use crate::complaints::Complaints;
use crate::controller::auto_topic_creation::AutoTopicCreation;
use crate::controller::channel::ControllerChannel;
use crate::controller::dir_assignments::DirAssignments;
use crate::controller::dir_reports::DirReports;
use crate::controller::heartbeats::Heartbeats;
use crate::controller::producer_id_blocks::ProducerIdBlocks;
use crate::controller::{ControllerHandle, ControllerRequest, Membership};
use crate::dispatch::Endpoint;
use crate::groups::Groups;
use crate::log_dirs::{DirFailure, Loading, LogDirs};
use crate::metrics::Metrics;
use crate::net::{AddressLimits, BrokerPeers, Connections};
use crate::partition::{AppendPace, DirectoryMoves, PageCache, Partition, Partitions};
use crate::quorum::QuorumHandle;
use crate::replication::Replication;
use crate::request_context::RequestContext;
use crate::request_memory::RequestMemory;
use crate::share_groups::ShareGroups;
use crate::telemetry::Telemetry;
use crate::throttle::Throttle;
use crate::transactions::Transactions;

/// See [`Broker::compression_memory`].
const COMPRESSION_BYTES: i64 = 512 * 1024 * 1024;

/// The shared state of a broker. Everything in it is either immutable, or guards itself.
#[derive(Debug)]
pub struct Broker {
    /// The file's settings with the dynamic ones laid over them.
    config: ArcSwap<BrokerConfig>,
    /// The cluster as of the last committed metadata record that was applied.
    metadata: ArcSwap<MetadataImage>,
    pub(crate) partitions: Partitions,
    pub(crate) fetch_sessions: FetchSessions,
    pub(crate) groups: Groups,
    pub(crate) transactions: Transactions,
    pub(crate) share_groups: ShareGroups,
    pub(crate) peers: BrokerPeers,
    /// Set once, before the broker joins its cluster.
    log_dirs: OnceLock<Arc<LogDirs>>,
    /// How far the loading of the logs has come.
    pub(crate) loading: Loading,
    /// Set once, when the thread of the metadata quorum runs: before the broker has joined its cluster.
    quorum: OnceLock<QuorumHandle>,
    /// Set once, when the broker has joined its cluster, before the first request is read.
    membership: OnceLock<Membership>,
    pub(crate) producer_ids: ProducerIdBlocks,
    pub(crate) dir_assignments: DirAssignments,
    pub(crate) dir_reports: DirReports,
    pub(crate) directory_moves: DirectoryMoves,
    pub(crate) replication: Replication,
    pub(crate) auto_topic_creation: AutoTopicCreation,
    pub authorizer: Authorizer,
    pub throttle: Throttle,
    pub metrics: Metrics,
    pub(crate) telemetry: Telemetry,
    pub(crate) complaints: Complaints,
    /// By log directory.
    append_paces: Mutex<HashMap<PathBuf, Arc<AppendPace>>>,
    pub(crate) page_cache: PageCache,
    pub(crate) connections: Arc<Connections>,
    pub(crate) address_limits: AddressLimits,
    pub(crate) request_memory: RequestMemory,
    /// What decompressing and compressing batches anew may hold at once.
    pub(crate) compression_memory: RequestMemory,
    started: Instant,
    /// A [`BrokerState`].
    state: AtomicU8,
    /// Becomes true when the broker begins to stop.
    stopping: watch::Sender<bool>,
    /// Becomes true when the stop is to wait for no other node.
    hurried: watch::Sender<bool>,
    /// Why the broker cannot go on: a sentence for people. The first reason wins.
    failure: OnceLock<String>,
}

/// What a broker is doing as a whole. The numbers are those of Kafka's `BrokerState`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum BrokerState {
    Starting = 1,
    /// Its logs are being opened, and recovered where they need it.
    Recovery = 2,
    Running = 3,
    /// Requests in flight are answered; no others are taken.
    PendingControlledShutdown = 6,
    ShuttingDown = 7,
}

impl BrokerState {
    /// For people.
    pub fn description(self) -> &'static str {
        match self {
            BrokerState::Starting => "starting",
            BrokerState::Recovery => "opening its logs",
            BrokerState::Running => "running",
            BrokerState::PendingControlledShutdown => "answering what is in flight, then stopping",
            BrokerState::ShuttingDown => "stopping",
        }
    }
}

/// The features of the cluster, as ApiVersions tells them.
#[derive(Clone, Debug)]
pub struct Features {
    pub supported: Vec<SupportedFeature>,
    /// Name and level.
    pub finalized: Vec<(ByteString, i16)>,
    /// The metadata offset at which they were read; -1 where none was.
    pub finalized_epoch: i64,
}

/// A feature that this broker knows, with its lowest and highest level.
#[derive(Clone, Debug)]
pub struct SupportedFeature {
    pub name: ByteString,
    pub min_level: i16,
    pub max_level: i16,
}

impl Broker {
    pub(crate) fn new(config: BrokerConfig) -> Self {
        Broker {
            metadata: ArcSwap::default(),
            partitions: Partitions::default(),
            fetch_sessions: FetchSessions::new(
                config.max_incremental_fetch_session_cache_slots.max(0) as usize,
            ),
            groups: Groups::default(),
            transactions: Transactions::new(&config),
            share_groups: ShareGroups::new(&config),
            peers: BrokerPeers::default(),
            log_dirs: OnceLock::new(),
            loading: Loading::default(),
            quorum: OnceLock::new(),
            membership: OnceLock::new(),
            producer_ids: ProducerIdBlocks::default(),
            dir_assignments: DirAssignments::default(),
            dir_reports: DirReports::default(),
            directory_moves: DirectoryMoves::new(&config),
            replication: Replication::default(),
            auto_topic_creation: AutoTopicCreation::default(),
            authorizer: Authorizer,
            throttle: Throttle,
            append_paces: Mutex::default(),
            page_cache: PageCache::default(),
            metrics: Metrics::default(),
            telemetry: Telemetry::new(&config),
            complaints: Complaints::default(),
            connections: Arc::default(),
            address_limits: AddressLimits::default(),
            request_memory: RequestMemory::new(config.queued_max_request_bytes),
            compression_memory: RequestMemory::new(COMPRESSION_BYTES),
            started: Instant::now(),
            state: AtomicU8::new(BrokerState::Starting as u8),
            stopping: watch::Sender::new(false),
            hurried: watch::Sender::new(false),
            failure: OnceLock::new(),
            config: ArcSwap::from_pointee(config),
        }
    }

    pub fn config(&self) -> Guard<Arc<BrokerConfig>> {
        self.config.load()
    }

    /// Puts a configuration with other dynamic settings in force.
    pub fn set_config(&self, config: BrokerConfig) {
        self.config.store(Arc::new(config));
    }

    /// The cluster as this broker knows it.
    pub fn metadata(&self) -> Guard<Arc<MetadataImage>> {
        self.metadata.load()
    }

    /// The pace of the log directory in which a partition's directory is.
    pub(crate) fn append_pace(&self, partition_dir: &Path) -> Arc<AppendPace> {
        let log_dir = partition_dir.parent().unwrap_or(partition_dir);
        let mut paces = self.append_paces.lock();
        Arc::clone(paces.entry(log_dir.to_owned()).or_default())
    }

    /// A partition of which this broker has a replica, or what to answer where it has none.
    pub fn local_partition(&self, topic: &str, index: i32) -> Result<Arc<Partition>, ErrorCode> {
        if let Some(partition) = self.partitions.get(topic, index) {
            return Ok(partition);
        }
        let metadata = self.metadata();
        let known = metadata.topics.by_name(topic);
        match known.and_then(|topic| topic.partition(index.into())) {
            Some(registration) => Err(self.why_missing(registration)),
            None => Err(ErrorCode::UnknownTopicOrPartition),
        }
    }

    pub(crate) fn set_metadata(&self, image: MetadataImage) {
        self.metadata.store(Arc::new(image));
    }

    pub fn broker_id(&self) -> BrokerId {
        BrokerId(self.config().node_id)
    }

    /// Takes the log directories into use: from here on their failures take partitions offline.
    pub(crate) fn set_log_dirs(self: &Arc<Self>, log_dirs: Arc<LogDirs>) {
        log_dirs.set_cordoned(&self.config());
        let broker = Arc::downgrade(self);
        log_dirs.set_failure_listener(move |failure| {
            if let Some(broker) = broker.upgrade() {
                broker.on_log_dir_failed(failure);
            }
        });
        let is_first = self.log_dirs.set(log_dirs).is_ok();
        assert!(is_first, "the log directories are taken into use once");
    }

    /// The log directories; `None` before the broker has taken them into use.
    pub(crate) fn log_dirs(&self) -> Option<&Arc<LogDirs>> {
        self.log_dirs.get()
    }

    /// Takes the partitions of a failed directory offline and tells the controller. Without any directory
    /// left, or without the metadata log, the broker stops, where Kafka halts.
    fn on_log_dir_failed(self: &Arc<Self>, failure: &DirFailure) {
        for topic_partition in &failure.partitions {
            if let Some(partition) = self.partitions.find(topic_partition) {
                partition.notify(self, Event::LogLost);
                partition.wake_all();
            }
        }
        if let Some(reason) = &failure.is_fatal {
            return self.fail(format!("{reason}. Fix this and start again"));
        }
        // Failures that were found before the broker joined are told with the registration.
        self.dir_reports.on_changed();
    }

    pub(crate) fn set_quorum(&self, quorum: QuorumHandle) {
        let is_first = self.quorum.set(quorum).is_ok();
        assert!(is_first, "a broker takes part in one quorum");
    }

    /// The metadata quorum; `None` before its thread runs.
    pub(crate) fn quorum(&self) -> Option<&QuorumHandle> {
        self.quorum.get()
    }

    pub(crate) fn set_membership(&self, membership: Membership) {
        let is_first = self.membership.set(membership).is_ok();
        assert!(is_first, "a broker joins its cluster once");
    }

    pub(crate) fn membership(&self) -> Option<&Membership> {
        self.membership.get()
    }

    /// The task that keeps this broker in its cluster; `None` for a node that is no broker.
    pub(crate) fn heartbeats(&self) -> Option<&Heartbeats> {
        self.membership.get()?.heartbeats()
    }

    /// The controller; `None` before the broker has joined its cluster.
    pub fn controller(&self) -> Option<&ControllerHandle> {
        self.membership
            .get()
            .map(|membership| &membership.controller)
    }

    /// Has the controller decide what this broker asks for itself: see [`ControllerHandle::submit`].
    pub(crate) async fn ask_controller<R: ControllerRequest>(
        &self,
        request: R,
    ) -> Result<R::Response, ErrorCode>
    where
        R::Response: Send + 'static,
    {
        match self.controller() {
            Some(controller) => controller.submit(request).await,
            None => Err(ErrorCode::NotController),
        }
    }

    /// Has this node's controller decide a request, if it is the active one.
    pub(crate) async fn decide_here<R: ControllerRequest>(
        &self,
        request: R,
    ) -> Result<R::Response, ErrorCode>
    where
        R::Response: Send + 'static,
    {
        match self.controller() {
            Some(controller) => controller.decide_here(Arc::new(request)).await,
            None => Err(ErrorCode::NotController),
        }
    }

    /// Has the controller decide what a client asks for, as the client: a controller elsewhere is told its principal and
    /// address. Who has come to a controller's listener looks for the active one himself.
    pub(crate) async fn forward<R: ControllerRequest>(
        &self,
        context: &RequestContext,
        request: R,
    ) -> Result<R::Response, ErrorCode>
    where
        R::Response: Send + 'static,
    {
        match (Endpoint::of(context.listener()), self.controller()) {
            (Endpoint::Broker, Some(controller)) => controller.forward(context, request).await,
            (Endpoint::Broker, None) => Err(ErrorCode::NotController),
            (Endpoint::Controller, _) => self.decide_here(request).await,
        }
    }

    /// The way to the active controller, where that is another process and the client has not come to decide things at
    /// this one.
    pub(crate) fn controller_elsewhere(
        &self,
        context: &RequestContext,
    ) -> Option<&ControllerChannel> {
        match Endpoint::of(context.listener()) {
            Endpoint::Broker => self.controller()?.channel_to_leader(),
            Endpoint::Controller => None,
        }
    }

    /// The id of the cluster; empty before the broker has joined it.
    pub fn cluster_id(&self) -> ByteString {
        self.membership
            .get()
            .map(|membership| membership.cluster_id().clone())
            .unwrap_or_default()
    }

    /// The epoch with which this broker is registered.
    pub fn broker_epoch(&self) -> BrokerEpoch {
        self.membership
            .get()
            .map_or(BrokerEpoch::UNKNOWN, Membership::broker_epoch)
    }

    /// Milliseconds of the broker's own clock, which only moves forward. For waiting and deadlines.
    pub fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    /// The time of day. For what is written down.
    pub fn timestamp(&self) -> Timestamp {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        Timestamp(since_epoch.map_or(0, |elapsed| elapsed.as_millis() as i64))
    }

    pub fn features(&self) -> Features {
        let image = self.metadata();
        let mut finalized: Vec<_> = image
            .features
            .levels()
            .map(|(name, level)| (name.clone(), level))
            .collect();
        finalized.extend(image.features.metadata_version().map(|version| {
            let name = ByteString::from_static(ottla_metadata::MetadataVersion::FEATURE_NAME);
            (name, version.feature_level())
        }));
        // Stands in the log's control records and not in the image.
        let kraft_version = self.controller().map_or(0, |controller| {
            controller.status().kraft_version.feature_level()
        });
        if kraft_version > 0 {
            let name = ByteString::from_static(ottla_metadata::feature::KRAFT_VERSION.name);
            finalized.push((name, kraft_version));
        }
        finalized.sort();
        let supported = ottla_controller::local_supported_features();
        Features {
            supported: supported
                .into_iter()
                .map(|feature| SupportedFeature {
                    name: feature.name,
                    min_level: feature.min,
                    max_level: feature.max,
                })
                .collect(),
            finalized,
            finalized_epoch: image.provenance.last_contained_offset.value(),
        }
    }

    pub fn state(&self) -> BrokerState {
        let state = self.state.load(Ordering::Acquire);
        [
            BrokerState::Starting,
            BrokerState::Recovery,
            BrokerState::Running,
            BrokerState::PendingControlledShutdown,
        ]
        .into_iter()
        .find(|&known| known as u8 == state)
        .unwrap_or(BrokerState::ShuttingDown)
    }

    pub(crate) fn set_state(&self, state: BrokerState) {
        self.state.store(state as u8, Ordering::Release);
    }

    /// Ends when the broker begins to stop.
    pub async fn stopping(&self) {
        let mut stopping = self.stopping.subscribe();
        // The sender lives as long as the broker, so waiting cannot fail.
        let _ = stopping.wait_for(|&stopping| stopping).await;
    }

    /// Has a stop that is under way, or that comes, wait for no other node: who leads after this one is then left to the
    /// controllers, who will miss it, and nothing of what is on disk is lost.
    pub fn hurry(&self) {
        self.hurried.send_replace(true);
    }

    /// Ends when the stop is to wait for no other node.
    pub(crate) async fn hurried(&self) {
        let mut hurried = self.hurried.subscribe();
        // The sender lives as long as the broker, so waiting cannot fail.
        let _ = hurried.wait_for(|&hurried| hurried).await;
    }

    pub fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Begins to stop because the broker cannot go on, where Kafka halts. Whoever runs it sees
    /// [`Broker::stopping`] end, stops it and tells [`Broker::failure`].
    pub(crate) fn fail(&self, reason: String) {
        tracing::error!("the broker stops: {reason}");
        // The first reason is the one that is told.
        let _ = self.failure.set(reason);
        self.begin_stop();
    }

    /// Why the broker stops by itself; `None` where it does not, or was told to.
    pub fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    pub(crate) fn begin_stop(&self) {
        self.stopping.send_replace(true);
        for partition in self.partitions.load().iter() {
            partition.wake_all();
        }
    }
}
