//! The clean offset of each log: `cleaner-offset-checkpoint` in every log directory.
//!
//! Kafka: `LogCleanerManager.allCleanerCheckpoints`, `LogCleanerManager.updateCheckpoints`.

use std::sync::Arc;

use ottla_log::LogReader;
use ottla_log::checkpoint::{CLEANER_OFFSET_CHECKPOINT, OffsetCheckpoint};
use ottla_types::{Offset, TopicPartition};

use crate::log_dirs::LogDirs;
use crate::log_dirs::log_dir::LogDir;

impl LogDirs {
    /// The offset below which a log is clean; `None` if it was never cleaned.
    pub fn clean_offset(&self, log: &LogReader) -> Option<Offset> {
        let dir = self.dir_of(log)?;
        let mut written = dir.written.clean_offsets.lock();
        let offsets = &read_once(dir, &mut written).offsets;
        offsets.get(log.topic_partition()).copied()
    }

    /// Sets the clean offset of a log, unless the log was truncated since `truncations` was read:
    /// the truncation may have lowered it, and records appended since are not clean.
    pub fn set_clean_offset(&self, log: &LogReader, offset: Offset, truncations: u64) {
        if let Some(dir) = self.dir_of(log).filter(|dir| dir.is_online()).cloned() {
            let is_true = || log.truncations() == truncations;
            self.change_clean_offset_if(&dir, log.topic_partition(), Some(offset), is_true);
        }
    }

    /// Moves the clean offset of a log to another directory. No cleaning may run.
    pub(in crate::log_dirs) fn move_clean_offset(
        &self,
        topic_partition: &TopicPartition,
        from: &Arc<LogDir>,
        to: &Arc<LogDir>,
    ) {
        let offset = {
            let mut written = from.written.clean_offsets.lock();
            let offsets = &read_once(from, &mut written).offsets;
            offsets.get(topic_partition).copied()
        };
        self.change_clean_offset(from, topic_partition, None);
        self.change_clean_offset(to, topic_partition, offset);
    }

    /// Rewrites the checkpoint of a directory with a changed or removed offset of one partition,
    /// and without deleted logs. Entries of logs that could not be loaded are kept.
    pub(in crate::log_dirs) fn change_clean_offset(
        &self,
        dir: &Arc<LogDir>,
        topic_partition: &TopicPartition,
        offset: Option<Offset>,
    ) {
        self.change_clean_offset_if(dir, topic_partition, offset, || true);
    }

    /// A truncation is announced before it lowers the offset, so it comes either before or after
    /// this.
    fn change_clean_offset_if(
        &self,
        dir: &Arc<LogDir>,
        topic_partition: &TopicPartition,
        offset: Option<Offset>,
        is_true: impl Fn() -> bool,
    ) {
        let mut written = dir.written.clean_offsets.lock();
        if !is_true() {
            return;
        }
        let mut checkpoint = read_once(dir, &mut written).clone();
        let is_known = |partition: &TopicPartition| {
            self.hosted.read().contains_key(partition)
                || self.loaded.lock().contains_key(partition)
                || self.failed.lock().contains_key(partition)
        };
        checkpoint
            .offsets
            .retain(|partition, _| is_known(partition));
        match offset {
            Some(offset) => checkpoint.offsets.insert(topic_partition.clone(), offset),
            None => checkpoint.offsets.remove(topic_partition),
        };
        if written.as_ref() == Some(&checkpoint) {
            return;
        }
        match checkpoint.write(&dir.path.join(CLEANER_OFFSET_CHECKPOINT)) {
            Ok(()) => *written = Some(checkpoint),
            Err(error) => {
                // A higher offset is valid although the file does not have it yet: without it the cleaner would clean
                // the log again at once, and again. The next change writes it.
                if let (Some(known), Some(offset)) = (written.as_mut(), offset)
                    && error.is_temporary()
                    && known.offsets.get(topic_partition) < Some(&offset)
                {
                    known.offsets.insert(topic_partition.clone(), offset);
                }
                self.on_storage_error(dir, &error);
            }
        }
    }
}

/// The content of the checkpoint, read on first use. An unreadable one counts as empty, and its
/// logs are cleaned from their starts.
fn read_once<'a>(dir: &LogDir, written: &'a mut Option<OffsetCheckpoint>) -> &'a OffsetCheckpoint {
    written.get_or_insert_with(|| {
        let path = dir.path.join(CLEANER_OFFSET_CHECKPOINT);
        OffsetCheckpoint::read(&path).unwrap_or_else(|error| {
            tracing::error!("logs will be cleaned from their starts: {error}");
            OffsetCheckpoint::default()
        })
    })
}
