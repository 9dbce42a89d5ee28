//! A connection from this node to another one: to a controller, a voter of the metadata quorum, or
//! a broker.
//!
//! Requests are written in the order in which they are sent, many may be in flight, and responses
//! arrive in that order. One task owns the socket, so that a caller that is cancelled in the middle
//! of a request does not leave a partial frame. The first failure ends the connection for all
//! callers, because responses would no longer match requests. A caller that needs another
//! connection opens one.
//!
//! Callers bound the number of requests in flight, because each waits for its response. The records
//! of a response are slices of its frame.
//!
//! This file does not decide which node to connect to, or when to retry: the code in `ottla-node`,
//! the quorum and the fetchers does. Kafka: `NetworkClient`, as used by
//! `NodeToControllerRequestThread` and `BrokerBlockingSender`.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::io::IoSlice;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use bytestring::ByteString;
use ottla_gssapi::Login;
use ottla_protocol::messages::{
    ApiVersionsRequest, RequestHeader, ResponseHeader, SaslAuthenticateRequest,
    SaslHandshakeRequest,
};
use ottla_protocol::{
    ApiKey, ApiRequest, Chunk, EncodeError, Encoder, Message, Reader, decode_api_versions_response,
};
use ottla_sasl::SaslPeer;
use ottla_sync::Mutex;
use ottla_sync::collections::HashMap;
use ottla_sync::net::TcpStream;
use ottla_sync::task::AbortHandle;
use ottla_sync::{BoxFuture, SetOnce, mpsc, oneshot};
use ottla_types::ErrorCode;
use tokio::io::AsyncWriteExt;

use crate::frame::{FrameError, FrameReader};
use crate::peer_security::PeerSecurity;
use crate::sasl_credentials::nonce;
use crate::stream::{PeerReader, PeerWriter, to_peer};

#[cfg(test)]
mod tests;

/// Requests that wait for the socket. A caller waits if there are more.
const UNWRITTEN_REQUESTS: usize = 64;
/// The maximum number of buffers in one write.
const WRITTEN_TOGETHER: usize = 64;

/// The settings of a connection to a peer.
#[derive(Clone, Debug)]
pub struct PeerSettings {
    /// The client ID that the peer logs; Kafka uses the node ID.
    pub client_id: ByteString,
    /// The connection is closed if a request has no response after this time.
    pub request_timeout: Duration,
    pub security: PeerSecurity,
    /// The maximum duration of name resolution, connecting and TLS handshake together.
    pub connection_setup_timeout: Duration,
    /// The maximum size of a response in bytes.
    pub receive_limit: usize,
}

/// A failed exchange with a peer: a sentence for people that starts with the address.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{address}: {failure}")]
pub struct PeerError {
    /// `host:port`.
    pub address: Arc<str>,
    pub failure: PeerFailure,
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PeerFailure {
    /// The name is unknown, or nothing accepts the connection.
    #[error("cannot connect: {0}")]
    Unreachable(String),
    /// Whether the requests in flight were processed is unknown.
    #[error("the connection ended: {0}")]
    Closed(String),
    #[error("no answer to {} within {} ms", api.name(), after.as_millis())]
    TimedOut { api: ApiKey, after: Duration },
    #[error(
        "the other node serves {} in versions {served}, and this node speaks {spoken}; run compatible releases on both",
        api.name()
    )]
    Unsupported {
        api: ApiKey,
        served: String,
        spoken: String,
    },
    /// The response is malformed.
    #[error("{0}")]
    Unreadable(String),
    /// The peer rejects the login of this node.
    #[error("cannot log in{login}: {reason}")]
    LoginRejected { login: String, reason: String },
    /// The request cannot be expressed in the version that both nodes support.
    #[error("{} cannot be sent: {reason}", api.name())]
    Unsendable { api: ApiKey, reason: EncodeError },
}

/// A connection whose API versions are negotiated. Dropping it closes the socket.
#[derive(Debug)]
pub struct PeerConnection {
    address: Arc<str>,
    settings: PeerSettings,
    outgoing: mpsc::Sender<Outgoing>,
    in_flight: Arc<InFlight>,
    served: HashMap<ApiKey, RangeInclusive<i16>>,
    /// When the next re-authentication is due, if sessions expire. The lock is held from the first
    /// to the last message of a login, and while a request is passed to the socket, because no
    /// other request may come between the messages of a login.
    next_login: ottla_sync::async_lock::Mutex<Option<Instant>>,
    task: AbortHandle,
}

/// A request that is waiting to be written.
struct Outgoing {
    api: ApiKey,
    version: i16,
    /// The body, without length and header.
    body: Vec<Chunk>,
    answer: oneshot::Sender<Answer>,
}

/// The bytes after the response header, or why there are none.
type Answer = Result<Bytes, PeerFailure>;

/// The requests that wait for a response, oldest first, and why the connection has ended.
#[derive(Debug, Default)]
struct InFlight {
    state: Mutex<InFlightState>,
    /// For requests that are not passed to the socket yet, because they wait for a login.
    ended: SetOnce<()>,
}

#[derive(Debug, Default)]
struct InFlightState {
    waiting: VecDeque<Waiting>,
    closed: Option<PeerFailure>,
}

#[derive(Debug)]
struct Waiting {
    correlation_id: i32,
    response_header_version: i16,
    answer: oneshot::Sender<Answer>,
}

impl PeerConnection {
    /// Connects, negotiates API versions, and logs in.
    ///
    /// Boxed, so that this crate alone generates the code ([`BoxFuture`]).
    pub fn open<'a>(
        host: &'a str,
        port: u16,
        settings: &'a PeerSettings,
    ) -> BoxFuture<'a, Result<PeerConnection, PeerError>> {
        Box::pin(PeerConnection::open_unboxed(host, port, settings))
    }

    async fn open_unboxed(
        host: &str,
        port: u16,
        settings: &PeerSettings,
    ) -> Result<PeerConnection, PeerError> {
        let address: Arc<str> = match host.contains(':') {
            true => format!("[{host}]:{port}").into(),
            false => format!("{host}:{port}").into(),
        };
        let connected = async {
            let stream = TcpStream::connect((host, port)).await?;
            stream.set_nodelay(true)?;
            to_peer(
                stream,
                host,
                settings.security.tls.as_ref().map(|tls| tls.client()),
            )
            .await
        };
        let limit = settings.connection_setup_timeout;
        let stream = match ottla_sync::time::timeout(limit, connected).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("no answer within {} ms", limit.as_millis())),
        };
        let stream = stream.map_err(|reason| PeerError {
            address: Arc::clone(&address),
            failure: PeerFailure::Unreachable(reason),
        })?;
        let in_flight = Arc::<InFlight>::default();
        let (outgoing, queue) = mpsc::channel(UNWRITTEN_REQUESTS);
        let task = ottla_sync::task::spawn(drive(
            stream,
            queue,
            Arc::clone(&in_flight),
            settings.client_id.clone(),
            settings.receive_limit,
        ));
        let mut connection = PeerConnection {
            address,
            settings: settings.clone(),
            outgoing,
            in_flight,
            served: HashMap::default(),
            next_login: ottla_sync::async_lock::Mutex::default(),
            task: task.abort_handle(),
        };
        let opened = async {
            connection.negotiate().await?;
            if let Some(sasl) = &settings.security.sasl {
                let next = connection.log_in(sasl).await?;
                connection.next_login = ottla_sync::async_lock::Mutex::new(next);
            }
            Ok(())
        };
        match opened.await {
            Ok(()) => Ok(connection),
            Err(failure) => Err(connection.error(failure)),
        }
    }

    /// Logs in. Returns when the next login is due.
    async fn log_in(&self, sasl: &SaslPeer) -> Result<Option<Instant>, PeerFailure> {
        let name = sasl.credentials.username();
        let user = name.map(|name| format!(" as {name}")).unwrap_or_default();
        let rejected = |reason: String| PeerFailure::LoginRejected {
            login: format!("{user} with {}", sasl.mechanism),
            reason,
        };
        let credentials = self.settings.security.credentials(sasl).await;
        let credentials = credentials.map_err(rejected)?;
        let mut under_way = LoginUnderWay {
            connection: self,
            has_ended: false,
        };
        let request = SaslHandshakeRequest {
            mechanism: ByteString::from_static(sasl.mechanism.name()),
        };
        let answer = self.exchange_now(&request).await?;
        let code = ErrorCode::from_code(answer.error_code);
        if code != ErrorCode::None {
            let reason = match code {
                ErrorCode::UnsupportedSaslMechanism => {
                    format!("it takes {}", answer.mechanisms.join(", "))
                }
                code => code.to_string(),
            };
            return Err(rejected(reason));
        }
        let begun = Login::begin(sasl.mechanism, &credentials, self.host(), nonce()).await;
        let (mut login, first) = begun.map_err(|error| rejected(error.to_string()))?;
        let mut message = Some(first);
        let mut lifetime_ms = 0;
        while let Some(auth_bytes) = message {
            let request = SaslAuthenticateRequest {
                auth_bytes: auth_bytes.into(),
                ..Default::default()
            };
            let answer = self.exchange_now(&request).await?;
            let code = ErrorCode::from_code(answer.error_code);
            if code != ErrorCode::None {
                let reason = answer.error_message.map(|message| message.to_string());
                return Err(rejected(reason.unwrap_or_else(|| code.to_string())));
            }
            lifetime_ms = u64::try_from(answer.session_lifetime_ms).unwrap_or(0);
            let next = login.on_message(&answer.auth_bytes).await;
            message =
                next.map_err(|reason| rejected(format!("its answer cannot be used: {reason}")))?;
        }
        under_way.has_ended = true;
        // Well before the session ends, as Kafka's clients do.
        let lasts = Duration::from_millis(lifetime_ms / 100 * 85);
        Ok((lifetime_ms > 0).then(|| ottla_sync::time::now() + lasts))
    }

    /// The host in the address, without the brackets of an IPv6 address.
    fn host(&self) -> &str {
        let host = self.address.rsplit_once(':').map_or("", |(host, _)| host);
        host.trim_start_matches('[').trim_end_matches(']')
    }

    /// Exchanges a message of a login.
    async fn exchange_now<R: ApiRequest>(&self, request: &R) -> Result<R::Response, PeerFailure> {
        let version = self.shared_version(R::API_KEY)?;
        let body = self.exchange(request, version, true).await?;
        R::Response::decode_all(&body, version).map_err(|error| unreadable(R::API_KEY, &error))
    }

    /// Starts with the newest version of ApiVersions. A peer that does not support it answers in
    /// version 0 with the versions that it supports.
    async fn negotiate(&mut self) -> Result<(), PeerFailure> {
        let mut version = *ApiKey::ApiVersions.stable_versions().end();
        loop {
            let request = ApiVersionsRequest {
                client_software_name: ByteString::from_static("ottla"),
                client_software_version: ByteString::from_static(env!("CARGO_PKG_VERSION")),
                ..Default::default()
            };
            let body = self.exchange(&request, version, true).await?;
            let response = decode_api_versions_response(&body, version)
                .map_err(|error| unreadable(ApiKey::ApiVersions, &error))?;
            let code = ErrorCode::from_code(response.error_code);
            if code == ErrorCode::UnsupportedVersion {
                let of_api_versions = response
                    .api_keys
                    .iter()
                    .find(|api| api.api_key == ApiKey::ApiVersions.code());
                let served = of_api_versions.map_or(0, |api| api.max_version);
                if served < version {
                    version = served.max(0);
                    continue;
                }
            }
            if code != ErrorCode::None {
                let reason = format!("ApiVersions failed: {code}");
                return Err(PeerFailure::Unreadable(reason));
            }
            self.served = response
                .api_keys
                .iter()
                .filter_map(|api| {
                    let versions = api.min_version..=api.max_version;
                    Some((ApiKey::from_code(api.api_key)?, versions))
                })
                .collect();
            return Ok(());
        }
    }

    /// `host:port`.
    pub fn address(&self) -> &Arc<str> {
        &self.address
    }

    /// The API versions that the peer supports.
    pub fn served(&self) -> &HashMap<ApiKey, RangeInclusive<i16>> {
        &self.served
    }

    /// Whether the connection has ended.
    pub fn is_closed(&self) -> bool {
        self.in_flight.state.lock().closed.is_some()
    }

    /// The newest version of an API that both nodes support.
    pub fn version(&self, api: ApiKey) -> Result<i16, PeerError> {
        self.shared_version(api)
            .map_err(|failure| self.error(failure))
    }

    fn shared_version(&self, api: ApiKey) -> Result<i16, PeerFailure> {
        let spoken = api.stable_versions();
        let text = |range: &RangeInclusive<i16>| match range.is_empty() {
            true => "none".to_owned(),
            false => format!("{}-{}", range.start(), range.end()),
        };
        let none = RangeInclusive::new(0, -1);
        let served = self.served.get(&api).unwrap_or(&none);
        let version = *served.end().min(spoken.end());
        if served.contains(&version) && spoken.contains(&version) {
            return Ok(version);
        }
        Err(PeerFailure::Unsupported {
            api,
            served: text(served),
            spoken: text(&spoken),
        })
    }

    /// Sends a request, in the newest version that both nodes support, and waits for the response.
    pub async fn send<R: ApiRequest>(&self, request: &R) -> Result<R::Response, PeerError> {
        let version = self.version(R::API_KEY)?;
        self.send_in(request, version).await
    }

    /// Like [`send`](Self::send), for a request whose fields depend on the version.
    pub async fn send_with<R: ApiRequest>(
        &self,
        build: impl FnOnce(i16) -> R,
    ) -> Result<R::Response, PeerError> {
        let version = self.version(R::API_KEY)?;
        self.send_in(&build(version), version).await
    }

    async fn send_in<R: ApiRequest>(
        &self,
        request: &R,
        version: i16,
    ) -> Result<R::Response, PeerError> {
        let answered = async {
            let body = self.exchange(request, version, false).await?;
            R::Response::decode_all(&body, version).map_err(|error| unreadable(R::API_KEY, &error))
        };
        answered.await.map_err(|failure| self.error(failure))
    }

    /// `is_login`: the exchange is a part of opening or of a login, and does not wait for one.
    ///
    /// Only the encoding is generated for each type of request.
    fn exchange<R: ApiRequest>(
        &self,
        request: &R,
        version: i16,
        is_login: bool,
    ) -> BoxFuture<'_, Answer> {
        let mut encoder = Encoder::new();
        let encoded = request.encode(&mut encoder, version);
        let encoded = encoded.map(|()| encoder.finish().chunks);
        self.exchange_encoded(R::API_KEY, version, encoded, is_login)
    }

    fn exchange_encoded(
        &self,
        api: ApiKey,
        version: i16,
        encoded: Result<Vec<Chunk>, EncodeError>,
        is_login: bool,
    ) -> BoxFuture<'_, Answer> {
        Box::pin(async move {
            let body = encoded.map_err(|reason| PeerFailure::Unsendable { api, reason })?;
            let (answer, answered) = oneshot::channel();
            let outgoing = Outgoing {
                api,
                version,
                body,
                answer,
            };
            let after = self.settings.request_timeout;
            let exchanged = self.answer_to(outgoing, answered, is_login);
            match ottla_sync::time::timeout(after, exchanged).await {
                Ok(answer) => answer,
                Err(_) => {
                    // Responses arrive in order, so later requests would wait for this one too.
                    let failure = PeerFailure::TimedOut { api, after };
                    self.in_flight.close(failure.clone());
                    self.task.abort();
                    Err(failure)
                }
            }
        })
    }

    async fn answer_to(
        &self,
        outgoing: Outgoing,
        answered: oneshot::Receiver<Answer>,
        is_login: bool,
    ) -> Answer {
        let sent = match (&self.settings.security.sasl, is_login) {
            (Some(sasl), false) => {
                let handed_over = async {
                    let mut next_login = self.next_login.lock().await;
                    if next_login.is_some_and(|at| ottla_sync::time::now() >= at) {
                        // Boxed, because few exchanges need it, and all would have room for it.
                        *next_login = Box::pin(self.log_in(sasl)).await?;
                    }
                    Ok::<_, PeerFailure>(self.outgoing.send(outgoing).await)
                };
                // The token for a login can take long.
                ottla_sync::select! {
                    biased;
                    sent = handed_over => sent?,
                    _ = self.in_flight.ended.wait() => return Err(self.in_flight.why_closed()),
                }
            }
            _ => self.outgoing.send(outgoing).await,
        };
        if sent.is_err() {
            return Err(self.in_flight.why_closed());
        }
        let dropped = |_| Err(self.in_flight.why_closed());
        answered.await.unwrap_or_else(dropped)
    }

    fn error(&self, failure: PeerFailure) -> PeerError {
        PeerError {
            address: Arc::clone(&self.address),
            failure,
        }
    }
}

/// Closes the connection if a login fails, or if the caller of its exchanges goes away: the peer expects the
/// rest of the login, and would take the next one for it.
struct LoginUnderWay<'a> {
    connection: &'a PeerConnection,
    has_ended: bool,
}

impl Drop for LoginUnderWay<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            let reason = "a login did not come to its end".to_owned();
            self.connection.in_flight.close(PeerFailure::Closed(reason));
            self.connection.task.abort();
        }
    }
}

impl Drop for PeerConnection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl InFlight {
    /// Fails all waiting requests. Only the first reason is kept.
    fn close(&self, failure: PeerFailure) {
        let (waiting, failure) = {
            let mut state = self.state.lock();
            let failure = state.closed.get_or_insert(failure).clone();
            (std::mem::take(&mut state.waiting), failure)
        };
        // Only the first close sets it.
        let _ = self.ended.set(());
        for waiting in waiting {
            // The caller may have been cancelled.
            let _ = waiting.answer.send(Err(failure.clone()));
        }
    }

    fn why_closed(&self) -> PeerFailure {
        let closed = self.state.lock().closed.clone();
        closed.unwrap_or_else(|| PeerFailure::Closed("this node stops".to_owned()))
    }

    /// Passes a response to the oldest request.
    fn answer(&self, frame: Bytes) -> Result<(), String> {
        let Some(oldest) = self.state.lock().waiting.pop_front() else {
            return Err("it answered a request that was not sent".to_owned());
        };
        let mut reader = Reader::new(frame.clone());
        let header = ResponseHeader::decode(&mut reader, oldest.response_header_version);
        let outcome = match header {
            Ok(header) if header.correlation_id == oldest.correlation_id => Ok(reader.position()),
            Ok(_) => Err("its answers are out of order".to_owned()),
            Err(error) => Err(format!("the header of its answer is malformed: {error}")),
        };
        match outcome {
            Ok(header_size) => {
                let mut body = frame;
                body.advance(header_size);
                let _ = oldest.answer.send(Ok(body));
                Ok(())
            }
            Err(reason) => {
                let _ = oldest.answer.send(Err(PeerFailure::Closed(reason.clone())));
                Err(reason)
            }
        }
    }
}

/// Writes and reads until either fails.
async fn drive(
    (read, write): (PeerReader, PeerWriter),
    queue: mpsc::Receiver<Outgoing>,
    in_flight: Arc<InFlight>,
    client_id: ByteString,
    receive_limit: usize,
) {
    let mut queue = queue;
    let reason = ottla_sync::select! {
        reason = write_requests(write, &mut queue, &in_flight, client_id) => reason,
        reason = read_answers(read, &in_flight, receive_limit) => reason,
    };
    // Before the queue is dropped, so that callers that wait for a place in it get the reason too.
    in_flight.close(PeerFailure::Closed(reason));
}

async fn write_requests(
    mut socket: PeerWriter,
    queue: &mut mpsc::Receiver<Outgoing>,
    in_flight: &InFlight,
    client_id: ByteString,
) -> String {
    let mut correlation_id: i32 = 0;
    let mut taken = Vec::with_capacity(UNWRITTEN_REQUESTS);
    let mut chunks = VecDeque::new();
    while queue.recv_many(&mut taken, UNWRITTEN_REQUESTS).await > 0 {
        for outgoing in taken.drain(..) {
            let (api, version) = (outgoing.api, outgoing.version);
            let framed = frame(correlation_id, &client_id, api, version, outgoing.body);
            match framed {
                Ok(framed) => {
                    let waiting = Waiting {
                        correlation_id,
                        response_header_version: api.response_header_version(version),
                        answer: outgoing.answer,
                    };
                    in_flight.state.lock().waiting.push_back(waiting);
                    chunks.extend(framed);
                    correlation_id = correlation_id.checked_add(1).unwrap_or(0);
                }
                Err(reason) => {
                    let failure = PeerFailure::Unsendable { api, reason };
                    let _ = outgoing.answer.send(Err(failure));
                }
            }
        }
        if let Err(error) = write_chunks(&mut socket, &mut chunks).await {
            return error.to_string();
        }
    }
    "this node closed it".to_owned()
}

/// Encodes a request in pieces: records are not copied.
fn frame(
    correlation_id: i32,
    client_id: &ByteString,
    api: ApiKey,
    version: i16,
    body: Vec<Chunk>,
) -> Result<Vec<Bytes>, EncodeError> {
    let header = RequestHeader {
        request_api_key: api.code(),
        request_api_version: version,
        correlation_id,
        client_id: Some(client_id.clone()),
        ..Default::default()
    };
    let header = header.encode_to_bytes(api.request_header_version(version))?;
    let length = header.len() as u64 + body.iter().map(Chunk::len).sum::<u64>();
    let length = i32::try_from(length).map_err(|_| EncodeError::TooLong {
        length: length as usize,
    })?;
    let mut start = Vec::with_capacity(4 + header.len());
    start.extend_from_slice(&length.to_be_bytes());
    start.extend_from_slice(&header);
    let mut framed = vec![Bytes::from(start)];
    for chunk in body {
        match chunk {
            Chunk::Bytes(bytes) if bytes.is_empty() => {}
            Chunk::Bytes(bytes) => framed.push(bytes),
            Chunk::File(_) => return Err(EncodeError::FileRegion),
        }
    }
    Ok(framed)
}

async fn write_chunks(socket: &mut PeerWriter, chunks: &mut VecDeque<Bytes>) -> io::Result<()> {
    while !chunks.is_empty() {
        let mut slices = [IoSlice::new(&[]); WRITTEN_TOGETHER];
        let count = chunks.len().min(slices.len());
        for (slice, chunk) in slices.iter_mut().zip(chunks.iter()) {
            *slice = IoSlice::new(chunk);
        }
        let mut sent = socket.write_vectored(&slices[..count]).await?;
        if sent == 0 {
            return Err(io::ErrorKind::WriteZero.into());
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
    socket.flush().await
}

async fn read_answers(
    mut socket: PeerReader,
    in_flight: &InFlight,
    receive_limit: usize,
) -> String {
    let mut frames = FrameReader::new(receive_limit);
    loop {
        let read = async {
            while let Some(frame) = frames.next_frame()? {
                if let Err(reason) = in_flight.answer(frame) {
                    return Ok(Err(reason));
                }
            }
            let front = frames.front()?;
            let read =
                poll_fn(|cx| frames.poll_read_from(cx, &mut socket, &front, None, false)).await;
            Ok::<_, FrameError>(match read {
                Ok(0) => Err("the peer closed it".to_owned()),
                Ok(_) => Ok(()),
                Err(error) => Err(error.to_string()),
            })
        };
        match read.await {
            Ok(Ok(())) => {}
            Ok(Err(reason)) => return reason,
            Err(FrameError::NegativeLength(length)) => {
                return format!("it sent a response of {length} bytes");
            }
            Err(FrameError::TooLarge { length, max }) => {
                return format!(
                    "it sent a response of {length} bytes, more than the maximum of {max}"
                );
            }
        }
    }
}

fn unreadable(api: ApiKey, error: &ottla_protocol::DecodeError) -> PeerFailure {
    PeerFailure::Unreadable(format!(
        "its answer to {} is malformed: {error}",
        api.name()
    ))
}
