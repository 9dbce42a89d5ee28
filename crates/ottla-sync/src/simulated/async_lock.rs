//! `tokio::sync::Mutex`, a lock that may be held across an `await`, with a switch point before it
//! is taken.

pub use tokio::sync::{MutexGuard, TryLockError};

use crate::simulation::trace::Op;
use crate::simulation::world;

#[derive(Default, Debug)]
pub struct Mutex<T>(tokio::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub fn new(value: T) -> Mutex<T> {
        Mutex(tokio::sync::Mutex::new(value))
    }

    pub async fn lock(&self) -> MutexGuard<'_, T> {
        world::switch_point(Op::Lock);
        self.0.lock().await
    }

    #[track_caller]
    pub fn try_lock(&self) -> Result<MutexGuard<'_, T>, TryLockError> {
        world::switch_point(Op::Lock);
        self.0.try_lock()
    }
}
