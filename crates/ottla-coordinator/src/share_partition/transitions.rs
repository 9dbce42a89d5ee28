//! Changes that the share coordinator must persist before they apply.
//!
//! A write contains the partition's offsets at the time of the decision. Several can be in
//! progress; each completes once. Source: `SharePartition.rollbackOrProcessStateUpdates`,
//! `SharePartition.writeShareGroupState`.

use ottla_types::{LeaderEpoch, Offset};

use super::dead_letters::{DeadLetterCause, DeadLetters};
use super::in_flight::{InFlightState, RecordState, StateWriteId};
use super::partition::{PendingWrite, PersistedBatch, SharePartition};

/// A write for the share coordinator. Its result goes to [`SharePartition::on_state_written`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StateWrite {
    pub id: StateWriteId,
    pub state_epoch: i32,
    pub leader_epoch: LeaderEpoch,
    pub start_offset: Offset,
    pub delivery_complete_count: i32,
    pub batches: Vec<PersistedBatch>,
}

/// The effect of a completed write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WriteResult {
    /// Whether waiting fetches of this partition may find records now.
    pub may_fetch: bool,
}

/// The changes of one event that will be written.
#[derive(Debug, Default)]
pub(super) struct Changes {
    batches: Vec<PersistedBatch>,
    /// The records that go to the dead-letter queue when the write completes.
    dead_letters: Vec<DeadLetters>,
    /// The number of records that have become terminal.
    completed_records: i64,
}

impl Changes {
    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// `cause` applies to records that go to the dead-letter queue.
    pub(super) fn record(
        &mut self,
        first_offset: i64,
        last_offset: i64,
        state: &InFlightState,
        start_offset: i64,
        cause: DeadLetterCause,
    ) {
        if state.state().is_terminal() {
            self.completed_records += (last_offset - first_offset.max(start_offset) + 1).max(0);
        }
        let delivery_count = i16::try_from(state.delivery_count()).unwrap_or(i16::MAX);
        let delivery_state = state.state().id();
        if state.state() == RecordState::Archiving {
            let letters = DeadLetters {
                first_offset: Offset(first_offset),
                last_offset: Offset(last_offset),
                delivery_count,
                cause,
            };
            letters.add_to(&mut self.dead_letters);
        }
        let previous = self.batches.last_mut().filter(|previous| {
            previous.last_offset.0 + 1 == first_offset
                && previous.delivery_state == delivery_state
                && previous.delivery_count == delivery_count
        });
        match previous {
            // The share coordinator would merge the two.
            Some(previous) => previous.last_offset = Offset(last_offset),
            None => self.batches.push(PersistedBatch {
                first_offset: Offset(first_offset),
                last_offset: Offset(last_offset),
                delivery_state,
                delivery_count,
            }),
        }
    }
}

impl SharePartition {
    /// The write with this id was persisted, or failed.
    pub fn on_state_written(&mut self, id: StateWriteId, is_persisted: bool) -> WriteResult {
        let Some(pending) = self.pending_writes.remove(&id) else {
            return WriteResult::default();
        };
        let held_at_once = pending.transitions.is_empty();
        let mut is_any_available = false;
        for (first_offset, last_offset) in &pending.transitions {
            is_any_available |=
                self.complete_transitions(*first_offset, *last_offset, id, is_persisted);
        }
        self.looks_for_available |= is_any_available;
        let is_in_force = is_persisted || held_at_once;
        if is_in_force {
            self.dead_letters.extend(pending.dead_letters);
        }
        let has_moved = is_in_force && self.advance_start_offset();
        WriteResult {
            may_fetch: has_moved || is_any_available,
        }
    }

    /// Rolls back the changes of an event that was refused halfway.
    pub(super) fn roll_back(&mut self, changes: Changes) {
        let id = self.next_write;
        self.delivery_complete_count += changes.completed_records;
        for batch in &changes.batches {
            let (first_offset, last_offset) = (batch.first_offset.0, batch.last_offset.0);
            let is_any_available = self.complete_transitions(first_offset, last_offset, id, false);
            self.looks_for_available |= is_any_available;
        }
    }

    /// Writes records in transition, which complete when the write does.
    pub(super) fn write_transitions(&mut self, changes: Changes) -> Option<StateWrite> {
        let ranges = changes.batches.iter();
        let transitions = ranges
            .map(|batch| (batch.first_offset.0, batch.last_offset.0))
            .collect();
        self.write(changes, transitions)
    }

    /// Writes changes that apply regardless of the result.
    pub(super) fn write_settled(&mut self, changes: Changes) -> Option<StateWrite> {
        self.write(changes, Vec::new())
    }

    fn write(&mut self, changes: Changes, transitions: Vec<(i64, i64)>) -> Option<StateWrite> {
        if changes.is_empty() {
            return None;
        }
        self.delivery_complete_count += changes.completed_records;
        let id = self.next_write;
        self.next_write = StateWriteId(id.0 + 1);
        let pending = PendingWrite {
            transitions,
            dead_letters: changes.dead_letters,
        };
        self.pending_writes.insert(id, pending);
        Some(StateWrite {
            id,
            state_epoch: self.state_epoch,
            leader_epoch: self.leader_epoch,
            start_offset: Offset(self.start_offset),
            delivery_complete_count: i32::try_from(self.delivery_complete_count)
                .unwrap_or(i32::MAX),
            batches: changes.batches,
        })
    }

    /// Returns whether any of the records has become available.
    fn complete_transitions(
        &mut self,
        first_offset: i64,
        last_offset: i64,
        id: StateWriteId,
        is_persisted: bool,
    ) -> bool {
        let mut is_any_available = false;
        let mut completed_records = 0;
        let start_offset = self.start_offset;
        let from = self
            .floor(first_offset)
            .map_or(first_offset, |batch| batch.first_offset);
        for (_, batch) in self.in_flight.range_mut(from..=last_offset) {
            for (first, last, state) in batch.runs_mut() {
                let was_terminal = state.state().is_terminal();
                let is_meant = last >= first_offset && first <= last_offset;
                if !is_meant || !state.complete_transition(id, is_persisted) {
                    continue;
                }
                if !is_persisted && state.state() == RecordState::Archiving {
                    // As when a lock expires: that need not be persisted.
                    undeliverable(first, last, state, start_offset, &mut self.dead_letters);
                }
                is_any_available |= state.state() == RecordState::Available;
                let records = (last - first.max(start_offset) + 1).max(0);
                match (was_terminal, state.state().is_terminal()) {
                    (true, false) => completed_records -= records,
                    (false, true) => completed_records += records,
                    (false, false) | (true, true) => {}
                }
            }
        }
        self.delivery_complete_count += completed_records;
        if is_any_available && first_offset < start_offset {
            // The log was truncated during the write: available records before its start are no
            // longer in the log.
            self.archive(
                first_offset,
                last_offset.min(start_offset - 1),
                RecordState::Available,
            );
        }
        is_any_available
    }
}

/// The last lock has expired during a write that failed. Records before the start offset are not in
/// the log any more, and are archived at once.
fn undeliverable(
    first_offset: i64,
    last_offset: i64,
    state: &mut InFlightState,
    start_offset: i64,
    dead_letters: &mut Vec<DeadLetters>,
) {
    if last_offset < start_offset {
        state.archive();
        return;
    }
    let letters = DeadLetters {
        first_offset: Offset(first_offset),
        last_offset: Offset(last_offset),
        delivery_count: i16::try_from(state.delivery_count()).unwrap_or(i16::MAX),
        cause: DeadLetterCause::DeliveryCountExceeded,
    };
    letters.add_to(dead_letters);
}
