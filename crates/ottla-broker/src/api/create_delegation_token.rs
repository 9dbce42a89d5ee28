//! CreateDelegationToken (KIP-48): forwarded to the controller. Kafka:
//! `KafkaApis.handleCreateTokenRequest`.

use std::sync::Arc;

use bytestring::ByteString;
use ottla_protocol::messages::{CreateDelegationTokenRequest, CreateDelegationTokenResponse};
use ottla_types::ErrorCode;

use ottla_net::{Operation, RequestContext, ResourceType};

use crate::Broker;
use crate::delegation_tokens::{NO_TIME, may_ask_about_tokens, parts};

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: CreateDelegationTokenRequest,
) -> CreateDelegationTokenResponse {
    let requester = parts(context.principal().as_str());
    let owner = match &request.owner_principal_name {
        Some(name) if !name.is_empty() => {
            let owner_type = request.owner_principal_type.clone();
            (owner_type.unwrap_or_default(), name.clone())
        }
        _ => requester.clone(),
    };
    let mut response = match check(broker, context, &request, &requester, &owner) {
        Ok(()) => match broker.forward(context, request).await {
            Ok(response) => response,
            Err(error) => refuse(error, requester, owner),
        },
        Err(error) => refuse(error, requester, owner),
    };
    // Older versions do not contain the requester.
    if context.api_version < 3 {
        response.token_requester_principal_type = ByteString::new();
        response.token_requester_principal_name = ByteString::new();
    }
    response
}

pub(super) type Parts = (ByteString, ByteString);

fn check(
    broker: &Broker,
    context: &RequestContext,
    request: &CreateDelegationTokenRequest,
    requester: &Parts,
    owner: &Parts,
) -> Result<(), ErrorCode> {
    if !may_ask_about_tokens(context) {
        return Err(ErrorCode::DelegationTokenRequestNotAllowed);
    }
    let (create, of_user) = (Operation::CreateTokens, ResourceType::User);
    let name = format!("{}:{}", owner.0, owner.1);
    let authorizer = &broker.authorizer;
    if owner != requester && !authorizer.is_allowed(context, create, of_user, &name) {
        return Err(ErrorCode::DelegationTokenAuthorizationFailed);
    }
    let mut renewers = request.renewers.iter();
    match renewers.all(|renewer| *renewer.principal_type == *"User") {
        // Every client may create tokens for itself, and they last for days.
        true => broker.context.check_heap(),
        false => Err(ErrorCode::InvalidPrincipalType),
    }
}

pub(super) fn refuse(
    error: ErrorCode,
    requester: Parts,
    owner: Parts,
) -> CreateDelegationTokenResponse {
    CreateDelegationTokenResponse {
        error_code: error.code(),
        principal_type: owner.0,
        principal_name: owner.1,
        token_requester_principal_type: requester.0,
        token_requester_principal_name: requester.1,
        issue_timestamp_ms: NO_TIME,
        expiry_timestamp_ms: NO_TIME,
        max_timestamp_ms: NO_TIME,
        ..Default::default()
    }
}
