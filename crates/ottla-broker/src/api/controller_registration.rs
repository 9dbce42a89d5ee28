//! ControllerRegistration (KIP-919): a controller says where it is reached and what it supports.
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
