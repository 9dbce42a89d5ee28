//! The state of a partition's local log that a task needs, taken at the start of a run.

use ottla_types::{Offset, Timestamp};

use crate::leader_epochs::LeaderEpochs;

/// A local log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogView {
    /// The first offset of the partition, in either tier.
    pub log_start_offset: Offset,
    /// The first offset on the local disk.
    pub local_log_start_offset: Offset,
    /// Exclusive.
    pub log_end_offset: Offset,
    /// Exclusive.
    pub high_watermark: Offset,
    /// Exclusive.
    pub last_stable_offset: Offset,
    /// The highest offset that is known to be in remote storage, -1 for none.
    pub highest_remote_offset: Offset,
    pub leader_epochs: LeaderEpochs,
    /// By base offset; the last one is active. Never empty.
    pub segments: Vec<LocalSegment>,
}

/// A segment on the local disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LocalSegment {
    pub base_offset: Offset,
    pub size_bytes: u32,
    /// The largest timestamp of its records, or the file's modification time if there is none.
    pub largest_timestamp: Timestamp,
    pub is_txn_index_empty: bool,
    /// Whether the snapshot of the producers at the end of the segment is on disk.
    pub has_producer_snapshot: bool,
}

impl LogView {
    /// The size of all local segments.
    pub fn size_bytes(&self) -> u64 {
        self.segments
            .iter()
            .map(|it| u64::from(it.size_bytes))
            .sum()
    }

    /// The size of the local segments that start at `offset` or after it.
    pub(crate) fn size_bytes_from(&self, offset: Offset) -> u64 {
        let first = self.segments.partition_point(|it| it.base_offset < offset);
        let segments = self.segments[first..].iter();
        segments.map(|it| u64::from(it.size_bytes)).sum()
    }

    /// The segments that remote storage does not have (`onlyLocalLogSegments*`), if it has records up
    /// to `highest`. As in Kafka, a segment that starts at the highest remote offset counts.
    pub fn only_local_segments(&self, highest: Offset) -> impl Iterator<Item = &LocalSegment> {
        let segments = self.segments.iter();
        segments.filter(move |it| it.base_offset >= highest)
    }

    /// The offset after the last one of a segment.
    pub(crate) fn end_of(&self, segment: &LocalSegment) -> Offset {
        let base_offset = segment.base_offset;
        let next = self
            .segments
            .partition_point(|it| it.base_offset <= base_offset);
        let next = self.segments.get(next);
        next.map_or(self.log_end_offset, |next| next.base_offset)
    }

    /// The segments from the one that contains `offset`, each with the base offset of the next;
    /// without the active one.
    pub(crate) fn closed_segments_from(
        &self,
        offset: Offset,
    ) -> impl Iterator<Item = (&LocalSegment, Offset)> {
        let after = self.segments.partition_point(|it| it.base_offset <= offset);
        let first = after.saturating_sub(1);
        let pairs = self.segments[first..].windows(2);
        pairs.map(|pair| (&pair[0], pair[1].base_offset))
    }
}
