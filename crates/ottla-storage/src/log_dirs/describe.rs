//! The data for DescribeLogDirs. Kafka: `ReplicaManager.describeLogDirs`.

use std::path::PathBuf;
use std::sync::Arc;

use ottla_sync::fs::Space;
use ottla_types::{DirectoryId, TopicPartition};

use super::LogDirs;
use super::log_dir::LogDir;

/// One directory and its logs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogDirDescription {
    pub path: PathBuf,
    pub directory_id: DirectoryId,
    pub is_online: bool,
    pub is_cordoned: bool,
    /// Of the file system; -1 if unknown.
    pub total_bytes: i64,
    pub usable_bytes: i64,
    /// Number of uncleanable partitions.
    pub uncleanable_partitions: usize,
    pub partitions: Vec<PartitionSize>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionSize {
    pub topic_partition: TopicPartition,
    /// Size of all segments' `.log` files.
    pub size_bytes: i64,
    /// The lag of the log end offset behind the high watermark. For a copy, the lag behind the log
    /// that it will replace.
    pub offset_lag: i64,
    /// A copy that will replace the log in another directory.
    pub is_future: bool,
}

impl LogDirs {
    /// All directories; an offline one has no partitions.
    pub fn describe(&self) -> Vec<LogDirDescription> {
        // Before any lock is taken, because a disk may hang.
        let space = |dir: &Arc<LogDir>| ottla_sync::fs::space(&dir.path).ok();
        let spaces: Vec<_> = self.dirs.iter().map(space).collect();
        let hosted = self.hosted.read();
        let futures = self.futures.read();
        let describe = |(dir, space): (&Arc<LogDir>, Option<Space>)| {
            let is_online = dir.is_online();
            let space = space.filter(|_| is_online);
            let bytes = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
            let logs = hosted
                .iter()
                .filter(|(_, log)| is_online && Arc::ptr_eq(&log.dir, dir));
            let uncleanable = logs
                .clone()
                .filter(|(topic_partition, _)| self.cleaner.is_uncleanable(topic_partition))
                .count();
            let mut partitions: Vec<PartitionSize> = logs
                .map(|(topic_partition, log)| PartitionSize {
                    topic_partition: topic_partition.clone(),
                    size_bytes: i64::try_from(log.reader.size()).unwrap_or(i64::MAX),
                    offset_lag: log
                        .reader
                        .high_watermark()
                        .since(log.reader.log_end_offset())
                        .max(0),
                    is_future: false,
                })
                .collect();
            let copies = futures
                .iter()
                .filter(|(_, copy)| is_online && Arc::ptr_eq(&copy.dir, dir));
            partitions.extend(copies.map(|(topic_partition, copy)| {
                let log = hosted.get(topic_partition);
                let end = log.map(|log| log.reader.log_end_offset());
                PartitionSize {
                    topic_partition: topic_partition.clone(),
                    size_bytes: i64::try_from(copy.reader.size()).unwrap_or(i64::MAX),
                    // -1 if the log is offline.
                    offset_lag: end.map_or(-1, |end| end.since(copy.reader.log_end_offset())),
                    is_future: true,
                }
            }));
            partitions.sort_by(|a, b| a.topic_partition.cmp(&b.topic_partition));
            LogDirDescription {
                path: dir.path.clone(),
                directory_id: dir.directory_id,
                is_online,
                is_cordoned: dir.is_cordoned(),
                total_bytes: space.map_or(-1, |space| bytes(space.total_bytes)),
                usable_bytes: space.map_or(-1, |space| bytes(space.available_bytes)),
                uncleanable_partitions: uncleanable,
                partitions,
            }
        };
        self.dirs.iter().zip(spaces).map(describe).collect()
    }
}
