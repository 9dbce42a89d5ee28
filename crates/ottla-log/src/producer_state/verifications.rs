//! Pending verifications of transactions (KIP-890): before the first record of a transaction is
//! written, the coordinator must have added the partition to it, or no marker would ever be written
//! here.
//!
//! Invariant: each verification has a guard, which is void as soon as a record or marker of the
//! producer is written. A late response therefore cannot open a transaction that has ended.
//!
//! Kafka: `VerificationStateEntry`, `VerificationGuard`, in `ProducerStateManager`;
//! `UnifiedLog.maybeStartTransactionVerification`, `UnifiedLog.batchMissingRequiredVerification`.

use std::collections::BTreeMap;

use ottla_records::BatchHeader;
use ottla_types::{ErrorCode, ProducerEpoch, ProducerId, Sequence};

use super::{AppendOrigin, ProducerStateEntry};

/// Above this many, entries older than the expiration are removed, and again when there are twice
/// as many as were left: clients choose producer IDs as they like.
const MANY: usize = 4096;

/// A transaction whose first batch is about to be written.
#[derive(Clone, Copy, Debug)]
pub struct TransactionStart {
    pub producer_id: ProducerId,
    pub producer_epoch: ProducerEpoch,
    /// Base sequence of the batch; none for batches of a coordinator.
    pub sequence: Sequence,
    /// Whether each transaction of this producer has its own epoch.
    pub raises_epoch: bool,
}

/// The pending verifications. Takes no memory before the first: most partitions are in no
/// transaction.
#[derive(Default, Debug)]
pub struct Verifications(Option<Box<Pending>>);

/// Kept when it is empty, because no guard may be given twice.
#[derive(Default, Debug)]
struct Pending {
    by_producer: BTreeMap<ProducerId, Verification>,
    last_guard: u64,
    /// How many there are when expired entries are searched for.
    swept_at: usize,
}

/// A producer whose transaction has not begun in this log. The entry is kept until the first record
/// is written, even if the coordinator could not be reached.
#[derive(Debug)]
struct Verification {
    guard: u64,
    epoch: ProducerEpoch,
    /// The lowest sequence seen, which must be written first: a later batch written before it would
    /// make it out of order forever.
    lowest_sequence: Sequence,
    raises_epoch: bool,
    began_ms: u64,
}

impl Verifications {
    /// The guard of the verification, which is the existing one if it is already pending; `None` if
    /// the transaction has begun in this log. `known` is the producer's state including staged
    /// batches.
    ///
    /// # Errors
    /// `InvalidProducerEpoch` for a fenced producer.
    pub fn begin(
        &mut self,
        known: Option<&ProducerStateEntry>,
        start: TransactionStart,
        now_ms: u64,
        expiration_ms: u64,
    ) -> Result<Option<u64>, ErrorCode> {
        if let Some(known) = known {
            if start.producer_epoch < known.producer_epoch {
                return Err(ErrorCode::InvalidProducerEpoch);
            }
            if known.is_in_transaction(start.producer_epoch) {
                return Ok(None);
            }
        }
        Ok(Some(self.ask(start, now_ms, expiration_ms)))
    }

    fn ask(&mut self, start: TransactionStart, now_ms: u64, expiration_ms: u64) -> u64 {
        let TransactionStart {
            producer_id,
            producer_epoch,
            sequence,
            raises_epoch,
        } = start;
        let Pending {
            by_producer,
            last_guard,
            swept_at,
        } = &mut **self.0.get_or_insert_default();
        if by_producer.len() >= MANY.max(*swept_at) {
            by_producer.retain(|_, known| now_ms.saturating_sub(known.began_ms) < expiration_ms);
            *swept_at = 2 * by_producer.len();
        }
        let known = by_producer.entry(producer_id).or_insert_with(|| {
            *last_guard += 1;
            Verification {
                guard: *last_guard,
                epoch: producer_epoch,
                lowest_sequence: sequence,
                raises_epoch,
                began_ms: now_ms,
            }
        });
        if producer_epoch > known.epoch
            || (producer_epoch == known.epoch && sequence < known.lowest_sequence)
        {
            known.epoch = producer_epoch;
            known.lowest_sequence = sequence;
        }
        known.guard
    }

    /// Checks whether a batch verified under `guard` continues a transaction of this log or may
    /// begin one. Markers and batches outside transactions need no verification.
    ///
    /// # Errors
    /// `InvalidProducerEpoch` for a fenced producer, `InvalidTxnState` if the verified transaction
    /// has ended since, `OutOfOrderSequenceNumber` for a batch that is not the first of its
    /// transaction.
    pub fn check(
        &self,
        known: Option<&ProducerStateEntry>,
        header: &BatchHeader,
        guard: Option<u64>,
        origin: AppendOrigin,
    ) -> Result<(), ErrorCode> {
        if !header.is_transactional() || header.is_control() {
            return Ok(());
        }
        if known.is_some_and(|known| known.is_in_transaction(header.producer_epoch)) {
            return Ok(());
        }
        if known.is_some_and(|known| header.producer_epoch < known.producer_epoch) {
            return Err(ErrorCode::InvalidProducerEpoch);
        }
        if !self.is_current(header.producer_id, guard) {
            // A marker came in between: the verified transaction has ended.
            return Err(ErrorCode::InvalidTxnState);
        }
        let has_batches = known.is_some_and(|known| known.batches().len() > 0);
        match origin {
            AppendOrigin::Client => self.check_sequence(header, has_batches),
            _ => Ok(()),
        }
    }

    fn of(&self, producer_id: ProducerId) -> Option<&Verification> {
        self.0.as_ref()?.by_producer.get(&producer_id)
    }

    /// Whether `guard` is still valid.
    fn is_current(&self, producer_id: ProducerId, guard: Option<u64>) -> bool {
        let known = self.of(producer_id).map(|known| known.guard);
        known.is_some() && known == guard
    }

    /// Checks that the first batch of a transaction is the one it must begin with. `has_batches` is
    /// whether batches of the producer's current epoch are known.
    fn check_sequence(&self, header: &BatchHeader, has_batches: bool) -> Result<(), ErrorCode> {
        let Some(known) = self.of(header.producer_id) else {
            return Ok(());
        };
        let is_new = known.raises_epoch && !has_batches;
        let is_behind = header.base_sequence > known.lowest_sequence;
        match (is_new && header.base_sequence != Sequence(0)) || is_behind {
            true => Err(ErrorCode::OutOfOrderSequenceNumber),
            false => Ok(()),
        }
    }

    /// A batch of a producer is about to be appended.
    pub fn on_appended(&mut self, header: &BatchHeader) {
        let Some(pending) = &mut self.0 else {
            return;
        };
        if !header.is_transactional() || pending.by_producer.is_empty() {
            return;
        }
        // A repeated marker of the previous transaction must not void the verification of the next.
        let known = pending.by_producer.get(&header.producer_id);
        let is_of_next = known.is_some_and(|known| {
            known.raises_epoch && header.is_control() && header.producer_epoch == known.epoch
        });
        if !is_of_next {
            pending.by_producer.remove(&header.producer_id);
        }
    }

    /// The coordinator refused the verification under `guard`. A non-retriable error ends it.
    pub fn on_refused(&mut self, producer_id: ProducerId, guard: u64, error: ErrorCode) {
        if is_final(error)
            && self.is_current(producer_id, Some(guard))
            && let Some(pending) = &mut self.0
        {
            pending.by_producer.remove(&producer_id);
        }
    }
}

fn is_final(error: ErrorCode) -> bool {
    !matches!(
        error,
        ErrorCode::NetworkException
            | ErrorCode::NotEnoughReplicas
            | ErrorCode::ConcurrentTransactions
            | ErrorCode::CoordinatorLoadInProgress
            | ErrorCode::CoordinatorNotAvailable
            | ErrorCode::NotCoordinator
    )
}

#[cfg(test)]
mod tests {
    use ottla_records::{Compression, RecordBatchBuilder};
    use ottla_types::Timestamp;

    use super::*;

    const DAY: u64 = 86_400_000;
    const ID: ProducerId = ProducerId(9);

    fn start(epoch: i16, sequence: i32, raises_epoch: bool) -> TransactionStart {
        TransactionStart {
            producer_id: ID,
            producer_epoch: ProducerEpoch(epoch),
            sequence: Sequence(sequence),
            raises_epoch,
        }
    }

    fn header(epoch: i16, sequence: i32, is_control: bool) -> BatchHeader {
        let mut builder = RecordBatchBuilder::new(Compression::None)
            .producer(ID, ProducerEpoch(epoch), Sequence(sequence))
            .transactional(true)
            .control(is_control);
        builder.append(Timestamp(0), None, Some(b"x"), &[]);
        builder.build().header
    }

    #[test]
    fn a_guard_is_void_when_something_of_the_producer_is_written() {
        for is_control in [false, true] {
            let mut verifications = Verifications::default();
            let guard = verifications.ask(start(0, 0, false), 0, DAY);
            assert_eq!(
                verifications.ask(start(0, 5, false), 0, DAY),
                guard,
                "asked twice, it is the same"
            );
            assert!(verifications.is_current(ID, Some(guard)));
            verifications.on_appended(&header(0, 0, is_control));
            assert!(!verifications.is_current(ID, Some(guard)));
            let next = verifications.ask(start(0, 0, false), 0, DAY);
            assert_ne!(next, guard);
        }
        assert!(!Verifications::default().is_current(ID, None));
    }

    #[test]
    fn a_repeated_marker_does_not_void_the_next_transaction() {
        let mut verifications = Verifications::default();
        let guard = verifications.ask(start(1, 0, true), 0, DAY);
        verifications.on_appended(&header(1, -1, true));
        assert!(verifications.is_current(ID, Some(guard)));
        verifications.on_appended(&header(2, -1, true));
        assert!(!verifications.is_current(ID, Some(guard)));
    }

    #[test]
    fn nothing_is_written_ahead_of_the_first_batch() {
        let mut verifications = Verifications::default();
        verifications.ask(start(0, 5, false), 0, DAY);
        verifications.ask(start(0, 2, false), 0, DAY);
        let check = |verifications: &Verifications, sequence, has_batches| {
            verifications.check_sequence(&header(0, sequence, false), has_batches)
        };
        let refused = Err(ErrorCode::OutOfOrderSequenceNumber);
        assert_eq!(check(&verifications, 5, true), refused);
        assert_eq!(check(&verifications, 2, true), Ok(()));
        // With another epoch the verification starts again.
        verifications.ask(start(1, 7, false), 0, DAY);
        assert_eq!(check(&verifications, 7, true), Ok(()));
        // Where each transaction has its epoch, each begins with 0.
        let mut verifications = Verifications::default();
        verifications.ask(start(0, 3, true), 0, DAY);
        assert_eq!(check(&verifications, 3, false), refused);
        assert_eq!(check(&verifications, 3, true), Ok(()));
        assert_eq!(check(&verifications, 0, false), Ok(()));
    }

    #[test]
    fn a_retriable_result_keeps_the_verification_open() {
        let mut verifications = Verifications::default();
        let guard = verifications.ask(start(0, 0, true), 0, DAY);
        verifications.on_refused(ID, guard, ErrorCode::NotCoordinator);
        assert!(verifications.is_current(ID, Some(guard)));
        verifications.on_refused(ID, guard + 1, ErrorCode::ProducerFenced);
        assert!(verifications.is_current(ID, Some(guard)));
        verifications.on_refused(ID, guard, ErrorCode::ProducerFenced);
        assert!(!verifications.is_current(ID, Some(guard)));
    }

    #[test]
    fn abandoned_verifications_are_dropped_when_there_are_many() {
        let mut verifications = Verifications::default();
        for id in 0..MANY as i64 {
            let start = TransactionStart {
                producer_id: ProducerId(id),
                ..start(0, 0, true)
            };
            verifications.ask(start, 0, DAY);
        }
        let other = TransactionStart {
            producer_id: ProducerId(-5),
            ..start(0, 0, true)
        };
        verifications.ask(other, DAY, DAY);
        assert_eq!(verifications.0.unwrap().by_producer.len(), 1);
    }

    #[test]
    fn entries_that_have_not_expired_are_not_looked_at_for_each_new_one() {
        let mut verifications = Verifications::default();
        let mut ask = |id: usize, now_ms| {
            let start = TransactionStart {
                producer_id: ProducerId(id as i64),
                ..start(0, 0, true)
            };
            verifications.ask(start, now_ms, DAY);
            let pending = verifications.0.as_ref().unwrap();
            (pending.by_producer.len(), pending.swept_at)
        };
        let mut asked = (0, 0);
        for id in 0..=MANY {
            asked = ask(id, 1);
        }
        assert_eq!(asked, (MANY + 1, 2 * MANY));
        for id in MANY + 1..2 * MANY {
            asked = ask(id, DAY + 1);
        }
        assert_eq!(asked, (2 * MANY, 2 * MANY));
        // The first ones have expired.
        assert_eq!(ask(2 * MANY, DAY + 1), (MANY, 2 * (MANY - 1)));
    }
}
