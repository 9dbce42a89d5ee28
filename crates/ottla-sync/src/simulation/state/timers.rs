//! The timers of a simulation in the order of their deadlines.

use std::collections::BTreeMap;

use super::wait::Timer;

/// A deadline in simulated nanoseconds and a number, which orders timers with the same deadline.
pub(crate) type TimerKey = (u64, u64);

pub(crate) struct Timers {
    all: BTreeMap<TimerKey, Timer>,
    /// The first deadline, or `u64::MAX`: every look of the scheduler needs it.
    first: u64,
}

impl Timers {
    pub(crate) fn new() -> Timers {
        Timers {
            all: BTreeMap::new(),
            first: u64::MAX,
        }
    }

    /// The first deadline; `u64::MAX` without timers.
    #[inline]
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn insert(&mut self, key: TimerKey, timer: Timer) {
        self.first = self.first.min(key.0);
        self.all.insert(key, timer);
    }

    pub(crate) fn remove(&mut self, key: TimerKey) -> Option<Timer> {
        let removed = self.all.remove(&key);
        if key.0 == self.first {
            self.find_first();
        }
        removed
    }

    /// Takes the first timer whose deadline has passed.
    pub(crate) fn pop_due(&mut self, now: u64) -> Option<Timer> {
        if self.first > now {
            return None;
        }
        let (_, timer) = self.all.pop_first()?;
        self.find_first();
        Some(timer)
    }

    fn find_first(&mut self) {
        let first = self.all.first_key_value();
        self.first = first.map_or(u64::MAX, |((deadline, _), _)| *deadline);
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn timer() -> Timer {
        Timer::Task(Waker::noop().clone())
    }

    #[test]
    fn the_first_deadline_follows_every_change() {
        let mut timers = Timers::new();
        assert!(timers.is_empty() && timers.first() == u64::MAX);
        for key in [(30, 1), (10, 2), (10, 3), (20, 4)] {
            timers.insert(key, timer());
        }
        assert_eq!(timers.first(), 10);
        assert!(timers.pop_due(9).is_none());
        assert!(timers.remove((10, 2)).is_some());
        assert_eq!(timers.first(), 10);
        assert!(timers.pop_due(10).is_some());
        assert_eq!(timers.first(), 20);
        assert!(timers.remove((20, 4)).is_some());
        assert!(timers.remove((20, 4)).is_none());
        assert_eq!(timers.first(), 30);
        assert!(timers.pop_due(u64::MAX).is_some());
        assert!(timers.is_empty() && timers.first() == u64::MAX);
        assert!(timers.pop_due(u64::MAX).is_none());
    }
}
