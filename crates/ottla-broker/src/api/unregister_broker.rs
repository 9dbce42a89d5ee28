//! UnregisterBroker (KIP-631): forwarded to the controller. Kafka:
//! `ControllerApis.handleUnregisterBroker`.

use std::sync::Arc;

use ottla_protocol::messages::{UnregisterBrokerRequest, UnregisterBrokerResponse};

use ottla_net::RequestContext;

use crate::Broker;
use crate::authorization::denial_message;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: UnregisterBrokerRequest,
) -> UnregisterBrokerResponse {
    match broker.forward(context, request).await {
        Ok(response) => response,
        Err(error) => UnregisterBrokerResponse {
            error_code: error.code(),
            error_message: denial_message(context, error),
            ..Default::default()
        },
    }
}
