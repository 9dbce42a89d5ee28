//! Transactions on every broker.
//!
//! From below: `write_markers.rs` writes transaction markers into partitions led here; the
//! [`MarkerSender`] sends the markers of this broker's coordinators to the partitions' leaders; the
//! coordinators lead partitions of `__transaction_state` ([`TransactionCoordinators`]); the
//! [`Verifier`] asks local and remote coordinators about partitions that are about to be written.

mod coordinator_config;
mod coordinators;
mod marker_request;
mod marker_sender;
mod verifier;
mod write_markers;

use std::sync::Arc;

use ottla_config::BrokerConfig;
use ottla_metadata::MetadataDelta;
use ottla_partition::partition::host::VerifyTransactions;
use ottla_partition::partition::producer_transaction::ProducerTransaction;
use ottla_types::{ErrorCode, TopicPartition};

use crate::groups::Groups;
use crate::surroundings::Surroundings;

pub use coordinators::{TRANSACTION_TOPIC, TransactionCoordinators, version_of};
// Measured by verification/growth.
#[doc(hidden)]
pub use marker_request::{AnsweredMarkers, request_of};
pub use marker_sender::MarkerSender;
pub use verifier::Verifier;
pub use write_markers::{EndedTransaction, request_timeout, write_markers};

/// The transaction services of this broker.
#[derive(Debug)]
pub struct Transactions {
    pub coordinators: Arc<TransactionCoordinators>,
    pub verifier: Arc<Verifier>,
}

impl std::ops::Deref for Transactions {
    type Target = TransactionCoordinators;

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
        let coordinators = Arc::new(TransactionCoordinators::new(surroundings, groups, config));
        Transactions {
            verifier: Arc::new(Verifier::new(Arc::clone(&coordinators))),
            coordinators,
        }
    }

    /// Applies a change of the level of `transaction.version`.
    pub fn follow_features(&self, delta: &MetadataDelta) {
        self.coordinators.follow_features(delta);
    }
}

impl VerifyTransactions for Transactions {
    fn verify(
        self: Arc<Self>,
        transaction: Arc<ProducerTransaction>,
        partition: TopicPartition,
        answer: Box<dyn FnOnce(Result<(), ErrorCode>) + Send>,
    ) {
        self.verifier.ask(transaction, partition, answer);
    }
}
