//! The checkpoint files of the directories, written per directory, so that a hanging directory does
//! not block the others.
//!
//! Kafka: `LogManager.checkpointLogRecoveryOffsets`, `ReplicaManager.checkpointHighWatermarks`.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_log::checkpoint::{
    CLEANER_OFFSET_CHECKPOINT, CheckpointedOffset, LOG_START_OFFSET_CHECKPOINT, OffsetCheckpoint,
    RECOVERY_POINT_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT,
};
use ottla_log::{CheckpointError, LogReader, StorageError};
use ottla_sync::Mutex;
use ottla_types::{Offset, TopicPartition};

use super::LogDirs;
use super::known_logs::FailedLog;
use super::log_dir::{LogDir, Written};

impl LogDirs {
    /// Writes the recovery point of each log, after the log start offsets: an advanced start raises
    /// the recovery point over records that were never fsynced and that must not come back without
    /// recovery.
    pub fn checkpoint_recovery_points(&self, dir: &Arc<LogDir>) {
        let values = || {
            let before = self.recovery_points(dir);
            self.checkpoint_log_start_offsets(dir);
            move |reader: &LogReader| {
                let now = reader.recovery_point();
                // The smaller of the earlier and the current value: not a later increase, but a
                // decrease.
                let before = before.get(reader.topic_partition());
                Some(before.map_or(Offset::ZERO, |before| now.min(*before)))
            }
        };
        let kept = |failed: &FailedLog| failed.recovery_point;
        let offset = CheckpointedOffset::RecoveryPoint;
        if !self.checkpoint(dir, offset, values, kept) {
            self.checkpoint_log_start_offsets(dir);
        }
    }

    /// The recovery points of the logs in a directory, except copies.
    fn recovery_points(&self, dir: &Arc<LogDir>) -> BTreeMap<TopicPartition, Offset> {
        let loaded = self.loaded.lock();
        let loaded = loaded.values().filter(|log| Arc::ptr_eq(&log.dir, dir));
        let mut readers: Vec<LogReader> = loaded.map(|log| log.log.reader()).collect();
        let hosted = self.hosted.read();
        let hosted = hosted.values().filter(|log| Arc::ptr_eq(&log.dir, dir));
        readers.extend(hosted.map(|log| log.reader.clone()));
        let points = readers.iter();
        points
            .map(|reader| (reader.topic_partition().clone(), reader.recovery_point()))
            .collect()
    }

    /// Writes the log start offset of each log that does not start at its first segment, and of all
    /// tiered logs, because their first local segment does not give the log start offset.
    pub fn checkpoint_log_start_offsets(&self, dir: &Arc<LogDir>) {
        let value = |reader: &LogReader| {
            let start = reader.log_start_offset();
            let first = reader.segment_base_offsets().first().copied();
            let is_tiered = reader.config().remote_storage_enable;
            Some(start).filter(|start| is_tiered || first.is_some_and(|first| *start > first))
        };
        let kept = |failed: &FailedLog| failed.log_start_offset;
        self.checkpoint(dir, CheckpointedOffset::LogStartOffset, || value, kept);
    }

    pub fn checkpoint_high_watermarks(&self, dir: &Arc<LogDir>) {
        let value = |reader: &LogReader| Some(reader.high_watermark());
        let kept = |failed: &FailedLog| failed.high_watermark;
        self.checkpoint(dir, CheckpointedOffset::HighWatermark, || value, kept);
    }

    /// Forces the name of a deleted log to disk, and removes it from a directory's checkpoints, before
    /// a new log of the same name is created: after a kill, the new log would be taken for the old one,
    /// start at its start offset, and lose its records.
    ///
    /// Forced in all directories: with two logs of one name in different ones, a start may not know
    /// which one to use, and fails.
    pub(super) fn forget_predecessor(
        &self,
        dir: &LogDir,
        topic_partition: &TopicPartition,
    ) -> Result<(), StorageError> {
        let is_there = |other: &&Arc<LogDir>| other.may_return(Some(topic_partition));
        for other in self.online().filter(is_there) {
            if let Err(error) = other.force_deletions() {
                if std::ptr::eq(&**other, dir) || error.is_temporary() {
                    return Err(error);
                }
                // That directory has failed, and not the one of the new log.
                self.on_storage_error(other, &error);
            }
        }
        let written = &dir.written;
        for (file, written) in [
            (RECOVERY_POINT_CHECKPOINT, &written.recovery_points),
            (LOG_START_OFFSET_CHECKPOINT, &written.log_start_offsets),
            (REPLICATION_OFFSET_CHECKPOINT, &written.high_watermarks),
        ] {
            self.change_written(dir, file, written, topic_partition, |_| None)?;
        }
        Ok(())
    }

    /// Lowers a directory's checkpoints for a log that is about to be truncated to `offset` and
    /// whose recovery point was lowered. After a crash, a recovery point that is too high would
    /// make recovery skip records that were never fsynced; a start offset that is too high would
    /// hide records; and the cleaner would consider records clean that are not. Blocks.
    ///
    /// Kafka writes the recovery points and the cleaner's offsets when it truncates:
    /// `LogManager.truncateTo`.
    pub fn lower_checkpoints(&self, log: &LogReader, offset: Offset) -> Result<(), StorageError> {
        let Some(dir) = self.dir_of(log).filter(|dir| dir.is_online()) else {
            return Ok(());
        };
        let written = &dir.written;
        for (file, written, limit) in [
            (
                RECOVERY_POINT_CHECKPOINT,
                &written.recovery_points,
                log.recovery_point(),
            ),
            (
                LOG_START_OFFSET_CHECKPOINT,
                &written.log_start_offsets,
                offset,
            ),
            (CLEANER_OFFSET_CHECKPOINT, &written.clean_offsets, offset),
        ] {
            if is_left(file) {
                continue;
            }
            let lower = |written: Offset| Some(written.min(limit));
            self.change_written(dir, file, written, log.topic_partition(), lower)?;
        }
        Ok(())
    }

    /// Rewrites a checkpoint with a changed or removed offset of one partition. An unchanged file
    /// is not written.
    fn change_written(
        &self,
        dir: &LogDir,
        file: &str,
        written: &Mutex<Option<OffsetCheckpoint>>,
        topic_partition: &TopicPartition,
        change: impl Fn(Offset) -> Option<Offset>,
    ) -> Result<(), StorageError> {
        let path = dir.path.join(file);
        let mut last = written.lock();
        if last.is_none() {
            *last = match OffsetCheckpoint::read(&path) {
                Ok(read) => Some(read),
                // The offset may be in it, and the caller can try again.
                Err(CheckpointError::Storage(error)) if error.is_temporary() => return Err(error),
                // An unreadable checkpoint counts as empty.
                Err(_) => None,
            };
        }
        let before = last
            .as_ref()
            .and_then(|known| known.offsets.get(topic_partition));
        let after = before.and_then(|&offset| change(offset));
        let (Some(known), false) = (last.as_ref(), before == after.as_ref()) else {
            return Ok(());
        };
        let mut kept = known.clone();
        match after {
            Some(offset) => kept.offsets.insert(topic_partition.clone(), offset),
            None => kept.offsets.remove(topic_partition),
        };
        // Also removes other deleted logs, so that the next deletions change nothing.
        kept.offsets.retain(|partition, _| self.is_known(partition));
        kept.write(&path)?;
        *last = Some(kept);
        // It may now differ from what the logs have.
        dir.checkpoint_marks.set_all();
        Ok(())
    }

    fn is_known(&self, partition: &TopicPartition) -> bool {
        self.hosted.read().contains_key(partition)
            || self.loaded.lock().contains_key(partition)
            || self.failed.lock().contains_key(partition)
            || self.futures.read().contains_key(partition)
    }

    /// `values` is called before the logs are looked at. Returns whether they were: they are not if
    /// nothing has changed.
    fn checkpoint<V: Fn(&LogReader) -> Option<Offset>>(
        &self,
        dir: &Arc<LogDir>,
        offset: CheckpointedOffset,
        values: impl FnOnce() -> V,
        kept: impl Fn(&FailedLog) -> Option<Offset>,
    ) -> bool {
        if !dir.is_online() {
            return false;
        }
        let (file, written) = file_of(&dir.written, offset);
        // Held during the write, so that concurrent writes are serialised.
        let mut last = written.lock();
        if self.is_settled(dir, offset) {
            // It takes as much memory as a map of all logs. The next change reads the file.
            *last = None;
            return false;
        }
        let value = values();
        if let Some(last) = last.as_ref()
            && self.is_unchanged(dir, last, &value)
        {
            return true;
        }
        let mut offsets = self.offsets_in(dir, &value);
        for (partition, failed) in self.failed.lock().iter() {
            if let Some(offset) = kept(failed).filter(|_| Arc::ptr_eq(&failed.dir, dir)) {
                offsets.insert(partition.clone(), offset);
            }
        }
        let checkpoint = OffsetCheckpoint { offsets };
        if last.as_ref() == Some(&checkpoint) {
            return true;
        }
        match checkpoint.write(&dir.path.join(file)) {
            Ok(()) => *last = Some(checkpoint),
            Err(error) => {
                // If it is tried again, all logs are looked at.
                dir.checkpoint_marks.set_all();
                self.on_storage_error(dir, &error);
            }
        }
        true
    }

    /// Whether nothing has changed since the call before the last one: the mark of an offset may
    /// come a moment before the offset, so that it counts for two rounds.
    fn is_settled(&self, dir: &LogDir, offset: CheckpointedOffset) -> bool {
        let is_marked = dir.checkpoint_marks.take(offset);
        let is_comparable = !is_marked && self.are_all_hosted();
        let now = is_comparable.then(|| self.hosted.read().changes());
        let before = std::mem::replace(&mut *dir.written.compared_at[offset as usize].lock(), now);
        now.is_some() && now == before
    }

    /// Whether a checkpoint contains hosted logs only.
    fn are_all_hosted(&self) -> bool {
        // One lock at a time.
        let are_claimed = self.loaded.lock().is_empty();
        let has_failed = !self.failed.lock().is_empty();
        let has_copies = !self.futures.read().is_empty();
        are_claimed && !has_failed && !has_copies
    }

    /// Whether a checkpoint would have the same contents again. Allocates no memory, because on
    /// most nodes nearly all logs are idle. `false` if a comparison would need memory.
    fn is_unchanged(
        &self,
        dir: &Arc<LogDir>,
        last: &OffsetCheckpoint,
        value: impl Fn(&LogReader) -> Option<Offset>,
    ) -> bool {
        if !self.are_all_hosted() {
            return false;
        }
        let hosted = self.hosted.read();
        let hosted = hosted.values().filter(|log| Arc::ptr_eq(&log.dir, dir));
        let now = hosted.filter_map(|log| {
            let offset = value(&log.reader)?;
            Some((log.reader.topic_partition(), offset))
        });
        now.eq(last
            .offsets
            .iter()
            .map(|(partition, offset)| (partition, *offset)))
    }

    fn offsets_in(
        &self,
        dir: &Arc<LogDir>,
        value: impl Fn(&LogReader) -> Option<Offset>,
    ) -> BTreeMap<TopicPartition, Offset> {
        let loaded = self.loaded.lock();
        let unclaimed = loaded.values().filter(|log| Arc::ptr_eq(&log.dir, dir));
        let unclaimed: Vec<LogReader> = unclaimed.map(|log| log.log.reader()).collect();
        drop(loaded);
        let hosted = self.hosted.read();
        let hosted = hosted.values().filter(|log| Arc::ptr_eq(&log.dir, dir));
        let futures = self.futures.read();
        let futures = futures.values().filter(|log| Arc::ptr_eq(&log.dir, dir));
        let futures = futures.map(|log| &log.reader);
        let readers = hosted.map(|log| &log.reader).chain(&unclaimed);
        // Of a log and its copy, the copy counts. Collected and not inserted one by one, so that the
        // nodes of the map are full.
        let offsets = readers.chain(futures).filter_map(|reader| {
            let offset = value(reader)?;
            Some((reader.topic_partition().clone(), offset))
        });
        offsets.collect()
    }
}

/// The name and the last content of the checkpoint of an offset.
fn file_of(
    written: &Written,
    offset: CheckpointedOffset,
) -> (&'static str, &Mutex<Option<OffsetCheckpoint>>) {
    match offset {
        CheckpointedOffset::RecoveryPoint => (RECOVERY_POINT_CHECKPOINT, &written.recovery_points),
        CheckpointedOffset::LogStartOffset => {
            (LOG_START_OFFSET_CHECKPOINT, &written.log_start_offsets)
        }
        CheckpointedOffset::HighWatermark => {
            (REPLICATION_OFFSET_CHECKPOINT, &written.high_watermarks)
        }
    }
}

/// A planted defect: a truncation leaves this checkpoint unchanged.
fn is_left(file: &str) -> bool {
    use ottla_sync::planted::has;
    file == CLEANER_OFFSET_CHECKPOINT && has("a truncation leaves the cleaner's checkpoint")
        || file == RECOVERY_POINT_CHECKPOINT
            && has("a truncation leaves the recovery point's checkpoint")
}
