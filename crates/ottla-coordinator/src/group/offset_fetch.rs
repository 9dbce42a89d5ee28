//! OffsetFetch, for one group: some partitions or all.
//!
//! With `require_stable`, the response is built from the latest state and waits until that is
//! committed. Otherwise it is built from the committed state and sent at once. Source:
//! `OffsetMetadataManager.fetchOffsets` and `fetchAllOffsets`; KIP-447.

use ottla_protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;
use ottla_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartitions, OffsetFetchResponseTopics,
};
use ottla_types::{ErrorCode, TopicId};

use super::coordinator::{Group, GroupCoordinator};
use super::offsets::{OffsetAndMetadata, TopicAndPartition};
use super::outcome::{Outcome, ReplyTo};

const INVALID_OFFSET: i64 = -1;

impl GroupCoordinator {
    /// Topics in `request` must have their name. Without topics, all offsets of the group are
    /// returned.
    pub fn handle_offset_fetch(
        &mut self,
        to: ReplyTo<OffsetFetchResponseGroup>,
        request: &OffsetFetchRequestGroup,
        require_stable: bool,
    ) -> Outcome {
        let mut effects = self.effects();
        if let Err(error) = self.validate_fetch(request, require_stable) {
            let response = OffsetFetchResponseGroup {
                group_id: request.group_id.clone(),
                error_code: error.code(),
                ..Default::default()
            };
            effects.reply(to, response);
            return self.finish(effects);
        }
        let topics = match &request.topics {
            None => self.fetch_all(request, require_stable),
            Some(topics) => topics
                .iter()
                .map(|topic| OffsetFetchResponseTopics {
                    name: topic.name.clone(),
                    topic_id: topic.topic_id,
                    partitions: topic
                        .partition_indexes
                        .iter()
                        .map(|index| {
                            let partition = (topic.name.clone(), *index);
                            self.fetch(request, &partition, topic.topic_id, require_stable)
                        })
                        .collect(),
                    ..Default::default()
                })
                .collect(),
        };
        let response = OffsetFetchResponseGroup {
            group_id: request.group_id.clone(),
            topics,
            ..Default::default()
        };
        if require_stable {
            self.reply_when_committed(to, response, &mut effects);
        } else {
            effects.reply(to, response);
        }
        self.finish(effects)
    }

    /// Members of a consumer group must identify themselves. A fetch for a group that does not
    /// exist finds no offsets.
    fn validate_fetch(
        &self,
        request: &OffsetFetchRequestGroup,
        require_stable: bool,
    ) -> Result<(), ErrorCode> {
        let group = if require_stable {
            self.group(&request.group_id)
        } else {
            self.committed_group(&request.group_id)
        };
        let fetch_epoch: &dyn Fn(&str) -> _ = match group {
            Some(Group::Consumer(group)) => &|id| group.fetch_epoch(id),
            Some(Group::Streams(group)) => &|id| group.fetch_epoch(id),
            Some(Group::Share(_)) => return Err(ErrorCode::GroupIdNotFound),
            Some(Group::Classic(_)) | None => return Ok(()),
        };
        let Some(member_id) = &request.member_id else {
            // Tools send no member and no epoch.
            let is_no_member = request.member_epoch < 0;
            return is_no_member.then_some(()).ok_or(ErrorCode::UnknownMemberId);
        };
        match fetch_epoch(member_id) {
            None => Err(ErrorCode::UnknownMemberId),
            Some((epoch, _)) if epoch == request.member_epoch => Ok(()),
            Some((_, error)) => Err(error),
        }
    }

    fn fetch(
        &self,
        request: &OffsetFetchRequestGroup,
        partition: &TopicAndPartition,
        topic_id: TopicId,
        require_stable: bool,
    ) -> OffsetFetchResponsePartitions {
        let group_id = &request.group_id;
        let offset = if require_stable {
            self.offsets.latest(group_id, partition)
        } else {
            self.offsets.committed(group_id, partition)
        };
        // The topic may have been deleted and created again.
        let is_same_topic = |offset: &&OffsetAndMetadata| {
            offset.topic_id.is_zero() || topic_id.is_zero() || offset.topic_id == topic_id
        };
        if require_stable && self.offsets.is_pending(group_id, partition) {
            unstable(partition.1)
        } else {
            found(partition.1, offset.filter(is_same_topic))
        }
    }

    fn fetch_all(
        &self,
        request: &OffsetFetchRequestGroup,
        require_stable: bool,
    ) -> Vec<OffsetFetchResponseTopics> {
        let group_id = &request.group_id;
        let mut topics: Vec<OffsetFetchResponseTopics> = Vec::new();
        let mut add = |key: &TopicAndPartition, offset: &OffsetAndMetadata| {
            let (topic, index) = key;
            let partition = if require_stable && self.offsets.is_pending(group_id, key) {
                unstable(*index)
            } else {
                found(*index, Some(offset))
            };
            match topics.last_mut() {
                Some(last) if last.name == *topic => last.partitions.push(partition),
                _ => topics.push(OffsetFetchResponseTopics {
                    name: topic.clone(),
                    partitions: vec![partition],
                    ..Default::default()
                }),
            }
        };
        if require_stable {
            let offsets = self.offsets.latest_of_group(group_id);
            offsets.for_each(|(partition, offset)| add(partition, offset));
        } else {
            let offsets = self.offsets.committed_of_group(group_id);
            offsets.for_each(|(partition, offset)| add(partition, offset));
        }
        topics
    }
}

fn found(index: i32, offset: Option<&OffsetAndMetadata>) -> OffsetFetchResponsePartitions {
    match offset {
        Some(offset) => OffsetFetchResponsePartitions {
            partition_index: index,
            committed_offset: offset.committed_offset,
            committed_leader_epoch: offset.leader_epoch,
            metadata: Some(offset.metadata.clone()),
            ..Default::default()
        },
        None => OffsetFetchResponsePartitions {
            partition_index: index,
            committed_offset: INVALID_OFFSET,
            committed_leader_epoch: -1,
            metadata: Some(Default::default()),
            ..Default::default()
        },
    }
}

/// An open transaction has a pending offset for this partition.
fn unstable(index: i32) -> OffsetFetchResponsePartitions {
    OffsetFetchResponsePartitions {
        error_code: ErrorCode::UnstableOffsetCommit.code(),
        ..found(index, None)
    }
}
