//! Transactions of which it is being asked whether this partition is part of them (KIP-890): before the first
//! record of a transaction is written, its coordinator must know of the partition, or no marker would ever come.
//!
//! Invariants: what is asked has a guard of its own, which is void as soon as a record or marker of the producer
//! is written, so that an answer that comes late opens no transaction that has ended; batches of one producer and
//! epoch wait for one answer, and go on in the order in which they came.
//! Kafka: `VerificationStateEntry`, `VerificationGuard`, in `ProducerStateManager`.

use hashbrown::HashMap;
use ottla_coordinator::TransactionalProducer;
use ottla_records::BatchHeader;
use ottla_types::{ErrorCode, ProducerEpoch, ProducerId, Sequence};

use crate::partition::PendingAppend;

/// Beyond this many, those that are long without a record are forgotten.
const MANY: usize = 4096;

#[derive(Default)]
pub(super) struct Verifications {
    by_producer: HashMap<ProducerId, Verification>,
    /// Batches that wait for the coordinator's answer.
    waiting: HashMap<TransactionalProducer, Vec<PendingAppend>>,
    last_guard: u64,
}

/// One producer whose transaction has not begun here. It stays until the first record is written, whether or not
/// the coordinator could be asked.
struct Verification {
    guard: u64,
    epoch: ProducerEpoch,
    /// Where the producer has to begin: a batch behind it must not be written before it, or it never could be.
    lowest_sequence: Sequence,
    /// Whether each transaction of this producer has an epoch of its own.
    raises_epoch: bool,
    began_ms: u64,
}

impl Verifications {
    /// The guard of a producer's transaction, which may have been asked about before.
    pub(super) fn begin(
        &mut self,
        producer: TransactionalProducer,
        sequence: Sequence,
        raises_epoch: bool,
        now_ms: u64,
        expiration_ms: u64,
    ) -> u64 {
        if self.by_producer.len() >= MANY {
            self.by_producer
                .retain(|_, known| now_ms.saturating_sub(known.began_ms) < expiration_ms);
        }
        let last_guard = &mut self.last_guard;
        let known = self.by_producer.entry(producer.id).or_insert_with(|| {
            *last_guard += 1;
            Verification {
                guard: *last_guard,
                epoch: producer.epoch,
                lowest_sequence: sequence,
                raises_epoch,
                began_ms: now_ms,
            }
        });
        if producer.epoch > known.epoch
            || (producer.epoch == known.epoch && sequence < known.lowest_sequence)
        {
            known.epoch = producer.epoch;
            known.lowest_sequence = sequence;
        }
        known.guard
    }

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

    /// Whether `guard` is in force still.
    pub(super) fn is_current(&self, producer_id: ProducerId, guard: Option<u64>) -> bool {
        let known = self.by_producer.get(&producer_id).map(|known| known.guard);
        known.is_some() && known == guard
    }

    /// Whether the first batch of a transaction is the one that it has to begin with. `has_batches` is whether
    /// anything is known of what the producer wrote with its epoch.
    pub(super) fn check_sequence(
        &self,
        header: &BatchHeader,
        has_batches: bool,
    ) -> Result<(), ErrorCode> {
        let Some(known) = self.by_producer.get(&header.producer_id) else {
            return Ok(());
        };
        let is_new = known.raises_epoch && !has_batches;
        let is_behind = header.base_sequence > known.lowest_sequence;
        match (is_new && header.base_sequence != Sequence(0)) || is_behind {
            true => Err(ErrorCode::OutOfOrderSequenceNumber),
            false => Ok(()),
        }
    }

    /// A batch of a producer is going to be in the log.
    pub(super) fn on_appended(&mut self, header: &BatchHeader) {
        if !header.is_transactional() || self.by_producer.is_empty() {
            return;
        }
        // The marker of the transaction before comes a second time: the next one is asked about already.
        let is_of_next = self
            .by_producer
            .get(&header.producer_id)
            .is_some_and(|known| {
                known.raises_epoch && header.is_control() && header.producer_epoch == known.epoch
            });
        if !is_of_next {
            self.by_producer.remove(&header.producer_id);
        }
    }

    /// The coordinator has refused for good.
    pub(super) fn forget(&mut self, producer_id: ProducerId, guard: u64) {
        if self.is_current(producer_id, Some(guard)) {
            self.by_producer.remove(&producer_id);
        }
    }
}

#[cfg(test)]
mod tests {
    use ottla_records::{Compression, RecordBatchBuilder};
    use ottla_types::Timestamp;

    use super::*;

    const DAY: u64 = 86_400_000;

    fn producer(epoch: i16) -> TransactionalProducer {
        TransactionalProducer {
            id: ProducerId(9),
            epoch: ProducerEpoch(epoch),
        }
    }

    fn header(epoch: i16, sequence: i32, is_control: bool) -> BatchHeader {
        let mut builder = RecordBatchBuilder::new(Compression::None)
            .producer(ProducerId(9), ProducerEpoch(epoch), Sequence(sequence))
            .transactional(true)
            .control(is_control);
        builder.append(Timestamp(0), None, Some(b"x"), &[]);
        builder.build().header
    }

    #[test]
    fn a_guard_is_void_when_something_of_the_producer_is_written() {
        for is_control in [false, true] {
            let mut verifications = Verifications::default();
            let guard = verifications.begin(producer(0), Sequence(0), false, 0, DAY);
            assert_eq!(
                verifications.begin(producer(0), Sequence(5), false, 0, DAY),
                guard,
                "asked twice, it is the same"
            );
            assert!(verifications.is_current(ProducerId(9), Some(guard)));
            verifications.on_appended(&header(0, 0, is_control));
            assert!(!verifications.is_current(ProducerId(9), Some(guard)));
            let next = verifications.begin(producer(0), Sequence(0), false, 0, DAY);
            assert_ne!(next, guard);
        }
        assert!(!Verifications::default().is_current(ProducerId(9), None));
    }

    #[test]
    fn a_repeated_marker_does_not_void_the_next_transaction() {
        let mut verifications = Verifications::default();
        let guard = verifications.begin(producer(1), Sequence(0), true, 0, DAY);
        verifications.on_appended(&header(1, -1, true));
        assert!(verifications.is_current(ProducerId(9), Some(guard)));
        verifications.on_appended(&header(2, -1, true));
        assert!(!verifications.is_current(ProducerId(9), Some(guard)));
    }

    #[test]
    fn nothing_is_written_ahead_of_the_first_batch() {
        let mut verifications = Verifications::default();
        verifications.begin(producer(0), Sequence(5), false, 0, DAY);
        verifications.begin(producer(0), Sequence(2), false, 0, DAY);
        let check = |verifications: &Verifications, sequence, has_batches| {
            verifications.check_sequence(&header(0, sequence, false), has_batches)
        };
        let refused = Err(ErrorCode::OutOfOrderSequenceNumber);
        assert_eq!(check(&verifications, 5, true), refused);
        assert_eq!(check(&verifications, 2, true), Ok(()));
        // With another epoch it begins anew.
        verifications.begin(producer(1), Sequence(7), false, 0, DAY);
        assert_eq!(check(&verifications, 7, true), Ok(()));
        // Where each transaction has its epoch, each begins with 0.
        let mut verifications = Verifications::default();
        verifications.begin(producer(0), Sequence(3), true, 0, DAY);
        assert_eq!(check(&verifications, 3, false), refused);
        assert_eq!(check(&verifications, 3, true), Ok(()));
        assert_eq!(check(&verifications, 0, false), Ok(()));
    }

    #[test]
    fn what_nobody_came_back_to_is_forgotten_when_there_is_much_of_it() {
        let mut verifications = Verifications::default();
        for id in 0..MANY as i64 {
            let producer = TransactionalProducer {
                id: ProducerId(id),
                epoch: ProducerEpoch(0),
            };
            verifications.begin(producer, Sequence(0), true, 0, DAY);
        }
        let other = TransactionalProducer {
            id: ProducerId(-5),
            epoch: ProducerEpoch(0),
        };
        verifications.begin(other, Sequence(0), true, DAY, DAY);
        assert_eq!(verifications.by_producer.len(), 1);
    }
}
