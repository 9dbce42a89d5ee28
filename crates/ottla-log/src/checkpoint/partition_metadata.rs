//! `partition.metadata`: the topic ID of a partition's directory (KIP-516).
//!
//! Kafka: `PartitionMetadataFile`.

use std::path::Path;

use ottla_types::TopicId;

use super::{malformed, read_text, write_atomically};
use crate::error::{CheckpointError, StorageError};

pub const PARTITION_METADATA: &str = "partition.metadata";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartitionMetadata {
    pub topic_id: TopicId,
}

impl PartitionMetadata {
    /// Reads the file of a partition; `None` if it has none yet.
    pub fn read(partition_dir: &Path) -> Result<Option<PartitionMetadata>, CheckpointError> {
        let path = partition_dir.join(PARTITION_METADATA);
        let Some(text) = read_text(&path)? else {
            return Ok(None);
        };
        let mut lines = text.lines();
        let version = lines.next().unwrap_or_default();
        // Kafka accepts newer versions: they may only add lines.
        let number: Option<i32> = value(version).and_then(|value| value.parse().ok());
        if number.is_none_or(|number| number < 0) {
            return Err(malformed(&path, 1, version, "expected \"version: 0\""));
        }
        let id = lines.next().unwrap_or_default();
        let topic_id: Option<TopicId> = value(id).and_then(|value| value.parse().ok());
        match topic_id {
            Some(topic_id) if !topic_id.is_zero() => Ok(Some(PartitionMetadata { topic_id })),
            _ => Err(malformed(&path, 2, id, "expected \"topic_id:\" and an id")),
        }
    }

    /// Writes the file of a partition durably.
    pub fn write(self, partition_dir: &Path) -> Result<(), StorageError> {
        let text = format!("version: 0\ntopic_id: {}", self.topic_id);
        write_atomically(&partition_dir.join(PARTITION_METADATA), text.as_bytes())
    }
}

/// The text after the colon and at least one space.
fn value(line: &str) -> Option<&str> {
    let (_, value) = line.split_once(':')?;
    let trimmed = value.trim_start();
    (trimmed.len() < value.len() && !trimmed.contains(':')).then_some(trimmed)
}

#[cfg(test)]
mod tests {
    use ottla_types::TopicId;

    use super::{PARTITION_METADATA, PartitionMetadata};

    #[test]
    fn the_file_is_kafkas() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(PartitionMetadata::read(dir.path()).unwrap(), None);
        let topic_id = TopicId::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        PartitionMetadata { topic_id }.write(dir.path()).unwrap();
        let text = std::fs::read_to_string(dir.path().join(PARTITION_METADATA)).unwrap();
        assert_eq!(text, "version: 0\ntopic_id: ASNFZ4mrze8BI0VniavN7w");
        let read = PartitionMetadata::read(dir.path()).unwrap();
        assert_eq!(read, Some(PartitionMetadata { topic_id }));
    }

    #[test]
    fn broken_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        for text in [
            "",
            "version: 0",
            "version:0\ntopic_id: ASNFZ4mrze8BI0VniavN7w",
            "version: x\ntopic_id: ASNFZ4mrze8BI0VniavN7w",
            "version: 0\ntopic_id: short",
            "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        ] {
            std::fs::write(dir.path().join(PARTITION_METADATA), text).unwrap();
            assert!(PartitionMetadata::read(dir.path()).is_err(), "{text:?}");
        }
    }
}
