//! Start offsets of a share group, changed or deleted by an administrator. The share coordinators
//! store them. The group coordinator records which partitions have state there, before and after
//! each request to them.
//!
//! AlterShareGroupOffsets has three steps:
//! 1. `handle_alter_share_group_offsets` writes that the initialization of these partitions starts.
//! 2. The shell sends the requests in the response to the share coordinators.
//! 3. `complete_alter_share_group_offsets` writes that the state is initialized, and answers. Kafka
//!    answers before that record is committed. If the record is lost, the next coordinator
//!    initializes the state again when a member joins, and the offsets that were set are lost.
//!
//! DeleteShareGroupOffsets and DeleteGroups work likewise:
//! 1. `begin_delete_share_group_offsets` and `begin_delete_share_groups` write that the deletion of
//!    the state starts.
//! 2. The shell sends the requests to the share coordinators.
//! 3. `complete_delete_share_group_offsets` writes that the state is deleted, and
//!    `handle_delete_groups` deletes the group. The next request repeats the deletion for the state
//!    that the share coordinators have not deleted.
//!
//! Source: `GroupMetadataManager.alterShareGroupOffsets`, `sharePartitionsEligibleForOffsetDeletion`,
//! `completeDeleteShareGroupOffsets`, `shareGroupBuildPartitionDeleteRequest`.

use std::collections::{BTreeMap, BTreeSet};

use bytestring::ByteString;
use ottla_metadata::MetadataImage;
use ottla_protocol::messages::alter_share_group_offsets_response::{
    AlterShareGroupOffsetsResponsePartition, AlterShareGroupOffsetsResponseTopic,
};
use ottla_protocol::messages::delete_share_group_offsets_response::DeleteShareGroupOffsetsResponseTopic;
use ottla_protocol::messages::{
    AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse, DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
};
use ottla_types::{ErrorCode, Offset, Timestamp, TopicId};

use super::group::ShareGroup;
use super::record;
use super::state_partitions::{PartitionsOfTopics, StatePartitions};
use crate::group::coordinator::{Deferred, Effects, GroupCoordinator};
use crate::group::member::owned;
use crate::group::modern::GroupError;
use crate::group::outcome::{
    AlteredShareOffsets, DeletedShareGroups, DeletedShareOffsets, Outcome, ReplyTo, Response,
};
use crate::group::recorded::Decision;
use crate::persister::{InitializeState, SharePartitionKey};

impl GroupCoordinator {
    /// The partitions with state at the share coordinators; empty if there is no such share group.
    pub fn initialized_share_partitions(&self, group_id: &str) -> PartitionsOfTopics {
        let initialized = self
            .share_group(group_id)
            .map(|group| &group.state_partitions().initialized);
        let topics = initialized.into_iter().flatten();
        topics
            .map(|(topic_id, topic)| (*topic_id, topic.partitions.clone()))
            .collect()
    }

    /// Creates the group if it does not exist.
    pub fn handle_alter_share_group_offsets(
        &mut self,
        to: ReplyTo<AlteredShareOffsets>,
        request: &AlterShareGroupOffsetsRequest,
        now: Timestamp,
    ) -> Outcome {
        self.answer(to, |groups, effects| {
            groups.alter_share_group_offsets(to, request, now, effects)
        })
    }

    fn alter_share_group_offsets(
        &mut self,
        to: ReplyTo<AlteredShareOffsets>,
        request: &AlterShareGroupOffsetsRequest,
        now: Timestamp,
        effects: &mut Effects,
    ) -> Result<(), GroupError> {
        let group: ShareGroup = self.group_to_join(&request.group_id, true)?;
        check_empty(&group)?;
        let image = self.metadata.image();
        let (mut known, mut offsets) = (PartitionsOfTopics::new(), BTreeMap::new());
        let mut responses = Vec::with_capacity(request.topics.len());
        for topic in &request.topics {
            let registered = image.topics.by_name(&topic.topic_name);
            let mut partitions = Vec::with_capacity(topic.partitions.len());
            for partition in &topic.partitions {
                let index = partition.partition_index;
                // For a negative index, the share coordinator returns an error of its own.
                let exists = |count: usize| index < count as i32;
                let error = match registered {
                    Some(registered) if exists(registered.partition_count()) => {
                        let start_offset = Offset(partition.start_offset);
                        offsets.insert((registered.id, index), start_offset);
                        None
                    }
                    _ => Some(ErrorCode::UnknownTopicOrPartition),
                };
                partitions.push(AlterShareGroupOffsetsResponsePartition {
                    partition_index: index,
                    error_code: error.map_or(0, ErrorCode::code),
                    error_message: error.map(|error| error.message().into()),
                    ..Default::default()
                });
            }
            if let Some(registered) = registered {
                let named = topic.partitions.iter().map(|it| it.partition_index);
                let all = 0..registered.partition_count() as i32;
                known
                    .entry(registered.id)
                    .or_default()
                    .extend(named.filter(|index| all.contains(index)));
            }
            responses.push(AlterShareGroupOffsetsResponseTopic {
                topic_name: topic.topic_name.clone(),
                topic_id: registered.map(|topic| topic.id).unwrap_or_default(),
                partitions,
                ..Default::default()
            });
        }
        let state_epoch = group.group_epoch;
        let group_id = group.group_id.clone();
        let initialize = offsets.into_iter().map(|((topic_id, partition), offset)| {
            let key = SharePartitionKey {
                group_id: group_id.clone(),
                topic_id,
                partition,
            };
            InitializeState {
                key,
                state_epoch,
                start_offset: offset,
            }
        });
        let response = AlteredShareOffsets {
            response: AlterShareGroupOffsetsResponse {
                responses,
                ..Default::default()
            },
            initialize: initialize.collect(),
        };
        let mut decision = Decision::about(group, now);
        if !known.is_empty() {
            let state = decision.group.state_partitions();
            let state = state.with_initializing(&known, image, now.value());
            decision.write(record::state_partitions(&group_id, &state, image));
        }
        self.conclude(decision, Deferred::Reply(to.with(response)), effects);
        Ok(())
    }

    /// The share coordinators have initialized the state of these partitions, as `response` says.
    pub fn complete_alter_share_group_offsets(
        &mut self,
        to: ReplyTo<AlteredShareOffsets>,
        group_id: &ByteString,
        initialized: &PartitionsOfTopics,
        response: AlterShareGroupOffsetsResponse,
        now: Timestamp,
    ) -> Outcome {
        let response = AlteredShareOffsets {
            response,
            initialize: Vec::new(),
        };
        self.complete(to, response, group_id, now, |state, image| {
            state.with_initialized(initialized, image, now.value())
        })
    }

    pub fn begin_delete_share_group_offsets(
        &mut self,
        to: ReplyTo<DeletedShareOffsets>,
        request: &DeleteShareGroupOffsetsRequest,
        now: Timestamp,
    ) -> Outcome {
        self.answer(to, |groups, effects| {
            groups.delete_share_group_offsets(to, request, now, effects)
        })
    }

    fn delete_share_group_offsets(
        &mut self,
        to: ReplyTo<DeletedShareOffsets>,
        request: &DeleteShareGroupOffsetsRequest,
        now: Timestamp,
        effects: &mut Effects,
    ) -> Result<(), GroupError> {
        let group = self
            .existing_group::<ShareGroup>(&request.group_id)?
            .clone();
        check_empty(&group)?;
        let image = self.metadata.image();
        let mut delete = PartitionsOfTopics::new();
        let mut responses = Vec::new();
        let mut decision = Decision::about(group, now);
        // Kafka omits all topics while the group has no record of its state.
        if let Some(recorded) = decision.group.recorded_state.clone() {
            let mut state = StatePartitions::clone(&recorded);
            for topic in &request.topics {
                let refused = |message: &'static str| DeleteShareGroupOffsetsResponseTopic {
                    topic_name: topic.topic_name.clone(),
                    error_code: ErrorCode::UnknownTopicOrPartition.code(),
                    error_message: Some(message.into()),
                    ..Default::default()
                };
                let Some(registered) = image.topics.by_name(&topic.topic_name) else {
                    responses.push(refused(ErrorCode::UnknownTopicOrPartition.message()));
                    continue;
                };
                if let Some(initialized) = state.initialized.remove(&registered.id) {
                    delete.insert(registered.id, initialized.partitions);
                    state.deleting.insert(registered.id);
                } else if state.deleting.contains(&registered.id) {
                    let all = 0..registered.partition_count() as i32;
                    delete.insert(registered.id, all.collect());
                } else {
                    responses.push(refused("There is no offset information to delete."));
                }
            }
            let group_id = decision.group_id();
            decision.write(record::state_partitions(&group_id, &state, image));
        }
        if !delete.is_empty() {
            self.on_share_deletion_begun(decision.group_id(), now);
        }
        let response = DeletedShareOffsets {
            response: DeleteShareGroupOffsetsResponse {
                responses,
                ..Default::default()
            },
            delete,
        };
        self.conclude(decision, Deferred::Reply(to.with(response)), effects);
        Ok(())
    }

    /// The share coordinators have deleted the state of these topics, as `response` says.
    pub fn complete_delete_share_group_offsets(
        &mut self,
        to: ReplyTo<DeletedShareOffsets>,
        group_id: &ByteString,
        deleted: &BTreeSet<TopicId>,
        response: DeleteShareGroupOffsetsResponse,
        now: Timestamp,
    ) -> Outcome {
        self.share_deletions.remove(group_id);
        let response = DeletedShareOffsets {
            response,
            delete: PartitionsOfTopics::new(),
        };
        self.complete(to, response, group_id, now, |state, _| {
            let mut state = state.clone();
            state
                .deleting
                .retain(|topic_id| !deleted.contains(topic_id));
            state
        })
    }

    /// Writes what the share coordinators have done to the state of a group's partitions, and answers.
    fn complete<R>(
        &mut self,
        to: ReplyTo<R>,
        response: R,
        group_id: &ByteString,
        now: Timestamp,
        change: impl FnOnce(&StatePartitions, &MetadataImage) -> StatePartitions,
    ) -> Outcome
    where
        Response: From<R>,
    {
        let mut effects = self.effects();
        match self.share_group(group_id).cloned() {
            Some(group) => {
                let state = change(group.state_partitions(), self.metadata.image());
                let decision = self.with_state_partitions(group, state, now);
                let reply = Deferred::Reply(to.with(response));
                self.conclude(decision, reply, &mut effects);
            }
            // The group has been deleted.
            None => self.reply_when_committed(to, response, &mut effects),
        }
        self.finish(effects)
    }

    /// The response contains the share groups among these, except those without recorded state:
    /// what the share coordinators must delete before `handle_delete_groups`, or why the group
    /// cannot be deleted.
    pub fn begin_delete_share_groups(
        &mut self,
        to: ReplyTo<Result<DeletedShareGroups, ErrorCode>>,
        group_ids: &[ByteString],
        now: Timestamp,
    ) -> Outcome {
        let mut effects = self.effects();
        let image = self.metadata.image();
        let (mut records, mut found) = (Vec::new(), Vec::new());
        for group_id in group_ids {
            let Some(group) = self.share_group(group_id) else {
                continue;
            };
            if !group.is_empty() {
                found.push((owned(group_id), Err(ErrorCode::NonEmptyGroup)));
                continue;
            }
            let Some(state) = &group.recorded_state else {
                continue;
            };
            let all = state.all(image);
            let deleting = StatePartitions {
                deleting: all.keys().copied().collect(),
                ..StatePartitions::NONE
            };
            records.push(record::state_partitions(group_id, &deleting, image));
            if !all.is_empty() {
                found.push((owned(group_id), Ok(all)));
            }
        }
        let begun = found.iter().filter(|(_, begun)| begun.is_ok());
        for group_id in Vec::from_iter(begun.map(|(group_id, _)| group_id.clone())) {
            self.on_share_deletion_begun(group_id, now);
        }
        let reply = Deferred::Reply(to.with(Ok(found)));
        self.apply_and_write(records, reply, now, &mut effects);
        self.finish(effects)
    }
}

fn check_empty(group: &ShareGroup) -> Result<(), GroupError> {
    if group.is_empty() {
        Ok(())
    } else {
        Err(ErrorCode::NonEmptyGroup.into())
    }
}
