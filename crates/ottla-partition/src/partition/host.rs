//! The dependencies of a partition: its context, and two services implemented above it.
//!
//! A partition does not depend on other partitions, requests or coordinators. It reaches
//! replication and the transaction coordinators through [`Replicate`] and [`VerifyTransactions`],
//! whose implementations are set before the first partition is opened.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};

use ottla_context::NodeContext;
use ottla_log::LogReader;
use ottla_replica::AlterPartition;
use ottla_storage::log_dirs::LogDirs;
use ottla_sync::Mutex;
use ottla_sync::collections::HashMap;
use ottla_types::{BrokerId, ErrorCode, LeaderEpoch, TopicPartition};

use super::log_location::DirResources;
use super::page_cache::PageCache;
use super::producer_transaction::ProducerTransaction;
use super::topic_ids::TopicIdsToWrite;
use super::{LeaderFetcher, Partition};

/// State shared by the partitions of a broker.
pub struct PartitionHost {
    pub context: Arc<NodeContext>,
    /// Set once, before the broker joins its cluster.
    log_dirs: OnceLock<Arc<LogDirs>>,
    /// Weak, because they hold this host.
    replication: OnceLock<Weak<dyn Replicate>>,
    verifier: OnceLock<Weak<dyn VerifyTransactions>>,
    /// Only with tiered storage.
    remote_states: OnceLock<Weak<dyn FetchRemoteState>>,
    /// By log directory.
    dir_resources: Mutex<HashMap<PathBuf, Arc<DirResources>>>,
    pub page_cache: PageCache,
    pub(super) topic_ids: TopicIdsToWrite,
}

/// The replication service.
pub trait Replicate: Send + Sync {
    /// The fetcher that fetches this partition from `leader`.
    fn fetcher(
        self: Arc<Self>,
        leader: BrokerId,
        topic_partition: &TopicPartition,
    ) -> Arc<dyn LeaderFetcher>;

    /// Proposes an ISR to the controller, whose response reaches the partition as an event. With
    /// `is_again`, the same proposal was refused before, and it is delayed a little.
    fn propose(
        self: Arc<Self>,
        partition: &Arc<Partition>,
        proposal: AlterPartition,
        is_again: bool,
    );
}

/// Asks transaction coordinators.
pub trait VerifyTransactions: Send + Sync {
    /// Verifies that the partition is part of the transaction, or adds it. `answer` is called
    /// exactly once, even if the coordinator cannot be reached.
    fn verify(
        self: Arc<Self>,
        transaction: Arc<ProducerTransaction>,
        partition: TopicPartition,
        answer: Box<dyn FnOnce(Result<(), ErrorCode>) + Send>,
    );
}

/// Tiered storage.
pub trait FetchRemoteState: Send + Sync {
    /// Fetches the state before the first record that the leader has on its disk, and passes it to
    /// [`Partition::on_remote_state_fetched`].
    fn fetch_state(
        self: Arc<Self>,
        partition: &Arc<Partition>,
        leader: BrokerId,
        leader_epoch: LeaderEpoch,
    );
}

impl PartitionHost {
    pub fn new(context: Arc<NodeContext>) -> PartitionHost {
        PartitionHost {
            context,
            log_dirs: OnceLock::new(),
            replication: OnceLock::new(),
            verifier: OnceLock::new(),
            remote_states: OnceLock::new(),
            dir_resources: Mutex::default(),
            page_cache: PageCache::default(),
            topic_ids: TopicIdsToWrite::default(),
        }
    }

    /// Sets the log directories.
    pub fn set_log_dirs(&self, log_dirs: Arc<LogDirs>) {
        let is_first = self.log_dirs.set(log_dirs).is_ok();
        assert!(is_first, "the log directories are taken into use once");
    }

    /// The log directories; `None` before they are set.
    pub fn log_dirs(&self) -> Option<&Arc<LogDirs>> {
        self.log_dirs.get()
    }

    pub fn set_replication(&self, replication: Weak<dyn Replicate>) {
        let is_first = self.replication.set(replication).is_ok();
        assert!(is_first, "replication is put in place once");
    }

    /// `None` if the broker has stopped.
    pub(super) fn replication(&self) -> Option<Arc<dyn Replicate>> {
        let replication = self.replication.get();
        replication
            .expect("replication is in place before the first partition")
            .upgrade()
    }

    pub fn set_verifier(&self, verifier: Weak<dyn VerifyTransactions>) {
        let is_first = self.verifier.set(verifier).is_ok();
        assert!(is_first, "the verifier is put in place once");
    }

    /// `None` if the broker has stopped.
    pub(super) fn verifier(&self) -> Option<Arc<dyn VerifyTransactions>> {
        let verifier = self.verifier.get();
        verifier
            .expect("the verifier is in place before the first partition")
            .upgrade()
    }

    pub fn set_remote_states(&self, remote_states: Weak<dyn FetchRemoteState>) {
        let is_first = self.remote_states.set(remote_states).is_ok();
        assert!(is_first, "tiered storage is put in place once");
    }

    /// `None` without tiered storage, or if the broker has stopped.
    pub(super) fn remote_states(&self) -> Option<Arc<dyn FetchRemoteState>> {
        self.remote_states.get()?.upgrade()
    }

    /// The resources of the log directory that contains a log.
    pub fn dir_resources(&self, log: &LogReader) -> Arc<DirResources> {
        let dir = log.dir();
        let log_dir = dir.parent().unwrap_or(&dir);
        let mut all = self.dir_resources.lock();
        if let Some(known) = all.get(log_dir) {
            return Arc::clone(known);
        }
        let resources = self.log_dirs().map(|log_dirs| DirResources {
            space: log_dirs.space_of(log),
            threads: log_dirs.threads_of(log),
            ..DirResources::default()
        });
        let resources = Arc::new(resources.unwrap_or_default());
        all.insert(log_dir.to_owned(), Arc::clone(&resources));
        resources
    }
}

impl std::fmt::Debug for PartitionHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PartitionHost")
            .field("log_dirs", &self.log_dirs)
            .field("page_cache", &self.page_cache)
            .finish_non_exhaustive()
    }
}
