//! ExpireDelegationToken (KIP-48): forwarded to the controller. Kafka:
//! `KafkaApis.handleExpireTokenRequest`.

use std::sync::Arc;

use ottla_protocol::messages::{ExpireDelegationTokenRequest, ExpireDelegationTokenResponse};
use ottla_types::ErrorCode;

use ottla_net::RequestContext;

use crate::Broker;
use crate::delegation_tokens::{NO_TIME, may_ask_about_tokens};

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: ExpireDelegationTokenRequest,
) -> ExpireDelegationTokenResponse {
    let decided = match may_ask_about_tokens(context) {
        true => broker.forward(context, request).await,
        false => Err(ErrorCode::DelegationTokenRequestNotAllowed),
    };
    decided.unwrap_or_else(|error| ExpireDelegationTokenResponse {
        error_code: error.code(),
        expiry_timestamp_ms: NO_TIME,
        ..Default::default()
    })
}
