//! AllocateProducerIds (KIP-730): allocates a block of producer IDs to a broker.
//!
//! Kafka: `ControllerApis.handleAllocateProducerIdsRequest`.

use std::sync::Arc;

use ottla_protocol::messages::{AllocateProducerIdsRequest, AllocateProducerIdsResponse};

use ottla_net::RequestContext;

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: AllocateProducerIdsRequest,
) -> AllocateProducerIdsResponse {
    match broker.decide_here(context, request).await {
        Ok(response) => response,
        Err(error) => AllocateProducerIdsResponse {
            error_code: error.code(),
            ..Default::default()
        },
    }
}
