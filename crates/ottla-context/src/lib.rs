//! What every part of a node reads: its configuration, the cluster image, the clock, the counters, and whether the node
//! is stopping.
//!
//! Owns these values and nothing that acts on them. It is the lowest of the crates with a clock; the parts of the node
//! (network, storage, quorum, partitions, coordinators) hold an `Arc` of it instead of the whole broker, so that none of
//! them reaches the others.
//!
//! Invariants:
//! - Configuration and image are replaced whole; a reader sees one version of each.
//! - The first reason for which a node fails wins.
//!
//! Kafka: `SharedServer`, `BrokerState`.

// Tests make files and threads of their own.
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
use std::time::Duration;

use ottla_config::BrokerConfig;
use ottla_metadata::{MetadataImage, ScramImage};
use ottla_metrics::complaints::Complaints;
use ottla_metrics::{Metric, Metrics};
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
pub use node_tls::{ListenerTls, NodeTls};
pub use ottla_sync::machine::meminfo_bytes;
pub use state::{BrokerState, StopStep};
use state::{StateCell, StopStepCell};
pub use token_keys::TokenKeys;

/// How often the size of the heap is looked at.
const HEAP_CHECK: Duration = Duration::from_secs(1);

/// What every part of a node reads. Everything in it is either immutable, or guards itself.
#[derive(Debug)]
pub struct NodeContext {
    /// The settings of the file, overlaid with the dynamic ones.
    config: ArcSwap<BrokerConfig>,
    /// The cluster as of the last committed metadata record that was applied.
    metadata: ArcSwap<MetadataImage>,
    /// The SCRAM credentials on this node's disk, for logins before the cluster's are known.
    bootstrap_scram: ArcSwap<ScramImage>,
    /// What logins with the delegation tokens of the image are checked against.
    token_credentials: ArcSwap<TokenCredentials>,
    clock: Clock,
    /// What this process may use of its machine.
    machine: Machine,
    pub metrics: Metrics,
    pub complaints: Complaints,
    /// What the node shows and trusts where it uses TLS.
    pub tls: NodeTls,
    /// What OAuth tokens are checked with.
    pub token_keys: TokenKeys,
    /// The file handles of the process, divided at the start.
    pub handles: HandleBudget,
    state: StateCell,
    /// Above so many bytes the heap is full.
    heap_budget: AtomicU64,
    is_heap_full: AtomicBool,
    stop_step: StopStepCell,
    /// Becomes true when the node begins to stop.
    stopping: watch::Sender<bool>,
    /// Becomes true when the stop is to wait for no other node.
    hurried: watch::Sender<bool>,
    /// Why the node cannot go on: a sentence for people. The first reason wins.
    failure: OnceLock<String>,
}

impl NodeContext {
    pub fn new(config: BrokerConfig) -> NodeContext {
        let Limits { machine, handles } = Limits::of(&config);
        NodeContext {
            config: ArcSwap::from_pointee(config),
            metadata: ArcSwap::default(),
            bootstrap_scram: ArcSwap::default(),
            token_credentials: ArcSwap::default(),
            clock: Clock::start(),
            metrics: Metrics::default(),
            complaints: Complaints::default(),
            tls: NodeTls::default(),
            token_keys: TokenKeys::default(),
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

    /// Puts a configuration with other dynamic settings in force.
    pub fn set_config(&self, config: BrokerConfig) {
        self.config.store(Arc::new(config));
    }

    /// The cluster as this node knows it.
    pub fn metadata(&self) -> Guard<Arc<MetadataImage>> {
        self.metadata.load()
    }

    pub fn set_metadata(&self, image: MetadataImage) {
        self.metadata.store(Arc::new(image));
    }

    /// The SCRAM credentials on this node's disk: controllers log in to each other with them before they have a leader,
    /// and so before any image.
    pub fn bootstrap_scram(&self) -> Guard<Arc<ScramImage>> {
        self.bootstrap_scram.load()
    }

    pub fn set_bootstrap_scram(&self, scram: ScramImage) {
        self.bootstrap_scram.store(Arc::new(scram));
    }

    /// What logins with the delegation tokens of the image are checked against; none without
    /// `delegation.token.secret.key`.
    pub fn token_credentials(&self) -> Guard<Arc<TokenCredentials>> {
        self.token_credentials.load()
    }

    /// Follows the tokens of an image that is about to be put in force. Derives keys in thousands of rounds each: not for
    /// a thread that serves connections.
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

    /// Milliseconds of the node's own clock, which only moves forward. For waiting and deadlines.
    pub fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    /// The time of day. For what is written down.
    pub fn timestamp(&self) -> Timestamp {
        self.clock.timestamp()
    }

    /// What this process may use of its machine.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// What this process may use, to show it.
    pub fn limits(&self) -> Limits {
        Limits {
            machine: self.machine,
            handles: self.handles,
        }
    }

    /// What clients together can make this node hold.
    pub fn budgets(&self) -> Budgets {
        Budgets::of(&self.machine)
    }

    /// Whether nothing may be begun that stays in memory: a member, a producer ID, a transactional ID. What is there
    /// goes on.
    pub fn is_heap_full(&self) -> bool {
        self.is_heap_full.load(Ordering::Relaxed)
    }

    /// In force with the next look.
    pub fn set_heap_budget(&self, bytes: u64) {
        self.heap_budget.store(bytes, Ordering::Relaxed);
    }

    /// Looks again and again whether the heap is above its budget. Ends when the node begins to stop.
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
                        "the heap has {bytes} bytes of {budget}: new members of groups, producer IDs and transactional IDs are refused"
                    ),
                    false => tracing::warn!("the heap is within its budget again"),
                }
            }
        }
    }

    /// Refuses what would stay in memory where the heap is full.
    pub fn check_heap(&self) -> Result<(), ErrorCode> {
        match self.is_heap_full() {
            true => {
                self.metrics.add(Metric::RefusedForMemory, 1);
                // Clients try again after a while.
                Err(ErrorCode::CoordinatorLoadInProgress)
            }
            false => Ok(()),
        }
    }

    pub fn state(&self) -> BrokerState {
        self.state.get()
    }

    pub fn set_state(&self, state: BrokerState) {
        self.state.set(state);
    }

    /// What the stop waits for; `None` before it.
    pub fn stop_step(&self) -> Option<StopStep> {
        self.stop_step.get()
    }

    pub fn set_stop_step(&self, step: StopStep) {
        self.stop_step.set(step);
    }

    /// Returns when the node begins to stop.
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

    /// Makes a stop, under way or to come, wait for no other node: the controllers then move the leaders when they miss
    /// this one. Nothing that is on disk is lost.
    pub fn hurry(&self) {
        self.hurried.send_replace(true);
    }

    /// Returns when the stop is to wait for no other node.
    pub async fn hurried(&self) {
        let mut hurried = self.hurried.subscribe();
        // The sender lives as long as the context, so waiting cannot fail.
        let _ = hurried.wait_for(|&hurried| hurried).await;
    }

    /// Begins to stop because the node cannot go on, where Kafka halts. The owner of the node sees
    /// [`NodeContext::stopping`] return, stops it and reports [`NodeContext::failure`].
    pub fn fail(&self, reason: String) {
        tracing::error!("the broker stops: {reason}");
        // The first reason is the one that is reported.
        let _ = self.failure.set(reason);
        self.begin_stop();
    }

    /// Why the node stops by itself; `None` where it does not, or was told to.
    pub fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }
}
