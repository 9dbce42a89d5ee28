//! RenewDelegationToken (KIP-48): forwarded to the controller. Kafka:
//! `KafkaApis.handleRenewTokenRequest`.

use std::sync::Arc;

use ottla_protocol::messages::{RenewDelegationTokenRequest, RenewDelegationTokenResponse};
use ottla_types::ErrorCode;

use ottla_net::RequestContext;

use crate::Broker;
use crate::delegation_tokens::{NO_TIME, may_ask_about_tokens};

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: RenewDelegationTokenRequest,
) -> RenewDelegationTokenResponse {
    let decided = match may_ask_about_tokens(context) {
        true => broker.forward(context, request).await,
        false => Err(ErrorCode::DelegationTokenRequestNotAllowed),
    };
    decided.unwrap_or_else(|error| RenewDelegationTokenResponse {
        error_code: error.code(),
        expiry_timestamp_ms: NO_TIME,
        ..Default::default()
    })
}
