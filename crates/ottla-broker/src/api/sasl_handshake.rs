//! SaslHandshake on a connection that needs no login, where it is invalid. Kafka:
//! `KafkaApis.handleSaslHandshakeRequest`.

use std::sync::Arc;

use ottla_protocol::ErrorResponse;
use ottla_protocol::messages::{SaslHandshakeRequest, SaslHandshakeResponse};
use ottla_types::ErrorCode;

use ottla_net::RequestContext;

use crate::Broker;

pub(crate) async fn handle(
    _broker: &Arc<Broker>,
    _context: &RequestContext,
    _request: SaslHandshakeRequest,
) -> SaslHandshakeResponse {
    SaslHandshakeResponse::of_error(ErrorCode::IllegalSaslState)
}
