//! The parked acknowledgements of a leader, each waiting for an offset to be passed.
//!
//! Kafka: `DelayedProduce` and its purgatory.

use std::collections::VecDeque;

use ottla_types::{ErrorCode, Offset};

use crate::{AckOutcome, Effect, RequiredAcks};

/// Takes no memory before the first append, and none again once the leader is idle, as most are.
#[derive(Debug)]
pub(crate) struct ParkedAcks<Ack>(Option<Box<Queues<Ack>>>);

#[derive(Debug)]
struct Queues<Ack> {
    /// Appends being written, by offset.
    writing: VecDeque<Parked<Ack>>,
    /// Acknowledgements waiting for `settled_end`.
    awaiting_settled: Queue<Ack>,
    /// Acknowledgements waiting for `high_watermark`.
    awaiting_high_watermark: Queue<Ack>,
}

/// Acknowledgements waiting for the same kind of end, by offset. Releasing them and finding the
/// earliest deadline take constant time; only deadlines in a different order than the offsets
/// require a scan, when they pass.
#[derive(Debug)]
struct Queue<Ack> {
    acks: VecDeque<Parked<Ack>>,
    /// Number of acknowledgements popped from the front; together with the index it numbers each
    /// acknowledgement.
    left: u64,
    /// Numbers and deadlines of acknowledgements before which no later one expires, both
    /// increasing; the first is the earliest of all.
    earliest: VecDeque<(u64, u64)>,
}

/// Adds an entry. Most leaders never have more than one at a time, and would keep room for four.
fn push<T>(queue: &mut VecDeque<T>, entry: T) {
    if queue.capacity() == 0 {
        queue.reserve_exact(1);
    }
    queue.push_back(entry);
}

/// A waiting acknowledgement.
#[derive(Debug)]
pub(crate) struct Parked<Ack> {
    /// The awaited end offset, exclusive.
    pub(crate) until: Offset,
    pub(crate) required_acks: RequiredAcks,
    pub(crate) deadline_ms: u64,
    /// The result when the end is reached.
    pub(crate) outcome: AckOutcome,
    pub(crate) ack: Ack,
}

impl<Ack> ParkedAcks<Ack> {
    pub(crate) fn new() -> Self {
        ParkedAcks(None)
    }

    fn queues(&mut self) -> &mut Queues<Ack> {
        self.0.get_or_insert_with(|| Box::new(Queues::new()))
    }

    /// Adds an append that is being written, after all others.
    pub(crate) fn push_writing(&mut self, parked: Parked<Ack>) {
        push(&mut self.queues().writing, parked);
    }

    /// Parks an acknowledgement after all with the same or an earlier end.
    pub(crate) fn park(&mut self, parked: Parked<Ack>) {
        self.queues().park(parked);
    }

    /// Parks the appends that are in the file.
    pub(crate) fn on_written(&mut self, log_end_offset: Offset) {
        if let Some(queues) = &mut self.0 {
            queues.on_written(log_end_offset);
        }
    }

    /// Fails the appends that were not written. Acknowledgements that waited for them are due: a
    /// refusal still holds, but a duplicate's first copy was lost.
    pub(crate) fn on_write_refused(
        &mut self,
        log_end_offset: Offset,
        effects: &mut Vec<Effect<Ack>>,
    ) {
        if let Some(queues) = &mut self.0 {
            queues.on_write_refused(log_end_offset, effects);
        }
    }

    /// Releases the acknowledgements whose end was reached. Acknowledgements that waited for the
    /// high watermark fail if the ISR is below `min.insync.replicas` by now
    /// (`Partition.checkEnoughReplicasReachOffset`).
    pub(crate) fn release_due(
        &mut self,
        settled_end: Offset,
        high_watermark: Offset,
        is_under_min_isr: bool,
        effects: &mut Vec<Effect<Ack>>,
    ) {
        if let Some(queues) = &mut self.0 {
            queues.release_due(settled_end, high_watermark, is_under_min_isr, effects);
        }
    }

    /// Releases the acknowledgements whose deadline has passed.
    pub(crate) fn expire(&mut self, now_ms: u64, effects: &mut Vec<Effect<Ack>>) {
        if let Some(queues) = &mut self.0 {
            queues.expire(now_ms, effects);
        }
    }

    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        self.0.as_ref()?.next_deadline_ms()
    }

    /// Gives the memory of empty queues back.
    pub(crate) fn free_room(&mut self) {
        if self.0.as_ref().is_some_and(|queues| queues.are_empty()) {
            self.0 = None;
        }
    }

    /// Releases all acknowledgements.
    pub(crate) fn release_all(self, outcome: AckOutcome, effects: &mut Vec<Effect<Ack>>) {
        if let Some(queues) = self.0 {
            queues.release_all(outcome, effects);
        }
    }
}

impl<Ack> Queues<Ack> {
    fn new() -> Self {
        Queues {
            writing: VecDeque::new(),
            awaiting_settled: Queue::new(),
            awaiting_high_watermark: Queue::new(),
        }
    }

    fn are_empty(&self) -> bool {
        let parked = [&self.awaiting_settled, &self.awaiting_high_watermark];
        self.writing.is_empty() && parked.iter().all(|queue| queue.acks.is_empty())
    }

    fn park(&mut self, parked: Parked<Ack>) {
        let queue = match parked.required_acks {
            RequiredAcks::None | RequiredAcks::Leader | RequiredAcks::LeaderWithMinIsr => {
                &mut self.awaiting_settled
            }
            RequiredAcks::All => &mut self.awaiting_high_watermark,
        };
        queue.insert(parked);
    }

    fn on_written(&mut self, log_end_offset: Offset) {
        while let Some(written) = self.writing.pop_front_if(|w| w.until <= log_end_offset) {
            self.park(written);
        }
    }

    fn on_write_refused(&mut self, log_end_offset: Offset, effects: &mut Vec<Effect<Ack>>) {
        for refused in self.writing.drain(..) {
            effects.push(Effect::ReleaseAck {
                ack: refused.ack,
                outcome: AckOutcome::StorageError,
            });
        }
        for queue in [
            &mut self.awaiting_settled,
            &mut self.awaiting_high_watermark,
        ] {
            for parked in queue.acks.iter_mut() {
                if parked.until > log_end_offset {
                    parked.until = log_end_offset;
                    if parked.outcome.error_code() == ErrorCode::None {
                        parked.outcome = AckOutcome::StorageError;
                    }
                }
            }
        }
    }

    fn release_due(
        &mut self,
        settled_end: Offset,
        high_watermark: Offset,
        is_under_min_isr: bool,
        effects: &mut Vec<Effect<Ack>>,
    ) {
        while let Some(parked) = self.awaiting_settled.pop_due(settled_end) {
            effects.push(Effect::ReleaseAck {
                ack: parked.ack,
                outcome: parked.outcome,
            });
        }
        while let Some(parked) = self.awaiting_high_watermark.pop_due(high_watermark) {
            let is_success = parked.outcome.error_code() == ErrorCode::None;
            let outcome = if is_success && is_under_min_isr {
                AckOutcome::NotEnoughReplicasAfterAppend
            } else {
                parked.outcome
            };
            effects.push(Effect::ReleaseAck {
                ack: parked.ack,
                outcome,
            });
        }
    }

    fn expire(&mut self, now_ms: u64, effects: &mut Vec<Effect<Ack>>) {
        for queue in [
            &mut self.awaiting_settled,
            &mut self.awaiting_high_watermark,
        ] {
            queue.expire(now_ms, |parked| {
                effects.push(Effect::ReleaseAck {
                    ack: parked.ack,
                    outcome: AckOutcome::RequestTimedOut,
                });
            });
        }
    }

    fn next_deadline_ms(&self) -> Option<u64> {
        let settled = self.awaiting_settled.next_deadline_ms();
        let high_watermark = self.awaiting_high_watermark.next_deadline_ms();
        settled.into_iter().chain(high_watermark).min()
    }

    fn release_all(self, outcome: AckOutcome, effects: &mut Vec<Effect<Ack>>) {
        let parked = self.awaiting_high_watermark.acks.into_iter();
        let parked = parked.chain(self.awaiting_settled.acks).chain(self.writing);
        for parked in parked {
            effects.push(Effect::ReleaseAck {
                ack: parked.ack,
                outcome,
            });
        }
    }
}

impl<Ack> Queue<Ack> {
    fn new() -> Self {
        Queue {
            acks: VecDeque::new(),
            left: 0,
            earliest: VecDeque::new(),
        }
    }

    /// Inserts after all with the same or an earlier end.
    fn insert(&mut self, parked: Parked<Ack>) {
        let is_last = self.acks.back().is_none_or(|it| it.until <= parked.until);
        if is_last {
            let number = self.left + self.acks.len() as u64;
            self.note_deadline(number, parked.deadline_ms);
            push(&mut self.acks, parked);
            return;
        }
        let place = self.acks.partition_point(|it| it.until <= parked.until);
        self.acks.insert(place, parked);
        self.note_all_deadlines();
    }

    fn pop_due(&mut self, end: Offset) -> Option<Parked<Ack>> {
        let due = self.acks.pop_front_if(|parked| parked.until <= end)?;
        self.on_popped();
        Some(due)
    }

    fn next_deadline_ms(&self) -> Option<u64> {
        self.earliest.front().map(|&(_, deadline_ms)| deadline_ms)
    }

    /// Removes the acknowledgements whose deadline has passed, in the order of their offsets.
    fn expire(&mut self, now_ms: u64, mut expired: impl FnMut(Parked<Ack>)) {
        while let Some(first) = self.acks.pop_front_if(|it| it.deadline_ms <= now_ms) {
            self.on_popped();
            expired(first);
        }
        if self.next_deadline_ms().is_none_or(|at_ms| at_ms > now_ms) {
            return;
        }
        for parked in std::mem::take(&mut self.acks) {
            match parked.deadline_ms <= now_ms {
                true => expired(parked),
                false => self.acks.push_back(parked),
            }
        }
        self.note_all_deadlines();
    }

    fn on_popped(&mut self) {
        if self
            .earliest
            .front()
            .is_some_and(|&(of, _)| of == self.left)
        {
            self.earliest.pop_front();
        }
        self.left += 1;
    }

    /// Adds the deadline of the last acknowledgement: earlier ones that are not due before it are
    /// never the earliest.
    fn note_deadline(&mut self, number: u64, deadline_ms: u64) {
        while self
            .earliest
            .pop_back_if(|(_, at)| *at >= deadline_ms)
            .is_some()
        {}
        self.earliest.push_back((number, deadline_ms));
    }

    fn note_all_deadlines(&mut self) {
        self.earliest.clear();
        for place in 0..self.acks.len() {
            let deadline_ms = self.acks[place].deadline_ms;
            self.note_deadline(self.left + place as u64, deadline_ms);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parked(until: i64, deadline_ms: u64) -> Parked<i64> {
        Parked {
            until: Offset(until),
            required_acks: RequiredAcks::All,
            deadline_ms,
            outcome: AckOutcome::Appended {
                base_offset: Offset(until - 1),
            },
            ack: until,
        }
    }

    #[test]
    fn empty_queues_give_their_memory_back() {
        let mut acks = ParkedAcks::new();
        acks.park(parked(1, 10));
        acks.free_room();
        assert_eq!(acks.next_deadline_ms(), Some(10));
        let mut effects = Vec::new();
        acks.release_due(Offset(1), Offset(1), false, &mut effects);
        assert_eq!(effects.len(), 1);
        acks.free_room();
        assert!(acks.0.is_none());
    }

    /// Compared with a list that is searched, for any order of offsets and deadlines.
    #[test]
    fn the_earliest_deadline_is_that_of_a_list_that_is_searched() {
        let mut random = 7u64;
        let mut number = |below: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) % below
        };
        let mut queue = Queue::new();
        let mut list: Vec<(i64, u64)> = Vec::new();
        let (mut end, mut now_ms) = (0, 0);
        for _ in 0..20_000 {
            match number(6) {
                0..3 => {
                    let until = end + 1 + number(20) as i64;
                    let deadline_ms = now_ms + 1 + number(50);
                    queue.insert(parked(until, deadline_ms));
                    let place = list.partition_point(|&(of, _)| of <= until);
                    list.insert(place, (until, deadline_ms));
                }
                3..5 => {
                    end += number(8) as i64;
                    let due = std::iter::from_fn(|| queue.pop_due(Offset(end)));
                    let due: Vec<i64> = due.map(|it| it.ack).collect();
                    let count = list.iter().take_while(|(until, _)| *until <= end).count();
                    let expected: Vec<i64> = list.drain(..count).map(|(until, _)| until).collect();
                    assert_eq!(due, expected);
                }
                _ => {
                    now_ms += number(10);
                    let mut expired = Vec::new();
                    queue.expire(now_ms, |it| expired.push(it.ack));
                    let is_past = |&(_, deadline_ms): &(i64, u64)| deadline_ms <= now_ms;
                    let past = list.iter().copied().filter(is_past);
                    let expected: Vec<i64> = past.map(|(until, _)| until).collect();
                    list.retain(|it| !is_past(it));
                    assert_eq!(expired, expected);
                }
            }
            let earliest = list.iter().map(|&(_, deadline_ms)| deadline_ms).min();
            assert_eq!(queue.next_deadline_ms(), earliest);
        }
    }
}
