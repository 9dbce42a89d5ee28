//! The state machine of a SASL login: the valid order of messages, their responses, and the
//! resulting principal.
//!
//! ```text
//! ApiVersions?  ->  SaslHandshake  ->  SaslAuthenticate, once or twice  ->  authenticated, or closed
//!                   (version 0: then tokens without a header)
//! ```
//!
//! A session that expires is renewed on the same connection, starting with SaslHandshake (KIP-368),
//! with the same mechanism and as the same principal.
//!
//! A failure that the client is informed of is delayed by
//! `connection.failed.authentication.delay.ms`. The caller waits.
//!
//! Kafka: `SaslServerAuthenticator`, from which the messages are taken.

use std::sync::Arc;

use bytestring::ByteString;
use ottla_protocol::ApiKey;
use ottla_protocol::messages::{SaslAuthenticateResponse, SaslHandshakeResponse};
use ottla_sasl::oauthbearer::{ACKNOWLEDGED_ERROR, InitialResponse};
use ottla_sasl::plain::{PlainError, PlainResponse};
use ottla_sasl::scram::{ScramCredential, ScramError, ScramServer};
use ottla_sasl::{
    EnabledMechanism, KerberosService, Mechanism, SaslListener, ScramMechanism, Secret,
};
use ottla_types::ErrorCode;

use crate::principal::Principal;

/// The credentials and randomness that a login needs.
pub trait SaslCredentials {
    /// The credential of a user.
    fn scram(&self, mechanism: ScramMechanism, username: &str) -> Option<ScramCredential>;

    /// A credential for an unknown user, with which no login succeeds.
    fn scram_decoy(&self, mechanism: ScramMechanism, username: &str) -> ScramCredential;

    /// A delegation token that has not expired.
    fn delegation_token(
        &self,
        mechanism: ScramMechanism,
        token_id: &str,
        now: Moment,
    ) -> Option<TokenCredential>;

    /// A credential for an unknown delegation token, with which no login succeeds.
    fn token_decoy(&self, mechanism: ScramMechanism, token_id: &str) -> ScramCredential;

    /// Validates an OAuth token with the settings of the listener. The error is the JSON that the
    /// client receives.
    fn oauth(
        &self,
        enabled: &EnabledMechanism,
        token: &Secret,
        now: Moment,
    ) -> Result<OAuthIdentity, String>;

    /// An unpredictable text without commas.
    fn nonce(&self) -> String;
}

/// A delegation token and its credential.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenCredential {
    pub credential: ScramCredential,
    pub owner: Principal,
    /// Wall-clock time in milliseconds.
    pub expires_at_ms: i64,
}

/// The identity in an OAuth token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OAuthIdentity {
    pub name: String,
    /// Wall-clock time in milliseconds.
    pub expires_at_ms: i64,
}

/// The response of the Kerberos library to a message of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KerberosAnswer {
    Challenge(Vec<u8>),
    /// The client is this user.
    Done {
        user: String,
    },
    /// The ticket is valid, and the rules map its principal to no user.
    Nameless,
    /// The ticket is not accepted. The client receives no reason.
    Refused,
    /// The same login may succeed in a moment. The connection is closed for this reason, so that the
    /// client tries again.
    TryAgain(String),
}

/// The current time on both clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    /// The node's monotonic clock.
    pub now_ms: u64,
    /// The wall clock.
    pub time_of_day_ms: i64,
}

/// A response to the client.
#[derive(Clone, PartialEq, Debug)]
pub enum Reply {
    Handshake(SaslHandshakeResponse),
    Authenticate(SaslAuthenticateResponse),
    /// Without a header, after SaslHandshake version 0.
    Token(Vec<u8>),
    /// Not even an empty message.
    Nothing,
}

/// An authenticated session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Session {
    pub principal: Principal,
    pub mechanism: Mechanism,
    /// On the node's monotonic clock; `None` if the session lasts as long as the connection.
    pub expires_at_ms: Option<u64>,
    /// Whether the client can re-authenticate on its connection: it uses SaslAuthenticate version 1
    /// or newer.
    pub may_reauthenticate: bool,
}

/// The outcome of a message.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    /// The exchange continues.
    Continue(Reply),
    Authenticated(Reply, Session),
    /// To be counted and logged. After the delay the client receives the reply, and the connection
    /// is closed.
    Failed {
        reply: Option<Reply>,
        message: String,
    },
    /// The request is not part of the login. To be counted and logged; after the delay the client receives the error
    /// response of the request, with `ILLEGAL_SASL_STATE`, and the connection is closed.
    Misplaced {
        message: String,
    },
    /// The connection is closed at once.
    Closed(String),
    /// The Kerberos library has to process this message of the client. The next call is
    /// [`SaslAuthenticator::on_kerberos`], with its answer.
    Kerberos {
        service: Arc<KerberosService>,
        message: Vec<u8>,
    },
}

/// The state of one login.
#[derive(Debug)]
pub struct SaslAuthenticator {
    listener: Arc<SaslListener>,
    state: State,
    /// Whether tokens are sent in SaslAuthenticate.
    has_headers: bool,
    may_reauthenticate: bool,
    /// The session that is being renewed.
    previous: Option<Session>,
}

#[derive(Debug)]
enum State {
    /// No message has been received.
    Initial,
    /// The next request may be ApiVersions or SaslHandshake.
    HandshakeOrVersions,
    Handshake,
    Exchange(EnabledMechanism, Box<Exchange>),
    /// The handshake of a re-authentication named another mechanism. The next message fails with
    /// this error.
    BadMechanism(String),
    /// The login has succeeded, and the client has no user name. Its next message closes the connection.
    Nameless,
    Done,
}

#[derive(Debug)]
enum Exchange {
    Plain,
    Scram(ScramServer, Option<(Principal, i64)>),
    /// With the error that the client was sent and has not acknowledged yet.
    OAuthBearer(Option<String>),
    Gssapi(Arc<KerberosService>),
}

/// The state of the exchange after a token.
enum Progress {
    Challenge(Vec<u8>),
    /// The last message of the broker, the principal, and the wall-clock time of expiry.
    Done(Vec<u8>, Principal, Option<i64>),
}

/// Why a login fails.
enum Failure {
    /// The client receives this message.
    WithMessage(String),
    /// The client receives the same message for all of these, so that it reveals nothing.
    Invalid,
}

impl From<PlainError> for Failure {
    fn from(error: PlainError) -> Failure {
        Failure::WithMessage(error.to_string())
    }
}

impl From<ScramError> for Failure {
    fn from(error: ScramError) -> Failure {
        match error {
            ScramError::OtherAuthorizationId => Failure::WithMessage(error.to_string()),
            _ => Failure::Invalid,
        }
    }
}

impl SaslAuthenticator {
    pub fn new(listener: Arc<SaslListener>) -> SaslAuthenticator {
        SaslAuthenticator {
            listener,
            state: State::Initial,
            has_headers: false,
            may_reauthenticate: false,
            previous: None,
        }
    }

    /// Starts the re-authentication of a session.
    pub fn again(listener: Arc<SaslListener>, previous: Session) -> SaslAuthenticator {
        SaslAuthenticator {
            state: State::HandshakeOrVersions,
            may_reauthenticate: previous.may_reauthenticate,
            previous: Some(previous),
            ..SaslAuthenticator::new(listener)
        }
    }

    /// Whether the next frame is a token without a header.
    pub fn expects_token(&self) -> bool {
        !self.has_headers && matches!(self.state, State::Exchange(..))
    }

    /// Whether this is a re-authentication.
    pub fn is_again(&self) -> bool {
        self.previous.is_some()
    }

    /// Whether ApiVersions is permitted now.
    pub fn may_ask_versions(&self) -> bool {
        matches!(self.state, State::Initial | State::HandshakeOrVersions)
    }

    /// ApiVersions was answered. `is_good`: with the versions, not with an error.
    pub fn on_versions_answered(&mut self, is_good: bool) {
        self.state = match is_good {
            true => State::Handshake,
            false => State::HandshakeOrVersions,
        };
    }

    pub fn on_handshake(&mut self, version: i16, mechanism: &str) -> Outcome {
        match &self.state {
            State::Initial | State::HandshakeOrVersions | State::Handshake => {}
            _ => return self.on_other(ApiKey::SaslHandshake),
        }
        self.has_headers |= version >= 1;
        let mut response = SaslHandshakeResponse {
            error_code: ErrorCode::None.code(),
            mechanisms: self
                .listener
                .mechanisms
                .iter()
                .map(|enabled| ByteString::from_static(enabled.mechanism.name()))
                .collect(),
        };
        let Some(enabled) = self.listener.find(mechanism).cloned() else {
            self.state = State::Done;
            let message = format!("Unsupported SASL mechanism {mechanism}");
            // Kafka handles a re-authentication in its request path, where an error closes the
            // connection.
            if self.is_again() {
                return Outcome::Closed(message);
            }
            response.error_code = ErrorCode::UnsupportedSaslMechanism.code();
            return Outcome::Failed {
                reply: Some(Reply::Handshake(response)),
                message,
            };
        };
        let previous = self.previous.as_ref().map(|previous| previous.mechanism);
        self.state = match previous {
            Some(previous) if previous != enabled.mechanism => State::BadMechanism(format!(
                "SASL mechanism '{mechanism}' requested by client is not supported for re-authentication of \
                 mechanism '{previous}'"
            )),
            _ => {
                let exchange = match (enabled.mechanism, &enabled.kerberos) {
                    (Mechanism::Plain, _) => Exchange::Plain,
                    (Mechanism::Scram(scram), _) => Exchange::Scram(ScramServer::new(scram), None),
                    (Mechanism::OAuthBearer, _) => Exchange::OAuthBearer(None),
                    (Mechanism::Gssapi, Some(service)) => Exchange::Gssapi(Arc::clone(service)),
                    // Cannot happen: the configuration was checked.
                    (Mechanism::Gssapi, None) => {
                        self.state = State::Done;
                        return Outcome::Closed("GSSAPI has no service principal".to_owned());
                    }
                };
                State::Exchange(enabled, Box::new(exchange))
            }
        };
        Outcome::Continue(Reply::Handshake(response))
    }

    /// Processes SaslAuthenticate, or a token without a header, for which `version` is `None`.
    pub fn on_token(
        &mut self,
        version: Option<i16>,
        token: &[u8],
        credentials: &impl SaslCredentials,
        now: Moment,
    ) -> Outcome {
        let (enabled, mut exchange) = match std::mem::replace(&mut self.state, State::Done) {
            State::Exchange(enabled, exchange) => (enabled, exchange),
            State::BadMechanism(message) => {
                return Outcome::Failed {
                    reply: None,
                    message,
                };
            }
            State::Nameless => return nameless(),
            State::Initial | State::HandshakeOrVersions | State::Handshake | State::Done => {
                return Outcome::Closed(unexpected(ApiKey::SaslAuthenticate, "handshake"));
            }
        };
        self.may_reauthenticate |= version.is_some_and(|version| version > 0);
        if let Exchange::Gssapi(service) = &*exchange {
            let service = Arc::clone(service);
            self.state = State::Exchange(enabled, exchange);
            return Outcome::Kerberos {
                service,
                message: token.to_vec(),
            };
        }
        let progress = exchange.step(&enabled, token, credentials, now);
        self.follow(enabled, exchange, progress, now)
    }

    /// Processes the answer of the Kerberos library to the message of the last
    /// [`Outcome::Kerberos`].
    pub fn on_kerberos(&mut self, answer: KerberosAnswer, now: Moment) -> Outcome {
        let (enabled, exchange) = match std::mem::replace(&mut self.state, State::Done) {
            State::Exchange(enabled, exchange) => (enabled, exchange),
            _ => return Outcome::Closed("no message was given to Kerberos".to_owned()),
        };
        let progress = match answer {
            KerberosAnswer::Challenge(message) => Ok(Progress::Challenge(message)),
            // As in Kafka, the lifetime of the ticket does not limit the session.
            KerberosAnswer::Done { user } => {
                Ok(Progress::Done(Vec::new(), Principal::user(&user), None))
            }
            // As in Kafka, which looks for the name when it renews a session, and otherwise for the first request: the
            // client connects again, and may find other rules.
            KerberosAnswer::Nameless if self.is_again() => return nameless(),
            KerberosAnswer::Nameless => {
                let reply = self.last_reply(&enabled, Vec::new(), lifetime_ms(&enabled, None, now));
                self.state = State::Nameless;
                return Outcome::Continue(reply);
            }
            KerberosAnswer::Refused => Err(Failure::Invalid),
            KerberosAnswer::TryAgain(reason) => return Outcome::Closed(reason),
        };
        self.follow(enabled, exchange, progress, now)
    }

    /// The outcome of a token.
    fn follow(
        &mut self,
        enabled: EnabledMechanism,
        exchange: Box<Exchange>,
        progress: Result<Progress, Failure>,
        now: Moment,
    ) -> Outcome {
        match progress.and_then(|progress| self.check_principal(progress)) {
            Ok(Progress::Challenge(message)) => {
                self.state = State::Exchange(enabled, exchange);
                Outcome::Continue(self.reply(message, 0))
            }
            Ok(Progress::Done(message, principal, expires_at_ms)) => {
                let lifetime_ms = lifetime_ms(&enabled, expires_at_ms, now);
                let session = Session {
                    principal,
                    mechanism: enabled.mechanism,
                    expires_at_ms: lifetime_ms.map(|lifetime| now.now_ms.saturating_add(lifetime)),
                    may_reauthenticate: self.may_reauthenticate,
                };
                let reply = self.last_reply(&enabled, message, lifetime_ms);
                Outcome::Authenticated(reply, session)
            }
            Err(Failure::WithMessage(message)) => Outcome::Failed {
                reply: self.refusal(&message),
                message,
            },
            Err(Failure::Invalid) => {
                let again = if self.is_again() { "re-" } else { "" };
                let message = format!(
                    "Authentication failed during {again}authentication due to invalid credentials with SASL \
                     mechanism {}",
                    enabled.mechanism
                );
                match self.refusal(&message) {
                    Some(reply) => Outcome::Failed {
                        reply: Some(reply),
                        message,
                    },
                    // Kafka treats this as a broken connection.
                    None => Outcome::Closed(message),
                }
            }
        }
    }

    /// Processes any other request.
    pub fn on_other(&mut self, api_key: ApiKey) -> Outcome {
        match std::mem::replace(&mut self.state, State::Done) {
            State::Initial => Outcome::Closed(
                "Invalid request, potential reasons: kafka client configured with the wrong security protocol, it \
                 does not support KIP-43 or it is not a kafka client."
                    .to_owned(),
            ),
            State::Nameless => nameless(),
            State::HandshakeOrVersions | State::Handshake | State::Done => {
                Outcome::Closed(unexpected(api_key, "handshake"))
            }
            State::BadMechanism(message) => Outcome::Failed {
                reply: None,
                message,
            },
            State::Exchange(..) => Outcome::Misplaced {
                message: unexpected(api_key, "authentication"),
            },
        }
    }

    /// Processes a request in an unsupported version, which has no response format. Kafka cannot
    /// parse it.
    pub fn on_unsupported_version(&mut self, api_key: ApiKey, version: i16) -> Outcome {
        if !matches!(self.state, State::Exchange(..)) {
            return self.on_other(api_key);
        }
        self.state = State::Done;
        let name = api_key.name();
        Outcome::Closed(format!(
            "Kafka request of type {name} and version {version}, which is not served, during SASL authentication."
        ))
    }

    /// Processes a frame that is longer than `sasl.server.max.receive.size`, or malformed.
    pub fn on_invalid_frame(&mut self) -> Outcome {
        self.state = State::Done;
        Outcome::Failed {
            reply: None,
            message: "Failing SASL authentication due to invalid receive size".to_owned(),
        }
    }

    /// Checks that a renewed session has the same principal.
    fn check_principal(&self, progress: Progress) -> Result<Progress, Failure> {
        if let (Progress::Done(_, principal, _), Some(previous)) = (&progress, &self.previous) {
            let before = &previous.principal;
            if before.as_str() != principal.as_str() {
                return Err(Failure::WithMessage(format!(
                    "Cannot change principals during re-authentication from {}.{}: {}.{}",
                    before.principal_type(),
                    before.name(),
                    principal.principal_type(),
                    principal.name(),
                )));
            }
        }
        Ok(progress)
    }

    fn reply(&self, message: Vec<u8>, session_lifetime_ms: u64) -> Reply {
        if !self.has_headers {
            return Reply::Token(message);
        }
        Reply::Authenticate(SaslAuthenticateResponse {
            auth_bytes: message.into(),
            session_lifetime_ms: i64::try_from(session_lifetime_ms).unwrap_or(i64::MAX),
            ..Default::default()
        })
    }

    /// The last message of a successful login. Without headers, a login with Kerberos ends with the
    /// last message of the client (RFC 4752). The client would take another message of the broker
    /// for the response to its first request.
    fn last_reply(
        &self,
        enabled: &EnabledMechanism,
        message: Vec<u8>,
        session_lifetime_ms: Option<u64>,
    ) -> Reply {
        match enabled.mechanism {
            Mechanism::Gssapi if !self.has_headers => Reply::Nothing,
            _ => self.reply(message, session_lifetime_ms.unwrap_or(0)),
        }
    }

    /// The response to a client whose login has failed. There is none without headers.
    fn refusal(&self, message: &str) -> Option<Reply> {
        self.has_headers.then(|| {
            Reply::Authenticate(SaslAuthenticateResponse {
                error_code: ErrorCode::SaslAuthenticationFailed.code(),
                error_message: Some(message.into()),
                ..Default::default()
            })
        })
    }
}

fn nameless() -> Outcome {
    Outcome::Closed("no rule maps its Kerberos principal to a user".to_owned())
}

/// Some responses contain it, so it has the name of Kafka's constant: `LIST_GROUPS`.
fn unexpected(api_key: ApiKey, phase: &str) -> String {
    let mut constant = String::new();
    for letter in api_key.name().chars() {
        if letter.is_ascii_uppercase() && !constant.is_empty() {
            constant.push('_');
        }
        constant.push(letter.to_ascii_uppercase());
    }
    format!("Unexpected Kafka request of type {constant} during SASL {phase}.")
}

/// The lifetime of a session, limited by the credential and by `connections.max.reauth.ms`.
fn lifetime_ms(enabled: &EnabledMechanism, expires_at_ms: Option<i64>, now: Moment) -> Option<u64> {
    let of_credential = expires_at_ms.map(|expires_at| {
        let left = expires_at.saturating_sub(now.time_of_day_ms);
        u64::try_from(left).unwrap_or(0)
    });
    match (of_credential, enabled.max_reauth_ms) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

impl Exchange {
    fn step(
        &mut self,
        enabled: &EnabledMechanism,
        token: &[u8],
        credentials: &impl SaslCredentials,
        now: Moment,
    ) -> Result<Progress, Failure> {
        match self {
            Exchange::Plain => {
                let response = PlainResponse::parse(token)?;
                if !enabled.is_password(&response.username, &response.password) {
                    return Err(PlainError::InvalidCredentials.into());
                }
                response.check_authorization_id()?;
                let principal = Principal::user(&response.username);
                Ok(Progress::Done(Vec::new(), principal, None))
            }
            Exchange::Scram(server, identity) if server.is_started() => {
                let mechanism = server.mechanism();
                let first = server.on_client_first(token)?;
                let name = &first.username;
                // The decoy is computed in any case, so that the response time does not reveal
                // whether the user exists.
                let (decoy, found) = match first.is_token {
                    true => (
                        credentials.token_decoy(mechanism, name),
                        credentials
                            .delegation_token(mechanism, name, now)
                            .map(|token| (token.credential, token.owner, token.expires_at_ms)),
                    ),
                    false => (
                        credentials.scram_decoy(mechanism, name),
                        credentials
                            .scram(mechanism, name)
                            .map(|credential| (credential, Principal::user(name), i64::MAX)),
                    ),
                };
                let is_known = found.is_some();
                let (credential, principal, expires_at_ms) =
                    found.unwrap_or((decoy, Principal::anonymous(), 0));
                *identity = Some(match first.is_token {
                    true => (principal.token_authenticated(), expires_at_ms),
                    false => (principal, expires_at_ms),
                });
                let nonce = credentials.nonce();
                let message = server.challenge(credential, is_known, &nonce)?;
                Ok(Progress::Challenge(message))
            }
            Exchange::Scram(server, identity) => {
                let message = server.on_client_final(token)?;
                let (principal, expires_at_ms) = identity.take().ok_or(Failure::Invalid)?;
                let expires_at_ms = Some(expires_at_ms).filter(|at| *at != i64::MAX);
                Ok(Progress::Done(message, principal, expires_at_ms))
            }
            // Its messages go to the Kerberos library.
            Exchange::Gssapi(_) => Err(Failure::Invalid),
            Exchange::OAuthBearer(error) => {
                if token == ACKNOWLEDGED_ERROR
                    && let Some(error) = error.take()
                {
                    return Err(Failure::WithMessage(error));
                }
                let response = InitialResponse::parse(token).map_err(|_| Failure::Invalid)?;
                let identity = match credentials.oauth(enabled, &response.token, now) {
                    Ok(identity) => identity,
                    Err(json) => {
                        *error = Some(json.clone());
                        return Ok(Progress::Challenge(json.into_bytes()));
                    }
                };
                let asked = &response.authorization_id;
                if !asked.is_empty() && *asked != identity.name {
                    return Err(Failure::WithMessage(format!(
                        "Authentication failed: Client requested an authorization id ({asked}) that is different \
                         from the token's principal name ({})",
                        identity.name
                    )));
                }
                let principal = Principal::user(&identity.name);
                let expires_at_ms = Some(identity.expires_at_ms);
                Ok(Progress::Done(Vec::new(), principal, expires_at_ms))
            }
        }
    }
}

#[cfg(test)]
mod tests;
