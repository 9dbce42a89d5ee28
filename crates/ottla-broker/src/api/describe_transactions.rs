//! DescribeTransactions (KIP-664). Kafka: `TransactionCoordinator.handleDescribeTransactions`.

use std::sync::Arc;

use bytestring::ByteString;
use ottla_coordinator::transaction::Transaction;
use ottla_protocol::messages::describe_transactions_response::{TopicData, TransactionState};
use ottla_protocol::messages::{DescribeTransactionsRequest, DescribeTransactionsResponse};
use ottla_types::ErrorCode;

use ottla_net::{Operation, RequestContext, ResourceType};

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: DescribeTransactionsRequest,
) -> DescribeTransactionsResponse {
    let ids = request.transactional_ids.into_iter();
    let states = ids.map(|id| {
        let described = describe(broker, context, &id);
        described.unwrap_or_else(|error| TransactionState {
            error_code: error.code(),
            transactional_id: id,
            ..Default::default()
        })
    });
    DescribeTransactionsResponse {
        transaction_states: states.collect(),
        ..Default::default()
    }
}

fn describe(
    broker: &Broker,
    context: &RequestContext,
    id: &ByteString,
) -> Result<TransactionState, ErrorCode> {
    let authorizer = &broker.authorizer;
    let (describe, of_id) = (Operation::Describe, ResourceType::TransactionalId);
    if !authorizer.is_allowed(context, describe, of_id, id) {
        return Err(ErrorCode::TransactionalIdAuthorizationFailed);
    }
    if id.is_empty() {
        return Err(ErrorCode::InvalidRequest);
    }
    let coordinator = broker.transactions.coordinator_of(id)?;
    let mut state =
        coordinator.read(|coordinator| coordinator.describe(id).map(|it| state_of(id, it)))??;
    state.topics.retain(|topic| {
        authorizer.is_allowed(context, describe, ResourceType::Topic, &topic.topic)
    });
    Ok(state)
}

fn state_of(id: &ByteString, transaction: &Transaction) -> TransactionState {
    let mut topics: Vec<TopicData> = Vec::new();
    for partition in &transaction.partitions {
        match topics.last_mut() {
            Some(last) if last.topic == partition.topic => {
                last.partitions.push(partition.partition.0);
            }
            _ => topics.push(TopicData {
                topic: partition.topic.clone(),
                partitions: vec![partition.partition.0],
                ..Default::default()
            }),
        }
    }
    TransactionState {
        transactional_id: id.clone(),
        transaction_state: transaction.state.name().into(),
        transaction_timeout_ms: transaction.timeout_ms,
        transaction_start_time_ms: transaction.start_timestamp_ms,
        producer_id: transaction.producer_id.0,
        producer_epoch: transaction.producer_epoch.0,
        topics,
        ..Default::default()
    }
}
