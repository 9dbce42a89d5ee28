//! The segments of one leader epoch.
//!
//! Kafka: `RemoteLogLeaderEpochState`. It replaces a segment by any later one with the same start,
//! also by a shorter one: when the last record of a former leader arrives late, offsets become
//! unreadable that followers no longer keep, and the longer segment never expires.

use std::collections::{BTreeSet, VecDeque};

use ottla_types::{LeaderEpoch, Offset};

use super::segment_table::{SegmentTable, Slot};

#[derive(Default)]
pub(super) struct EpochSegments {
    /// Finished segments by the first offset of the epoch in each. Their last offsets never decrease:
    /// a segment is not among them if another one starts no later and ends later. If any of them
    /// has an offset, the last one that starts at or before it has it.
    by_offset: VecDeque<Slot>,
    /// Segments that are being copied or deleted, or were replaced by one that covers them.
    unreferenced: BTreeSet<Slot>,
    /// The highest offset of the epoch that was ever copied. Deletions do not lower it.
    highest_offset: Option<Offset>,
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
        self.highest_offset
    }

    /// All segments of the epoch by start offset; finished ones first among equals.
    pub(super) fn list(&self, table: &SegmentTable) -> Vec<Slot> {
        let referenced = self.by_offset.iter();
        let mut slots: Vec<Slot> = referenced.chain(&self.unreferenced).copied().collect();
        slots.sort_by_key(|slot| table.start_offset(*slot));
        slots
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
        slot: Slot,
        start_offset: Offset,
        end_offset: Offset,
    ) {
        self.highest_offset = self.highest_offset.max(Some(end_offset));
        let start_of = |slot: Slot| table.start_offset_of(slot, epoch);
        let end_of = |slot: Slot| table.get(slot).end_offset_of(epoch);
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
        self.unreferenced
            .extend(self.by_offset.drain(first..first + covered));
        self.by_offset.insert(first, slot);
        self.unreferenced.remove(&slot);
    }

    pub(super) fn on_delete_started(
        &mut self,
        table: &SegmentTable,
        epoch: LeaderEpoch,
        slot: Slot,
        start_offset: Offset,
    ) {
        let at = self
            .by_offset
            .partition_point(|slot| table.start_offset_of(*slot, epoch) < start_offset);
        if self.by_offset.get(at) == Some(&slot) {
            self.by_offset.remove(at);
        }
        self.unreferenced.insert(slot);
    }

    pub(super) fn on_delete_finished(&mut self, slot: Slot) {
        self.unreferenced.remove(&slot);
    }
}
