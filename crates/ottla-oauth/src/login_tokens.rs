//! The tokens with which this process logs in. One is used for all logins from its source until it is to be replaced; the
//! login that finds it so waits for the new one.
//!
//! Kafka replaces tokens on a thread of its own (`OAuthBearerRefreshingLogin`), also if nobody logs in.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_sasl::oauth_token::read_own;
use ottla_sasl::{
    ClientCredentials, Secret, TokenEndpoint, TokenGrant, TokenPlace, TokenSource,
    refusal_in_answer, token_in_answer,
};
use ottla_sync::Mutex;

use crate::assertion;
use crate::http::Server;

const URL: &str = "sasl.oauthbearer.token.endpoint.url";
/// How long one request may take where no timeout is set, as there is none in Kafka.
const PATIENCE: Duration = Duration::from_secs(30);

/// Answers after which the same request would fail again, as in Kafka's `HttpJwtRetriever`.
const FINAL: &[u16] = &[
    400, 401, 402, 403, 404, 405, 406, 407, 409, 410, 411, 412, 413, 414, 415, 501, 505,
];

/// The tokens in use.
#[derive(Debug, Default)]
pub struct LoginTokens {
    by_source: Mutex<Vec<(TokenSource, Arc<Mutex<Option<Held>>>)>>,
}

#[derive(Debug)]
struct Held {
    token: Secret,
    due_at_ms: i64,
    expires_at_ms: i64,
}

impl LoginTokens {
    /// The credentials for a login now, which is `now_ms` of the time of day. Blocks: a token may have to be asked for,
    /// which is repeated for `sasl.login.retry.backoff.max.ms`. The error is for people.
    pub fn credentials(
        &self,
        source: &TokenSource,
        now_ms: i64,
    ) -> Result<ClientCredentials, String> {
        let token = match &source.place {
            TokenPlace::File(path) => {
                let token = assertion::token_file(URL, path)?;
                checked(&token, source, path)?;
                token
            }
            TokenPlace::Endpoint(endpoint, grant) => self.token(source, endpoint, grant, now_ms)?,
        };
        Ok(ClientCredentials::Token {
            token,
            extensions: source.extensions.clone(),
        })
    }

    fn token(
        &self,
        source: &TokenSource,
        endpoint: &TokenEndpoint,
        grant: &TokenGrant,
        now_ms: i64,
    ) -> Result<Secret, String> {
        let held = self.of(source);
        // Others who need it wait here, and find it.
        let mut held = held.lock();
        if let Some(held) = &*held
            && now_ms < held.due_at_ms
        {
            return Ok(held.token.clone());
        }
        let asked = ask_repeatedly(endpoint, grant, now_ms).and_then(|token| {
            let expires_at_ms = checked(&token, source, &endpoint.url)?;
            Ok((token, expires_at_ms))
        });
        match (asked, &*held) {
            (Ok((token, expires_at_ms)), _) => {
                let chance = ottla_sync::random::random_range("token refresh", 0..=1000);
                *held = Some(Held {
                    token: token.clone(),
                    due_at_ms: source.refresh.due_ms(now_ms, expires_at_ms, chance),
                    expires_at_ms,
                });
                Ok(token)
            }
            (Err(error), Some(held)) if now_ms < held.expires_at_ms => {
                tracing::warn!("{error}; the token that is there is used until it expires");
                Ok(held.token.clone())
            }
            (Err(error), _) => Err(error),
        }
    }

    fn of(&self, source: &TokenSource) -> Arc<Mutex<Option<Held>>> {
        let mut by_source = self.by_source.lock();
        if let Some((_, held)) = by_source.iter().find(|(known, _)| known == source) {
            return Arc::clone(held);
        }
        let held = Arc::default();
        by_source.push((source.clone(), Arc::clone(&held)));
        held
    }
}

/// When a token expires. One without a user or an end is an error; what else is wrong with it, the broker says.
fn checked(token: &Secret, source: &TokenSource, from: &str) -> Result<i64, String> {
    let read = read_own(token.expose(), &source.sub_claim, &source.scope_claim);
    let read = read.map_err(|error| format!("the token from {from} is of no use: {error}"))?;
    Ok(read.expires_at_ms)
}

/// Why no token came.
enum Failure {
    /// Whoever asks again gets the same answer.
    Final(String),
    Passing(String),
}

fn ask_repeatedly(
    endpoint: &TokenEndpoint,
    grant: &TokenGrant,
    now_ms: i64,
) -> Result<Secret, String> {
    let began = ottla_sync::time::now();
    let mut wait = endpoint.retry_backoff;
    let of_endpoint = |error: String| format!("no token from {}: {error}", endpoint.url);
    loop {
        let error = match ask(endpoint, grant, now_ms) {
            Ok(token) => return Ok(token),
            Err(Failure::Final(error)) => return Err(of_endpoint(error)),
            Err(Failure::Passing(error)) => error,
        };
        let Some(left) = left(endpoint.retry_backoff_max, began) else {
            return Err(of_endpoint(error));
        };
        tracing::warn!("{}; it is asked again", of_endpoint(error));
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
        ssl: &endpoint.ssl,
        connect_timeout: endpoint.connect_timeout,
        read_timeout: endpoint.read_timeout,
        total_timeout: PATIENCE,
    };
    let answer = server
        .post(&grant.request(&assertion))
        .map_err(Failure::Passing)?;
    match answer.status {
        200 | 201 => token_in_answer(&answer.body).map_err(Failure::Final),
        status => {
            let said = refusal_in_answer(&answer.body);
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
