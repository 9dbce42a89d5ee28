//! Offsets to commit, what is told of them, and the commits that nobody waits for.

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

/// An offset to commit: that of the next record to read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommitOffset {
    pub offset: i64,
    /// Of the record before, -1 where it is not known.
    pub leader_epoch: i32,
    pub metadata: String,
}

impl CommitOffset {
    pub fn new(offset: i64) -> CommitOffset {
        CommitOffset {
            offset,
            leader_epoch: -1,
            metadata: String::new(),
        }
    }
}

/// Is told what became of a commit that nobody waited for
/// (`org.apache.kafka.clients.consumer.OffsetCommitCallback`).
pub type CommitCallback =
    Box<dyn FnOnce(&BTreeMap<Partition, CommitOffset>, Result<(), ClientError>) + Send>;

/// Commits that nobody waits for.
#[derive(Default)]
pub(super) struct Commits {
    pub(super) last: Option<JoinHandle<()>>,
    /// Those that have been answered, whose callbacks have not been called.
    pub(super) answered: Arc<Mutex<Vec<Answered>>>,
}

pub(super) struct Answered {
    pub(super) offsets: BTreeMap<Partition, CommitOffset>,
    pub(super) result: Result<(), ClientError>,
    pub(super) callback: Option<CommitCallback>,
}

/// Offsets as a request to commit them names them.
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
