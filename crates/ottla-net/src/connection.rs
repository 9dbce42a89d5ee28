//! One connection: reads requests, passes them to the service, and sends the responses in the order
//! of the requests.
//!
//! A Produce may start while earlier Produces of the connection wait for their acknowledgements.
//! Every other request first waits until all earlier ones are answered, because clients rely on
//! Kafka processing one request of a connection at a time (a commit, then a fetch of the offsets;
//! InitProducerId, then a Produce). Requests in flight are limited in number and in bytes. The
//! connection is not read above that limit, while the peer does not read its responses, and while
//! its client exceeds a quota (KIP-219).
//!
//! Kafka: `kafka.network.Processor`, which mutes a channel while a request of it is processed.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ottla_metrics::Metric;
use ottla_metrics::request_metrics::RequestTimes;
use ottla_protocol::messages::RequestHeader;
use ottla_protocol::{ApiKey, DecodeError, Reader, decode_request_header};
use ottla_sync::net::TcpStream;
use ottla_sync::task::Handle;
use ottla_types::ErrorCode;

use crate::connections::{Connection, Registered};
use crate::decoded_memory::{Allowance, DecodedPart};
use crate::failed_logins::shown;
use crate::frame::{FrameReader, Front};
use crate::handshakes::HandshakeError;
use crate::login::{Answered, Login, Purpose};
use crate::movable_task;
use crate::network::Network;
use crate::request_context::{RemoteMemory, RequestContext, WaitedTime};
use crate::request_memory::Covered;
use crate::send::SendQueue;
use crate::service::{Answer, RequestError, Service};
use crate::stream::Stream;
use crate::unsent_answers::Unsent;

mod api_rules;
mod error;
mod in_flight;
mod last_client_id;
mod reading;
mod scarce_memory;
#[cfg(test)]
mod tests;
mod turn;

use api_rules::{has_large_answer, left_by_client};
use error::ConnectionError;
use in_flight::{AnsweredRequest, InFlight};
use last_client_id::LastClientId;
use scarce_memory::{STALLED_AFTER, held_for_long};
use turn::Turn;

/// The maximum number of unanswered requests of a connection.
const MAX_IN_FLIGHT: usize = 64;
/// Above this size, a connection accepts no further request until one in flight is answered.
const MAX_IN_FLIGHT_BYTES: usize = 16 * 1024 * 1024;
/// A frame reserves memory from the shared budget if more than this is missing, or if it arrived
/// whole and has at least this size.
const BUDGETED_BYTES: usize = 16 * 1024;
/// With this many requests in flight, every request reserves memory, regardless of its size.
const UNBUDGETED_IN_FLIGHT: usize = 8;
/// The minimum that a peer must read within [`STALLED_AFTER`].
const LEAST_TAKEN_BYTES: u64 = 64 * 1024;

/// Starts the task that serves a connection until it ends.
pub fn start<S: Service>(
    network: Arc<Network>,
    service: Arc<S>,
    stream: TcpStream,
    registered: Registered,
) {
    let connection = Arc::clone(&registered.connection);
    let serving = serve(network, service, stream, registered);
    movable_task::spawn(connection, serving);
}

async fn serve<S: Service>(
    network: Arc<Network>,
    service: Arc<S>,
    stream: TcpStream,
    registered: Registered,
) {
    let connection = Arc::clone(&registered.connection);
    let Some(stream) = admit(&network, &connection, stream).await else {
        network.context.metrics.add(Metric::ConnectionsClosed, 1);
        return;
    };
    let config = Arc::clone(&network.context.config());
    let login = Login::of(&config, &network, &connection);
    let max_frame_bytes = match &login {
        Some(_) => config.sasl_server_max_receive_size,
        None => config.socket_request_max_bytes,
    };
    let mut session = Session {
        frames: FrameReader::new(max_frame_bytes.max(0) as usize),
        client_id: LastClientId::default(),
        login,
        in_flight: VecDeque::new(),
        in_flight_bytes: 0,
        memory: None,
        queue: SendQueue::default(),
        unsent: Vec::new(),
        unsent_answers: Unsent::of(&network.unsent_answers),
        turn: Turn::default(),
        network,
        service,
        connection,
        stream,
    };
    let context = Arc::clone(&session.network.context);
    let ended = session.run().await;
    if matches!(ended, Ok(()) | Err(ConnectionError::Closed)) {
        session.stream.close().await;
    }
    let by_peer = matches!(ended, Ok(()) | Err(ConnectionError::Io(_)));
    match ended {
        Ok(()) | Err(ConnectionError::Io(_)) => {}
        Err(ConnectionError::Closed | ConnectionError::Unauthenticated) => {}
        Err(ConnectionError::Login(reason)) => {
            let connection = &registered.connection;
            let (peer, identity) = (connection.peer_addr, connection.identity());
            let failed = &session.network.handshakes.failed;
            failed.say(identity.host(), || {
                tracing::info!(%peer, "connection closed: {}", shown(&reason));
            });
        }
        Err(ConnectionError::Request(RequestError::Unanswerable(reason))) => {
            context.metrics.add(Metric::ServerErrors, 1);
            tracing::error!(peer = %registered.connection.peer_addr, "connection closed: {reason}");
        }
        Err(
            error @ (ConnectionError::Stalled
            | ConnectionError::Holding
            | ConnectionError::SlowReader),
        ) => {
            context.metrics.add(Metric::ConnectionsClosedForMemory, 1);
            let peer = registered.connection.peer_addr;
            let say = || tracing::warn!(%peer, "connection closed: {error}");
            context.complaints.say(say);
        }
        Err(ConnectionError::Request(RequestError::Malformed(
            error @ DecodeError::AllowanceExceeded { .. },
        ))) => {
            context.metrics.add(Metric::ConnectionsClosedForMemory, 1);
            let peer = registered.connection.peer_addr;
            let say = || tracing::warn!(%peer, "connection closed: decoding its request needs too much memory: {error}");
            context.complaints.say(say);
        }
        Err(error @ (ConnectionError::Frame(_) | ConnectionError::Request(_))) => {
            context.metrics.add(Metric::MalformedRequests, 1);
            context.complaints.say(|| {
                tracing::warn!(
                    peer = %registered.connection.peer_addr,
                    "connection closed: not a request of the Kafka protocol: {error}"
                );
            });
        }
    }
    session
        .service
        .on_disconnected(&registered.connection, by_peer);
    context.metrics.add(Metric::ConnectionsClosed, 1);
    drop(registered);
}

/// Performs the TLS handshake if the listener requires it. `None` if the peer is rejected, which is
/// logged and counted.
async fn admit(
    network: &Network,
    connection: &Arc<Connection>,
    stream: TcpStream,
) -> Option<Stream> {
    let listener = &connection.listener;
    if !listener.protocol.uses_tls() {
        return Some(Stream::Plain(stream));
    }
    let context = &network.context;
    let tls = context.tls.of(&listener.name);
    let accepted = match &tls {
        Some(tls) => network.handshakes.accept(stream, tls, connection).await,
        None => Err(HandshakeError::Failed {
            reason: "the listener has no certificate".to_owned(),
        }),
    };
    let error = match accepted {
        Ok(stream) => return Some(stream),
        Err(HandshakeError::Ended) => return None,
        Err(error) => error,
    };
    context.metrics.add(Metric::FailedAuthentications, 1);
    let identity = connection.identity();
    let host = identity.host();
    network.handshakes.failed.say(host, || {
        let channel = connection.channel_id();
        let reason = match &error {
            // It may contain names that the peer chose, from its certificate.
            HandshakeError::Failed { reason } => shown(reason),
            _ => String::new(),
        };
        tracing::info!(
            reason,
            listener = %listener.name,
            "Failed authentication with /{host} (channelId={channel}) ({})",
            shown(&error.to_string())
        );
    });
    None
}

struct Session<S> {
    network: Arc<Network>,
    service: Arc<S>,
    connection: Arc<Connection>,
    stream: Stream,
    frames: FrameReader,
    client_id: LastClientId,
    /// The login; `None` on a listener without SASL.
    login: Option<Login>,
    /// Unanswered requests, in order. Only Produces stay here.
    in_flight: VecDeque<InFlight>,
    in_flight_bytes: usize,
    /// The memory that the current frame holds of the shared budget.
    memory: Option<Covered>,
    queue: SendQueue,
    /// The requests whose responses are in the queue.
    unsent: Vec<AnsweredRequest>,
    /// The memory that the queue holds of the budget for unread responses.
    unsent_answers: Unsent,
    turn: Turn,
}

impl<S: Service> Session<S> {
    /// Serves until the peer has no more requests, or sends malformed data. Earlier requests are
    /// answered.
    async fn run(&mut self) -> Result<(), ConnectionError> {
        let mut ended = self.take_and_answer().await;
        if let Err(ConnectionError::Frame(_)) = ended
            && let Some(login) = self.login.as_mut().filter(|login| !login.is_logged_in())
        {
            login.on_invalid_frame(&self.network.context, &self.connection);
            self.delay().await?;
            ended = Err(ConnectionError::Unauthenticated);
        }
        if matches!(ended, Ok(()) | Err(ConnectionError::Frame(_))) {
            self.await_all_answers().await?;
            self.send_ready().await?;
        }
        ended
    }

    async fn take_and_answer(&mut self) -> Result<(), ConnectionError> {
        loop {
            while self.has_room()
                && !self.turn.is_over()
                && !self.connection.is_draining()
                && self.muted_for().is_zero()
            {
                let Some(frame) = self.frames.next_frame()? else {
                    break;
                };
                self.turn.requests += 1;
                self.take_frame(frame).await?;
            }
            self.send_ready().await?;
            if self.turn.is_over() {
                self.turn = Turn::default();
                ottla_sync::task::yield_now().await;
            }
            if self.connection.is_closed() {
                return Err(ConnectionError::Closed);
            }
            if self.connection.is_draining() && self.in_flight.is_empty() {
                return Ok(());
            }
            if !self.has_room() || self.connection.is_draining() {
                self.connection.woken().await;
                continue;
            }
            let muted_for = self.muted_for();
            if !muted_for.is_zero() {
                ottla_sync::select! {
                    () = ottla_sync::time::sleep(muted_for) => {}
                    () = self.connection.woken() => {}
                }
                continue;
            }
            let front = self.frames.front()?;
            if let Front::Complete { .. } = front {
                continue;
            }
            if !self.take_memory(&front).await? {
                continue;
            }
            match self.read_or_wake(&front).await? {
                Some(0) => return Ok(()),
                Some(read) => {
                    let context = &self.network.context;
                    // A complete request counts as activity when it is taken.
                    if !matches!(self.frames.front(), Ok(Front::Complete { .. })) {
                        self.connection.on_active(context.now_ms());
                    }
                    context.metrics.add(Metric::BytesReceived, read as u64);
                    self.turn.bytes_read += read;
                }
                None => {}
            }
        }
    }

    fn has_room(&self) -> bool {
        self.in_flight.len() < MAX_IN_FLIGHT && self.in_flight_bytes < MAX_IN_FLIGHT_BYTES
    }

    /// How long no further request is accepted.
    fn muted_for(&self) -> Duration {
        let context = &self.network.context;
        self.connection.muted_for(|| context.now_ms())
    }

    /// Treats a frame as a request, or as a part of the login.
    async fn take_frame(&mut self, frame: Bytes) -> Result<(), ConnectionError> {
        let Some(login) = &mut self.login else {
            return self.take_request(frame).await;
        };
        if login.is_overdue() {
            return Err(overdue_login());
        }
        match login.purpose(&frame, self.network.context.now_ms()) {
            Purpose::Request => self.take_request(frame).await,
            Purpose::Versions => {
                let version = frame.get(2..4).and_then(|it| it.try_into().ok());
                let version = i16::from_be_bytes(version.unwrap_or_default());
                self.take_request(frame).await?;
                let is_good = ApiKey::ApiVersions.stable_versions().contains(&version)
                    && (version < 3 || self.connection.client_software().is_some());
                if let Some(login) = &mut self.login {
                    login.on_versions_answered(is_good);
                }
                Ok(())
            }
            Purpose::Login => self.log_in(frame).await,
            Purpose::Expired => {
                let metrics = &self.network.context.metrics;
                metrics.add(Metric::ExpiredConnectionsKilled, 1);
                Err(ConnectionError::Login("its session has expired".to_owned()))
            }
        }
    }

    async fn log_in(&mut self, frame: Bytes) -> Result<(), ConnectionError> {
        self.await_all_answers().await?;
        self.connection.on_active(self.network.context.now_ms());
        let context = &self.network.context;
        let overdue = Login::overdue(self.login.as_ref());
        let Some(login) = &mut self.login else {
            return Ok(());
        };
        let was_logged_in = login.is_logged_in();
        let answered = ottla_sync::select! {
            biased;
            answered = login.on_frame(frame, context, &self.connection, &*self.service) => answered?,
            () = overdue => return Err(overdue_login()),
            () = self.connection.closed() => return Err(ConnectionError::Closed),
        };
        // Not before, because a message for the Kerberos library waits with its bytes.
        self.memory = None;
        match answered {
            Answered::Continue(answer) => self.queue.push(answer),
            Answered::LoggedIn(answer) => {
                self.queue.push(answer);
                if !was_logged_in {
                    let max = context.config().socket_request_max_bytes;
                    self.frames.set_max_frame_bytes(max.max(0) as usize);
                }
            }
            Answered::Refused(answer) => {
                self.delay().await?;
                if let Some(answer) = answer {
                    self.queue.push(answer);
                    self.send_ready().await?;
                }
                return Err(ConnectionError::Unauthenticated);
            }
            Answered::Closed(reason) => return Err(ConnectionError::Login(reason)),
        }
        self.send_ready().await
    }

    /// `connection.failed.authentication.delay.ms`: slows down the guessing of passwords.
    async fn delay(&self) -> Result<(), ConnectionError> {
        let delay = self
            .network
            .context
            .config()
            .connection_failed_authentication_delay_ms;
        ottla_sync::select! {
            () = ottla_sync::time::sleep(Duration::from_millis(delay.max(0) as u64)) => Ok(()),
            () = self.connection.closed() => Err(ConnectionError::Closed),
        }
    }

    /// Reserves memory for a request that arrived whole, before it is processed. Requests in flight
    /// continue, because other requests may wait for the memory that they hold. Returns whether it
    /// had to wait.
    async fn cover_whole(&mut self, bytes: usize) -> Result<bool, ConnectionError> {
        let mut covered = Covered::default();
        let memory = Login::frame_memory(self.login.as_ref(), &self.network);
        let is_scarce = !memory.try_cover(&mut covered, bytes);
        if is_scarce {
            let network = Arc::clone(&self.network);
            let memory = Login::frame_memory(self.login.as_ref(), &network);
            // It is not idle while it waits here, although the request is not taken yet.
            self.connection.on_active(network.context.now_ms());
            loop {
                self.send_ready().await?;
                if self.connection.is_closed() {
                    return Err(ConnectionError::Closed);
                }
                ottla_sync::select! {
                    () = memory.cover(&mut covered, bytes) => break,
                    () = Login::overdue(self.login.as_ref()) => return Err(overdue_login()),
                    () = self.connection.woken() => {}
                }
            }
        }
        self.memory = Some(covered);
        Ok(is_scarce)
    }

    async fn take_request(&mut self, frame: Bytes) -> Result<(), ConnectionError> {
        let received = ottla_sync::time::now();
        let bytes = frame.len();
        let has_waited = self.memory.is_none()
            && (bytes >= BUDGETED_BYTES || self.in_flight.len() >= UNBUDGETED_IN_FLIGHT)
            && self.cover_whole(bytes).await?;
        let mut reader = Reader::new(frame);
        // The rest of the header is dropped here: it would keep the frame while the request waits.
        let (
            api_key,
            RequestHeader {
                request_api_version: api_version,
                correlation_id,
                client_id,
                ..
            },
        ) = decode_request_header(&mut reader)?;
        if api_key != ApiKey::Produce {
            reader = reader.copying();
        }
        let now_ms = match has_waited {
            true => self.network.context.now_ms(),
            false => self.network.context.ms_at(received),
        };
        self.connection.on_active(now_ms);
        let requests = self.network.context.metrics.requests();
        requests.on_received(api_key, api_version);
        let mut context = RequestContext {
            api_key,
            api_version,
            correlation_id,
            client_id: self.client_id.of_next(client_id),
            connection: Arc::clone(&self.connection),
            identity: self.connection.identity(),
            is_forwarded: false,
            request_bytes: bytes,
            mutation_quota: None,
            received_at_ms: now_ms,
            decoded: None,
            waited: WaitedTime::default(),
            remote_memory: RemoteMemory::default(),
        };
        let answer = if api_key == ApiKey::Produce {
            self.start_produce(&mut context, reader).await?
        } else {
            self.await_all_answers().await?;
            self.send_ready().await?;
            if has_large_answer(api_key) && !self.connection.listener.is_controller {
                self.await_room_for_answers().await?;
            }
            let of_all = self.network.decoded_memory.most_bytes();
            let is_controller = self.connection.listener.is_controller;
            let allowance = Allowance::of(api_key, bytes, is_controller, of_all);
            self.allow(&mut context, &mut reader, allowance).await?;
            let decoded_memory = &self.network.decoded_memory;
            let frame = Login::frame_memory(self.login.as_ref(), &self.network);
            let frame = self.memory.is_some().then_some(frame);
            let decoded = context.decoded.as_deref();
            let decoded = decoded.map(|part| (decoded_memory.half_for(allowance), part));
            let handled = self.service.handle(&context, reader);
            ottla_sync::select! {
                biased;
                handled = handled => handled?,
                () = held_for_long(frame, decoded) => return Err(ConnectionError::Holding),
                () = self.connection.closed() => return Err(ConnectionError::Closed),
                left = left_by_client(api_key, self.stream.socket()) => return Err(left.into()),
            }
        };
        self.queue.hold(context.remote_memory.take());
        let now = ottla_sync::time::now();
        let handled = now.checked_sub(context.waited.total()).unwrap_or(now);
        let mut answered = Some(now);
        if let Answer::Pending(pending) = &answer
            && let Some(room) = pending.room()
        {
            self.await_room(room).await?;
            answered = None;
        }
        self.in_flight_bytes += bytes;
        self.in_flight.push_back(InFlight {
            api_key,
            api_version,
            received,
            handled,
            answer,
            bytes,
            _memory: self.memory.take(),
        });
        self.queue_ready_at(answered)
    }

    /// Waits before the connection is read further. Requests in flight are answered meanwhile: they
    /// have nothing to do with what this one waits for.
    async fn await_room(
        &mut self,
        room: impl Future<Output = ()> + Send,
    ) -> Result<(), ConnectionError> {
        let mut room = pin!(room);
        loop {
            self.send_ready().await?;
            if self.connection.is_closed() {
                return Err(ConnectionError::Closed);
            }
            ottla_sync::select! {
                biased;
                () = &mut room => return Ok(()),
                () = self.connection.woken() => {}
            }
        }
    }

    /// Sets the allowance for decoding a request, and reserves it if necessary. Requests in flight
    /// continue.
    async fn allow(
        &mut self,
        context: &mut RequestContext,
        reader: &mut Reader,
        allowance: Allowance,
    ) -> Result<(), ConnectionError> {
        reader.set_allowance(allowance.bytes);
        if !allowance.is_budgeted {
            return Ok(());
        }
        let network = Arc::clone(&self.network);
        let memory = network.decoded_memory.half_for(allowance);
        let mut taking = pin!(DecodedPart::take(memory, allowance.bytes));
        loop {
            self.send_ready().await?;
            if self.connection.is_closed() {
                return Err(ConnectionError::Closed);
            }
            ottla_sync::select! {
                biased;
                part = &mut taking => {
                    context.decoded = Some(part);
                    return Ok(());
                }
                () = Login::overdue(self.login.as_ref()) => return Err(overdue_login()),
                () = self.connection.woken() => {}
            }
        }
    }

    /// Starts a Produce. If it names more partitions than its size suggests, it is started again
    /// with a reservation. This has no side effects, because the request is decoded before anything
    /// else.
    async fn start_produce(
        &mut self,
        context: &mut RequestContext,
        mut reader: Reader,
    ) -> Result<Answer, ConnectionError> {
        let of_all = self.network.decoded_memory.most_bytes();
        let bytes = context.request_bytes;
        let allowance = Allowance::of(ApiKey::Produce, bytes, false, of_all);
        reader.set_allowance(allowance.bytes);
        match self.service.start_produce(context, reader.clone()) {
            Err(RequestError::Malformed(DecodeError::AllowanceExceeded { .. })) => {}
            started => return Ok(started?),
        }
        let allowance = Allowance::of_many_partitions(bytes, of_all);
        self.allow(context, &mut reader, allowance).await?;
        Ok(self.service.start_produce(context, reader)?)
    }

    /// Waits while too many responses are unread, before a request that would add to them.
    async fn await_room_for_answers(&self) -> Result<(), ConnectionError> {
        let answers = &self.network.unsent_answers;
        if answers.has_room() {
            return Ok(());
        }
        ottla_sync::select! {
            () = answers.wait_for_room() => Ok(()),
            () = self.connection.closed() => Err(ConnectionError::Closed),
        }
    }

    /// The barrier before every request other than Produce.
    async fn await_all_answers(&mut self) -> Result<(), ConnectionError> {
        loop {
            self.queue_ready()?;
            if self.in_flight.is_empty() {
                return Ok(());
            }
            self.send_ready().await?;
            ottla_sync::select! {
                () = self.connection.woken() => {}
                () = self.connection.closed() => return Err(ConnectionError::Closed),
            }
        }
    }

    fn queue_ready(&mut self) -> Result<(), ConnectionError> {
        self.queue_ready_at(None)
    }

    /// Moves the responses that are due to the send queue. `now` is the time, if it was just read.
    fn queue_ready_at(&mut self, mut now: Option<Instant>) -> Result<(), ConnectionError> {
        while let Some(first) = self.in_flight.front() {
            if let Answer::Pending(pending) = &first.answer
                && !pending.is_ready()
            {
                return Ok(());
            }
            let Some(InFlight {
                api_key,
                api_version,
                received,
                handled,
                answer,
                bytes,
                ..
            }) = self.in_flight.pop_front()
            else {
                return Ok(());
            };
            self.in_flight_bytes -= bytes;
            let answer = match answer {
                Answer::Pending(pending) => pending.take()?,
                answer => answer,
            };
            let answered = *now.get_or_insert_with(ottla_sync::time::now);
            let mut request = AnsweredRequest {
                api_key,
                api_version,
                times: RequestTimes {
                    received,
                    handled,
                    answered,
                },
                error: ErrorCode::None,
            };
            match answer {
                Answer::Response { encoded, error } => {
                    self.queue.push(encoded);
                    request.error = error;
                    self.unsent.push(request);
                }
                Answer::Nothing => {
                    let metrics = self.network.context.metrics.requests();
                    request.on_sent(answered, &self.connection, &self.client_id, metrics);
                }
                Answer::Close | Answer::Pending(_) => return Err(ConnectionError::Closed),
            }
        }
        Ok(())
    }

    /// Sends the responses that are ready, in one write if possible. One with records from remote
    /// storage is sent by the threads of the store, to which the connection moves for this time.
    async fn send_ready(&mut self) -> Result<(), ConnectionError> {
        self.queue_ready()?;
        if self.queue.is_empty() {
            return Ok(());
        }
        let store_threads = match self.queue.is_remote() {
            true => self.network.store_threads(),
            false => None,
        };
        let sent = match store_threads {
            None => self.send_queue().await,
            Some(store_threads) => {
                let home = Handle::current();
                self.connection.next_threads.to(store_threads).await;
                let sent = self.send_queue().await;
                // The rest takes locks for which others would wait at the priority of the store.
                self.connection.next_threads.to(home).await;
                sent
            }
        };
        let (sent, now) = sent?;
        let context = &self.network.context;
        context.metrics.add(Metric::BytesSent, sent);
        self.connection.on_active(context.ms_at(now));
        let metrics = context.metrics.requests();
        for request in self.unsent.drain(..) {
            request.on_sent(now, &self.connection, &self.client_id, metrics);
        }
        Ok(())
    }

    /// Sends the queue. Returns the number of bytes, and when the kernel has accepted the last one.
    async fn send_queue(&mut self) -> Result<(u64, Instant), ConnectionError> {
        let on_progress = || self.connection.on_active(self.network.context.now_ms());
        let unsent = &self.unsent_answers;
        let sent = ottla_sync::select! {
            biased;
            sent = self.queue.send_all(&mut self.stream, unsent, on_progress) => sent?,
            () = unsent.stalled(STALLED_AFTER, LEAST_TAKEN_BYTES) => {
                return Err(ConnectionError::SlowReader);
            }
            () = Login::overdue(self.login.as_ref()) => return Err(overdue_login()),
            () = self.connection.closed() => return Err(ConnectionError::Closed),
        };
        Ok((sent, ottla_sync::time::now()))
    }
}

fn overdue_login() -> ConnectionError {
    ConnectionError::Login("it has not logged in in time".to_owned())
}
