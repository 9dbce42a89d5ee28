//! CreateDelegationToken (KIP-48): tokens need a connection that is authenticated, and none is yet.
//! Kafka: `KafkaApis.handleCreateTokenRequest`.

use std::sync::Arc;

use bytestring::ByteString;
use ottla_protocol::messages::{CreateDelegationTokenRequest, CreateDelegationTokenResponse};
use ottla_types::ErrorCode;

use ottla_net::RequestContext;

use crate::Broker;

/// What Kafka says for a time that there is not.
const NO_TIME: i64 = -1;

pub(crate) async fn handle(
    _broker: &Arc<Broker>,
    context: &RequestContext,
    request: CreateDelegationTokenRequest,
) -> CreateDelegationTokenResponse {
    let requester = (
        ByteString::from(context.principal().principal_type()),
        ByteString::from(context.principal().name()),
    );
    let owner = match (request.owner_principal_type, request.owner_principal_name) {
        (owner_type, Some(name)) if !name.is_empty() => (owner_type.unwrap_or_default(), name),
        _ => requester.clone(),
    };
    // Older versions do not tell who asked.
    let (requester_type, requester_name) = match context.api_version {
        ..3 => Default::default(),
        _ => requester,
    };
    CreateDelegationTokenResponse {
        error_code: ErrorCode::DelegationTokenRequestNotAllowed.code(),
        principal_type: owner.0,
        principal_name: owner.1,
        token_requester_principal_type: requester_type,
        token_requester_principal_name: requester_name,
        issue_timestamp_ms: NO_TIME,
        expiry_timestamp_ms: NO_TIME,
        max_timestamp_ms: NO_TIME,
        ..Default::default()
    }
}
