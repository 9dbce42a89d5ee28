//! Batches that wait for the answer of a transaction's coordinator.
//!
//! Invariant: those of one producer and epoch wait for one answer, and go on in the order in which they came.

use hashbrown::HashMap;
use ottla_coordinator::TransactionalProducer;

use crate::partition::PendingAppend;

#[derive(Default)]
pub(super) struct Unverified {
    waiting: HashMap<TransactionalProducer, Vec<PendingAppend>>,
}

impl Unverified {
    /// Whether the producer's transaction is being asked about; then the batch waits with the others.
    pub(super) fn is_waiting(&self, producer: TransactionalProducer) -> bool {
        self.waiting.contains_key(&producer)
    }

    pub(super) fn wait(&mut self, producer: TransactionalProducer, append: PendingAppend) {
        self.waiting.entry(producer).or_default().push(append);
    }

    pub(super) fn take_waiting(&mut self, producer: TransactionalProducer) -> Vec<PendingAppend> {
        self.waiting.remove(&producer).unwrap_or_default()
    }

    pub(super) fn take_all(&mut self) -> impl Iterator<Item = PendingAppend> {
        self.waiting.drain().flat_map(|(_, appends)| appends)
    }
}
