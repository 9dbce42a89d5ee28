//! Share groups (KIP-932) on every broker: the persisted state, and the records that members have
//! acquired from the partitions led here.
//!
//! The three parts may be on three brokers: the group coordinator knows the members (`groups.rs`);
//! the leader of a partition hands out its records ([`LedPartitions`]); the share coordinator
//! persists the delivery state ([`ShareCoordinators`], in `__share_group_state`). Leaders reach it
//! through [`persister`], and write to the topics of [`DeadLetterQueues`].

mod coordinator_config;
mod coordinators;
mod dead_letters;
mod deletion;
mod failure;
mod latest_offsets;
mod led_by_key;
mod led_partition;
mod led_partitions;
pub mod persister;
mod questions;
mod requests;
mod settings;
mod state;

use std::sync::Arc;

use futures_util::future::join_all;
use ottla_config::BrokerConfig;
use ottla_coordinator::share_session::{ConnectionId, ShareSessionKey, ShareSessions};
use ottla_metadata::MetadataDelta;
use ottla_metadata::feature::SHARE_VERSION;
use ottla_sync::Mutex;
use ottla_sync::task::JoinHandle;
use ottla_types::{TopicId, TopicIdPartition};

use crate::surroundings::Surroundings;

pub use coordinators::{SHARE_STATE_TOPIC, ShareCoordinators};
pub use dead_letters::{DeadLetterCounts, DeadLetterQueues};
pub use deletion::delete_state;
pub use failure::{PartitionFailure, panicked};
pub use latest_offsets::latest_offsets;
// Measured by verification/growth.
#[doc(hidden)]
pub use led_by_key::LedByKey;
pub use led_partition::{LedPartition, Reading};
pub use led_partitions::LedPartitions;
pub use persister::AT_ONCE;
pub use questions::{DeleteState, ReadSummary, StateQuestion};
pub use requests::{answer, ask_for_each};
pub use settings::GroupSettings;

/// The share group services of this broker.
#[derive(Debug)]
pub struct ShareGroups {
    pub coordinators: Arc<ShareCoordinators>,
    pub sessions: Mutex<ShareSessions>,
    pub partitions: LedPartitions,
}

impl std::ops::Deref for ShareGroups {
    type Target = ShareCoordinators;

    fn deref(&self) -> &Self::Target {
        &self.coordinators
    }
}

impl ShareGroups {
    pub fn new(surroundings: Arc<Surroundings>, config: &BrokerConfig) -> Self {
        let max_sessions = config.group_share_max_share_sessions;
        let coordinators = Arc::new(ShareCoordinators::new(surroundings, config));
        ShareGroups {
            sessions: Mutex::new(ShareSessions::new(max_sessions.max(0) as usize)),
            partitions: LedPartitions::new(Arc::clone(&coordinators)),
            coordinators,
        }
    }

    /// Ends the sessions of the members whose connection was closed.
    pub fn on_disconnected(self: &Arc<Self>, connection: ConnectionId) {
        let ended = self.sessions.lock().on_disconnected(connection);
        for (key, partitions) in ended.sessions {
            self.release(key, partitions);
        }
        if let Some(group_id) = ended.left_group {
            self.close_abandoned(&group_id);
        }
    }

    /// Ends a member's session at its own request. Returns when the release of its records is
    /// persisted. Kafka answers before that, and then:
    /// 1. the member receives the answer to its last request,
    /// 2. an administrator sets the group's offsets,
    /// 3. the release is persisted, with the start offset from before.
    ///
    /// The share coordinator refuses the write of step 3 only if its state epoch is older than that
    /// of step 2. Both are group epochs, and a member that leaves raises the group epoch. So the
    /// release after a closed connection, for which no request waits, cannot overwrite the offsets.
    /// But a client can fetch without being a member.
    pub async fn end_session(self: &Arc<Self>, key: &ShareSessionKey) {
        let ended = self.sessions.lock().end(key);
        if let Some(partitions) = ended {
            // A panic is reported where it happens.
            let _ = self.release(key.clone(), partitions).await;
        }
    }

    /// Makes the records that a member has acquired available to others once that is persisted. A
    /// task, because the connection on which the member waits may be closed.
    fn release(
        self: &Arc<Self>,
        key: ShareSessionKey,
        partitions: Vec<TopicIdPartition>,
    ) -> JoinHandle<()> {
        let groups = Arc::clone(self);
        ottla_sync::task::spawn(async move {
            groups.release_each(&key, partitions).await;
            groups.sessions.lock().on_released(&key.group_id);
            groups.close_abandoned(&key.group_id);
        })
    }

    /// Closes the share partitions of a group that has no members left. New members cannot start a
    /// session during the call.
    fn close_abandoned(&self, group_id: &str) {
        let mut sessions = self.sessions.lock();
        if sessions.take_abandoned(group_id) {
            self.partitions.close_group(group_id);
        }
    }

    /// All releases start at once: a share coordinator that does not answer must not delay those
    /// that others persist.
    async fn release_each(&self, key: &ShareSessionKey, partitions: Vec<TopicIdPartition>) {
        let partitions = partitions.into_iter();
        let led = partitions.filter_map(|it| self.partitions.get(&key.group_id, it));
        let releases: Vec<_> = led
            .map(|led| async move {
                if let Err(failure) = led.release(&key.member_id).await {
                    // The record locks expire.
                    let (partition, reason) = (&led.partition.topic_partition, failure.message);
                    let member = &key.member_id;
                    tracing::debug!(%partition, "records stay locked by {member}: {reason}");
                }
            })
            .collect();
        join_all(releases).await;
    }

    /// Called after the replicas of this broker have applied a metadata change.
    pub fn follow_metadata(self: &Arc<Self>, delta: &MetadataDelta) {
        self.partitions.follow_leadership(delta);
        let deleted: Vec<TopicId> = delta
            .topics
            .deleted
            .values()
            .map(|topic| topic.id)
            .collect();
        if !deleted.is_empty() {
            self.coordinators.on_topics_deleted(&deleted);
        }
    }
}

/// Whether the cluster's feature level enables share groups.
pub fn are_enabled(share_groups: &ShareGroups) -> bool {
    share_groups
        .surroundings
        .context
        .metadata()
        .features
        .level(SHARE_VERSION.name)
        >= 1
}
