//! ElectLeaders (KIP-460): decided by the controller. Kafka: `ControllerApis.handleElectLeaders`.

use std::sync::Arc;

use ottla_protocol::messages::{ElectLeadersRequest, ElectLeadersResponse};

use crate::{Broker, RequestContext};

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    _context: &RequestContext,
    request: ElectLeadersRequest,
) -> ElectLeadersResponse {
    match broker.ask_controller(request).await {
        Ok(response) => response,
        Err(error) => ElectLeadersResponse {
            error_code: error.code(),
            ..Default::default()
        },
    }
}
