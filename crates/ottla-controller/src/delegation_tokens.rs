//! `CreateDelegationToken`, `RenewDelegationToken`, `ExpireDelegationToken` (KIP-48, KIP-900), and
//! the removal of expired tokens.
//!
//! A token's HMAC is its password. It is computed from `delegation.token.secret.key` and the token
//! id, and is not in any record.
//!
//! In Kafka: `DelegationTokenControlManager`.

use bytestring::ByteString;
use ottla_protocol::messages::{
    CreateDelegationTokenRequest, CreateDelegationTokenResponse, ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse, RenewDelegationTokenRequest, RenewDelegationTokenResponse,
};
use ottla_protocol::metadata_records::{
    DelegationTokenRecord, MetadataRecord, RemoveDelegationTokenRecord,
};
use ottla_sasl::{is_token_hmac, token_hmac};
use ottla_security::is_token_expired;
use ottla_types::{ErrorCode, Timestamp};

use crate::decision::{ControllerContext, Decision};

const USER_TYPE: &str = "User";
/// The maximum number of tokens that are removed at once.
const MAX_RECORDS_PER_EXPIRATION: usize = 1000;

pub fn create_delegation_token(
    context: &mut ControllerContext<'_>,
    request: &CreateDelegationTokenRequest,
    now: Timestamp,
) -> Decision<CreateDelegationTokenResponse> {
    let requester = context.client.clone();
    let (requester_type, requester_name) = parts(&requester);
    let (owner_type, owner_name) = match &request.owner_principal_name {
        Some(name) if !name.is_empty() => {
            let owner_type = request.owner_principal_type.clone();
            (owner_type.unwrap_or_default(), name.clone())
        }
        _ => (requester_type.clone(), requester_name.clone()),
    };
    let response = CreateDelegationTokenResponse {
        principal_type: owner_type.clone(),
        principal_name: owner_name.clone(),
        token_requester_principal_type: requester_type,
        token_requester_principal_name: requester_name,
        ..Default::default()
    };
    let refuse = |error: ErrorCode| {
        Decision::unchanged(CreateDelegationTokenResponse {
            error_code: error.code(),
            ..response.clone()
        })
    };
    let secret_key = match usable_secret_key(context) {
        Ok(secret_key) => secret_key,
        Err(error) => return refuse(error),
    };
    if request
        .renewers
        .iter()
        .any(|it| *it.principal_type != *USER_TYPE)
    {
        return refuse(ErrorCode::InvalidPrincipalType);
    }
    let max_lifetime_ms = at_most(
        context.config.delegation_token_max_lifetime_ms,
        request.max_lifetime_ms,
    );
    let max_timestamp = now.0.saturating_add(max_lifetime_ms);
    let renewed_until = now
        .0
        .saturating_add(context.config.delegation_token_expiry_time_ms);
    let expiration_timestamp = max_timestamp.min(renewed_until);
    let token_id = ByteString::from(context.random_uuid().to_string());
    let hmac = token_hmac(&secret_key, &token_id);
    let renewers = request.renewers.iter();
    let record = DelegationTokenRecord {
        owner: ByteString::from(format!("{owner_type}:{owner_name}")),
        requester,
        renewers: renewers
            .map(|it| ByteString::from(format!("{}:{}", it.principal_type, it.principal_name)))
            .collect(),
        issue_timestamp: now.0,
        max_timestamp,
        expiration_timestamp,
        token_id: token_id.clone(),
        ..Default::default()
    };
    let response = CreateDelegationTokenResponse {
        issue_timestamp_ms: now.0,
        expiry_timestamp_ms: expiration_timestamp,
        max_timestamp_ms: max_timestamp,
        token_id,
        hmac: hmac.into(),
        ..response
    };
    Decision::new(vec![MetadataRecord::DelegationToken(record)], response)
}

pub fn renew_delegation_token(
    context: &ControllerContext<'_>,
    request: &RenewDelegationTokenRequest,
    now: Timestamp,
) -> Decision<RenewDelegationTokenResponse> {
    let answer = |error: ErrorCode, expiry_timestamp_ms| RenewDelegationTokenResponse {
        error_code: error.code(),
        expiry_timestamp_ms,
        ..Default::default()
    };
    let token = match own_token(context, &request.hmac) {
        Ok(token) if is_token_expired(token, now) => Err(ErrorCode::DelegationTokenExpired),
        Ok(token) if !may_renew(context, token) => Err(ErrorCode::DelegationTokenOwnerMismatch),
        found => found,
    };
    let token = match token {
        Ok(token) => token,
        Err(error) => return Decision::unchanged(answer(error, 0)),
    };
    let period_ms = at_most(
        context.config.delegation_token_expiry_time_ms,
        request.renew_period_ms,
    );
    let (record, expiry) = until(token, now.0.saturating_add(period_ms));
    Decision::new(vec![record], answer(ErrorCode::None, expiry))
}

pub fn expire_delegation_token(
    context: &ControllerContext<'_>,
    request: &ExpireDelegationTokenRequest,
    now: Timestamp,
) -> Decision<ExpireDelegationTokenResponse> {
    let answer = |error: ErrorCode, expiry_timestamp_ms| ExpireDelegationTokenResponse {
        error_code: error.code(),
        expiry_timestamp_ms,
        ..Default::default()
    };
    let token = match own_token(context, &request.hmac) {
        Ok(token) if !may_renew(context, token) => Err(ErrorCode::DelegationTokenOwnerMismatch),
        found => found,
    };
    let token = match token {
        Ok(token) => token,
        Err(error) => return Decision::unchanged(answer(error, 0)),
    };
    if request.expiry_time_period_ms < 0 {
        return Decision::new(vec![removal(token)], answer(ErrorCode::None, now.0));
    }
    if is_token_expired(token, now) {
        return Decision::unchanged(answer(ErrorCode::DelegationTokenExpired, 0));
    }
    let (record, expiry) = until(token, now.0.saturating_add(request.expiry_time_period_ms));
    Decision::new(vec![record], answer(ErrorCode::None, expiry))
}

/// Removes expired tokens, at most `MAX_RECORDS_PER_EXPIRATION` at once.
pub fn remove_expired_tokens(
    context: &ControllerContext<'_>,
    now: Timestamp,
) -> Vec<MetadataRecord> {
    if context.config.delegation_token_secret_key().is_none() {
        return Vec::new();
    }
    let tokens = context.image.kept.delegation_tokens.iter();
    let expired = tokens.filter(|token| is_token_expired(token, now));
    expired
        .take(MAX_RECORDS_PER_EXPIRATION)
        .map(removal)
        .collect()
}

/// The secret key, if delegation tokens are enabled and supported by the `metadata.version`.
fn usable_secret_key(context: &ControllerContext<'_>) -> Result<String, ErrorCode> {
    let secret_key = context
        .config
        .delegation_token_secret_key()
        .ok_or(ErrorCode::DelegationTokenAuthDisabled)?;
    match context.metadata_version().is_delegation_token_supported() {
        true => Ok(secret_key.to_owned()),
        false => Err(ErrorCode::UnsupportedVersion),
    }
}

/// The token with this HMAC, if it belongs to the client.
fn own_token<'a>(
    context: &ControllerContext<'a>,
    hmac: &[u8],
) -> Result<&'a DelegationTokenRecord, ErrorCode> {
    let secret_key = usable_secret_key(context)?;
    let mut tokens = context.image.kept.delegation_tokens.iter();
    // Compared in constant time, so that timing reveals nothing about an HMAC.
    tokens
        .find(|token| is_token_hmac(&secret_key, &token.token_id, hmac))
        .ok_or(ErrorCode::DelegationTokenNotFound)
}

fn may_renew(context: &ControllerContext<'_>, token: &DelegationTokenRecord) -> bool {
    token.owner == context.client || token.renewers.contains(&context.client)
}

/// The record of the token with a new expiry time, limited to the token's maximum time.
fn until(token: &DelegationTokenRecord, timestamp: i64) -> (MetadataRecord, i64) {
    let expiration_timestamp = token.max_timestamp.min(timestamp);
    let record = DelegationTokenRecord {
        expiration_timestamp,
        ..token.clone()
    };
    (
        MetadataRecord::DelegationToken(record),
        expiration_timestamp,
    )
}

fn removal(token: &DelegationTokenRecord) -> MetadataRecord {
    MetadataRecord::RemoveDelegationToken(RemoveDelegationTokenRecord {
        token_id: token.token_id.clone(),
        ..Default::default()
    })
}

/// The requested time, limited to the maximum. The maximum if no time is requested.
fn at_most(limit_ms: i64, asked_ms: i64) -> i64 {
    match asked_ms {
        1.. => limit_ms.min(asked_ms),
        _ => limit_ms,
    }
}

/// The type and the name of a principal.
fn parts(principal: &ByteString) -> (ByteString, ByteString) {
    let (principal_type, name) = principal.split_once(':').unwrap_or(("", principal));
    (principal_type.into(), name.into())
}

#[cfg(test)]
mod tests;
