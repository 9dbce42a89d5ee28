//! BrokerHeartbeat (KIP-631): a broker lives, and how far it is.
//!
//! Kafka: `ControllerApis.handleBrokerHeartBeatRequest`.

use std::sync::Arc;

use ottla_protocol::messages::{BrokerHeartbeatRequest, BrokerHeartbeatResponse};

use crate::{Broker, RequestContext};

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    _context: &RequestContext,
    request: BrokerHeartbeatRequest,
) -> BrokerHeartbeatResponse {
    match broker.decide_here(request).await {
        Ok(response) => response,
        Err(error) => BrokerHeartbeatResponse {
            error_code: error.code(),
            ..Default::default()
        },
    }
}
