//! A spin lock that is held no longer than it takes to encode a record.
//!
//! A blocking lock is released with an atomic instruction that waits until all earlier writes have
//! reached the cache, which here means the entire record. This lock is released with a plain store.
//! A waiter spins for a while, then yields, then sleeps briefly.
//!
//! The lock is not fair, and must not be held across anything that waits.

use ottla_sync::atomic::{AtomicBool, Ordering};
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// How often a waiter checks the lock before it yields, and how often it yields before it sleeps.
const SPINS: u32 = 100;
const YIELDS: u32 = 20;
const SLEEP: Duration = Duration::from_micros(50);

#[derive(Default)]
pub(super) struct BriefLock<T> {
    is_held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reachable only through a guard, and `is_held` allows one guard at a time.
// Lock acquires what unlock releases, so all accesses are ordered. The value thus moves between
// threads, which `Send` permits.
unsafe impl<T: Send> Sync for BriefLock<T> {}

/// Holds the lock until it is dropped.
pub(super) struct BriefGuard<'a, T> {
    lock: &'a BriefLock<T>,
    /// The guard can be shared between threads only if the value can.
    _value: PhantomData<&'a mut T>,
}

impl<T> BriefLock<T> {
    #[inline]
    pub(super) fn lock(&self) -> BriefGuard<'_, T> {
        if !self.try_take() {
            self.take_contended();
        }
        BriefGuard {
            lock: self,
            _value: PhantomData,
        }
    }

    #[inline]
    fn try_take(&self) -> bool {
        self.is_held
            .compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    #[cold]
    fn take_contended(&self) {
        let mut rounds = 0;
        loop {
            for _ in 0..SPINS {
                // Reading does not take the cache line away from the holder.
                if !self.is_held.load(Ordering::Relaxed) && self.try_take() {
                    return;
                }
                std::hint::spin_loop();
            }
            // The holder may have been preempted on this processor.
            match rounds < YIELDS {
                true => ottla_sync::thread::yield_now(),
                false => ottla_sync::thread::sleep(SLEEP),
            }
            rounds += 1;
        }
    }
}

impl<T> Deref for BriefGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: while the guard lives, no other does.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for BriefGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: while the guard lives, no other does, and it is borrowed for as long as the value is.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for BriefGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.is_held.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each thread increments both numbers. Without mutual exclusion they would differ.
    #[test]
    fn the_lock_is_exclusive() {
        let lock = BriefLock::<(u64, u64)>::default();
        ottla_sync::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50_000 {
                        let mut held = lock.lock();
                        assert_eq!(held.0, held.1);
                        held.0 += 1;
                        std::hint::black_box(&mut *held);
                        held.1 += 1;
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), (200_000, 200_000));
    }
}
