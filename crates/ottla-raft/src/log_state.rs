//! The quorum's view of this node's metadata log: its start and end, how far it is on disk, the
//! start of each leader epoch, and the snapshots.
//!
//! It mirrors the log: it changes in the same step as the effect that changes the log, so that
//! decisions never wait for a file. It has no records.
//!
//! Kafka: `RaftLog`, `KafkaRaftLog`, `LeaderEpochFileCache`.

use std::collections::BTreeSet;

use ottla_types::{LeaderEpoch, Offset};

use crate::SnapshotId;

/// The end of a log: the next offset, and the epoch of the last record. Ordered like logs in votes:
/// by epoch, then by offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogEnd {
    pub offset: Offset,
    pub epoch: LeaderEpoch,
}

impl LogEnd {
    /// Whether a log with this end has everything that a log ending at `other` can have committed.
    pub(crate) fn is_up_to_date_with(self, other: LogEnd) -> bool {
        (self.epoch, self.offset) >= (other.epoch, other.offset)
    }
}

/// The start offset of a leader epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EpochStart {
    pub epoch: LeaderEpoch,
    pub start_offset: Offset,
}

/// The leader's verdict on a replica's fetch offset and last epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OffsetValidity {
    /// The replica's log is a prefix of this one.
    Valid,
    /// The logs differ: they have at most this much in common.
    Diverging(LogEnd),
    /// The records that the replica needs are only in this snapshot.
    Snapshot(SnapshotId),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogState {
    start_offset: Offset,
    /// Exclusive.
    end_offset: Offset,
    /// Exclusive; never beyond `end_offset`.
    flushed_offset: Offset,
    /// Ascending in both fields.
    epochs: Vec<EpochStart>,
    snapshots: BTreeSet<SnapshotId>,
}

impl Default for LogState {
    fn default() -> LogState {
        LogState::new(Offset::ZERO, Offset::ZERO, Vec::new(), [])
    }
}

impl LogState {
    /// The state found when the log was opened. All of it counts as being on disk: the opener of a
    /// voter's log must fsync it, because a crash of the process leaves records that were never
    /// flushed.
    pub fn new(
        start_offset: Offset,
        end_offset: Offset,
        epochs: Vec<EpochStart>,
        snapshots: impl IntoIterator<Item = SnapshotId>,
    ) -> LogState {
        LogState {
            start_offset,
            end_offset,
            flushed_offset: end_offset,
            epochs,
            snapshots: snapshots.into_iter().collect(),
        }
    }

    pub fn start_offset(&self) -> Offset {
        self.start_offset
    }

    pub fn end_offset(&self) -> Offset {
        self.end_offset
    }

    pub fn flushed_offset(&self) -> Offset {
        self.flushed_offset
    }

    pub fn end(&self) -> LogEnd {
        LogEnd {
            offset: self.end_offset,
            epoch: self.last_epoch(),
        }
    }

    /// The epoch of the last record; of the snapshot for an empty log; otherwise 0.
    pub fn last_epoch(&self) -> LeaderEpoch {
        match (self.epochs.last(), self.latest_snapshot()) {
            (Some(last), _) => last.epoch,
            (None, Some(snapshot)) => snapshot.epoch,
            (None, None) => LeaderEpoch(0),
        }
    }

    pub fn latest_snapshot(&self) -> Option<SnapshotId> {
        self.snapshots.last().copied()
    }

    fn earliest_snapshot(&self) -> Option<SnapshotId> {
        self.snapshots.first().copied()
    }

    pub fn has_snapshot(&self, id: SnapshotId) -> bool {
        self.snapshots.contains(&id)
    }

    /// Whether snapshot `id` contains the whole log and more.
    pub(crate) fn is_behind(&self, id: SnapshotId) -> bool {
        let last_epoch = self.epochs.last().map_or(LeaderEpoch(0), |last| last.epoch);
        id.epoch > last_epoch || (id.epoch == last_epoch && id.end_offset > self.end_offset)
    }

    /// The last epoch up to `epoch` with records, and its end offset. Kafka:
    /// `RaftLog.endOffsetForEpoch`.
    pub(crate) fn end_of_epoch(&self, epoch: LeaderEpoch) -> LogEnd {
        if self.epochs.last().is_none_or(|last| last.epoch < epoch) {
            return self.end();
        }
        let higher = self.epochs.partition_point(|entry| entry.epoch <= epoch);
        let found = LogEnd {
            epoch: match higher.checked_sub(1) {
                Some(floor) => self.epochs[floor].epoch,
                None => epoch,
            },
            offset: match self.epochs.get(higher) {
                Some(next) => next.start_offset,
                None => self.end_offset,
            },
        };
        match self.earliest_snapshot() {
            // The log has no record of the epoch: the snapshot at its start gives the previous
            // epoch.
            Some(snapshot) if found.offset == snapshot.end_offset && found.epoch == epoch => {
                LogEnd {
                    offset: snapshot.end_offset,
                    epoch: snapshot.epoch,
                }
            }
            _ => found,
        }
    }

    /// Whether a replica with log end `offset` and last epoch `epoch` can continue from there.
    /// Kafka: `RaftLog.validateOffsetAndEpoch`.
    pub(crate) fn validate(&self, offset: Offset, epoch: LeaderEpoch) -> OffsetValidity {
        if self.start_offset == Offset::ZERO && offset == Offset::ZERO {
            return OffsetValidity::Valid;
        }
        if let (Some(earliest), Some(latest)) = (self.earliest_snapshot(), self.latest_snapshot())
            && (offset < self.start_offset
                || (offset == self.start_offset && epoch != earliest.epoch)
                || epoch < earliest.epoch)
        {
            return OffsetValidity::Snapshot(latest);
        }
        let end = self.end_of_epoch(epoch);
        if end.epoch != epoch || end.offset < offset {
            OffsetValidity::Diverging(end)
        } else {
            OffsetValidity::Valid
        }
    }

    /// The offset to truncate to, given that the logs have at most `diverging` in common. Kafka:
    /// `RaftLog.truncateToEndOffset`.
    pub(crate) fn truncation_offset(&self, diverging: LogEnd) -> Offset {
        if diverging.epoch == LeaderEpoch(0) {
            return diverging.offset.min(self.end_offset);
        }
        let local = self.end_of_epoch(diverging.epoch);
        if local.epoch == diverging.epoch {
            local.offset.min(diverging.offset)
        } else {
            local.offset
        }
    }

    /// Starts `epoch` at the log end. An epoch lower than the last is ignored.
    pub(crate) fn assign_epoch(&mut self, epoch: LeaderEpoch) {
        if self.epochs.last().is_none_or(|last| last.epoch < epoch) {
            self.epochs.push(EpochStart {
                epoch,
                start_offset: self.end_offset,
            });
        }
    }

    /// Records an append up to `end_offset`; no effect if that is within the log.
    pub(crate) fn append_up_to(&mut self, end_offset: Offset) {
        self.end_offset = self.end_offset.max(end_offset);
    }

    pub(crate) fn flush_up_to(&mut self, end_offset: Offset) {
        self.append_up_to(end_offset);
        self.flushed_offset = self.flushed_offset.max(end_offset);
    }

    pub(crate) fn truncate_to(&mut self, end_offset: Offset) {
        if end_offset >= self.end_offset {
            return;
        }
        self.end_offset = end_offset.max(self.start_offset);
        self.flushed_offset = self.flushed_offset.min(self.end_offset);
        self.epochs
            .retain(|entry| entry.start_offset < self.end_offset);
    }

    /// Empties the log, which continues after the snapshot.
    pub(crate) fn restart_at(&mut self, id: SnapshotId) {
        self.start_offset = id.end_offset;
        self.end_offset = id.end_offset;
        self.flushed_offset = id.end_offset;
        self.epochs.clear();
        self.snapshots = BTreeSet::from([id]);
    }

    /// Snapshots were written or deleted, and the log now starts at `start_offset`.
    pub(crate) fn set_snapshots(
        &mut self,
        snapshots: impl IntoIterator<Item = SnapshotId>,
        start_offset: Offset,
    ) {
        self.snapshots = snapshots.into_iter().collect();
        self.start_offset = start_offset.clamp(self.start_offset, self.end_offset);
        // The epoch of the first record is kept, starting at the log start.
        let floor = self
            .epochs
            .partition_point(|entry| entry.start_offset <= self.start_offset);
        self.epochs.drain(..floor.saturating_sub(1));
        if let Some(first) = self.epochs.first_mut() {
            first.start_offset = first.start_offset.max(self.start_offset);
        }
    }
}

#[cfg(test)]
mod tests;
