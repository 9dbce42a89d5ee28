//! The sequence numbers of one partition, which keep its records in order and prevent duplicates.
//!
//! Pure. A batch gets its sequence number when it is first sent and keeps it for retries, so that
//! several batches can be in flight: a broker accepts the batches of a partition only in sequence.
//! When a batch fails permanently, its sequence is missing, and the following batches can only
//! continue in a new producer epoch, from sequence 0.
//!
//! Kafka: `TxnPartitionMap`, and the idempotence part of `TransactionManager`.

use std::collections::VecDeque;

use ottla_types::{ErrorCode, ProducerEpoch, ProducerId, Sequence};

/// The identity of a producer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Identity {
    pub(super) id: ProducerId,
    pub(super) epoch: ProducerEpoch,
}

/// The sequence numbers of one partition. Contains the batches that were sent at least once and are
/// not completed, whether they are in flight or wait for a retry.
#[derive(Debug, Default)]
pub(super) struct Sequences {
    /// The identity for which the sequences were assigned.
    identity: Option<Identity>,
    next: i32,
    /// The last acknowledged sequence.
    last_acked: Option<i32>,
    /// In the order in which they were first sent.
    unfinished: VecDeque<Unfinished>,
    next_ticket: u64,
    /// Whether a sequence is missing permanently.
    is_broken: bool,
    /// Whether something was written with this producer id.
    is_known: bool,
}

/// Identifies a sent batch of the partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ticket(u64);

#[derive(Clone, Copy, Debug)]
struct Unfinished {
    ticket: Ticket,
    base_sequence: i32,
    record_count: i32,
}

/// The consequence of a broker's error for the sequences.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    /// Earlier batches must be written first: the batch is retried.
    Early,
    /// The broker's state does not match: continue in a new epoch.
    NewEpoch,
    Final,
}

impl Sequences {
    /// Whether an unsent batch can be sent with this identity now.
    pub(super) fn may_start(&self, identity: Identity) -> bool {
        if self.unfinished.is_empty() {
            return !(self.is_broken && self.identity == Some(identity));
        }
        // A broker accepts any sequence from an unknown producer. So the first batch must be
        // written before the second one is sent: if the first were refused, for example by a
        // partition that is being created, the second would be accepted in its place.
        self.identity == Some(identity) && self.is_known && !self.is_broken
    }

    /// Whether a batch can be retried now: the batches sent before it come first.
    pub(super) fn may_repeat(&self, ticket: Ticket) -> bool {
        !self.is_broken && self.position(ticket) == Some(0)
    }

    /// Assigns a sequence to a batch with this many records.
    pub(super) fn start(&mut self, identity: Identity, record_count: i32) -> (Ticket, Sequence) {
        if self.identity != Some(identity) {
            assert!(
                self.unfinished.is_empty(),
                "an identity changes between batches"
            );
            self.restart(identity);
        }
        let ticket = self.new_ticket();
        (ticket, self.give(ticket, record_count))
    }

    fn new_ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }

    /// The number of uncompleted batches that were sent before this one.
    pub(super) fn position(&self, ticket: Ticket) -> Option<usize> {
        self.unfinished.iter().position(|it| it.ticket == ticket)
    }

    /// Replaces one batch by several with the given record counts, which must add up to its count.
    pub(super) fn split(&mut self, ticket: Ticket, counts: &[i32]) -> Vec<(Ticket, Sequence)> {
        let Some(position) = self.position(ticket) else {
            return Vec::new();
        };
        let whole = self
            .unfinished
            .remove(position)
            .expect("it was found there");
        let mut base_sequence = whole.base_sequence;
        let mut parts = Vec::new();
        for (index, &record_count) in counts.iter().enumerate() {
            let part = Unfinished {
                ticket: self.new_ticket(),
                base_sequence,
                record_count,
            };
            self.unfinished.insert(position + index, part);
            parts.push((part.ticket, Sequence(base_sequence)));
            base_sequence = plus(base_sequence, record_count);
        }
        parts
    }

    fn remove(&mut self, ticket: Ticket) -> Option<Unfinished> {
        let position = self.position(ticket)?;
        self.unfinished.remove(position)
    }

    fn restart(&mut self, identity: Identity) {
        self.is_known &= self.identity.is_some_and(|it| it.id == identity.id);
        self.identity = Some(identity);
        (self.next, self.last_acked, self.is_broken) = (0, None, false);
    }

    fn give(&mut self, ticket: Ticket, record_count: i32) -> Sequence {
        let base = self.next;
        self.next = plus(base, record_count);
        self.unfinished.push_back(Unfinished {
            ticket,
            base_sequence: base,
            record_count,
        });
        Sequence(base)
    }

    pub(super) fn on_written(&mut self, ticket: Ticket) {
        if let Some(written) = self.remove(ticket) {
            self.is_known = true;
            self.last_acked = Some(plus(written.base_sequence, written.record_count - 1));
        }
    }

    /// A batch has failed permanently.
    pub(super) fn on_failed(&mut self, ticket: Ticket) {
        self.is_broken |= self.remove(ticket).is_some();
    }

    /// Interprets a broker's error for a batch's sequence. A transaction cannot continue in another
    /// epoch.
    pub(super) fn judge(&self, ticket: Ticket, code: ErrorCode, is_transactional: bool) -> Refusal {
        let Some(position) = self.position(ticket) else {
            return Refusal::Final;
        };
        let base = self.unfinished[position].base_sequence;
        let expected = self.last_acked.map_or(0, |last| plus(last, 1));
        match code {
            ErrorCode::OutOfOrderSequenceNumber
                if !self.is_broken && base != expected && !precedes(base, expected) =>
            {
                Refusal::Early
            }
            ErrorCode::OutOfOrderSequenceNumber | ErrorCode::UnknownProducerId
                if !is_transactional =>
            {
                Refusal::NewEpoch
            }
            _ => Refusal::Final,
        }
    }

    pub(super) fn mark_broken(&mut self) {
        self.is_broken = true;
    }

    /// Whether the sent batches can only continue in a new epoch.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Assigns new sequences from 0 to the uncompleted batches. No batch may be in flight.
    pub(super) fn begin_anew(&mut self, identity: Identity) -> Vec<(Ticket, Sequence)> {
        let unfinished = std::mem::take(&mut self.unfinished);
        self.restart(identity);
        unfinished
            .into_iter()
            .map(|it| (it.ticket, self.give(it.ticket, it.record_count)))
            .collect()
    }
}

/// Whether a sequence precedes another one. They are never half the range apart.
fn precedes(one: i32, other: i32) -> bool {
    let ahead = i64::from(other) - i64::from(one);
    ahead.rem_euclid(1 << 31) < 1 << 30 && ahead != 0
}

/// Sequence numbers wrap around after 2^31 - 1.
fn plus(sequence: i32, count: i32) -> i32 {
    Sequence(sequence).plus(count).0
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Identity = Identity {
        id: ProducerId(1),
        epoch: ProducerEpoch(0),
    };
    const SECOND: Identity = Identity {
        epoch: ProducerEpoch(1),
        ..FIRST
    };

    #[test]
    fn batches_are_sent_and_retried_in_order() {
        let mut sequences = Sequences::default();
        // The broker must know the producer first.
        let (ticket, _) = sequences.start(FIRST, 1);
        assert!(!sequences.may_start(FIRST));
        sequences.on_written(ticket);
        assert!(sequences.may_start(FIRST));
        let given: Vec<_> = [10, 5, 1]
            .map(|count| sequences.start(FIRST, count))
            .into_iter()
            .collect();
        assert_eq!(
            given.iter().map(|(_, it)| it.0).collect::<Vec<_>>(),
            [1, 11, 16]
        );
        // The first was lost in transit. The next one was out of order, and is retried after it.
        let (first, second) = (given[0].0, given[1].0);
        let out_of_order = ErrorCode::OutOfOrderSequenceNumber;
        assert_eq!(sequences.judge(second, out_of_order, false), Refusal::Early);
        assert!(sequences.may_repeat(first) && !sequences.may_repeat(second));
        sequences.on_written(first);
        assert!(sequences.may_repeat(second));
        // Now it is the next expected one: an error means that the broker has lost its state.
        assert_eq!(
            sequences.judge(second, out_of_order, false),
            Refusal::NewEpoch
        );
        assert_eq!(sequences.judge(second, out_of_order, true), Refusal::Final);
        assert_eq!(
            sequences.judge(second, ErrorCode::MessageTooLarge, false),
            Refusal::Final
        );
    }

    #[test]
    fn a_missing_sequence_blocks_the_partition_until_a_restart() {
        let mut sequences = Sequences::default();
        let (first, _) = sequences.start(FIRST, 2);
        let (second, _) = sequences.start(FIRST, 3);
        let (third, _) = sequences.start(FIRST, 4);
        sequences.on_failed(first);
        assert!(sequences.is_broken());
        assert!(!sequences.may_start(FIRST) && !sequences.may_repeat(second));
        let again = sequences.begin_anew(SECOND);
        assert_eq!(again, [(second, Sequence(0)), (third, Sequence(3))]);
        assert!(sequences.may_repeat(second));
        assert_eq!(sequences.start(SECOND, 1).1, Sequence(7));
    }

    #[test]
    fn a_new_producer_id_waits_for_batches_in_flight() {
        let mut sequences = Sequences::default();
        let (ticket, _) = sequences.start(FIRST, 2);
        assert!(!sequences.may_start(SECOND));
        sequences.on_written(ticket);
        assert!(sequences.may_start(SECOND));
        assert_eq!(sequences.start(SECOND, 1).1, Sequence(0));
    }

    #[test]
    fn the_parts_of_a_split_batch_keep_its_sequences() {
        let mut sequences = Sequences::default();
        let (whole, _) = sequences.start(FIRST, 10);
        let (behind, _) = sequences.start(FIRST, 1);
        let parts = sequences.split(whole, &[4, 6]);
        assert_eq!([parts[0].1, parts[1].1], [Sequence(0), Sequence(4)]);
        let order = [parts[0].0, parts[1].0, behind].map(|it| sequences.position(it));
        assert_eq!(order, [Some(0), Some(1), Some(2)]);
        assert_eq!(sequences.position(whole), None);
    }

    #[test]
    fn a_batch_overtaken_by_later_ones_needs_a_new_epoch() {
        let mut sequences = Sequences::default();
        let (first, _) = sequences.start(FIRST, 2);
        let (second, _) = sequences.start(FIRST, 3);
        sequences.on_written(second);
        let code = ErrorCode::OutOfOrderSequenceNumber;
        assert_eq!(sequences.judge(first, code, false), Refusal::NewEpoch);
        assert!(precedes(i32::MAX, 3) && !precedes(3, i32::MAX) && !precedes(3, 3));
    }

    #[test]
    fn sequence_numbers_wrap_around() {
        let mut sequences = Sequences::default();
        sequences.start(FIRST, i32::MAX);
        assert_eq!(sequences.start(FIRST, 3).1, Sequence(i32::MAX));
        assert_eq!(sequences.start(FIRST, 1).1, Sequence(2));
    }
}
