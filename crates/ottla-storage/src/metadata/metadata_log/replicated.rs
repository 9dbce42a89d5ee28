//! Replication of the metadata log: batches and snapshots from the leader, and reads for nodes that
//! fetch from this one.
//!
//! A snapshot is fetched into a file whose name a start deletes, fsynced and renamed when it is
//! complete. Only then is the log emptied; a crash in between leaves a snapshot that is ahead of
//! the log, and opening the log empties it.
//!
//! Kafka: `KafkaRaftLog.appendAsFollower`, `KafkaRaftLog.truncateToLatestSnapshot`,
//! `FileRawSnapshotWriter`, `FileRawSnapshotReader`.

use std::io;
use std::os::unix::fs::FileExt;

use bytes::Bytes;
use ottla_log::{FileRegion, ReadError, retry_lacking};
use ottla_raft::{SnapshotId, StoredSnapshot};
use ottla_records::RecordBatch;
use ottla_sync::fs::{self, Dir, File};
use ottla_types::{Offset, Timestamp};

use super::super::record_batches::MetadataBatch;
use super::super::snapshot_file::{Snapshot, read_snapshot};
use super::partial_snapshot::PartialSnapshot;
use super::{MetadataLog, MetadataLogError};

impl MetadataLog {
    /// Appends batches as the leader wrote them; they are not on disk before `flush`. Batches that
    /// are already in the log are skipped, because a full disk may have accepted only some of them.
    pub fn append_fetched(
        &mut self,
        batches: &[RecordBatch],
        now: Timestamp,
    ) -> Result<(), MetadataLogError> {
        #[cfg(any(test, feature = "fault-injection"))]
        if let Some(kind) = self.faults.0.take() {
            return Err(self.storage_error(&super::fault(kind)));
        }
        let log_end_offset = self.log.log_end_offset();
        let is_there = |batch: &RecordBatch| batch.header.base_offset < log_end_offset;
        let missing = batches.iter().position(|batch| !is_there(batch));
        self.log
            .append(&batches[missing.unwrap_or(batches.len())..], now)
            .map(drop)
            .map_err(|error| self.append_error(&error))
    }

    /// Everything from the batch at `from` to the log end.
    pub fn batches_from(&self, from: Offset) -> Result<Vec<MetadataBatch>, MetadataLogError> {
        let mut batches = Vec::new();
        let mut next_offset = from;
        while next_offset < self.log.log_end_offset() {
            let read = self
                .read_batches(next_offset)
                .map_err(|reason| self.error(reason))?;
            for batch in read {
                if batch.last_offset >= next_offset {
                    next_offset = batch.last_offset.plus(1);
                    batches.push(batch);
                }
            }
        }
        Ok(batches)
    }

    /// The region of the batches from `from` on: at least one, more only up to `max_bytes`. `None`
    /// at the log end.
    pub fn region_from(
        &self,
        from: Offset,
        max_bytes: u64,
    ) -> Result<Option<FileRegion>, MetadataLogError> {
        let read = self
            .log
            .reader()
            .read(from, max_bytes, self.log.log_end_offset(), true)
            .map_err(|error| match &error {
                ReadError::Storage(error) => self.storage_error(error),
                error => self.error(error.to_string()),
            })?;
        Ok(read.region)
    }

    /// The region of at most `max_bytes` of a snapshot from `position` on, and the snapshot's size.
    /// `None` if the position is outside the file.
    pub fn snapshot_region(
        &self,
        id: SnapshotId,
        position: i64,
        max_bytes: i64,
    ) -> io::Result<Option<(FileRegion, u64)>> {
        let file = File::open(self.dir.join(id.file_name()))?;
        let size = file.metadata()?.len();
        let (Ok(position), Ok(max_bytes)) = (u64::try_from(position), u64::try_from(max_bytes))
        else {
            return Ok(None);
        };
        if position >= size {
            return Ok(None);
        }
        let region = FileRegion::new(file, position, max_bytes.min(size - position));
        Ok(Some((region, size)))
    }

    /// Starts to fetch a snapshot, discarding a partial one.
    pub fn begin_snapshot(&mut self, id: SnapshotId) -> Result<(), MetadataLogError> {
        self.give_up_partial_snapshot();
        let path = self.dir.join(format!(
            "{id}-{:016x}.checkpoint.part",
            ottla_sync::random::random::<u64>("snapshot file names")
        ));
        let file = File::create(&path).map_err(|error| self.io_error("create", &path, error))?;
        self.partial_snapshot = Some(PartialSnapshot {
            id,
            path,
            file,
            size_bytes: 0,
        });
        Ok(())
    }

    /// Appends the next part of the snapshot being fetched.
    pub fn append_to_snapshot(
        &mut self,
        id: SnapshotId,
        position: i64,
        bytes: &Bytes,
    ) -> Result<(), MetadataLogError> {
        let partial = self.partial_snapshot.as_mut();
        let Some(partial) = partial.filter(|it| it.id == id && it.size_bytes as i64 == position)
        else {
            return Err(self.error(format!("snapshot {id} was not begun at {position}")));
        };
        match partial.file.write_all_at(bytes, partial.size_bytes) {
            Ok(()) => {
                partial.size_bytes += bytes.len() as u64;
                Ok(())
            }
            Err(error) => {
                let path = partial.path.clone();
                Err(self.io_error("write", &path, error))
            }
        }
    }

    /// Replaces the log by the fetched snapshot. The snapshot is read first, so that an unreadable
    /// one changes nothing. Waits for file handles.
    pub fn install_snapshot(
        &mut self,
        id: SnapshotId,
        now: Timestamp,
    ) -> Result<Snapshot, MetadataLogError> {
        let path = self.dir.join(id.file_name());
        if let Some(partial) = self.partial_snapshot.take_if(|partial| partial.id == id) {
            let read = retry_lacking(|| read_snapshot(&partial.path));
            let snapshot = match read {
                Ok(snapshot) => snapshot,
                Err(error) => {
                    let _ = fs::remove_file(&partial.path);
                    return Err(self.error(format!("the leader's snapshot: {error}")));
                }
            };
            let renamed = (|| {
                partial.file.sync_all()?;
                // Before the rename, after which another attempt would take the name for forced.
                let opened = retry_lacking(|| Dir::open(&self.dir))?;
                fs::rename(&partial.path, &path)?;
                opened.sync()
            })();
            renamed.map_err(|error| self.io_error("keep", &path, error))?;
            self.adopt_snapshot(id, partial.size_bytes, &snapshot, now)?;
            return Ok(snapshot);
        }
        let snapshot = retry_lacking(|| read_snapshot(&path));
        let snapshot = snapshot.map_err(|error| self.error(error.to_string()))?;
        let size_bytes = fs::metadata(&path)
            .map_err(|error| self.error(error.to_string()))?
            .len();
        self.adopt_snapshot(id, size_bytes, &snapshot, now)?;
        Ok(snapshot)
    }

    /// Restarts the log after the snapshot and removes older snapshots.
    fn adopt_snapshot(
        &mut self,
        id: SnapshotId,
        size_bytes: u64,
        snapshot: &Snapshot,
        now: Timestamp,
    ) -> Result<(), MetadataLogError> {
        self.lower_forced_mark(id.end_offset)?;
        retry_lacking(|| {
            self.log
                .truncate_fully_and_start_at(id.end_offset, None, now)
        })
        .map_err(|error| self.log_error(&error))?;
        self.maintain()?;
        let stored = StoredSnapshot {
            id,
            size_bytes,
            last_contained_log_time: snapshot.last_contained_log_time,
        };
        let before = std::mem::replace(&mut self.snapshots, [(id, stored)].into());
        for old in before.into_keys().filter(|old| *old != id) {
            let path = self.dir.join(old.file_name());
            fs::remove_file(&path)
                .map_err(|error| self.error(format!("cannot delete snapshot {old}: {error}")))?;
        }
        Ok(())
    }

    fn give_up_partial_snapshot(&mut self) {
        if let Some(partial) = self.partial_snapshot.take() {
            // A start deletes the leftovers.
            let _ = fs::remove_file(&partial.path);
        }
    }
}

#[cfg(test)]
mod tests;
