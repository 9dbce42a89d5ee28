//! Topics and their partitions.

use std::fmt;

use bytestring::ByteString;

use crate::{PartitionIndex, TopicId};

/// The name of a topic: cheap to clone, shared with the buffer it was read from.
pub type TopicName = ByteString;

/// A partition, identified by topic name.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicPartition {
    pub topic: TopicName,
    pub partition: PartitionIndex,
}

impl TopicPartition {
    pub fn new(topic: impl Into<TopicName>, partition: i32) -> Self {
        Self {
            topic: topic.into(),
            partition: PartitionIndex(partition),
        }
    }

    /// The name of the partition's directory below a log directory: `<topic>-<partition>`.
    pub fn dir_name(&self) -> String {
        format!("{}-{}", self.topic, self.partition)
    }

    /// Parses a directory name of the form `<topic>-<partition>`. Deleted, future and stray
    /// replicas have a suffix in their names and are rejected.
    pub fn from_dir_name(name: &str) -> Result<Self, TopicPartitionDirError> {
        let (topic, partition) = Self::split_dir_name(name)?;
        Ok(Self::new(topic.to_owned(), partition.0))
    }

    /// The same without a copy of the topic's name.
    pub fn split_dir_name(name: &str) -> Result<(&str, PartitionIndex), TopicPartitionDirError> {
        let error = || TopicPartitionDirError(name.to_owned());
        let (topic, partition) = name.rsplit_once('-').ok_or_else(error)?;
        let digits_only = !partition.is_empty() && partition.bytes().all(|b| b.is_ascii_digit());
        if topic.is_empty() || !digits_only {
            return Err(error());
        }
        let partition = partition.parse().map_err(|_| error())?;
        Ok((topic, PartitionIndex(partition)))
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

impl fmt::Debug for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The directory name is not `<topic>-<partition>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicPartitionDirError(pub String);

impl fmt::Display for TopicPartitionDirError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "directory {:?} is not of the form <topic>-<partition>",
            self.0
        )
    }
}

impl std::error::Error for TopicPartitionDirError {}

/// A partition, identified by topic ID.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct TopicIdPartition {
    pub topic_id: TopicId,
    pub partition: PartitionIndex,
}

#[cfg(test)]
mod tests {
    use super::TopicPartition;

    #[test]
    fn directory_names_round_trip() {
        let partition = TopicPartition::new("orders-eu", 12);
        assert_eq!(partition.dir_name(), "orders-eu-12");
        assert_eq!(TopicPartition::from_dir_name("orders-eu-12"), Ok(partition));
    }

    #[test]
    fn other_directories_are_refused() {
        for name in [
            "orders",
            "-1",
            "orders-",
            "orders-x",
            "orders-+1",
            "orders-99999999999",
        ] {
            assert!(TopicPartition::from_dir_name(name).is_err(), "{name}");
        }
    }
}
