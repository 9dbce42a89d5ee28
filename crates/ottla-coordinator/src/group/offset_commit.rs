//! OffsetCommit: validates a commit and writes its records.
//! Source: `OffsetMetadataManager.commitOffset`, `ClassicGroup.validateOffsetCommit`.

use bytestring::ByteString;
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
        let mut effects = self.effects();
        if let Err(error) = self.validate_commit(&request, knows_consumer_groups) {
            effects.reply(to, response(&request, |_| error));
            return self.finish(effects);
        }
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

        let max_metadata = self.config.offset_metadata_max_bytes;
        let error_of = |metadata: &Option<ByteString>| match metadata {
            Some(text) if is_metadata_too_large(text, max_metadata) => {
                ErrorCode::OffsetMetadataTooLarge
            }
            _ => ErrorCode::None,
        };
        let now_ms = now.value();
        let expire_timestamp_ms = (request.retention_time_ms != DEFAULT_RETENTION_TIME)
            .then(|| now_ms.saturating_add(request.retention_time_ms));
        let mut records = Vec::new();
        for topic in &request.topics {
            let name = owned(&topic.name);
            for partition in &topic.partitions {
                if error_of(&partition.committed_metadata) != ErrorCode::None {
                    continue;
                }
                let offset = OffsetAndMetadata {
                    committed_offset: partition.committed_offset,
                    leader_epoch: partition.committed_leader_epoch,
                    metadata: partition.committed_metadata.clone().unwrap_or_default(),
                    commit_timestamp_ms: now_ms,
                    expire_timestamp_ms,
                    topic_id: topic.topic_id,
                    record_offset: -1,
                };
                let index = partition.partition_index;
                records.push(CoordinatorRecord::offset_commit(
                    &group_id, &name, index, &offset,
                ));
            }
        }
        let reply = Deferred::Reply(to.with(response(&request, error_of)));
        self.apply_and_write(records, reply, now, &mut effects);
        self.finish(effects)
    }

    /// Refuses a commit that was not looked at.
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

    /// Whether a commit of these topics, partitions and metadata would add offsets to those of the
    /// group, or make metadata longer.
    pub fn grows_with<'a>(
        &self,
        group_id: &str,
        mut commit: impl Iterator<Item = (&'a ByteString, i32, &'a Option<ByteString>)>,
    ) -> bool {
        commit.any(|(topic, index, metadata)| {
            let length = metadata.as_ref().map_or(0, |text| text.len());
            let latest = self.offsets.latest(group_id, &(topic.clone(), index));
            latest.is_none_or(|latest| latest.metadata.len() < length)
        })
    }

    fn validate_commit(
        &self,
        request: &OffsetCommitRequest,
        knows_consumer_groups: bool,
    ) -> Result<(), ErrorCode> {
        let is_member = request.generation_id_or_member_epoch >= 0;
        let committer = Committer {
            member_id: &request.member_id,
            instance_id: request.group_instance_id.as_ref(),
            member_epoch: request.generation_id_or_member_epoch,
            is_transactional: false,
            knows_consumer_groups,
        };
        let max_metadata = self.config.offset_metadata_max_bytes;
        let to_commit = request.topics.iter().flat_map(|topic| {
            let to_commit = topic.partitions.iter().filter(move |partition| {
                let metadata = partition.committed_metadata.as_deref();
                !metadata.is_some_and(|text| is_metadata_too_large(text, max_metadata))
            });
            to_commit.map(move |partition| (topic, partition.partition_index))
        });
        match self.group(&request.group_id) {
            Some(Group::Classic(group)) => validate(group, request),
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
        }
    }
}

fn validate(group: &ClassicGroup, request: &OffsetCommitRequest) -> Result<(), ErrorCode> {
    let generation_id = request.generation_id_or_member_epoch;
    let is_empty = group.is_in(ClassicGroupState::Empty);
    if generation_id < 0 && is_empty {
        // An administrator, or a consumer with manual assignment.
        return Ok(());
    }
    let instance_id = request.group_instance_id.as_deref();
    let names_member = group.validate_committer(&request.member_id, instance_id, generation_id)?;
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

/// Whether a text is longer than `offset.metadata.max.bytes`. Kafka counts Java characters, which
/// are never more than the bytes.
pub(super) fn is_metadata_too_large(text: &str, max: i32) -> bool {
    let max = usize::try_from(max).unwrap_or(0);
    text.len() > max && text.encode_utf16().count() > max
}
