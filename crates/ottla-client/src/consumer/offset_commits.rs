//! Offsets to commit, what is told of them, and the commits that nobody waits for.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use ottla_sync::Mutex;
use ottla_sync::task::JoinHandle;
use ottla_types::Uuid;

use super::Partition;
use crate::error::ClientError;
use crate::metadata::Metadata;

/// An offset to commit: that of the next record to read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommitOffset {
    pub offset: i64,
    /// Of the record before, -1 where it is not known.
    pub leader_epoch: i32,
    pub metadata: String,
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
pub(super) fn commit_topics(
    metadata: &Metadata,
    offsets: &BTreeMap<Partition, CommitOffset>,
) -> Vec<OffsetCommitRequestTopic> {
    let topic_id = |topic: &str| {
        metadata
            .topics
            .get(topic)
            .map_or(Uuid::ZERO, |it| it.topic_id)
    };
    let mut topics: Vec<OffsetCommitRequestTopic> = Vec::new();
    for ((topic, partition), offset) in offsets {
        let committed = OffsetCommitRequestPartition {
            partition_index: *partition,
            committed_offset: offset.offset,
            committed_leader_epoch: offset.leader_epoch,
            committed_metadata: Some(offset.metadata.clone().into()),
            ..Default::default()
        };
        match topics.last_mut() {
            Some(last) if *last.name == **topic => last.partitions.push(committed),
            _ => topics.push(OffsetCommitRequestTopic {
                name: topic.clone().into(),
                topic_id: topic_id(topic),
                partitions: vec![committed],
                ..Default::default()
            }),
        }
    }
    topics
}
