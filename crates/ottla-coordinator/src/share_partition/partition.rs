//! One share partition: where it stands, what is in flight, and where to fetch next.
//!
//! Offsets are plain integers in the private parts of this module, which is arithmetic on them throughout.
//! Invariants: batches do not overlap; `start_offset` never goes back; nothing behind a record that may still be
//! delivered is forgotten; `delivery_complete_count` counts the terminal records at and behind `start_offset`
//! that are in flight.
//! Source: `SharePartition`.

use std::collections::BTreeMap;

use ottla_types::{LeaderEpoch, Offset};
use thiserror::Error;

use super::in_flight::{InFlightBatch, InFlightState, RecordState, StateWriteId};
use super::settings::SharePartitionSettings;
use crate::planted::{self, Bug};

/// A batch that is not settled gets a state for each of its records. More records than this are in no batch that
/// a broker takes, so what claims to have them did not come from one.
const MAX_OPEN_BATCH_RECORDS: i64 = 1 << 22;

#[derive(Debug)]
pub struct SharePartition {
    pub(super) settings: SharePartitionSettings,
    pub(super) leader_epoch: LeaderEpoch,
    /// Raised whenever the group's offset is set by an administrator; carried by every write.
    pub(super) state_epoch: i32,
    /// The first offset that may still be delivered.
    pub(super) start_offset: i64,
    /// The last offset that was fetched. With nothing in flight, the offset to fetch next.
    pub(super) end_offset: i64,
    /// By first offset.
    pub(super) in_flight: BTreeMap<i64, InFlightBatch>,
    /// Something before `end_offset` may be there to be acquired.
    pub(super) looks_for_available: bool,
    /// What the persisted state said nothing about, as long as it has not been fetched.
    pub(super) gap: Option<GapWindow>,
    pub(super) delivery_complete_count: i64,
    /// No lock runs out before this. May be too early, since locks that are gone are not taken out.
    pub(super) next_deadline_ms: Option<u64>,
    pub(super) next_write: StateWriteId,
    pub(super) pending_writes: BTreeMap<StateWriteId, PendingWrite>,
}

/// What is to be done when a write is answered.
#[derive(Debug)]
pub(super) struct PendingWrite {
    /// Ranges of records that are in transition. None where the change held at once, as when locks run out.
    pub(super) transitions: Vec<(i64, i64)>,
}

/// The part of the persisted state in which there are gaps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct GapWindow {
    /// Where the next gap begins.
    pub(super) start_offset: i64,
    /// The end offset as it was loaded; once the partition's goes beyond, all gaps have been fetched.
    pub(super) end_offset: i64,
}

/// What the share coordinator has of this share partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PersistedState {
    pub state_epoch: i32,
    /// Where nothing is persisted yet, whoever loads puts in what `share.auto.offset.reset` says.
    pub start_offset: Offset,
    pub batches: Vec<PersistedBatch>,
}

/// A range of records in one state, as it goes to the share coordinator and comes from it.
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
        "the batch at offset {first} ends at {last}, which is before it begins or out of all measure"
    )]
    Extent { first: Offset, last: Offset },
    #[error("the batch at offset {first} is in state {state}, which is not one that is persisted")]
    State { first: Offset, state: i8 },
}

impl SharePartition {
    /// Goes on where the persisted state ends.
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
        };
        let mut expected = start_offset;
        let mut first_gap = None;
        for persisted in &persisted.batches {
            let batch = restored_batch(persisted, expected)?;
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

    /// The group's configuration has changed. What is locked stays so for as long as it was told.
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

    /// How many records lie between the first that is not settled and the last that was fetched.
    pub fn in_flight_records(&self) -> i64 {
        if self.in_flight.is_empty() {
            0
        } else {
            self.end_offset - self.start_offset + 1
        }
    }

    pub fn in_flight_batches(&self) -> usize {
        self.in_flight.len()
    }

    /// The terminal records among those in flight (KIP-1226).
    pub fn delivery_complete_count(&self) -> i64 {
        self.delivery_complete_count
    }

    /// Where to read the log next: at the first record that can be acquired, or else behind all that was fetched.
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

    /// Either there are records to be delivered again, or there is room for more.
    pub fn can_acquire_records(&mut self) -> bool {
        // Where nothing is in flight, the end offset is any that an administrator has set.
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
                // Offsets that the log has nothing for are no gap: what was fetched past them has closed them.
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
            // What is settled before the start offset is known, even if it was a gap once.
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

    /// The batch that begins at or before `offset`.
    pub(super) fn floor(&self, offset: i64) -> Option<&InFlightBatch> {
        let (_, batch) = self.in_flight.range(..=offset).next_back()?;
        Some(batch)
    }

    /// The keys of the batches that begin in this range, both ends included.
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

    /// The start offset lies in this batch, behind its first record.
    pub(super) fn start_offset_cuts(&self, batch: &InFlightBatch) -> bool {
        batch.first_offset < self.start_offset && batch.last_offset >= self.start_offset
    }

    /// How many of these records are not yet behind the start offset.
    pub(super) fn records_in_flight(&self, first_offset: i64, last_offset: i64) -> i64 {
        (last_offset - first_offset.max(self.start_offset) + 1).max(0)
    }

    /// What `delivery_complete_count` has to be.
    pub(super) fn count_terminal(&self) -> i64 {
        let runs = self.in_flight.values().flat_map(InFlightBatch::runs);
        let terminal = runs.filter(|(_, _, state)| state.state().is_terminal());
        terminal
            .map(|(first, last, _)| self.records_in_flight(first, last))
            .sum()
    }

    // The start offset

    /// Moves the start offset over all that is settled, and forgets batches that are settled as a whole.
    /// Whether it has moved.
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
        // Never back: the log may have been cut behind all that was in flight.
        let Some((next, _)) = self.in_flight.first_key_value() else {
            self.start_offset = self.start_offset.max(settled.last_offset + 1);
            self.end_offset = self.start_offset;
            return true;
        };
        let mut start_offset = (*next).max(settled.last_offset + 1);
        if let Some(gap) = self.active_gap() {
            // What the persisted state does not tell of comes first.
            start_offset = start_offset.min(gap.start_offset.max(settled.last_offset + 1));
        }
        self.start_offset = self.start_offset.max(start_offset);
        true
    }

    /// What in flight is settled without a break from the beginning. Offsets before the first batch have been read
    /// past, and the log has nothing there, unless they are part of the gap.
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
    /// Without those that are behind the start offset already.
    records: i64,
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
