//! One connection to one broker.
//!
//! Requests are written in the order in which they are sent, and many can be in flight; responses
//! arrive in the same order. A writer task and a reader task own the two halves of the socket, so
//! that a cancelled caller cannot leave half a frame in the stream. The first failure closes the
//! connection for all callers, because responses would no longer match requests.
//!
//! The write queue is bounded by the callers: each waits for its response, or limits its requests,
//! as the producer does.

mod frame_reader;
mod login;
mod socket;
mod wire;

use std::collections::{HashMap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use std::io::IoSlice;

use bytes::{Buf, Bytes};
use ottla_protocol::messages::ApiVersionsRequest;
use ottla_protocol::{ApiKey, ApiRequest, Message, decode_api_versions_response};
use ottla_sync::mpsc;
use ottla_sync::task::AbortHandle;
use ottla_sync::{BoxFuture, Mutex};
use ottla_tls::CertificateFacts;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use crate::config::ClientConfig;
use crate::error::ClientError;
use crate::metrics::NetworkSensors;
use crate::outages::Outages;
use crate::security;
use frame_reader::FrameReader;
use login::{LoginVersions, log_in, renew_sessions};
use wire::{Outgoing, Pending, Reply, Waiting, Wire, body_of};

type ReadHalf = Box<dyn AsyncRead + Send + Unpin>;
type WriteHalf = Box<dyn AsyncWrite + Send + Unpin>;

/// A connection to a broker whose API versions are known. Dropping it closes the socket.
///
/// ```no_run
/// # async fn example(client: &ottla_client::Client) -> Result<(), ottla_client::ClientError> {
/// let connection = client.node(1).await?;
/// match connection.closed() {
///     None => println!("{} is open", connection.address()),
///     Some(why) => println!("{why}"),
/// }
/// # Ok(())
/// # }
/// ```
pub struct Connection {
    wire: Arc<Wire>,
    versions: HashMap<ApiKey, RangeInclusive<i16>>,
    /// The finalized features of the cluster.
    features: HashMap<String, i16>,
    /// The certificate of the broker itself, without its chain; `None` without TLS.
    certificate: Option<CertificateDer<'static>>,
    tasks: Vec<AbortHandle>,
}

/// The maximum number of requests that the writer takes from its queue at once.
const WRITTEN_TOGETHER: usize = 64;

impl Connection {
    /// Connects and requests the API versions. The sensors record the traffic.
    pub(crate) fn open<'a>(
        address: &'a str,
        config: &'a ClientConfig,
        network: Arc<NetworkSensors>,
        outages: Arc<Outages>,
    ) -> BoxFuture<'a, Result<Connection, ClientError>> {
        Box::pin(Connection::open_unboxed(address, config, network, outages))
    }

    async fn open_unboxed(
        address: &str,
        config: &ClientConfig,
        network: Arc<NetworkSensors>,
        outages: Arc<Outages>,
    ) -> Result<Connection, ClientError> {
        let refused = |reason: String| ClientError::Connect {
            address: address.to_owned(),
            reason,
        };
        let stream = ottla_sync::time::timeout(
            config.socket_connection_setup_timeout,
            socket::connect(address, config),
        )
        .await
        .map_err(|_| refused("no answer".into()))?
        .map_err(|error| refused(error.to_string()))?;
        stream
            .set_nodelay(true)
            .map_err(|error| refused(error.to_string()))?;
        let tls = config.security.tls()?;
        let is_plain = tls.is_none();
        let mut certificate = None;
        let (read, write): (ReadHalf, WriteHalf) = match tls {
            Some(tls) => {
                let limit = config.socket_connection_setup_timeout;
                let wrapping = security::wrap(stream, address, tls);
                let stream = ottla_sync::time::timeout(limit, wrapping)
                    .await
                    .map_err(|_| refused("no answer to the TLS handshake".into()))?
                    .map_err(refused)?;
                let shown = stream.get_ref().1.peer_certificates();
                certificate = shown.and_then(|chain| chain.first()).cloned();
                let (read, write) = tokio::io::split(stream);
                (Box::new(read), Box::new(write))
            }
            None => {
                let (read, write) = stream.into_split();
                (Box::new(read), Box::new(write))
            }
        };
        network.on_opened();
        let pending = Arc::new(Pending {
            address: address.to_owned(),
            state: Mutex::default(),
            network,
            outages,
        });
        let (outgoing, queue) = mpsc::unbounded_channel();
        let writer = ottla_sync::task::spawn(write_requests(
            write,
            queue,
            pending.clone(),
            address.to_owned(),
        ));
        let reader = ottla_sync::task::spawn(read_responses(
            read,
            pending.clone(),
            address.to_owned(),
            config.max_response_bytes,
            ClientSecurity {
                has_tls: !is_plain,
                has_login: config.security.uses_sasl(),
            },
        ));
        let client_id = config.client_id.clone();
        let wire = Wire::new(
            client_id,
            config.request_timeout,
            config.slow_requests.clone(),
            outgoing,
            pending,
        );
        let mut connection = Connection {
            wire: Arc::new(wire),
            versions: HashMap::new(),
            features: HashMap::new(),
            certificate,
            tasks: vec![writer.abort_handle(), reader.abort_handle()],
        };
        connection.negotiate().await?;
        if config.security.uses_sasl() {
            connection.begin_session(config).await?;
        }
        connection.wire.pending.open();
        Ok(connection)
    }

    /// Authenticates with SASL, and has the session renewed if the broker limits it.
    async fn begin_session(&mut self, config: &ClientConfig) -> Result<(), ClientError> {
        let versions = LoginVersions {
            handshake: self.version(ApiKey::SaslHandshake)?,
            authenticate: self.version(ApiKey::SaslAuthenticate)?,
        };
        let logged_in = log_in(&self.wire, versions, &config.security).await;
        let network = &self.wire.pending.network;
        network.on_authenticated(logged_in.is_ok());
        let renewal_at = logged_in?;
        if renewal_at.is_some() {
            self.wire.begin_session(renewal_at);
            let (wire, security) = (Arc::clone(&self.wire), config.security.clone());
            let renewing = ottla_sync::task::spawn(renew_sessions(wire, versions, security));
            self.tasks.push(renewing.abort_handle());
        }
        Ok(())
    }

    /// Sends ApiVersions in the newest version. A broker that does not support it answers in
    /// version 0 with its versions.
    async fn negotiate(&mut self) -> Result<(), ClientError> {
        let mut version = *ApiKey::ApiVersions.stable_versions().end();
        loop {
            let request = ApiVersionsRequest {
                client_software_name: "ottla".into(),
                client_software_version: env!("CARGO_PKG_VERSION").into(),
                ..Default::default()
            };
            let timeout = self.wire.request_timeout;
            let body = self.wire.exchange(&request, version, timeout).await?;
            let response = decode_api_versions_response(&body, version).map_err(|error| {
                ClientError::unreadable(&self.wire.address, "an ApiVersions response", error)
            })?;
            if response.error_code == ottla_types::ErrorCode::UnsupportedVersion.code() {
                let served = response
                    .api_keys
                    .iter()
                    .find(|api| api.api_key == ApiKey::ApiVersions.code())
                    .map_or(0, |api| api.max_version);
                if served < version {
                    version = served.max(0);
                    continue;
                }
            }
            let what = format!("negotiation with {}", self.wire.address);
            ClientError::check_code(what, response.error_code)?;
            self.features = response
                .finalized_features
                .iter()
                .map(|feature| (feature.name.to_string(), feature.max_version_level))
                .collect();
            self.versions = response
                .api_keys
                .iter()
                .filter_map(|api| {
                    Some((
                        ApiKey::from_code(api.api_key)?,
                        api.min_version..=api.max_version,
                    ))
                })
                .collect();
            return Ok(());
        }
    }

    /// `host:port` of the broker, as it was connected to.
    ///
    /// ```no_run
    /// # fn example(connection: &ottla_client::Connection) {
    /// println!("{}", connection.address());
    /// # }
    /// ```
    pub fn address(&self) -> &str {
        &self.wire.address
    }

    /// The certificate that the broker presented, for example to see when it expires; `None` without
    /// TLS.
    ///
    /// ```no_run
    /// # fn example(connection: &ottla_client::Connection) {
    /// if let Some(certificate) = connection.peer_certificate() {
    ///     println!("{} until {}", certificate.subject, certificate.not_after);
    /// }
    /// # }
    /// ```
    pub fn peer_certificate(&self) -> Option<CertificateFacts> {
        CertificateFacts::of(self.certificate.as_ref()?).ok()
    }

    /// Why the connection is closed, if it is.
    ///
    /// ```no_run
    /// # fn example(connection: &ottla_client::Connection) {
    /// if let Some(error) = connection.closed() {
    ///     println!("{error}");
    /// }
    /// # }
    /// ```
    pub fn closed(&self) -> Option<ClientError> {
        self.wire.pending.closed()
    }

    /// The versions of an API that the broker supports.
    ///
    /// ```no_run
    /// # fn example(connection: &ottla_client::Connection) {
    /// use ottla_client::ottla_protocol::ApiKey;
    ///
    /// if let Some(versions) = connection.served_versions(ApiKey::Produce) {
    ///     println!("Produce {} to {}", versions.start(), versions.end());
    /// }
    /// # }
    /// ```
    pub fn served_versions(&self, api: ApiKey) -> Option<RangeInclusive<i16>> {
        self.versions.get(&api).cloned()
    }

    /// The newest version of an API that both sides support.
    ///
    /// ```no_run
    /// # fn example(connection: &ottla_client::Connection) -> Result<(), ottla_client::ClientError> {
    /// use ottla_client::ottla_protocol::ApiKey;
    ///
    /// println!("Fetch {}", connection.version(ApiKey::Fetch)?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn version(&self, api: ApiKey) -> Result<i16, ClientError> {
        let spoken = api.stable_versions();
        let text = |range: &RangeInclusive<i16>| format!("{}-{}", range.start(), range.end());
        let unsupported = |served: String| ClientError::Unsupported {
            address: self.wire.address.clone(),
            api,
            served,
            spoken: text(&spoken),
            is_controller: self.is_controller() && api.on_broker() && !api.on_controller(),
        };
        let served = self
            .versions
            .get(&api)
            .ok_or_else(|| unsupported("none".into()))?;
        let version = *served.end().min(spoken.end());
        if version < *served.start() || version < *spoken.start() {
            return Err(unsupported(text(served)));
        }
        Ok(version)
    }

    /// Whether the node listens for brokers here, which only controllers do.
    fn is_controller(&self) -> bool {
        self.versions.contains_key(&ApiKey::BrokerRegistration)
    }

    /// The finalized level of a feature; 0 if it has none.
    ///
    /// ```no_run
    /// # fn example(connection: &ottla_client::Connection) {
    /// println!("transaction.version {}", connection.finalized_feature("transaction.version"));
    /// # }
    /// ```
    pub fn finalized_feature(&self, name: &str) -> i16 {
        self.features.get(name).copied().unwrap_or(0)
    }

    /// As [`Connection::send`], in this version at most.
    pub(crate) async fn send_up_to<R: ApiRequest>(
        &self,
        request: &R,
        newest: i16,
    ) -> Result<R::Response, ClientError> {
        let version = self.version(R::API_KEY)?.min(newest);
        self.send_in(request, version, self.wire.request_timeout)
            .await
    }

    /// Sends a request and waits for its response.
    ///
    /// ```no_run
    /// # async fn example(connection: &ottla_client::Connection) -> Result<(), ottla_client::ClientError> {
    /// use ottla_client::ottla_protocol::messages::list_groups_request::ListGroupsRequest;
    ///
    /// let listed = connection.send(&ListGroupsRequest::default()).await?;
    /// println!("this broker coordinates {} groups", listed.groups.len());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn send<R: ApiRequest>(&self, request: &R) -> Result<R::Response, ClientError> {
        let version = self.version(R::API_KEY)?;
        self.send_in(request, version, self.wire.request_timeout)
            .await
    }

    /// Sends the request that `build` makes for the version that will be used.
    ///
    /// ```no_run
    /// # async fn example(connection: &ottla_client::Connection) -> Result<(), ottla_client::ClientError> {
    /// use ottla_client::ottla_protocol::messages::list_groups_request::ListGroupsRequest;
    ///
    /// let listed = connection
    ///     .send_with(|version| ListGroupsRequest {
    ///         // Older brokers have no types of groups.
    ///         types_filter: if version >= 5 { vec!["share".into()] } else { Vec::new() },
    ///         ..Default::default()
    ///     })
    ///     .await?;
    /// println!("{} groups", listed.groups.len());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn send_with<R: ApiRequest>(
        &self,
        build: impl FnOnce(i16) -> R,
    ) -> Result<R::Response, ClientError> {
        let version = self.version(R::API_KEY)?;
        self.send_in(&build(version), version, self.wire.request_timeout)
            .await
    }

    /// As [`Connection::send`], for a request that the broker may delay.
    ///
    /// ```no_run
    /// # async fn example(connection: &ottla_client::Connection) -> Result<(), ottla_client::ClientError> {
    /// use std::time::Duration;
    /// use ottla_client::ottla_protocol::messages::fetch_request::FetchRequest;
    ///
    /// let wait = Duration::from_secs(20);
    /// let request = FetchRequest { max_wait_ms: wait.as_millis() as i32, ..Default::default() };
    /// println!("{}", connection.send_waiting(&request, wait).await?.error_code);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn send_waiting<R: ApiRequest>(
        &self,
        request: &R,
        held_back: Duration,
    ) -> Result<R::Response, ClientError> {
        let version = self.version(R::API_KEY)?;
        self.send_in(request, version, self.wire.request_timeout + held_back)
            .await
    }

    async fn send_in<R: ApiRequest>(
        &self,
        request: &R,
        version: i16,
        timeout: Duration,
    ) -> Result<R::Response, ClientError> {
        let body = self.wire.exchange(request, version, timeout).await?;
        R::Response::decode_all(&body, version).map_err(|error| {
            ClientError::unreadable(
                &self.wire.address,
                &format!("a response to {}", R::API_KEY),
                error,
            )
        })
    }

    /// Queues a request after all earlier ones, and calls `on_answered` with its response. The
    /// caller limits the number of requests in flight and the time that it waits.
    pub(crate) fn start<R: ApiRequest>(
        &self,
        request: &R,
        version: i16,
        on_answer: impl FnOnce(Result<R::Response, ClientError>) + Send + 'static,
    ) {
        let address = self.wire.address.clone();
        let decode = move |answer: Result<Bytes, ClientError>| {
            on_answer(answer.and_then(|frame| {
                let body = body_of(&address, R::API_KEY, version, frame)?;
                R::Response::decode_all(&body, version).map_err(|error| {
                    let what = format!("a response to {}", R::API_KEY);
                    ClientError::unreadable(&address, &what, error)
                })
            }));
        };
        self.wire
            .enqueue(request, version, true, Reply::new(decode));
    }

    /// As [`Connection::start`], for a Produce with acks=0, which has no response. `on_written` is
    /// called when the socket has taken it.
    pub(crate) fn start_unanswered<R: ApiRequest>(
        &self,
        request: &R,
        version: i16,
        on_written: impl FnOnce(Result<(), ClientError>) + Send + 'static,
    ) {
        let tell = move |written: Result<Bytes, ClientError>| on_written(written.map(drop));
        self.wire.enqueue(request, version, false, Reply::new(tell));
    }

    /// Closes the connection. All waiting requests fail with the reason.
    pub(crate) fn close(&self, reason: ClientError) {
        self.wire.pending.close(reason);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        self.wire.pending.close(ClientError::ClientClosed);
    }
}

async fn write_requests(
    mut socket: WriteHalf,
    mut queue: mpsc::UnboundedReceiver<Outgoing>,
    pending: Arc<Pending>,
    address: String,
) {
    let mut taken = Vec::with_capacity(WRITTEN_TOGETHER);
    let mut chunks = VecDeque::new();
    let mut written = Vec::new();
    let mut sizes = Vec::with_capacity(WRITTEN_TOGETHER);
    while queue.recv_many(&mut taken, WRITTEN_TOGETHER).await > 0 {
        let now = ottla_sync::time::now();
        for outgoing in taken.drain(..) {
            let mut state = pending.state.lock();
            if let Some(error) = state.closed.clone() {
                drop(state);
                outgoing.reply.tell(Err(error));
                continue;
            }
            if outgoing.is_answered {
                state.waiting.push_back(Waiting {
                    correlation_id: outgoing.correlation_id,
                    reply: outgoing.reply,
                    since: now,
                    has_counted_latency: outgoing.has_counted_latency,
                });
            } else {
                written.push(outgoing.reply);
            }
            sizes.push(outgoing.chunks.iter().map(Bytes::len).sum());
            chunks.extend(outgoing.chunks);
        }
        pending.network.on_sent(&address, &sizes);
        sizes.clear();
        if let Err(error) = write_chunks(&mut socket, &mut chunks).await {
            let error = ClientError::Closed {
                address,
                reason: error.to_string(),
            };
            pending.close(error.clone());
            written
                .into_iter()
                .for_each(|reply| reply.tell(Err(error.clone())));
            return;
        }
        written
            .drain(..)
            .for_each(|reply| reply.tell(Ok(Bytes::new())));
    }
}

async fn write_chunks(socket: &mut WriteHalf, chunks: &mut VecDeque<Bytes>) -> std::io::Result<()> {
    while !chunks.is_empty() {
        let mut slices = [IoSlice::new(&[]); WRITTEN_TOGETHER];
        let count = chunks.len().min(slices.len());
        for (slice, chunk) in slices.iter_mut().zip(chunks.iter()) {
            *slice = IoSlice::new(chunk);
        }
        let mut sent = socket.write_vectored(&slices[..count]).await?;
        if sent == 0 {
            return Err(std::io::ErrorKind::WriteZero.into());
        }
        while let Some(first) = chunks.front_mut() {
            if sent < first.len() {
                first.advance(sent);
                break;
            }
            sent -= first.len();
            chunks.pop_front();
        }
    }
    // Data that TLS has encrypted and not sent yet.
    socket.flush().await
}

/// The protection of a connection.
#[derive(Clone, Copy)]
struct ClientSecurity {
    has_tls: bool,
    has_login: bool,
}

impl ClientSecurity {
    fn advice_to_log_in(self) -> String {
        let protocol = match self.has_tls {
            true => "SASL_SSL",
            false => "SASL_PLAINTEXT",
        };
        format!(
            "if clients log in there, set security.protocol={protocol}, sasl.mechanism and sasl.jaas.config"
        )
    }
}

async fn read_responses(
    socket: ReadHalf,
    pending: Arc<Pending>,
    address: String,
    max_bytes: usize,
    security: ClientSecurity,
) {
    let mut frames = FrameReader::new(socket, max_bytes);
    let is_plain = !security.has_tls;
    // Whether a request after ApiVersions was answered.
    let mut is_used = false;
    let reason = loop {
        let frame = match frames.next().await {
            Ok(frame) => frame,
            // Another attempt would meet the same answer.
            Err(_) if is_plain && frames.is_refused_by_tls() => {
                return pending.close(ClientError::Config(format!(
                    "{address} speaks TLS, and this client does not; set security.protocol=SSL, or SASL_SSL if clients \
                     log in there"
                )));
            }
            // Java's brokers hang up without a word.
            Err(reason) if is_plain && frames.is_unanswered() => {
                break format!(
                    "{reason}; if it speaks TLS, set security.protocol=SSL, or SASL_SSL if clients log in there"
                );
            }
            // A listener with SASL answers ApiVersions, and hangs up if no login follows.
            Err(reason) if !security.has_login && !is_used && pending.is_waited_for() => {
                break format!("{reason}; {}", security.advice_to_log_in());
            }
            Err(reason) => break reason,
        };
        let correlation_id = i32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]]);
        let (waiting, is_open) = pending.take_oldest();
        is_used |= is_open;
        let Some(waiting) = waiting else {
            break "it answered a request that was not sent".to_owned();
        };
        let counts = waiting.has_counted_latency;
        let latency = counts.then(|| ottla_sync::time::elapsed(waiting.since));
        let size = FRAME_LENGTH + frame.len();
        pending.network.on_received(&address, size, latency);
        let Waiting { reply, .. } = waiting;
        if waiting.correlation_id != correlation_id {
            reply.tell(Err(ClientError::Closed {
                address: address.clone(),
                reason: "its answers are out of order".into(),
            }));
            break "its answers are out of order".to_owned();
        }
        reply.tell(Ok(frame));
    };
    pending.close(ClientError::Closed { address, reason });
}

/// The size of the length prefix of a frame.
const FRAME_LENGTH: usize = 4;

#[cfg(test)]
mod tests;
