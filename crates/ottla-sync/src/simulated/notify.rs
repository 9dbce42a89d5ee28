//! `tokio::sync::Notify` with a switch point before it notifies.

use std::ops::Deref;

use crate::simulation::trace::Op;
use crate::simulation::world;

#[derive(Default, Debug)]
pub struct Notify(tokio::sync::Notify);

impl Notify {
    pub fn new() -> Notify {
        Notify::default()
    }

    pub const fn const_new() -> Notify {
        Notify(tokio::sync::Notify::const_new())
    }

    #[track_caller]
    pub fn notify_one(&self) {
        world::switch_point(Op::Notify);
        self.0.notify_one();
    }

    #[track_caller]
    pub fn notify_waiters(&self) {
        world::switch_point(Op::Notify);
        self.0.notify_waiters();
    }
}

/// `notified` needs no switch point, because the waiter is suspended.
impl Deref for Notify {
    type Target = tokio::sync::Notify;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}
