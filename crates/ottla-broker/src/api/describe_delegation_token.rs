//! DescribeDelegationToken (KIP-48): tokens need a connection that is authenticated, and none is yet.
//! Kafka: `KafkaApis.handleDescribeTokensRequest`.

use std::sync::Arc;

use ottla_protocol::messages::{DescribeDelegationTokenRequest, DescribeDelegationTokenResponse};
use ottla_types::ErrorCode;

use ottla_net::RequestContext;

use crate::Broker;

pub(crate) async fn handle(
    _broker: &Arc<Broker>,
    _context: &RequestContext,
    _request: DescribeDelegationTokenRequest,
) -> DescribeDelegationTokenResponse {
    DescribeDelegationTokenResponse {
        error_code: ErrorCode::DelegationTokenRequestNotAllowed.code(),
        ..Default::default()
    }
}
