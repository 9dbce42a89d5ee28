//! InitProducerId: an ID for an idempotent producer (KIP-98), or the next epoch of a transactional
//! producer.
//!
//! Kafka: `KafkaApis.handleInitProducerIdRequest`, `TransactionCoordinator.handleInitProducerId`.

use std::sync::Arc;

use ottla_coordinator::TransactionalProducer;
use ottla_coordinator::transaction::InitProducerId;
use ottla_protocol::messages::{InitProducerIdRequest, InitProducerIdResponse};
use ottla_types::{ErrorCode, ProducerEpoch, ProducerId};

use ottla_net::{Operation, RequestContext, ResourceType};

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: InitProducerIdRequest,
) -> InitProducerIdResponse {
    let knows_fenced = context.api_version >= 4;
    let result = match request.transactional_id.clone() {
        None => init_idempotent(broker, context, &request).await,
        Some(_) => init_transactional(broker, context, request).await,
    };
    match result {
        Ok(producer) => response(ErrorCode::None, producer),
        // Older clients do not know PRODUCER_FENCED.
        Err(ErrorCode::ProducerFenced) if !knows_fenced => refused(ErrorCode::InvalidProducerEpoch),
        Err(error) => refused(error),
    }
}

pub(super) fn refused(error: ErrorCode) -> InitProducerIdResponse {
    let nobody = TransactionalProducer {
        id: ProducerId::NONE,
        epoch: ProducerEpoch::NONE,
    };
    response(error, nobody)
}

fn response(error: ErrorCode, producer: TransactionalProducer) -> InitProducerIdResponse {
    InitProducerIdResponse {
        error_code: error.code(),
        producer_id: producer.id.value(),
        producer_epoch: producer.epoch.value(),
        ..Default::default()
    }
}

/// The producer's current ID and epoch; both are -1 if it has none.
fn expected(request: &InitProducerIdRequest) -> Result<Option<TransactionalProducer>, ErrorCode> {
    let producer = TransactionalProducer {
        id: ProducerId(request.producer_id),
        epoch: ProducerEpoch(request.producer_epoch),
    };
    match (
        producer.id == ProducerId::NONE,
        producer.epoch == ProducerEpoch::NONE,
    ) {
        (true, true) => Ok(None),
        (false, false) => Ok(Some(producer)),
        _ => Err(ErrorCode::InvalidRequest),
    }
}

async fn init_idempotent(
    broker: &Broker,
    context: &RequestContext,
    request: &InitProducerIdRequest,
) -> Result<TransactionalProducer, ErrorCode> {
    let authorizer = &broker.authorizer;
    let (write, of_topic) = (Operation::Write, ResourceType::Topic);
    let (idempotent, of_cluster) = (Operation::IdempotentWrite, ResourceType::Cluster);
    if !authorizer.is_allowed_quietly(context, idempotent, of_cluster, "kafka-cluster")
        && !authorizer.is_allowed_by_resource_type(context, write, of_topic)
    {
        return Err(ErrorCode::ClusterAuthorizationFailed);
    }
    expected(request)?;
    broker.context.check_heap()?;
    let id = broker.producer_ids.next_producer_id().await?;
    let epoch = ProducerEpoch(0);
    Ok(TransactionalProducer { id, epoch })
}

async fn init_transactional(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: InitProducerIdRequest,
) -> Result<TransactionalProducer, ErrorCode> {
    let transactional_id = request.transactional_id.clone().unwrap_or_default();
    let is_allowed = |operation| {
        let kind = ResourceType::TransactionalId;
        broker
            .authorizer
            .is_allowed(context, operation, kind, &transactional_id)
    };
    let may_init = is_allowed(Operation::Write)
        && (!request.enable2_pc || is_allowed(Operation::TwoPhaseCommit));
    if !may_init {
        return Err(ErrorCode::TransactionalIdAuthorizationFailed);
    }
    let expected = expected(&request)?;
    if expected.is_none() {
        broker.context.check_heap()?;
    }
    let request = InitProducerId {
        expected,
        transaction_timeout_ms: request.transaction_timeout_ms,
        enable_two_phase_commit: request.enable2_pc,
        keep_prepared_transaction: request.keep_prepared_txn,
        transactional_id: transactional_id.clone(),
    };
    let coordinator = broker.transactions.coordinator_of(&transactional_id)?;
    let initialized = coordinator
        .request(&broker.transactions.coordinators, |coordinator, to, now| {
            coordinator.handle_init_producer_id(to, request, now)
        });
    initialized.await?
}
