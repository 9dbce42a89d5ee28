//! The channel from this broker to an active controller in another process.
//!
//! Requests go to the leader of the metadata quorum. A request is retried until its timeout when
//! there is no leader, when the connection breaks, when the node answers that it is not the leader,
//! and when another node becomes leader before the answer. Each purpose has its own connection with
//! one request in flight: a controller answers the requests of a connection one by one, and a
//! heartbeat must not wait for the creation of a thousand topics.
//!
//! Requests of clients are wrapped in an Envelope (KIP-590) with the principal and the address of
//! the client, so that the controller can authorize them. The broker's own requests are sent as
//! they are.
//!
//! The channel decides nothing and does not touch the metadata log. The number of waiting requests
//! is bounded by the callers: client connections with one request each, and the broker's own tasks.
//!
//! Kafka: `NodeToControllerChannelManagerImpl`, `NodeToControllerRequestThread`, `ForwardingManagerImpl`.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use bytestring::ByteString;
use ottla_config::BrokerConfig;
use ottla_protocol::messages::{EnvelopeRequest, RequestHeader, ResponseHeader};
use ottla_protocol::{ApiKey, ApiRequest, EncodeError, Message, Reader};
use ottla_sync::collections::HashMap;
use ottla_sync::time::{sleep, timeout_at};
use ottla_sync::{ArcSwapOption, BoxFuture, Mutex};
use ottla_types::{BrokerId, ErrorCode};
use std::time::Instant;

use ottla_metrics::complaints::Complaints;
use ottla_net::RequestContext;
use ottla_net::{PeerConnection, PeerError, PeerFailure, PeerSecurity, PeerSettings};

#[cfg(test)]
mod tests;

/// How long a request is retried, as in Kafka.
const RETRY_TIMEOUT: Duration = Duration::from_secs(60);
/// The pause between two attempts (Kafka's reconnect backoff).
const RETRY_BACKOFF: Duration = Duration::from_millis(50);
/// How often a waiting request checks whether the leader has changed.
const LOOK_WHO_LEADS: Duration = Duration::from_millis(100);
/// Trouble is logged only after this time: elections and the start of a node take about as long.
const NOTEWORTHY: Duration = Duration::from_secs(1);
/// The maximum size of a response. Lists of reassignments are the largest, and are far smaller.
const MAX_ANSWER_BYTES: usize = 100 * 1024 * 1024;

/// The leader of the metadata quorum, and the address for requests to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ActiveController {
    pub id: BrokerId,
    pub host: ByteString,
    pub port: u16,
}

/// Returns the leader that this node knows, or why it knows none. Called before each attempt and
/// periodically during it.
pub type WhoLeads = Box<dyn Fn() -> Result<ActiveController, String> + Send + Sync>;

/// Sends requests to the active controller.
pub struct ControllerChannel {
    who_leads: WhoLeads,
    /// The API versions of the controller that was connected last.
    served: Arc<ArcSwapOption<ServedByController>>,
    heartbeats: PurposeChannel,
    alter_partition: PurposeChannel,
    directory_assignments: PurposeChannel,
    forwarding: PurposeChannel,
}

impl std::fmt::Debug for ControllerChannel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ControllerChannel({:?})", (self.who_leads)())
    }
}

/// The API versions that a controller supports, from its ApiVersions response.
struct ServedByController {
    controller: BrokerId,
    versions: HashMap<ApiKey, RangeInclusive<i16>>,
}

/// The connection for one purpose, with the requests that wait for it.
struct PurposeChannel {
    own_id: BrokerId,
    settings: PeerSettings,
    served: Arc<ArcSwapOption<ServedByController>>,
    /// How long a request is retried; `None` for as long as its caller waits.
    retry_timeout: Option<Duration>,
    /// Locked while a request is in flight.
    connected: ottla_sync::async_lock::Mutex<Option<Connected>>,
    /// The error of the last attempt; `None` if it was answered.
    trouble: Mutex<Option<String>>,
    complaints: Complaints,
}

struct Connected {
    connection: PeerConnection,
    controller: BrokerId,
}

/// A request, and the place of its response. Hides their types from the code that connects and retries, so that this code
/// is generated once instead of for each type of request.
trait Exchange: Send {
    fn api(&self) -> ApiKey;

    /// Sends the request on this connection, and keeps the response. Returns whether the response says that the other node
    /// is not the active controller.
    fn send_on<'a>(
        &'a mut self,
        connection: &'a PeerConnection,
    ) -> BoxFuture<'a, Result<bool, PeerError>>;
}

struct Typed<'r, R: ApiRequest> {
    request: &'r R,
    response: Option<R::Response>,
}

/// The outcome of one attempt.
enum Attempt {
    Answered,
    /// A retry would have the same outcome.
    Refused(ErrorCode),
    /// Why the attempt failed. It can be retried.
    Failed(String),
}

impl ControllerChannel {
    /// `security` is for the controller listener.
    pub fn new(
        config: &BrokerConfig,
        security: &PeerSecurity,
        who_leads: WhoLeads,
    ) -> ControllerChannel {
        let heartbeat_interval = millis(config.broker_heartbeat_interval_ms.into());
        let served = Arc::<ArcSwapOption<ServedByController>>::default();
        let line = |retry_timeout| {
            PurposeChannel::new(config, security, retry_timeout, Arc::clone(&served))
        };
        ControllerChannel {
            who_leads,
            // A late heartbeat is useless, and the next one would wait for it.
            heartbeats: line(Some(heartbeat_interval)),
            // Retried without a limit: the partition cannot continue without the answer.
            alter_partition: line(None),
            directory_assignments: line(Some(RETRY_TIMEOUT)),
            forwarding: line(Some(RETRY_TIMEOUT)),
            served,
        }
    }

    /// The versions of an API that the active controller supports, empty if it does not support the
    /// API. `None` while that is unknown, because there is no leader or no connection to it yet.
    pub fn versions_at_leader(&self, api: ApiKey) -> Option<RangeInclusive<i16>> {
        let leader = (self.who_leads)().ok()?;
        let served = self.served.load();
        let served = served.as_ref().filter(|it| it.controller == leader.id)?;
        let versions = served.versions.get(&api).cloned();
        Some(versions.unwrap_or(RangeInclusive::new(0, -1)))
    }

    /// Sends a request of the broker itself. Returns `REQUEST_TIMED_OUT` if no controller answered
    /// in time; whether the request was executed is unknown then. Returns `NOT_CONTROLLER` if this
    /// node has become the leader itself.
    pub async fn send<R>(&self, request: &R) -> Result<R::Response, ErrorCode>
    where
        R: ApiRequest<Response: Send> + Sync,
    {
        let line = match R::API_KEY {
            ApiKey::BrokerHeartbeat | ApiKey::BrokerRegistration => &self.heartbeats,
            ApiKey::AlterPartition => &self.alter_partition,
            ApiKey::AssignReplicasToDirs => &self.directory_assignments,
            _ => &self.forwarding,
        };
        line.send(&self.who_leads, request).await
    }

    /// Sends a client's request on behalf of that client.
    pub async fn forward<R: ApiRequest>(
        &self,
        context: &RequestContext,
        request: &R,
    ) -> Result<R::Response, ErrorCode> {
        let (api, version) = (R::API_KEY, context.api_version);
        let body = request.encode_to_bytes(version);
        let mut reader = self.forward_encoded(context, api, body).await?;
        R::Response::decode(&mut reader, version)
            .map_err(|error| not_forwarded("cannot read the response to", api, &error))
    }

    /// Returns the position after the header of the response. Only encoding and decoding are generated for each type of
    /// request.
    fn forward_encoded<'a>(
        &'a self,
        context: &'a RequestContext,
        api: ApiKey,
        body: Result<Bytes, EncodeError>,
    ) -> BoxFuture<'a, Result<Reader, ErrorCode>> {
        Box::pin(async move {
            let envelope = body
                .and_then(|body| envelope(context, api, &body))
                .map_err(|error| not_forwarded("cannot encode the request for", api, &error))?;
            let response = self.forwarding.send(&self.who_leads, &envelope).await?;
            match ErrorCode::from_code(response.error_code) {
                ErrorCode::None => {}
                // The controller is older than this broker and does not support the request.
                ErrorCode::UnsupportedVersion => return Err(ErrorCode::UnsupportedVersion),
                code => {
                    let what = "the controller refuses the envelope of";
                    return Err(not_forwarded(what, api, &code));
                }
            }
            let mut reader = Reader::new(response.response_data.unwrap_or_default());
            ResponseHeader::decode(
                &mut reader,
                api.response_header_version(context.api_version),
            )
            .map_err(|error| not_forwarded("cannot read the response to", api, &error))?;
            Ok(reader)
        })
    }

    /// Why heartbeats do not reach the controller, if they do not.
    pub fn trouble(&self) -> Option<String> {
        self.heartbeats.trouble.lock().clone()
    }
}

impl PurposeChannel {
    fn new(
        config: &BrokerConfig,
        security: &PeerSecurity,
        retry_timeout: Option<Duration>,
        served: Arc<ArcSwapOption<ServedByController>>,
    ) -> PurposeChannel {
        let socket_timeout = millis(config.controller_socket_timeout_ms.into());
        PurposeChannel {
            own_id: BrokerId(config.node_id),
            served,
            settings: PeerSettings {
                client_id: ByteString::from(config.node_id.to_string()),
                request_timeout: retry_timeout.map_or(socket_timeout, |it| it.min(socket_timeout)),
                security: security.clone(),
                connection_setup_timeout: millis(config.socket_connection_setup_timeout_ms),
                receive_limit: MAX_ANSWER_BYTES,
            },
            retry_timeout,
            connected: ottla_sync::async_lock::Mutex::default(),
            trouble: Mutex::default(),
            complaints: Complaints::default(),
        }
    }

    async fn send<R>(&self, who_leads: &WhoLeads, request: &R) -> Result<R::Response, ErrorCode>
    where
        R: ApiRequest<Response: Send> + Sync,
    {
        let mut exchange = Typed {
            request,
            response: None,
        };
        self.retry(who_leads, &mut exchange).await?;
        Ok(exchange
            .response
            .expect("an exchange that was answered has its response"))
    }

    /// Repeats the exchange until it is answered or refused, or the time is over.
    fn retry<'a>(
        &'a self,
        who_leads: &'a WhoLeads,
        exchange: &'a mut dyn Exchange,
    ) -> BoxFuture<'a, Result<(), ErrorCode>> {
        Box::pin(self.retry_unboxed(who_leads, exchange))
    }

    async fn retry_unboxed(
        &self,
        who_leads: &WhoLeads,
        exchange: &mut dyn Exchange,
    ) -> Result<(), ErrorCode> {
        let far_away = Duration::from_secs(60 * 60 * 24 * 365);
        let begun = ottla_sync::time::now();
        let deadline = begun + self.retry_timeout.unwrap_or(far_away);
        let Ok(mut connected) = timeout_at(deadline, self.connected.lock()).await else {
            return Err(ErrorCode::RequestTimedOut);
        };
        loop {
            let attempt = match who_leads() {
                Ok(leader) => ottla_sync::select! {
                    attempt = attempt(self, &mut connected, &leader, &mut *exchange, deadline) => attempt,
                    () = another_leads(who_leads, leader.id) => {
                        *connected = None;
                        Attempt::Failed(format!("controller {} is no longer the leader", leader.id))
                    }
                },
                Err(reason) => Attempt::Failed(reason),
            };
            let reason = match attempt {
                Attempt::Answered => {
                    *self.trouble.lock() = None;
                    return Ok(());
                }
                Attempt::Refused(code) => return Err(code),
                Attempt::Failed(reason) => reason,
            };
            if ottla_sync::time::now() - begun > NOTEWORTHY {
                let api = exchange.api();
                self.complaints.say(|| {
                    tracing::warn!("cannot reach the controller yet ({api}): {reason}");
                });
            }
            *self.trouble.lock() = Some(reason);
            if ottla_sync::time::now() + RETRY_BACKOFF >= deadline {
                return Err(ErrorCode::RequestTimedOut);
            }
            sleep(RETRY_BACKOFF).await;
        }
    }
}

impl<R> Exchange for Typed<'_, R>
where
    R: ApiRequest<Response: Send> + Sync,
{
    fn api(&self) -> ApiKey {
        R::API_KEY
    }

    fn send_on<'a>(
        &'a mut self,
        connection: &'a PeerConnection,
    ) -> BoxFuture<'a, Result<bool, PeerError>> {
        Box::pin(async move {
            let version = connection.version(R::API_KEY)?;
            let response = connection.send(self.request).await?;
            let mut is_led_elsewhere = false;
            response.for_each_error_code(version, &mut |code| {
                is_led_elsewhere |= code == ErrorCode::NotController.code();
            });
            self.response = Some(response);
            Ok(is_led_elsewhere)
        })
    }
}

/// Connects if necessary, and sends a request once.
async fn attempt(
    line: &PurposeChannel,
    connected: &mut Option<Connected>,
    leader: &ActiveController,
    exchange: &mut dyn Exchange,
    deadline: Instant,
) -> Attempt {
    if leader.id == line.own_id {
        return Attempt::Refused(ErrorCode::NotController);
    }
    let is_usable = |it: &Connected| !it.connection.is_closed() && it.controller == leader.id;
    if !connected.as_ref().is_some_and(is_usable) {
        *connected = None;
        let opening = PeerConnection::open(&leader.host, leader.port, &line.settings);
        match timeout_at(deadline, opening).await {
            Ok(Ok(connection)) => {
                line.served.store(Some(Arc::new(ServedByController {
                    controller: leader.id,
                    versions: connection.served().clone(),
                })));
                *connected = Some(Connected {
                    connection,
                    controller: leader.id,
                });
            }
            Ok(Err(error)) => return Attempt::Failed(of_controller(leader.id, &error)),
            Err(_) => return Attempt::Failed(format!("controller {} does not answer", leader.id)),
        }
    }
    let Some(Connected { connection, .. }) = connected else {
        unreachable!("it was connected above, or the attempt has failed");
    };
    // An attempt that begins late has less time than a request otherwise has.
    let answered = timeout_at(deadline, exchange.send_on(connection)).await;
    let Ok(answered) = answered else {
        *connected = None;
        return Attempt::Failed(format!("controller {} does not answer", leader.id));
    };
    match answered {
        Ok(false) => Attempt::Answered,
        Ok(true) => {
            *connected = None;
            Attempt::Failed(format!("node {} is not the active controller", leader.id))
        }
        Err(error) => {
            let reason = of_controller(leader.id, &error);
            match error.failure {
                PeerFailure::Unreachable(_)
                | PeerFailure::Closed(_)
                | PeerFailure::LoginRejected { .. }
                | PeerFailure::TimedOut { .. } => Attempt::Failed(reason),
                PeerFailure::Unsupported { .. } => {
                    tracing::error!("{reason}");
                    Attempt::Refused(ErrorCode::UnsupportedVersion)
                }
                PeerFailure::Unreadable(_) | PeerFailure::Unsendable { .. } => {
                    tracing::error!("{reason}");
                    *connected = None;
                    Attempt::Refused(ErrorCode::UnknownServerError)
                }
            }
        }
    }
}

/// Ends when another node becomes leader. The former leader may be hung or partitioned away, and
/// may never answer. Whether it has executed the request is unknown, as with a broken connection.
async fn another_leads(who_leads: &WhoLeads, leader: BrokerId) {
    loop {
        sleep(LOOK_WHO_LEADS).await;
        if who_leads().is_ok_and(|now| now.id != leader) {
            return;
        }
    }
}

fn of_controller(id: BrokerId, error: &PeerError) -> String {
    format!("controller {id} at {error}")
}

fn millis(ms: i64) -> Duration {
    Duration::from_millis(ms.max(1) as u64)
}

/// Logs why a client's request was not forwarded, or why its response is unreadable.
fn not_forwarded(what: &str, api: ApiKey, error: &dyn std::fmt::Display) -> ErrorCode {
    tracing::error!("{what} {api} that is forwarded to the controller: {error}");
    ErrorCode::UnknownServerError
}

/// Wraps a client's request, as it was received, with the client's principal and address.
fn envelope(
    context: &RequestContext,
    api: ApiKey,
    body: &[u8],
) -> Result<EnvelopeRequest, EncodeError> {
    let version = context.api_version;
    let header = RequestHeader {
        request_api_key: api.code(),
        request_api_version: version,
        correlation_id: context.correlation_id,
        client_id: context.client_id.clone(),
        ..Default::default()
    };
    let header = header.encode_to_bytes(api.request_header_version(version))?;
    let mut data = BytesMut::with_capacity(header.len() + body.len());
    data.extend_from_slice(&header);
    data.extend_from_slice(body);
    let address: Vec<u8> = match context.identity.address().to_canonical() {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    Ok(EnvelopeRequest {
        request_data: data.freeze(),
        request_principal: Some(context.principal().to_bytes()?),
        client_host_address: Bytes::from(address),
        ..Default::default()
    })
}
