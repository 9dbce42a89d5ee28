//! The sending side of a connection: frames requests, and queues them for the writer task. While a session is renewed, it
//! holds back everything but the login.

use ottla_sync::atomic::{AtomicI32, Ordering};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use ottla_protocol::messages::{RequestHeader, ResponseHeader};
use ottla_protocol::{ApiKey, ApiRequest, Chunk, EncodeError, Encoder, Message, Reader};
use ottla_sync::{Mutex, Notify, mpsc, oneshot};

use crate::error::ClientError;
use crate::metrics::NetworkSensors;
use crate::outages::Outages;
use crate::slow_requests::{SlowRequest, SlowRequestListener};

/// The callback for the result of a request, on the thread that gets it, so it must not block.
/// Always called, at the latest when the connection is closed.
pub(super) struct Reply(Option<Box<dyn FnOnce(Result<Bytes, ClientError>) + Send>>);

impl Reply {
    pub fn new(tell: impl FnOnce(Result<Bytes, ClientError>) + Send + 'static) -> Reply {
        Reply(Some(Box::new(tell)))
    }

    pub fn tell(mut self, result: Result<Bytes, ClientError>) {
        if let Some(tell) = self.0.take() {
            tell(result);
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let Some(tell) = self.0.take() {
            tell(Err(ClientError::ClientClosed));
        }
    }
}

/// A request for the writer task.
pub(super) struct Outgoing {
    /// The frame in chunks; records stay in the buffers in which they were encoded.
    pub chunks: Vec<Bytes>,
    pub correlation_id: i32,
    pub reply: Reply,
    /// False for Produce with acks=0, whose reply says that it was written.
    pub is_answered: bool,
    pub has_counted_latency: bool,
}

/// The requests that wait for their response, oldest first, and why the connection is closed.
pub(super) struct Pending {
    pub address: String,
    pub state: Mutex<PendingState>,
    pub network: Arc<NetworkSensors>,
    pub outages: Arc<Outages>,
}

#[derive(Default)]
pub(super) struct PendingState {
    pub waiting: VecDeque<Waiting>,
    /// Whether the API versions are known and authentication is complete.
    pub is_open: bool,
    pub closed: Option<ClientError>,
}

pub(super) struct Waiting {
    pub correlation_id: i32,
    pub reply: Reply,
    pub since: Instant,
    pub has_counted_latency: bool,
}

impl Pending {
    /// Fails everything that waits. Only the first reason counts.
    pub fn close(&self, error: ClientError) {
        let waiting = {
            let mut state = self.state.lock();
            if state.closed.is_none() {
                self.network.on_closed();
                if state.is_open {
                    self.outages.on_closed(&self.address, &error);
                }
                state.closed = Some(error);
            }
            std::mem::take(&mut state.waiting)
        };
        let error = self.closed().unwrap_or(ClientError::ClientClosed);
        for waiting in waiting {
            waiting.reply.tell(Err(error.clone()));
        }
    }

    /// The request that is answered next, and whether the connection is usable.
    pub fn take_oldest(&self) -> (Option<Waiting>, bool) {
        let mut state = self.state.lock();
        (state.waiting.pop_front(), state.is_open)
    }

    /// Whether the connection is usable, and a request waits.
    pub fn is_waited_for(&self) -> bool {
        let state = self.state.lock();
        state.is_open && !state.waiting.is_empty()
    }

    /// Marks the connection as usable, unless it is closed already.
    pub fn open(&self) {
        let mut state = self.state.lock();
        if state.closed.is_none() {
            state.is_open = true;
            self.outages.on_opened(&self.address);
        }
    }

    pub fn closed(&self) -> Option<ClientError> {
        self.state.lock().closed.clone()
    }
}

/// The session of a login, if the broker limits how long it lasts (KIP-368).
#[derive(Default)]
struct Session {
    /// When the next login has to begin.
    renewal_at: Option<Instant>,
    /// Requests that wait for the login, in their order; `None` while there is none.
    held: Option<Vec<Outgoing>>,
}

pub(super) struct Wire {
    pub address: String,
    client_id: String,
    pub request_timeout: Duration,
    slow_requests: Option<SlowRequestListener>,
    correlation_id: AtomicI32,
    outgoing: mpsc::UnboundedSender<Outgoing>,
    pub pending: Arc<Pending>,
    session: Mutex<Session>,
    /// Signalled when a request finds that the session has to be renewed.
    renewal_due: Notify,
}

/// A request that was not queued, and why.
type Unsent = Option<(Reply, ClientError)>;

fn tell(unsent: Unsent) {
    if let Some((reply, error)) = unsent {
        reply.tell(Err(error));
    }
}

impl Wire {
    pub fn new(
        client_id: String,
        request_timeout: Duration,
        slow_requests: Option<SlowRequestListener>,
        outgoing: mpsc::UnboundedSender<Outgoing>,
        pending: Arc<Pending>,
    ) -> Wire {
        Wire {
            address: pending.address.clone(),
            client_id,
            request_timeout,
            slow_requests,
            correlation_id: AtomicI32::new(0),
            outgoing,
            pending,
            session: Mutex::default(),
            renewal_due: Notify::new(),
        }
    }

    /// Sends a request after all earlier ones, and waits for the body of its response.
    pub async fn exchange<R: ApiRequest>(
        &self,
        request: &R,
        version: i16,
        timeout: Duration,
    ) -> Result<Bytes, ClientError> {
        let (reply, response) = oneshot::channel();
        let reply = Reply::new(move |answer| drop(reply.send(answer)));
        self.enqueue(request, version, true, reply);
        self.answer(R::API_KEY, version, timeout, response).await
    }

    /// As [`Wire::exchange`], for a message of a login: it does not wait for the session.
    pub async fn exchange_for_login<R: ApiRequest>(
        &self,
        request: &R,
        version: i16,
    ) -> Result<R::Response, ClientError> {
        let (reply, response) = oneshot::channel();
        let reply = Reply::new(move |answer| drop(reply.send(answer)));
        match outgoing(R::API_KEY, self.frame(request, version), true, reply) {
            Ok(outgoing) => tell(self.hand_over(outgoing)),
            Err(unsent) => tell(Some(unsent)),
        }
        let answer = self.answer(R::API_KEY, version, self.request_timeout, response);
        R::Response::decode_all(&answer.await?, version).map_err(|error| {
            let what = format!("a response to {}", R::API_KEY);
            ClientError::unreadable(&self.address, &what, error)
        })
    }

    async fn answer(
        &self,
        api: ApiKey,
        version: i16,
        timeout: Duration,
        response: oneshot::Receiver<Result<Bytes, ClientError>>,
    ) -> Result<Bytes, ClientError> {
        let Some(answer) = self.in_time(api, timeout, response).await else {
            // Responses arrive in order, so all later requests would time out as well.
            let error = ClientError::TimedOut {
                address: self.address.clone(),
                what: api.name().to_owned(),
                after: timeout,
            };
            self.pending.close(error.clone());
            return Err(error);
        };
        body_of(&self.address, api, version, answer?)
    }

    /// Waits for an answer, and reports the request once if it is slow. `None` after the timeout.
    async fn in_time(
        &self,
        api: ApiKey,
        timeout: Duration,
        mut response: oneshot::Receiver<Result<Bytes, ClientError>>,
    ) -> Option<Result<Bytes, ClientError>> {
        let since = ottla_sync::time::now();
        let mut left = timeout;
        if let Some(listener) = &self.slow_requests {
            let delay = timeout.saturating_sub(self.request_timeout);
            let first = timeout.min(listener.after() + delay);
            left -= first;
            match ottla_sync::time::timeout(first, &mut response).await {
                Ok(answer) => return Some(answer.unwrap_or(Err(ClientError::ClientClosed))),
                Err(_) if left.is_zero() => return None,
                Err(_) => listener.tell(&SlowRequest {
                    address: self.address.clone(),
                    api,
                    since,
                    limit: timeout,
                }),
            }
        }
        let answer = ottla_sync::time::timeout(left, response).await.ok()?;
        Some(answer.unwrap_or(Err(ClientError::ClientClosed)))
    }

    pub fn enqueue<R: ApiRequest>(
        &self,
        request: &R,
        version: i16,
        is_answered: bool,
        reply: Reply,
    ) {
        let frame = self.frame(request, version);
        self.enqueue_frame(R::API_KEY, frame, is_answered, reply);
    }

    fn enqueue_frame(&self, api: ApiKey, frame: Framed, is_answered: bool, reply: Reply) {
        match outgoing(api, frame, is_answered, reply) {
            Ok(outgoing) => tell(self.queue(outgoing)),
            Err(unsent) => tell(Some(unsent)),
        }
    }

    /// Queues a request, or holds it back for a login. The lock keeps one thread's request from overtaking the login that
    /// another thread's request has caused.
    fn queue(&self, outgoing: Outgoing) -> Unsent {
        let mut session = self.session.lock();
        if let Some(held) = &mut session.held {
            held.push(outgoing);
            return None;
        }
        let now = ottla_sync::time::now();
        if session.renewal_at.is_some_and(|at| now >= at) {
            session.held = Some(vec![outgoing]);
            self.renewal_due.notify_one();
            return None;
        }
        self.hand_over(outgoing)
    }

    fn hand_over(&self, outgoing: Outgoing) -> Unsent {
        let refused = self.outgoing.send(outgoing).err()?;
        let error = self.pending.closed().unwrap_or(ClientError::ClientClosed);
        Some((refused.0.reply, error))
    }

    /// Sets when the session has to be renewed. `None`: it lasts as long as the connection.
    pub fn begin_session(&self, renewal_at: Option<Instant>) {
        self.session.lock().renewal_at = renewal_at;
    }

    /// Waits until a request needs a new session. Everything is held back from then on, until
    /// [`Wire::resume`] or [`Wire::give_up`].
    pub async fn renewal_due(&self) {
        self.renewal_due.notified().await;
    }

    /// Queues the requests that were held back.
    pub fn resume(&self, renewal_at: Option<Instant>) {
        let unsent: Vec<Unsent> = {
            let mut session = self.session.lock();
            session.renewal_at = renewal_at;
            let held = session.held.take().unwrap_or_default();
            held.into_iter().map(|it| self.hand_over(it)).collect()
        };
        unsent.into_iter().for_each(tell);
    }

    /// Fails the requests that were held back, and closes the connection.
    pub fn give_up(&self, error: ClientError) {
        self.pending.close(error.clone());
        // A request that was framed before the close must not wait for another login, because there
        // will be none.
        let ended = std::mem::take(&mut *self.session.lock());
        for outgoing in ended.held.unwrap_or_default() {
            outgoing.reply.tell(Err(error.clone()));
        }
    }

    /// Encodes a request with its header. Only the call of the encoder is generated for each type of request.
    fn frame<R: ApiRequest>(&self, request: &R, version: i16) -> Framed {
        let (mut encoder, correlation_id) = self.begin_frame(R::API_KEY, version)?;
        request.encode(&mut encoder, version)?;
        Ok((chunks_of(encoder)?, correlation_id))
    }

    fn begin_frame(&self, api: ApiKey, version: i16) -> Result<(Encoder, i32), ClientError> {
        if let Some(error) = self.pending.closed() {
            return Err(error);
        }
        let correlation_id = self.correlation_id.fetch_add(1, Ordering::Relaxed) & i32::MAX;
        let header = RequestHeader {
            request_api_key: api.code(),
            request_api_version: version,
            correlation_id,
            client_id: Some(self.client_id.clone().into()),
            ..Default::default()
        };
        let mut encoder = Encoder::new();
        header.encode(&mut encoder, api.request_header_version(version))?;
        Ok((encoder, correlation_id))
    }
}

/// The chunks of a frame and its correlation ID, or why there are none.
type Framed = Result<(Vec<Bytes>, i32), ClientError>;

/// The chunks of a frame, after its length.
fn chunks_of(encoder: Encoder) -> Result<Vec<Bytes>, ClientError> {
    let encoded = encoder.finish();
    let length = i32::try_from(encoded.len())
        .map_err(|_| ClientError::Unsendable("it is larger than 2 GiB".into()))?;
    let mut chunks = Vec::with_capacity(1 + encoded.chunks.len());
    chunks.push(Bytes::copy_from_slice(&length.to_be_bytes()));
    for chunk in encoded.chunks {
        match chunk {
            Chunk::Bytes(bytes) => chunks.push(bytes),
            Chunk::File(_) => return Err(EncodeError::FileRegion.into()),
        }
    }
    Ok(chunks)
}

fn outgoing(
    api: ApiKey,
    frame: Framed,
    is_answered: bool,
    reply: Reply,
) -> Result<Outgoing, (Reply, ClientError)> {
    match frame {
        Ok((chunks, correlation_id)) => Ok(Outgoing {
            chunks,
            correlation_id,
            reply,
            is_answered,
            // As in Kafka, the latency of a broker includes only requests with records, and
            // not a delayed JoinGroup.
            has_counted_latency: matches!(api, ApiKey::Produce | ApiKey::Fetch),
        }),
        Err(error) => Err((reply, error)),
    }
}

/// The body of a response, after its header.
pub(super) fn body_of(
    address: &str,
    api: ApiKey,
    version: i16,
    mut frame: Bytes,
) -> Result<Bytes, ClientError> {
    let mut reader = Reader::new(frame.clone());
    ResponseHeader::decode(&mut reader, api.response_header_version(version))
        .map_err(|error| ClientError::unreadable(address, "the header of a response", error))?;
    frame.advance(reader.position());
    Ok(frame)
}
