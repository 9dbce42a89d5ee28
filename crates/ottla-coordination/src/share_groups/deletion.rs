//! Deletes the state of share groups at the share coordinators, topic by topic.
//!
//! Kafka: `DefaultStatePersister.deleteState` and its callers in `GroupCoordinatorService`.

use std::sync::Arc;

use bytestring::ByteString;
use ottla_coordinator::group::PartitionsOfTopics;
use ottla_coordinator::persister::SharePartitionKey;
use ottla_types::{ErrorCode, TopicId};

use super::coordinators::ShareCoordinators;
use super::persister;
use super::questions::DeleteState;

/// A topic is deleted if all its partitions are; otherwise one of the errors is returned.
pub async fn delete_state(
    coordinators: &Arc<ShareCoordinators>,
    group_id: &ByteString,
    partitions: &PartitionsOfTopics,
) -> Vec<(TopicId, Result<(), ErrorCode>)> {
    let keys = partitions.iter().flat_map(|(topic_id, partitions)| {
        partitions.iter().map(|partition| SharePartitionKey {
            group_id: group_id.clone(),
            topic_id: *topic_id,
            partition: *partition,
        })
    });
    let questions = keys.map(|key| DeleteState { key }).collect();
    let answers = persister::each(coordinators, questions).await;
    let mut answers = answers.into_iter();
    let topics = partitions.iter().map(|(topic_id, partitions)| {
        let answers: Vec<_> = answers.by_ref().take(partitions.len()).collect();
        let deleted: Result<(), _> = answers.into_iter().collect();
        (*topic_id, deleted.map_err(|failure| failure.code))
    });
    topics.collect()
}
