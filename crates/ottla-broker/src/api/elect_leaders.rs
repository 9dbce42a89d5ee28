//! ElectLeaders (KIP-460): forwarded to the controller. Kafka: `ControllerApis.handleElectLeaders`.

use std::sync::Arc;

use ottla_protocol::messages::{ElectLeadersRequest, ElectLeadersResponse};

use ottla_net::RequestContext;

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: ElectLeadersRequest,
) -> ElectLeadersResponse {
    match broker.forward(context, request).await {
        Ok(response) => response,
        Err(error) => ElectLeadersResponse {
            error_code: error.code(),
            ..Default::default()
        },
    }
}
