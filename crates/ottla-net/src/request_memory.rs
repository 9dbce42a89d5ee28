//! A memory budget. One instance limits the requests of all connections that are not yet read
//! completely; other instances limit decoded requests and batches that are being recompressed.
//!
//! Kafka has `queued.max.request.bytes`, which is unlimited by default. Here the default is a share
//! of the memory available to the process, so that many clients with large requests cannot exhaust
//! it. A connection that finds no room is not read until there is some.
//!
//! A request is covered piece by piece as it arrives, not by the length that it announces, so that
//! peers that announce much and send nothing reserve nothing. Pieces alone could lead to a deadlock
//! of requests that each hold a part and wait for the rest. Therefore one request at a time may
//! exceed the budget until it is complete, and a peer that holds memory but sends nothing is
//! disconnected if other requests wait ([`RequestMemory::is_scarce`]).

use ottla_sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use ottla_sync::{OwnedSemaphorePermit, Semaphore};

/// One permit of the semaphore represents this many bytes.
const UNIT_BYTES: usize = 1024;
/// The maximum that is covered at once: as much as one read of a socket returns.
const PIECE_BYTES: usize = 256 * 1024;

#[derive(Debug)]
pub struct RequestMemory {
    units: Arc<Semaphore>,
    total_units: usize,
    /// One permit, for the request that may exceed the budget.
    beyond: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// The memory of one request. Returned when dropped.
#[derive(Debug, Default)]
pub struct Covered {
    units: Option<OwnedSemaphorePermit>,
    beyond: Option<OwnedSemaphorePermit>,
    /// Covered bytes that have not arrived yet.
    unread: usize,
}

impl Covered {
    /// How many bytes may be read before more must be covered.
    pub fn unread(&self) -> usize {
        self.unread
    }

    pub fn on_read(&mut self, bytes: usize) {
        self.unread = self.unread.saturating_sub(bytes);
    }

    fn add(&mut self, units: OwnedSemaphorePermit, bytes: usize) {
        match &mut self.units {
            Some(taken) => taken.merge(units),
            none => *none = Some(units),
        }
        self.unread += bytes;
    }
}

impl RequestMemory {
    pub fn new(bytes: usize) -> Self {
        let total_units = bytes.div_ceil(UNIT_BYTES).min(u32::MAX as usize);
        RequestMemory {
            units: Arc::new(Semaphore::new(total_units)),
            total_units,
            beyond: Arc::new(Semaphore::new(1)),
            waiting: AtomicUsize::new(0),
        }
    }

    /// The size of the budget.
    pub fn total_bytes(&self) -> usize {
        self.total_units.saturating_mul(UNIT_BYTES)
    }

    /// The part of the budget that is not reserved.
    pub fn available_bytes(&self) -> usize {
        self.units.available_permits().saturating_mul(UNIT_BYTES)
    }

    /// Whether more than half is reserved. Connections then keep smaller buffers and read less
    /// ahead.
    pub fn is_low(&self) -> bool {
        self.units.available_permits() < self.total_units / 2
    }

    /// Whether requests wait for memory.
    pub fn is_scarce(&self) -> bool {
        self.waiting() > 0
    }

    /// How many requests wait for memory.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Covers a piece of the `missing` bytes of a request if there is room.
    pub fn try_cover(&self, covered: &mut Covered, missing: usize) -> bool {
        let (bytes, units) = self.piece(missing);
        if covered.beyond.is_some() {
            covered.unread += bytes;
            return true;
        }
        match Arc::clone(&self.units).try_acquire_many_owned(units) {
            Ok(units) => {
                covered.add(units, bytes);
                true
            }
            Err(_) => false,
        }
    }

    /// Like [`try_cover`](Self::try_cover), but waits for room.
    pub async fn cover(&self, covered: &mut Covered, missing: usize) {
        let _waiting = Waiting::new(&self.waiting);
        let (bytes, units) = self.piece(missing);
        let units = Arc::clone(&self.units).acquire_many_owned(units);
        let beyond = Arc::clone(&self.beyond).acquire_owned();
        ottla_sync::select! {
            biased;
            units = units => covered.add(units.expect("the semaphore is never closed"), bytes),
            beyond = beyond => {
                covered.beyond = Some(beyond.expect("the semaphore is never closed"));
                covered.unread += bytes;
            }
        }
    }

    /// Reserves `bytes` at once, for work whose size is known in advance. A larger amount than the
    /// budget reserves the whole budget, because otherwise it could never succeed.
    pub async fn take(&self, bytes: usize) -> OwnedSemaphorePermit {
        let _waiting = Waiting::new(&self.waiting);
        let units = self.units_of(bytes);
        let taken = Arc::clone(&self.units).acquire_many_owned(units).await;
        taken.expect("the semaphore is never closed")
    }

    /// Like [`take`](Self::take), but only if there is room now. Memory that others wait for is no room.
    pub fn try_take(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let units = self.units_of(bytes);
        Arc::clone(&self.units).try_acquire_many_owned(units).ok()
    }

    /// Like [`take`](Self::take), but if there is no room, one caller at a time exceeds the budget. So it
    /// does not wait for memory that is given back only after its own work has ended. The caller should
    /// hold nothing else of the budget.
    ///
    /// More than half of the budget is not queued for: all that others give back would be kept for it.
    pub async fn take_or_exceed(&self, bytes: usize) -> OwnedSemaphorePermit {
        if let Some(taken) = self.try_take_or_exceed(bytes) {
            return taken;
        }
        let _waiting = Waiting::new(&self.waiting);
        let units = self.units_of(bytes);
        let beyond = Arc::clone(&self.beyond).acquire_owned();
        let taken = if units as usize > self.total_units / 2 {
            beyond.await
        } else {
            let within = Arc::clone(&self.units).acquire_many_owned(units);
            ottla_sync::select! {
                biased;
                units = within => units,
                beyond = beyond => beyond,
            }
        };
        taken.expect("the semaphore is never closed")
    }

    /// Like [`take_or_exceed`](Self::take_or_exceed), but only if it need not wait.
    pub fn try_take_or_exceed(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let beyond = || Arc::clone(&self.beyond).try_acquire_owned().ok();
        self.try_take(bytes).or_else(beyond)
    }

    /// Returns everything except `bytes` of a reservation.
    pub fn keep(taken: &mut OwnedSemaphorePermit, bytes: usize) {
        let kept = bytes.div_ceil(UNIT_BYTES);
        let surplus = taken.num_permits().saturating_sub(kept);
        drop(taken.split(surplus));
    }

    /// The bytes of the next piece, and its units: at most the whole budget.
    fn piece(&self, missing: usize) -> (usize, u32) {
        let bytes = missing.min(PIECE_BYTES);
        (bytes, self.units_of(bytes))
    }

    /// At most the whole budget.
    fn units_of(&self, bytes: usize) -> u32 {
        bytes.div_ceil(UNIT_BYTES).min(self.total_units) as u32
    }
}

/// Counts one who waits, until it is dropped.
pub(crate) struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    pub(crate) fn new(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::SeqCst);
        Waiting(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_request_is_covered_as_it_arrives() {
        let memory = RequestMemory::new(1024 * 1024);
        let mut covered = Covered::default();
        assert!(memory.try_cover(&mut covered, 100 * 1024 * 1024));
        assert_eq!(covered.unread(), PIECE_BYTES);
        assert_eq!(memory.available_bytes(), 1024 * 1024 - PIECE_BYTES);
        covered.on_read(PIECE_BYTES);
        assert_eq!(covered.unread(), 0);
        drop(covered);
        assert_eq!(memory.available_bytes(), 1024 * 1024);
    }

    #[tokio::test]
    async fn one_request_may_exceed_an_exhausted_budget() {
        let memory = RequestMemory::new(10 * 1024);
        let mut first = Covered::default();
        assert!(memory.try_cover(&mut first, 8 * 1024));
        let mut second = Covered::default();
        assert!(!memory.try_cover(&mut second, 4 * 1024));
        memory.cover(&mut second, 4 * 1024).await;
        assert_eq!(second.unread(), 4 * 1024);
        assert!(memory.try_cover(&mut second, 50 * 1024), "up to its end");

        let mut third = Covered::default();
        assert!(!memory.is_scarce());
        {
            let waits = memory.cover(&mut third, 4 * 1024);
            tokio::pin!(waits);
            let soon = ottla_sync::time::timeout(Duration::from_millis(20), &mut waits);
            assert!(soon.await.is_err(), "a third has to wait");
            assert!(memory.is_scarce());
            drop(second);
            waits.await;
        }
        assert!(!memory.is_scarce());
        assert_eq!(third.unread(), 4 * 1024);
    }

    #[tokio::test]
    async fn one_reservation_at_a_time_may_exceed_the_budget() {
        let memory = RequestMemory::new(10 * 1024);
        let all = memory.take_or_exceed(100 * 1024).await;
        assert_eq!(
            memory.available_bytes(),
            0,
            "within the budget if there is room"
        );
        drop(all);
        let within = memory.take(8 * 1024).await;
        let beyond = memory.try_take_or_exceed(100 * 1024);
        let beyond = beyond.expect("no other one exceeds it");
        assert_eq!(memory.available_bytes(), 2 * 1024);
        assert!(memory.try_take_or_exceed(4 * 1024).is_none());
        let soon = Duration::from_millis(20);
        let waits = memory.take_or_exceed(4 * 1024);
        tokio::pin!(waits);
        let waiting = ottla_sync::time::timeout(soon, &mut waits).await;
        assert!(waiting.is_err(), "another one exceeds it");
        drop(beyond);
        let mut beyond = waits.await;
        assert_eq!(memory.available_bytes(), 2 * 1024);
        RequestMemory::keep(&mut beyond, 4 * 1024);
        let waits = memory.take_or_exceed(4 * 1024);
        tokio::pin!(waits);
        let waiting = ottla_sync::time::timeout(soon, &mut waits).await;
        assert!(waiting.is_err(), "it still does");
        drop(within);
        let _within = waits.await;
        assert_eq!(memory.available_bytes(), 6 * 1024);
        assert!(!memory.is_scarce());
    }

    #[tokio::test]
    async fn a_reservation_of_most_of_the_budget_does_not_hold_up_others() {
        let memory = RequestMemory::new(10 * 1024);
        // Until the large reservation after the next one has ended.
        let _within = memory.take(1024).await;
        let beyond = memory.take_or_exceed(100 * 1024).await;
        let large = memory.take_or_exceed(100 * 1024);
        tokio::pin!(large);
        let soon = Duration::from_millis(20);
        let waiting = ottla_sync::time::timeout(soon, &mut large).await;
        assert!(waiting.is_err(), "another one exceeds the budget");
        assert!(memory.is_scarce());
        // The one that exceeds the budget ends after this one.
        let limit = Duration::from_secs(10);
        let small = ottla_sync::time::timeout(limit, memory.take(1024)).await;
        let _small = small.expect("9 KiB are free");
        drop(beyond);
        let _large = large.await;
        assert_eq!(memory.available_bytes(), 8 * 1024);
        assert!(!memory.is_scarce());
    }

    #[tokio::test]
    async fn memory_that_others_wait_for_is_not_taken_at_once() {
        let memory = RequestMemory::new(10 * 1024);
        let mut taken = memory.try_take(8 * 1024).expect("all is free");
        assert!(memory.try_take(4 * 1024).is_none(), "2 KiB are free");
        let waits = memory.take(4 * 1024);
        tokio::pin!(waits);
        let soon = Duration::from_millis(20);
        let waiting = ottla_sync::time::timeout(soon, &mut waits).await;
        assert!(waiting.is_err(), "2 KiB are free");
        assert!(memory.try_take(1024).is_none(), "another one waits");
        RequestMemory::keep(&mut taken, 4 * 1024);
        let _waited = waits.await;
        let rest = memory.try_take(2 * 1024);
        assert!(rest.is_some(), "nobody waits");
    }

    #[tokio::test]
    async fn surplus_memory_is_given_back() {
        let memory = RequestMemory::new(10 * 1024);
        let mut taken = memory.take(100 * 1024).await;
        assert_eq!(memory.available_bytes(), 0);
        RequestMemory::keep(&mut taken, 3_000);
        assert_eq!(memory.available_bytes(), 7 * 1024);
        RequestMemory::keep(&mut taken, 100_000);
        assert_eq!(memory.available_bytes(), 7 * 1024);
        drop(taken);
        assert_eq!(memory.available_bytes(), 10 * 1024);
    }

    #[tokio::test]
    async fn a_request_larger_than_the_budget_takes_all_of_it() {
        let memory = RequestMemory::new(10 * 1024);
        let mut covered = Covered::default();
        assert!(memory.try_cover(&mut covered, 1024 * 1024));
        assert_eq!(memory.available_bytes(), 0);
    }
}
