//! The share partitions that are led here, by group.
//! Source: `SharePartitionCache`, `SharePartitionManager.SharePartitionListener`.

use std::sync::Arc;

use hashbrown::HashMap;
use ottla_coordinator::share_state::SharePartitionKey;
use ottla_metadata::MetadataDelta;
use ottla_types::{ErrorCode, TopicIdPartition};
use parking_lot::RwLock;

use super::LedPartition;
use super::ShareGroups;

#[derive(Debug, Default)]
pub struct LedPartitions {
    by_key: RwLock<HashMap<SharePartitionKey, Arc<LedPartition>>>,
}

/// The key of a group's share partition.
pub fn key_of(group_id: &str, partition: TopicIdPartition) -> SharePartitionKey {
    SharePartitionKey {
        group_id: group_id.to_owned().into(),
        topic_id: partition.topic_id,
        partition: partition.partition.0,
    }
}

impl LedPartitions {
    pub fn get(&self, group_id: &str, partition: TopicIdPartition) -> Option<Arc<LedPartition>> {
        self.by_key
            .read()
            .get(&key_of(group_id, partition))
            .cloned()
    }

    /// The share partition, loaded where nobody has asked for it yet; or why it is not here.
    pub fn get_or_open(
        &self,
        share_groups: &Arc<ShareGroups>,
        group_id: &str,
        topic: &str,
        partition: TopicIdPartition,
    ) -> Result<Arc<LedPartition>, ErrorCode> {
        let key = key_of(group_id, partition);
        if let Some(led) = self.by_key.read().get(&key) {
            return Ok(Arc::clone(led));
        }
        let local = share_groups
            .surroundings
            .local_partition(topic, partition.partition.0)?;
        if local.topic_id != partition.topic_id {
            return Err(ErrorCode::UnknownTopicOrPartition);
        }
        if !local.is_leader() {
            return Err(ErrorCode::NotLeaderOrFollower);
        }
        let mut by_key = self.by_key.write();
        let led = by_key
            .entry(key)
            .or_insert_with_key(|key| LedPartition::open(share_groups, key.clone(), local));
        Ok(Arc::clone(led))
    }

    /// It is closed, and loaded anew by whoever asks next.
    pub(super) fn forget(&self, closed: &Arc<LedPartition>) {
        let mut by_key = self.by_key.write();
        if by_key
            .get(&closed.key)
            .is_some_and(|led| Arc::ptr_eq(led, closed))
        {
            by_key.remove(&closed.key);
        }
    }

    /// Nobody of the group reads here any more.
    pub fn close_group(&self, group_id: &str) {
        self.close_if(|led| *led.key.group_id == *group_id);
    }

    /// Partitions whose lead has changed are others' to hand out, or have to be taken up anew.
    pub(super) fn follow_leadership(&self, share_groups: &ShareGroups, delta: &MetadataDelta) {
        if self.by_key.read().is_empty() {
            return;
        }
        let changes = delta.local_changes(share_groups.surroundings.context.broker_id());
        let gone = changes.deleted.iter().chain(&changes.followers);
        for replica in gone {
            self.close_if(|led| {
                let partition = &led.partition.topic_partition;
                partition.topic == replica.topic && partition.partition == replica.partition
            });
        }
        for replica in &changes.leaders {
            self.close_if(|led| {
                let partition = &led.partition.topic_partition;
                partition.topic == replica.topic
                    && partition.partition == replica.partition
                    && led.leader_epoch != replica.registration.leader_epoch
            });
        }
    }

    fn close_if(&self, is_over: impl Fn(&LedPartition) -> bool) {
        let mut over = Vec::new();
        self.by_key.write().retain(|_, led| {
            let is_over = is_over(led);
            if is_over {
                over.push(Arc::clone(led));
            }
            !is_over
        });
        for led in over {
            led.close(ErrorCode::NotLeaderOrFollower.into());
        }
    }
}
