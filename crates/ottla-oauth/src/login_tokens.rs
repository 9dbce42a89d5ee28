//! The tokens with which this process logs in. All logins with the same source share one token.
//!
//! A thread replaces a token that is due. While the old token is valid, a login waits at most a
//! second for the new one. Only logins without a token wait longer, all of them for one request.
//! After a failure, no request is sent for ten seconds, and a login without a valid token fails at
//! once with the same error. Otherwise an endpoint that is down would delay every heartbeat of a
//! broker whose token is still valid.
//!
//! Kafka: `OAuthBearerRefreshingLogin`, `ExpiringCredentialRefreshingLogin`, which also replaces
//! tokens that no login needs.

use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use ottla_sasl::oauth_token::read_own;
use ottla_sasl::{
    ClientCredentials, Secret, TokenEndpoint, TokenGrant, TokenPlace, TokenRefresh, TokenSource,
    refusal_in_answer, token_in_answer,
};
use ottla_sync::{Mutex, oneshot};

use crate::assertion;
use crate::http::{ISSUER, JAAS, Server};

const URL: &str = "sasl.oauthbearer.token.endpoint.url";
/// How long one request may take where no timeout is set, as there is none in Kafka.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long logins wait for the token that replaces one that is due.
const GRACE: Duration = Duration::from_secs(1);
/// The pause between requests to an endpoint after a failure, as in Kafka's
/// `ExpiringCredentialRefreshingLogin`.
const PAUSE: Duration = Duration::from_secs(10);

/// Answers after which the same request would fail again, as in Kafka's `HttpJwtRetriever`.
const FINAL: &[u16] = &[
    400, 401, 402, 403, 404, 405, 406, 407, 409, 410, 411, 412, 413, 414, 415, 501, 505,
];

/// Why there is no token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenError {
    /// For people; it contains no secret.
    pub message: String,
    /// Whether another attempt may succeed: the endpoint was not reached, or is overloaded.
    pub is_passing: bool,
}

/// The tokens in use.
#[derive(Debug, Default)]
pub struct LoginTokens {
    by_source: Mutex<Vec<Arc<Source>>>,
}

#[derive(Debug)]
struct Source {
    source: TokenSource,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    held: Option<Held>,
    asking_since: Option<Instant>,
    /// The last failure, after which no request is sent for [`PAUSE`].
    failed: Option<(TokenError, Instant)>,
    /// Logins that have no token.
    waiting: Vec<oneshot::Sender<()>>,
}

#[derive(Debug)]
struct Held {
    token: Secret,
    /// When it came. With `chance` and the current `sasl.login.refresh.*`, this gives when it is due.
    since_ms: i64,
    /// Between 0 and 1000.
    chance: i64,
    expires_at_ms: i64,
}

impl Held {
    fn due_at_ms(&self, refresh: &TokenRefresh) -> i64 {
        refresh.due_ms(self.since_ms, self.expires_at_ms, self.chance)
    }
}

impl LoginTokens {
    /// The credentials for a login now. `now_ms` is the time of day. Waits for a token only without
    /// a valid one; requests are then repeated for `sasl.login.retry.backoff.max.ms`.
    pub async fn credentials(
        &self,
        source: &TokenSource,
        now_ms: impl Fn() -> i64,
    ) -> Result<ClientCredentials, TokenError> {
        let held = self.of(source);
        let token = match &source.place {
            TokenPlace::File(_) => held.token_of_file(now_ms()).await?,
            TokenPlace::Endpoint(..) => loop {
                match held.look(&source.refresh, now_ms()) {
                    Look::Found(token) => break token,
                    Look::Failed(error) => return Err(error),
                    // An error means that the request has ended.
                    Look::Wait(answered) => answered.await.unwrap_or_default(),
                    Look::Due(token, answered) => ottla_sync::select! {
                        _ = answered => {}
                        () = ottla_sync::time::sleep(GRACE) => break token,
                    },
                }
            },
        };
        Ok(ClientCredentials::Token {
            token,
            extensions: source.extensions.clone(),
        })
    }

    /// One entry per place and claims. The refresh settings are those of each login, so that a change of them neither asks
    /// for another token nor leaves the old one behind.
    fn of(&self, source: &TokenSource) -> Arc<Source> {
        let mut by_source = self.by_source.lock();
        let mut known = by_source.iter();
        if let Some(known) = known.find(|known| has_same_tokens(&known.source, source)) {
            return Arc::clone(known);
        }
        let new = Arc::new(Source {
            source: source.clone(),
            state: Mutex::default(),
        });
        by_source.push(Arc::clone(&new));
        new
    }
}

/// Whether a token from one source is a token from the other.
fn has_same_tokens(one: &TokenSource, other: &TokenSource) -> bool {
    let TokenSource {
        place,
        extensions,
        sub_claim,
        scope_claim,
        refresh: _,
    } = one;
    *place == other.place
        && *extensions == other.extensions
        && *sub_claim == other.sub_claim
        && *scope_claim == other.scope_claim
}

enum Look {
    Found(Secret),
    Failed(TokenError),
    /// There is no token.
    Wait(oneshot::Receiver<()>),
    /// There is one, and it is being replaced.
    Due(Secret, oneshot::Receiver<()>),
}

impl Source {
    fn look(self: &Arc<Self>, refresh: &TokenRefresh, now_ms: i64) -> Look {
        let mut state = self.state.lock();
        let is_recent =
            |(_, since): &&(TokenError, Instant)| ottla_sync::time::elapsed(*since) < PAUSE;
        let found = match &state.held {
            Some(held) if now_ms < held.due_at_ms(refresh) => {
                return Look::Found(held.token.clone());
            }
            Some(held) if now_ms < held.expires_at_ms => Some(held.token.clone()),
            _ => None,
        };
        let asking_since = match (state.asking_since, state.failed.as_ref().filter(is_recent)) {
            (Some(since), _) => since,
            (None, Some((error, _))) => {
                return found.map_or_else(|| Look::Failed(error.clone()), Look::Found);
            }
            (None, None) => {
                let source = Arc::clone(self);
                let asking = Asking {
                    source,
                    is_done: false,
                };
                ottla_sync::thread::spawn(move || asking.ask());
                *state.asking_since.insert(ottla_sync::time::now())
            }
        };
        let mut wait = || {
            let (answered, is_answered) = oneshot::channel();
            state.waiting.push(answered);
            is_answered
        };
        match found {
            None => Look::Wait(wait()),
            Some(token) if ottla_sync::time::elapsed(asking_since) < GRACE => {
                Look::Due(token, wait())
            }
            Some(token) => Look::Found(token),
        }
    }

    /// The file is read for each login. While it cannot be read, as when it is being replaced, the
    /// last token is used until it expires.
    async fn token_of_file(self: &Arc<Self>, now_ms: i64) -> Result<Secret, TokenError> {
        let reading = Arc::clone(self);
        let read = ottla_sync::task::spawn_blocking(move || {
            let TokenPlace::File(path) = &reading.source.place else {
                return Err("it is no file".to_owned());
            };
            let token = assertion::token_file(URL, path)?;
            let expires_at_ms = checked(&token, &reading.source, path)?;
            Ok((token, expires_at_ms))
        });
        let read = read.await.unwrap_or_else(|error| Err(error.to_string()));
        let mut state = self.state.lock();
        match (read, &state.held) {
            (Ok((token, expires_at_ms)), _) => {
                state.held = Some(Held {
                    token: token.clone(),
                    since_ms: now_ms,
                    chance: 0,
                    expires_at_ms,
                });
                Ok(token)
            }
            (Err(error), Some(held)) if now_ms < held.expires_at_ms => {
                tracing::warn!("{error}; the current token is used until it expires");
                Ok(held.token.clone())
            }
            (Err(message), _) => Err(TokenError {
                message,
                is_passing: false,
            }),
        }
    }

    fn on_asked(&self, asked: Result<(Secret, i64), TokenError>) {
        let now_ms = time_of_day_ms();
        let mut state = self.state.lock();
        state.asking_since = None;
        match asked {
            Ok((token, expires_at_ms)) => {
                state.failed = None;
                state.held = Some(Held {
                    token,
                    since_ms: now_ms,
                    chance: ottla_sync::random::random_range("token refresh", 0..=1000),
                    expires_at_ms,
                });
            }
            Err(error) => {
                if (state.held.as_ref()).is_some_and(|held| now_ms < held.expires_at_ms) {
                    let message = &error.message;
                    tracing::warn!("{message}; the current token is used until it expires");
                }
                state.failed = Some((error, ottla_sync::time::now()));
            }
        }
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        for answered in waiting {
            // The login may have been given up.
            let _ = answered.send(());
        }
    }
}

/// The running request. If its thread panics, the waiting logins are notified.
struct Asking {
    source: Arc<Source>,
    is_done: bool,
}

impl Asking {
    fn ask(mut self) {
        let TokenPlace::Endpoint(endpoint, grant) = &self.source.source.place else {
            return;
        };
        let asked = ask_repeatedly(endpoint, grant).and_then(|token| {
            let expires_at_ms = checked(&token, &self.source.source, &endpoint.url);
            let expires_at_ms = expires_at_ms.map_err(|message| TokenError {
                message,
                is_passing: false,
            })?;
            Ok((token, expires_at_ms))
        });
        self.is_done = true;
        self.source.on_asked(asked);
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if !self.is_done {
            self.source.on_asked(Err(TokenError {
                message: "asking for a token ended unexpectedly".to_owned(),
                is_passing: true,
            }));
        }
    }
}

fn time_of_day_ms() -> i64 {
    let now = ottla_sync::time::wall_clock().duration_since(UNIX_EPOCH);
    i64::try_from(now.unwrap_or_default().as_millis()).unwrap_or(i64::MAX)
}

/// When a token expires. One without a user or an end is an error; the broker reports all other
/// errors in it.
fn checked(token: &Secret, source: &TokenSource, from: &str) -> Result<i64, String> {
    let read = read_own(token.expose(), &source.sub_claim, &source.scope_claim);
    let read = read.map_err(|error| format!("the token from {from} is of no use: {error}"))?;
    Ok(read.expires_at_ms)
}

/// Why no token came.
enum Failure {
    /// The same request would fail again.
    Final(String),
    Passing(String),
}

fn ask_repeatedly(endpoint: &TokenEndpoint, grant: &TokenGrant) -> Result<Secret, TokenError> {
    let began = ottla_sync::time::now();
    let mut wait = endpoint.retry_backoff;
    let of_endpoint = |error: String, is_passing| TokenError {
        message: format!("no token from {}: {error}", endpoint.url),
        is_passing,
    };
    loop {
        let error = match ask(endpoint, grant, time_of_day_ms()) {
            Ok(token) => return Ok(token),
            Err(Failure::Final(error)) => return Err(of_endpoint(error, false)),
            Err(Failure::Passing(error)) => of_endpoint(error, true),
        };
        let left = left(endpoint.retry_backoff_max, began);
        // Without a pause the endpoint would be asked in a loop. Kafka: `Retry.execute`.
        let Some(left) = left.filter(|_| !wait.is_zero()) else {
            return Err(error);
        };
        tracing::warn!("{}; it is asked again", error.message);
        ottla_sync::thread::sleep(wait.min(left));
        wait *= 2;
    }
}

fn left(limit: Duration, began: Instant) -> Option<Duration> {
    let left = limit.checked_sub(ottla_sync::time::elapsed(began))?;
    (left > Duration::ZERO).then_some(left)
}

fn ask(endpoint: &TokenEndpoint, grant: &TokenGrant, now_ms: i64) -> Result<Secret, Failure> {
    let assertion = match grant.assertion() {
        Some(assertion) => assertion::create(assertion, now_ms).map_err(Failure::Final)?,
        None => Secret::default(),
    };
    let server = Server {
        url: &endpoint.url,
        name: ISSUER,
        settings_of: JAAS,
        ssl: &endpoint.ssl,
        connect_timeout: endpoint.connect_timeout,
        read_timeout: endpoint.read_timeout,
        // Limits that are set hold, even if they are longer.
        total_timeout: PATIENCE.max(
            endpoint.connect_timeout.unwrap_or_default()
                + endpoint.read_timeout.unwrap_or_default(),
        ),
    };
    let answer = server
        .post(&grant.request(&assertion))
        .map_err(Failure::Passing)?;
    match answer.status {
        200 | 201 => token_in_answer(&answer.body).map_err(Failure::Final),
        status => {
            // Other successes, such as 203 and 206, may hold a token.
            let said = match status >= 400 {
                true => refusal_in_answer(&answer.body),
                false => String::new(),
            };
            let error = format!("http status {status} {said}").trim_end().to_owned();
            Err(match FINAL.contains(&status) {
                true => Failure::Final(error),
                false => Failure::Passing(error),
            })
        }
    }
}

#[cfg(test)]
mod tests;
