//! Logins at the identity provider: redirects the browser there, and processes the parameters with which it returns.

use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{AppendHeaders, IntoResponse, Response};
use ottla_client::{ClientError, SuppliedToken};
use ottla_sasl::Secret;
use ottla_types::ErrorCode;
use serde::Deserialize;

use super::session::{Leave, MAX_USER_BYTES, session};
use crate::audit::AuditNote;
use crate::console::Console;
use crate::cookie::is_secure;
use crate::extract::Body;
use crate::host::{is_loopback, without_port};
use crate::oidc::{self, Failure, Flow, Oidc, Person, Tokens};
use crate::problem::Problem;
use crate::visit::Visit;

/// The page to which the provider sends browsers back.
const PAGE: &str = "/login";
const MOST_CODE_BYTES: usize = 8 << 10;

/// The parameters that the provider has added to the address of that page.
#[derive(Deserialize)]
pub(super) struct Returned {
    state: String,
    code: Option<String>,
    iss: Option<String>,
    error: Option<String>,
    error_description: Option<String>,
}

/// The address at which the browser logs in.
pub(super) async fn begin(
    State(console): State<Arc<Console>>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let oidc = of(&console)?;
    let redirect_uri = redirect_uri(&console, &headers)?;
    let metadata = oidc.provider.metadata().await.map_err(problem)?;
    let flow = oidc.flows.begin(Instant::now());
    let address = oidc.provider.login_address(&metadata, &flow, &redirect_uri);
    let cookie = oidc.cookie.set(&headers, flow.cookie());
    let cookie = AppendHeaders([(header::SET_COOKIE, cookie)]);
    Ok((cookie, Json(Leave { address })).into_response())
}

/// Logs in the user that the provider has sent back.
pub(super) async fn finish(
    State(console): State<Arc<Console>>,
    note: axum::Extension<AuditNote>,
    headers: HeaderMap,
    Body(returned): Body<Returned>,
) -> Result<Response, Problem> {
    let oidc = of(&console)?;
    let redirect_uri = redirect_uri(&console, &headers)?;
    let flow = flow_of(oidc, &headers, &returned.state)?;
    // A refusal of another provider is not shown as one of this provider's either.
    let provider = &oidc.provider;
    let metadata = provider.metadata().await.map_err(problem)?;
    let issuer = returned.iss.as_deref();
    provider.check_issuer(&metadata, issuer).map_err(problem)?;
    if let Some(error) = &returned.error {
        let more = returned.error_description.as_deref().unwrap_or_default();
        let said = format!("{} {}", oidc::shown(error), oidc::shown(more));
        return Err(Problem::login_refused(format!(
            "the identity provider {} refuses the login: {}",
            provider.issuer(),
            said.trim_end()
        )));
    }
    let code = returned.code.as_deref().unwrap_or_default();
    if code.is_empty() || code.len() > MOST_CODE_BYTES {
        return Err(Problem::invalid(
            "code",
            "the identity provider has sent no usable code; log in again",
        ));
    }
    let _place = oidc.logins.try_acquire().map_err(|_| {
        Problem::too_many("too many people log in at this moment; try again in a second")
    })?;
    let address = console.browser_address(note.peer(), &headers);
    console.attempts.begin_with_code(address, Instant::now())?;
    let exchanged = provider
        .exchange(&metadata, code, &flow, &redirect_uri)
        .await;
    if !matches!(exchanged, Err(Failure::Refused(_))) {
        console.attempts.code_not_refused(address);
    }
    let tokens = exchanged.map_err(problem)?;
    let refresh = tokens.refresh.clone();
    let entered = enter(&console, oidc, &note, &headers, &flow, tokens).await;
    if let (Err(_), Some(refresh)) = (&entered, refresh) {
        // No session keeps it. The answer does not wait for the provider.
        let provider = provider.clone();
        tokio::spawn(async move { provider.revoke(&refresh).await });
    }
    entered
}

/// Opens a session with the tokens of a login, if they belong to this login and the cluster accepts them.
async fn enter(
    console: &Console,
    oidc: &Oidc,
    note: &AuditNote,
    headers: &HeaderMap,
    flow: &Flow,
    tokens: Tokens,
) -> Result<Response, Problem> {
    let provider = &oidc.provider;
    let Some(id) = &tokens.id else {
        return Err(Problem::login_refused(format!(
            "the identity provider {} gives no ID token; its client must be one of OpenID Connect",
            provider.issuer()
        )));
    };
    let person = provider.identify(id, Some(&flow.nonce)).await;
    let Person { user, subject } = person.map_err(problem)?;
    if user.len() > MAX_USER_BYTES || user.contains(char::is_control) {
        return Err(Problem::login_refused(format!(
            "the identity provider {} names a user with more than {MAX_USER_BYTES} bytes or control characters; \
             choose another user.claim",
            provider.issuer()
        )));
    }
    let audit_name = audit_name(&user, &subject, provider.host());
    note.of_user(Some(&audit_name));
    let token = SuppliedToken::new(tokens.access);
    let visit = visit_of(console, &user, audit_name, token.clone(), id.clone());
    visit.check().await.map_err(refused)?;
    let session_token = console.sessions.open(visit.clone(), Instant::now())?;
    if let Some(old) = console.cookie.token(headers) {
        console.sessions.close(old);
    }
    let login = oidc::Login {
        subject,
        token,
        refresh: tokens.refresh,
        lasts: tokens.lasts,
    };
    tokio::spawn(oidc::keep(provider.clone(), visit.clone(), login));
    let cookies = [
        oidc.cookie.clear(headers),
        console.cookie.set(headers, &session_token),
    ];
    let cookies = AppendHeaders(cookies.map(|it| (header::SET_COOKIE, it)));
    let body = Json(session(console, Some(&visit)));
    Ok((cookies, body).into_response())
}

fn of(console: &Console) -> Result<&Oidc, Problem> {
    console.oidc.as_ref().ok_or_else(|| {
        Problem::invalid(
            "oidc",
            "this console has no identity provider; start it with --oidc-issuer, or log in with a password",
        )
    })
}

/// The login that this browser has begun. Without this check, a link could log a user in to the account of an attacker,
/// who would then see the user's actions.
fn flow_of(oidc: &Oidc, headers: &HeaderMap, state: &str) -> Result<Flow, Problem> {
    let cookie = oidc.cookie.token(headers);
    let flow = cookie.and_then(|cookie| oidc.flows.find(cookie, state, Instant::now()));
    flow.ok_or_else(|| {
        Problem::login_refused(
            "this answer of the identity provider belongs to no login that was begun last in this browser, within 10 \
             minutes; log in again",
        )
    })
}

/// The address to which the provider sends the browser back. Its name is the one under which the browser has reached
/// the console, which must be a configured one.
fn redirect_uri(console: &Console, headers: &HeaderMap) -> Result<String, Problem> {
    let host = headers.get(header::HOST).and_then(|it| it.to_str().ok());
    let host = host.unwrap_or_default();
    let name = without_port(host);
    if !console.config().is_public_name(name) {
        return Err(Problem::invalid(
            "host",
            format!(
                "host {host}: the identity provider sends browsers to {} only; open the console there",
                console.config().public_names.join(" or ")
            ),
        ));
    }
    match is_secure(headers) {
        true => Ok(format!("https://{host}{PAGE}")),
        false if is_loopback(name) => Ok(format!("http://{host}{PAGE}")),
        false => Err(Problem::invalid(
            "host",
            format!(
                "http://{host}: logins by an identity provider need HTTPS; put a proxy with TLS before the console \
                 that sets X-Forwarded-Proto: https"
            ),
        )),
    }
}

/// The name of a user in the audit log. Users may choose the claim that names them, and can take the name of another.
fn audit_name(user: &str, subject: &str, provider: &str) -> String {
    match user == subject {
        true => format!("{user} at {provider}"),
        false => format!("{user} ({}) at {provider}", oidc::shown(subject)),
    }
}

/// A visit that connects to the cluster with this token.
fn visit_of(
    console: &Console,
    user: &str,
    audit_name: String,
    token: SuppliedToken,
    id_token: Secret,
) -> Arc<Visit> {
    let mut config = console.config().client.clone();
    config.security.log_in_with_token(token);
    // A user of the cluster with this name is a different user, with a separate share.
    let share = format!("{audit_name}\nat the provider");
    let (budget, sampling) = (
        console.budget.of_user(&share),
        console.sampling.of_user(&share),
    );
    let visit = Visit::new(Some(user.to_owned()), config, budget, sampling);
    let visit = visit
        .with_registry(console.registry.clone())
        .of_provider(id_token, audit_name);
    Arc::new(visit)
}

fn problem(failure: Failure) -> Problem {
    match failure {
        Failure::Refused(reason) => Problem::login_refused(reason),
        Failure::Unusable(reason) => {
            Problem::unreachable("The identity provider cannot be used", reason)
        }
    }
}

/// The error for a user whose token the cluster refuses.
fn refused(error: ClientError) -> Problem {
    match error.code() {
        Some(ErrorCode::SaslAuthenticationFailed) => Problem::login_refused(
            "the cluster does not accept the access token of the identity provider; compare its issuer, audience and \
             subject with sasl.oauthbearer.expected.issuer, .expected.audience and .sub.claim.name of the brokers",
        ),
        Some(ErrorCode::UnsupportedSaslMechanism) => Problem::login_refused(
            "the cluster does not take OAUTHBEARER; add it to sasl.enabled.mechanisms of its brokers",
        ),
        // Logged in, and may not describe the cluster.
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_audit_log_tells_users_of_one_name_apart() {
        let of = |user, subject| audit_name(user, subject, "id.example");
        assert_eq!(of("root", "root"), "root at id.example");
        assert_eq!(of("root", "4711"), "root (4711) at id.example");
        assert_eq!(of("root", "a\nb"), "root (a\\nb) at id.example");
    }
}
