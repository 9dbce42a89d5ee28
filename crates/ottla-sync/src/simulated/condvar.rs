//! Condition variables. The seed chooses the notified waiter.

use std::panic::Location;
use std::time::{Duration, Instant};

use super::lock::{MutexGuard, Queue};
use super::time;
use crate::simulation::trace::Op;
use crate::simulation::world::{self, Wait};

pub struct Condvar {
    queue: Queue,
    inner: parking_lot::Condvar,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    pub fn timed_out(self) -> bool {
        self.0
    }
}

impl Condvar {
    pub const fn new() -> Condvar {
        Condvar {
            queue: Queue::new(),
            inner: parking_lot::Condvar::new(),
        }
    }

    #[track_caller]
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        match world::is_simulated() {
            true => drop(self.wait_simulated(guard, None, Location::caller())),
            false => self.inner.wait(guard.inner()),
        }
    }

    #[track_caller]
    pub fn wait_for<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        timeout: Duration,
    ) -> WaitTimeoutResult {
        match world::is_simulated() {
            true => self.wait_simulated(guard, Some(timeout), Location::caller()),
            false => WaitTimeoutResult(self.inner.wait_for(guard.inner(), timeout).timed_out()),
        }
    }

    #[track_caller]
    pub fn wait_until<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        deadline: Instant,
    ) -> WaitTimeoutResult {
        self.wait_for(guard, deadline.saturating_duration_since(time::now()))
    }

    fn wait_simulated<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        timeout: Option<Duration>,
        at: &'static Location<'static>,
    ) -> WaitTimeoutResult {
        let deadline = timeout.map(|timeout| world::world().deadline_in(timeout));
        let token = world::prepare_wait();
        world::wait_for(self.queue.object(), token);
        guard.release();
        let is_notified = world::block(token, Wait::Condition, at, deadline);
        guard.take_again();
        WaitTimeoutResult(!is_notified)
    }

    #[track_caller]
    pub fn notify_one(&self) -> bool {
        if !world::is_simulated() {
            return self.inner.notify_one();
        }
        world::switch_point(Op::Notify);
        world::wake_one(self.queue.object())
    }

    #[track_caller]
    pub fn notify_all(&self) {
        if !world::is_simulated() {
            self.inner.notify_all();
            return;
        }
        world::switch_point(Op::Notify);
        world::wake_all(self.queue.object());
    }
}

impl Default for Condvar {
    fn default() -> Self {
        Condvar::new()
    }
}

impl std::fmt::Debug for Condvar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Condvar { .. }")
    }
}
