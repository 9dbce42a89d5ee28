//! SaslAuthenticate on a connection that needs no login, where it is invalid. Kafka:
//! `KafkaApis.handleSaslAuthenticateRequest`.

use std::sync::Arc;

use ottla_protocol::messages::{SaslAuthenticateRequest, SaslAuthenticateResponse};
use ottla_types::ErrorCode;

use ottla_net::RequestContext;

use crate::Broker;

pub(crate) async fn handle(
    _broker: &Arc<Broker>,
    _context: &RequestContext,
    _request: SaslAuthenticateRequest,
) -> SaslAuthenticateResponse {
    SaslAuthenticateResponse {
        error_code: ErrorCode::IllegalSaslState.code(),
        error_message: Some(
            "SaslAuthenticate request received after successful authentication".into(),
        ),
        ..Default::default()
    }
}
