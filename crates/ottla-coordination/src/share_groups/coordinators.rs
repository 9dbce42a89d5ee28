//! The share coordinators, as far as they differ from other coordinators; the rest is in
//! `runtime.rs`.

use std::sync::Arc;
use std::time::Duration;

use ottla_config::BrokerConfig;
use ottla_coordinator::share_state::{Command, ShareCoordinator, ShareCoordinatorConfig};
use ottla_records::Compression;
use ottla_types::{LeaderEpoch, Offset, TopicId};

use super::coordinator_config;
use crate::runtime::{Coordinators, Shard, ShardedCoordinator, compression_of};
use crate::surroundings::Surroundings;

/// The topic whose partitions hold the state of share groups; created on the first lookup.
pub const SHARE_STATE_TOPIC: &str = "__share_group_state";

#[derive(Debug)]
pub struct ShareCoordinators {
    config: Arc<ShareCoordinatorConfig>,
    coordinators: Coordinators<ShareCoordinator>,
}

impl std::ops::Deref for ShareCoordinators {
    type Target = Coordinators<ShareCoordinator>;

    fn deref(&self) -> &Self::Target {
        &self.coordinators
    }
}

impl ShareCoordinators {
    pub(super) fn new(surroundings: Arc<Surroundings>, config: &BrokerConfig) -> Self {
        ShareCoordinators {
            config: Arc::new(coordinator_config::from_broker_config(config)),
            coordinators: Coordinators::new(surroundings),
        }
    }

    pub(super) fn on_topics_deleted(self: &Arc<Self>, deleted: &[TopicId]) {
        for shard in self.all_shards() {
            // As in Kafka, a shard that is loading keeps the state it reads of a deleted topic.
            let _ = shard.tell(self, |coordinator, _| {
                coordinator.on_topics_deleted(deleted)
            });
        }
    }
}

impl ShardedCoordinator for ShareCoordinator {
    type Host = ShareCoordinators;
    const TOPIC: &'static str = SHARE_STATE_TOPIC;
    const WHAT: &'static str = "the state of share groups";

    fn configured_partitions(config: &BrokerConfig) -> i32 {
        config.share_coordinator_state_topic_num_partitions
    }

    fn new(coordinators: &ShareCoordinators, _leader_epoch: LeaderEpoch) -> Self {
        ShareCoordinator::new(Arc::clone(&coordinators.config))
    }

    /// `share.coordinator.state.topic.compression.codec`, at the codec's default level.
    fn compression(coordinators: &ShareCoordinators) -> Compression {
        let config = coordinators.surroundings.context.config();
        compression_of(config.share_coordinator_state_topic_compression_codec)
    }

    fn commit_timeout(coordinators: &ShareCoordinators) -> Duration {
        let timeout_ms = coordinators
            .surroundings
            .context
            .config()
            .share_coordinator_write_timeout_ms;
        Duration::from_millis(timeout_ms.max(1) as u64)
    }

    fn execute(shard: &Arc<Shard<Self>>, coordinators: &Arc<ShareCoordinators>, command: Command) {
        let Command::DeleteRecordsBefore(offset) = command;
        let (shard, coordinators) = (Arc::clone(shard), Arc::clone(coordinators));
        ottla_sync::task::spawn(async move { delete_records(&coordinators, &shard, offset).await });
    }
}

async fn delete_records(
    coordinators: &Arc<ShareCoordinators>,
    shard: &Shard<ShareCoordinator>,
    before: Offset,
) {
    let partition = shard.partition();
    let deleted = partition.with_log(&coordinators.surroundings.host, move |log| {
        log.increment_log_start_offset(before)
    });
    if let Some(Err(error)) = deleted.await {
        // The remaining records are read again at the next start.
        let partition = &partition.topic_partition;
        tracing::warn!(%partition, "records before offset {before} are not needed but could not be deleted: {error}");
    }
}
