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

/// `None` while no batch waits: most partitions are idle.
#[derive(Default)]
pub(super) struct Unverified(Option<Box<Waiting>>);

#[derive(Default)]
struct Waiting {
    by_producer: HashMap<TransactionalProducer, Vec<DeferredAppend>>,
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
        let waiting = self.0.as_ref()?.by_producer.get(&producer)?;
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
        let waiting = self.0.get_or_insert_default();
        waiting
            .by_producer
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
        let Some(all) = &mut self.0 else {
            return Vec::new();
        };
        let Some(waiting) = all.by_producer.get_mut(&producer) else {
            return Vec::new();
        };
        let answered = waiting.extract_if(.., |it| {
            it.awaited == awaited
                || ottla_sync::planted::has("an answer is for all batches that wait")
        });
        let answered = answered.map(|it| (it.guard, it.append)).collect();
        if waiting.is_empty() {
            all.by_producer.remove(&producer);
        }
        if all.by_producer.is_empty() {
            self.0 = None;
        }
        answered
    }

    pub(super) fn take_all(&mut self) -> impl Iterator<Item = PendingAppend> {
        let all = self.0.take().into_iter().flat_map(|all| all.by_producer);
        all.flat_map(|(_, waiting)| waiting).map(|it| it.append)
    }
}

#[cfg(test)]
mod tests {
    use ottla_records::{Compression, RecordBatchBuilder};
    use ottla_replica::RequiredAcks;
    use ottla_sync::oneshot;
    use ottla_types::{LeaderEpoch, ProducerEpoch, ProducerId, Timestamp};

    use super::*;
    use crate::partition::{Ack, OfTransaction};

    const PRODUCER: TransactionalProducer = TransactionalProducer {
        id: ProducerId(7),
        epoch: ProducerEpoch(0),
    };

    /// A batch identified by the leader epoch that it expects.
    fn append(number: i32) -> PendingAppend {
        let mut builder = RecordBatchBuilder::new(Compression::None);
        builder.append(Timestamp(0), None, Some(b"value"), &[]);
        PendingAppend {
            batch: builder.build(),
            required_acks: RequiredAcks::Leader,
            expected_leader_epoch: Some(LeaderEpoch(number)),
            of_transaction: OfTransaction::Unverified,
            deadline_ms: u64::MAX,
            ack: Ack::Internal(oneshot::channel().0),
        }
    }

    fn number_of(append: &PendingAppend) -> i32 {
        append.expected_leader_epoch.map_or(-1, |epoch| epoch.0)
    }

    /// The guards and numbers of the batches that an answer is for.
    fn answered(waiting: &mut Unverified, awaited: u64) -> Vec<(Option<u64>, i32)> {
        let taken = waiting.take_waiting(PRODUCER, awaited).into_iter();
        taken
            .map(|(guard, append)| (guard, number_of(&append)))
            .collect()
    }

    /// A batch of the next transaction that took the answer for the previous one would be written
    /// without being part of a transaction.
    #[test]
    fn an_answer_is_for_the_batches_that_wait_for_it() {
        let mut waiting = Unverified::default();
        assert_eq!(waiting.wait(PRODUCER, Some(1), append(1)), Some(1));
        assert_eq!(waiting.wait(PRODUCER, Some(1), append(2)), None, "asked");
        assert_eq!(waiting.wait(PRODUCER, None, append(3)), None);
        assert_eq!(waiting.wait(PRODUCER, Some(2), append(4)), Some(2));
        assert_eq!(waiting.newest(PRODUCER), Some(2));
        let of_first = [(Some(1), 1), (Some(1), 2), (None, 3)];
        assert_eq!(answered(&mut waiting, 1), of_first);
        assert!(answered(&mut waiting, 1).is_empty());
        assert_eq!(answered(&mut waiting, 2), [(Some(2), 4)]);
        assert_eq!(waiting.newest(PRODUCER), None);
    }

    /// Their producers would wait until their requests time out.
    #[test]
    fn all_batches_are_there_when_leadership_ends() {
        let mut waiting = Unverified::default();
        let other = TransactionalProducer {
            id: ProducerId(8),
            ..PRODUCER
        };
        waiting.wait(PRODUCER, Some(1), append(1));
        waiting.wait(other, Some(1), append(2));
        waiting.wait(PRODUCER, Some(2), append(3));
        let mut numbers: Vec<i32> = waiting.take_all().map(|it| number_of(&it)).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [1, 2, 3]);
        assert_eq!(waiting.newest(PRODUCER), None);
    }
}
