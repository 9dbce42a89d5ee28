//! Timers by key, in the order of their deadlines.
//!
//! Setting a key again replaces its deadline, as in Kafka's `CoordinatorTimerImpl`. Times are
//! milliseconds of a monotonic clock of the caller.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use super::outcome::TimerChange;

#[derive(Debug)]
pub(crate) struct TimerQueue<K> {
    deadlines: HashMap<K, u64>,
    /// Deadline first, so that the head is due next. Contains each key of `deadlines` once.
    by_deadline: BTreeSet<(u64, K)>,
}

impl<K> Default for TimerQueue<K> {
    fn default() -> Self {
        TimerQueue {
            deadlines: HashMap::new(),
            by_deadline: BTreeSet::new(),
        }
    }
}

impl<K: Clone + Eq + Hash + Ord> TimerQueue<K> {
    pub(crate) fn apply(&mut self, change: TimerChange<K>, now_ms: u64) {
        match change {
            TimerChange::Set { key, after_ms } => {
                let deadline = now_ms.saturating_add(after_ms);
                if let Some(previous) = self.deadlines.insert(key.clone(), deadline) {
                    self.by_deadline.remove(&(previous, key.clone()));
                }
                self.by_deadline.insert((deadline, key));
            }
            TimerChange::SetIfAbsent { key, after_ms } => {
                if !self.deadlines.contains_key(&key) {
                    self.apply(TimerChange::Set { key, after_ms }, now_ms);
                }
            }
            TimerChange::Cancel { key } => {
                if let Some(deadline) = self.deadlines.remove(&key) {
                    self.by_deadline.remove(&(deadline, key));
                }
            }
        }
    }

    /// The deadline of the next timer, if there is one.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        self.by_deadline.first().map(|(deadline, _)| *deadline)
    }

    /// Removes and returns one timer that is due.
    pub(crate) fn pop_due(&mut self, now_ms: u64) -> Option<K> {
        if self.next_deadline_ms()? > now_ms {
            return None;
        }
        let (_, key) = self.by_deadline.pop_first()?;
        self.deadlines.remove(&key);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::{TimerChange, TimerQueue};

    fn set(key: &'static str, after_ms: u64) -> TimerChange<&'static str> {
        TimerChange::Set { key, after_ms }
    }

    #[test]
    fn timers_come_out_in_the_order_of_their_deadlines() {
        let mut timers = TimerQueue::default();
        timers.apply(set("late", 30), 100);
        timers.apply(set("early", 10), 100);
        assert_eq!(timers.next_deadline_ms(), Some(110));
        assert_eq!(timers.pop_due(109), None);
        assert_eq!(timers.pop_due(200), Some("early"));
        assert_eq!(timers.pop_due(200), Some("late"));
        assert_eq!(timers.pop_due(200), None);
        assert_eq!(timers.next_deadline_ms(), None);
    }

    #[test]
    fn setting_again_moves_the_deadline_and_cancelling_forgets_it() {
        let mut timers = TimerQueue::default();
        timers.apply(set("g", 10), 0);
        timers.apply(set("g", 50), 5);
        assert_eq!(timers.pop_due(54), None);
        assert_eq!(timers.next_deadline_ms(), Some(55));
        timers.apply(TimerChange::Cancel { key: "g" }, 54);
        assert_eq!(timers.pop_due(100), None);
        assert_eq!(timers.next_deadline_ms(), None);
    }
}
