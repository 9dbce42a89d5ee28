//! One share partition: its offsets, its records in flight, and the next offset to fetch.
//!
//! Offsets are plain integers in the private parts of this module, because it does arithmetic on
//! them throughout. Invariants: batches do not overlap; `start_offset` never decreases; nothing
//! after a record that may still be delivered is forgotten; `delivery_complete_count` is the number
//! of terminal records in flight at and after `start_offset`. Source: `SharePartition`.

use std::collections::BTreeMap;

use ottla_types::{LeaderEpoch, Offset};
use thiserror::Error;

use super::dead_letters::{DeadLetterCause, DeadLetters};
use super::in_flight::{InFlightBatch, InFlightState, RecordState, StateWriteId};
use super::settings::SharePartitionSettings;
use crate::planted::{self, Bug};

/// The maximum number of records in a batch that is not settled, each of which may get a state. A
/// broker accepts no batch with more records, so larger persisted batches are invalid.
const MAX_OPEN_BATCH_RECORDS: i64 = 1 << 22;

#[derive(Debug)]
pub struct SharePartition {
    pub(super) settings: SharePartitionSettings,
    pub(super) leader_epoch: LeaderEpoch,
    /// Raised when an administrator sets the group's offset. Part of every write.
    pub(super) state_epoch: i32,
    /// The first offset that may still be delivered.
    pub(super) start_offset: i64,
    /// The last fetched offset. If nothing is in flight, the next offset to fetch.
    pub(super) end_offset: i64,
    /// By first offset.
    pub(super) in_flight: BTreeMap<i64, InFlightBatch>,
    /// Whether there may be available records before `end_offset`.
    pub(super) looks_for_available: bool,
    /// The gaps in the persisted state that have not been fetched yet.
    pub(super) gap: Option<GapWindow>,
    pub(super) delivery_complete_count: i64,
    /// No lock expires before this time. Can be too early, because removed locks are not tracked.
    pub(super) next_deadline_ms: Option<u64>,
    pub(super) next_write: StateWriteId,
    pub(super) pending_writes: BTreeMap<StateWriteId, PendingWrite>,
    /// Records that must be copied to the dead-letter queue, and are not yet being copied.
    pub(super) dead_letters: Vec<DeadLetters>,
}

/// What follows when a write completes.
#[derive(Debug)]
pub(super) struct PendingWrite {
    /// The ranges of records in transition. Empty if the change applied at once, as with expired
    /// locks.
    pub(super) transitions: Vec<(i64, i64)>,
    /// Records that go to the dead-letter queue then.
    pub(super) dead_letters: Vec<DeadLetters>,
}

/// The part of the persisted state that has gaps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct GapWindow {
    /// The start of the next gap.
    pub(super) start_offset: i64,
    /// The end offset as it was loaded. When that of the partition exceeds it, all gaps have been
    /// fetched.
    pub(super) end_offset: i64,
}

/// The state of this share partition at the share coordinator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PersistedState {
    pub state_epoch: i32,
    /// If nothing is persisted yet, the caller sets the offset of `share.auto.offset.reset`.
    pub start_offset: Offset,
    pub batches: Vec<PersistedBatch>,
}

/// A range of records with one state, in requests to the share coordinator and in its responses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PersistedBatch {
    pub first_offset: Offset,
    /// Inclusive.
    pub last_offset: Offset,
    pub delivery_state: i8,
    pub delivery_count: i16,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum PersistedStateError {
    #[error("the batch at offset {first} begins before {expected}, where the one before it ends")]
    Order { first: Offset, expected: Offset },
    #[error(
        "the batch at offset {first} ends at {last}, which is before its start or too far from it"
    )]
    Extent { first: Offset, last: Offset },
    #[error("the batch at offset {first} is in state {state}, which is not one that is persisted")]
    State { first: Offset, state: i8 },
}

impl SharePartition {
    /// Restores the share partition from the persisted state.
    pub fn restore(
        settings: SharePartitionSettings,
        leader_epoch: LeaderEpoch,
        persisted: &PersistedState,
    ) -> Result<Self, PersistedStateError> {
        let start_offset = persisted.start_offset.0;
        let mut partition = SharePartition {
            settings,
            leader_epoch,
            state_epoch: persisted.state_epoch,
            start_offset,
            end_offset: start_offset,
            in_flight: BTreeMap::new(),
            looks_for_available: false,
            gap: None,
            delivery_complete_count: 0,
            next_deadline_ms: None,
            next_write: StateWriteId(1),
            pending_writes: BTreeMap::new(),
            dead_letters: Vec::new(),
        };
        let mut expected = start_offset;
        let mut first_gap = None;
        for persisted in &persisted.batches {
            let batch = restored_batch(persisted, expected)?;
            if persisted.delivery_state == RecordState::Archiving.id() {
                partition.dead_letters.push(unfinished(persisted, settings));
            }
            if first_gap.is_none() && batch.first_offset > expected {
                first_gap = Some(expected);
            }
            expected = batch.last_offset + 1;
            partition.in_flight.insert(batch.first_offset, batch);
        }
        partition.delivery_complete_count = partition.count_terminal();
        if !partition.in_flight.is_empty() {
            partition.looks_for_available = true;
            partition.end_offset = expected - 1;
            let first_gap = first_gap.filter(|_| !planted::has(Bug::ForgetGaps));
            partition.gap = first_gap.map(|start_offset| GapWindow {
                start_offset,
                end_offset: partition.end_offset,
            });
            partition.advance_start_offset();
        }
        Ok(partition)
    }

    /// The group's configuration has changed. Existing locks keep their duration.
    pub fn configure(&mut self, settings: SharePartitionSettings) {
        self.settings = settings;
    }

    pub fn start_offset(&self) -> Offset {
        Offset(self.start_offset)
    }

    pub fn end_offset(&self) -> Offset {
        Offset(self.end_offset)
    }

    pub fn leader_epoch(&self) -> LeaderEpoch {
        self.leader_epoch
    }

    pub fn state_epoch(&self) -> i32 {
        self.state_epoch
    }

    /// The number of records between the first unsettled one and the last fetched one.
    pub fn in_flight_records(&self) -> i64 {
        if self.in_flight.is_empty() {
            0
        } else {
            self.end_offset - self.start_offset + 1
        }
    }

    /// The number of terminal records in flight (KIP-1226).
    pub fn delivery_complete_count(&self) -> i64 {
        self.delivery_complete_count
    }

    /// The next offset to read from the log: the first available record, otherwise the offset after
    /// the last fetched one.
    pub fn next_fetch_offset(&mut self) -> Offset {
        let Some(last) = self.last_in_flight_offset() else {
            self.looks_for_available = false;
            return Offset(self.end_offset);
        };
        if self.start_offset > last {
            self.looks_for_available = false;
            return Offset(self.end_offset);
        }
        if self.looks_for_available {
            match self.first_available_offset() {
                Some(offset) => return Offset(offset),
                None => self.looks_for_available = false,
            }
        }
        Offset(self.end_offset + 1)
    }

    /// Whether there are records to deliver again, or space for more.
    pub fn can_acquire_records(&mut self) -> bool {
        // If nothing is in flight, the end offset can be anything that an administrator has set.
        self.next_fetch_offset().0 != self.end_offset.saturating_add(1)
            || self.in_flight_records() < i64::from(self.settings.partition_max_record_locks)
    }

    fn first_available_offset(&self) -> Option<i64> {
        let mut gap = self.active_gap().map(|gap| gap.start_offset);
        for batch in self.in_flight.values() {
            if let Some(gap_start) = &mut gap {
                if batch.first_offset > *gap_start {
                    return Some(*gap_start);
                }
                // Offsets without records in the log are not gaps: the fetch beyond them has closed
                // them.
                *gap_start = (batch.last_offset + 1).max(*gap_start);
            }
            let mut runs = batch.runs();
            if let Some((offset, ..)) = runs.find(|(_, _, state)| state.is_acquirable()) {
                return Some(offset);
            }
        }
        None
    }

    pub(super) fn active_gap(&self) -> Option<GapWindow> {
        let gap = self.gap.filter(|gap| gap.end_offset == self.end_offset)?;
        Some(GapWindow {
            // Offsets before the start offset are settled, even if there was a gap.
            start_offset: gap.start_offset.max(self.start_offset),
            ..gap
        })
    }

    /// Everything before `offset` has been fetched once.
    pub(super) fn close_gap_before(&mut self, offset: i64) {
        if let Some(gap) = &mut self.gap {
            if gap.end_offset == self.end_offset && offset <= gap.end_offset {
                gap.start_offset = gap.start_offset.max(offset);
            } else {
                self.gap = None;
            }
        }
    }

    // Looking things up

    pub(super) fn last_in_flight_offset(&self) -> Option<i64> {
        let (_, last) = self.in_flight.last_key_value()?;
        Some(last.last_offset)
    }

    /// The batch that starts at or before `offset`.
    pub(super) fn floor(&self, offset: i64) -> Option<&InFlightBatch> {
        let (_, batch) = self.in_flight.range(..=offset).next_back()?;
        Some(batch)
    }

    /// The keys of the batches that start in this range, both ends inclusive.
    pub(super) fn keys(&self, first: i64, last: i64) -> Vec<i64> {
        if first > last {
            return Vec::new();
        }
        self.in_flight
            .range(first..=last)
            .map(|(key, _)| *key)
            .collect()
    }

    pub(super) fn batch_mut(&mut self, key: i64) -> &mut InFlightBatch {
        self.in_flight.get_mut(&key).expect(
            "the key was found in the map, and nothing is removed while keys are gone through",
        )
    }

    /// Whether the start offset is in this batch, after its first record.
    pub(super) fn start_offset_cuts(&self, batch: &InFlightBatch) -> bool {
        batch.first_offset < self.start_offset && batch.last_offset >= self.start_offset
    }

    /// How many of these records are at or after the start offset.
    pub(super) fn records_in_flight(&self, first_offset: i64, last_offset: i64) -> i64 {
        (last_offset - first_offset.max(self.start_offset) + 1).max(0)
    }

    /// The correct value of `delivery_complete_count`.
    pub(super) fn count_terminal(&self) -> i64 {
        let runs = self.in_flight.values().flat_map(InFlightBatch::runs);
        let terminal = runs.filter(|(_, _, state)| state.state().is_terminal());
        terminal
            .map(|(first, last, _)| self.records_in_flight(first, last))
            .sum()
    }

    // The start offset

    /// Moves the start offset over all settled records, and drops batches that are settled
    /// completely. Returns whether it has moved.
    pub(super) fn advance_start_offset(&mut self) -> bool {
        let Some(settled) = self.settled_prefix() else {
            return false;
        };
        self.delivery_complete_count -= settled.records;
        while let Some(first) = self.in_flight.first_entry() {
            if first.get().last_offset > settled.last_offset {
                break;
            }
            first.remove();
        }
        // Never backwards: the log may have been truncated after all records in flight.
        let Some((next, _)) = self.in_flight.first_key_value() else {
            self.start_offset = self.start_offset.max(settled.last_offset + 1);
            self.end_offset = self.start_offset;
            return true;
        };
        let mut start_offset = (*next).max(settled.last_offset + 1);
        if let Some(gap) = self.active_gap() {
            // Gaps in the persisted state come first.
            start_offset = start_offset.min(gap.start_offset.max(settled.last_offset + 1));
        }
        self.start_offset = self.start_offset.max(start_offset);
        true
    }

    /// The contiguous settled records from the beginning. Offsets before the first batch have been
    /// read and are not in the log, unless they are part of the gap.
    fn settled_prefix(&self) -> Option<SettledPrefix> {
        let mut settled: Option<SettledPrefix> = None;
        let mut gap = self.active_gap().map(|gap| gap.start_offset);
        for batch in self.in_flight.values() {
            if let Some(gap_start) = &mut gap {
                if batch.first_offset > *gap_start {
                    break;
                }
                *gap_start = (batch.last_offset + 1).max(*gap_start);
            }
            for (first_offset, last_offset, state) in batch.runs() {
                if !state.is_settled() {
                    return settled;
                }
                let before = settled.map_or(0, |settled| settled.records);
                settled = Some(SettledPrefix {
                    last_offset,
                    records: before + self.records_in_flight(first_offset, last_offset),
                });
            }
        }
        settled
    }
}

#[derive(Clone, Copy)]
struct SettledPrefix {
    last_offset: i64,
    /// Without records before the start offset.
    records: i64,
}

/// Records that the previous leader may not have copied. Why they go to the dead-letter queue is
/// not persisted; the delivery count shows it.
fn unfinished(persisted: &PersistedBatch, settings: SharePartitionSettings) -> DeadLetters {
    let is_over_limit = i32::from(persisted.delivery_count) >= settings.delivery_count_limit;
    DeadLetters {
        first_offset: persisted.first_offset,
        last_offset: persisted.last_offset,
        delivery_count: persisted.delivery_count,
        cause: if is_over_limit {
            DeadLetterCause::DeliveryCountExceeded
        } else {
            DeadLetterCause::Rejected
        },
    }
}

fn restored_batch(
    persisted: &PersistedBatch,
    expected: i64,
) -> Result<InFlightBatch, PersistedStateError> {
    let (first, last) = (persisted.first_offset, persisted.last_offset);
    if first.0 < expected {
        let expected = Offset(expected);
        return Err(PersistedStateError::Order { first, expected });
    }
    let delivery_state = persisted.delivery_state;
    let state = match RecordState::from_id(delivery_state) {
        Some(RecordState::Acquired) | None => {
            let state = delivery_state;
            return Err(PersistedStateError::State { first, state });
        }
        Some(state) => state,
    };
    let is_too_long = !state.is_terminal() && last.0 - first.0 >= MAX_OPEN_BATCH_RECORDS;
    if last < first || last.0 == i64::MAX || is_too_long {
        return Err(PersistedStateError::Extent { first, last });
    }
    let state = InFlightState::persisted(state, i32::from(persisted.delivery_count));
    Ok(InFlightBatch::new(first.0, last.0, state))
}
