//! `tokio::sync::watch` with switch points when the value is changed or read.
//!
//! tokio wakes waiters in an order chosen by its own random numbers. Simulated receivers wait for a
//! `Notify` instead, which wakes them in order of arrival.

use std::ops::Deref;
use std::sync::Arc;

use tokio::sync::Notify;
use tokio::sync::watch::{self, error::*};
pub use tokio::sync::watch::{Ref, error};

use crate::simulation::trace::Op;
use crate::simulation::world;

pub fn channel<T>(value: T) -> (Sender<T>, Receiver<T>) {
    let sender = Sender::new(value);
    let receiver = sender.subscribe();
    (sender, receiver)
}

#[derive(Default, Debug)]
pub struct Sender<T>(watch::Sender<T>, Changed);

/// Notifies simulated receivers, also when a sender is gone: it is dropped after the sender.
#[derive(Clone, Default, Debug)]
struct Changed(Arc<Notify>);

impl Drop for Changed {
    fn drop(&mut self) {
        self.0.notify_waiters();
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Sender(self.0.clone(), self.1.clone())
    }
}

impl<T> Sender<T> {
    pub fn new(value: T) -> Sender<T> {
        Sender(watch::Sender::new(value), Changed::default())
    }

    #[track_caller]
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        world::switch_point(Op::Send);
        self.0.send(value)?;
        self.1.0.notify_waiters();
        Ok(())
    }

    #[track_caller]
    pub fn send_replace(&self, value: T) -> T {
        world::switch_point(Op::Send);
        let before = self.0.send_replace(value);
        self.1.0.notify_waiters();
        before
    }

    /// `modify` runs under the channel's own lock, without a switch.
    #[track_caller]
    pub fn send_modify(&self, modify: impl FnOnce(&mut T)) {
        world::switch_point(Op::Send);
        world::undivided(|| self.0.send_modify(modify));
        self.1.0.notify_waiters();
    }

    #[track_caller]
    pub fn send_if_modified(&self, modify: impl FnOnce(&mut T) -> bool) -> bool {
        world::switch_point(Op::Send);
        let is_modified = world::undivided(|| self.0.send_if_modified(modify));
        self.1.0.notify_waiters();
        is_modified
    }

    pub fn subscribe(&self) -> Receiver<T> {
        Receiver(self.0.subscribe(), self.1.0.clone())
    }
}

/// Methods without a switch point: `borrow`, `closed`, `is_closed`, `receiver_count`.
impl<T> Deref for Sender<T> {
    type Target = watch::Sender<T>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

#[derive(Debug)]
pub struct Receiver<T>(watch::Receiver<T>, Arc<Notify>);

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        Receiver(self.0.clone(), self.1.clone())
    }
}

impl<T> Receiver<T> {
    /// The result holds the channel's own lock: holding it across a switch point stops the
    /// simulation.
    #[track_caller]
    pub fn borrow(&self) -> Ref<'_, T> {
        world::switch_point(Op::Receive);
        self.0.borrow()
    }

    #[track_caller]
    pub fn borrow_and_update(&mut self) -> Ref<'_, T> {
        world::switch_point(Op::Receive);
        self.0.borrow_and_update()
    }

    pub fn mark_changed(&mut self) {
        self.0.mark_changed();
    }

    pub async fn changed(&mut self) -> Result<(), RecvError> {
        world::switch_point(Op::Receive);
        while world::is_simulated() && matches!(self.0.has_changed(), Ok(false)) {
            // Nothing runs between the check and the wait.
            self.1.notified().await;
        }
        self.0.changed().await
    }

    pub async fn wait_for(
        &mut self,
        mut condition: impl FnMut(&T) -> bool,
    ) -> Result<Ref<'_, T>, RecvError> {
        world::switch_point(Op::Receive);
        while world::is_simulated()
            && self.0.has_changed().is_ok()
            && !world::undivided(|| condition(&self.0.borrow()))
        {
            self.1.notified().await;
        }
        self.0.wait_for(condition).await
    }
}
