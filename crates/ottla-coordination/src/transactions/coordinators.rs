//! The transaction coordinators, as far as they differ from other coordinators; the rest is in
//! `runtime.rs`.

use std::sync::{Arc, Weak};
use std::time::Duration;

use ottla_config::BrokerConfig;
use ottla_coordinator::transaction::{
    Command, Markers, TransactionCoordinator, TransactionCoordinatorConfig,
};
use ottla_metadata::feature::TRANSACTION_VERSION;
use ottla_metadata::{MetadataDelta, MetadataImage};
use ottla_records::Compression;
use ottla_types::{ErrorCode, LeaderEpoch, TopicPartition};

use super::coordinator_config;
use super::marker_sender::{MarkerAnswers, MarkerSender};
use super::write_markers::request_timeout;
use crate::groups::Groups;
use crate::runtime::{Coordinators, Shard, ShardedCoordinator};
use crate::surroundings::Surroundings;

/// The topic whose partitions hold the transactional IDs; created on the first lookup.
pub const TRANSACTION_TOPIC: &str = "__transaction_state";

#[derive(Debug)]
pub struct TransactionCoordinators {
    config: Arc<TransactionCoordinatorConfig>,
    coordinators: Coordinators<TransactionCoordinator>,
    marker_sender: Arc<MarkerSender>,
}

impl std::ops::Deref for TransactionCoordinators {
    type Target = Coordinators<TransactionCoordinator>;

    fn deref(&self) -> &Self::Target {
        &self.coordinators
    }
}

impl TransactionCoordinators {
    pub(super) fn new(
        surroundings: Arc<Surroundings>,
        groups: Arc<Groups>,
        config: &BrokerConfig,
    ) -> Self {
        TransactionCoordinators {
            config: Arc::new(coordinator_config::from_broker_config(config)),
            coordinators: Coordinators::new(surroundings),
            marker_sender: Arc::new(MarkerSender::new(groups)),
        }
    }

    /// Applies a change of the level of `transaction.version`.
    pub(super) fn follow_features(self: &Arc<Self>, delta: &MetadataDelta) {
        let level = version_of(&delta.after);
        if level == version_of(&delta.before) {
            return;
        }
        for shard in self.all_shards() {
            // A shard that is loading reads the level when it is loaded.
            let _ = shard.tell(self, |coordinator, _| {
                coordinator.set_transaction_version(level);
                Default::default()
            });
        }
    }
}

/// Passes the results of markers to the coordinator that sent them.
struct ShardAnswers {
    shard: Arc<Shard<TransactionCoordinator>>,
    /// Weak, because they hold the sender of the markers, which holds this.
    coordinators: Weak<TransactionCoordinators>,
}

impl MarkerAnswers for ShardAnswers {
    fn are_awaited(&self) -> bool {
        !self.shard.is_closed()
    }

    fn tell(&self, markers: &Markers, answers: &[(TopicPartition, ErrorCode)]) {
        let Markers {
            transactional_id,
            producer,
            ..
        } = markers;
        let Some(coordinators) = self.coordinators.upgrade() else {
            return;
        };
        // A later coordinator reads the remaining work from its log.
        let _ = self.shard.tell(&coordinators, |coordinator, now| {
            coordinator.on_markers_answered(transactional_id, *producer, answers, now)
        });
    }
}

/// The cluster's level of `transaction.version`.
pub fn version_of(image: &MetadataImage) -> i16 {
    image.features.level(TRANSACTION_VERSION.name)
}

impl ShardedCoordinator for TransactionCoordinator {
    type Host = TransactionCoordinators;
    const TOPIC: &'static str = TRANSACTION_TOPIC;
    const WHAT: &'static str = "transactions";

    fn configured_partitions(config: &BrokerConfig) -> i32 {
        config.transaction_state_log_num_partitions
    }

    fn new(coordinators: &TransactionCoordinators, leader_epoch: LeaderEpoch) -> Self {
        let config = Arc::clone(&coordinators.config);
        TransactionCoordinator::new(
            config,
            leader_epoch.0,
            version_of(&coordinators.surroundings.context.metadata()),
        )
    }

    fn begin(&mut self, coordinators: &TransactionCoordinators) {
        self.set_transaction_version(version_of(&coordinators.surroundings.context.metadata()));
    }

    fn compression(_coordinators: &TransactionCoordinators) -> Compression {
        Compression::None
    }

    fn commit_timeout(coordinators: &TransactionCoordinators) -> Duration {
        request_timeout(&coordinators.surroundings)
    }

    fn execute(
        shard: &Arc<Shard<Self>>,
        coordinators: &Arc<TransactionCoordinators>,
        command: Command,
    ) {
        match command {
            Command::AllocateProducerId => {
                let (shard, coordinators) = (Arc::clone(shard), Arc::clone(coordinators));
                ottla_sync::task::spawn(async move {
                    let producer_id = coordinators
                        .surroundings
                        .producer_ids
                        .next_producer_id()
                        .await;
                    // A closed shard has answered all requests.
                    let _ = shard.tell(&coordinators, |coordinator, now| {
                        coordinator.on_producer_id(producer_id, now)
                    });
                });
            }
            Command::SendMarkers(markers) => {
                let answers = Arc::new(ShardAnswers {
                    shard: Arc::clone(shard),
                    coordinators: Arc::downgrade(coordinators),
                });
                coordinators.marker_sender.send(markers, answers);
            }
        }
    }
}
