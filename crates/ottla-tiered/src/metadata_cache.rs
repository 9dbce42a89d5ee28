//! The remote segments of one partition, as the records of `__remote_log_metadata` tell.
//!
//! Owns the segments that are not yet completely deleted, by ID and by leader epoch. Lookups take
//! logarithmic time; a segment takes less than 100 bytes.
//!
//! | method | copy started | copy finished | delete started |
//! | --- | --- | --- | --- |
//! | `segment`, `next_segment_with_txn_index` | | yes | |
//! | `segments`, `segments_of` | yes | yes | yes |
//!
//! Kafka: `RemoteLogMetadataCache`.

use std::collections::BTreeMap;

use ottla_types::{LeaderEpoch, Offset, Uuid};

use crate::remote_segment::{RemoteSegment, RemoteSegmentUpdate};
use crate::segment_state::RemoteLogSegmentState;

mod epoch_segments;
mod segment_table;

use epoch_segments::EpochSegments;
use segment_table::{SegmentTable, Slot};

#[derive(Default)]
pub struct RemoteLogMetadataCache {
    segments: SegmentTable,
    epochs: BTreeMap<LeaderEpoch, EpochSegments>,
    /// Whether the topic has been read up to where it ended when the partition was assigned.
    is_initialized: bool,
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
                // Kafka would keep the ID under epochs that the new record no longer has, and fail
                // to list those once the segment is deleted.
                self.each_epoch(slot, |_, epoch, slot, _, _| epoch.on_delete_finished(slot));
                self.segments.write(slot, segment);
                slot
            }
        };
        self.each_epoch(slot, |_, epoch, slot, _, _| epoch.on_copy_started(slot));
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
        let updated = self.segments.get(slot).updated(update);
        match state {
            RemoteLogSegmentState::CopySegmentStarted => {
                return Err(NotApplied::UpdatedToStarted { id });
            }
            RemoteLogSegmentState::CopySegmentFinished => {
                self.each_epoch(slot, |(table, key), epoch, slot, start, end| {
                    epoch.on_copy_finished(table, key, slot, start, end);
                });
                self.segments.write(slot, &updated);
            }
            RemoteLogSegmentState::DeleteSegmentStarted => {
                self.each_epoch(slot, |(table, key), epoch, slot, start, _| {
                    epoch.on_delete_started(table, key, slot, start);
                });
                self.segments.write(slot, &updated);
            }
            RemoteLogSegmentState::DeleteSegmentFinished => {
                self.each_epoch(slot, |_, epoch, slot, _, _| epoch.on_delete_finished(slot));
                self.segments.remove(slot);
            }
        }
        Ok(())
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
        step: impl Fn((&SegmentTable, LeaderEpoch), &mut EpochSegments, Slot, Offset, Offset),
    ) {
        let segment = self.segments.get(slot);
        for entry in segment.segment_leader_epochs.entries() {
            let end_offset = segment.end_offset_of(entry.epoch);
            let epoch = self.epochs.entry(entry.epoch).or_default();
            let key = (&self.segments, entry.epoch);
            step(key, epoch, slot, entry.start_offset, end_offset);
        }
    }
}

#[cfg(test)]
mod tests;
