//! The segments of one leader epoch.
//!
//! Kafka: `RemoteLogLeaderEpochState`.

use std::collections::{BTreeSet, VecDeque};

use ottla_types::{LeaderEpoch, Offset};

use super::segment_table::{SegmentTable, Slot};

#[derive(Default)]
pub(super) struct EpochSegments {
    /// Finished segments by the first offset of the epoch in each, which differs for all of them.
    by_offset: VecDeque<Slot>,
    /// Segments that are being copied or deleted, or were replaced by one that covers them.
    unreferenced: BTreeSet<Slot>,
    /// The highest offset of the epoch that was ever copied. Deletions do not lower it.
    highest_offset: Option<Offset>,
}

impl EpochSegments {
    pub(super) fn highest_offset(&self) -> Option<Offset> {
        self.highest_offset
    }

    /// All segments of the epoch by start offset; finished ones first among equals.
    pub(super) fn list(&self, table: &SegmentTable) -> Vec<Slot> {
        let referenced = self.by_offset.iter();
        let mut slots: Vec<Slot> = referenced.chain(&self.unreferenced).copied().collect();
        if !self.unreferenced.is_empty() {
            slots.sort_by_key(|slot| table.start_offset(*slot));
        }
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
    /// Finished segments that it covers become unreferenced: another leader uploaded the same
    /// offsets, or fewer.
    pub(super) fn on_copy_finished(
        &mut self,
        table: &SegmentTable,
        epoch: LeaderEpoch,
        slot: Slot,
        start_offset: Offset,
        end_offset: Offset,
    ) {
        while let Some(last) = self.by_offset.back().copied()
            && table.start_offset_of(last, epoch) >= start_offset
            && self.highest_offset <= Some(end_offset)
        {
            self.by_offset.pop_back();
            self.unreferenced.insert(last);
        }
        let at = self
            .by_offset
            .partition_point(|slot| table.start_offset_of(*slot, epoch) < start_offset);
        match self.by_offset.get(at).copied() {
            // As in Kafka, a finished segment that another one replaces at its offset, without
            // covering what was copied, is in neither of the two collections.
            Some(same) if table.start_offset_of(same, epoch) == start_offset => {
                self.by_offset[at] = slot;
            }
            _ => self.by_offset.insert(at, slot),
        }
        self.unreferenced.remove(&slot);
        self.highest_offset = self.highest_offset.max(Some(end_offset));
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
