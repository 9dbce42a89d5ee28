//! Batches that wait for the answer of a transaction's coordinator.
//!
//! A batch waits for what was asked under the guard that is in force when it comes. What was asked before, under a guard
//! that a marker has voided since, was asked about another transaction, and says nothing of it.
//! Invariant: the batches of one producer and epoch lie in the order in which they came, and the guards that they wait for
//! only grow.

use ottla_coordinator::TransactionalProducer;
use ottla_sync::collections::HashMap;

use super::append::PendingAppend;

#[derive(Default)]
pub(super) struct Unverified {
    waiting: HashMap<TransactionalProducer, Vec<SetAside>>,
}

struct SetAside {
    /// Under which the coordinator was asked.
    awaited: u64,
    append: PendingAppend,
    /// `None` where the transaction has begun in this log: then it waits only for those ahead of it.
    guard: Option<u64>,
}

impl Unverified {
    /// Under which guard the newest batch of the producer waits, if any does.
    pub(super) fn newest(&self, producer: TransactionalProducer) -> Option<u64> {
        let waiting = self.waiting.get(&producer)?;
        waiting.last().map(|last| last.awaited)
    }

    /// Puts a batch after the others of its producer. Returns the guard under which the coordinator is to be asked, if
    /// nobody has asked under it yet. `guard` may be `None` only where others wait.
    pub(super) fn wait(
        &mut self,
        producer: TransactionalProducer,
        guard: Option<u64>,
        append: PendingAppend,
    ) -> Option<u64> {
        let newest = self.newest(producer);
        let awaited = guard.or(newest).expect("others wait");
        self.waiting.entry(producer).or_default().push(SetAside {
            awaited,
            append,
            guard,
        });
        Some(awaited).filter(|_| newest != Some(awaited))
    }

    /// Those that wait for what was asked under `awaited`, each with its own guard.
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
