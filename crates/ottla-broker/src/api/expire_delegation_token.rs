//! ExpireDelegationToken (KIP-48): tokens need a connection that is authenticated, and none is yet.
//! Kafka: `KafkaApis.handleExpireTokenRequest`.

use std::sync::Arc;

use ottla_protocol::messages::{ExpireDelegationTokenRequest, ExpireDelegationTokenResponse};
use ottla_types::ErrorCode;

use ottla_net::RequestContext;

use crate::Broker;

pub(crate) async fn handle(
    _broker: &Arc<Broker>,
    _context: &RequestContext,
    _request: ExpireDelegationTokenRequest,
) -> ExpireDelegationTokenResponse {
    ExpireDelegationTokenResponse {
        error_code: ErrorCode::DelegationTokenRequestNotAllowed.code(),
        expiry_timestamp_ms: -1,
        ..Default::default()
    }
}
