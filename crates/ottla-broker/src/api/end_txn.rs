//! EndTxn: a producer commits or aborts its transaction. Kafka: `KafkaApis.handleEndTxnRequest`.

use std::sync::Arc;

use ottla_coordinator::TransactionalProducer;
use ottla_coordinator::transaction::EndTransaction;
use ottla_protocol::messages::{EndTxnRequest, EndTxnResponse};
use ottla_types::{ErrorCode, ProducerEpoch, ProducerId};

use ottla_net::{Operation, RequestContext, ResourceType};

use crate::Broker;

/// From this version on, ending a transaction increments the producer's epoch (KIP-890).
const RAISES_EPOCH: i16 = 5;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: EndTxnRequest,
) -> EndTxnResponse {
    let error = |error: ErrorCode| EndTxnResponse {
        error_code: error.code(),
        producer_id: ProducerId::NONE.value(),
        producer_epoch: ProducerEpoch::NONE.value(),
        ..Default::default()
    };
    match end(broker, context, request).await {
        Ok(Some(producer)) => EndTxnResponse {
            producer_id: producer.id.value(),
            producer_epoch: producer.epoch.value(),
            ..Default::default()
        },
        Ok(None) => error(ErrorCode::None),
        // Older clients do not know PRODUCER_FENCED.
        Err(ErrorCode::ProducerFenced) if context.api_version < 2 => {
            error(ErrorCode::InvalidProducerEpoch)
        }
        Err(code) => error(code),
    }
}

async fn end(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: EndTxnRequest,
) -> Result<Option<TransactionalProducer>, ErrorCode> {
    let id = &request.transactional_id;
    let authorizer = &broker.authorizer;
    let (write, of_id) = (Operation::Write, ResourceType::TransactionalId);
    if !authorizer.is_allowed(context, write, of_id, id) {
        return Err(ErrorCode::TransactionalIdAuthorizationFailed);
    }
    let coordinator = broker.transactions.coordinator_of(id)?;
    let request = EndTransaction {
        transactional_id: id.clone(),
        producer: TransactionalProducer {
            id: ProducerId(request.producer_id),
            epoch: ProducerEpoch(request.producer_epoch),
        },
        is_commit: request.committed,
        client_transaction_version: if context.api_version >= RAISES_EPOCH {
            2
        } else {
            0
        },
    };
    let ended = coordinator.request(&broker.transactions.coordinators, |coordinator, to, now| {
        coordinator.handle_end_txn(to, request, now)
    });
    ended.await?
}
