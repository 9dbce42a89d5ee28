//! TxnOffsetCommit: stores the offsets of a group as part of a transaction. They become effective
//! when the transaction is committed.
//!
//! Kafka: `KafkaApis.handleTxnOffsetCommitRequest`, `GroupCoordinatorService.commitTransactionalOffsets`.

use std::sync::Arc;

use ottla_coordinator::TransactionalProducer;
use ottla_coordinator::error_after_append;
use ottla_coordinator::group::GroupCoordinator;
use ottla_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use ottla_protocol::messages::txn_offset_commit_response::{
    TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use ottla_protocol::messages::{
    OffsetCommitRequest, OffsetCommitResponse, TxnOffsetCommitRequest, TxnOffsetCommitResponse,
};
use ottla_sync::oneshot;
use ottla_types::{ErrorCode, PartitionIndex, ProducerEpoch, ProducerId};

use ottla_coordination::groups::OFFSETS_TOPIC;
use ottla_coordination::runtime::Shard;
use ottla_net::{Operation, RequestContext, ResourceType};
use ottla_partition::partition::Partition;
use ottla_partition::partition::producer_transaction::{AddedBy, AskedFor, ProducerTransaction};

use super::offset_commit::{all_failed, check_growth, merged, split};
use crate::Broker;

/// Handled as the OffsetCommit with the same fields.
pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: TxnOffsetCommitRequest,
) -> TxnOffsetCommitResponse {
    let transaction = ProducerTransaction {
        transactional_id: request.transactional_id,
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
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic
            .partitions
            .into_iter()
            .map(|it| OffsetCommitRequestPartition {
                partition_index: it.partition_index,
                committed_offset: it.committed_offset,
                committed_leader_epoch: it.committed_leader_epoch,
                committed_metadata: it.committed_metadata,
                ..Default::default()
            });
        OffsetCommitRequestTopic {
            name: topic.name,
            topic_id: topic.topic_id,
            partitions: partitions.collect(),
            ..Default::default()
        }
    });
    let request = OffsetCommitRequest {
        group_id: request.group_id,
        generation_id_or_member_epoch: request.generation_id_or_member_epoch,
        member_id: request.member_id,
        group_instance_id: request.group_instance_id,
        topics: topics.collect(),
        ..Default::default()
    };
    let response = respond(broker, context, transaction, request).await;
    let topics = response.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.into_iter();
        let partitions = partitions.map(|it| TxnOffsetCommitResponsePartition {
            partition_index: it.partition_index,
            error_code: it.error_code,
            ..Default::default()
        });
        TxnOffsetCommitResponseTopic {
            name: topic.name,
            topic_id: topic.topic_id,
            partitions: partitions.collect(),
            ..Default::default()
        }
    });
    TxnOffsetCommitResponse {
        topics: topics.collect(),
        ..Default::default()
    }
}

async fn respond(
    broker: &Arc<Broker>,
    context: &RequestContext,
    transaction: ProducerTransaction,
    mut request: OffsetCommitRequest,
) -> OffsetCommitResponse {
    let authorizer = &broker.authorizer;
    let (write, of_id) = (Operation::Write, ResourceType::TransactionalId);
    if !authorizer.is_allowed(context, write, of_id, &transaction.transactional_id) {
        let error = ErrorCode::TransactionalIdAuthorizationFailed;
        return all_failed(&request.topics, error);
    }
    let (read, of_group) = (Operation::Read, ResourceType::Group);
    if !authorizer.is_allowed(context, read, of_group, &request.group_id) {
        return all_failed(&request.topics, ErrorCode::GroupAuthorizationFailed);
    }
    let topics = std::mem::take(&mut request.topics);
    let (topics, refused) = split(broker, context, topics, context.api_version >= 6);
    if topics.is_empty() {
        return merged(refused, OffsetCommitResponse::default());
    }
    request.topics = topics.clone();
    let response = match commit(broker, context, transaction, request).await {
        Ok(response) => response,
        Err(error) => all_failed(&topics, for_version(error, context.api_version)),
    };
    merged(refused, response)
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
    transaction: ProducerTransaction,
    request: OffsetCommitRequest,
) -> Result<OffsetCommitResponse, ErrorCode> {
    if request.group_id.is_empty() {
        return Err(ErrorCode::InvalidGroupId);
    }
    let coordinator = coordinator_of(broker, &request.group_id)?;
    let producer = transaction.producer;
    let guard = verify(broker, coordinator.partition(), transaction)
        .await
        .map_err(error_after_append)?;
    let tells_stale = context.api_version >= 6;
    let committed = coordinator.request(&broker.groups, |coordinator, to, now| {
        if let Err(error) = check_growth(broker, coordinator, &request) {
            let error = for_version(error, context.api_version);
            return coordinator.refuse_offset_commit(to, &request, error);
        }
        coordinator.handle_txn_offset_commit(to, &request, producer, guard, tells_stale, now)
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
