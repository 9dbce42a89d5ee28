//! Requests to the identity provider. Its document and its keys are cached; concurrent callers share one request.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ottla_oauth::{Answer, Server};
use ottla_sasl::oauth_token::{KeySet, TokenError, ValidToken, read_own, validate_id_token};
use ottla_sasl::{Secret, TokenRequest, TokenRules, form_encoded, form_of, refusal_in_answer};
use tokio::sync::{Mutex, Semaphore};

use super::answer::{Metadata, Tokens, shown};
use super::config::OidcConfig;
use super::flow::Flow;

const CONNECT: Duration = Duration::from_secs(3);
const ANSWER: Duration = Duration::from_secs(10);
/// Requests at a time; each has a thread while it waits.
const REQUESTS: usize = 16;
/// How long the document and the keys are good.
const FRESH: Duration = Duration::from_secs(60 * 60);
/// After a failure.
const PAUSE: Duration = Duration::from_secs(5);
/// Keys that do not match a token are requested again if they are older than this.
const KEYS_PAUSE: Duration = Duration::from_secs(10);

/// Of an ID token in an address. Servers refuse addresses of more than 8 KiB.
const MOST_HINT_BYTES: usize = 6 << 10;

/// The user in an ID token.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Person {
    /// The name of the user in the cluster: `user.claim`.
    pub(crate) user: String,
    /// Never that of another person at this provider: `sub`.
    pub(crate) subject: String,
}

/// Why the provider is of no help. A sentence for people.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// It says no, and would say so again.
    Refused(String),
    /// It was not reached, or its response is unusable.
    Unusable(String),
}

impl Failure {
    pub(crate) fn reason(&self) -> &str {
        match self {
            Failure::Refused(reason) | Failure::Unusable(reason) => reason,
        }
    }
}

pub(crate) struct Provider {
    config: OidcConfig,
    metadata: Mutex<Option<Known<Metadata>>>,
    keys: Mutex<Option<Known<KeySet>>>,
    requests: Arc<Semaphore>,
}

/// The last response.
struct Known<T> {
    value: Result<Arc<T>, Failure>,
    since: Instant,
    until: Instant,
}

impl<T> Known<T> {
    /// `asked` is the new answer, and `before` the one that it replaces, which is used on if there is no new one.
    fn next(asked: Result<T, Failure>, before: Option<Known<T>>) -> Known<T> {
        let since = Instant::now();
        let lasts = if asked.is_ok() { FRESH } else { PAUSE };
        let value = match (asked.map(Arc::new), before.map(|it| it.value)) {
            (Err(error), Some(Ok(old))) => {
                tracing::warn!("{}; its previous response is used", error.reason());
                Ok(old)
            }
            (asked, _) => asked,
        };
        let until = since + lasts;
        Known {
            value,
            since,
            until,
        }
    }
}

impl Provider {
    pub(super) fn new(config: OidcConfig) -> Provider {
        Provider {
            config,
            metadata: Mutex::default(),
            keys: Mutex::default(),
            requests: Arc::new(Semaphore::new(REQUESTS)),
        }
    }

    /// What people know it by.
    pub(crate) fn host(&self) -> &str {
        self.config.host()
    }

    pub(crate) fn issuer(&self) -> &str {
        &self.config.issuer
    }

    /// Its discovery document.
    pub(crate) async fn metadata(&self) -> Result<Arc<Metadata>, Failure> {
        let mut known = self.metadata.lock().await;
        if let Some(known) = known.as_ref().filter(|it| Instant::now() < it.until) {
            return known.value.clone();
        }
        let issuer = &self.config.issuer;
        let url = format!(
            "{}/.well-known/openid-configuration",
            issuer.trim_end_matches('/')
        );
        let asked = self.read(url).await;
        let asked =
            asked.and_then(|body| Metadata::parse(&body, issuer).map_err(|it| self.unusable(&it)));
        let next = Known::next(asked, known.take());
        known.insert(next).value.clone()
    }

    /// Its keys. If they do not match a token, they are requested again, unless they are new.
    async fn keys(&self, url: &str, are_unfit: bool) -> Result<Arc<KeySet>, Failure> {
        let mut known = self.keys.lock().await;
        let now = Instant::now();
        let is_good = |it: &&Known<KeySet>| {
            let is_new = now.saturating_duration_since(it.since) < KEYS_PAUSE;
            now < it.until && (!are_unfit || is_new)
        };
        if let Some(known) = known.as_ref().filter(is_good) {
            return known.value.clone();
        }
        let asked = self.read(url.to_owned()).await;
        let asked = asked.and_then(|body| {
            KeySet::parse(&body).map_err(|reason| self.unusable(&format!("{url}: {reason}")))
        });
        let next = Known::next(asked, known.take());
        known.insert(next).value.clone()
    }

    /// Acts as if its keys had been requested some time ago.
    #[cfg(test)]
    pub(super) async fn age_keys(&self) {
        if let Some(known) = self.keys.lock().await.as_mut() {
            let earlier = known.since.checked_sub(KEYS_PAUSE);
            known.since = earlier.expect("the machine runs for longer");
        }
    }

    /// The address at which a browser logs in.
    pub(crate) fn login_address(
        &self,
        metadata: &Metadata,
        flow: &Flow,
        redirect_uri: &str,
    ) -> String {
        let challenge = flow.challenge();
        let mut fields = vec![
            ("response_type", "code"),
            ("client_id", &*self.config.client_id),
            ("redirect_uri", redirect_uri),
            ("scope", &*self.config.scope),
            ("state", &*flow.state),
            ("nonce", &*flow.nonce),
            ("code_challenge", &*challenge),
            ("code_challenge_method", "S256"),
        ];
        let access = self.config.access.iter();
        fields.extend(access.map(|(name, value)| (*name, value.as_str())));
        with_query(&metadata.authorization_endpoint, &fields)
    }

    /// The address at which a browser also logs out of the provider, if it has one.
    ///
    /// The ID token identifies the session to end; without it, providers ask the user (OpenID Connect RP-Initiated
    /// Logout 1.0, 2). A token that is too long for an address is left out.
    pub(crate) async fn logout_address(&self, id_token: &Secret) -> Option<String> {
        let metadata = self.metadata().await.ok()?;
        let endpoint = metadata.end_session_endpoint.as_deref()?;
        let mut fields = vec![("client_id", &*self.config.client_id)];
        if id_token.expose().len() <= MOST_HINT_BYTES {
            fields.push(("id_token_hint", id_token.expose()));
        }
        Some(with_query(endpoint, &fields))
    }

    /// Refuses an answer of another provider (RFC 9207).
    pub(crate) fn check_issuer(
        &self,
        metadata: &Metadata,
        issuer: Option<&str>,
    ) -> Result<(), Failure> {
        let is_needed = metadata.authorization_response_iss_parameter_supported;
        match issuer {
            Some(issuer) if issuer == self.config.issuer => Ok(()),
            None if !is_needed => Ok(()),
            _ => Err(Failure::Refused(
                "the answer is of another identity provider, or does not name its own; log in again".into(),
            )),
        }
    }

    /// Changes the code of a login for tokens.
    pub(crate) async fn exchange(
        &self,
        metadata: &Metadata,
        code: &str,
        flow: &Flow,
        redirect_uri: &str,
    ) -> Result<Tokens, Failure> {
        let fields = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", redirect_uri),
            ("code_verifier", &*flow.verifier),
        ];
        self.tokens(metadata, &fields).await
    }

    pub(crate) async fn refresh(&self, refresh_token: &Secret) -> Result<Tokens, Failure> {
        let metadata = self.metadata().await?;
        let fields = [
            ("grant_type", "refresh_token"),
            ("refresh_token", refresh_token.expose()),
        ];
        self.tokens(&metadata, &fields).await
    }

    /// Has the provider forget a refresh token (RFC 7009), if it can. A failure has no consequence here.
    pub(crate) async fn revoke(&self, refresh_token: &Secret) {
        let Ok(metadata) = self.metadata().await else {
            return;
        };
        let Some(endpoint) = &metadata.revocation_endpoint else {
            return;
        };
        let fields = [
            ("token", refresh_token.expose()),
            ("token_type_hint", "refresh_token"),
        ];
        let request = self.request(&metadata, &fields);
        if let Err(error) = self.ask(endpoint.clone(), Some(request)).await {
            tracing::debug!("a token was not revoked: {}", error.reason());
        }
    }

    /// Returns the user in an ID token. `nonce` is the nonce of the login.
    pub(crate) async fn identify(
        &self,
        id_token: &Secret,
        nonce: Option<&str>,
    ) -> Result<Person, Failure> {
        let url = self.metadata().await?.jwks_uri.clone();
        let keys = self.keys(&url, false).await?;
        let mut valid = self.validate(id_token, &keys, nonce);
        // A provider may give a new key the ID of the old one, or none.
        if let Err(TokenError::UnknownKey(_) | TokenError::Signature) = valid {
            let keys = self.keys(&url, true).await?;
            valid = self.validate(id_token, &keys, nonce);
        }
        let person = valid.and_then(|valid| {
            let own = read_own(id_token.expose(), "sub", "scope")?;
            Ok(Person {
                user: valid.subject,
                subject: own.subject,
            })
        });
        person.map_err(|error| {
            // It quotes the token.
            let error = shown(&error.to_string());
            Failure::Refused(self.says(&format!("its ID token is of no use: {error}")))
        })
    }

    fn validate(
        &self,
        id_token: &Secret,
        keys: &KeySet,
        nonce: Option<&str>,
    ) -> Result<ValidToken, TokenError> {
        let rules = TokenRules {
            audiences: vec![self.config.client_id.clone()],
            issuer: Some(self.config.issuer.clone()),
            scope_claim: "scope".to_owned(),
            sub_claim: self.config.user_claim.clone(),
            clock_skew_seconds: self.config.clock_skew_seconds,
        };
        validate_id_token(id_token.expose(), keys, &rules, nonce, now_ms())
    }

    async fn tokens(
        &self,
        metadata: &Metadata,
        fields: &[(&str, &str)],
    ) -> Result<Tokens, Failure> {
        let request = self.request(metadata, fields);
        let url = metadata.token_endpoint.clone();
        let answer = self.ask(url, Some(request)).await?;
        match answer.status {
            200 => Tokens::parse(&answer.body, now_ms()).map_err(|it| self.unusable(&it)),
            400..=403 => Err(Failure::Refused(self.says(&format!(
                "it gives no token: {}",
                refusal_in_answer(&answer.body)
            )))),
            status => Err(self.unusable(&format!("HTTP status {status} instead of a token"))),
        }
    }

    /// A request with these fields, by which the provider recognises the console (RFC 6749, 2.3.1).
    fn request(&self, metadata: &Metadata, fields: &[(&str, &str)]) -> TokenRequest {
        let id = &*self.config.client_id;
        let mut fields = fields.to_vec();
        let authorization = match &self.config.client_secret {
            Some(secret) if !metadata.takes_secret_in_body() => {
                let user = format!("{}:{}", form_encoded(id), form_encoded(secret.expose()));
                let user = BASE64_STANDARD.encode(user);
                Some(Secret::new(format!("Basic {user}")))
            }
            Some(secret) => {
                fields.extend([("client_id", id), ("client_secret", secret.expose())]);
                None
            }
            None => {
                fields.push(("client_id", id));
                None
            }
        };
        TokenRequest {
            body: Secret::new(form_of(&fields)),
            authorization,
        }
    }

    async fn read(&self, url: String) -> Result<String, Failure> {
        let answer = self.ask(url.clone(), None).await?;
        match answer.status {
            200 => Ok(answer.body),
            status => Err(self.unusable(&format!("HTTP status {status} to GET {url}"))),
        }
    }

    /// A GET, or a POST of a request.
    async fn ask(&self, url: String, request: Option<TokenRequest>) -> Result<Answer, Failure> {
        let place = self.requests.clone().acquire_owned().await;
        let ssl = self.config.ssl.clone();
        let asked = tokio::task::spawn_blocking(move || {
            let _place = place;
            let server = Server {
                url: &url,
                name: "the identity provider",
                settings_of: "identity provider: ",
                ssl: &ssl,
                connect_timeout: Some(CONNECT),
                read_timeout: Some(ANSWER),
                total_timeout: ANSWER,
            };
            match &request {
                Some(request) => server.post(request),
                None => server.get(),
            }
        });
        let answered = asked.await.unwrap_or_else(|error| Err(error.to_string()));
        answered.map_err(|reason| self.unusable(&reason))
    }

    fn unusable(&self, reason: &str) -> Failure {
        Failure::Unusable(self.says(reason))
    }

    fn says(&self, what: &str) -> String {
        format!("the identity provider {}: {what}", self.config.issuer)
    }
}

fn with_query(endpoint: &str, fields: &[(&str, &str)]) -> String {
    let joint = if endpoint.contains('?') { '&' } else { '?' };
    format!("{endpoint}{joint}{}", form_of(fields))
}

fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    i64::try_from(now.unwrap_or_default().as_millis()).unwrap_or(i64::MAX)
}
