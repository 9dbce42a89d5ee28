//! Producer snapshots: taking them, listing them, and loading the state from them.
//!
//! Kafka: `ProducerStateManager.takeSnapshot`, `ProducerStateManager.truncateAndReload`.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use ottla_sync::Mutex;
use ottla_types::{Offset, Timestamp};

use super::ProducerState;
use super::entry::ProducerStateEntry;
use super::snapshot::{PendingSnapshot, SnapshotError, decode, encode, of_no_producers};
use crate::checkpoint::read_file;
use crate::disk;
use crate::error::StorageError;
use crate::file_names::{PRODUCER_SNAPSHOT_SUFFIX, file_name, offset_from_file_name};

impl ProducerState {
    pub(crate) fn has_snapshot(&self, offset: Offset) -> bool {
        self.snapshots.contains(offset)
    }

    pub(crate) fn latest_snapshot(&self) -> Option<Offset> {
        self.snapshots.last()
    }

    /// Takes a snapshot at the current offset, unless there is one. It counts as existing from here
    /// on; the caller writes it.
    pub(crate) fn take_snapshot(&mut self) -> Option<PendingSnapshot> {
        if self.map_end_offset <= self.last_snapshot_offset {
            return None;
        }
        let mut entries: Vec<&ProducerStateEntry> = self.producers().collect();
        entries.sort_by_key(|entry| entry.producer_id);
        let bytes = encode(entries.into_iter());
        let offset = self.map_end_offset;
        self.last_snapshot_offset = offset;
        self.snapshots.insert(offset);
        let bytes = Mutex::new(Some(bytes));
        Some(PendingSnapshot { offset, bytes })
    }

    /// Takes a snapshot and writes it without fsync, for recovery, which would take long otherwise;
    /// a snapshot cut short by a crash is taken again. The next flush fsyncs the snapshots of
    /// [`ProducerState::take_unforced`].
    pub(crate) fn write_snapshot(&mut self, dir: &Path) -> Result<(), StorageError> {
        if let Some(snapshot) = self.take_snapshot() {
            snapshot.write_unforced(dir)?;
            self.unforced.get_or_insert_default().0.push(snapshot);
        }
        Ok(())
    }

    /// The existing snapshots that [`ProducerState::write_snapshot`] wrote.
    pub(crate) fn take_unforced(&mut self) -> Vec<PendingSnapshot> {
        self.unforced.take().map_or_else(Vec::new, |it| it.0)
    }

    /// Lists the snapshot files.
    pub(crate) fn list_snapshots(&mut self, dir: &Path) -> Result<(), StorageError> {
        let error = |error| StorageError::new("list", dir, error);
        self.snapshots.clear();
        for file in ottla_sync::fs::read_dir(dir).map_err(error)? {
            let name = file.map_err(error)?.file_name();
            let name = name.to_string_lossy();
            if name.ends_with(PRODUCER_SNAPSHOT_SUFFIX)
                && let Some(offset) = offset_from_file_name(&name)
            {
                self.snapshots.insert(offset);
            }
        }
        Ok(())
    }

    /// Sets the snapshot files found by an earlier listing.
    pub(crate) fn set_listed_snapshots(&mut self, offsets: &[Offset]) {
        self.snapshots = offsets.iter().copied().collect();
    }

    /// Deletes snapshots that belong to no segment, except the newest if it is above all base
    /// offsets: that is the one of the last clean stop.
    pub(crate) fn remove_stray_snapshots(
        &mut self,
        dir: &Path,
        base_offsets: &[Offset],
    ) -> Result<(), StorageError> {
        let stray = |offset: &Offset| base_offsets.binary_search(offset).is_err();
        let strays: Vec<Offset> = self.snapshots.iter().filter(stray).collect();
        let last_base = base_offsets.last().copied().unwrap_or(Offset::UNKNOWN);
        for (index, &offset) in strays.iter().enumerate() {
            if index + 1 < strays.len() || offset < last_base {
                self.delete_snapshot(dir, offset)?;
            }
        }
        Ok(())
    }

    /// Loads the newest usable snapshot at or below `log_end_offset`, unless the state already ends
    /// there. The caller applies the records from [`ProducerState::map_end_offset`] on.
    pub(crate) fn truncate_and_reload(
        &mut self,
        dir: &Path,
        log_start_offset: Offset,
        log_end_offset: Offset,
        now: Timestamp,
    ) -> Result<(), StorageError> {
        self.delete_snapshots_outside(dir, log_start_offset, log_end_offset)?;
        if log_end_offset == self.map_end_offset {
            self.on_log_start_offset(log_start_offset);
            return Ok(());
        }
        self.clear();
        while let Some(offset) = self.latest_snapshot() {
            match self.load_snapshot(dir, offset, now) {
                Ok(()) => {
                    self.last_snapshot_offset = offset;
                    self.map_end_offset = offset;
                    return Ok(());
                }
                Err(SnapshotError::Storage(error)) => return Err(error),
                Err(SnapshotError::Corrupt(reason)) => {
                    tracing::warn!(dir = %dir.display(), %offset, reason, "deleting a producer snapshot");
                    self.delete_snapshot(dir, offset)?;
                }
            }
        }
        self.last_snapshot_offset = log_start_offset;
        self.map_end_offset = log_start_offset;
        Ok(())
    }

    /// As [`ProducerState::truncate_and_reload`] for a log without producers, whose newest snapshot,
    /// if it has one, is at its end and holds none. The snapshot is not read.
    pub(crate) fn resume_without_producers(
        &mut self,
        dir: &Path,
        log_start_offset: Offset,
        log_end_offset: Offset,
    ) -> Result<(), StorageError> {
        self.delete_snapshots_outside(dir, log_start_offset, log_end_offset)?;
        self.last_snapshot_offset = self.latest_snapshot().unwrap_or(log_start_offset);
        self.map_end_offset = log_end_offset;
        Ok(())
    }

    fn delete_snapshots_outside(
        &mut self,
        dir: &Path,
        log_start_offset: Offset,
        log_end_offset: Offset,
    ) -> Result<(), StorageError> {
        let outside = |offset: &Offset| *offset > log_end_offset || *offset <= log_start_offset;
        let outside: Vec<Offset> = self.snapshots.iter().filter(outside).collect();
        for offset in outside {
            self.delete_snapshot(dir, offset)?;
        }
        Ok(())
    }

    /// Decides about the snapshots after the offset where recovery began, when it has read the
    /// records up to `log_end_offset`. They may date from before a truncation and are deleted, except
    /// those of no producers if there were none: the directories of idle logs stay unchanged. These
    /// need not be on disk: if one is lost, no producer is.
    pub(crate) fn keep_confirmed_snapshots(
        &mut self,
        dir: &Path,
        found: &[Offset],
        log_end_offset: Offset,
    ) -> Result<(), StorageError> {
        let expected = self.known.is_none().then(of_no_producers);
        for &offset in found {
            if self.snapshots.contains(offset) {
                // Recovery has written it again.
                continue;
            }
            let path = dir.join(file_name(offset, PRODUCER_SNAPSHOT_SUFFIX));
            let may_be_right = expected.is_some() && offset <= log_end_offset;
            if may_be_right && read_file(&path)? == expected {
                self.snapshots.insert(offset);
            } else {
                self.delete_snapshot(dir, offset)?;
            }
        }
        Ok(())
    }

    /// Takes over the snapshots of `other` and deletes those outside the log.
    pub(crate) fn adopt_snapshots(
        &mut self,
        other: &ProducerState,
        dir: &Path,
        log_start_offset: Offset,
        log_end_offset: Offset,
    ) -> Result<(), StorageError> {
        self.snapshots.clone_from(&other.snapshots);
        let is_inside = |offset: Offset| log_start_offset < offset && offset < log_end_offset;
        for offset in other.snapshots.iter().filter(|&it| !is_inside(it)) {
            self.delete_snapshot(dir, offset)?;
        }
        self.last_snapshot_offset = self.latest_snapshot().unwrap_or(log_start_offset);
        Ok(())
    }

    /// Loads the newest usable snapshot in `(log_start_offset, end]`, a file or one of `pending`.
    /// Changes no files.
    pub(crate) fn load_newest(
        &mut self,
        dir: &Path,
        pending: &[Arc<PendingSnapshot>],
        log_start_offset: Offset,
        end: Offset,
        now: Timestamp,
    ) -> Result<(), StorageError> {
        let is_inside = |offset: &Offset| *offset > log_start_offset && *offset <= end;
        let offsets = pending.iter().map(|snapshot| snapshot.offset);
        let offsets = self.snapshots.iter().chain(offsets);
        let inside: BTreeSet<Offset> = offsets.filter(is_inside).collect();
        for offset in inside.into_iter().rev() {
            self.clear();
            let bytes = pending.iter().find(|snapshot| snapshot.offset == offset);
            let bytes = bytes.and_then(|snapshot| snapshot.bytes.lock().clone());
            let loaded = match bytes {
                Some(bytes) => self.load_bytes(&bytes, now),
                None => self.load_snapshot(dir, offset, now),
            };
            match loaded {
                Ok(()) => {
                    self.map_end_offset = offset;
                    return Ok(());
                }
                Err(SnapshotError::Storage(error)) => return Err(error),
                Err(SnapshotError::Corrupt(reason)) => {
                    tracing::warn!(dir = %dir.display(), %offset, reason, "ignoring a producer snapshot");
                }
            }
        }
        self.clear();
        self.map_end_offset = log_start_offset;
        Ok(())
    }

    fn load_snapshot(
        &mut self,
        dir: &Path,
        offset: Offset,
        now: Timestamp,
    ) -> Result<(), SnapshotError> {
        let path = dir.join(file_name(offset, PRODUCER_SNAPSHOT_SUFFIX));
        let bytes = read_file(&path)?.ok_or(SnapshotError::Corrupt("the file is gone"))?;
        self.load_bytes(&bytes, now)
    }

    fn load_bytes(&mut self, bytes: &[u8], now: Timestamp) -> Result<(), SnapshotError> {
        for entry in decode(bytes)? {
            if !entry.is_expired(now, self.expiration_ms) {
                self.load_entry(entry);
            }
        }
        Ok(())
    }

    /// Clears the state and deletes all snapshots: the log restarts at `offset`.
    pub(crate) fn truncate_fully_and_start_at(
        &mut self,
        dir: &Path,
        offset: Offset,
    ) -> Result<(), StorageError> {
        self.clear();
        for snapshot in Vec::from_iter(self.snapshots.iter()) {
            self.delete_snapshot(dir, snapshot)?;
        }
        self.last_snapshot_offset = Offset::ZERO;
        self.map_end_offset = offset;
        Ok(())
    }

    /// Takes over a snapshot of another log, at the start of this one. Writes its file durably.
    pub(crate) fn adopt_foreign_snapshot(
        &mut self,
        dir: &Path,
        offset: Offset,
        bytes: &[u8],
        now: Timestamp,
    ) -> Result<(), StorageError> {
        self.clear();
        match self.load_bytes(bytes, now) {
            Ok(()) => {}
            Err(SnapshotError::Storage(error)) => return Err(error),
            Err(SnapshotError::Corrupt(reason)) => {
                tracing::warn!(dir = %dir.display(), %offset, reason, "a producer snapshot from remote storage is ignored");
                self.clear();
                self.map_end_offset = offset;
                return Ok(());
            }
        }
        let bytes = Mutex::new(Some(bytes.to_vec()));
        PendingSnapshot { offset, bytes }.write_once(dir)?;
        self.snapshots.insert(offset);
        self.last_snapshot_offset = offset;
        self.map_end_offset = offset;
        Ok(())
    }

    pub(crate) fn delete_snapshot(
        &mut self,
        dir: &Path,
        offset: Offset,
    ) -> Result<(), StorageError> {
        self.snapshots.remove(offset);
        if let Some(unforced) = &mut self.unforced {
            unforced.0.retain(|snapshot| snapshot.offset != offset);
        }
        let path = dir.join(file_name(offset, PRODUCER_SNAPSHOT_SUFFIX));
        disk::remove_file_if_there(&path).map_err(|error| StorageError::new("delete", &path, error))
    }

    /// Forgets the snapshot of a deleted segment; its file is deleted with the files of the
    /// segment.
    pub(crate) fn forget_snapshot(&mut self, offset: Offset) {
        self.snapshots.remove(offset);
    }
}
