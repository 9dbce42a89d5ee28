//! AddPartitionsToTxn: a producer adds partitions to its transaction. From version 4 on, brokers
//! send it, for many transactions at once, to add partitions or to verify that they were added
//! (KIP-890).
//!
//! Kafka: `KafkaApis.handleAddPartitionsToTxnRequest`.

use std::sync::Arc;

use ottla_coordinator::TransactionalProducer;
use ottla_coordinator::transaction::AddPartitions;
use ottla_protocol::ErrorResponse;
use ottla_protocol::messages::add_partitions_to_txn_request::{
    AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction,
};
use ottla_protocol::messages::add_partitions_to_txn_response::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnResult, AddPartitionsToTxnTopicResult,
};
use ottla_protocol::messages::{AddPartitionsToTxnRequest, AddPartitionsToTxnResponse};
use ottla_sync::task::JoinSet;
use ottla_types::{ErrorCode, ProducerEpoch, ProducerId, TopicPartition};

use ottla_net::{Operation, RequestContext, ResourceType};

use crate::Broker;

/// From this version on, only brokers send the request.
const OF_BROKERS: i16 = 4;
/// The resource name of the cluster in ACLs.
const CLUSTER: &str = "kafka-cluster";

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: AddPartitionsToTxnRequest,
) -> AddPartitionsToTxnResponse {
    if context.api_version < OF_BROKERS {
        let transaction = AddPartitionsToTxnTransaction {
            transactional_id: request.v3_and_below_transactional_id,
            producer_id: request.v3_and_below_producer_id,
            producer_epoch: request.v3_and_below_producer_epoch,
            verify_only: false,
            topics: request.v3_and_below_topics,
            ..Default::default()
        };
        let result = add(broker, context, transaction).await;
        return AddPartitionsToTxnResponse {
            results_by_topic_v3_and_below: result.topic_results,
            ..Default::default()
        };
    }
    let (action, cluster) = (Operation::ClusterAction, ResourceType::Cluster);
    let authorizer = &broker.authorizer;
    if !authorizer.is_allowed(context, action, cluster, CLUSTER) {
        return AddPartitionsToTxnResponse::of_error(ErrorCode::ClusterAuthorizationFailed);
    }
    let mut adding = JoinSet::new();
    for transaction in request.transactions {
        let (broker, context) = (Arc::clone(broker), context.clone());
        adding.spawn(async move { add(&broker, &context, transaction).await });
    }
    let mut results = Vec::with_capacity(adding.len());
    while let Some(added) = adding.join_next().await {
        // A panic was reported where it happened. The sender retries.
        results.extend(added.ok());
    }
    AddPartitionsToTxnResponse {
        results_by_transaction: results,
        ..Default::default()
    }
}

async fn add(
    broker: &Arc<Broker>,
    context: &RequestContext,
    transaction: AddPartitionsToTxnTransaction,
) -> AddPartitionsToTxnResult {
    let is_clients = context.api_version < OF_BROKERS;
    let id = transaction.transactional_id.clone();
    let authorizer = &broker.authorizer;
    let (write, of_id) = (Operation::Write, ResourceType::TransactionalId);
    if is_clients && !authorizer.is_allowed(context, write, of_id, &id) {
        return result(&transaction, |_, _| {
            ErrorCode::TransactionalIdAuthorizationFailed
        });
    }
    let image = broker.metadata().clone();
    // If one partition cannot be added, none is.
    let error_of = |topic: &AddPartitionsToTxnTopic, index: i32| {
        // Only the coordinators write to internal topics in a transaction.
        let is_allowed = !is_clients
            || (!crate::is_internal_topic(&topic.name)
                && authorizer.is_allowed(context, write, ResourceType::Topic, &topic.name));
        if !is_allowed {
            ErrorCode::TopicAuthorizationFailed
        } else if image.topics.partition(&topic.name, index.into()).is_none() {
            ErrorCode::UnknownTopicOrPartition
        } else {
            ErrorCode::OperationNotAttempted
        }
    };
    let checked = result(&transaction, error_of);
    let mut checks = checked
        .topic_results
        .iter()
        .flat_map(|it| &it.results_by_partition);
    if checks.any(|it| it.partition_error_code != ErrorCode::OperationNotAttempted.code()) {
        return checked;
    }
    let producer = TransactionalProducer {
        id: ProducerId(transaction.producer_id),
        epoch: ProducerEpoch(transaction.producer_epoch),
    };
    let coordinator = match broker.transactions.coordinator_of(&id) {
        Ok(coordinator) => coordinator,
        Err(error) => return result(&transaction, |_, _| error),
    };
    if transaction.verify_only {
        let verified = coordinator.read(|coordinator| {
            result(&transaction, |topic, index| {
                let partition = TopicPartition::new(topic.name.clone(), index);
                coordinator.verify_partitions(&id, producer, &partition)
            })
        });
        return verified.unwrap_or_else(|error| result(&transaction, |_, _| error));
    }
    let topics = transaction.topics.iter();
    let partitions = topics.flat_map(|topic| {
        let indexes = topic.partitions.iter();
        indexes.map(|index| TopicPartition::new(topic.name.clone(), *index))
    });
    let request = AddPartitions {
        transactional_id: id,
        producer,
        partitions: partitions.collect(),
        client_transaction_version: if is_clients { 0 } else { 2 },
    };
    let added = coordinator.request(&broker.transactions.coordinators, |coordinator, to, now| {
        coordinator.handle_add_partitions(to, request, now)
    });
    let error = match added.await.unwrap_or_else(|error| error) {
        // Older clients do not know PRODUCER_FENCED.
        ErrorCode::ProducerFenced if context.api_version < 2 => ErrorCode::InvalidProducerEpoch,
        error => error,
    };
    result(&transaction, |_, _| error)
}

fn result(
    transaction: &AddPartitionsToTxnTransaction,
    error_of: impl Fn(&AddPartitionsToTxnTopic, i32) -> ErrorCode,
) -> AddPartitionsToTxnResult {
    let topics = transaction.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter();
        let results = partitions.map(|index| AddPartitionsToTxnPartitionResult {
            partition_index: *index,
            partition_error_code: error_of(topic, *index).code(),
            ..Default::default()
        });
        AddPartitionsToTxnTopicResult {
            name: topic.name.clone(),
            results_by_partition: results.collect(),
            ..Default::default()
        }
    });
    AddPartitionsToTxnResult {
        transactional_id: transaction.transactional_id.clone(),
        topic_results: topics.collect(),
        ..Default::default()
    }
}
