//! The parts of a running broker, and the functions through which requests use them.
//!
//! Each part comes from a crate below this one and holds only what it needs; this file connects
//! them. A handler in `api/` receives the whole broker, because a request may involve any part.

use std::sync::{Arc, OnceLock, Weak};

use bytestring::ByteString;
use ottla_config::BrokerConfig;
use ottla_context::{HEAP_FULL, NodeContext};
use ottla_coordination::{Groups, ShareGroups, Surroundings, Transactions};
use ottla_net::{Authorizer, BrokerPeers, Network, RequestContext, RequestMemory};
use ottla_node::auto_topic_creation::AutoTopicCreation;
use ottla_node::dir_assignments::DirAssignments;
use ottla_node::dir_reports::DirReports;
use ottla_node::membership::heartbeats::Heartbeats;
use ottla_node::producer_id_blocks::ProducerIdBlocks;
use ottla_node::quorum_handle::answer;
use ottla_node::{ControllerHandle, ControllerRequest, Node};
use ottla_partition::cleaner::Cleaner;
use ottla_partition::directory_move::DirectoryMoves;
use ottla_partition::local_replicas::LocalReplicas;
use ottla_partition::{Partition, PartitionHost, Partitions, Replication};
use ottla_raft::wire::QuorumApi;
use ottla_remote::RemoteLogs;
use ottla_replica::Event;
use ottla_storage::log_dirs::{DirFailure, Loading, LogDirs};
use ottla_sync::task::Handle;
use ottla_types::{BrokerEpoch, ErrorCode};

use crate::api::fetch::sessions::FetchSessions;
use crate::listeners::OpenListeners;
use crate::quotas::Quotas;
use crate::rights::is_in_table;
use crate::telemetry::Telemetry;

/// A running broker. Its parts are immutable or synchronise themselves.
#[derive(Debug)]
pub struct Broker {
    pub context: Arc<NodeContext>,
    pub(crate) network: Arc<Network>,
    pub(crate) listeners: OpenListeners,
    pub(crate) node: Arc<Node>,
    pub(crate) producer_ids: Arc<ProducerIdBlocks>,
    pub(crate) dir_assignments: Arc<DirAssignments>,
    pub(crate) dir_reports: Arc<DirReports>,
    pub(crate) auto_topic_creation: Arc<AutoTopicCreation>,
    /// The progress of log loading.
    pub(crate) loading: Loading,
    pub(crate) host: Arc<PartitionHost>,
    pub(crate) partitions: Arc<Partitions>,
    pub(crate) replication: Arc<Replication>,
    pub(crate) local_replicas: LocalReplicas,
    pub(crate) directory_moves: Arc<DirectoryMoves>,
    /// Set once, when the log directories are ready.
    pub(crate) cleaner: OnceLock<Arc<Cleaner>>,
    /// Set once, before the broker joins its cluster, if it has tiered storage.
    pub(crate) remote_logs: OnceLock<Arc<RemoteLogs>>,
    pub(crate) groups: Arc<Groups>,
    pub(crate) transactions: Arc<Transactions>,
    pub(crate) share_groups: Arc<ShareGroups>,
    pub(crate) fetch_sessions: FetchSessions,
    pub(crate) telemetry: Telemetry,
    pub(crate) authorizer: Arc<Authorizer>,
    pub(crate) quotas: Quotas,
    /// Bounds the memory for decompressing and recompressing batches.
    pub(crate) compression_memory: RequestMemory,
}

/// Configuration, metadata image, clock and state are those of the node.
impl std::ops::Deref for Broker {
    type Target = NodeContext;

    fn deref(&self) -> &NodeContext {
        &self.context
    }
}

impl Broker {
    pub(crate) fn new(config: BrokerConfig) -> Arc<Self> {
        let context = Arc::new(NodeContext::new(config));
        let config = context.config().clone();
        let network = Arc::new(Network::new(Arc::clone(&context), &config));
        let node = Arc::new(Node::new(Arc::clone(&context)));
        let producer_ids = Arc::new(ProducerIdBlocks::new(Arc::clone(&node)));
        let dir_assignments = Arc::new(DirAssignments::new(Arc::clone(&node)));
        let auto_topic_creation = Arc::new(AutoTopicCreation::new(Arc::clone(&node)));
        let host = Arc::new(PartitionHost::new(Arc::clone(&context)));
        let partitions = Arc::new(Partitions::default());
        let replication = Arc::new(Replication::new(Arc::clone(&host), Arc::clone(&node)));
        let authorizer = Arc::new(Authorizer::new(&config, is_in_table));
        let surroundings = Arc::new(Surroundings {
            context: Arc::clone(&context),
            host: Arc::clone(&host),
            partitions: Arc::clone(&partitions),
            producer_ids: Arc::clone(&producer_ids),
            auto_topic_creation: Arc::clone(&auto_topic_creation),
            peers: BrokerPeers::default(),
            authorizer: Arc::clone(&authorizer),
        });
        let share_groups = Arc::new(ShareGroups::new(Arc::clone(&surroundings), &config));
        let groups = Arc::new(Groups::new(
            Arc::clone(&surroundings),
            Arc::clone(&share_groups.coordinators),
        ));
        let transactions = Arc::new(Transactions::new(
            surroundings,
            Arc::clone(&groups),
            &config,
        ));
        let replicate: Weak<Replication> = Arc::downgrade(&replication);
        host.set_replication(replicate);
        let verifier: Weak<Transactions> = Arc::downgrade(&transactions);
        host.set_verifier(verifier);
        Arc::new(Broker {
            local_replicas: LocalReplicas::new(
                Arc::clone(&host),
                Arc::clone(&partitions),
                Arc::clone(&replication),
                Arc::clone(&dir_assignments),
            ),
            directory_moves: Arc::new(DirectoryMoves::new(
                Arc::clone(&host),
                Arc::clone(&partitions),
                Arc::clone(&dir_assignments),
                &config,
            )),
            dir_reports: Arc::new(DirReports::new(Arc::clone(&node))),
            fetch_sessions: FetchSessions::new(
                config.max_incremental_fetch_session_cache_slots.max(0) as usize,
                context.budgets().fetch_session_partitions,
            ),
            telemetry: Telemetry::new(&config, context.budgets().telemetry_bytes),
            compression_memory: RequestMemory::new(context.budgets().compression_bytes),
            loading: Loading::default(),
            listeners: OpenListeners::default(),
            cleaner: OnceLock::new(),
            remote_logs: OnceLock::new(),
            authorizer,
            quotas: Quotas::new(&config),
            context,
            network,
            node,
            producer_ids,
            dir_assignments,
            auto_topic_creation,
            host,
            partitions,
            replication,
            groups,
            transactions,
            share_groups,
        })
    }

    /// Starts to use the log directories: from now on, their failures take partitions offline.
    pub(crate) fn set_log_dirs(self: &Arc<Self>, log_dirs: Arc<LogDirs>) {
        log_dirs.set_cordoned(&self.config());
        let broker = Arc::downgrade(self);
        log_dirs.set_failure_listener(move |failure| {
            if let Some(broker) = broker.upgrade() {
                broker.on_log_dir_failed(failure);
            }
        });
        self.host.set_log_dirs(log_dirs);
    }

    /// Opens the store of tiered storage, if the settings enable it. Work at it runs on these threads,
    /// which also send what was read from it. Blocks.
    pub(crate) fn open_remote_logs(&self, store_threads: Handle) -> Result<(), String> {
        let config = self.config();
        if !config.remote_log_storage_system_enable || !config.process_roles.broker {
            return Ok(());
        }
        self.network.set_store_threads(store_threads.clone());
        let remote_logs = RemoteLogs::open(
            Arc::clone(&self.context),
            Arc::clone(&self.node),
            Arc::clone(&self.host),
            Arc::clone(&self.partitions),
            store_threads,
        )?;
        self.host.set_remote_states(remote_logs.remote_states());
        let is_first = self.remote_logs.set(remote_logs).is_ok();
        assert!(is_first, "tiered storage is opened once");
        Ok(())
    }

    /// Tiered storage; `None` if the settings do not enable it.
    pub(crate) fn remote_logs(&self) -> Option<&Arc<RemoteLogs>> {
        self.remote_logs.get()
    }

    /// Takes the partitions of a failed directory offline and informs the controller. If no
    /// directory is left, or the metadata log has failed, the broker stops, where Kafka halts.
    fn on_log_dir_failed(self: &Arc<Self>, failure: &DirFailure) {
        for topic_partition in &failure.partitions {
            if let Some(partition) = self.partitions.find(topic_partition) {
                partition.notify(&self.host, Event::LogLost);
                partition.wake_all();
            }
        }
        if let Some(reason) = &failure.is_fatal {
            return self
                .context
                .fail(format!("{reason}. Fix this and start again"));
        }
        // Failures before the registration are reported with it.
        self.dir_reports.on_changed();
    }

    /// Wakes long polls when the broker starts to stop.
    pub(crate) async fn wake_at_stop(self: Arc<Self>) {
        self.context.stopping().await;
        for partition in self.partitions.load().iter() {
            partition.wake_all();
        }
    }

    /// The local replica of a partition, or the error for a client if there is none.
    pub fn local_partition(&self, topic: &str, index: i32) -> Result<Arc<Partition>, ErrorCode> {
        self.partitions.local(&self.context, topic, index)
    }

    /// The log directories; `None` before they are ready.
    pub(crate) fn log_dirs(&self) -> Option<&Arc<LogDirs>> {
        self.host.log_dirs()
    }

    /// The controller; `None` before the broker has joined its cluster.
    pub fn controller(&self) -> Option<&ControllerHandle> {
        self.node.controller()
    }

    /// The task that registers this broker and sends heartbeats; `None` for a node that is not a
    /// broker.
    pub(crate) fn heartbeats(&self) -> Option<&Heartbeats> {
        self.node.heartbeats()
    }

    /// The cluster ID; empty before the broker has joined its cluster.
    pub fn cluster_id(&self) -> ByteString {
        self.node.cluster_id()
    }

    /// The epoch of this broker's registration.
    pub fn broker_epoch(&self) -> BrokerEpoch {
        self.node.broker_epoch()
    }

    /// Authorises the whole request and forwards it to the controller: see [`Node::forward`].
    pub(crate) async fn forward<R: ControllerRequest>(
        &self,
        context: &RequestContext,
        request: R,
    ) -> Result<R::Response, ErrorCode> {
        self.authorize(context)?;
        self.node.forward(context, request).await
    }

    /// As [`Self::forward`], for a request that adds to what the nodes hold if it `grows`: it is
    /// refused while the heap is full. `refused` makes the response with an error and its message.
    pub(crate) async fn forward_growing<R: ControllerRequest>(
        &self,
        context: &RequestContext,
        request: R,
        grows: bool,
        refused: impl FnOnce(ErrorCode, Option<ByteString>) -> R::Response,
    ) -> R::Response {
        if grows && self.context.check_heap().is_err() {
            let message = ByteString::from_static(HEAP_FULL);
            return refused(ErrorCode::PolicyViolation, Some(message));
        }
        match self.forward(context, request).await {
            Ok(response) => response,
            Err(error) => refused(error, None),
        }
    }

    /// Authorises the whole request and decides it: see [`Node::decide_here`].
    pub(crate) async fn decide_here<R: ControllerRequest>(
        &self,
        context: &RequestContext,
        request: R,
    ) -> Result<R::Response, ErrorCode> {
        self.authorize(context)?;
        self.node.decide_here(context, request).await
    }

    /// Authorises the whole request and passes it to the quorum. `has_endpoints` as in [`answer`].
    pub(crate) async fn answer_of_quorum<R: QuorumApi>(
        &self,
        context: &RequestContext,
        request: R,
        has_endpoints: bool,
    ) -> R::Answer {
        if let Err(code) = self.authorize(context) {
            return R::refuse(code);
        }
        let listener_name = &context.listener().name;
        answer(self.node.quorum(), request, listener_name, has_endpoints).await
    }
}
