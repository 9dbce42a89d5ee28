//! The start offset of each leader epoch, and the `leader-epoch-checkpoint` file.
//!
//! Owns a list of (epoch, first offset of the epoch), both strictly growing. Readers get a snapshot
//! of it. The file is written by a maintenance job before the recovery point passes the first
//! records of a new epoch, so a crash loses no entry: recovery reads those records again.
//!
//! Kafka: `LeaderEpochFileCache`, `LeaderEpochCheckpointFile`.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use ottla_types::{LeaderEpoch, Offset};

use crate::checkpoint;
use crate::error::{CheckpointError, StorageError};

/// `leader-epoch-checkpoint`, in the partition's directory.
pub const LEADER_EPOCH_CHECKPOINT: &str = "leader-epoch-checkpoint";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EpochEntry {
    pub epoch: LeaderEpoch,
    /// The first offset of the epoch.
    pub start_offset: Offset,
}

impl EpochEntry {
    /// Whether a list lacks the epoch, or has it from a later offset on.
    fn changes(self, entries: &[EpochEntry]) -> bool {
        let is_new = entries.last().is_none_or(|latest| {
            self.epoch != latest.epoch || self.start_offset < latest.start_offset
        });
        self.epoch.0 >= 0 && self.start_offset.0 >= 0 && is_new
    }

    /// Adds it to a list that it changes, and removes entries that contradict it.
    fn add_to(self, entries: &mut Vec<EpochEntry>) {
        let keep = entries
            .iter()
            .rposition(|entry| entry.epoch < self.epoch && entry.start_offset < self.start_offset);
        entries.truncate(keep.map_or(0, |last| last + 1));
        entries.push(self);
    }
}

#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct LeaderEpochs {
    /// Shared by the owner of the log and its readers. Changes are rare.
    entries: Arc<EpochEntries>,
}

/// A pointer to it is one word, for readers to load.
#[derive(PartialEq, Eq, Default, Debug)]
pub(crate) struct EpochEntries(Box<[EpochEntry]>);

impl Deref for EpochEntries {
    type Target = [EpochEntry];

    fn deref(&self) -> &[EpochEntry] {
        &self.0
    }
}

impl From<Vec<EpochEntry>> for LeaderEpochs {
    fn from(entries: Vec<EpochEntry>) -> LeaderEpochs {
        LeaderEpochs::of(Arc::new(EpochEntries(entries.into())))
    }
}

impl LeaderEpochs {
    pub(crate) fn of(entries: Arc<EpochEntries>) -> LeaderEpochs {
        LeaderEpochs { entries }
    }

    pub(crate) fn shared(&self) -> Arc<EpochEntries> {
        Arc::clone(&self.entries)
    }

    pub fn entries(&self) -> &[EpochEntry] {
        &self.entries
    }

    pub fn latest(&self) -> Option<EpochEntry> {
        self.entries.last().copied()
    }

    pub fn earliest(&self) -> Option<EpochEntry> {
        self.entries.first().copied()
    }

    /// Adds `epoch` with its start offset and removes entries that contradict it. Returns whether
    /// the list changed.
    pub fn assign(&mut self, epoch: LeaderEpoch, start_offset: Offset) -> bool {
        let entry = EpochEntry {
            epoch,
            start_offset,
        };
        if !entry.changes(&self.entries) {
            return false;
        }
        let mut entries = self.entries.to_vec();
        entry.add_to(&mut entries);
        *self = entries.into();
        true
    }

    /// The largest known epoch up to `epoch` and its end offset, as OffsetForLeaderEpoch and
    /// truncation need it. `None` if `epoch` is unknown or newer than all entries. An epoch older
    /// than all is returned itself, with the start of the first entry.
    pub fn end_offset_for(
        &self,
        epoch: LeaderEpoch,
        log_end_offset: Offset,
    ) -> Option<(LeaderEpoch, Offset)> {
        if epoch == LeaderEpoch::UNKNOWN {
            return None;
        }
        if self.latest().is_some_and(|latest| latest.epoch == epoch) {
            return Some((epoch, log_end_offset));
        }
        let higher = self.entries.partition_point(|entry| entry.epoch <= epoch);
        let next = self.entries.get(higher)?;
        let found = match higher.checked_sub(1) {
            Some(floor) => self.entries[floor].epoch,
            None => epoch,
        };
        Some((found, next.start_offset))
    }

    /// The epoch of the record at `offset`, existing or future.
    pub fn epoch_for(&self, offset: Offset) -> Option<LeaderEpoch> {
        let after = self
            .entries
            .partition_point(|entry| entry.start_offset <= offset);
        Some(self.entries[after.checked_sub(1)?].epoch)
    }

    /// Removes epochs that start at or after `end_offset`. Returns whether the list changed.
    pub fn truncate_from_end(&mut self, end_offset: Offset) -> bool {
        let keep = self
            .entries
            .partition_point(|entry| entry.start_offset < end_offset);
        let changed = keep < self.entries.len();
        if changed {
            *self = self.entries[..keep].to_vec().into();
        }
        changed
    }

    /// Removes epochs that ended at or before `start_offset`; the epoch that contains it now starts
    /// there. Returns whether the list changed.
    pub fn truncate_from_start(&mut self, start_offset: Offset) -> bool {
        let after = self
            .entries
            .partition_point(|entry| entry.start_offset <= start_offset);
        let Some(first) = after.checked_sub(1) else {
            return false;
        };
        let changed = first > 0 || self.entries[0].start_offset != start_offset;
        if changed {
            let mut entries = self.entries[first..].to_vec();
            entries[0].start_offset = start_offset;
            *self = entries.into();
        }
        changed
    }

    pub fn clear(&mut self) {
        *self = LeaderEpochs::default();
    }

    /// Reads the checkpoint of a partition; empty if there is no file.
    pub fn read(partition_dir: &Path) -> Result<LeaderEpochs, CheckpointError> {
        let path = partition_dir.join(LEADER_EPOCH_CHECKPOINT);
        let found = checkpoint::read(&path, 2, |fields| {
            Some(EpochEntry {
                epoch: LeaderEpoch(fields[0].parse().ok()?),
                start_offset: Offset(fields[1].parse().ok()?),
            })
        })?;
        let mut entries = Vec::new();
        for entry in found {
            if entry.changes(&entries) {
                entry.add_to(&mut entries);
            }
        }
        Ok(entries.into())
    }

    /// Writes the checkpoint of a partition durably.
    pub fn write(&self, partition_dir: &Path) -> Result<(), StorageError> {
        let path = partition_dir.join(LEADER_EPOCH_CHECKPOINT);
        checkpoint::write_atomically(&path, self.text().as_bytes())
    }

    /// The same for a caller that fsyncs the directory.
    pub(crate) fn replace(&self, partition_dir: &Path) -> Result<(), StorageError> {
        let path = partition_dir.join(LEADER_EPOCH_CHECKPOINT);
        checkpoint::replace(&path, self.text().as_bytes())
    }

    fn text(&self) -> String {
        checkpoint::text_of(self.entries(), |entry, line| {
            use std::fmt::Write;
            let _ = write!(line, "{} {}", entry.epoch, entry.start_offset);
        })
    }
}

#[cfg(test)]
mod tests;
