//! BrokerHeartbeat (KIP-631): a broker reports that it is alive, and how far it has applied the
//! metadata.
//!
//! Kafka: `ControllerApis.handleBrokerHeartBeatRequest`.

use std::sync::Arc;

use ottla_protocol::ErrorResponse;
use ottla_protocol::messages::{BrokerHeartbeatRequest, BrokerHeartbeatResponse};
use ottla_types::{BrokerEpoch, BrokerId, ErrorCode};

use ottla_net::RequestContext;

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: BrokerHeartbeatRequest,
) -> BrokerHeartbeatResponse {
    let of = (
        BrokerId(request.broker_id),
        BrokerEpoch(request.broker_epoch),
    );
    match broker.decide_here(context, request).await {
        Ok(response) => {
            if response.error_code == ErrorCode::None.code() {
                context.connection.on_heartbeat(of);
            }
            response
        }
        Err(error) => BrokerHeartbeatResponse::of_error(error),
    }
}
