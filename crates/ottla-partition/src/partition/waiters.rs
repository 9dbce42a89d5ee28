//! Readers that wait until a partition is readable up to an offset: long-polled fetches.
//!
//! An append must not pay for absent readers, nor wake readers that would find too few records. The
//! lowest awaited offset is an atomic. The waiters are examined only when the readable end passes
//! that offset, and only as far as the readable end reaches. A reader registers first and then
//! checks the log again, so it does not miss an append that came before the registration.
//!
//! Kafka: `DelayedOperationPurgatory`, whose lists of watchers are searched by each append.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ottla_sync::Mutex;
use ottla_sync::Notify;
use ottla_sync::atomic::{AtomicI64, Ordering};
use ottla_types::Offset;

/// Notified when an awaited condition may hold. Can wait for several partitions. The waiter chooses
/// the place of each.
#[derive(Clone, Debug, Default)]
pub struct Waiter(Arc<Wakeups>);

#[derive(Debug, Default)]
struct Wakeups {
    notify: Notify,
    /// The places that have woken the waiter and were not taken since.
    places: Mutex<BTreeSet<usize>>,
}

impl Waiter {
    /// Waits to be woken. Returns at once if that has happened since the last time.
    pub fn notified(&self) -> impl Future<Output = ()> {
        self.0.notify.notified()
    }

    /// The places that have woken it, each of which is no longer registered.
    pub fn take_woken(&self) -> BTreeSet<usize> {
        std::mem::take(&mut self.0.places.lock())
    }

    fn wake(&self, place: usize) {
        self.0.places.lock().insert(place);
        self.0.notify.notify_one();
    }
}

/// One registration of a waiter, over when it is woken.
#[derive(Debug)]
#[must_use]
pub struct Registration(Key);

/// The awaited offset, and a number that distinguishes waiters for the same offset.
type Key = (Offset, u64);

#[derive(Debug)]
pub struct Waiters {
    /// The lowest offset in `waiting`; `i64::MAX` if it is empty.
    lowest: AtomicI64,
    /// `None` before the first waiter: most partitions have none.
    waiting: Mutex<Option<Box<Waiting>>>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// The waiters, and their places of this partition.
    by_offset: BTreeMap<Key, (Waiter, usize)>,
    /// No number is used twice: a registration that is over must not remove another.
    next_number: u64,
}

impl Default for Waiters {
    fn default() -> Self {
        Waiters {
            lowest: AtomicI64::new(i64::MAX),
            waiting: Mutex::default(),
        }
    }
}

impl Waiters {
    /// Wakes the waiter once the readable end is above `offset`. It stays registered until it is
    /// woken or removed.
    pub fn register(&self, offset: Offset, waiter: &Waiter) -> Registration {
        self.register_place(offset, waiter, 0)
    }

    /// As [`Waiters::register`], for a waiter that has to know which partition has woken it.
    pub fn register_place(&self, offset: Offset, waiter: &Waiter, place: usize) -> Registration {
        let mut waiting = self.waiting.lock();
        let waiting = waiting.get_or_insert_default();
        let key = (offset, waiting.next_number);
        waiting.next_number += 1;
        waiting.by_offset.insert(key, (waiter.clone(), place));
        // Sequentially consistent, like the load in `on_end_moved`: either the append sees the
        // waiter, or the waiter's second check of the log sees the append.
        self.lowest.fetch_min(offset.0, Ordering::SeqCst);
        Registration(key)
    }

    pub fn take_out(&self, Registration(key): Registration) {
        if let Some(waiting) = self.waiting.lock().as_mut()
            && waiting.by_offset.remove(&key).is_some()
        {
            self.set_lowest(waiting);
        }
    }

    /// Wakes the waiters for offsets below `end`.
    pub fn on_end_moved(&self, end: Offset) {
        ottla_sync::atomic::fence(Ordering::SeqCst);
        if self.lowest.load(Ordering::SeqCst) >= end.0 {
            return;
        }
        self.wake_if(|offset| offset < end);
    }

    /// Wakes all waiters: the partition's role changed or it is gone.
    pub fn wake_all(&self) {
        self.wake_if(|_| true);
    }

    /// `is_due` holds for all offsets below one for which it holds.
    fn wake_if(&self, is_due: impl Fn(Offset) -> bool) {
        let mut waiting = self.waiting.lock();
        let Some(waiting) = waiting.as_mut() else {
            return;
        };
        while let Some(first) = waiting.by_offset.first_entry()
            && is_due(first.key().0)
        {
            let (waiter, place) = first.remove();
            waiter.wake(place);
        }
        self.set_lowest(waiting);
    }

    /// Whether there are no waiters.
    pub fn is_empty(&self) -> bool {
        let waiting = self.waiting.lock();
        waiting.as_ref().is_none_or(|it| it.by_offset.is_empty())
    }

    fn set_lowest(&self, waiting: &Waiting) {
        let lowest = waiting.by_offset.first_key_value();
        let lowest = lowest.map_or(i64::MAX, |((offset, _), _)| offset.0);
        self.lowest.store(lowest, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_woken(waiter: &Waiter) -> bool {
        use std::task::{Context, Poll, Waker};
        let woken = std::pin::pin!(waiter.notified());
        woken.poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
    }

    #[test]
    fn only_waiters_that_can_read_are_woken() {
        let waiters = Waiters::default();
        let [at_5, at_9] = [Waiter::default(), Waiter::default()];
        let _first = waiters.register(Offset(5), &at_5);
        let second = waiters.register(Offset(9), &at_9);
        waiters.on_end_moved(Offset(5));
        assert!(!is_woken(&at_5));
        waiters.on_end_moved(Offset(6));
        assert!(is_woken(&at_5));
        assert!(!is_woken(&at_9));
        waiters.take_out(second);
        waiters.on_end_moved(Offset(100));
        assert!(!is_woken(&at_9));
    }

    #[test]
    fn a_waiter_knows_which_of_its_partitions_have_woken_it() {
        let partitions = [Waiters::default(), Waiters::default(), Waiters::default()];
        let waiter = Waiter::default();
        let places = partitions.iter().enumerate();
        let registered = places.map(|(place, it)| it.register_place(Offset(5), &waiter, place));
        let mut registered: Vec<Registration> = registered.collect();
        partitions[2].on_end_moved(Offset(6));
        partitions[0].wake_all();
        assert!(is_woken(&waiter));
        assert_eq!(waiter.take_woken(), BTreeSet::from([0, 2]));
        assert!(waiter.take_woken().is_empty(), "they were taken");
        assert!(partitions[0].is_empty() && partitions[2].is_empty());

        // The removal of a registration that is over leaves others alone.
        registered[0] = partitions[0].register_place(Offset(6), &waiter, 0);
        let other = Waiter::default();
        let of_other = partitions[0].register(Offset(6), &other);
        partitions[2].take_out(registered.remove(2));
        partitions[0].take_out(of_other);
        partitions[0].on_end_moved(Offset(7));
        assert!(is_woken(&waiter) && !is_woken(&other));
        partitions[1].take_out(registered.remove(1));
        assert!(partitions.iter().all(Waiters::is_empty));
    }
}
