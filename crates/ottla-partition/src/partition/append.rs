//! One batch on its way into a partition, and who waits for it.

use std::sync::Arc;

use ottla_log::TransactionVersion;
use ottla_records::RecordBatch;
use ottla_replica::{AckOutcome, RequiredAcks};
use ottla_sync::oneshot;
use ottla_types::{ErrorCode, LeaderEpoch};

use super::producer_transaction::ProducerTransaction;

/// What an event that carries no records counts for in the budget.
pub(super) const EVENT_BYTES: usize = 1024;

/// One batch on its way into a partition.
#[derive(Debug)]
pub struct PendingAppend {
    /// Validated; offset and leader epoch are assigned by the replica.
    pub batch: RecordBatch,
    pub required_acks: RequiredAcks,
    pub expected_leader_epoch: Option<LeaderEpoch>,
    pub of_transaction: OfTransaction,
    /// On the broker's own clock.
    pub deadline_ms: u64,
    pub ack: Ack,
}

/// Who waits for an append.
pub enum Ack {
    /// A part of a client's request.
    Request {
        request: Arc<dyn AwaitsAppends>,
        place: AppendPlace,
    },
    /// A coordinator of this broker.
    Internal(oneshot::Sender<AckOutcome>),
}

/// Where the answer for a partition stands in the response of a request: indices of its topic and of the partition there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AppendPlace {
    pub topic: usize,
    pub partition: usize,
}

/// A request that waits for appends to several partitions.
pub trait AwaitsAppends: Send + Sync {
    /// What became of one of them. Called once for each, by whichever thread steps the partition then.
    fn on_released(&self, place: AppendPlace, outcome: AckOutcome);
}

impl std::fmt::Debug for Ack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ack")
    }
}

impl PendingAppend {
    /// What it counts for in the inbox.
    pub(super) fn bytes(&self) -> usize {
        EVENT_BYTES + self.batch.size_in_bytes()
    }
}

impl Ack {
    pub(super) fn release(self, outcome: AckOutcome) {
        match self {
            Ack::Request { request, place } => request.on_released(place, outcome),
            // Nobody waits any more where the receiver is gone.
            Ack::Internal(waiting) => drop(waiting.send(outcome)),
        }
    }
}

/// What a batch has to do with a transaction.
#[derive(Clone, Debug)]
pub enum OfTransaction {
    No,
    /// It is part of one, and nobody asks whether the coordinator knows that.
    Unverified,
    /// The coordinator is asked, where this is the first batch.
    ToVerify(Arc<ProducerTransaction>),
    /// The coordinator was asked, under this guard; `None` where the transaction had begun already.
    Verified(Option<u64>),
    /// The coordinator was asked, and this partition is not part of the transaction.
    Refused(ErrorCode),
    /// It is the marker that ends one, by this `transaction.version`.
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
