//! A notification that takes no memory until somebody waits for it: most partitions are idle.

use std::sync::OnceLock;

use ottla_sync::Notify;
use ottla_sync::atomic::{Ordering, fence};

#[derive(Debug, Default)]
pub struct RareNotify(OnceLock<Box<Notify>>);

impl RareNotify {
    /// For those that wait. They must look at what they wait for after they have called `notified`
    /// on the result.
    pub fn to_wait(&self) -> &Notify {
        let notify = self.0.get_or_init(Box::default);
        fence(Ordering::SeqCst);
        notify
    }

    /// Wakes all that wait. To be called after the change for which they wait: of this fence and
    /// that of the first waiter, one is first. Either this thread finds what the waiter has
    /// allocated, or the waiter sees the change.
    pub fn notify_waiters(&self) {
        fence(Ordering::SeqCst);
        if let Some(notify) = self.0.get() {
            notify.notify_waiters();
        }
    }
}
