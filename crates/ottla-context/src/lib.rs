//! The context that all parts of a node share: configuration, cluster image, clock, metrics, and
//! whether the node is stopping.
//!
//! This crate owns these values and contains nothing that acts on them. It is the lowest crate with
//! a clock. The parts of a node (network, storage, quorum, partitions, coordinators) hold an `Arc`
//! of it instead of the whole broker, so that they cannot reach each other.
//!
//! Invariants:
//! - Configuration and image are replaced as a whole; a reader sees one consistent version of each.
//! - The first reason for a failure of the node wins.
//!
//! Kafka: `SharedServer`, `BrokerState`.

// Tests create files and threads.
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_types))]

mod budgets;
mod clock;
mod effective_config;
mod handle_budget;
mod limits;
mod node_tls;
mod state;
mod token_keys;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use ottla_config::BrokerConfig;
use ottla_metadata::{MetadataImage, ScramImage};
use ottla_metrics::complaints::Complaints;
use ottla_metrics::line_limit::LimitedLines;
use ottla_metrics::{Metric, Metrics};
use ottla_oauth::LoginTokens;
use ottla_sasl::TokenCredentials;
use ottla_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use ottla_sync::machine::{self, Machine};
use ottla_sync::watch;
use ottla_sync::{ArcSwap, Guard};
use ottla_types::{BrokerId, ErrorCode, Timestamp};

pub use budgets::Budgets;
use clock::Clock;
pub use clock::time_of_day;
pub use effective_config::effective_config;
pub use handle_budget::HandleBudget;
pub use limits::{Limits, Shortage};
pub use node_tls::{ExaminedTls, ListenerTls, NodeTls};
pub use ottla_sync::machine::meminfo_bytes;
pub use state::{BrokerState, StopStep};
use state::{StateCell, StopStepCell};
pub use token_keys::TokenKeys;

/// How often the size of the heap is checked.
const HEAP_CHECK: Duration = Duration::from_secs(1);
/// The maximum number of lines a minute about records that cannot be read, each about another
/// partition.
const FAILED_READ_LINES: u64 = 100;

/// For clients that asked for something that needs memory for long.
pub const HEAP_FULL: &str = "the broker uses more than half of the memory that it may use (see \
     ottla.memory.max.bytes), and takes on nothing more until it uses less";

/// The shared context of a node. Its parts are immutable or synchronise themselves.
#[derive(Debug)]
pub struct NodeContext {
    /// The settings of the file, overlaid with the dynamic settings.
    config: ArcSwap<BrokerConfig>,
    /// The cluster image as of the last metadata record that was applied.
    metadata: ArcSwap<MetadataImage>,
    /// The SCRAM credentials that this node was formatted with, for logins before there is an
    /// image.
    bootstrap_scram: ArcSwap<ScramImage>,
    /// The credentials derived from the delegation tokens in the image.
    token_credentials: ArcSwap<TokenCredentials>,
    clock: Clock,
    /// The resources that this process may use.
    machine: Machine,
    pub metrics: Metrics,
    pub complaints: Complaints,
    /// Lines about records that cannot be read, by partition: each request for them would log one.
    pub failed_reads: LimitedLines,
    pub tls: NodeTls,
    /// The keys that verify OAuth tokens.
    pub token_keys: TokenKeys,
    /// The OAuth tokens with which this node logs in to others.
    pub login_tokens: Arc<LoginTokens>,
    /// The file handles of the process, divided at start.
    pub handles: HandleBudget,
    /// Becomes true when the node has secrets in its memory.
    secrets: watch::Sender<bool>,
    state: StateCell,
    /// The heap counts as full above this number of bytes.
    heap_budget: AtomicU64,
    is_heap_full: AtomicBool,
    stop_step: StopStepCell,
    /// Becomes true when the node starts to stop.
    stopping: watch::Sender<bool>,
    /// Becomes true when the stop must not wait for other nodes.
    hurried: watch::Sender<bool>,
    /// Why the node has failed: a sentence for people. The first reason wins.
    failure: OnceLock<String>,
}

impl NodeContext {
    pub fn new(config: BrokerConfig) -> NodeContext {
        let Limits { machine, handles } = Limits::of(&config);
        NodeContext {
            secrets: watch::Sender::new(config.has_secrets()),
            config: ArcSwap::from_pointee(config),
            metadata: ArcSwap::default(),
            bootstrap_scram: ArcSwap::default(),
            token_credentials: ArcSwap::default(),
            clock: Clock::start(),
            metrics: Metrics::default(),
            complaints: Complaints::default(),
            failed_reads: LimitedLines::new("failed reads of records", 1, FAILED_READ_LINES),
            tls: NodeTls::default(),
            token_keys: TokenKeys::default(),
            login_tokens: Arc::default(),
            handles,
            state: StateCell::default(),
            heap_budget: AtomicU64::new(Budgets::of(&machine).heap_bytes),
            is_heap_full: AtomicBool::new(false),
            machine,
            stop_step: StopStepCell::default(),
            stopping: watch::Sender::new(false),
            hurried: watch::Sender::new(false),
            failure: OnceLock::new(),
        }
    }

    pub fn config(&self) -> Guard<Arc<BrokerConfig>> {
        self.config.load()
    }

    /// Replaces the configuration after a change of dynamic settings.
    pub fn set_config(&self, config: BrokerConfig) {
        if config.has_secrets() {
            self.on_secrets();
        }
        self.config.store(Arc::new(config));
    }

    /// The cluster image as this node knows it.
    pub fn metadata(&self) -> Guard<Arc<MetadataImage>> {
        self.metadata.load()
    }

    pub fn set_metadata(&self, image: MetadataImage) {
        self.metadata.store(Arc::new(image));
    }

    /// The SCRAM credentials that this node was formatted with. Controllers log in to each other
    /// with them before they have a leader, and so before there is an image.
    pub fn bootstrap_scram(&self) -> Guard<Arc<ScramImage>> {
        self.bootstrap_scram.load()
    }

    pub fn set_bootstrap_scram(&self, scram: ScramImage) {
        if !scram.is_empty() {
            self.on_secrets();
        }
        self.bootstrap_scram.store(Arc::new(scram));
    }

    /// The credentials derived from the delegation tokens in the image; empty without
    /// `delegation.token.secret.key`.
    pub fn token_credentials(&self) -> Guard<Arc<TokenCredentials>> {
        self.token_credentials.load()
    }

    /// Updates the token credentials for an image that is about to become visible. Each derivation
    /// takes thousands of hash rounds, so do not call this on a thread that serves connections.
    pub fn follow_tokens(&self, image: &MetadataImage) {
        let config = self.config();
        let Some(secret_key) = config.delegation_token_secret_key() else {
            return;
        };
        let tokens = image.kept.delegation_tokens.iter();
        let ids = tokens.map(|token| &*token.token_id);
        let followed = self.token_credentials().following(secret_key, ids);
        self.token_credentials.store(Arc::new(followed));
    }

    /// `node.id`.
    pub fn broker_id(&self) -> BrokerId {
        BrokerId(self.config().node_id)
    }

    /// Milliseconds of the node's monotonic clock. Use it for waits and deadlines.
    pub fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    /// As [`now_ms`](Self::now_ms), for an instant that was read before.
    pub fn ms_at(&self, instant: Instant) -> u64 {
        self.clock.ms_at(instant)
    }

    /// The wall clock. Use it for what is stored.
    pub fn timestamp(&self) -> Timestamp {
        self.clock.timestamp()
    }

    /// The resources that this process may use.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The resources that this process may use, for display.
    pub fn limits(&self) -> Limits {
        Limits {
            machine: self.machine,
            handles: self.handles,
        }
    }

    /// The bounds on the memory that clients together can make this node use.
    pub fn budgets(&self) -> Budgets {
        Budgets::of(&self.machine)
    }

    /// Whether the heap is above its budget. If so, no group member, producer ID or transactional
    /// ID is created, and no topic for a client; existing ones continue to work.
    pub fn is_heap_full(&self) -> bool {
        self.is_heap_full.load(Ordering::Relaxed)
    }

    /// Takes effect at the next check of the heap.
    pub fn set_heap_budget(&self, bytes: u64) {
        self.heap_budget.store(bytes, Ordering::Relaxed);
    }

    /// Checks periodically whether the heap is above its budget, until the node starts to stop.
    pub async fn watch_heap(&self) {
        loop {
            ottla_sync::select! {
                () = ottla_sync::time::sleep(HEAP_CHECK) => {}
                () = self.stopping() => return,
            }
            let bytes = machine::anonymous_bytes().unwrap_or(0);
            let budget = self.heap_budget.load(Ordering::Relaxed);
            let is_full = bytes > budget;
            if self.is_heap_full.swap(is_full, Ordering::Relaxed) != is_full {
                match is_full {
                    true => tracing::warn!(
                        "the heap uses {bytes} of {budget} bytes: new topics, partitions, members of groups, committed offsets, producer IDs, transactional IDs and delegation tokens are refused"
                    ),
                    false => tracing::warn!("the heap is within its budget again"),
                }
            }
        }
    }

    /// Returns an error if the heap is full. To be called before long-lived state is created.
    pub fn check_heap(&self) -> Result<(), ErrorCode> {
        if self.is_heap_full() {
            self.metrics.add(Metric::RefusedForMemory, 1);
            // A retriable error, so that clients try again later.
            Err(ErrorCode::CoordinatorLoadInProgress)
        } else {
            Ok(())
        }
    }

    pub fn state(&self) -> BrokerState {
        self.state.get()
    }

    pub fn set_state(&self, state: BrokerState) {
        self.state.set(state);
    }

    /// The step that the stop waits for; `None` before the stop.
    pub fn stop_step(&self) -> Option<StopStep> {
        self.stop_step.get()
    }

    pub fn set_stop_step(&self, step: StopStep) {
        self.stop_step.set(step);
    }

    /// The node learns a secret that is not in its configuration.
    pub fn on_secrets(&self) {
        if !*self.secrets.borrow() {
            self.secrets.send_replace(true);
        }
    }

    /// Returns when the node has secrets in its memory: those of its configuration, of users, of
    /// delegation tokens, or of other nodes.
    pub async fn has_secrets(&self) {
        let mut secrets = self.secrets.subscribe();
        // The sender lives as long as the context, so waiting cannot fail.
        let _ = secrets.wait_for(|&has_secrets| has_secrets).await;
    }

    /// Returns when the node starts to stop.
    pub async fn stopping(&self) {
        let mut stopping = self.stopping.subscribe();
        // The sender lives as long as the context, so waiting cannot fail.
        let _ = stopping.wait_for(|&stopping| stopping).await;
    }

    pub fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    pub fn begin_stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Makes a current or future stop not wait for other nodes: the controllers move the leaders
    /// once they have missed this node's heartbeats. Data on disk is not lost.
    pub fn hurry(&self) {
        self.hurried.send_replace(true);
    }

    /// Returns when the stop must not wait for other nodes.
    pub async fn hurried(&self) {
        let mut hurried = self.hurried.subscribe();
        // The sender lives as long as the context, so waiting cannot fail.
        let _ = hurried.wait_for(|&hurried| hurried).await;
    }

    /// Starts to stop because the node cannot continue, where Kafka halts. The owner of the node
    /// sees [`NodeContext::stopping`] return, stops the node and reports [`NodeContext::failure`].
    pub fn fail(&self, reason: String) {
        tracing::error!("the broker stops: {reason}");
        // Only the first reason is kept.
        let _ = self.failure.set(reason);
        self.begin_stop();
    }

    /// Why the node stopped by itself; `None` if it did not, or was asked to stop.
    pub fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }
}
