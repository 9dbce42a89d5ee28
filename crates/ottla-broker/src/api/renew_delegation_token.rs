//! RenewDelegationToken (KIP-48): tokens need a connection that is authenticated, and none is yet.
//! Kafka: `KafkaApis.handleRenewTokenRequest`.

use std::sync::Arc;

use ottla_protocol::messages::{RenewDelegationTokenRequest, RenewDelegationTokenResponse};
use ottla_types::ErrorCode;

use ottla_net::RequestContext;

use crate::Broker;

pub(crate) async fn handle(
    _broker: &Arc<Broker>,
    _context: &RequestContext,
    _request: RenewDelegationTokenRequest,
) -> RenewDelegationTokenResponse {
    RenewDelegationTokenResponse {
        error_code: ErrorCode::DelegationTokenRequestNotAllowed.code(),
        expiry_timestamp_ms: -1,
        ..Default::default()
    }
}
