//! AddOffsetsToTxn: adds the partition with a group's offsets to a transaction. Clients with
//! version 2 of the transaction protocol do not send it, because the broker adds the partition.
//!
//! Kafka: `KafkaApis.handleAddOffsetsToTxnRequest`.

use std::sync::Arc;

use ottla_coordinator::TransactionalProducer;
use ottla_coordinator::transaction::AddPartitions;
use ottla_protocol::ErrorResponse;
use ottla_protocol::messages::{AddOffsetsToTxnRequest, AddOffsetsToTxnResponse};
use ottla_types::{ErrorCode, ProducerEpoch, ProducerId, TopicPartition};

use ottla_coordination::groups::OFFSETS_TOPIC;
use ottla_net::{Operation, RequestContext, ResourceType};

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: AddOffsetsToTxnRequest,
) -> AddOffsetsToTxnResponse {
    let error = match add(broker, context, request).await {
        // Older clients do not know PRODUCER_FENCED.
        ErrorCode::ProducerFenced if context.api_version < 2 => ErrorCode::InvalidProducerEpoch,
        error => error,
    };
    AddOffsetsToTxnResponse::of_error(error)
}

async fn add(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: AddOffsetsToTxnRequest,
) -> ErrorCode {
    let AddOffsetsToTxnRequest {
        transactional_id,
        group_id,
        ..
    } = &request;
    let authorizer = &broker.authorizer;
    let (write, of_id) = (Operation::Write, ResourceType::TransactionalId);
    if !authorizer.is_allowed(context, write, of_id, transactional_id) {
        return ErrorCode::TransactionalIdAuthorizationFailed;
    }
    if !authorizer.is_allowed(context, Operation::Read, ResourceType::Group, group_id) {
        return ErrorCode::GroupAuthorizationFailed;
    }
    let coordinator = match broker.transactions.coordinator_of(transactional_id) {
        Ok(coordinator) => coordinator,
        Err(error) => return error,
    };
    let index = broker.groups.partition_of(group_id);
    let request = AddPartitions {
        transactional_id: transactional_id.clone(),
        producer: TransactionalProducer {
            id: ProducerId(request.producer_id),
            epoch: ProducerEpoch(request.producer_epoch),
        },
        partitions: vec![TopicPartition::new(OFFSETS_TOPIC, index)],
        client_transaction_version: 0,
    };
    let added = coordinator.request(&broker.transactions.coordinators, |coordinator, to, now| {
        coordinator.handle_add_partitions(to, request, now)
    });
    added.await.unwrap_or_else(|error| error)
}
