//! The segments of one leader epoch.
//!
//! Kafka: `RemoteLogLeaderEpochState`. It replaces a segment by any later one with the same start,
//! also by a shorter one: when the last record of a former leader arrives late, offsets become
//! unreadable that followers no longer keep, and the longer segment never expires.

use std::collections::{BTreeSet, VecDeque, vec_deque};
use std::iter::Peekable;
use std::vec;

use ottla_types::{LeaderEpoch, Offset};

use super::segment_table::{SegmentTable, Slot};

pub(super) struct EpochSegments {
    /// Finished segments by the first offset of the epoch in each. Their last offsets never decrease:
    /// a segment is not among them if another one starts no later and ends later. If any of them
    /// has an offset, the last one that starts at or before it has it.
    by_offset: VecDeque<Slot>,
    /// The size of those that have only this epoch.
    only_bytes: u64,
    /// Segments that are being copied or deleted, or were replaced by one that covers them.
    unreferenced: BTreeSet<Slot>,
    /// The highest offset of the epoch that was ever copied, or `NOTHING`. Deletions do not lower it.
    highest_offset: Offset,
}

/// The offsets at which the readable segments of an epoch leave a gap between two of them.
pub(super) type Gaps = BTreeSet<(LeaderEpoch, Offset)>;

/// The next offset. Those in records may be any.
pub(super) fn next_of(offset: Offset) -> Offset {
    Offset(offset.0.saturating_add(1))
}

/// Lower than any offset of a record.
const NOTHING: Offset = Offset(i64::MIN);

impl Default for EpochSegments {
    fn default() -> EpochSegments {
        EpochSegments {
            by_offset: VecDeque::new(),
            only_bytes: 0,
            unreferenced: BTreeSet::new(),
            highest_offset: NOTHING,
        }
    }
}

impl EpochSegments {
    /// The first readable segment.
    pub(super) fn first(&self) -> Option<Slot> {
        self.by_offset.front().copied()
    }

    /// The readable segment with the highest offset.
    pub(super) fn last(&self) -> Option<Slot> {
        self.by_offset.back().copied()
    }

    pub(super) fn highest_offset(&self) -> Option<Offset> {
        (self.highest_offset != NOTHING).then_some(self.highest_offset)
    }

    /// Whether no segment has the epoch any more.
    pub(super) fn is_empty(&self) -> bool {
        self.by_offset.is_empty() && self.unreferenced.is_empty()
    }

    /// Those that are not readable, or that others cover.
    pub(super) fn unreferenced(&self) -> impl Iterator<Item = Slot> {
        self.unreferenced.iter().copied()
    }

    /// All segments of the epoch by start offset; finished ones first among equals.
    pub(super) fn list(&self, table: &SegmentTable) -> Vec<Slot> {
        let referenced = self.by_offset.iter();
        let mut slots: Vec<Slot> = referenced.chain(&self.unreferenced).copied().collect();
        slots.sort_by_key(|slot| table.start_offset(*slot));
        slots
    }

    /// The readable segments from the first one on that has `from` or a later offset, and that starts at
    /// `start` or later, and all others.
    pub(super) fn walk<'a>(
        &'a self,
        table: &'a SegmentTable,
        epoch: LeaderEpoch,
        start: Offset,
        from: Offset,
    ) -> Walk<'a> {
        let before = self
            .by_offset
            .partition_point(|slot| table.end_offset_of(*slot, epoch) < from);
        let before = before.max(
            self.by_offset
                .partition_point(|slot| table.start_offset_of(*slot, epoch) < start),
        );
        let mut others: Vec<Slot> = self.unreferenced().collect();
        others.sort_by_key(|slot| table.start_offset(*slot));
        Walk {
            table,
            readable: self.by_offset.range(before..).peekable(),
            others: others.into_iter().peekable(),
        }
    }

    /// The size of the readable segments that have only this epoch, and no offset before `start` and none
    /// from `end` on.
    pub(super) fn bytes_within(
        &self,
        table: &SegmentTable,
        epoch: LeaderEpoch,
        start: Offset,
        end: Offset,
    ) -> u64 {
        let before = self
            .by_offset
            .partition_point(|slot| table.start_offset_of(*slot, epoch) < start);
        let after = self
            .by_offset
            .partition_point(|slot| table.end_offset_of(*slot, epoch) < end);
        let outside = self.by_offset.range(..before);
        let outside = outside.chain(self.by_offset.range(before.max(after)..));
        let outside = outside.filter_map(|slot| table.size_of_only_epoch(*slot));
        self.only_bytes - outside.sum::<u64>()
    }

    /// The finished segment with the greatest offset of the epoch up to `offset`.
    pub(super) fn floor(
        &self,
        table: &SegmentTable,
        epoch: LeaderEpoch,
        offset: Offset,
    ) -> Option<Slot> {
        let after = self
            .by_offset
            .partition_point(|slot| table.start_offset_of(*slot, epoch) <= offset);
        Some(self.by_offset[after.checked_sub(1)?])
    }

    pub(super) fn on_copy_started(&mut self, slot: Slot) {
        self.unreferenced.insert(slot);
    }

    /// The segment has the offsets of the epoch from `start_offset` to `end_offset` (inclusive).
    /// Segments that it covers become unreferenced, or it does if another one covers more: another
    /// leader uploaded the same records.
    pub(super) fn on_copy_finished(
        &mut self,
        table: &SegmentTable,
        epoch: LeaderEpoch,
        gaps: &mut Gaps,
        slot: Slot,
        start_offset: Offset,
        end_offset: Offset,
    ) {
        self.highest_offset = self.highest_offset.max(end_offset);
        let start_of = |slot: Slot| table.start_offset_of(slot, epoch);
        let end_of = |slot: Slot| table.end_offset_of(slot, epoch);
        let after = self
            .by_offset
            .partition_point(|slot| start_of(*slot) <= start_offset);
        if let Some(before) = after.checked_sub(1).map(|index| self.by_offset[index])
            && end_of(before) > end_offset
        {
            self.unreferenced.insert(slot);
            return;
        }
        let first = self
            .by_offset
            .partition_point(|slot| start_of(*slot) < start_offset);
        let later = self.by_offset.range(first..);
        let covered = later
            .take_while(|slot| end_of(**slot) <= end_offset)
            .count();
        for covered in self.by_offset.drain(first..first + covered) {
            self.only_bytes -= table.size_of_only_epoch(covered).unwrap_or(0);
            self.unreferenced.insert(covered);
            gaps.remove(&(epoch, next_of(end_of(covered))));
        }
        self.by_offset.insert(first, slot);
        self.note_gap_before(first, table, epoch, gaps);
        self.note_gap_before(first + 1, table, epoch, gaps);
        self.only_bytes += table.size_of_only_epoch(slot).unwrap_or(0);
        self.unreferenced.remove(&slot);
    }

    pub(super) fn on_delete_started(
        &mut self,
        table: &SegmentTable,
        epoch: LeaderEpoch,
        gaps: &mut Gaps,
        slot: Slot,
        start_offset: Offset,
    ) {
        let at = self
            .by_offset
            .partition_point(|slot| table.start_offset_of(*slot, epoch) < start_offset);
        if self.by_offset.get(at) == Some(&slot) {
            self.by_offset.remove(at);
            let end = table.end_offset_of(slot, epoch);
            gaps.remove(&(epoch, next_of(end)));
            self.note_gap_before(at, table, epoch, gaps);
            // Later ones may have the same end, and then the gap after it remains.
            let after = self
                .by_offset
                .partition_point(|slot| table.end_offset_of(*slot, epoch) <= end);
            self.note_gap_before(after, table, epoch, gaps);
            self.only_bytes -= table.size_of_only_epoch(slot).unwrap_or(0);
        }
        self.unreferenced.insert(slot);
    }

    /// Corrects whether there is a gap between the readable segment at this position and the one before.
    /// Of several with the same end, the last one tells whether there is a gap after them.
    fn note_gap_before(
        &self,
        at: usize,
        table: &SegmentTable,
        epoch: LeaderEpoch,
        gaps: &mut Gaps,
    ) {
        let before = at.checked_sub(1).and_then(|at| self.by_offset.get(at));
        let Some(before) = before else {
            return;
        };
        let end = next_of(table.end_offset_of(*before, epoch));
        let next = self.by_offset.get(at);
        if next.is_some_and(|next| next_of(table.end_offset_of(*next, epoch)) == end) {
            return;
        }
        if next.is_some_and(|next| table.start_offset_of(*next, epoch) > end) {
            gaps.insert((epoch, end));
        } else {
            gaps.remove(&(epoch, end));
        }
    }

    pub(super) fn on_delete_finished(&mut self, slot: Slot) {
        self.unreferenced.remove(&slot);
    }
}

/// Segments of an epoch by start offset, one after the other, so that a caller may stop early.
pub(super) struct Walk<'a> {
    table: &'a SegmentTable,
    readable: Peekable<vec_deque::Iter<'a, Slot>>,
    others: Peekable<vec::IntoIter<Slot>>,
}

/// A step of a [`Walk`].
#[derive(Clone, Copy)]
pub(super) enum Stop {
    Readable(Slot),
    Other(Slot),
}

impl Walk<'_> {
    /// The next segment; readable ones first among equals.
    pub(super) fn next_stop(&mut self) -> Option<Stop> {
        let Some(readable) = self.readable.peek().map(|slot| **slot) else {
            return self.next_other();
        };
        let start_of = |slot: Slot| self.table.start_offset(slot);
        if let Some(other) = self.others.peek()
            && start_of(*other) < start_of(readable)
        {
            return self.next_other();
        }
        self.readable.next();
        Some(Stop::Readable(readable))
    }

    /// The next one that is not readable, or that others cover.
    pub(super) fn next_other(&mut self) -> Option<Stop> {
        self.others.next().map(Stop::Other)
    }
}
