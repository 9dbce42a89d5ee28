//! A batch to be appended, and its acknowledgement.

use std::sync::{Arc, Weak};

use ottla_log::TransactionVersion;
use ottla_records::RecordBatch;
use ottla_replica::{AckOutcome, RequiredAcks};
use ottla_sync::oneshot;
use ottla_types::{ErrorCode, LeaderEpoch};

use super::producer_transaction::ProducerTransaction;

/// The size of an event without records, for the budget.
pub(super) const EVENT_BYTES: usize = 1024;

/// A batch to be appended.
#[derive(Debug)]
pub struct PendingAppend {
    /// Validated; the replica assigns offset and leader epoch.
    pub batch: RecordBatch,
    pub required_acks: RequiredAcks,
    pub expected_leader_epoch: Option<LeaderEpoch>,
    pub of_transaction: OfTransaction,
    /// On the broker's clock.
    pub deadline_ms: u64,
    pub ack: Ack,
}

/// The receiver of an append's result.
pub enum Ack {
    /// One partition of a produce request. Weak, because a request may hold the partition, and the
    /// request of a closed connection needs no result.
    Request {
        request: Weak<dyn AwaitsAppends>,
        place: AppendPlace,
    },
    /// A coordinator of this broker.
    Internal(oneshot::Sender<AckOutcome>),
}

/// The position of a partition's result in a response: the indices of the topic and of the
/// partition in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AppendPlace {
    pub topic: usize,
    pub partition: usize,
}

/// A request that waits for appends to several partitions.
pub trait AwaitsAppends: Send + Sync {
    /// Receives the result of one append. Called once for each while the request exists, by the
    /// thread that steps the partition.
    fn on_released(&self, place: AppendPlace, outcome: AckOutcome);
}

impl std::fmt::Debug for Ack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ack")
    }
}

impl PendingAppend {
    /// The size counted in the inbox.
    pub(super) fn bytes(&self) -> usize {
        EVENT_BYTES + self.batch.size_in_bytes()
    }
}

impl Ack {
    pub(super) fn release(self, outcome: AckOutcome) {
        match self {
            Ack::Request { request, place } => {
                if let Some(request) = request.upgrade() {
                    request.on_released(place, outcome);
                }
            }
            // The receiver may be gone.
            Ack::Internal(waiting) => drop(waiting.send(outcome)),
        }
    }
}

/// The transactional status of a batch.
#[derive(Clone, Debug)]
pub enum OfTransaction {
    No,
    /// Part of a transaction, without verification.
    Unverified,
    /// The coordinator is asked, if this is the first batch of the transaction here.
    ToVerify(Arc<ProducerTransaction>),
    /// Verified under this guard; `None` if the transaction had already begun here.
    Verified(Option<u64>),
    /// Verification failed with this error.
    Refused(ErrorCode),
    /// A marker that ends a transaction, with its `transaction.version`.
    Marker(i16),
}

impl OfTransaction {
    pub(super) fn version_of_marker(&self) -> TransactionVersion {
        match self {
            OfTransaction::Marker(version) => TransactionVersion(*version),
            _ => TransactionVersion::default(),
        }
    }
}
