//! Readers that wait until a partition is readable up to an offset: long-polled fetches.
//!
//! An append must not pay for absent readers, nor wake those that would find too little. The lowest
//! awaited offset is an atomic; the list is searched only when the readable end passes it. A reader
//! registers first and then checks the log again, so it does not miss an append that came before
//! the registration.

use std::sync::Arc;

use ottla_sync::Mutex;
use ottla_sync::Notify;
use ottla_sync::atomic::{AtomicI64, Ordering};
use ottla_types::Offset;

/// Notified when the awaited condition may hold.
pub type Waiter = Arc<Notify>;

#[derive(Debug)]
pub struct Waiters {
    /// The lowest offset in `waiting`; `i64::MAX` if it is empty.
    lowest: AtomicI64,
    waiting: Mutex<Vec<(Offset, Waiter)>>,
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
    pub fn register(&self, offset: Offset, waiter: &Waiter) {
        let mut waiting = self.waiting.lock();
        waiting.push((offset, Arc::clone(waiter)));
        // Sequentially consistent, like the load in `on_end_moved`: either the append sees the
        // waiter, or the waiter's second check of the log sees the append.
        self.lowest.fetch_min(offset.0, Ordering::SeqCst);
    }

    pub fn take_out(&self, waiter: &Waiter) {
        let mut waiting = self.waiting.lock();
        waiting.retain(|(_, registered)| !Arc::ptr_eq(registered, waiter));
        self.set_lowest(&waiting);
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

    fn wake_if(&self, is_due: impl Fn(Offset) -> bool) {
        let mut waiting = self.waiting.lock();
        waiting.retain(|(offset, waiter)| {
            let is_due = is_due(*offset);
            if is_due {
                waiter.notify_one();
            }
            !is_due
        });
        self.set_lowest(&waiting);
    }

    /// Whether there are no waiters.
    pub fn is_empty(&self) -> bool {
        self.waiting.lock().is_empty()
    }

    fn set_lowest(&self, waiting: &[(Offset, Waiter)]) {
        let lowest = waiting.iter().map(|(offset, _)| offset.0).min();
        self.lowest
            .store(lowest.unwrap_or(i64::MAX), Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_woken(waiter: &Waiter) -> bool {
        use std::future::Future;
        use std::task::{Context, Poll, Waker};
        let woken = std::pin::pin!(waiter.notified());
        woken.poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
    }

    #[test]
    fn only_those_are_woken_who_can_read() {
        let waiters = Waiters::default();
        let [at_5, at_9] = [Waiter::default(), Waiter::default()];
        waiters.register(Offset(5), &at_5);
        waiters.register(Offset(9), &at_9);
        waiters.on_end_moved(Offset(5));
        assert!(!is_woken(&at_5));
        waiters.on_end_moved(Offset(6));
        assert!(is_woken(&at_5));
        assert!(!is_woken(&at_9));
        waiters.take_out(&at_9);
        waiters.on_end_moved(Offset(100));
        assert!(!is_woken(&at_9));
    }
}
