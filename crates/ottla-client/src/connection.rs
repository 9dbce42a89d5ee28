//! One connection to one broker.
//!
//! Requests are written in the order in which they are sent and may be many under way at once;
//! responses come back in that order. A writer task and a reader task own the two halves of the socket,
//! so that a caller who goes away in the middle of a request cannot leave half a frame behind. The first
//! failure closes the connection for everybody: answers would no longer match questions.

use std::collections::{HashMap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use ottla_protocol::messages::{ApiVersionsRequest, RequestHeader, ResponseHeader};
use ottla_protocol::{ApiKey, ApiRequest, Encoder, Message, Reader, decode_api_versions_response};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use crate::config::ClientConfig;
use crate::error::ClientError;

type Reply = oneshot::Sender<Result<Bytes, ClientError>>;

/// A request on its way to the writer; one that is not answered (acks=0) has no one waiting.
struct Outgoing {
    frame: Bytes,
    correlation_id: i32,
    reply: Option<Reply>,
}

/// A connection to a broker, its API versions known. Dropping it closes the socket.
pub struct Connection {
    address: String,
    client_id: String,
    request_timeout: Duration,
    correlation_id: AtomicI32,
    outgoing: mpsc::Sender<Outgoing>,
    pending: Arc<Pending>,
    versions: HashMap<ApiKey, RangeInclusive<i16>>,
    tasks: [AbortHandle; 2],
}

/// The requests that wait for their response, oldest first, and why there will be no more.
#[derive(Default)]
struct Pending {
    state: Mutex<PendingState>,
}

#[derive(Default)]
struct PendingState {
    waiting: VecDeque<(i32, Reply)>,
    closed: Option<ClientError>,
}

impl Pending {
    /// Ends everything that waits; only the first reason counts.
    fn close(&self, error: ClientError) {
        let waiting = {
            let mut state = self.state.lock();
            state.closed.get_or_insert(error);
            std::mem::take(&mut state.waiting)
        };
        let error = self.closed().unwrap_or(ClientError::ClientClosed);
        for (_, reply) in waiting {
            let _ = reply.send(Err(error.clone()));
        }
    }

    fn closed(&self) -> Option<ClientError> {
        self.state.lock().closed.clone()
    }
}

/// How many requests may wait to be written before senders wait too.
const OUTGOING_REQUESTS: usize = 256;

impl Connection {
    /// Connects and asks for the versions that the broker serves.
    pub async fn open(address: &str, config: &ClientConfig) -> Result<Connection, ClientError> {
        let refused = |reason: String| ClientError::Connect {
            address: address.to_owned(),
            reason,
        };
        let stream = tokio::time::timeout(
            config.socket_connection_setup_timeout,
            TcpStream::connect(address),
        )
        .await
        .map_err(|_| refused("no answer".into()))?
        .map_err(|error| refused(error.to_string()))?;
        stream
            .set_nodelay(true)
            .map_err(|error| refused(error.to_string()))?;
        let (read, write) = stream.into_split();
        let pending = Arc::new(Pending::default());
        let (outgoing, queue) = mpsc::channel(OUTGOING_REQUESTS);
        let writer = tokio::spawn(write_requests(
            write,
            queue,
            pending.clone(),
            address.to_owned(),
        ));
        let reader = tokio::spawn(read_responses(
            read,
            pending.clone(),
            address.to_owned(),
            config.max_response_bytes,
        ));
        let mut connection = Connection {
            address: address.to_owned(),
            client_id: config.client_id.clone(),
            request_timeout: config.request_timeout,
            correlation_id: AtomicI32::new(0),
            outgoing,
            pending,
            versions: HashMap::new(),
            tasks: [writer.abort_handle(), reader.abort_handle()],
        };
        connection.negotiate().await?;
        Ok(connection)
    }

    /// Asks for the served versions in our newest version first; a broker that does not know it answers
    /// in version 0 with those it knows.
    async fn negotiate(&mut self) -> Result<(), ClientError> {
        let mut version = *ApiKey::ApiVersions.stable_versions().end();
        loop {
            let request = ApiVersionsRequest {
                client_software_name: "ottla".into(),
                client_software_version: env!("CARGO_PKG_VERSION").into(),
                ..Default::default()
            };
            let body = self
                .exchange(&request, version, self.request_timeout)
                .await?;
            let response = decode_api_versions_response(&body, version).map_err(|error| {
                ClientError::unreadable(&self.address, "an ApiVersions response", error)
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
            let what = format!("negotiation with {}", self.address);
            ClientError::check(what, response.error_code, None::<&str>)?;
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

    pub fn address(&self) -> &str {
        &self.address
    }

    /// Why the connection is of no more use, if so.
    pub fn closed(&self) -> Option<ClientError> {
        self.pending.closed()
    }

    /// The versions of an API that the broker serves.
    pub fn served_versions(&self, api: ApiKey) -> Option<RangeInclusive<i16>> {
        self.versions.get(&api).cloned()
    }

    /// The newest version of an API that both sides speak.
    pub fn version(&self, api: ApiKey) -> Result<i16, ClientError> {
        let spoken = api.stable_versions();
        let text = |range: &RangeInclusive<i16>| format!("{}-{}", range.start(), range.end());
        let unsupported = |served: String| ClientError::Unsupported {
            address: self.address.clone(),
            api,
            served,
            spoken: text(&spoken),
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

    /// Sends a request and waits for its response.
    pub async fn send<R: ApiRequest>(&self, request: &R) -> Result<R::Response, ClientError> {
        let version = self.version(R::API_KEY)?;
        self.send_in(request, version, self.request_timeout).await
    }

    /// Sends the request that `build` makes for the version that will be used.
    pub async fn send_with<R: ApiRequest>(
        &self,
        build: impl FnOnce(i16) -> R,
    ) -> Result<R::Response, ClientError> {
        let version = self.version(R::API_KEY)?;
        self.send_in(&build(version), version, self.request_timeout)
            .await
    }

    /// As [`Connection::send`], for a request that the broker may hold back for a while.
    pub async fn send_waiting<R: ApiRequest>(
        &self,
        request: &R,
        held_back: Duration,
    ) -> Result<R::Response, ClientError> {
        let version = self.version(R::API_KEY)?;
        self.send_in(request, version, self.request_timeout + held_back)
            .await
    }

    async fn send_in<R: ApiRequest>(
        &self,
        request: &R,
        version: i16,
        timeout: Duration,
    ) -> Result<R::Response, ClientError> {
        let body = self.exchange(request, version, timeout).await?;
        R::Response::decode_all(&body, version).map_err(|error| {
            ClientError::unreadable(
                &self.address,
                &format!("a response to {}", R::API_KEY),
                error,
            )
        })
    }

    /// Sends a request that is not answered: a Produce with acks=0.
    pub async fn send_unanswered<R: ApiRequest>(&self, request: &R) -> Result<(), ClientError> {
        let version = self.version(R::API_KEY)?;
        let (frame, correlation_id) = self.frame(request, version)?;
        self.enqueue(Outgoing {
            frame,
            correlation_id,
            reply: None,
        })
        .await
    }

    async fn exchange<R: ApiRequest>(
        &self,
        request: &R,
        version: i16,
        timeout: Duration,
    ) -> Result<Bytes, ClientError> {
        let (frame, correlation_id) = self.frame(request, version)?;
        let (reply, response) = oneshot::channel();
        let exchange = async {
            self.enqueue(Outgoing {
                frame,
                correlation_id,
                reply: Some(reply),
            })
            .await?;
            response
                .await
                .unwrap_or_else(|_| Err(self.closed().unwrap_or(ClientError::ClientClosed)))
        };
        let mut frame = match tokio::time::timeout(timeout, exchange).await {
            Ok(result) => result?,
            Err(_) => {
                // Answers come in order: what comes after this request would wait for it too.
                let error = ClientError::TimedOut {
                    address: self.address.clone(),
                    what: R::API_KEY.name().to_owned(),
                    after: timeout,
                };
                self.pending.close(error.clone());
                return Err(error);
            }
        };
        let mut reader = Reader::new(frame.clone());
        let header =
            ResponseHeader::decode(&mut reader, R::API_KEY.response_header_version(version));
        header.map_err(|error| {
            ClientError::unreadable(&self.address, "the header of a response", error)
        })?;
        frame.advance(reader.position());
        Ok(frame)
    }

    fn frame<R: ApiRequest>(&self, request: &R, version: i16) -> Result<(Bytes, i32), ClientError> {
        let correlation_id = self.correlation_id.fetch_add(1, Ordering::Relaxed) & i32::MAX;
        let header = RequestHeader {
            request_api_key: R::API_KEY.code(),
            request_api_version: version,
            correlation_id,
            client_id: Some(self.client_id.clone().into()),
            ..Default::default()
        };
        let mut encoder = Encoder::new();
        header.encode(&mut encoder, R::API_KEY.request_header_version(version))?;
        request.encode(&mut encoder, version)?;
        let body = encoder.finish().try_into_bytes()?;
        let length = i32::try_from(body.len())
            .map_err(|_| ClientError::Unsendable("it is larger than 2 GiB".into()))?;
        let mut frame = BytesMut::with_capacity(4 + body.len());
        frame.extend_from_slice(&length.to_be_bytes());
        frame.extend_from_slice(&body);
        Ok((frame.freeze(), correlation_id))
    }

    async fn enqueue(&self, outgoing: Outgoing) -> Result<(), ClientError> {
        if let Some(error) = self.closed() {
            return Err(error);
        }
        self.outgoing
            .send(outgoing)
            .await
            .map_err(|_| self.closed().unwrap_or(ClientError::ClientClosed))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        self.pending.close(ClientError::ClientClosed);
    }
}

async fn write_requests(
    mut socket: OwnedWriteHalf,
    mut queue: mpsc::Receiver<Outgoing>,
    pending: Arc<Pending>,
    address: String,
) {
    while let Some(outgoing) = queue.recv().await {
        if let Some(reply) = outgoing.reply {
            let closed = {
                let mut state = pending.state.lock();
                match &state.closed {
                    Some(error) => Some((reply, error.clone())),
                    None => {
                        state.waiting.push_back((outgoing.correlation_id, reply));
                        None
                    }
                }
            };
            if let Some((reply, error)) = closed {
                let _ = reply.send(Err(error));
                continue;
            }
        }
        if let Err(error) = socket.write_all(&outgoing.frame).await {
            pending.close(ClientError::Closed {
                address,
                reason: error.to_string(),
            });
            return;
        }
    }
}

async fn read_responses(
    mut socket: OwnedReadHalf,
    pending: Arc<Pending>,
    address: String,
    max_bytes: usize,
) {
    let reason = loop {
        let frame = match read_frame(&mut socket, max_bytes).await {
            Ok(frame) => frame,
            Err(reason) => break reason,
        };
        let correlation_id = i32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]]);
        let Some((expected, reply)) = pending.state.lock().waiting.pop_front() else {
            break "it answered a request that was not sent".to_owned();
        };
        if expected != correlation_id {
            let _ = reply.send(Err(ClientError::Closed {
                address: address.clone(),
                reason: "its answers are out of order".into(),
            }));
            break "its answers are out of order".to_owned();
        }
        let _ = reply.send(Ok(frame));
    };
    pending.close(ClientError::Closed { address, reason });
}

/// One frame without its length, at least the correlation id long.
async fn read_frame(socket: &mut OwnedReadHalf, max_bytes: usize) -> Result<Bytes, String> {
    let length = socket
        .read_i32()
        .await
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => "the broker hung up".to_owned(),
            _ => error.to_string(),
        })?;
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if length < 4 || length > max_bytes {
        return Err(format!(
            "it sent a frame of {length} bytes, which is not a Kafka response"
        ));
    }
    // Grows with what arrives, so that a false length alone takes no memory.
    let mut frame = BytesMut::with_capacity(length.min(1 << 20));
    while frame.len() < length {
        let missing = length - frame.len();
        let read = (&mut *socket)
            .take(missing as u64)
            .read_buf(&mut frame)
            .await;
        match read {
            Ok(0) => return Err("the broker hung up in the middle of a response".into()),
            Ok(_) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(frame.freeze())
}
