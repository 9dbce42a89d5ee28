//! Expiry of acquisition locks: the records become available at once, whether or not that can be
//! persisted.
//!
//! Kafka has a timer per lock. Here there is one deadline, the earliest of all locks that were set.
//! When it has passed, all locks are checked, and the earliest remaining deadline is next. Source:
//! `SharePartition.releaseAcquisitionLockOnTimeout`, `AcquisitionLockTimerTask`.

use super::dead_letters::DeadLetterCause;
use super::in_flight::RecordState;
use super::partition::SharePartition;
use super::transitions::{Changes, StateWrite};

impl SharePartition {
    /// When [`SharePartition::on_lock_timeouts`] must be called. An earlier call does nothing.
    pub fn next_lock_deadline_ms(&self) -> Option<u64> {
        self.next_deadline_ms
    }

    /// Releases records with expired locks. If a write is returned, waiting fetches may find
    /// records at once.
    pub fn on_lock_timeouts(&mut self, now_ms: u64) -> Option<StateWrite> {
        if self
            .next_deadline_ms
            .is_none_or(|deadline| deadline > now_ms)
        {
            return None;
        }
        let mut changes = Changes::default();
        let limit = self.settings.delivery_limit();
        let start_offset = self.start_offset;
        let mut next_deadline_ms: Option<u64> = None;
        for batch in self.in_flight.values_mut() {
            let is_cut = batch.first_offset < start_offset && batch.last_offset >= start_offset;
            let is_due = batch.whole().is_some_and(|state| {
                !state.is_in_transition()
                    && state
                        .lock_deadline_ms()
                        .is_some_and(|deadline| deadline <= now_ms)
            });
            if is_cut && is_due {
                // Records before the start offset are archived, whatever their delivery count.
                batch.split();
            }
            for (first, last, state) in batch.runs_mut() {
                let to = if last < start_offset {
                    RecordState::Archived
                } else {
                    RecordState::Available
                };
                if let Some(state_now) = state.expire_lock(now_ms, to, limit) {
                    self.looks_for_available |= state_now == RecordState::Available;
                    let cause = DeadLetterCause::DeliveryCountExceeded;
                    changes.record(first, last, state, start_offset, cause);
                }
                if let Some(deadline) = state.lock_deadline_ms() {
                    next_deadline_ms =
                        Some(next_deadline_ms.map_or(deadline, |next| next.min(deadline)));
                }
            }
        }
        self.next_deadline_ms = next_deadline_ms;
        self.write_settled(changes)
    }

    /// The deadline of a lock that starts now.
    pub(super) fn lock_deadline_ms(&mut self, now_ms: u64) -> u64 {
        let deadline = now_ms.saturating_add(self.settings.record_lock_duration_ms);
        let next = self.next_deadline_ms;
        self.next_deadline_ms = Some(next.map_or(deadline, |next| next.min(deadline)));
        deadline
    }
}
