//! UpdateFeatures (KIP-584): forwarded to the controller. Kafka:
//! `ControllerApis.handleUpdateFeatures`.

use std::sync::Arc;

use ottla_protocol::messages::{UpdateFeaturesRequest, UpdateFeaturesResponse};

use ottla_net::RequestContext;

use crate::Broker;
use crate::authorization::denial_message;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: UpdateFeaturesRequest,
) -> UpdateFeaturesResponse {
    match broker.forward(context, request).await {
        Ok(response) => response,
        Err(error) => UpdateFeaturesResponse {
            error_code: error.code(),
            error_message: denial_message(context, error),
            ..Default::default()
        },
    }
}
