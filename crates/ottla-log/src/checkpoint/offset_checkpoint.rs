//! Checkpoint files of a log directory with one offset per partition. Kafka:
//! `OffsetCheckpointFile`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use ottla_types::{Offset, TopicName, TopicPartition};

use crate::error::{CheckpointError, StorageError};

/// The recovery point of each log: records below it are on disk.
pub const RECOVERY_POINT_CHECKPOINT: &str = "recovery-point-offset-checkpoint";
/// The log start offset of each log that does not start at its first segment's base offset.
pub const LOG_START_OFFSET_CHECKPOINT: &str = "log-start-offset-checkpoint";
/// The high watermark of each replica.
pub const REPLICATION_OFFSET_CHECKPOINT: &str = "replication-offset-checkpoint";
/// The offset below which each log has been compacted.
pub const CLEANER_OFFSET_CHECKPOINT: &str = "cleaner-offset-checkpoint";

/// An offset for each partition.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct OffsetCheckpoint {
    pub offsets: BTreeMap<TopicPartition, Offset>,
}

impl OffsetCheckpoint {
    /// Reads the file; a missing file has no entries.
    pub fn read(path: &Path) -> Result<OffsetCheckpoint, CheckpointError> {
        // The partitions of a topic follow each other and share its name: a start reads the entries
        // of very many.
        let last: RefCell<Option<TopicName>> = RefCell::default();
        let entries = super::read(path, 3, |fields| {
            let partition = fields[1].parse().ok()?;
            let offset = fields[2].parse().ok()?;
            let mut last = last.borrow_mut();
            if last.as_deref() != Some(fields[0]) {
                *last = Some(fields[0].to_owned().into());
            }
            let topic = last.clone()?;
            Some((TopicPartition::new(topic, partition), Offset(offset)))
        })?;
        Ok(OffsetCheckpoint {
            offsets: entries.into_iter().collect(),
        })
    }

    /// Replaces the file durably.
    pub fn write(&self, path: &Path) -> Result<(), StorageError> {
        let entries: Vec<_> = self.offsets.iter().collect();
        super::write(path, &entries, |(partition, offset), line| {
            let TopicPartition { topic, partition } = partition;
            let _ = write!(line, "{topic} {partition} {offset}");
        })
    }
}

#[cfg(test)]
mod tests {
    use ottla_types::{Offset, TopicPartition};

    use super::{OffsetCheckpoint, RECOVERY_POINT_CHECKPOINT};

    #[test]
    fn the_file_is_kafkas() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(RECOVERY_POINT_CHECKPOINT);
        let mut checkpoint = OffsetCheckpoint::default();
        assert_eq!(OffsetCheckpoint::read(&path).unwrap(), checkpoint);
        for (topic, partition, offset) in [("orders-eu", 10, 7), ("orders-eu", 2, i64::MAX)] {
            let partition = TopicPartition::new(topic, partition);
            checkpoint.offsets.insert(partition, Offset(offset));
        }
        checkpoint.write(&path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(
            text,
            "0\n2\norders-eu 2 9223372036854775807\norders-eu 10 7\n"
        );
        assert_eq!(OffsetCheckpoint::read(&path).unwrap(), checkpoint);
    }
}
