//! TxnOffsetCommit, and the end of transactions: offsets are pending until a marker commits or
//! aborts them. Source: `OffsetMetadataManager.commitTransactionalOffset`,
//! `validateTransactionalOffsetCommit`, `CoordinatorRuntime.completeTransaction`; KIP-98, KIP-447, KIP-1319.

use bytestring::ByteString;
use ottla_protocol::messages::txn_offset_commit_response::{
    TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use ottla_protocol::messages::{TxnOffsetCommitRequest, TxnOffsetCommitResponse};
use ottla_types::{ErrorCode, ProducerEpoch, ProducerId, Timestamp};

use super::classic_group::{ClassicGroup, ClassicGroupState};
use super::consumer::Committer;
use super::coordinator::{Deferred, Group, GroupCoordinator};
use super::member::owned;
use super::offset_commit::is_metadata_too_large;
use super::offsets::OffsetAndMetadata;
use super::outcome::{Outcome, ReplyTo};
use super::record::CoordinatorRecord;
use crate::runtime::{TransactionEnd, TransactionalProducer, WriteKind};

impl GroupCoordinator {
    /// The topics and partitions in `request` must exist, with names and IDs, and the transaction
    /// must have been verified with the transaction coordinator. `tells_stale_members`: whether the
    /// client understands `STALE_MEMBER_EPOCH` and `GROUP_ID_NOT_FOUND`. `guard` is the log's guard of that verification,
    /// `None` if the transaction already has offsets here.
    pub fn handle_txn_offset_commit(
        &mut self,
        to: ReplyTo<TxnOffsetCommitResponse>,
        request: TxnOffsetCommitRequest,
        tells_stale_members: bool,
        guard: Option<u64>,
        now: Timestamp,
    ) -> Outcome {
        let mut effects = self.effects();
        if let Err(error) = self.validate_txn_commit(&request, tells_stale_members) {
            effects.reply(to, response(&request, |_| error));
            return self.finish(effects);
        }
        let group_id = owned(&request.group_id);
        self.create_group(&group_id, effects.next_write(), now);
        let max_metadata = self.config.offset_metadata_max_bytes;
        let error_of = |metadata: &Option<ByteString>| match metadata {
            Some(text) if is_metadata_too_large(text, max_metadata) => {
                ErrorCode::OffsetMetadataTooLarge
            }
            _ => ErrorCode::None,
        };
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
                    commit_timestamp_ms: now.value(),
                    expire_timestamp_ms: None,
                    topic_id: topic.topic_id,
                    record_offset: -1,
                };
                let index = partition.partition_index;
                records.push(CoordinatorRecord::offset_commit(
                    &group_id, &name, index, &offset,
                ));
            }
        }
        let response = response(&request, error_of);
        if records.is_empty() {
            self.reply_when_committed(to, response, &mut effects);
            return self.finish(effects);
        }
        let producer = TransactionalProducer {
            id: ProducerId(request.producer_id),
            epoch: ProducerEpoch(request.producer_epoch),
        };
        let reply = Deferred::Reply(to.with(response));
        self.apply_and_write_transactional(producer, guard, records, reply, now, &mut effects);
        self.finish(effects)
    }

    /// Refuses a commit that was not looked at.
    pub fn refuse_txn_offset_commit(
        &mut self,
        to: ReplyTo<TxnOffsetCommitResponse>,
        request: &TxnOffsetCommitRequest,
        error: ErrorCode,
    ) -> Outcome {
        let mut effects = self.effects();
        effects.reply(to, response(request, |_| error));
        self.finish(effects)
    }

    /// The transaction coordinator ends the transaction of `producer` in this partition. Its
    /// pending offsets become committed or are dropped. An administrator can also request it for
    /// any producer.
    pub fn handle_transaction_end(
        &mut self,
        to: ReplyTo<ErrorCode>,
        producer: TransactionalProducer,
        marker: TransactionEnd,
    ) -> Outcome {
        let mut effects = self.effects();
        if producer.id == ProducerId::NONE || producer.epoch == ProducerEpoch::NONE {
            // Kafka cannot write such a marker either: `MemoryRecords.withEndTransactionMarker`.
            effects.reply(to, ErrorCode::UnknownServerError);
            return self.finish(effects);
        }
        let write = effects.next_write();
        self.apply_transaction_end(write, producer.id.value(), marker.is_commit);
        effects.write_as(
            WriteKind::EndTransaction { producer, marker },
            Vec::new(),
            Deferred::Reply(to.with(ErrorCode::None)),
        );
        self.finish(effects)
    }

    fn validate_txn_commit(
        &self,
        request: &TxnOffsetCommitRequest,
        tells_stale_members: bool,
    ) -> Result<(), ErrorCode> {
        let committer = Committer {
            member_id: &request.member_id,
            instance_id: request.group_instance_id.as_ref(),
            member_epoch: request.generation_id_or_member_epoch,
            is_transactional: true,
            knows_consumer_groups: true,
        };
        let max_metadata = self.config.offset_metadata_max_bytes;
        let to_commit = request.topics.iter().flat_map(|topic| {
            let to_commit = topic.partitions.iter().filter(move |partition| {
                let metadata = partition.committed_metadata.as_deref();
                !metadata.is_some_and(|text| is_metadata_too_large(text, max_metadata))
            });
            to_commit.map(move |partition| (topic, partition.partition_index))
        });
        // For older producers, every late commit belongs to an earlier generation.
        let of_former_generation = |error| match error {
            ErrorCode::StaleMemberEpoch if !tells_stale_members => ErrorCode::IllegalGeneration,
            error => error,
        };
        match self.group(&request.group_id) {
            Some(Group::Classic(group)) => validate(group, request),
            Some(Group::Share(_)) => Err(ErrorCode::GroupIdNotFound),
            Some(Group::Consumer(group)) => {
                let partitions = to_commit.map(|(topic, index)| (Some(topic.topic_id), index));
                let result = group.validate_commit(&committer, partitions);
                result.map_err(of_former_generation)
            }
            Some(Group::Streams(group)) => {
                let partitions = to_commit.map(|(topic, index)| (&topic.name, index));
                let result = group.validate_commit(&committer, partitions);
                result.map_err(of_former_generation)
            }
            None if request.generation_id_or_member_epoch < 0 => Ok(()),
            None if tells_stale_members => Err(ErrorCode::GroupIdNotFound),
            None => Err(ErrorCode::IllegalGeneration),
        }
    }
}

/// As for other commits, except that older clients send no member id, and a rebalance does not
/// matter.
fn validate(group: &ClassicGroup, request: &TxnOffsetCommitRequest) -> Result<(), ErrorCode> {
    let generation_id = request.generation_id_or_member_epoch;
    if generation_id < 0 && group.is_in(ClassicGroupState::Empty) {
        return Ok(());
    }
    let instance_id = request.group_instance_id.as_deref();
    group
        .validate_committer(&request.member_id, instance_id, generation_id)
        .map(drop)
}

fn response(
    request: &TxnOffsetCommitRequest,
    error_of: impl Fn(&Option<ByteString>) -> ErrorCode,
) -> TxnOffsetCommitResponse {
    let topics = request
        .topics
        .iter()
        .map(|topic| TxnOffsetCommitResponseTopic {
            name: topic.name.clone(),
            topic_id: topic.topic_id,
            partitions: topic
                .partitions
                .iter()
                .map(|partition| TxnOffsetCommitResponsePartition {
                    partition_index: partition.partition_index,
                    error_code: error_of(&partition.committed_metadata).code(),
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        });
    TxnOffsetCommitResponse {
        topics: topics.collect(),
        ..Default::default()
    }
}
