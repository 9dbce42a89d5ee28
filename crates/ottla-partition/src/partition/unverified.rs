//! Batches that wait for a transaction coordinator.
//!
//! A batch waits for the verification under the guard that is valid when it arrives. An earlier
//! verification, under a guard that a marker has voided since, was for another transaction.
//!
//! Invariant: the batches of one producer and epoch are in order of arrival, and the guards they
//! wait for only grow.

use ottla_coordinator::TransactionalProducer;
use ottla_sync::collections::HashMap;

use super::append::PendingAppend;

#[derive(Default)]
pub(super) struct Unverified {
    waiting: HashMap<TransactionalProducer, Vec<DeferredAppend>>,
}

struct DeferredAppend {
    /// The guard of the verification it waits for.
    awaited: u64,
    append: PendingAppend,
    /// Its own guard; `None` if the transaction has begun in this log: then it only waits for the
    /// batches before it.
    guard: Option<u64>,
}

impl Unverified {
    /// The guard for which the newest waiting batch of the producer waits.
    pub(super) fn newest(&self, producer: TransactionalProducer) -> Option<u64> {
        let waiting = self.waiting.get(&producer)?;
        waiting.last().map(|last| last.awaited)
    }

    /// Adds a batch after the others of its producer. Returns the guard under which the coordinator
    /// must be asked, unless that has been done. `guard` may be `None` only if other batches wait.
    pub(super) fn wait(
        &mut self,
        producer: TransactionalProducer,
        guard: Option<u64>,
        append: PendingAppend,
    ) -> Option<u64> {
        let newest = self.newest(producer);
        let awaited = guard.or(newest).expect("others wait");
        self.waiting
            .entry(producer)
            .or_default()
            .push(DeferredAppend {
                awaited,
                append,
                guard,
            });
        Some(awaited).filter(|_| newest != Some(awaited))
    }

    /// The batches that wait for the verification under `awaited`, each with its own guard.
    pub(super) fn take_waiting(
        &mut self,
        producer: TransactionalProducer,
        awaited: u64,
    ) -> Vec<(Option<u64>, PendingAppend)> {
        let Some(waiting) = self.waiting.get_mut(&producer) else {
            return Vec::new();
        };
        let answered = waiting.extract_if(.., |it| {
            it.awaited == awaited
                || ottla_sync::planted::has("an answer is for all batches that wait")
        });
        let answered = answered.map(|it| (it.guard, it.append)).collect();
        if waiting.is_empty() {
            self.waiting.remove(&producer);
        }
        answered
    }

    pub(super) fn take_all(&mut self) -> impl Iterator<Item = PendingAppend> {
        let waiting = self.waiting.drain().flat_map(|(_, waiting)| waiting);
        waiting.map(|it| it.append)
    }
}
