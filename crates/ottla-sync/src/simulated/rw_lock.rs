//! Reader-writer locks.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::Location;

use super::lock::Queue;
use crate::simulation::trace::Op;
use crate::simulation::world;

pub struct RwLock<T: ?Sized> {
    queue: Queue,
    inner: parking_lot::RwLock<T>,
}

pub struct RwLockReadGuard<'a, T: ?Sized> {
    queue: &'a Queue,
    taken_at: &'static Location<'static>,
    /// `None` when it is dropped.
    inner: Option<parking_lot::RwLockReadGuard<'a, T>>,
}

pub struct RwLockWriteGuard<'a, T: ?Sized> {
    queue: &'a Queue,
    taken_at: &'static Location<'static>,
    /// `None` when it is dropped.
    inner: Option<parking_lot::RwLockWriteGuard<'a, T>>,
}

impl<T> RwLock<T> {
    pub const fn new(value: T) -> RwLock<T> {
        RwLock {
            queue: Queue::new(),
            inner: parking_lot::RwLock::new(value),
        }
    }

    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    #[track_caller]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let taken_at = Location::caller();
        let inner = match world::is_simulated() {
            true => self.queue.take(taken_at, || self.inner.try_read()),
            false => self.inner.read(),
        };
        RwLockReadGuard {
            queue: &self.queue,
            taken_at,
            inner: Some(inner),
        }
    }

    #[track_caller]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let taken_at = Location::caller();
        let inner = match world::is_simulated() {
            true => self.queue.take(taken_at, || self.inner.try_write()),
            false => self.inner.write(),
        };
        RwLockWriteGuard {
            queue: &self.queue,
            taken_at,
            inner: Some(inner),
        }
    }

    #[track_caller]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        let taken_at = Location::caller();
        world::switch_point_at(Op::Lock, taken_at);
        let inner = self.inner.try_read()?;
        self.queue.hold(taken_at);
        Some(RwLockReadGuard {
            queue: &self.queue,
            taken_at,
            inner: Some(inner),
        })
    }

    #[track_caller]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        let taken_at = Location::caller();
        world::switch_point_at(Op::Lock, taken_at);
        let inner = self.inner.try_write()?;
        self.queue.hold(taken_at);
        Some(RwLockWriteGuard {
            queue: &self.queue,
            taken_at,
            inner: Some(inner),
        })
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.inner.as_ref().expect("the guard holds its lock")
    }
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.inner.as_ref().expect("the guard holds its lock")
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.inner.as_mut().expect("the guard holds its lock")
    }
}

impl<T: ?Sized> Drop for RwLockReadGuard<'_, T> {
    fn drop(&mut self) {
        self.inner = None;
        self.queue.given(self.taken_at);
    }
}

impl<T: ?Sized> Drop for RwLockWriteGuard<'_, T> {
    fn drop(&mut self) {
        self.inner = None;
        self.queue.given(self.taken_at);
    }
}

impl<T: Default> Default for RwLock<T> {
    fn default() -> Self {
        RwLock::new(T::default())
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
