//! OffsetDelete: deletes offsets of topics that no member subscribes to.
//! Source: `OffsetMetadataManager.deleteOffsets`, `ClassicGroup.validateOffsetDelete`; KIP-496.

use ottla_protocol::messages::offset_delete_response::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use ottla_protocol::messages::{OffsetDeleteRequest, OffsetDeleteResponse};
use ottla_types::{ErrorCode, Timestamp};

use super::classic_group::ClassicGroupState;
use super::coordinator::{Deferred, Group, GroupCoordinator};
use super::expiry::is_subscribed_to;
use super::member::owned;
use super::outcome::{Outcome, ReplyTo};
use super::record::CoordinatorRecord;

impl GroupCoordinator {
    /// The topics and partitions in `request` must exist.
    pub fn handle_offset_delete(
        &mut self,
        to: ReplyTo<OffsetDeleteResponse>,
        request: OffsetDeleteRequest,
        now: Timestamp,
    ) -> Outcome {
        let mut effects = self.effects();
        let validated = match self.group(&request.group_id) {
            _ if request.group_id.is_empty() => Err(ErrorCode::InvalidGroupId),
            None => Err(ErrorCode::GroupIdNotFound),
            Some(Group::Share(_)) => Err(ErrorCode::GroupIdNotFound),
            Some(group) => validate(group).map(|()| group),
        };
        let group = match validated {
            Ok(group) => group,
            Err(error) => {
                effects.refuse(to, error);
                return self.finish(effects);
            }
        };

        let group_id = owned(&request.group_id);
        let mut records = Vec::new();
        let mut topics = Vec::with_capacity(request.topics.len());
        for topic in &request.topics {
            let is_subscribed = is_subscribed_to(group, &topic.name);
            let mut partitions = Vec::with_capacity(topic.partitions.len());
            for partition in &topic.partitions {
                let key = (topic.name.clone(), partition.partition_index);
                let exists = self.offsets.latest(&request.group_id, &key).is_some()
                    || self.offsets.is_pending(&request.group_id, &key);
                if exists && !is_subscribed {
                    records.push(CoordinatorRecord::offset_tombstone(
                        &group_id, &key.0, key.1,
                    ));
                }
                let error = if is_subscribed {
                    ErrorCode::GroupSubscribedToTopic
                } else {
                    ErrorCode::None
                };
                partitions.push(OffsetDeleteResponsePartition {
                    partition_index: partition.partition_index,
                    error_code: error.code(),
                });
            }
            topics.push(OffsetDeleteResponseTopic {
                name: topic.name.clone(),
                partitions,
            });
        }
        let response = OffsetDeleteResponse {
            topics,
            ..Default::default()
        };
        let reply = Deferred::Reply(to.with(response));
        self.apply_and_write(records, reply, now, &mut effects);
        self.finish(effects)
    }
}

fn validate(group: &Group) -> Result<(), ErrorCode> {
    let Group::Classic(group) = group else {
        return Ok(());
    };
    // Subscriptions are known only for consumers.
    if group.is_in(ClassicGroupState::Empty) || group.uses_consumer_protocol() {
        Ok(())
    } else {
        Err(ErrorCode::NonEmptyGroup)
    }
}
