//! What DescribeLogDirs tells. Kafka: `ReplicaManager.describeLogDirs`.

use std::path::PathBuf;
use std::sync::Arc;

use ottla_types::{DirectoryId, TopicPartition};

use super::LogDirs;

/// One directory and what lies in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LogDirDescription {
    pub(crate) path: PathBuf,
    pub(crate) directory_id: DirectoryId,
    pub(crate) is_online: bool,
    pub(crate) is_cordoned: bool,
    /// Of the file system, -1 where it cannot be asked.
    pub(crate) total_bytes: i64,
    pub(crate) usable_bytes: i64,
    pub(crate) partitions: Vec<PartitionSize>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PartitionSize {
    pub(crate) topic_partition: TopicPartition,
    /// Of all segments' `.log` files.
    pub(crate) size_bytes: i64,
    /// How far the log end is behind the high watermark: the followers' lag.
    pub(crate) offset_lag: i64,
}

impl LogDirs {
    /// All directories; an offline one has no partitions.
    pub(crate) fn describe(&self) -> Vec<LogDirDescription> {
        let hosted = self.hosted.read();
        let describe = |dir: &Arc<super::log_dir::LogDir>| {
            let is_online = dir.is_online();
            let space = rustix::fs::statvfs(&dir.path).ok().filter(|_| is_online);
            let bytes = |blocks: u64, size: u64| {
                i64::try_from(blocks.saturating_mul(size)).unwrap_or(i64::MAX)
            };
            let logs = hosted
                .iter()
                .filter(|(_, log)| is_online && Arc::ptr_eq(&log.dir, dir));
            let mut partitions: Vec<PartitionSize> = logs
                .map(|(topic_partition, log)| PartitionSize {
                    topic_partition: topic_partition.clone(),
                    size_bytes: i64::try_from(log.reader.size()).unwrap_or(i64::MAX),
                    offset_lag: log
                        .reader
                        .high_watermark()
                        .since(log.reader.log_end_offset())
                        .max(0),
                })
                .collect();
            partitions.sort_by(|a, b| a.topic_partition.cmp(&b.topic_partition));
            LogDirDescription {
                path: dir.path.clone(),
                directory_id: dir.directory_id,
                is_online,
                is_cordoned: dir.is_cordoned(),
                total_bytes: space.as_ref().map_or(-1, |s| bytes(s.f_blocks, s.f_frsize)),
                usable_bytes: space.as_ref().map_or(-1, |s| bytes(s.f_bavail, s.f_frsize)),
                partitions,
            }
        };
        self.dirs.iter().map(describe).collect()
    }
}
