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
use ottla_partition::partition::host::VerifyTransactions;
use ottla_partition::partition::producer_transaction::ProducerTransaction;
use ottla_records::Compression;
use ottla_types::{ErrorCode, LeaderEpoch, TopicPartition};

use crate::groups::Groups;
use crate::runtime::{Coordinators, Served, Shard};
use crate::surroundings::Surroundings;

pub use marker_sender::MarkerSender;
pub use verifier::Verifier;
pub use write_markers::{EndedTransaction, write_markers};

/// The topic whose partitions hold the transactional ids; created when the first is looked for.
pub const TRANSACTION_TOPIC: &str = "__transaction_state";

/// What this broker does for transactions.
#[derive(Debug)]
pub struct Transactions {
    /// Markers end the offsets of their groups.
    groups: Arc<Groups>,
    config: Arc<TransactionCoordinatorConfig>,
    coordinators: Coordinators<TransactionCoordinator>,
    pub verifier: Verifier,
    pub marker_sender: MarkerSender,
}

impl std::ops::Deref for Transactions {
    type Target = Coordinators<TransactionCoordinator>;

    fn deref(&self) -> &Self::Target {
        &self.coordinators
    }
}

impl Transactions {
    pub fn new(
        surroundings: Arc<Surroundings>,
        groups: Arc<Groups>,
        config: &BrokerConfig,
    ) -> Self {
        Transactions {
            groups,
            config: Arc::new(coordinator_config::from_broker_config(config)),
            coordinators: Coordinators::new(surroundings),
            verifier: Verifier::default(),
            marker_sender: MarkerSender::default(),
        }
    }

    /// The level of `transaction.version` may have changed.
    pub fn follow_features(self: &Arc<Self>, delta: &MetadataDelta) {
        let level = version_of(&delta.after);
        if level == version_of(&delta.before) {
            return;
        }
        for shard in self.all_shards() {
            // One that is loading looks when it is loaded.
            let _ = shard.tell(self, |coordinator, _| {
                coordinator.set_transaction_version(level);
                Default::default()
            });
        }
    }
}

/// The `transaction.version` that the cluster works by.
pub fn version_of(image: &MetadataImage) -> i16 {
    image.features.level(TRANSACTION_VERSION.name)
}

/// How long whoever asks another broker, or waits for the log, is kept waiting.
pub fn request_timeout(transactions: &Transactions) -> Duration {
    let timeout_ms = transactions
        .surroundings
        .context
        .config()
        .request_timeout_ms;
    Duration::from_millis(timeout_ms.max(1) as u64)
}

impl Served for TransactionCoordinator {
    type Host = Transactions;
    const TOPIC: &'static str = TRANSACTION_TOPIC;
    const WHAT: &'static str = "transactions";

    fn configured_partitions(config: &BrokerConfig) -> i32 {
        config.transaction_state_log_num_partitions
    }

    fn new(transactions: &Transactions, leader_epoch: LeaderEpoch) -> Self {
        let config = Arc::clone(&transactions.config);
        TransactionCoordinator::new(
            config,
            leader_epoch.0,
            version_of(&transactions.surroundings.context.metadata()),
        )
    }

    fn begin(&mut self, transactions: &Transactions) {
        self.set_transaction_version(version_of(&transactions.surroundings.context.metadata()));
    }

    fn compression(_transactions: &Transactions) -> Compression {
        Compression::None
    }

    fn commit_timeout(transactions: &Transactions) -> Duration {
        request_timeout(transactions)
    }

    fn execute(shard: &Arc<Shard<Self>>, transactions: &Arc<Transactions>, command: Command) {
        match command {
            Command::AllocateProducerId => {
                let (shard, transactions) = (Arc::clone(shard), Arc::clone(transactions));
                ottla_sync::task::spawn(async move {
                    let producer_id = transactions
                        .surroundings
                        .producer_ids
                        .next_producer_id()
                        .await;
                    // A shard that is closed has answered everybody.
                    let _ = shard.tell(&transactions, |coordinator, now| {
                        coordinator.on_producer_id(producer_id, now)
                    });
                });
            }
            Command::SendMarkers(markers) => {
                let sender = &transactions.marker_sender;
                sender.send(transactions, shard, markers);
            }
        }
    }
}

impl VerifyTransactions for Transactions {
    fn verify(
        self: Arc<Self>,
        transaction: Arc<ProducerTransaction>,
        partition: TopicPartition,
        answer: Box<dyn FnOnce(Result<(), ErrorCode>) + Send>,
    ) {
        self.verifier.ask(&self, transaction, partition, answer);
    }
}
