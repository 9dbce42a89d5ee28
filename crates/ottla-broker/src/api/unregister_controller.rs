//! UnregisterController: removes the registration of a controller that is gone. Forwarded to the
//! active controller. Kafka: `ControllerApis.handleUnregisterController`.

use std::sync::Arc;

use ottla_protocol::messages::{UnregisterControllerRequest, UnregisterControllerResponse};

use ottla_net::RequestContext;

use crate::Broker;
use crate::authorization::denial_message;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: UnregisterControllerRequest,
) -> UnregisterControllerResponse {
    match broker.forward(context, request).await {
        Ok(response) => response,
        Err(error) => UnregisterControllerResponse {
            error_code: error.code(),
            error_message: denial_message(context, error),
            ..Default::default()
        },
    }
}
