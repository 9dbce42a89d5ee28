//! OffsetCommit: validates a commit and writes its records.
//! Source: `OffsetMetadataManager.commitOffset`, `ClassicGroup.validateOffsetCommit`.

use bytestring::ByteString;
use ottla_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use ottla_protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use ottla_protocol::messages::{OffsetCommitRequest, OffsetCommitResponse};
use ottla_types::{ErrorCode, Timestamp};

use super::classic_group::{ClassicGroup, ClassicGroupState};
use super::consumer::Committer;
use super::coordinator::{Deferred, Group, GroupCoordinator};
use super::member::owned;
use super::offsets::OffsetAndMetadata;
use super::outcome::{Outcome, ReplyTo};
use super::record::CoordinatorRecord;

/// "Use the broker's retention setting."
const DEFAULT_RETENTION_TIME: i64 = -1;

impl GroupCoordinator {
    /// The topics in `request` must exist and have both name and id. `knows_consumer_groups`:
    /// whether the client's version supports consumer groups and the error for a group that does
    /// not exist.
    pub fn handle_offset_commit(
        &mut self,
        to: ReplyTo<OffsetCommitResponse>,
        request: OffsetCommitRequest,
        knows_consumer_groups: bool,
        now: Timestamp,
    ) -> Outcome {
        if let Err(error) = self.validate_commit(&request, false, knows_consumer_groups) {
            return self.refuse_offset_commit(to, &request, error);
        }
        let mut effects = self.effects();
        let group_id = owned(&request.group_id);
        // A commit to a group without members creates a group without a protocol.
        self.create_group(&group_id, effects.next_write(), now);
        self.with_classic_group(&group_id, now, &mut effects, |group, _, effects| {
            let extends_session = matches!(
                group.state(),
                ClassicGroupState::Stable | ClassicGroupState::PreparingRebalance
            );
            if extends_session && let Some(member) = group.member(&request.member_id) {
                let timer = group.session_timer(&member.member_id);
                effects.set_timer(timer, member.session_timeout_ms);
            }
        });
        let expire_timestamp_ms = (request.retention_time_ms != DEFAULT_RETENTION_TIME)
            .then(|| now.value().saturating_add(request.retention_time_ms));
        let records = self.offset_records(&request, expire_timestamp_ms, now);
        let reply = Deferred::Reply(to.with(self.commit_response(&request)));
        self.apply_and_write(records, reply, now, &mut effects);
        self.finish(effects)
    }

    /// Refuses a commit, in a transaction or not.
    pub fn refuse_offset_commit(
        &mut self,
        to: ReplyTo<OffsetCommitResponse>,
        request: &OffsetCommitRequest,
        error: ErrorCode,
    ) -> Outcome {
        let mut effects = self.effects();
        effects.reply(to, response(request, |_| error));
        self.finish(effects)
    }

    /// Whether a commit would add offsets to those of the group, or make metadata longer.
    pub fn grows_with(&self, request: &OffsetCommitRequest) -> bool {
        request.topics.iter().any(|topic| {
            topic.partitions.iter().any(|it| {
                let length = it.committed_metadata.as_ref().map_or(0, |text| text.len());
                let partition = (topic.name.clone(), it.partition_index);
                let latest = self.offsets.latest(&request.group_id, &partition);
                latest.is_none_or(|latest| latest.metadata.len() < length)
            })
        })
    }

    /// `knows_consumer_groups` as in [`Self::handle_offset_commit`]; in a transaction, whether the
    /// client understands `STALE_MEMBER_EPOCH` and `GROUP_ID_NOT_FOUND`.
    pub(super) fn validate_commit(
        &self,
        request: &OffsetCommitRequest,
        is_transactional: bool,
        knows_consumer_groups: bool,
    ) -> Result<(), ErrorCode> {
        let is_member = request.generation_id_or_member_epoch >= 0;
        let committer = Committer {
            member_id: &request.member_id,
            instance_id: request.group_instance_id.as_ref(),
            member_epoch: request.generation_id_or_member_epoch,
            is_transactional,
            knows_consumer_groups,
        };
        let to_commit = request.topics.iter().flat_map(|topic| {
            let to_commit = self.with_valid_metadata(topic);
            to_commit.map(move |partition| (topic, partition.partition_index))
        });
        let result = match self.group(&request.group_id) {
            Some(Group::Classic(group)) => validate(group, request, is_transactional),
            Some(Group::Consumer(group)) => {
                let partitions = to_commit.map(|(topic, index)| (Some(topic.topic_id), index));
                group.validate_commit(&committer, partitions)
            }
            Some(Group::Streams(group)) => {
                let partitions = to_commit.map(|(topic, index)| (&topic.name, index));
                group.validate_commit(&committer, partitions)
            }
            Some(Group::Share(_)) => Err(ErrorCode::GroupIdNotFound),
            None if !is_member => Ok(()),
            None if knows_consumer_groups => Err(ErrorCode::GroupIdNotFound),
            None => Err(ErrorCode::IllegalGeneration),
        };
        result.map_err(|error| match error {
            // For older producers, every late commit belongs to an earlier generation.
            ErrorCode::StaleMemberEpoch if is_transactional && !knows_consumer_groups => {
                ErrorCode::IllegalGeneration
            }
            error => error,
        })
    }

    /// The records of the offsets in `request` whose metadata is not too large.
    pub(super) fn offset_records(
        &self,
        request: &OffsetCommitRequest,
        expire_timestamp_ms: Option<i64>,
        now: Timestamp,
    ) -> Vec<CoordinatorRecord> {
        let group_id = owned(&request.group_id);
        let mut records = Vec::new();
        for topic in &request.topics {
            let name = owned(&topic.name);
            records.extend(self.with_valid_metadata(topic).map(|partition| {
                let offset = OffsetAndMetadata {
                    committed_offset: partition.committed_offset,
                    leader_epoch: partition.committed_leader_epoch,
                    metadata: partition.committed_metadata.clone().unwrap_or_default(),
                    commit_timestamp_ms: now.value(),
                    expire_timestamp_ms,
                    topic_id: topic.topic_id,
                    record_offset: -1,
                };
                let index = partition.partition_index;
                CoordinatorRecord::offset_commit(&group_id, &name, index, &offset)
            }));
        }
        records
    }

    /// The response to a commit whose records are written.
    pub(super) fn commit_response(&self, request: &OffsetCommitRequest) -> OffsetCommitResponse {
        response(request, |metadata| self.metadata_error(metadata))
    }

    fn with_valid_metadata<'a>(
        &'a self,
        topic: &'a OffsetCommitRequestTopic,
    ) -> impl Iterator<Item = &'a OffsetCommitRequestPartition> {
        let partitions = topic.partitions.iter();
        partitions.filter(move |it| self.metadata_error(&it.committed_metadata) == ErrorCode::None)
    }

    /// An error if the metadata is longer than `offset.metadata.max.bytes`. Kafka counts Java
    /// characters, which are never more than the bytes.
    fn metadata_error(&self, metadata: &Option<ByteString>) -> ErrorCode {
        let max = usize::try_from(self.config.offset_metadata_max_bytes).unwrap_or(0);
        match metadata {
            Some(text) if text.len() > max && text.encode_utf16().count() > max => {
                ErrorCode::OffsetMetadataTooLarge
            }
            _ => ErrorCode::None,
        }
    }
}

/// In a transaction, older clients send no member ID, and a rebalance does not matter.
fn validate(
    group: &ClassicGroup,
    request: &OffsetCommitRequest,
    is_transactional: bool,
) -> Result<(), ErrorCode> {
    let generation_id = request.generation_id_or_member_epoch;
    let is_empty = group.is_in(ClassicGroupState::Empty);
    if generation_id < 0 && is_empty {
        // An administrator, or a consumer with manual assignment.
        return Ok(());
    }
    let instance_id = request.group_instance_id.as_deref();
    let names_member = group.validate_committer(&request.member_id, instance_id, generation_id)?;
    if is_transactional {
        return Ok(());
    }
    if !names_member && !is_empty {
        return Err(ErrorCode::UnknownMemberId);
    }
    if group.is_in(ClassicGroupState::CompletingRebalance) {
        // The member knows the new generation but not its assignment yet.
        return Err(ErrorCode::RebalanceInProgress);
    }
    Ok(())
}

fn response(
    request: &OffsetCommitRequest,
    error_of: impl Fn(&Option<ByteString>) -> ErrorCode,
) -> OffsetCommitResponse {
    let topics = request
        .topics
        .iter()
        .map(|topic| OffsetCommitResponseTopic {
            name: topic.name.clone(),
            topic_id: topic.topic_id,
            partitions: topic
                .partitions
                .iter()
                .map(|partition| OffsetCommitResponsePartition {
                    partition_index: partition.partition_index,
                    error_code: error_of(&partition.committed_metadata).code(),
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        });
    OffsetCommitResponse {
        topics: topics.collect(),
        ..Default::default()
    }
}
