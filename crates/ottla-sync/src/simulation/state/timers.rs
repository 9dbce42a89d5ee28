//! The timers of a simulation in the order of their deadlines.
//!
//! Most timers are timeouts that are removed long before their deadlines, so that adding and removing
//! must be cheap. The heap keeps the entry of a removed timer until it would be the first, or until
//! most entries are of removed timers. Its first entry is always that of a timer.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::wait::Timer;

/// A deadline in simulated nanoseconds, a number, which orders timers with the same deadline, and
/// the place of the timer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct TimerKey {
    deadline: u64,
    number: u64,
    slot: u32,
}

/// Entries of removed timers that the heap may have in any case.
const REMOVED_ENTRIES: usize = 64;

pub(crate) struct Timers {
    order: BinaryHeap<Reverse<TimerKey>>,
    /// The timers with their numbers, by slot.
    slots: Vec<Option<(u64, Timer)>>,
    free: Vec<u32>,
    /// The first deadline, or `u64::MAX`: every look of the scheduler needs it.
    first: u64,
}

impl Timers {
    pub(crate) fn new() -> Timers {
        Timers {
            order: BinaryHeap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            first: u64::MAX,
        }
    }

    /// The first deadline; `u64::MAX` without timers.
    #[inline]
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Adds a timer. No other timer of the simulation has this number.
    pub(crate) fn insert(&mut self, deadline: u64, number: u64, timer: Timer) -> TimerKey {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(None);
                self.slots.len() as u32 - 1
            }
        };
        self.slots[slot as usize] = Some((number, timer));
        let key = TimerKey {
            deadline,
            number,
            slot,
        };
        self.order.push(Reverse(key));
        self.first = self.first.min(deadline);
        key
    }

    /// Removes a timer that has not fired.
    pub(crate) fn remove(&mut self, key: TimerKey) -> Option<Timer> {
        if !is_there(&self.slots, &key) {
            return None;
        }
        let removed = self.take(key);
        if key.deadline == self.first {
            self.find_first();
        }
        let timers = self.slots.len() - self.free.len();
        if self.order.len() > 2 * timers + REMOVED_ENTRIES {
            let slots = &self.slots;
            self.order.retain(|Reverse(key)| is_there(slots, key));
        }
        removed
    }

    /// Takes the first timer whose deadline has passed.
    pub(crate) fn pop_due(&mut self, now: u64) -> Option<Timer> {
        if self.first > now {
            return None;
        }
        let Reverse(key) = self.order.pop()?;
        let timer = self.take(key);
        self.find_first();
        timer
    }

    fn take(&mut self, key: TimerKey) -> Option<Timer> {
        let (_, timer) = self.slots[key.slot as usize].take()?;
        self.free.push(key.slot);
        Some(timer)
    }

    fn find_first(&mut self) {
        while let Some(Reverse(key)) = self.order.peek() {
            if is_there(&self.slots, key) {
                self.first = key.deadline;
                return;
            }
            self.order.pop();
        }
        self.first = u64::MAX;
    }
}

/// Whether the timer of this key has neither fired nor been removed.
fn is_there(slots: &[Option<(u64, Timer)>], key: &TimerKey) -> bool {
    let there = slots.get(key.slot as usize).and_then(Option::as_ref);
    there.is_some_and(|(number, _)| *number == key.number)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::simulation::random::Random;
    use crate::simulation::state::wait::Token;

    /// A timer that is known by its number.
    fn timer(number: u64) -> Timer {
        Timer::Thread(Token {
            slot: 0,
            epoch: number,
        })
    }

    fn number_of(timer: Option<Timer>) -> Option<u64> {
        match timer? {
            Timer::Thread(token) => Some(token.epoch),
            Timer::Task(_) => None,
        }
    }

    #[test]
    fn the_first_deadline_follows_every_change() {
        let mut timers = Timers::new();
        assert!(timers.is_empty() && timers.first() == u64::MAX);
        let mut insert = |deadline, number| timers.insert(deadline, number, timer(number));
        let keys = [insert(30, 1), insert(10, 2), insert(10, 3), insert(20, 4)];
        assert_eq!(timers.first(), 10);
        assert!(timers.pop_due(9).is_none());
        assert_eq!(number_of(timers.remove(keys[1])), Some(2));
        assert_eq!(timers.first(), 10);
        assert_eq!(number_of(timers.pop_due(10)), Some(3));
        assert!(timers.remove(keys[2]).is_none());
        assert_eq!(timers.first(), 20);
        assert_eq!(number_of(timers.remove(keys[3])), Some(4));
        assert!(timers.remove(keys[3]).is_none());
        assert_eq!(timers.first(), 30);
        assert_eq!(number_of(timers.pop_due(u64::MAX)), Some(1));
        assert!(timers.is_empty() && timers.first() == u64::MAX);
        assert!(timers.pop_due(u64::MAX).is_none());
    }

    /// Timers fire in the order of deadlines and then of numbers, whatever was removed in between.
    #[test]
    fn timers_fire_in_order() {
        let (mut random, mut timers) = (Random::new(1), Timers::new());
        // By deadline and number.
        let mut expected: BTreeMap<(u64, u64), TimerKey> = BTreeMap::new();
        let mut now = 0;
        for number in 0..20_000 {
            match random.below(4) {
                0 => {
                    now += random.below(8);
                    while let Some(fired) = number_of(timers.pop_due(now)) {
                        let ((deadline, first), _) = expected.pop_first().expect("a timer");
                        assert!(first == fired && deadline <= now);
                    }
                }
                1 if !expected.is_empty() => {
                    let index = random.index(expected.len());
                    let (place, key) = expected.iter().nth(index).expect("a timer");
                    let (place, key) = (*place, *key);
                    expected.remove(&place);
                    assert_eq!(number_of(timers.remove(key)), Some(place.1));
                    assert!(timers.remove(key).is_none());
                }
                _ => {
                    let deadline = now + random.below(200);
                    let key = timers.insert(deadline, number, timer(number));
                    expected.insert((deadline, number), key);
                }
            }
            let first = expected.first_key_value();
            let first = first.map_or(u64::MAX, |((deadline, _), _)| *deadline);
            assert_eq!(timers.first(), first);
            assert_eq!(timers.is_empty(), expected.is_empty());
        }
        assert!(now > 1_000);
    }

    #[test]
    fn removed_timers_do_not_fill_the_heap() {
        let mut timers = Timers::new();
        timers.insert(1, 0, timer(0));
        for number in 1..10_000 {
            let key = timers.insert(1_000_000 + number, number, timer(number));
            assert!(timers.remove(key).is_some());
        }
        assert!(timers.order.len() <= 2 + REMOVED_ENTRIES && timers.slots.len() == 2);
        assert_eq!(timers.first(), 1);
    }
}
