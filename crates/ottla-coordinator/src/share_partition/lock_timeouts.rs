//! Locks that run out: their records are for anybody again, at once, whether that can be persisted or not.
//!
//! Kafka has a timer for each lock. Here the locks that are due are looked for when the earliest that was ever set
//! is due, and again when the earliest of those that were found then is.
//! Source: `SharePartition.releaseAcquisitionLockOnTimeout`, `AcquisitionLockTimerTask`.

use super::in_flight::RecordState;
use super::partition::SharePartition;
use super::transitions::{Changes, StateWrite};

impl SharePartition {
    /// When [`SharePartition::on_lock_timeouts`] is to be called; it does nothing where that is too early.
    pub fn next_lock_deadline_ms(&self) -> Option<u64> {
        self.next_deadline_ms
    }

    /// Frees what is locked no longer. Where a write comes back, fetches may find something at once.
    pub fn on_lock_timeouts(&mut self, now_ms: u64) -> Option<StateWrite> {
        if self
            .next_deadline_ms
            .is_none_or(|deadline| deadline > now_ms)
        {
            return None;
        }
        let mut changes = Changes::default();
        let limit = self.settings.delivery_count_limit;
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
                // What is before the start offset is archived, however often it was delivered.
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
                    changes.record(first, last, state, start_offset);
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

    /// When a lock that begins now runs out.
    pub(super) fn lock_deadline_ms(&mut self, now_ms: u64) -> u64 {
        let deadline = now_ms.saturating_add(self.settings.record_lock_duration_ms);
        let next = self.next_deadline_ms;
        self.next_deadline_ms = Some(next.map_or(deadline, |next| next.min(deadline)));
        deadline
    }
}
