//! The primitives of the inbox; the tests replace them by loom's.

pub use ottla_sync::atomic::{AtomicUsize, Ordering};

/// A lock that is held for the length of one closure.
#[derive(Debug)]
pub struct Lock<T>(ottla_sync::Mutex<T>);

impl<T> Lock<T> {
    pub fn new(value: T) -> Self {
        Lock(ottla_sync::Mutex::new(value))
    }

    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        work(&mut self.0.lock())
    }
}
