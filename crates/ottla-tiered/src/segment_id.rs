//! The IDs in the records of `__remote_log_metadata`: a partition, and one upload of a segment of
//! it.
//!
//! Kafka: `TopicIdPartition`, `RemoteLogSegmentId`.

use std::fmt;

use ottla_types::{PartitionIndex, TopicId, TopicIdPartition, TopicName, TopicPartition, Uuid};

/// A partition with the ID and the name of its topic. The ID decides; the name is for paths in a
/// store and for messages.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RemotePartition {
    pub topic_id: TopicId,
    pub topic: TopicName,
    pub partition: PartitionIndex,
}

impl RemotePartition {
    /// The partition without its name, as caches use it for a key.
    pub fn topic_id_partition(&self) -> TopicIdPartition {
        TopicIdPartition {
            topic_id: self.topic_id,
            partition: self.partition,
        }
    }

    pub fn topic_partition(&self) -> TopicPartition {
        TopicPartition {
            topic: self.topic.clone(),
            partition: self.partition,
        }
    }
}

/// `<topic ID>:<topic>-<partition>`, as Kafka prints a `TopicIdPartition`.
impl fmt::Display for RemotePartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}-{}", self.topic_id, self.topic, self.partition)
    }
}

impl fmt::Debug for RemotePartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// One upload of a segment. A retry, or another leader's upload of the same offsets, has an ID of
/// its own.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct RemoteLogSegmentId {
    pub partition: RemotePartition,
    pub id: Uuid,
}

/// `<topic ID>:<topic>-<partition>:<segment ID>`.
impl fmt::Display for RemoteLogSegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.partition, self.id)
    }
}
