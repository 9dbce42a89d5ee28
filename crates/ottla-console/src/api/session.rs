//! The current session, login and logout.

use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{AppendHeaders, IntoResponse, Response};
use ottla_client::ClientError;
use ottla_types::ErrorCode;
use serde::{Deserialize, Serialize};

use crate::attempts::Origin;
use crate::audit::AuditNote;
use crate::console::Console;
use crate::extract::Body;
use crate::problem::Problem;
use crate::visit::Visit;

#[derive(Serialize)]
pub(super) struct Session {
    version: &'static str,
    bootstrap_servers: String,
    cluster_id: Option<String>,
    login: &'static str,
    user: Option<String>,
    mechanisms: Vec<&'static str>,
    /// The host of the identity provider at which people can log in too.
    oidc: Option<String>,
    read_only: bool,
    /// Whether a schema registry is set.
    registry: bool,
}

/// Where the browser goes next: an endpoint of the identity provider.
#[derive(Serialize)]
pub(super) struct Leave {
    pub(super) address: String,
}

#[derive(Deserialize)]
pub(super) struct Login {
    user: String,
    password: String,
    mechanism: Option<String>,
}

pub(super) async fn get(State(console): State<Arc<Console>>, headers: HeaderMap) -> Response {
    let visit = console.visit(&headers);
    Json(session(&console, visit.as_deref())).into_response()
}

pub(super) fn session(console: &Console, visit: Option<&Visit>) -> Session {
    let config = console.config();
    Session {
        version: env!("CARGO_PKG_VERSION"),
        bootstrap_servers: config.client.bootstrap_servers.join(","),
        cluster_id: visit.and_then(|visit| visit.client().metadata().cluster_id.clone()),
        login: match (console.has_logins(), visit) {
            (false, _) => "none",
            (true, None) => "required",
            (true, Some(_)) => "done",
        },
        user: visit.and_then(|visit| visit.user.clone()),
        mechanisms: match console.has_logins() {
            true => config.mechanisms().iter().map(|it| it.name()).collect(),
            false => Vec::new(),
        },
        oidc: console
            .oidc
            .as_ref()
            .map(|it| it.provider.host().to_owned()),
        read_only: config.read_only,
        registry: config.registry.is_some(),
    }
}

pub(super) async fn log_in(
    State(console): State<Arc<Console>>,
    note: axum::Extension<AuditNote>,
    headers: HeaderMap,
    Body(login): Body<Login>,
) -> Result<Response, Problem> {
    if !console.has_logins() {
        return Err(Problem::invalid(
            "user",
            "this console has no logins; everybody is in",
        ));
    }
    if login.user.is_empty() {
        return Err(Problem::invalid(
            "user",
            "the user is empty; give a SASL user of the cluster",
        ));
    }
    // It is written to the audit log also if it does not log in.
    if login.user.len() > MAX_USER_BYTES {
        return Err(Problem::invalid(
            "user",
            format!(
                "the user is longer than {MAX_USER_BYTES} bytes; give a SASL user of the cluster"
            ),
        ));
    }
    let mechanisms = console.config().mechanisms();
    let Some(first) = mechanisms.first() else {
        return Err(Problem::invalid(
            "mechanism",
            match console.oidc {
                Some(_) => {
                    "the cluster takes no passwords here; log in at the identity provider of the console"
                }
                None => {
                    "the cluster takes no passwords here, and the console has no identity provider; set \
                     ottla.console.oidc.issuer, or add SCRAM-SHA-512 to sasl.enabled.mechanisms"
                }
            },
        ));
    };
    let wanted = login.mechanism.as_deref().unwrap_or(first.name());
    let mechanism = mechanisms.iter().find(|it| it.name() == wanted);
    let mechanism = mechanism.ok_or_else(|| {
        let names: Vec<&str> = mechanisms.iter().map(|it| it.name()).collect();
        Problem::invalid(
            "mechanism",
            format!("{wanted}: unknown mechanism; give {}", names.join(", ")),
        )
    })?;
    note.of_user(Some(&login.user));
    let _place = console.logins.try_acquire().map_err(|_| {
        Problem::too_many("too many people log in at this moment; try again in a second")
    })?;
    let origin = Origin {
        user: &login.user,
        address: console.browser_address(note.peer(), &headers),
        browser: console.browser_cookie.token(&headers),
    };
    console.attempts.begin(origin, Instant::now())?;
    let mut config = console.config().client.clone();
    config
        .security
        .log_in_as(*mechanism, &login.user, &login.password);
    let budget = console.budget.of_user(&login.user);
    let user = Some(login.user.clone());
    let sampling = console.sampling.of_user(&login.user);
    let visit = Visit::new(user, config, budget, sampling);
    let visit = Arc::new(visit.with_registry(console.registry.clone()));
    if let Err(error) = visit.check().await {
        let problem = refused(error);
        if problem.status() != StatusCode::UNAUTHORIZED.as_u16() {
            console.attempts.undecided(origin, Instant::now());
        }
        return Err(problem);
    }
    let browser = console.attempts.succeeded(origin, Instant::now());
    let token = console.sessions.open(visit.clone(), Instant::now())?;
    if let Some(old) = console.cookie.token(&headers) {
        console.sessions.close(old);
    }
    let cookies = [
        console.browser_cookie.set(&headers, &browser),
        console.cookie.set(&headers, &token),
    ];
    let cookies = AppendHeaders(cookies.map(|it| (header::SET_COOKIE, it)));
    let body = Json(session(&console, Some(&visit)));
    Ok((cookies, body).into_response())
}

pub(super) const MAX_USER_BYTES: usize = 256;

/// The error for a failed login. Every wrong name and password has the same text.
fn refused(error: ClientError) -> Problem {
    match error.code() {
        Some(ErrorCode::SaslAuthenticationFailed) => Problem::login_refused(
            "the cluster does not accept this user, password and mechanism; check them",
        ),
        Some(ErrorCode::UnsupportedSaslMechanism) => {
            Problem::login_refused("the cluster does not have this mechanism; choose another")
        }
        // Logged in, and may not describe the cluster.
        _ => error.into(),
    }
}

pub(super) async fn log_out(
    State(console): State<Arc<Console>>,
    note: axum::Extension<AuditNote>,
    headers: HeaderMap,
) -> Response {
    let visit = console.visit(&headers);
    note.of_user(visit.as_ref().and_then(|it| it.audit_name.as_deref()));
    if let Some(token) = console.cookie.token(&headers) {
        console.sessions.close(token);
    }
    let id_token = visit.as_ref().and_then(|visit| visit.id_token.as_ref());
    let leaves = match (&console.oidc, id_token) {
        (Some(oidc), Some(id_token)) => oidc.provider.logout_address(id_token).await,
        _ => None,
    };
    let cookie = console.cookie.clear(&headers);
    let mut response = match leaves {
        Some(address) => Json(Leave { address }).into_response(),
        None => StatusCode::NO_CONTENT.into_response(),
    };
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}
