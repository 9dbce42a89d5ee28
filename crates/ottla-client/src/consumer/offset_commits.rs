//! Offsets to commit, and asynchronous commits.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use ottla_sync::Mutex;
use ottla_sync::task::JoinHandle;

use super::Partition;
use crate::error::ClientError;
use crate::metadata::Metadata;
use crate::partitions::by_topic;

/// An offset to commit, which is that of the next record to read.
///
/// ```
/// use ottla_client::CommitOffset;
///
/// let offset = CommitOffset { metadata: "file 7".to_owned(), ..CommitOffset::new(4200) };
/// # assert_eq!(offset.leader_epoch, -1);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommitOffset {
    pub offset: i64,
    /// The leader epoch of the record before it; -1 if unknown.
    pub leader_epoch: i32,
    pub metadata: String,
}

impl CommitOffset {
    /// The offset without a leader epoch and without metadata.
    ///
    /// ```
    /// use ottla_client::CommitOffset;
    ///
    /// let offset = CommitOffset::new(4200);
    /// assert_eq!((offset.offset, offset.leader_epoch), (4200, -1));
    /// ```
    pub fn new(offset: i64) -> CommitOffset {
        CommitOffset {
            offset,
            leader_epoch: -1,
            metadata: String::new(),
        }
    }
}

/// Called with the result of an asynchronous commit
/// (`org.apache.kafka.clients.consumer.OffsetCommitCallback`).
///
/// ```no_run
/// # fn example(consumer: &mut ottla_client::Consumer) -> Result<(), ottla_client::ClientError> {
/// use ottla_client::CommitCallback;
///
/// let tell: CommitCallback = Box::new(|offsets, committed| {
///     println!("{} offsets: {committed:?}", offsets.len());
/// });
/// consumer.commit_async(Some(tell))?;
/// # Ok(())
/// # }
/// ```
pub type CommitCallback =
    Box<dyn FnOnce(&BTreeMap<Partition, CommitOffset>, Result<(), ClientError>) + Send>;

/// Asynchronous commits.
#[derive(Default)]
pub(super) struct Commits {
    pub(super) last: Option<JoinHandle<()>>,
    /// Answered commits whose callbacks have not been called yet.
    pub(super) answered: Arc<Mutex<Vec<Answered>>>,
}

pub(super) struct Answered {
    pub(super) offsets: BTreeMap<Partition, CommitOffset>,
    pub(super) result: Result<(), ClientError>,
    pub(super) callback: Option<CommitCallback>,
}

/// Converts offsets to the fields of a commit request.
pub(crate) fn commit_topics(
    metadata: &Metadata,
    offsets: &BTreeMap<Partition, CommitOffset>,
) -> Vec<OffsetCommitRequestTopic> {
    let committed = offsets.iter().map(|(partition, offset)| {
        let committed = OffsetCommitRequestPartition {
            partition_index: partition.1,
            committed_offset: offset.offset,
            committed_leader_epoch: offset.leader_epoch,
            committed_metadata: Some(offset.metadata.clone().into()),
            ..Default::default()
        };
        (partition, committed)
    });
    let topics = by_topic(committed).into_iter();
    topics
        .map(|(name, partitions)| OffsetCommitRequestTopic {
            name: name.to_owned().into(),
            topic_id: metadata.topic_id(name),
            partitions,
            ..Default::default()
        })
        .collect()
}
