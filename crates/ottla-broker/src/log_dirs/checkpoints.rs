//! The checkpoint files of the directories.
//!
//! Kafka: `LogManager.checkpointLogRecoveryOffsets`, `ReplicaManager.checkpointHighWatermarks`.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_log::LogReader;
use ottla_log::checkpoint::{
    LOG_START_OFFSET_CHECKPOINT, OffsetCheckpoint, RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
};
use ottla_types::Offset;
use parking_lot::Mutex;

use super::log_dir::{LogDir, Written};
use super::{FailedLog, LogDirs};

impl LogDirs {
    /// Up to where each log is on disk.
    pub(crate) fn checkpoint_recovery_points(&self) {
        let value = |reader: &LogReader| Some(reader.recovery_point());
        let kept = |failed: &FailedLog| failed.recovery_point;
        self.checkpoint(
            RECOVERY_POINT_CHECKPOINT,
            |w| &w.recovery_points,
            value,
            kept,
        );
    }

    /// Where each log starts whose start is not that of its first segment.
    pub(crate) fn checkpoint_log_start_offsets(&self) {
        let value = |reader: &LogReader| {
            let start = reader.log_start_offset();
            let first = reader.segment_base_offsets().first().copied();
            Some(start).filter(|start| first.is_some_and(|first| *start > first))
        };
        let kept = |failed: &FailedLog| failed.log_start_offset;
        self.checkpoint(
            LOG_START_OFFSET_CHECKPOINT,
            |w| &w.log_start_offsets,
            value,
            kept,
        );
    }

    pub(crate) fn checkpoint_high_watermarks(&self) {
        let value = |reader: &LogReader| Some(reader.high_watermark());
        let kept = |failed: &FailedLog| failed.high_watermark;
        self.checkpoint(
            REPLICATION_OFFSET_CHECKPOINT,
            |w| &w.high_watermarks,
            value,
            kept,
        );
    }

    fn checkpoint(
        &self,
        file: &str,
        written: impl Fn(&Written) -> &Mutex<Option<OffsetCheckpoint>>,
        value: impl Fn(&LogReader) -> Option<Offset>,
        kept: impl Fn(&FailedLog) -> Option<Offset>,
    ) {
        for dir in self.online() {
            // Held over the write, so that two that come at once write one after the other.
            let mut last = written(&dir.written).lock();
            let mut offsets = self.offsets_in(dir, &value);
            for (partition, failed) in self.failed.lock().iter() {
                if let Some(offset) = kept(failed).filter(|_| Arc::ptr_eq(&failed.dir, dir)) {
                    offsets.insert(partition.clone(), offset);
                }
            }
            let checkpoint = OffsetCheckpoint { offsets };
            if last.as_ref() == Some(&checkpoint) {
                continue;
            }
            match checkpoint.write(&dir.path.join(file)) {
                Ok(()) => *last = Some(checkpoint),
                Err(error) => self.on_storage_error(dir, &error),
            }
        }
    }

    fn offsets_in(
        &self,
        dir: &Arc<LogDir>,
        value: impl Fn(&LogReader) -> Option<Offset>,
    ) -> BTreeMap<ottla_types::TopicPartition, Offset> {
        let mut offsets = BTreeMap::new();
        let loaded = self.loaded.lock();
        let unclaimed = loaded.values().filter(|log| Arc::ptr_eq(&log.dir, dir));
        let unclaimed: Vec<LogReader> = unclaimed.map(|log| log.log.reader()).collect();
        drop(loaded);
        let hosted = self.hosted.read();
        let hosted = hosted.values().filter(|log| Arc::ptr_eq(&log.dir, dir));
        let futures = self.futures.read();
        let futures = futures.values().filter(|log| Arc::ptr_eq(&log.dir, dir));
        let futures = futures.map(|log| &log.reader);
        for reader in hosted
            .map(|log| &log.reader)
            .chain(&unclaimed)
            .chain(futures)
        {
            if let Some(offset) = value(reader) {
                offsets.insert(reader.topic_partition().clone(), offset);
            }
        }
        offsets
    }
}
