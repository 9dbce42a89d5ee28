//! Delegation tokens (KIP-48).
//!
//! Invariant: the HMAC of a token, which is its password, is in the response to its creation and
//! nowhere else, neither in a list nor in a log. Requests to renew or expire a token name its ID.

use axum::Json;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ottla_client::ClientError;
use ottla_client::admin::PrincipalParts;
use ottla_protocol::messages::describe_delegation_token_response::DescribedDelegationToken;
use ottla_security::Principal;
use ottla_types::ErrorCode;
use serde::{Deserialize, Serialize};

use crate::console::Visitor;
use crate::extract::{Body, Path, Query};
use crate::list::{ListQuery, Page};
use crate::problem::Problem;

/// As long as the broker allows, or at once.
const UNLIMITED: i64 = -1;

#[derive(Serialize)]
pub(super) struct Token {
    token_id: String,
    owner: String,
    /// The principal that created it.
    requester: String,
    /// The principals that may renew it besides the owner.
    renewers: Vec<String>,
    issued: i64,
    expires: i64,
    /// It cannot be renewed beyond this.
    max: i64,
}

pub(super) async fn list(
    visitor: Visitor,
    Query(list): Query<ListQuery>,
) -> Result<Json<Page<Token>>, Problem> {
    let tokens = visitor.admin.describe_delegation_tokens(None).await?;
    let mut items: Vec<Token> = tokens.iter().map(token).collect();
    items.retain(|it| {
        let mut names = it.renewers.iter().chain([&it.token_id, &it.owner]);
        names.any(|name| list.matches(name))
    });
    items.sort_by(|one, other| (one.expires, &one.token_id).cmp(&(other.expires, &other.token_id)));
    Ok(Json(list.page_in_order(items)?))
}

fn token(token: &DescribedDelegationToken) -> Token {
    let renewers = token.renewers.iter();
    Token {
        token_id: token.token_id.to_string(),
        owner: shown(&token.principal_type, &token.principal_name),
        requester: shown(
            &token.token_requester_principal_type,
            &token.token_requester_principal_name,
        ),
        renewers: renewers
            .map(|it| shown(&it.principal_type, &it.principal_name))
            .collect(),
        issued: token.issue_timestamp,
        expires: token.expiry_timestamp,
        max: token.max_timestamp,
    }
}

fn shown(principal_type: &str, name: &str) -> String {
    format!("{principal_type}:{name}")
}

#[derive(Deserialize)]
pub(super) struct Creation {
    /// `None`: the requester.
    owner: Option<String>,
    #[serde(default)]
    renewers: Vec<String>,
    max_lifetime_ms: Option<i64>,
}

#[derive(Serialize)]
pub(super) struct Created {
    #[serde(flatten)]
    token: Token,
    /// Base64. It is shown only once.
    hmac: String,
}

pub(super) async fn create(
    visitor: Visitor,
    Body(creation): Body<Creation>,
) -> Result<Json<Created>, Problem> {
    let lifetime_ms = period("max_lifetime_ms", creation.max_lifetime_ms)?;
    let owner = creation.owner.as_deref().filter(|it| !it.is_empty());
    let owner = owner.map(|it| principal("owner", it)).transpose()?;
    let renewers = creation.renewers.iter();
    let renewers: Result<Vec<PrincipalParts>, Problem> =
        renewers.map(|it| principal("renewers", it)).collect();
    let renewers = renewers?;
    let names: Vec<String> = renewers.iter().map(|it| shown(&it.0, &it.1)).collect();
    let whose = match &owner {
        Some((kind, name)) => format!(" for {}", shown(kind, name)),
        None => String::new(),
    };
    let by = match names.is_empty() {
        true => String::new(),
        false => format!(", renewed by {}", names.join(", ")),
    };
    visitor.note.names(format!("a token{whose}{by}"));
    let created = visitor
        .admin
        .create_delegation_token(owner, &renewers, lifetime_ms)
        .await?;
    visitor
        .note
        .names(format!("token {}{whose}{by}", created.token_id));
    let token = Token {
        token_id: created.token_id.to_string(),
        owner: shown(&created.principal_type, &created.principal_name),
        requester: shown(
            &created.token_requester_principal_type,
            &created.token_requester_principal_name,
        ),
        renewers: names,
        issued: created.issue_timestamp_ms,
        expires: created.expiry_timestamp_ms,
        max: created.max_timestamp_ms,
    };
    Ok(Json(Created {
        token,
        hmac: STANDARD.encode(&created.hmac),
    }))
}

/// Type and name. The error names the text.
fn principal(field: &'static str, text: &str) -> Result<PrincipalParts, Problem> {
    let parsed = Principal::parse(text.trim()).ok();
    let parsed = parsed.filter(|it| !it.principal_type().is_empty() && !it.name().is_empty());
    match parsed {
        Some(it) => Ok((it.principal_type().into(), it.name().into())),
        None => Err(Problem::invalid(
            field,
            format!("{field}={text}: give a type and a name, as in User:alice"),
        )),
    }
}

fn period(field: &'static str, given: Option<i64>) -> Result<i64, Problem> {
    match given {
        None => Ok(UNLIMITED),
        Some(ms @ 1..) => Ok(ms),
        Some(ms) => Err(Problem::invalid(
            field,
            format!("{field}={ms}: give 1 ms or more, or leave it out"),
        )),
    }
}

#[derive(Deserialize)]
pub(super) struct Period {
    period_ms: Option<i64>,
}

#[derive(Serialize)]
pub(super) struct Expiry {
    expires: i64,
}

pub(super) async fn renew(
    visitor: Visitor,
    Path(id): Path<String>,
    Body(wanted): Body<Period>,
) -> Result<Json<Expiry>, Problem> {
    let period_ms = period("period_ms", wanted.period_ms)?;
    let hmac = found(&visitor, &id).await?.hmac;
    let expires = visitor
        .admin
        .renew_delegation_token(hmac, period_ms)
        .await?;
    Ok(Json(Expiry { expires }))
}

/// At once without a period.
pub(super) async fn expire(
    visitor: Visitor,
    Path(id): Path<String>,
    Body(wanted): Body<Period>,
) -> Result<Json<Expiry>, Problem> {
    let period_ms = period("period_ms", wanted.period_ms)?;
    let hmac = found(&visitor, &id).await?.hmac;
    let expires = visitor
        .admin
        .expire_delegation_token(hmac, period_ms)
        .await?;
    Ok(Json(Expiry { expires }))
}

/// The token, as the cluster shows it to this person.
async fn found(visitor: &Visitor, id: &str) -> Result<DescribedDelegationToken, Problem> {
    let tokens = visitor.admin.describe_delegation_tokens(None).await?;
    let found = tokens.into_iter().find(|it| *it.token_id == *id);
    found.ok_or_else(|| {
        Problem::from(ClientError::broker(
            format!("token {id}"),
            ErrorCode::DelegationTokenNotFound.code(),
            Some("it has expired, or you may not describe it"),
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_in_a_list_has_no_hmac() {
        let described = DescribedDelegationToken {
            token_id: "id".into(),
            hmac: bytes::Bytes::from_static(b"hush"),
            principal_type: "User".into(),
            principal_name: "alice".into(),
            ..DescribedDelegationToken::default()
        };
        let listed = serde_json::to_string(&token(&described)).unwrap();
        assert!(listed.contains("User:alice"), "{listed}");
        for hidden in ["hmac", "hush", STANDARD.encode("hush").as_str()] {
            assert!(!listed.contains(hidden), "{listed}");
        }
    }

    #[test]
    fn principals_and_periods_are_checked() {
        let parsed = principal("owner", " User:a:b ").unwrap();
        assert_eq!((&*parsed.0, &*parsed.1), ("User", "a:b"));
        for text in ["alice", ":alice", "User:", ""] {
            assert_eq!(principal("owner", text).unwrap_err().status(), 422);
        }
        assert_eq!(period("period_ms", None).unwrap(), UNLIMITED);
        assert_eq!(period("period_ms", Some(5)).unwrap(), 5);
        assert!(period("period_ms", Some(0)).is_err());
        assert!(period("period_ms", Some(-1)).is_err());
    }
}
