//! The layer for every request: the checks against other sites, read-only mode, the memory of
//! bodies and answers, the time limit, the headers of every response, and the audit log.
//!
//! Invariant: no handler runs for a request of another site's page. Such a page can send neither
//! the header `X-Ottla-Console` without the browser asking for permission, which is never given,
//! nor its own name as the `Host` of this console.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper::body::{Body as _, Frame, SizeHint};

use crate::audit::{self, AuditNote};
use crate::budget::{Budget, Reservation};
use crate::console::Console;
use crate::problem::Problem;

/// The header that the page sends with every request of the API.
const OWN_HEADER: &str = "x-ottla-console";
/// How long an answer may take to begin.
const LIMIT: Duration = Duration::from_secs(60);

/// The largest body of a request: records to produce.
pub(crate) const MOST_BODY: usize = 16 << 20;
/// For a login, which needs no authentication.
pub(crate) const LOGIN_BODY: usize = 16 << 10;
/// A body of this size needs no reservation: one for each connection takes 48 MiB. Otherwise no
/// user could log in, or stop a search, while another user has many searches open.
const SMALL_BODY: usize = LOGIN_BODY;
/// A body is in memory as text, decoded, and encoded for the cluster.
const BODY_COPIES: usize = 3;
/// Answers up to this size need no reservation.
const SMALL_ANSWER: u64 = 64 << 10;
const LOGIN: &str = "/api/session";

/// Whether a request is part of a login or a logout.
fn is_login(path: &str) -> bool {
    let rest = path.strip_prefix(LOGIN);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

pub(crate) async fn guard(
    State(console): State<Arc<Console>>,
    mut request: Request,
    next: Next,
) -> Response {
    let is_api = request.uri().path().starts_with("/api/");
    let mut response = match check(&console, &request, is_api) {
        Err(problem) => problem.into_response(),
        Ok(()) => {
            let note = AuditNote::new(&request);
            note.of_browser(console.browser_address(note.peer(), request.headers()));
            request.extensions_mut().insert(note.clone());
            match is_change(request.method()) {
                false if is_api => {
                    let budget = budget_of(&console, request.headers());
                    hold(run(request, next).await, &budget)
                }
                false => run(request, next).await,
                true => change(&console, request, next, note).await,
            }
        }
    };
    let headers = response.headers_mut();
    for (name, value) in [
        ("content-security-policy", POLICY),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        headers.insert(
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        );
    }
    if is_api {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

fn is_change(method: &Method) -> bool {
    method != Method::GET && method != Method::HEAD
}

async fn run(request: Request, next: Next) -> Response {
    let response = tokio::time::timeout(LIMIT, next.run(request)).await;
    response.unwrap_or_else(|_| {
        let detail = format!(
            "there was no result within {} s, and it is unknown whether a change was made; look before you try \
             again",
            LIMIT.as_secs()
        );
        Problem::timed_out(detail).into_response()
    })
}

/// Runs a change to its end, and logs it, even if the browser hangs up: it would otherwise be made
/// in part, or without a line.
async fn change(console: &Console, request: Request, next: Next, note: AuditNote) -> Response {
    let noted = note.clone();
    let admitted = admit(console, &request);
    let running = tokio::spawn(async move {
        let response = match admitted {
            // A stream keeps the contents of the body, and a preview returns them.
            Ok(Some(reservation)) => held(run(request, next).await, reservation),
            Ok(None) => run(request, next).await,
            Err(problem) => problem.into_response(),
        };
        audit::record(&noted, response.status());
        response
    });
    running.await.unwrap_or_else(|_| {
        let detail = "the change broke off, and it is unknown how much of it was made; look before you try again";
        let response = Problem::internal(detail).into_response();
        audit::record(&note, response.status());
        response
    })
}

/// Reserves the memory of a change whose body is large. The console reads a large body only with a
/// login.
fn admit(console: &Console, request: &Request) -> Result<Option<Reservation>, Problem> {
    let headers = request.headers();
    let (most, budget) = if is_login(request.uri().path()) {
        (LOGIN_BODY, console.budget.clone())
    } else {
        let visit = console.visit(headers).ok_or_else(Problem::login_required)?;
        (MOST_BODY, visit.budget.clone())
    };
    let length =
        text(headers, header::CONTENT_LENGTH.as_str()).and_then(|it| it.parse::<usize>().ok());
    let length = match length {
        Some(length) => length,
        None if headers.contains_key(header::TRANSFER_ENCODING) => most,
        None => 0,
    };
    // A longer one is refused when it is read.
    match length.min(most) {
        ..=SMALL_BODY => Ok(None),
        length => budget.reserve(length * BODY_COPIES).map(Some),
    }
}

/// The share of the sender of a request.
fn budget_of(console: &Console, headers: &HeaderMap) -> Budget {
    let visit = console.visit(headers);
    visit.map_or_else(|| console.budget.clone(), |it| it.budget.clone())
}

/// A large answer keeps its memory reserved until the browser has read it.
fn hold(response: Response, budget: &Budget) -> Response {
    let size = response.body().size_hint().exact().unwrap_or(0);
    if size <= SMALL_ANSWER {
        return response;
    }
    match budget.reserve(usize::try_from(size).unwrap_or(usize::MAX)) {
        Ok(reservation) => held(response, reservation),
        Err(problem) => problem.into_response(),
    }
}

/// The response, which keeps a reservation until it is read.
fn held(response: Response, reservation: Reservation) -> Response {
    response.map(|body| {
        Body::new(HeldBody {
            body,
            _reservation: reservation,
        })
    })
}

struct HeldBody {
    body: Body,
    _reservation: Reservation,
}

impl hyper::body::Body for HeldBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn check(console: &Console, request: &Request, is_api: bool) -> Result<(), Problem> {
    let headers = request.headers();
    let host = text(headers, header::HOST.as_str());
    if !host.is_some_and(|host| console.config().is_own_host(host)) {
        return Err(Problem::forbidden(format!(
            "host {}: not a name of this console; open it by its IP address or as localhost, or start it with \
             --public-name",
            host.unwrap_or_default()
        )));
    }
    if !is_api {
        return Ok(());
    }
    // Both are absent where the browser is older, or another program.
    let origin = text(headers, "origin");
    let is_own = |origin: &str| origin.split_once("://").map(|(_, it)| it) == host;
    if let Some(origin) = origin.filter(|origin| !is_own(origin)) {
        return Err(Problem::forbidden(format!(
            "origin {origin}: a page of another site may not use this console"
        )));
    }
    let site = text(headers, "sec-fetch-site");
    if site.is_some_and(|site| site != "same-origin" && site != "none") {
        return Err(Problem::forbidden(
            "a page of another site may not use this console",
        ));
    }
    let (method, uri) = (request.method(), request.uri());
    let is_link = method == Method::GET
        && uri.path().ends_with("/export")
        && uri
            .query()
            .is_some_and(|it| it.split('&').any(|it| it == "download=1"));
    if !headers.contains_key(OWN_HEADER) && !is_link {
        return Err(Problem::forbidden(
            "the header X-Ottla-Console is missing; send X-Ottla-Console: 1 with every request",
        ));
    }
    if console.config().read_only && is_change(method) && !is_login(uri.path()) {
        return Err(Problem::forbidden(
            "this console is in read-only mode; start it without --read-only, or the server without \
             ottla.console.read.only, to make changes",
        ));
    }
    Ok(())
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::routing::delete;
    use hyper::service::Service;
    use hyper_util::service::TowerToHyperService;
    use ottla_client::ClientConfig;
    use tokio::sync::mpsc;

    use super::*;
    use crate::config::ConsoleConfig;

    fn console() -> Arc<Console> {
        let client = ClientConfig::new("127.0.0.1:1").unwrap();
        let address = "127.0.0.1:9080".parse().unwrap();
        Arc::new(Console::new(ConsoleConfig::new(client), address))
    }

    /// Announces a body of a size, which no handler reads here.
    fn deletion(size: usize) -> Request {
        Request::delete("/api/slow")
            .header(header::HOST, "127.0.0.1:9080")
            .header(OWN_HEADER, "1")
            .header(header::CONTENT_LENGTH, size)
            .body(axum::body::Body::empty())
            .unwrap()
    }

    #[tokio::test]
    async fn a_change_continues_when_the_browser_disconnects() {
        let (ended, mut has_ended) = mpsc::channel::<()>(1);
        let handler = move || async move {
            // Longer than until the browser disconnects, also on a busy machine.
            tokio::time::sleep(Duration::from_secs(2)).await;
            ended.send(()).await.unwrap();
        };
        let router = Router::new()
            .route("/api/slow", delete(handler))
            .layer(axum::middleware::from_fn_with_state(console(), guard));
        let asked = TowerToHyperService::new(router).call(deletion(0));
        let hung_up = tokio::time::timeout(Duration::from_millis(20), asked).await;
        assert!(hung_up.is_err());
        assert_eq!(has_ended.recv().await, Some(()));
    }

    #[tokio::test]
    async fn the_memory_of_a_change_is_reserved_until_its_answer_is_read() {
        let console = console();
        let router = Router::new()
            .route("/api/slow", delete(|| async { "an answer" }))
            .layer(axum::middleware::from_fn_with_state(console.clone(), guard));
        let service = TowerToHyperService::new(router);
        let answer = service.call(deletion(1 << 20)).await;
        // All of the budget is free only if nothing is reserved.
        assert!(console.budget.reserve(usize::MAX).is_err());
        drop(answer);
        let all = console.budget.reserve(usize::MAX).unwrap();
        let refused = service.call(deletion(1 << 20)).await.unwrap();
        assert_eq!(refused.status(), 503);
        // A user that holds all memory cannot prevent logins.
        let small = service.call(deletion(LOGIN_BODY)).await.unwrap();
        assert_eq!(small.status(), 200);
        drop(all);
    }
}
