//! The memory of responses that clients do not read.
//!
//! A response is counted from the time when the client's socket is full until the kernel has
//! accepted its last byte. File regions are not in memory and are not counted. When the bound is
//! reached, no further request is processed whose response may be large, and clients that read
//! almost nothing are disconnected ([`Unsent::stalled`]). Kafka has no such bound.

use ottla_sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use ottla_sync::Notify;

use crate::request_memory::Waiting;

#[derive(Debug)]
pub struct UnsentAnswers {
    bound: usize,
    bytes: AtomicUsize,
    waiting: AtomicUsize,
    /// Notified when responses were sent or dropped while a request waited.
    room: Notify,
}

impl UnsentAnswers {
    pub fn new(bound: usize) -> UnsentAnswers {
        UnsentAnswers {
            bound,
            bytes: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            room: Notify::new(),
        }
    }

    /// Unsent bytes of all connections.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::SeqCst)
    }

    pub fn has_room(&self) -> bool {
        self.bytes() < self.bound
    }

    /// Whether requests wait because of unread responses.
    pub fn is_scarce(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// Returns when there is room.
    pub async fn wait_for_room(&self) {
        let _waiting = Waiting::new(&self.waiting);
        loop {
            let room = self.room.notified();
            if self.has_room() {
                return;
            }
            room.await;
        }
    }
}

/// The unsent bytes of one connection. Subtracted when dropped.
#[derive(Debug)]
pub struct Unsent {
    all: Arc<UnsentAnswers>,
    bytes: AtomicUsize,
    /// Bytes that the client has read so far.
    taken: AtomicU64,
}

impl Unsent {
    pub fn of(all: &Arc<UnsentAnswers>) -> Unsent {
        Unsent {
            all: Arc::clone(all),
            bytes: AtomicUsize::new(0),
            taken: AtomicU64::new(0),
        }
    }

    /// Sets the number of unsent bytes of this connection.
    pub fn set(&self, bytes: usize) {
        let before = self.bytes.swap(bytes, Ordering::Relaxed);
        if bytes > before {
            self.all.bytes.fetch_add(bytes - before, Ordering::SeqCst);
        }
        if bytes < before {
            self.all.bytes.fetch_sub(before - bytes, Ordering::SeqCst);
            // A waiter increments `waiting` before it reads `bytes`, so it is not missed here.
            if self.all.is_scarce() {
                self.all.room.notify_waiters();
            }
        }
    }

    pub fn on_taken(&self, bytes: u64) {
        self.taken.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns when the client should be disconnected: it has read less than `least_bytes` within
    /// `patience`, the bound is reached, and this connection has unsent bytes.
    pub async fn stalled(&self, patience: Duration, least_bytes: u64) {
        loop {
            let before = self.taken.load(Ordering::Relaxed);
            ottla_sync::time::sleep(patience).await;
            let is_slow = self.taken.load(Ordering::Relaxed) - before < least_bytes;
            if is_slow && !self.all.has_room() && self.bytes.load(Ordering::Relaxed) > 0 {
                return;
            }
        }
    }
}

impl Drop for Unsent {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn at_the_limit_requests_wait_until_responses_are_sent_or_dropped() {
        let answers = Arc::new(UnsentAnswers::new(100));
        let (first, second) = (Unsent::of(&answers), Unsent::of(&answers));
        first.set(90);
        assert!(answers.has_room());
        second.set(50);
        assert_eq!((answers.bytes(), answers.has_room()), (140, false));
        let waits = answers.wait_for_room();
        tokio::pin!(waits);
        let soon = Duration::from_millis(20);
        let timed_out = ottla_sync::time::timeout(soon, &mut waits).await;
        timed_out.expect_err("there is no room");
        assert!(answers.is_scarce());
        second.set(20);
        let timed_out = ottla_sync::time::timeout(soon, &mut waits).await;
        timed_out.expect_err("110 of 100 are taken");
        drop(first);
        waits.await;
        assert_eq!((answers.bytes(), answers.is_scarce()), (20, false));
        drop(second);
        assert_eq!(answers.bytes(), 0);
    }
}
