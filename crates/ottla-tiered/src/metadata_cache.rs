//! The remote segments of one partition, as the records of `__remote_log_metadata` tell.
//!
//! Owns the segments that are not yet completely deleted, by ID and by leader epoch, and their totals. Lookups
//! take logarithmic time, because they and the decisions are made under a lock; a segment takes less than 100
//! bytes.
//!
//! | method | copy started | copy finished | delete started |
//! | --- | --- | --- | --- |
//! | `segment`, `next_segment_with_txn_index` | | yes | |
//! | `segments`, `segments_of` | yes | yes | yes |
//!
//! Kafka: `RemoteLogMetadataCache`.

use std::collections::{BTreeMap, BTreeSet};

use ottla_types::{LeaderEpoch, Offset, Timestamp, Uuid};

use crate::remote_segment::{RemoteSegment, RemoteSegmentUpdate};
use crate::segment_state::RemoteLogSegmentState;

mod epoch_segments;
mod segment_table;

use epoch_segments::{EpochSegments, Gaps, Stop, Walk, next_of};
#[cfg(test)]
pub(crate) use segment_table::LOOKS;
use segment_table::{SegmentTable, Slot};

#[derive(Default)]
pub struct RemoteLogMetadataCache {
    segments: SegmentTable,
    epochs: BTreeMap<LeaderEpoch, EpochSegments>,
    /// The segments with several epochs. A leader makes at most one of them.
    of_several_epochs: BTreeSet<Slot>,
    /// How many segments of each epoch have a transaction index that is not empty.
    txn_indexes: BTreeMap<LeaderEpoch, u32>,
    gaps: Gaps,
    stats: RemoteLogStats,
    /// Whether the topic has been read up to where it ended when the partition was assigned.
    is_initialized: bool,
}

/// The size of a partition in remote storage.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RemoteLogStats {
    /// Segments in any state (`RemoteLogMetadataCount`).
    pub segments: usize,
    /// The size of readable segments and of those being deleted (`RemoteLogSizeBytes`).
    pub size_bytes: u64,
    /// The size of readable segments.
    pub finished_bytes: u64,
}

impl RemoteLogStats {
    fn add(&mut self, segment: &RemoteSegment) {
        let (size_bytes, finished_bytes) = counted_bytes(segment);
        self.segments += 1;
        self.size_bytes += size_bytes;
        self.finished_bytes += finished_bytes;
    }

    fn remove(&mut self, segment: &RemoteSegment) {
        let (size_bytes, finished_bytes) = counted_bytes(segment);
        self.segments -= 1;
        self.size_bytes -= size_bytes;
        self.finished_bytes -= finished_bytes;
    }
}

/// How much a segment adds to both sizes.
fn counted_bytes(segment: &RemoteSegment) -> (u64, u64) {
    let bytes = segment.size_bytes();
    match segment.state {
        RemoteLogSegmentState::CopySegmentFinished => (bytes, bytes),
        RemoteLogSegmentState::DeleteSegmentStarted => (bytes, 0),
        // Retried uploads would count several times.
        RemoteLogSegmentState::CopySegmentStarted
        | RemoteLogSegmentState::DeleteSegmentFinished => (0, 0),
    }
}

/// The segments of an epoch by start offset, one after the other ([`RemoteLogMetadataCache::walk`]).
pub(crate) struct EpochWalk<'a> {
    table: &'a SegmentTable,
    /// None if no segment ever had the epoch.
    walk: Option<Walk<'a>>,
}

impl EpochWalk<'_> {
    /// The next segment. A caller that needs no more segments that are readable and that no other one
    /// covers skips all of them, in no time.
    pub(crate) fn next_segment(&mut self, skips_readable: bool) -> Option<RemoteSegment> {
        let walk = self.walk.as_mut()?;
        let stop = match skips_readable {
            true => walk.next_other(),
            false => walk.next_stop(),
        };
        let (Stop::Readable(slot) | Stop::Other(slot)) = stop?;
        Some(self.table.get(slot))
    }
}

/// Lower than the start of any segment.
const LOWEST: Offset = Offset(i64::MIN);

/// Where the search for a timestamp stands ([`RemoteLogMetadataCache::search_by_time`]).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum TimeSearch {
    Found(RemoteSegment),
    /// Not in the segments before the one in which the epoch has this first offset.
    StoppedAt(Offset),
    /// Not in the epoch.
    NotFound,
}

/// Why a record did not change the cache. Kafka logs such records and continues.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotApplied {
    #[error(
        "remote segment {id} cannot go from {} to {to}: the record is dropped",
        shown(from)
    )]
    InvalidTransition {
        id: Uuid,
        from: Option<RemoteLogSegmentState>,
        to: RemoteLogSegmentState,
    },
    #[error(
        "remote segment {id} is added in state {state}; only COPY_SEGMENT_STARTED may add a segment"
    )]
    AddedInOtherState {
        id: Uuid,
        state: RemoteLogSegmentState,
    },
    #[error("remote segment {id} cannot be updated to COPY_SEGMENT_STARTED; it has to be added")]
    UpdatedToStarted { id: Uuid },
    #[error("remote segment {id} is not known")]
    UnknownSegment { id: Uuid },
    /// While the topic is read, an update of a segment that was deleted before.
    #[error("remote segment {id} was removed before")]
    AlreadyRemoved { id: Uuid },
}

fn shown(state: &Option<RemoteLogSegmentState>) -> String {
    state.map_or_else(|| "unknown".to_owned(), |state| state.to_string())
}

impl RemoteLogMetadataCache {
    pub fn new() -> RemoteLogMetadataCache {
        RemoteLogMetadataCache::default()
    }

    /// The topic has been read far enough to answer questions.
    pub fn mark_initialized(&mut self) {
        self.is_initialized = true;
    }

    pub fn is_initialized(&self) -> bool {
        self.is_initialized
    }

    /// The number of segments in any state.
    pub fn len(&self) -> usize {
        self.segments.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The segment with this ID.
    pub fn get(&self, id: Uuid) -> Option<RemoteSegment> {
        Some(self.segments.get(self.segments.find(id)?))
    }

    /// Whether the segment with this ID is completely copied, and its deletion has not begun.
    pub fn is_readable(&self, id: Uuid) -> bool {
        self.state(id) == Some(RemoteLogSegmentState::CopySegmentFinished)
    }

    /// Whether the copy of the segment with this ID has begun and not ended, and its deletion has
    /// not begun.
    pub fn is_being_copied(&self, id: Uuid) -> bool {
        self.state(id) == Some(RemoteLogSegmentState::CopySegmentStarted)
    }

    fn state(&self, id: Uuid) -> Option<RemoteLogSegmentState> {
        let slot = self.segments.find(id)?;
        Some(self.segments.state(slot))
    }

    /// All segments, in no particular order.
    pub fn segments(&self) -> impl Iterator<Item = RemoteSegment> {
        self.segments.iter()
    }

    /// Their number and size.
    pub fn stats(&self) -> RemoteLogStats {
        self.stats
    }

    /// The epochs before `epoch` that segments have.
    pub(crate) fn epochs_before(&self, epoch: LeaderEpoch) -> impl Iterator<Item = LeaderEpoch> {
        let epochs = self.epochs.range(..epoch);
        epochs.filter_map(|(epoch, segments)| (!segments.is_empty()).then_some(*epoch))
    }

    /// The segments with records of several epochs.
    pub(crate) fn segments_of_several_epochs(&self) -> impl Iterator<Item = RemoteSegment> {
        let slots = self.of_several_epochs.iter();
        slots.map(|slot| self.segments.get(*slot))
    }

    /// The segments that have no epoch but `epoch`, and are not readable or are covered by another one.
    pub(crate) fn unreferenced_of(
        &self,
        epoch: LeaderEpoch,
    ) -> impl Iterator<Item = RemoteSegment> {
        let slots = self.epochs.get(&epoch).into_iter();
        let slots = slots.flat_map(EpochSegments::unreferenced);
        let slots = slots.filter(|slot| !self.of_several_epochs.contains(slot));
        slots.map(|slot| self.segments.get(slot))
    }

    /// The size of the readable segments that have no epoch but `epoch`, no offset before `start` and none
    /// from `end` on. Without those that another one covers.
    pub(crate) fn bytes_within(&self, epoch: LeaderEpoch, start: Offset, end: Offset) -> u64 {
        self.epochs.get(&epoch).map_or(0, |segments| {
            segments.bytes_within(&self.segments, epoch, start, end)
        })
    }

    /// The segments with records of `epoch`, by start offset. Looks only at those that the caller takes and at
    /// those that are not readable or that others cover.
    pub(crate) fn walk(&self, epoch: LeaderEpoch) -> EpochWalk<'_> {
        let segments = self.epochs.get(&epoch);
        EpochWalk {
            table: &self.segments,
            walk: segments.map(|it| it.walk(&self.segments, epoch, LOWEST, LOWEST)),
        }
    }

    /// The first finished segment of `epoch`, by start offset, that ends at `from` or later, has a record of at
    /// least the timestamp, and meets the condition. Looks at no more than `at_most` of those that no other one
    /// covers, and subtracts them. `start` is where a search stopped before, or the lowest offset.
    ///
    /// A search continues at a start, not after an end: a segment that does not meet the condition may end
    /// after the first records of the next one that does.
    pub(crate) fn search_by_time(
        &self,
        epoch: LeaderEpoch,
        start: Offset,
        from: Offset,
        timestamp: Timestamp,
        at_most: &mut usize,
        meets: impl Fn(&RemoteSegment) -> bool,
    ) -> TimeSearch {
        let Some(segments) = self.epochs.get(&epoch) else {
            return TimeSearch::NotFound;
        };
        let mut walk = segments.walk(&self.segments, epoch, start, from);
        while let Some(stop) = walk.next_stop() {
            let (Stop::Readable(slot) | Stop::Other(slot)) = stop;
            if let Stop::Readable(_) = stop {
                if *at_most == 0 {
                    return TimeSearch::StoppedAt(self.segments.start_offset_of(slot, epoch));
                }
                *at_most -= 1;
            }
            if self.segments.max_timestamp(slot) < timestamp
                || self.segments.state(slot) != RemoteLogSegmentState::CopySegmentFinished
            {
                continue;
            }
            let segment = self.segments.get(slot);
            if segment.end_offset >= from && meets(&segment) {
                return TimeSearch::Found(segment);
            }
        }
        TimeSearch::NotFound
    }

    /// The segments with records of `epoch`, by start offset.
    pub fn segments_of(&self, epoch: LeaderEpoch) -> impl Iterator<Item = RemoteSegment> {
        let slots = self.epochs.get(&epoch).map(|it| it.list(&self.segments));
        let slots = slots.unwrap_or_default().into_iter();
        slots.map(|slot| self.segments.get(slot))
    }

    /// The readable segment that has the record of `epoch` at `offset`.
    pub fn segment(&self, epoch: LeaderEpoch, offset: Offset) -> Option<RemoteSegment> {
        let slot = self
            .epochs
            .get(&epoch)?
            .floor(&self.segments, epoch, offset)?;
        let segment = self.segments.get(slot);
        (offset <= segment.end_offset_of(epoch)).then_some(segment)
    }

    /// The offset up to which (exclusive) readable segments have all records of `epoch` from `offset` on;
    /// `None` if they lack the first one.
    pub(crate) fn readable_until(&self, epoch: LeaderEpoch, offset: Offset) -> Option<Offset> {
        let segments = self.epochs.get(&epoch)?;
        let end_of = |slot| self.segments.end_offset_of(slot, epoch);
        let slot = segments.floor(&self.segments, epoch, offset)?;
        if end_of(slot) < offset {
            return None;
        }
        let later = (epoch, next_of(offset))..=(epoch, Offset(i64::MAX));
        match self.gaps.range(later).next() {
            Some((_, gap)) => Some(*gap),
            None => Some(next_of(end_of(segments.last()?))),
        }
    }

    /// The first readable segment with records of `epoch`.
    pub fn first_segment(&self, epoch: LeaderEpoch) -> Option<RemoteSegment> {
        let slot = self.epochs.get(&epoch)?.first()?;
        Some(self.segments.get(slot))
    }

    /// The first readable segment from `offset` on, within `epoch` and without a gap, whose
    /// transaction index is not empty.
    pub fn next_segment_with_txn_index(
        &self,
        epoch: LeaderEpoch,
        offset: Offset,
    ) -> Option<RemoteSegment> {
        // Most topics have none, and every read with `read_committed` asks for one.
        if !self.txn_indexes.contains_key(&epoch) {
            return None;
        }
        let mut offset = offset;
        loop {
            let segment = self.segment(epoch, offset)?;
            if !segment.is_txn_index_empty {
                return Some(segment);
            }
            if segment.next_offset() <= offset {
                return None;
            }
            offset = segment.next_offset();
        }
    }

    /// The highest offset of `epoch` that is readable.
    pub fn last_offset(&self, epoch: LeaderEpoch) -> Option<Offset> {
        let slot = self.epochs.get(&epoch)?.last()?;
        Some(self.segments.get(slot).end_offset_of(epoch))
    }

    /// The highest offset of `epoch` that was copied, also if it has been deleted since.
    pub fn highest_offset_for_epoch(&self, epoch: LeaderEpoch) -> Option<Offset> {
        self.epochs.get(&epoch)?.highest_offset()
    }

    /// A record says that an upload begins (`addCopyInProgressSegment`).
    pub fn add(&mut self, segment: &RemoteSegment) -> Result<(), NotApplied> {
        let (id, state) = (segment.id, segment.state);
        if state != RemoteLogSegmentState::CopySegmentStarted {
            return Err(NotApplied::AddedInOtherState { id, state });
        }
        let known = self.segments.find(id);
        let slot = match known {
            None => self.segments.insert(segment),
            Some(slot) => {
                self.check_transition(id, slot, state)?;
                let before = self.segments.get(slot);
                self.stats.remove(&before);
                self.count_txn_index(&before, |count| count - 1);
                // Kafka would keep the ID under epochs that the new record no longer has, and fail
                // to list those once the segment is deleted.
                self.each_epoch(slot, |_, epoch, _, slot, _, _| {
                    epoch.on_delete_finished(slot)
                });
                self.segments.write(slot, segment);
                slot
            }
        };
        self.stats.add(segment);
        self.count_txn_index(segment, |count| count + 1);
        if self.segments.size_of_only_epoch(slot).is_none() {
            self.of_several_epochs.insert(slot);
        } else {
            self.of_several_epochs.remove(&slot);
        }
        self.each_epoch(slot, |_, epoch, _, slot, _, _| epoch.on_copy_started(slot));
        Ok(())
    }

    /// A record says that the state of a segment changes (`updateRemoteLogSegmentMetadata`).
    pub fn update(&mut self, update: &RemoteSegmentUpdate) -> Result<(), NotApplied> {
        let (id, state) = (update.id, update.state);
        let Some(slot) = self.segments.find(id) else {
            return Err(match self.is_initialized {
                true => NotApplied::UnknownSegment { id },
                false => NotApplied::AlreadyRemoved { id },
            });
        };
        self.check_transition(id, slot, state)?;
        let segment = self.segments.get(slot);
        let updated = segment.updated(update);
        match state {
            RemoteLogSegmentState::CopySegmentStarted => {
                return Err(NotApplied::UpdatedToStarted { id });
            }
            RemoteLogSegmentState::CopySegmentFinished => {
                self.each_epoch(slot, |(table, key), epoch, gaps, slot, start, end| {
                    epoch.on_copy_finished(table, key, gaps, slot, start, end);
                });
                self.segments.write(slot, &updated);
            }
            RemoteLogSegmentState::DeleteSegmentStarted => {
                self.each_epoch(slot, |(table, key), epoch, gaps, slot, start, _| {
                    epoch.on_delete_started(table, key, gaps, slot, start);
                });
                self.segments.write(slot, &updated);
            }
            RemoteLogSegmentState::DeleteSegmentFinished => {
                self.each_epoch(slot, |_, epoch, _, slot, _, _| {
                    epoch.on_delete_finished(slot)
                });
                self.of_several_epochs.remove(&slot);
                self.count_txn_index(&segment, |count| count - 1);
                self.segments.remove(slot);
            }
        }
        self.stats.remove(&segment);
        if state != RemoteLogSegmentState::DeleteSegmentFinished {
            self.stats.add(&updated);
        }
        Ok(())
    }

    fn count_txn_index(&mut self, segment: &RemoteSegment, change: impl Fn(u32) -> u32) {
        if segment.is_txn_index_empty {
            return;
        }
        for entry in segment.segment_leader_epochs.entries() {
            let count = self.txn_indexes.get(&entry.epoch).copied();
            match change(count.unwrap_or(0)) {
                0 => self.txn_indexes.remove(&entry.epoch),
                count => self.txn_indexes.insert(entry.epoch, count),
            };
        }
    }

    fn check_transition(
        &self,
        id: Uuid,
        slot: Slot,
        to: RemoteLogSegmentState,
    ) -> Result<(), NotApplied> {
        let from = Some(self.segments.state(slot));
        if RemoteLogSegmentState::is_valid_transition(from, to) {
            return Ok(());
        }
        Err(NotApplied::InvalidTransition { id, from, to })
    }

    /// Calls `step` for each epoch of the segment, with the first and the last offset of the epoch
    /// in it.
    fn each_epoch(
        &mut self,
        slot: Slot,
        step: impl Fn((&SegmentTable, LeaderEpoch), &mut EpochSegments, &mut Gaps, Slot, Offset, Offset),
    ) {
        let segment = self.segments.get(slot);
        for entry in segment.segment_leader_epochs.entries() {
            let end_offset = segment.end_offset_of(entry.epoch);
            let epoch = self.epochs.entry(entry.epoch).or_default();
            let key = (&self.segments, entry.epoch);
            let gaps = &mut self.gaps;
            step(key, epoch, gaps, slot, entry.start_offset, end_offset);
        }
    }
}

#[cfg(test)]
mod tests;
