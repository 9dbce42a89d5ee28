//! TxnOffsetCommit: stores the offsets of a group as part of a transaction. They become effective
//! when the transaction is committed.
//!
//! Kafka: `KafkaApis.handleTxnOffsetCommitRequest`, `GroupCoordinatorService.commitTransactionalOffsets`.

use std::sync::Arc;

use ottla_coordinator::TransactionalProducer;
use ottla_coordinator::error_after_append;
use ottla_coordinator::group::GroupCoordinator;
use ottla_protocol::messages::txn_offset_commit_request::TxnOffsetCommitRequestTopic;
use ottla_protocol::messages::txn_offset_commit_response::{
    TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use ottla_protocol::messages::{TxnOffsetCommitRequest, TxnOffsetCommitResponse};
use ottla_sync::oneshot;
use ottla_types::{ErrorCode, PartitionIndex, ProducerEpoch, ProducerId};

use ottla_coordination::groups::OFFSETS_TOPIC;
use ottla_coordination::runtime::Shard;
use ottla_net::{Operation, RequestContext, ResourceType};
use ottla_partition::partition::Partition;
use ottla_partition::partition::producer_transaction::{AddedBy, AskedFor, ProducerTransaction};

use super::merged::merge_by;
use super::offset_commit::take_unknown;
use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    mut request: TxnOffsetCommitRequest,
) -> TxnOffsetCommitResponse {
    let authorizer = &broker.authorizer;
    let (write, of_id) = (Operation::Write, ResourceType::TransactionalId);
    if !authorizer.is_allowed(context, write, of_id, &request.transactional_id) {
        let error = ErrorCode::TransactionalIdAuthorizationFailed;
        return all_failed(&request.topics, error);
    }
    let read = Operation::Read;
    if !authorizer.is_allowed(context, read, ResourceType::Group, &request.group_id) {
        return all_failed(&request.topics, ErrorCode::GroupAuthorizationFailed);
    }
    let image = broker.metadata().clone();
    let uses_topic_ids = context.api_version >= 6;
    let mut refused = Vec::new();
    let mut topics = Vec::with_capacity(request.topics.len());
    for mut topic in std::mem::take(&mut request.topics) {
        if uses_topic_ids {
            match image.topics.by_id(topic.topic_id) {
                Some(known) => topic.name = known.name.clone(),
                None => {
                    refused.push(failed(&topic, ErrorCode::UnknownTopicId));
                    continue;
                }
            }
        }
        if !authorizer.is_allowed(context, read, ResourceType::Topic, &topic.name) {
            refused.push(failed(&topic, ErrorCode::TopicAuthorizationFailed));
            continue;
        }
        if let Some(known) = image.topics.by_name(&topic.name) {
            topic.topic_id = known.id;
        }
        let unknown = take_unknown(&image, &topic.name, &mut topic.partitions, |it| {
            it.partition_index
        });
        if !unknown.is_empty() {
            let unknown = TxnOffsetCommitRequestTopic {
                name: topic.name.clone(),
                topic_id: topic.topic_id,
                partitions: unknown,
                ..Default::default()
            };
            refused.push(failed(&unknown, ErrorCode::UnknownTopicOrPartition));
        }
        if !topic.partitions.is_empty() {
            topics.push(topic);
        }
    }
    let mut response = TxnOffsetCommitResponse {
        topics: refused,
        ..Default::default()
    };
    if topics.is_empty() {
        return response;
    }
    request.topics = topics.clone();
    let committed = match commit(broker, context, request).await {
        Ok(committed) => committed,
        Err(error) => all_failed(&topics, for_version(error, context.api_version)),
    };
    let key = |topic: &TxnOffsetCommitResponseTopic| (topic.topic_id, topic.name.clone());
    merge_by(
        &mut response.topics,
        committed.topics,
        key,
        |known, topic| {
            known.partitions.extend(topic.partitions);
        },
    );
    response
}

fn for_version(error: ErrorCode, version: i16) -> ErrorCode {
    match error {
        // Producers before version 2.0 fail with this error.
        ErrorCode::CoordinatorLoadInProgress if version < 2 => ErrorCode::CoordinatorNotAvailable,
        error => error,
    }
}

async fn commit(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: TxnOffsetCommitRequest,
) -> Result<TxnOffsetCommitResponse, ErrorCode> {
    if request.group_id.is_empty() {
        return Err(ErrorCode::InvalidGroupId);
    }
    let coordinator = coordinator_of(broker, &request.group_id)?;
    let transaction = ProducerTransaction {
        transactional_id: request.transactional_id.clone(),
        producer: TransactionalProducer {
            id: ProducerId(request.producer_id),
            epoch: ProducerEpoch(request.producer_epoch),
        },
        added_by: match context.api_version {
            ..=3 => AddedBy::Client,
            4 => AddedBy::ClientThatMayAbort,
            5.. => AddedBy::Broker,
        },
        asked_for: AskedFor::Coordinator,
    };
    let guard = verify(broker, coordinator.partition(), transaction)
        .await
        .map_err(error_after_append)?;
    let tells_stale_members = context.api_version >= 6;
    let committed = coordinator.request(&broker.groups, |coordinator, to, now| {
        let commit = request.topics.iter().flat_map(|topic| {
            let partitions = topic.partitions.iter();
            partitions.map(move |it| (&topic.name, it.partition_index, &it.committed_metadata))
        });
        if broker.context.is_heap_full()
            && coordinator.grows_with(&request.group_id, commit)
            && let Err(error) = broker.context.check_heap()
        {
            let error = for_version(error, context.api_version);
            return coordinator.refuse_txn_offset_commit(to, &request, error);
        }
        coordinator.handle_txn_offset_commit(to, request, tells_stale_members, guard, now)
    });
    committed.await
}

/// Kafka looks up the partition to verify the transaction. If the offsets topic does not exist, it
/// finds none; if another broker leads the partition, this broker is not the coordinator.
fn coordinator_of(
    broker: &Broker,
    group_id: &str,
) -> Result<Arc<Shard<GroupCoordinator>>, ErrorCode> {
    broker.groups.coordinator_of(group_id).map_err(|error| {
        let index = PartitionIndex(broker.groups.partition_of(group_id));
        let image = broker.metadata();
        match image.topics.partition(OFFSETS_TOPIC, index) {
            Some(_) => error,
            None => error_after_append(ErrorCode::UnknownTopicOrPartition),
        }
    })
}

/// Ensures that the group's partition is part of the transaction before anything is written to it.
async fn verify(
    broker: &Arc<Broker>,
    partition: &Arc<Partition>,
    transaction: ProducerTransaction,
) -> Result<Option<u64>, ErrorCode> {
    let producer = transaction.producer;
    let raises_epoch = transaction.adds_partitions();
    let guard = partition
        .begin_verification(&broker.host, producer, raises_epoch)
        .await?;
    let is_asked = raises_epoch || broker.config().transaction_partition_verification_enable;
    let Some(asked_under) = guard.filter(|_| is_asked) else {
        return Ok(guard);
    };
    let (answer, answered) = oneshot::channel();
    // The receiver is dropped if the connection has ended.
    let answer = Box::new(move |result| {
        let _ = answer.send(result);
    });
    let verifier = &broker.transactions.verifier;
    let topic_partition = partition.topic_partition.clone();
    verifier.ask(Arc::new(transaction), topic_partition, answer);
    let result = answered.await.unwrap_or(Err(ErrorCode::NetworkException));
    if let Err(error) = result {
        partition.on_transaction_verified(&broker.host, producer, asked_under, Err(error));
        return Err(error);
    }
    Ok(guard)
}

fn failed(topic: &TxnOffsetCommitRequestTopic, error: ErrorCode) -> TxnOffsetCommitResponseTopic {
    let partitions = topic
        .partitions
        .iter()
        .map(|partition| TxnOffsetCommitResponsePartition {
            partition_index: partition.partition_index,
            error_code: error.code(),
            ..Default::default()
        });
    TxnOffsetCommitResponseTopic {
        name: topic.name.clone(),
        topic_id: topic.topic_id,
        partitions: partitions.collect(),
        ..Default::default()
    }
}

fn all_failed(topics: &[TxnOffsetCommitRequestTopic], error: ErrorCode) -> TxnOffsetCommitResponse {
    TxnOffsetCommitResponse {
        topics: topics.iter().map(|topic| failed(topic, error)).collect(),
        ..Default::default()
    }
}
