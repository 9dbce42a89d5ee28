//! Transactions, as the shell of their coordinators has to know them: `coordination.rs` does the rest.
//!
//! Besides the coordinators, which lead partitions of `__transaction_state`, here is what every broker does for
//! transactions: it asks their coordinators about partitions that records are written to ([`Verifier`]), writes the
//! markers that end them (`write_markers.rs`), and has those of its own coordinators written by the leaders
//! ([`MarkerSender`]).

mod coordinator_config;
mod marker_sender;
mod verifier;
mod write_markers;

use std::sync::Arc;
use std::time::Duration;

use ottla_config::BrokerConfig;
use ottla_coordinator::transaction::{
    Command, TransactionCoordinator, TransactionCoordinatorConfig,
};
use ottla_metadata::feature::TRANSACTION_VERSION;
use ottla_metadata::{MetadataDelta, MetadataImage};
use ottla_records::Compression;
use ottla_types::LeaderEpoch;

use crate::Broker;
use crate::coordination::{Coordinators, Served, Shard};

pub(crate) use marker_sender::MarkerSender;
pub(crate) use verifier::{AddedBy, AskedFor, ProducerTransaction, Verifier};
pub(crate) use write_markers::{EndedTransaction, write_markers};

/// The topic whose partitions hold the transactional ids; created when the first is looked for.
pub(crate) const TRANSACTION_TOPIC: &str = "__transaction_state";

/// What this broker does for transactions.
#[derive(Debug)]
pub(crate) struct Transactions {
    config: Arc<TransactionCoordinatorConfig>,
    coordinators: Coordinators<TransactionCoordinator>,
    pub(crate) verifier: Verifier,
    pub(crate) marker_sender: MarkerSender,
}

impl std::ops::Deref for Transactions {
    type Target = Coordinators<TransactionCoordinator>;

    fn deref(&self) -> &Self::Target {
        &self.coordinators
    }
}

impl Transactions {
    pub(crate) fn new(config: &BrokerConfig) -> Self {
        Transactions {
            config: Arc::new(coordinator_config::from_broker_config(config)),
            coordinators: Coordinators::default(),
            verifier: Verifier::default(),
            marker_sender: MarkerSender::default(),
        }
    }

    /// The level of `transaction.version` may have changed.
    pub(crate) fn follow_features(&self, broker: &Arc<Broker>, delta: &MetadataDelta) {
        let level = version_of(&delta.after);
        if level == version_of(&delta.before) {
            return;
        }
        for shard in self.all_shards() {
            // One that is loading looks when it is loaded.
            let _ = shard.tell(broker, |coordinator, _| {
                coordinator.set_transaction_version(level);
                Default::default()
            });
        }
    }
}

/// The `transaction.version` that the cluster works by.
pub(crate) fn version_of(image: &MetadataImage) -> i16 {
    image.features.level(TRANSACTION_VERSION.name)
}

/// How long whoever asks another broker, or waits for the log, is kept waiting.
pub(crate) fn request_timeout(broker: &Broker) -> Duration {
    let timeout_ms = broker.config().request_timeout_ms;
    Duration::from_millis(timeout_ms.max(1) as u64)
}

impl Served for TransactionCoordinator {
    const TOPIC: &'static str = TRANSACTION_TOPIC;
    const WHAT: &'static str = "transactions";

    fn coordinators(broker: &Broker) -> &Coordinators<Self> {
        &broker.transactions.coordinators
    }

    fn configured_partitions(broker: &Broker) -> i32 {
        broker.config().transaction_state_log_num_partitions
    }

    fn new(broker: &Broker, leader_epoch: LeaderEpoch) -> Self {
        let config = Arc::clone(&broker.transactions.config);
        TransactionCoordinator::new(config, leader_epoch.0, version_of(&broker.metadata()))
    }

    fn begin(&mut self, broker: &Broker) {
        self.set_transaction_version(version_of(&broker.metadata()));
    }

    fn compression(_broker: &Broker) -> Compression {
        Compression::None
    }

    fn commit_timeout(broker: &Broker) -> Duration {
        request_timeout(broker)
    }

    fn execute(shard: &Arc<Shard<Self>>, broker: &Arc<Broker>, command: Command) {
        match command {
            Command::AllocateProducerId => {
                let (shard, broker) = (Arc::clone(shard), Arc::clone(broker));
                tokio::spawn(async move {
                    let producer_id = broker.next_producer_id().await;
                    // A shard that is closed has answered everybody.
                    let _ = shard.tell(&broker, |coordinator, now| {
                        coordinator.on_producer_id(producer_id, now)
                    });
                });
            }
            Command::SendMarkers(markers) => {
                let sender = &broker.transactions.marker_sender;
                sender.send(broker, shard, markers);
            }
        }
    }
}
