//! Share groups (KIP-932), as every broker serves them: how far each is, where that is kept, and what their members
//! hold of the partitions that this broker leads.
//!
//! Three parts, which may lie on three brokers: the group's coordinator knows the members (`groups.rs`); the leader of
//! a partition hands out its records ([`LedPartitions`]); the share coordinator persists what has become of them
//! ([`ShareCoordinator`], over `__share_group_state`), and leaders reach it through [`Persister`].

mod coordinator_config;
mod deletion;
mod latest_offsets;
mod led_partition;
mod led_partitions;
mod persister;
mod settings;
mod state;

use std::sync::Arc;
use std::time::Duration;

use ottla_config::BrokerConfig;
use ottla_coordinator::share_session::{
    ConnectionId, Disconnected, ShareSessionKey, ShareSessions,
};
use ottla_coordinator::share_state::{Command, ShareCoordinator, ShareCoordinatorConfig};
use ottla_metadata::MetadataDelta;
use ottla_metadata::feature::SHARE_VERSION;
use ottla_records::Compression;
use ottla_sync::Mutex;
use ottla_types::{LeaderEpoch, Offset, TopicId, TopicIdPartition};

use crate::runtime::{Coordinators, Served, Shard};
use crate::surroundings::Surroundings;

pub use deletion::delete_state;
pub use latest_offsets::latest_offsets;
pub use led_partition::{LedPartition, Reading};
pub use led_partitions::LedPartitions;
pub use persister::{AT_ONCE, Persister};
pub use settings::GroupSettings;
pub use state::{PartitionFailure, ask_for_each, panicked};

/// The topic whose partitions hold the state of share groups; created when it is first looked for.
pub const SHARE_STATE_TOPIC: &str = "__share_group_state";

/// What this broker does for share groups.
#[derive(Debug)]
pub struct ShareGroups {
    config: Arc<ShareCoordinatorConfig>,
    coordinators: Coordinators<ShareCoordinator>,
    pub sessions: Mutex<ShareSessions>,
    pub partitions: LedPartitions,
}

impl std::ops::Deref for ShareGroups {
    type Target = Coordinators<ShareCoordinator>;

    fn deref(&self) -> &Self::Target {
        &self.coordinators
    }
}

impl ShareGroups {
    pub fn new(surroundings: Arc<Surroundings>, config: &BrokerConfig) -> Self {
        let max_sessions = config.group_share_max_share_sessions;
        ShareGroups {
            config: Arc::new(coordinator_config::from_broker_config(config)),
            coordinators: Coordinators::new(surroundings),
            sessions: Mutex::new(ShareSessions::new(max_sessions.max(0) as usize)),
            partitions: LedPartitions::default(),
        }
    }

    /// A connection is closed, and with it the session of the member that was behind it.
    pub fn on_disconnected(self: &Arc<Self>, connection: ConnectionId) {
        let ended = self.sessions.lock().on_disconnected(connection);
        if ended == Disconnected::default() {
            return;
        }
        let groups = Arc::clone(self);
        ottla_sync::task::spawn(async move {
            if let Some((key, partitions)) = ended.member {
                groups.release(&key, partitions).await;
            }
            // What was given back is persisted by then. Somebody may have come meanwhile.
            let empty = ended.empty_group;
            let empty = empty.filter(|group_id| !groups.sessions.lock().has_members(group_id));
            if let Some(group_id) = empty {
                groups.partitions.close_group(&group_id);
            }
        });
    }

    /// What a member has in hand is for the others, as soon as that is persisted.
    pub async fn release(
        self: &Arc<Self>,
        key: &ShareSessionKey,
        partitions: Vec<TopicIdPartition>,
    ) {
        for partition in partitions {
            let Some(led) = self.partitions.get(&key.group_id, partition) else {
                continue;
            };
            if let Err(failure) = led.release(self, &key.member_id).await {
                // The locks run out.
                let (partition, reason) = (&led.partition.topic_partition, failure.message);
                tracing::debug!(%partition, "records stay locked by {}: {reason}", key.member_id);
            }
        }
    }

    /// The metadata has changed, and the replicas of this broker have followed.
    pub fn follow_metadata(self: &Arc<Self>, delta: &MetadataDelta) {
        self.partitions.follow_leadership(self, delta);
        let deleted: Vec<TopicId> = delta
            .topics
            .deleted
            .values()
            .map(|topic| topic.id)
            .collect();
        if deleted.is_empty() {
            return;
        }
        for shard in self.all_shards() {
            // One that is loading keeps what it reads of a topic that is gone, and so does Kafka.
            let _ = shard.tell(self, |coordinator, _| {
                coordinator.on_topics_deleted(&deleted)
            });
        }
    }
}

/// Whether the cluster has share groups.
pub fn are_enabled(share_groups: &ShareGroups) -> bool {
    share_groups
        .surroundings
        .context
        .metadata()
        .features
        .level(SHARE_VERSION.name)
        >= 1
}

impl Served for ShareCoordinator {
    type Host = ShareGroups;
    const TOPIC: &'static str = SHARE_STATE_TOPIC;
    const WHAT: &'static str = "the state of share groups";

    fn configured_partitions(config: &BrokerConfig) -> i32 {
        config.share_coordinator_state_topic_num_partitions
    }

    fn new(share_groups: &ShareGroups, _leader_epoch: LeaderEpoch) -> Self {
        ShareCoordinator::new(Arc::clone(&share_groups.config))
    }

    /// `share.coordinator.state.topic.compression.codec`, at the codec's default level.
    fn compression(share_groups: &ShareGroups) -> Compression {
        match share_groups
            .surroundings
            .context
            .config()
            .share_coordinator_state_topic_compression_codec
        {
            1 => Compression::Gzip { level: -1 },
            2 => Compression::Snappy,
            3 => Compression::Lz4 { level: 9 },
            4 => Compression::Zstd { level: 3 },
            _ => Compression::None,
        }
    }

    fn commit_timeout(share_groups: &ShareGroups) -> Duration {
        let timeout_ms = share_groups
            .surroundings
            .context
            .config()
            .share_coordinator_write_timeout_ms;
        Duration::from_millis(timeout_ms.max(1) as u64)
    }

    fn execute(shard: &Arc<Shard<Self>>, share_groups: &Arc<ShareGroups>, command: Command) {
        let Command::DeleteRecordsBefore(offset) = command;
        let (shard, share_groups) = (Arc::clone(shard), Arc::clone(share_groups));
        ottla_sync::task::spawn(async move { delete_records(&share_groups, &shard, offset).await });
    }
}

async fn delete_records(
    share_groups: &Arc<ShareGroups>,
    shard: &Shard<ShareCoordinator>,
    before: Offset,
) {
    let partition = shard.partition();
    let deleted = partition.with_log(&share_groups.surroundings.host, move |log| {
        log.increment_log_start_offset(before)
    });
    if let Some(Err(error)) = deleted.await {
        // What stays is read once more at the next start.
        let partition = &partition.topic_partition;
        tracing::warn!(%partition, "records before offset {before} are not needed and stay: {error}");
    }
}
