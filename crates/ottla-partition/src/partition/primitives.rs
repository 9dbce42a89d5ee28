//! The primitives of the inbox. The tests put loom's in their place.

pub use std::sync::atomic::{AtomicUsize, Ordering};

/// A lock that is held for the length of one closure.
#[derive(Debug)]
pub struct Lock<T>(parking_lot::Mutex<T>);

impl<T> Lock<T> {
    pub fn new(value: T) -> Self {
        Lock(parking_lot::Mutex::new(value))
    }

    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        work(&mut self.0.lock())
    }
}
