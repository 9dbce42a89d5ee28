//! ControllerRegistration (KIP-919): a controller reports its endpoints and supported features.
//!
//! Kafka: `ControllerApis.handleControllerRegistration`.

use std::sync::Arc;

use ottla_protocol::messages::{ControllerRegistrationRequest, ControllerRegistrationResponse};

use ottla_net::RequestContext;

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: ControllerRegistrationRequest,
) -> ControllerRegistrationResponse {
    match broker.decide_here(context, request).await {
        Ok(response) => response,
        Err(error) => ControllerRegistrationResponse {
            error_code: error.code(),
            ..Default::default()
        },
    }
}
