//! The SASL login of a connection: which frames belong to it, and when its session ends.
//!
//! A connection to a SASL listener has a [`Login`], which sees each frame before it is treated as a
//! request. `ottla-security` decides which messages are valid when; this file decodes, encodes and
//! counts.
//!
//! Kafka: `KafkaChannel`, which becomes readable once its authenticator is complete, and
//! `Processor`, which re-authenticates sessions and closes expired ones.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ottla_config::BrokerConfig;
use ottla_context::NodeContext;
use ottla_gssapi::ServerKerberos;
use ottla_metrics::Metric;
use ottla_protocol::messages::{RequestHeader, SaslAuthenticateRequest, SaslHandshakeRequest};
use ottla_protocol::{
    ApiKey, DecodeError, EncodeError, Encoded, Message, Reader, decode_request_header,
};
use ottla_sasl::SaslListener;
use ottla_security::{Moment, Outcome, Reply, SaslAuthenticator, Session};

use crate::connections::Connection;
use crate::failed_logins::{FailedLogins, shown};
use crate::handshakes::UnderWay;
use crate::kerberos::ask_kerberos;
use crate::network::Network;
use crate::request_memory::RequestMemory;
use crate::response::{encode_response, encode_token};
use crate::sasl_credentials::ClusterCredentials;
use crate::service::{MisplacedRequest, Service};

/// The maximum duration of the first login.
const LONGEST: Duration = Duration::from_secs(30);
/// The minimum time between two re-authentications of a connection, as in Kafka.
const BETWEEN_SESSIONS_MS: u64 = 1_000;
const NONE_UNDER_WAY: &str = "there is no login under way";

/// The login state of one connection.
pub(crate) struct Login {
    listener: Arc<SaslListener>,
    /// The login in progress.
    under_way: Option<SaslAuthenticator>,
    /// The part of it that the Kerberos library has.
    kerberos: Option<ServerKerberos>,
    session: Option<Session>,
    /// The first login must be complete by then.
    deadline: Instant,
    last_begun_ms: Option<u64>,
    /// Counts the first login among those in progress until it is complete.
    unfinished: Option<UnderWay>,
    failed: Arc<FailedLogins>,
}

/// The purpose of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// A request of an authenticated client.
    Request,
    /// ApiVersions, which is permitted before the login.
    Versions,
    Login,
    /// A request after the session has expired.
    Expired,
}

/// A frame of the login that is a request.
struct Request {
    api_key: ApiKey,
    header: RequestHeader,
    /// What has not been decoded.
    body: Reader,
}

/// The outcome of a login frame.
#[derive(Debug)]
pub(crate) enum Answered {
    Continue(Encoded),
    /// The login is complete.
    LoggedIn(Encoded),
    /// After a delay, the peer receives the response, if there is one, and the connection is
    /// closed.
    Refused(Option<Encoded>),
    Closed(String),
}

impl Login {
    /// The login of a new connection, after its TLS handshake; `None` if the listener has no SASL.
    pub fn of(
        config: &BrokerConfig,
        network: &Network,
        connection: &Arc<Connection>,
    ) -> Option<Login> {
        let (protocol, handshakes) = (connection.listener.protocol, &network.handshakes);
        if !protocol.uses_sasl() {
            if protocol.uses_tls() {
                let metrics = &network.context.metrics;
                metrics.add(Metric::SuccessfulAuthentications, 1);
                metrics.add(Metric::SuccessfulAuthenticationsWithoutReauth, 1);
            }
            return None;
        }
        // The configuration was checked: a SASL listener has mechanisms. Without a mechanism, no
        // client could log in.
        let listener = config.sasl.listener(&connection.listener.name).cloned();
        let listener = listener.unwrap_or_default();
        Some(Login {
            under_way: Some(SaslAuthenticator::new(Arc::clone(&listener))),
            listener,
            kerberos: None,
            session: None,
            deadline: ottla_sync::time::now() + LONGEST,
            last_begun_ms: None,
            unfinished: Some(handshakes.begin(connection)),
            failed: Arc::clone(&handshakes.failed),
        })
    }

    pub fn is_logged_in(&self) -> bool {
        self.session.is_some()
    }

    /// Completes when the first login has taken too long.
    pub fn overdue(login: Option<&Login>) -> impl Future<Output = ()> + use<> {
        let unfinished = login.filter(|login| !login.is_logged_in());
        let deadline = unfinished.map(|login| login.deadline);
        async move {
            match deadline {
                Some(deadline) => ottla_sync::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        }
    }

    /// The budget for the frames of a connection.
    pub fn frame_memory<'a>(login: Option<&Login>, network: &'a Network) -> &'a RequestMemory {
        match login.is_none_or(Login::is_logged_in) {
            true => &network.request_memory,
            false => &network.login_memory,
        }
    }

    /// Whether a connection reads little ahead and keeps no buffer while it waits: memory is low, or its
    /// peer has not logged in.
    pub fn is_memory_low(login: Option<&Login>, network: &Network) -> bool {
        let is_unknown = login.is_some_and(|login| !login.is_logged_in());
        is_unknown || network.request_memory.is_low()
    }

    /// Whether the first login has taken too long. For a client that always has another frame for
    /// this node, which never waits then.
    pub fn is_overdue(&self) -> bool {
        !self.is_logged_in() && ottla_sync::time::now() >= self.deadline
    }

    pub fn purpose(&mut self, frame: &[u8], now_ms: u64) -> Purpose {
        let api_key = match frame.first_chunk::<2>() {
            Some(code) => ApiKey::from_code(i16::from_be_bytes(*code)),
            None => None,
        };
        if let Some(under_way) = &self.under_way {
            let is_versions = !under_way.expects_token()
                && under_way.may_ask_versions()
                && api_key == Some(ApiKey::ApiVersions);
            return match is_versions {
                true => Purpose::Versions,
                false => Purpose::Login,
            };
        }
        let Some(session) = &self.session else {
            return Purpose::Login;
        };
        let Some(expires_at_ms) = session.expires_at_ms else {
            return Purpose::Request;
        };
        let is_late_enough = self
            .last_begun_ms
            .is_none_or(|last| now_ms.saturating_sub(last) >= BETWEEN_SESSIONS_MS);
        if api_key == Some(ApiKey::SaslHandshake) && is_late_enough {
            let again = SaslAuthenticator::again(Arc::clone(&self.listener), session.clone());
            self.under_way = Some(again);
            self.last_begun_ms = Some(now_ms);
            return Purpose::Login;
        }
        match now_ms > expires_at_ms {
            true => Purpose::Expired,
            false => Purpose::Request,
        }
    }

    /// ApiVersions was answered, with the versions or with an error.
    pub fn on_versions_answered(&mut self, is_good: bool) {
        if let Some(under_way) = &mut self.under_way {
            under_way.on_versions_answered(is_good);
        }
    }

    /// Processes a frame of the login.
    pub async fn on_frame(
        &mut self,
        frame: Bytes,
        context: &NodeContext,
        connection: &Connection,
        service: &impl Service,
    ) -> Result<Answered, DecodeError> {
        let (mut outcome, request) = self.step(frame, context)?;
        if let Outcome::Kerberos { service, message } = outcome {
            let answer = ask_kerberos(&mut self.kerberos, service, message, context).await;
            outcome = match &mut self.under_way {
                Some(under_way) => under_way.on_kerberos(answer, moment(context)),
                None => Outcome::Closed(NONE_UNDER_WAY.to_owned()),
            };
        }
        let refuse = |request| service.refuse_during_login(request);
        Ok(self.follow(outcome, request, context, connection, refuse))
    }

    /// The outcome of a frame, and the request if it is one.
    fn step(
        &mut self,
        frame: Bytes,
        context: &NodeContext,
    ) -> Result<(Outcome, Option<Request>), DecodeError> {
        let Some(under_way) = &mut self.under_way else {
            return Ok((Outcome::Closed(NONE_UNDER_WAY.to_owned()), None));
        };
        let (bootstrap, config) = (context.bootstrap_scram(), context.config());
        let tokens = context.token_credentials();
        let credentials = ClusterCredentials {
            image: Arc::clone(&context.metadata()),
            bootstrap: &bootstrap,
            tokens: &tokens,
            config: &config,
            context,
        };
        let now = moment(context);
        if under_way.expects_token() {
            let outcome = under_way.on_token(None, &frame, &credentials, now);
            return Ok((outcome, None));
        }
        let mut body = Reader::untrusted(frame);
        let (api_key, header) = decode_request_header(&mut body)?;
        let version = header.request_api_version;
        let outcome = match api_key {
            ApiKey::SaslHandshake if is_known(api_key, version) => {
                let request = SaslHandshakeRequest::decode(&mut body, version)?;
                under_way.on_handshake(version, &request.mechanism)
            }
            ApiKey::SaslAuthenticate if is_known(api_key, version) => {
                let request = SaslAuthenticateRequest::decode(&mut body, version)?;
                under_way.on_token(Some(version), &request.auth_bytes, &credentials, now)
            }
            ApiKey::ApiVersions => under_way.on_other(api_key),
            _ if is_known(api_key, version) => under_way.on_other(api_key),
            _ => under_way.on_unsupported_version(api_key, version),
        };
        let request = Request {
            api_key,
            header,
            body,
        };
        Ok((outcome, Some(request)))
    }

    /// Reports a frame that is longer than a login may be. The caller closes the connection.
    pub fn on_invalid_frame(&mut self, context: &NodeContext, connection: &Connection) {
        if let Some(under_way) = &mut self.under_way {
            let outcome = under_way.on_invalid_frame();
            self.follow(outcome, None, context, connection, |_| None);
        }
    }

    /// Counts the outcome of a frame, and encodes the response.
    fn follow(
        &mut self,
        outcome: Outcome,
        request: Option<Request>,
        context: &NodeContext,
        connection: &Connection,
        refuse: impl FnOnce(MisplacedRequest) -> Option<Encoded>,
    ) -> Answered {
        let is_again = self
            .under_way
            .as_ref()
            .is_some_and(SaslAuthenticator::is_again);
        let encoded = |reply: &Reply| encode(reply, request.as_ref());
        match outcome {
            Outcome::Continue(reply) => match encoded(&reply) {
                Ok(encoded) => Answered::Continue(encoded),
                Err(error) => Answered::Closed(error.to_string()),
            },
            Outcome::Authenticated(reply, session) => {
                context.metrics.add(
                    match is_again {
                        true => Metric::SuccessfulReauthentications,
                        false => Metric::SuccessfulAuthentications,
                    },
                    1,
                );
                if !is_again && !session.may_reauthenticate {
                    let metric = Metric::SuccessfulAuthenticationsWithoutReauth;
                    context.metrics.add(metric, 1);
                }
                tracing::debug!(
                    peer = %connection.peer_addr,
                    "{} has logged in with {}", session.principal, session.mechanism
                );
                connection.set_principal(session.principal.clone());
                self.session = Some(session);
                self.unfinished = None;
                self.under_way = None;
                match encoded(&reply) {
                    Ok(encoded) => Answered::LoggedIn(encoded),
                    Err(error) => Answered::Closed(error.to_string()),
                }
            }
            Outcome::Failed { reply, message } => {
                self.report_failure(context, connection, is_again, &message);
                Answered::Refused(reply.and_then(|reply| encoded(&reply).ok()))
            }
            Outcome::Misplaced { message } => {
                self.report_failure(context, connection, is_again, &message);
                let request = request.map(|request| request.misplaced(message));
                Answered::Refused(request.and_then(refuse))
            }
            Outcome::Closed(reason) => Answered::Closed(reason),
            // Processed by `on_frame`.
            Outcome::Kerberos { .. } => Answered::Closed(NONE_UNDER_WAY.to_owned()),
        }
    }

    /// Logs in the format of Kafka's `Selector`.
    fn report_failure(
        &self,
        context: &NodeContext,
        connection: &Connection,
        is_again: bool,
        message: &str,
    ) {
        let (metric, again) = match is_again {
            true => (Metric::FailedReauthentications, "re-"),
            false => (Metric::FailedAuthentications, ""),
        };
        context.metrics.add(metric, 1);
        let identity = connection.identity();
        let host = identity.host();
        self.failed.say(host, || {
            tracing::info!(
                listener = %connection.listener.name,
                "Failed {again}authentication with /{host} (channelId={}) ({})",
                connection.channel_id(),
                shown(message)
            );
        });
    }
}

impl Request {
    fn misplaced(self, reason: String) -> MisplacedRequest {
        MisplacedRequest {
            api_key: self.api_key,
            api_version: self.header.request_api_version,
            correlation_id: self.header.correlation_id,
            body: self.body,
            reason,
        }
    }
}

fn moment(context: &NodeContext) -> Moment {
    Moment {
        now_ms: context.now_ms(),
        time_of_day_ms: context.timestamp().0,
    }
}

/// As in Kafka, an unstable version counts too: the request is only refused.
fn is_known(api_key: ApiKey, version: i16) -> bool {
    api_key.valid_versions().contains(&version)
}

fn encode(reply: &Reply, request: Option<&Request>) -> Result<Encoded, EncodeError> {
    let (api_key, version, correlation_id) = match request {
        Some(Request {
            api_key, header, ..
        }) => (*api_key, header.request_api_version, header.correlation_id),
        None => (ApiKey::SaslAuthenticate, 0, 0),
    };
    match reply {
        Reply::Handshake(response) => encode_response(api_key, version, correlation_id, response),
        Reply::Authenticate(response) => {
            encode_response(api_key, version, correlation_id, response)
        }
        Reply::Token(token) => encode_token(token),
        Reply::Nothing => Ok(Encoded::default()),
    }
}
