//! A limit for work of one kind that runs at the same time. The limit can change while work runs.
//!
//! In Kafka the limit is the size of a thread pool.

use std::sync::Arc;

use ottla_sync::{Mutex, OwnedSemaphorePermit, Semaphore};

/// Begins with no turns; the first limit makes them.
pub struct Turns {
    free: Arc<Semaphore>,
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    /// All turns, taken or free.
    existing: usize,
    /// Below `existing` while turns are taken that a lower limit no longer allows. They end with
    /// their work.
    limit: usize,
}

/// Held during the work.
pub struct Turn {
    turns: Arc<Turns>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Turns {
    pub fn new() -> Arc<Turns> {
        Arc::new(Turns {
            free: Arc::new(Semaphore::new(0)),
            counts: Mutex::default(),
        })
    }

    /// Waits until less work than `limit` runs. Work begins in the order of the calls.
    pub async fn take(self: &Arc<Self>, limit: i32) -> Turn {
        self.set_limit(usize::try_from(limit).unwrap_or(0).max(1));
        // The semaphore is never closed.
        let permit = Arc::clone(&self.free).acquire_owned().await.ok();
        Turn {
            turns: Arc::clone(self),
            permit,
        }
    }

    /// How much work runs.
    pub fn taken(&self) -> usize {
        let existing = self.counts.lock().existing;
        existing.saturating_sub(self.free.available_permits())
    }

    fn set_limit(&self, limit: usize) {
        let mut counts = self.counts.lock();
        counts.limit = limit;
        if let Some(more) = limit.checked_sub(counts.existing) {
            self.free.add_permits(more);
            counts.existing = limit;
        } else {
            let forgotten = self.free.forget_permits(counts.existing - limit);
            counts.existing -= forgotten;
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(permit) = self.permit.take() else {
            return;
        };
        let mut counts = self.turns.counts.lock();
        if counts.existing > counts.limit {
            counts.existing -= 1;
            permit.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn is_full(turns: &Arc<Turns>, limit: i32) -> bool {
        let soon = Duration::from_millis(20);
        let taken = ottla_sync::time::timeout(soon, turns.take(limit)).await;
        taken.is_err()
    }

    #[tokio::test]
    async fn another_limit_counts_from_then_on() {
        let turns = Turns::new();
        let first = turns.take(2).await;
        let second = turns.take(2).await;
        assert!(is_full(&turns, 2).await);
        let third = turns.take(3).await;
        assert!(is_full(&turns, 3).await);
        assert_eq!(turns.taken(), 3);
        // Two have to end before the next begins.
        for taken in [first, second] {
            assert!(is_full(&turns, 1).await);
            drop(taken);
        }
        assert!(is_full(&turns, 1).await);
        assert_eq!(turns.taken(), 1);
        drop(third);
        assert!(!is_full(&turns, 1).await);
        assert_eq!(turns.taken(), 0);
        // A free turn goes with a lower limit too.
        assert!(!is_full(&turns, 5).await);
        let only = turns.take(1).await;
        assert!(is_full(&turns, 1).await);
        drop(only);
        assert!(!is_full(&turns, 1).await);
    }

    #[tokio::test]
    async fn a_higher_limit_lets_work_begin_that_waits() {
        let turns = Turns::new();
        let _first = turns.take(1).await;
        let waits = turns.take(1);
        tokio::pin!(waits);
        let soon = Duration::from_millis(20);
        let begun = ottla_sync::time::timeout(soon, &mut waits).await;
        assert!(begun.is_err());
        // It is served before the one that brings the limit.
        assert!(is_full(&turns, 2).await);
        let _second = waits.await;
    }
}
