//! DeleteShareGroupState, and the removal of state when topics are deleted. Source:
//! `ShareCoordinatorShard.deleteState`, `ShareCoordinatorShard.maybeCleanupShareState`.

use ottla_types::TopicId;

use super::coordinator::{ShareCoordinator, check_partition};
use super::outcome::{Outcome, StateError};
use super::record::{Change, ShareStateRecord};
use crate::persister::SharePartitionKey;
use crate::runtime::ReplyTo;

impl ShareCoordinator {
    /// `partition_count` is that of the topic, if a topic with this id exists. Deleting state that
    /// does not exist succeeds.
    pub fn delete_state(
        &mut self,
        to: ReplyTo<Result<(), StateError>>,
        key: SharePartitionKey,
        partition_count: Option<i32>,
    ) -> Outcome {
        let response = check_partition(key.partition, partition_count);
        if response.is_err() || self.latest(&key).is_none() {
            return self.answer(to, response);
        }
        self.write(vec![tombstone(key)], Some(to.with(response)))
    }

    pub fn on_topics_deleted(&mut self, deleted: &[TopicId]) -> Outcome {
        let states = self.states.iter();
        let mut keys: Vec<SharePartitionKey> = states
            .filter(|(key, state)| deleted.contains(&key.topic_id) && state.latest().is_some())
            .map(|(key, _)| key.clone())
            .collect();
        if keys.is_empty() {
            return Outcome::default();
        }
        keys.sort();
        self.write(keys.into_iter().map(tombstone).collect(), None)
    }
}

fn tombstone(key: SharePartitionKey) -> ShareStateRecord {
    ShareStateRecord {
        key,
        change: Change::Deleted,
    }
}
