//! The way from this broker to the active controller, which is another process.
//!
//! Requests go to whoever leads the metadata quorum. Where nobody leads, the connection breaks, the node says
//! that it does not lead, or another leads before it has answered, a request is sent again, to whoever leads then, until
//! its time is up. Each purpose has a
//! connection of its own, on which one request is under way at a time: a controller answers a connection's
//! requests one by one, and a heartbeat must not wait behind the creation of a thousand topics.
//!
//! What clients ask of the controller goes in an Envelope (KIP-590) with their principal and address, so that the
//! controller can judge who asks; what the broker asks for itself goes as it is.
//!
//! It never decides anything, and never touches the metadata log. Waiting requests are bounded by their askers:
//! connections, each with one, and the broker's own tasks.
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
use ottla_sync::ArcSwapOption;
use ottla_sync::Mutex;
use ottla_sync::collections::HashMap;
use ottla_sync::time::{sleep, timeout_at};
use ottla_tls::TlsContext;
use ottla_types::{BrokerId, ErrorCode};
use std::time::Instant;

use ottla_metrics::complaints::Complaints;
use ottla_net::RequestContext;
use ottla_net::{PeerConnection, PeerError, PeerFailure, PeerSettings};

#[cfg(test)]
mod tests;

/// How long a request waits at most for a controller that takes it, as in Kafka.
const RETRY_TIMEOUT: Duration = Duration::from_secs(60);
/// Between two attempts (Kafka's reconnect backoff).
const RETRY_BACKOFF: Duration = Duration::from_millis(50);
/// How often to look whether it is still the leader who is waited for.
const LOOK_WHO_LEADS: Duration = Duration::from_millis(100);
/// Elections and the start of a node take that long, and nothing is wrong.
const NOTEWORTHY: Duration = Duration::from_secs(1);
/// The largest answer that is read. Lists of reassignments are the largest, and far below.
const MAX_ANSWER_BYTES: usize = 100 * 1024 * 1024;

/// The node that leads the metadata quorum, and where it takes requests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ActiveController {
    pub id: BrokerId,
    pub host: ByteString,
    pub port: u16,
}

/// Who leads, as far as this node knows, or why it does not. Asked before each attempt, and now and then during it.
pub type WhoLeads = Box<dyn Fn() -> Result<ActiveController, String> + Send + Sync>;

/// Sends requests to the active controller.
pub struct ControllerChannel {
    who_leads: WhoLeads,
    /// What the controller serves that was connected to last.
    served: Arc<ArcSwapOption<ServedByController>>,
    heartbeats: Line,
    alter_partition: Line,
    directory_assignments: Line,
    forwarding: Line,
}

impl std::fmt::Debug for ControllerChannel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ControllerChannel({:?})", (self.who_leads)())
    }
}

/// The versions of the APIs that a controller has said it serves.
struct ServedByController {
    controller: BrokerId,
    versions: HashMap<ApiKey, RangeInclusive<i16>>,
}

/// A connection for one purpose, with those that wait for it.
struct Line {
    own_id: BrokerId,
    settings: PeerSettings,
    served: Arc<ArcSwapOption<ServedByController>>,
    /// How long a request may be tried; `None` for as long as its asker waits.
    retry_timeout: Option<Duration>,
    /// Whoever sends holds it until the answer is there.
    connected: ottla_sync::async_lock::Mutex<Option<Connected>>,
    /// What last kept a request from its answer; `None` since one was answered.
    trouble: Mutex<Option<String>>,
    complaints: Complaints,
}

struct Connected {
    connection: PeerConnection,
    controller: BrokerId,
}

/// What one attempt came to.
enum Attempt<T> {
    Answered(T),
    /// Another attempt would come to the same.
    Refused(ErrorCode),
    /// Why not yet.
    Failed(String),
}

impl ControllerChannel {
    /// `tls` is for the listener of the controllers, where it uses TLS.
    pub fn new(
        config: &BrokerConfig,
        tls: Option<Arc<TlsContext>>,
        who_leads: WhoLeads,
    ) -> ControllerChannel {
        let heartbeat_interval = millis(config.broker_heartbeat_interval_ms.into());
        let served = Arc::<ArcSwapOption<ServedByController>>::default();
        let line =
            |retry_timeout| Line::new(config, tls.clone(), retry_timeout, Arc::clone(&served));
        ControllerChannel {
            who_leads,
            // One that is late is of no use: the next would wait behind it.
            heartbeats: line(Some(heartbeat_interval)),
            // Nothing else could be done about it, and the partition waits for it.
            alter_partition: line(None),
            directory_assignments: line(Some(RETRY_TIMEOUT)),
            forwarding: line(Some(RETRY_TIMEOUT)),
            served,
        }
    }

    /// Which versions of an API the active controller serves, empty for none. `None` while it has not said so: nobody
    /// leads, or it was not connected to yet.
    pub fn versions_at_leader(&self, api: ApiKey) -> Option<RangeInclusive<i16>> {
        let leader = (self.who_leads)().ok()?;
        let served = self.served.load();
        let served = served.as_ref().filter(|it| it.controller == leader.id)?;
        let versions = served.versions.get(&api).cloned();
        Some(versions.unwrap_or(RangeInclusive::new(0, -1)))
    }

    /// Sends a request of the broker's own. `REQUEST_TIMED_OUT` where no controller has taken it in time: nothing is
    /// known of its fate then. `NOT_CONTROLLER` where the lead has come to this node itself.
    pub async fn send<R: ApiRequest>(&self, request: &R) -> Result<R::Response, ErrorCode> {
        let line = match R::API_KEY {
            ApiKey::BrokerHeartbeat | ApiKey::BrokerRegistration => &self.heartbeats,
            ApiKey::AlterPartition => &self.alter_partition,
            ApiKey::AssignReplicasToDirs => &self.directory_assignments,
            _ => &self.forwarding,
        };
        line.send(&self.who_leads, request).await
    }

    /// Sends what a client has asked for, in its name.
    pub async fn forward<R: ApiRequest>(
        &self,
        context: &RequestContext,
        request: &R,
    ) -> Result<R::Response, ErrorCode> {
        let failed = |what: &str, error: &dyn std::fmt::Display| {
            let api = R::API_KEY;
            tracing::error!("{what} {api} that is forwarded to the controller: {error}");
            ErrorCode::UnknownServerError
        };
        let envelope = envelope(context, request)
            .map_err(|error| failed("cannot encode the request for", &error))?;
        let response = self.forwarding.send(&self.who_leads, &envelope).await?;
        match ErrorCode::from_code(response.error_code) {
            ErrorCode::None => {}
            // The controller is older than this broker, and does not know what the client asks.
            ErrorCode::UnsupportedVersion => return Err(ErrorCode::UnsupportedVersion),
            code => return Err(failed("the controller refuses the envelope of", &code)),
        }
        let mut reader = Reader::new(response.response_data.unwrap_or_default());
        let version = context.api_version;
        ResponseHeader::decode(&mut reader, R::API_KEY.response_header_version(version))
            .and_then(|_| R::Response::decode(&mut reader, version))
            .map_err(|error| failed("cannot read the response to", &error))
    }

    /// What keeps heartbeats from the controller, where something does.
    pub fn trouble(&self) -> Option<String> {
        self.heartbeats.trouble.lock().clone()
    }
}

impl Line {
    fn new(
        config: &BrokerConfig,
        tls: Option<Arc<TlsContext>>,
        retry_timeout: Option<Duration>,
        served: Arc<ArcSwapOption<ServedByController>>,
    ) -> Line {
        let socket_timeout = millis(config.controller_socket_timeout_ms.into());
        Line {
            own_id: BrokerId(config.node_id),
            served,
            settings: PeerSettings {
                client_id: ByteString::from(config.node_id.to_string()),
                request_timeout: retry_timeout.map_or(socket_timeout, |it| it.min(socket_timeout)),
                tls,
                sasl: config.sasl_of_controllers(),
                connection_setup_timeout: millis(config.socket_connection_setup_timeout_ms),
                receive_limit: MAX_ANSWER_BYTES,
            },
            retry_timeout,
            connected: ottla_sync::async_lock::Mutex::default(),
            trouble: Mutex::default(),
            complaints: Complaints::default(),
        }
    }

    async fn send<R: ApiRequest>(
        &self,
        who_leads: &WhoLeads,
        request: &R,
    ) -> Result<R::Response, ErrorCode> {
        let far_away = Duration::from_secs(60 * 60 * 24 * 365);
        let begun = ottla_sync::time::now();
        let deadline = begun + self.retry_timeout.unwrap_or(far_away);
        let Ok(mut connected) = timeout_at(deadline, self.connected.lock()).await else {
            return Err(ErrorCode::RequestTimedOut);
        };
        loop {
            let attempt = match who_leads() {
                Ok(leader) => ottla_sync::select! {
                    attempt = attempt(self, &mut connected, &leader, request, deadline) => attempt,
                    () = another_leads(who_leads, leader.id) => {
                        *connected = None;
                        Attempt::Failed(format!("controller {} is no longer the leader", leader.id))
                    }
                },
                Err(reason) => Attempt::Failed(reason),
            };
            let reason = match attempt {
                Attempt::Answered(response) => {
                    *self.trouble.lock() = None;
                    return Ok(response);
                }
                Attempt::Refused(code) => return Err(code),
                Attempt::Failed(reason) => reason,
            };
            if ottla_sync::time::now() - begun > NOTEWORTHY {
                let api = R::API_KEY;
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

/// Connects where that has to be, and sends a request once.
async fn attempt<R: ApiRequest>(
    line: &Line,
    connected: &mut Option<Connected>,
    leader: &ActiveController,
    request: &R,
    deadline: Instant,
) -> Attempt<R::Response> {
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
    let answer = async {
        let version = connection.version(R::API_KEY)?;
        let response = connection.send(request).await?;
        Ok::<_, PeerError>((response, version))
    };
    match answer.await {
        Ok((response, version)) => {
            let mut is_led_elsewhere = false;
            response.for_each_error_code(version, &mut |code| {
                is_led_elsewhere |= code == ErrorCode::NotController.code();
            });
            if !is_led_elsewhere {
                return Attempt::Answered(response);
            }
            *connected = None;
            Attempt::Failed(format!("node {} is not the active controller", leader.id))
        }
        Err(error) => {
            let reason = of_controller(leader.id, &error);
            match error.failure {
                PeerFailure::Unreachable(_)
                | PeerFailure::Closed(_)
                | PeerFailure::NotLetIn { .. }
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

/// Ends when another node leads: who led before may be held up or cut off, and would be waited for in vain. What becomes of
/// the request is as open then as it is when the connection breaks.
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

/// A client's request, as it came, with who sent it and from where.
fn envelope<R: ApiRequest>(
    context: &RequestContext,
    request: &R,
) -> Result<EnvelopeRequest, EncodeError> {
    let version = context.api_version;
    let header = RequestHeader {
        request_api_key: R::API_KEY.code(),
        request_api_version: version,
        correlation_id: context.correlation_id,
        client_id: context.client_id.clone(),
        ..Default::default()
    };
    let header = header.encode_to_bytes(R::API_KEY.request_header_version(version))?;
    let body = request.encode_to_bytes(version)?;
    let mut data = BytesMut::with_capacity(header.len() + body.len());
    data.extend_from_slice(&header);
    data.extend_from_slice(&body);
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
