//! The sequence numbers of one partition, which keep its records in order and single through retries.
//!
//! Pure. A batch gets its sequence when it leaves for the first time and keeps it when it is sent again,
//! so that several batches may be under way at once: a broker takes a partition's batches only in the
//! order of their sequences. When a batch fails for good, its sequence never comes, and what follows can
//! only go on under a new producer epoch, from sequence 0.
//!
//! Kafka: `TxnPartitionMap`, and the part of `TransactionManager` about idempotence.

use std::collections::VecDeque;

use ottla_types::{ErrorCode, ProducerEpoch, ProducerId, Sequence};

/// Who a producer is to the brokers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Identity {
    pub(super) id: ProducerId,
    pub(super) epoch: ProducerEpoch,
}

/// What is known of one partition's sequences. The batches in here have left at least once and have not
/// come to their end, whether they are on the wire or wait to be sent again.
#[derive(Debug, Default)]
pub(super) struct Sequences {
    /// Under which the sequences were given.
    identity: Option<Identity>,
    next: i32,
    /// The last sequence that is known to be written.
    last_acked: Option<i32>,
    /// In the order in which they left.
    unfinished: VecDeque<Unfinished>,
    next_ticket: u64,
    /// A sequence is missing for good.
    is_broken: bool,
    /// Something has been written under this producer id.
    is_known: bool,
}

/// The name of a batch among those of its partition that have left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ticket(u64);

#[derive(Clone, Copy, Debug)]
struct Unfinished {
    ticket: Ticket,
    base_sequence: i32,
    record_count: i32,
}

/// What a broker's refusal means for the sequences.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    /// Batches before it are to come first: it is sent again.
    Early,
    /// The broker's state does not fit any more: it goes on under a new epoch.
    NewEpoch,
    Final,
}

impl Sequences {
    /// Whether a batch that has not left before may leave under this identity now.
    pub(super) fn may_start(&self, identity: Identity) -> bool {
        if self.unfinished.is_empty() {
            return !(self.is_broken && self.identity == Some(identity));
        }
        // A broker takes any sequence from a producer that it has never seen, so that the first batch must
        // be there before the second one leaves: were the first refused, as by a partition that is just
        // being made, the second would be taken in its place.
        self.identity == Some(identity) && self.is_known && !self.is_broken
    }

    /// Whether a batch may be sent again now: those that left before it go first.
    pub(super) fn may_repeat(&self, ticket: Ticket) -> bool {
        !self.is_broken && self.position(ticket) == Some(0)
    }

    /// Gives a batch of so many records its sequence.
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

    /// How many that have not come to their end left before this one.
    pub(super) fn position(&self, ticket: Ticket) -> Option<usize> {
        self.unfinished.iter().position(|it| it.ticket == ticket)
    }

    /// Has several batches take the place of one, with so many records each, as many together as it had.
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

    /// A batch has failed for good.
    pub(super) fn on_failed(&mut self, ticket: Ticket) {
        self.is_broken |= self.remove(ticket).is_some();
    }

    /// What it means that a broker refuses a batch for its sequence. A transaction cannot go on under
    /// another epoch.
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

    /// What has left can only go on under a new epoch.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Gives the unfinished batches, none of which is on the wire, new sequences from 0.
    pub(super) fn begin_anew(&mut self, identity: Identity) -> Vec<(Ticket, Sequence)> {
        let unfinished = std::mem::take(&mut self.unfinished);
        self.restart(identity);
        unfinished
            .into_iter()
            .map(|it| (it.ticket, self.give(it.ticket, it.record_count)))
            .collect()
    }
}

/// Whether a sequence has its place before another; they are never half the numbers apart.
fn precedes(one: i32, other: i32) -> bool {
    let ahead = i64::from(other) - i64::from(one);
    ahead.rem_euclid(1 << 31) < 1 << 30 && ahead != 0
}

/// Sequence numbers go round after 2^31 - 1.
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
    fn several_batches_leave_and_repeat_in_order() {
        let mut sequences = Sequences::default();
        // The broker has to know the producer first.
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
        // The first was lost on the way: what came behind it was early, and is sent behind it again.
        let (first, second) = (given[0].0, given[1].0);
        let out_of_order = ErrorCode::OutOfOrderSequenceNumber;
        assert_eq!(sequences.judge(second, out_of_order, false), Refusal::Early);
        assert!(sequences.may_repeat(first) && !sequences.may_repeat(second));
        sequences.on_written(first);
        assert!(sequences.may_repeat(second));
        // Now it is the one that must come: a refusal means that the broker has lost its state.
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
    fn a_missing_sequence_stops_the_partition_until_it_begins_anew() {
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
    fn another_identity_waits_for_what_has_left() {
        let mut sequences = Sequences::default();
        let (ticket, _) = sequences.start(FIRST, 2);
        assert!(!sequences.may_start(SECOND));
        sequences.on_written(ticket);
        assert!(sequences.may_start(SECOND));
        assert_eq!(sequences.start(SECOND, 1).1, Sequence(0));
    }

    #[test]
    fn the_parts_of_a_batch_take_its_place() {
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
    fn a_batch_that_others_went_past_needs_a_new_epoch() {
        let mut sequences = Sequences::default();
        let (first, _) = sequences.start(FIRST, 2);
        let (second, _) = sequences.start(FIRST, 3);
        sequences.on_written(second);
        let code = ErrorCode::OutOfOrderSequenceNumber;
        assert_eq!(sequences.judge(first, code, false), Refusal::NewEpoch);
        assert!(precedes(i32::MAX, 3) && !precedes(3, i32::MAX) && !precedes(3, 3));
    }

    #[test]
    fn numbers_go_round() {
        let mut sequences = Sequences::default();
        sequences.start(FIRST, i32::MAX);
        assert_eq!(sequences.start(FIRST, 3).1, Sequence(i32::MAX));
        assert_eq!(sequences.start(FIRST, 1).1, Sequence(2));
    }
}
