//! InitProducerId (KIP-98): an id for an idempotent producer.
//!
//! Kafka: `KafkaApis.handleInitProducerIdRequest`, `TransactionCoordinator.handleInitProducerId`.

use std::sync::Arc;

use ottla_protocol::messages::{InitProducerIdRequest, InitProducerIdResponse};
use ottla_types::{ErrorCode, ProducerEpoch, ProducerId};

use crate::{Broker, Operation, RequestContext, ResourceType};

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: InitProducerIdRequest,
) -> InitProducerIdResponse {
    let refused = |error: ErrorCode| InitProducerIdResponse {
        error_code: error.code(),
        producer_id: ProducerId::NONE.value(),
        producer_epoch: ProducerEpoch::NONE.value(),
        ..Default::default()
    };
    let has_id = request.producer_id != ProducerId::NONE.value();
    let has_epoch = request.producer_epoch != ProducerEpoch::NONE.value();
    if has_id != has_epoch {
        return refused(ErrorCode::InvalidRequest);
    }
    if let Some(transactional_id) = &request.transactional_id {
        let authorizer = &broker.authorizer;
        if !authorizer.is_allowed(
            context,
            Operation::Write,
            ResourceType::TransactionalId,
            transactional_id,
        ) {
            return refused(ErrorCode::TransactionalIdAuthorizationFailed);
        }
        if transactional_id.is_empty() {
            return refused(ErrorCode::InvalidRequest);
        }
        // No transaction coordinator is here, nor is one found by FindCoordinator.
        return refused(ErrorCode::NotCoordinator);
    }
    match broker.next_producer_id().await {
        Ok(producer_id) => InitProducerIdResponse {
            error_code: ErrorCode::None.code(),
            producer_id: producer_id.value(),
            producer_epoch: 0,
            ..Default::default()
        },
        Err(error) => refused(error),
    }
}
