//! The source of the OAuth tokens with which a client, or a node at another node, logs in: a file, or the token
//! endpoint of an issuer. Builds the request to the endpoint and parses its response.
//!
//! Three grants, as in Kafka: client credentials with a secret (RFC 6749, 4.4), client credentials with an assertion
//! (RFC 7523, 2.2), and JWT bearer (RFC 7523, 2.1). Settings have precedence over options of the JAAS entry.
//!
//! Kafka: `DefaultJwtRetriever`, `ClientCredentialsJwtRetriever`, `JwtBearerJwtRetriever`, `FileJwtRetriever`,
//! `ClientCredentialsRequestFormatterFactory`, `AssertionSupplierFactory`, `ConfigOrJaas`, `JwtResponseParser`.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

use crate::jaas::LoginModule;
use crate::oauth_rules::path_of_file_url;
use crate::secret::Secret;

const PACKAGE: &str = "org.apache.kafka.common.security.oauthbearer";
const URL: &str = "sasl.oauthbearer.token.endpoint.url";
const RETRIEVER: &str = "sasl.oauthbearer.jwt.retriever.class";
const HANDLER: &str = "sasl.login.callback.handler.class";
const CLIENT_ID: &str = "sasl.oauthbearer.client.credentials.client.id";
const CLIENT_SECRET: &str = "sasl.oauthbearer.client.credentials.client.secret";
const SCOPE: &str = "sasl.oauthbearer.scope";
const ASSERTION_FILE: &str = "sasl.oauthbearer.assertion.file";
const KEY_FILE: &str = "sasl.oauthbearer.assertion.private.key.file";
const ALGORITHM: &str = "sasl.oauthbearer.assertion.algorithm";

/// Characters of an endpoint's answer that are shown.
const LONGEST_SHOWN: usize = 200;

/// How a client gets its tokens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenSource {
    pub place: TokenPlace,
    /// The options `extension_<name>` of the JAAS entry, which are sent along with a token.
    pub extensions: BTreeMap<String, String>,
    /// `sasl.oauthbearer.sub.claim.name`.
    pub sub_claim: String,
    /// `sasl.oauthbearer.scope.claim.name`.
    pub scope_claim: String,
    pub refresh: TokenRefresh,
}

/// `sasl.oauthbearer.token.endpoint.url`, and its related settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TokenPlace {
    /// The path of a file with a token.
    File(String),
    Endpoint(TokenEndpoint, Box<TokenGrant>),
}

/// An HTTP server that issues tokens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenEndpoint {
    /// `http:` or `https:`.
    pub url: String,
    /// `ssl.*` of the JAAS entry.
    pub ssl: BTreeMap<String, Secret>,
    /// `sasl.login.connect.timeout.ms`.
    pub connect_timeout: Option<Duration>,
    /// `sasl.login.read.timeout.ms`.
    pub read_timeout: Option<Duration>,
    /// `sasl.login.retry.backoff.ms`.
    pub retry_backoff: Duration,
    /// `sasl.login.retry.backoff.max.ms`: the total time of repeated attempts.
    pub retry_backoff_max: Duration,
}

/// The grant with which a token is requested.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TokenGrant {
    ClientSecret {
        id: String,
        secret: Secret,
        scope: Option<String>,
        /// `sasl.oauthbearer.header.urlencode` (KIP-1025).
        is_url_encoded: bool,
    },
    ClientAssertion {
        id: Option<String>,
        scope: Option<String>,
        assertion: Assertion,
    },
    JwtBearer {
        scope: Option<String>,
        assertion: Assertion,
    },
}

/// A JSON Web Token that authenticates a client to the issuer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Assertion {
    /// The path of a file with one.
    File(String),
    /// One that the client signs for each request.
    Signed(AssertionTemplate),
}

/// The claims of an assertion, and the key that signs it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AssertionTemplate {
    pub algorithm: AssertionAlgorithm,
    /// The path of a PEM file with a PKCS#8 key.
    pub key_file: String,
    pub key_passphrase: Option<Secret>,
    /// The path of a JSON file with the objects `header` and `payload`.
    pub template_file: Option<String>,
    /// The claims `aud`, `iss` and `sub`, where they are set.
    pub claims: BTreeMap<&'static str, String>,
    pub expires_seconds: i64,
    pub not_before_seconds: i64,
    /// Whether it has a `jti`.
    pub has_id: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AssertionAlgorithm {
    Rs256,
    Es256,
}

impl AssertionAlgorithm {
    /// The name in the header of a token.
    pub fn name(self) -> &'static str {
        match self {
            AssertionAlgorithm::Rs256 => "RS256",
            AssertionAlgorithm::Es256 => "ES256",
        }
    }
}

/// When a token is replaced before it expires: `sasl.login.refresh.*`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenRefresh {
    /// In thousandths of the lifetime.
    pub window_factor_thousandths: i64,
    pub window_jitter_thousandths: i64,
    pub min_period_seconds: i64,
    pub buffer_seconds: i64,
}

impl TokenRefresh {
    /// The time from which on a token that came at `now_ms` is to be replaced. `chance` is between 0 and 1000.
    ///
    /// Kafka: `ExpiringCredentialRefreshingLogin.refreshMs`, with the time at which the token came as its start.
    pub fn due_ms(&self, now_ms: i64, expires_at_ms: i64, chance: i64) -> i64 {
        let factor = self.window_factor_thousandths
            + self.window_jitter_thousandths * chance.clamp(0, 1000) / 1000;
        let lifetime = expires_at_ms.saturating_sub(now_ms).max(0);
        let proposed = now_ms.saturating_add(lifetime / 1000 * factor);
        let buffers = (self.min_period_seconds + self.buffer_seconds) * 1000;
        if lifetime < buffers {
            return proposed;
        }
        let earliest = now_ms + self.min_period_seconds * 1000;
        let latest = expires_at_ms - self.buffer_seconds * 1000;
        proposed.min(latest).max(earliest)
    }
}

/// Why the settings cannot be used: the key, without prefix, and the rest of the sentence.
pub type SourceProblem = (String, String);

impl TokenSource {
    /// Reads the settings. `lookup` has them by their names without prefix, defaults included.
    pub fn read(
        lookup: impl Fn(&str) -> Option<String>,
        module: Option<&LoginModule>,
    ) -> Result<TokenSource, SourceProblem> {
        SourceReader {
            lookup: &lookup,
            module,
        }
        .read()
    }
}

struct SourceReader<'a> {
    lookup: &'a dyn Fn(&str) -> Option<String>,
    module: Option<&'a LoginModule>,
}

impl SourceReader<'_> {
    fn read(&self) -> Result<TokenSource, SourceProblem> {
        let names = |names: &[&str], given: &str| {
            names.iter().any(|name| {
                let class = given
                    .strip_prefix(PACKAGE)
                    .and_then(|it| it.strip_prefix('.'));
                let class = class.map(|it| it.strip_prefix("secured.").unwrap_or(it));
                class == Some(name)
            })
        };
        if let Some(class) = self.text(HANDLER)
            && !names(&["OAuthBearerLoginCallbackHandler"], &class)
        {
            return Err(problem(
                HANDLER,
                &format!(
                    "={class} is a Java class, which is not supported; give {PACKAGE}.OAuthBearerLoginCallbackHandler"
                ),
            ));
        }
        let url = self.text(URL).ok_or_else(|| {
            problem(
                URL,
                " is missing: OAUTHBEARER needs a token; give the token endpoint of the issuer, or file:///path of a \
                 file with a token",
            )
        })?;
        let path = path_of_file_url(&url).map(str::to_owned);
        let retriever = self.text(RETRIEVER).unwrap_or_default();
        let is = |name: &str| names(&[name], &retriever);
        let place = match path {
            Some(path)
                if retriever.is_empty() || is("DefaultJwtRetriever") || is("FileJwtRetriever") =>
            {
                TokenPlace::File(path)
            }
            None if !["http://", "https://"].iter().any(|it| url.starts_with(it)) => {
                return Err(problem(
                    URL,
                    &format!("={url}: give a URL with https, http or file"),
                ));
            }
            None if is("JwtBearerJwtRetriever") => {
                let grant = TokenGrant::JwtBearer {
                    scope: self.text(SCOPE),
                    assertion: self.assertion()?,
                };
                TokenPlace::Endpoint(self.endpoint(url), Box::new(grant))
            }
            None if retriever.is_empty()
                || is("DefaultJwtRetriever")
                || is("ClientCredentialsJwtRetriever") =>
            {
                TokenPlace::Endpoint(self.endpoint(url), Box::new(self.client_credentials()?))
            }
            _ if is("JwtBearerJwtRetriever") || is("ClientCredentialsJwtRetriever") => {
                return Err(problem(
                    URL,
                    &format!(
                        "={url}: {retriever} gets tokens from a server; give a URL with https or http"
                    ),
                ));
            }
            _ if is("FileJwtRetriever") => {
                return Err(problem(
                    URL,
                    &format!("={url}: {retriever} gets tokens from a file; give file:///path"),
                ));
            }
            _ => {
                return Err(problem(
                    RETRIEVER,
                    &format!(
                        "={retriever} is a Java class, which is not supported; give {PACKAGE}.DefaultJwtRetriever, \
                         FileJwtRetriever, ClientCredentialsJwtRetriever or JwtBearerJwtRetriever"
                    ),
                ));
            }
        };
        Ok(TokenSource {
            place,
            extensions: self.extensions()?,
            sub_claim: self.claim_name("sasl.oauthbearer.sub.claim.name", "sub"),
            scope_claim: self.claim_name("sasl.oauthbearer.scope.claim.name", "scope"),
            refresh: TokenRefresh {
                window_factor_thousandths: self
                    .thousandths("sasl.login.refresh.window.factor", 800),
                window_jitter_thousandths: self.thousandths("sasl.login.refresh.window.jitter", 50),
                min_period_seconds: self.number("sasl.login.refresh.min.period.seconds", 60),
                buffer_seconds: self.number("sasl.login.refresh.buffer.seconds", 300),
            },
        })
    }

    fn endpoint(&self, url: String) -> TokenEndpoint {
        let ms = |key: &str| {
            let ms = self.text(key)?.parse().ok()?;
            Some(Duration::from_millis(ms))
        };
        // As in Java, 0 means that there is none.
        let limit = |key: &str| ms(key).filter(|limit| !limit.is_zero());
        let options = self.module.into_iter().flat_map(LoginModule::options);
        let ssl = options.filter(|(name, _)| name.starts_with("ssl."));
        TokenEndpoint {
            url,
            ssl: ssl
                .map(|(name, value)| (name.to_owned(), Secret::new(value)))
                .collect(),
            connect_timeout: limit("sasl.login.connect.timeout.ms"),
            read_timeout: limit("sasl.login.read.timeout.ms"),
            retry_backoff: ms("sasl.login.retry.backoff.ms").unwrap_or(Duration::from_millis(100)),
            retry_backoff_max: ms("sasl.login.retry.backoff.max.ms")
                .unwrap_or(Duration::from_secs(10)),
        }
    }

    fn client_credentials(&self) -> Result<TokenGrant, SourceProblem> {
        let scope = self.or_option(SCOPE, "scope");
        let id = self.or_option(CLIENT_ID, "clientId");
        let asserts = self.text(ASSERTION_FILE).is_some()
            || self.text("sasl.oauthbearer.assertion.claim.iss").is_some();
        if asserts {
            let assertion = self.assertion()?;
            return Ok(TokenGrant::ClientAssertion {
                id,
                scope,
                assertion,
            });
        }
        let missing = |key: &str, option: &str| {
            problem(
                key,
                &format!(
                    " is missing, and the JAAS entry has no {option}: the token endpoint needs it; give {key}, or \
                     {ASSERTION_FILE} for an assertion"
                ),
            )
        };
        let secret = self.or_option(CLIENT_SECRET, "clientSecret");
        Ok(TokenGrant::ClientSecret {
            id: id.ok_or_else(|| missing(CLIENT_ID, "clientId"))?,
            secret: Secret::new(secret.ok_or_else(|| missing(CLIENT_SECRET, "clientSecret"))?),
            scope,
            is_url_encoded: self
                .text("sasl.oauthbearer.header.urlencode")
                .is_some_and(|text| text.eq_ignore_ascii_case("true")),
        })
    }

    fn assertion(&self) -> Result<Assertion, SourceProblem> {
        if let Some(path) = self.text(ASSERTION_FILE) {
            return Ok(Assertion::File(path));
        }
        let algorithm = self.text(ALGORITHM).unwrap_or_default();
        let algorithm = match algorithm.to_ascii_uppercase().as_str() {
            "" | "RS256" => AssertionAlgorithm::Rs256,
            "ES256" => AssertionAlgorithm::Es256,
            _ => {
                return Err(problem(
                    ALGORITHM,
                    &format!("={algorithm}: give RS256 or ES256"),
                ));
            }
        };
        let key_file = self.text(KEY_FILE).ok_or_else(|| {
            problem(
                KEY_FILE,
                &format!(
                    " is missing: an assertion needs a key; give the path of a PEM file, or {ASSERTION_FILE} with a \
                     finished assertion"
                ),
            )
        })?;
        let claim = |name: &'static str| {
            let value = self.text(&format!("sasl.oauthbearer.assertion.claim.{name}"))?;
            Some((name, value))
        };
        Ok(Assertion::Signed(AssertionTemplate {
            algorithm,
            key_file,
            key_passphrase: self
                .text("sasl.oauthbearer.assertion.private.key.passphrase")
                .map(Secret::new),
            template_file: self.text("sasl.oauthbearer.assertion.template.file"),
            claims: ["aud", "iss", "sub"]
                .into_iter()
                .filter_map(claim)
                .collect(),
            expires_seconds: self.number("sasl.oauthbearer.assertion.claim.exp.seconds", 300),
            not_before_seconds: self.number("sasl.oauthbearer.assertion.claim.nbf.seconds", 60),
            has_id: self
                .text("sasl.oauthbearer.assertion.claim.jti.include")
                .is_some_and(|text| text.eq_ignore_ascii_case("true")),
        }))
    }

    fn extensions(&self) -> Result<BTreeMap<String, String>, SourceProblem> {
        let mut extensions = BTreeMap::new();
        for (name, value) in self.module.into_iter().flat_map(LoginModule::options) {
            let Some(name) = name.strip_prefix("extension_") else {
                continue;
            };
            if name == "auth" || !crate::oauthbearer::is_extension(name, value) {
                return Err(problem(
                    "sasl.jaas.config",
                    &format!(
                        ": extension_{name} cannot be sent: a name has letters only and is not `auth`, and a value is \
                         printable ASCII"
                    ),
                ));
            }
            extensions.insert(name.to_owned(), value.to_owned());
        }
        Ok(extensions)
    }

    /// A setting that is not blank, without spaces around it.
    fn text(&self, key: &str) -> Option<String> {
        let text = (self.lookup)(key)?;
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// A setting, or the option of the JAAS entry that it has replaced.
    fn or_option(&self, key: &str, option: &str) -> Option<String> {
        let of_entry = || {
            let value = self.module?.option(option)?.trim();
            (!value.is_empty()).then(|| value.to_owned())
        };
        self.text(key).or_else(of_entry)
    }

    fn claim_name(&self, key: &str, default: &str) -> String {
        self.text(key).unwrap_or_else(|| default.to_owned())
    }

    fn number(&self, key: &str, default: i64) -> i64 {
        self.text(key)
            .and_then(|text| text.parse().ok())
            .unwrap_or(default)
    }

    fn thousandths(&self, key: &str, default: i64) -> i64 {
        let given: Option<f64> = self.text(key).and_then(|text| text.parse().ok());
        given.map_or(default, |factor| (factor.clamp(0.0, 1.0) * 1000.0) as i64)
    }
}

fn problem(key: &str, rest: &str) -> SourceProblem {
    (key.to_owned(), format!("{key}{rest}"))
}

/// A POST request to a token endpoint, without the headers that are always the same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenRequest {
    /// `application/x-www-form-urlencoded`.
    pub body: Secret,
    pub authorization: Option<Secret>,
}

impl TokenGrant {
    /// The assertion that a request needs first.
    pub fn assertion(&self) -> Option<&Assertion> {
        match self {
            TokenGrant::ClientSecret { .. } => None,
            TokenGrant::ClientAssertion { assertion, .. }
            | TokenGrant::JwtBearer { assertion, .. } => Some(assertion),
        }
    }

    /// `assertion` is the text of that of [`assertion`](Self::assertion).
    pub fn request(&self, assertion: &Secret) -> TokenRequest {
        match self {
            TokenGrant::ClientSecret {
                id,
                secret,
                scope,
                is_url_encoded,
            } => {
                let encoded = |text: &str| match is_url_encoded {
                    true => form_encoded(text),
                    false => text.to_owned(),
                };
                let user = format!("{}:{}", encoded(id), encoded(secret.expose()));
                let mut body = "grant_type=client_credentials".to_owned();
                if let Some(scope) = scope {
                    body.push_str(&format!("&scope={}", encoded(scope)));
                }
                TokenRequest {
                    body: Secret::new(body),
                    authorization: Some(Secret::new(format!(
                        "Basic {}",
                        BASE64_STANDARD.encode(user)
                    ))),
                }
            }
            TokenGrant::ClientAssertion { id, scope, .. } => {
                let kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
                let mut form = vec![
                    ("client_assertion_type", kind),
                    ("client_assertion", assertion.expose()),
                    ("grant_type", "client_credentials"),
                ];
                form.extend(id.as_deref().map(|id| ("client_id", id)));
                form.extend(scope.as_deref().map(|scope| ("scope", scope)));
                form_request(&form)
            }
            TokenGrant::JwtBearer { scope, .. } => {
                let mut form = vec![
                    ("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer"),
                    ("assertion", assertion.expose()),
                ];
                form.extend(scope.as_deref().map(|scope| ("scope", scope)));
                form_request(&form)
            }
        }
    }
}

fn form_request(form: &[(&str, &str)]) -> TokenRequest {
    TokenRequest {
        body: Secret::new(form_of(form)),
        authorization: None,
    }
}

/// Fields as `application/x-www-form-urlencoded`, which is also the format of a query. The names are not encoded.
pub fn form_of(fields: &[(&str, &str)]) -> String {
    let fields = fields
        .iter()
        .map(|(name, value)| format!("{name}={}", form_encoded(value)));
    fields.collect::<Vec<_>>().join("&")
}

/// As Java's `URLEncoder`.
pub fn form_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'*' | b'_' => {
                encoded.push(char::from(byte));
            }
            b' ' => encoded.push('+'),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// The token in the answer of an endpoint: its `access_token`, or else its `id_token`.
pub fn token_in_answer(body: &str) -> Result<Secret, String> {
    let answer: Value =
        serde_json::from_str(body).map_err(|error| format!("its answer is no JSON: {error}"))?;
    let mut tokens = ["access_token", "id_token"].iter().filter_map(|name| {
        let token = answer.get(name)?.as_str()?.trim();
        (!token.is_empty()).then(|| Secret::new(token))
    });
    let missing = "its answer has neither access_token nor id_token";
    tokens.next().ok_or_else(|| missing.to_owned())
}

/// The error in the endpoint's response to a refused request (RFC 6749, 5.2), for people.
pub fn refusal_in_answer(body: &str) -> String {
    let answer: Option<Value> = serde_json::from_str(body).ok();
    let said = answer.and_then(|answer| {
        let [name, more] = match answer.get("error") {
            Some(_) => ["error", "error_description"],
            None => ["errorCode", "errorSummary"],
        };
        let name = answer.get(name)?.as_str()?.to_owned();
        let more = answer.get(more).and_then(Value::as_str);
        Some(match more {
            Some(more) => format!("{name}: {more}"),
            None => name,
        })
    });
    let said = said.unwrap_or_else(|| body.trim().to_owned());
    let shown: String = said.chars().take(LONGEST_SHOWN).collect();
    shown.escape_debug().to_string()
}

#[cfg(test)]
mod tests;
