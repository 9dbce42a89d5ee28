//! Mutexes, with a switch point before each is taken and after each is released.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::simulation::state::wait::new_object;
use crate::simulation::trace::Op;
use crate::simulation::world::{self, Holder, Wait};

/// The waiters and the holder of an object.
pub(super) struct Queue {
    /// The number of the object once a thread has waited for it, otherwise 0.
    object: AtomicU64,
    holder: AtomicU32,
    since: AtomicPtr<Location<'static>>,
}

impl Queue {
    pub(super) const fn new() -> Queue {
        Queue {
            object: AtomicU64::new(0),
            holder: AtomicU32::new(u32::MAX),
            since: AtomicPtr::new(ptr::null_mut()),
        }
    }

    pub(super) fn object(&self) -> u64 {
        match self.object.load(Ordering::Relaxed) {
            0 => {
                let object = new_object();
                self.object.store(object, Ordering::Relaxed);
                object
            }
            object => object,
        }
    }

    fn holder(&self) -> Holder {
        let since = self.since.load(Ordering::Relaxed);
        // SAFETY: only `hold` stores, and it only stores pointers from a `&'static Location`, never
        // null.
        let since = unsafe { since.as_ref() };
        Holder {
            slot: self.holder.load(Ordering::Relaxed),
            since: since.unwrap_or(Location::caller()),
        }
    }

    /// Records that the running thread has taken it.
    pub(super) fn hold(&self, at: &'static Location<'static>) {
        self.holder.store(world::current(), Ordering::Relaxed);
        self.since
            .store(ptr::from_ref(at).cast_mut(), Ordering::Relaxed);
    }

    /// Takes a lock in a simulation, retrying whenever it was released.
    pub(super) fn take<G>(
        &self,
        at: &'static Location<'static>,
        mut try_take: impl FnMut() -> Option<G>,
    ) -> G {
        world::switch_point_at(Op::Lock, at);
        loop {
            if let Some(guard) = try_take() {
                self.hold(at);
                return guard;
            }
            let token = world::prepare_wait();
            world::wait_for(self.object(), token);
            let holder = self.holder();
            world::block(token, Wait::Lock { holder }, at, None);
        }
    }

    /// After a lock was released.
    pub(super) fn given(&self, at: &'static Location<'static>) {
        if world::is_simulated() {
            self.wake();
            world::switch_point_at(Op::Unlock, at);
        }
    }

    /// Wakes the waiters to retry.
    pub(super) fn wake(&self) {
        let object = self.object.load(Ordering::Relaxed);
        if object != 0 {
            world::wake_all(object);
        }
    }
}

pub struct Mutex<T: ?Sized> {
    queue: Queue,
    inner: parking_lot::Mutex<T>,
}

pub struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    taken_at: &'static Location<'static>,
    /// `None` while the holder waits for a condition variable, and when it is dropped.
    inner: Option<parking_lot::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Mutex<T> {
        Mutex {
            queue: Queue::new(),
            inner: parking_lot::Mutex::new(value),
        }
    }

    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let at = Location::caller();
        self.guard(at, self.lock_inner(at))
    }

    pub(super) fn lock_inner(
        &self,
        at: &'static Location<'static>,
    ) -> parking_lot::MutexGuard<'_, T> {
        match world::is_simulated() {
            true => self.queue.take(at, || self.inner.try_lock()),
            false => self.inner.lock(),
        }
    }

    #[track_caller]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let at = Location::caller();
        world::switch_point_at(Op::Lock, at);
        let inner = self.inner.try_lock()?;
        self.queue.hold(at);
        Some(self.guard(at, inner))
    }

    fn guard<'a>(
        &'a self,
        taken_at: &'static Location<'static>,
        inner: parking_lot::MutexGuard<'a, T>,
    ) -> MutexGuard<'a, T> {
        MutexGuard {
            mutex: self,
            taken_at,
            inner: Some(inner),
        }
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    pub(super) fn inner(&mut self) -> &mut parking_lot::MutexGuard<'a, T> {
        self.inner.as_mut().expect("the guard holds its lock")
    }

    /// Releases the lock to wait for a condition variable, without a switch: releasing and waiting
    /// are one step.
    pub(super) fn release(&mut self) {
        self.inner = None;
        self.mutex.queue.wake();
    }

    pub(super) fn take_again(&mut self) {
        self.inner = Some(self.mutex.lock_inner(self.taken_at));
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.inner.as_ref().expect("the guard holds its lock")
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.inner()
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        if self.inner.take().is_some() {
            self.mutex.queue.given(self.taken_at);
        }
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Mutex::new(T::default())
    }
}

impl<T> From<T> for Mutex<T> {
    fn from(value: T) -> Self {
        Mutex::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
