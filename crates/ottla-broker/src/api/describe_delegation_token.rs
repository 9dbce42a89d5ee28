//! DescribeDelegationToken (KIP-48): the tokens that a client owns, may renew, or may describe.
//! Kafka: `KafkaApis.handleDescribeTokensRequest`, `DelegationTokenManager.filterToken`.

use std::sync::Arc;

use bytestring::ByteString;
use ottla_protocol::ErrorResponse;
use ottla_protocol::messages::describe_delegation_token_response::{
    DescribedDelegationToken, DescribedDelegationTokenRenewer,
};
use ottla_protocol::messages::{DescribeDelegationTokenRequest, DescribeDelegationTokenResponse};
use ottla_protocol::metadata_records::DelegationTokenRecord;
use ottla_types::ErrorCode;

use ottla_net::{Operation, RequestContext, ResourceType};

use crate::Broker;
use crate::delegation_tokens::{may_ask_about_tokens, parts};

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: DescribeDelegationTokenRequest,
) -> DescribeDelegationTokenResponse {
    let refuse = DescribeDelegationTokenResponse::of_error;
    if !may_ask_about_tokens(context) {
        return refuse(ErrorCode::DelegationTokenRequestNotAllowed);
    }
    let config = broker.config();
    let Some(secret_key) = config.delegation_token_secret_key() else {
        return refuse(ErrorCode::DelegationTokenAuthDisabled);
    };
    let owners: Option<Vec<ByteString>> = request.owners.map(|owners| {
        let owners = owners.iter();
        let owners = owners.map(|it| format!("{}:{}", it.principal_type, it.principal_name));
        owners.map(ByteString::from).collect()
    });
    let metadata = broker.metadata();
    let tokens = metadata.kept.delegation_tokens.iter();
    let tokens = tokens.filter(|token| is_asked_for(token, owners.as_deref()));
    let tokens = tokens.filter(|token| may_see(broker, context, token));
    let has_requester = context.api_version >= 3;
    DescribeDelegationTokenResponse {
        tokens: tokens
            .map(|token| described(token, secret_key, has_requester))
            .collect(),
        ..Default::default()
    }
}

/// A request without owners matches all tokens; one with an empty list matches none.
fn is_asked_for(token: &DelegationTokenRecord, owners: Option<&[ByteString]>) -> bool {
    owners.is_none_or(|owners| owners.iter().any(|owner| is_of(token, owner)))
}

fn is_of(token: &DelegationTokenRecord, principal: &str) -> bool {
    *token.owner == *principal || token.renewers.iter().any(|it| **it == *principal)
}

fn may_see(broker: &Broker, context: &RequestContext, token: &DelegationTokenRecord) -> bool {
    let authorizer = &broker.authorizer;
    let is_allowed = |operation, resource_type, name: &str| {
        authorizer.is_allowed_quietly(context, operation, resource_type, name)
    };
    is_of(token, context.principal().as_str())
        || is_allowed(
            Operation::Describe,
            ResourceType::DelegationToken,
            &token.token_id,
        )
        || is_allowed(Operation::DescribeTokens, ResourceType::User, &token.owner)
}

fn described(
    token: &DelegationTokenRecord,
    secret_key: &str,
    has_requester: bool,
) -> DescribedDelegationToken {
    let (principal_type, principal_name) = parts(&token.owner);
    let (requester_type, requester_name) = match has_requester {
        true => parts(&token.requester),
        false => Default::default(),
    };
    let renewers = token.renewers.iter().map(|renewer| {
        let (principal_type, principal_name) = parts(renewer);
        DescribedDelegationTokenRenewer {
            principal_type,
            principal_name,
            ..Default::default()
        }
    });
    DescribedDelegationToken {
        principal_type,
        principal_name,
        token_requester_principal_type: requester_type,
        token_requester_principal_name: requester_name,
        issue_timestamp: token.issue_timestamp,
        expiry_timestamp: token.expiration_timestamp,
        max_timestamp: token.max_timestamp,
        token_id: token.token_id.clone(),
        hmac: ottla_sasl::token_hmac(secret_key, &token.token_id).into(),
        renewers: renewers.collect(),
        ..Default::default()
    }
}
