//! A blocking connection to a broker: frames, the API versions that both sides support, and the
//! login.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use bytes::Bytes;
use ottla_protocol::messages::{
    ApiVersionsRequest, RequestHeader, ResponseHeader, SaslAuthenticateRequest,
    SaslHandshakeRequest,
};
use ottla_protocol::{ApiKey, ApiMessage, ApiRequest, Encoder, Message, Reader};
use rustix::net::sockopt;

use super::security::{Security, User};
use super::tls_socket::TlsSocket;

const CLIENT_ID: &str = "ottla-load";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longer than any response may take, so that a hanging broker ends the run with an error.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// The ApiVersions version that every broker since 2.4 supports.
const API_VERSIONS_VERSION: i16 = 3;
const LENGTH_SIZE: usize = 4;
/// Offset of the correlation ID in a frame: after length, API key and version.
const CORRELATION_ID_AT: usize = 8;
/// Maximum size of a response frame, in bytes.
const MAX_FRAME: usize = 256 << 20;

/// A connection whose broker versions are known.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    address: String,
    /// The broker's APIs: API key, lowest and highest version.
    versions: Vec<(i16, i16, i16)>,
    next_correlation_id: i32,
    /// The correlation ID of the next response; responses arrive in request order.
    next_answer_id: i32,
    /// Reused for each response.
    buffer: Vec<u8>,
}

#[derive(Debug)]
enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsSocket>),
}

impl Connection {
    /// Connects to `host:port`, with TLS and a login if the security demands them.
    pub fn open(address: &str, security: &Security) -> Result<Connection> {
        let socket = connect(address)?;
        let stream = match &security.tls {
            None => Stream::Plain(socket),
            Some(config) => {
                let socket = TlsSocket::connect(socket, address, config);
                let socket = socket.map_err(|error| lost(address, "shaking hands", error))?;
                Stream::Tls(Box::new(socket))
            }
        };
        let mut connection = Connection {
            stream,
            address: address.to_owned(),
            versions: vec![(ApiKey::ApiVersions.code(), 0, API_VERSIONS_VERSION)],
            next_correlation_id: 0,
            next_answer_id: 0,
            buffer: Vec::new(),
        };
        let answer = connection.request(&ApiVersionsRequest {
            client_software_name: CLIENT_ID.into(),
            client_software_version: env!("CARGO_PKG_VERSION").into(),
            ..Default::default()
        })?;
        connection.versions = answer
            .api_keys
            .iter()
            .map(|api| (api.api_key, api.min_version, api.max_version))
            .collect();
        if let Some(user) = &security.user {
            connection.log_in(user)?;
        }
        Ok(connection)
    }

    fn log_in(&mut self, user: &User) -> Result<()> {
        let address = self.address.clone();
        let mechanism = user.mechanism();
        let answer = self.request(&SaslHandshakeRequest {
            mechanism: mechanism.name().into(),
        })?;
        let doing = format_args!("asking for a login with {mechanism}");
        check(answer.error_code, doing, &address)?;
        let [first, second] = [0, 1].map(|half: u8| RandomState::new().hash_one(half));
        let mut login = user.login(format!("{first:016x}{second:016x}"))?;
        let mut message = Some(login.first_message());
        while let Some(auth_bytes) = message {
            let answer = self.request(&SaslAuthenticateRequest {
                auth_bytes: auth_bytes.into(),
                ..Default::default()
            })?;
            let reason = answer.error_message.as_deref().unwrap_or_default();
            let doing = format_args!("logging in with {mechanism}: {reason}");
            check(answer.error_code, doing, &address)?;
            message = login
                .on_message(&answer.auth_bytes)
                .map_err(|error| anyhow!("{address}: logging in with {mechanism}: {error}"))?;
        }
        user.on_logged_in(login);
        Ok(())
    }

    /// Whether the TLS handshake resumed an earlier session.
    pub fn is_resumed(&self) -> bool {
        match &self.stream {
            Stream::Plain(_) => false,
            Stream::Tls(stream) => stream.is_resumed(),
        }
    }

    /// Closes the connection with a reset, which leaves no port of this machine waiting.
    pub fn reset(self) -> Result<()> {
        let socket = match &self.stream {
            Stream::Plain(socket) => socket,
            Stream::Tls(stream) => stream.socket(),
        };
        sockopt::set_socket_linger(socket, Some(Duration::ZERO))?;
        Ok(())
    }

    /// The same socket with separate correlation ID and buffer: one side to send, one to receive.
    pub fn try_clone(&self) -> Result<Connection> {
        Ok(Connection {
            stream: match &self.stream {
                Stream::Plain(stream) => Stream::Plain(stream.try_clone()?),
                Stream::Tls(stream) => Stream::Tls(Box::new(stream.try_clone()?)),
            },
            address: self.address.clone(),
            versions: self.versions.clone(),
            next_correlation_id: self.next_correlation_id,
            next_answer_id: self.next_answer_id,
            buffer: Vec::new(),
        })
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    /// The highest version of the request that both sides support.
    pub fn version<R: ApiRequest>(&self) -> Result<i16> {
        let api_key = R::API_KEY;
        let ours = api_key.stable_versions();
        let found = self
            .versions
            .iter()
            .find(|(code, ..)| *code == api_key.code());
        let &(_, lowest, highest) = found.with_context(|| {
            format!(
                "{}: the broker does not serve {}",
                self.address,
                api_key.name()
            )
        })?;
        let version = highest.min(*ours.end());
        ensure!(
            version >= lowest && version >= *ours.start(),
            "{}: {} is served in versions {lowest} to {highest}, but {} to {} are known here",
            self.address,
            api_key.name(),
            ours.start(),
            ours.end()
        );
        Ok(version)
    }

    /// Sends a request and waits for its response.
    pub fn request<R: ApiRequest>(&mut self, request: &R) -> Result<R::Response> {
        let version = self.version::<R>()?;
        let mut frame = frame(request, version)?;
        self.send(&mut frame)?;
        self.receive(version)
    }

    /// Sends a frame built by [`frame`], with a new correlation ID.
    pub fn send(&mut self, frame: &mut [u8]) -> Result<()> {
        let id = self.next_correlation_id;
        self.next_correlation_id = id.wrapping_add(1);
        frame[CORRELATION_ID_AT..CORRELATION_ID_AT + 4].copy_from_slice(&id.to_be_bytes());
        self.stream
            .write_all(frame)
            .map_err(|error| lost(&self.address, "sending a request", error))
    }

    /// Waits for the next response, which must belong to a request of this API and version.
    pub fn receive<A: ApiMessage>(&mut self, version: i16) -> Result<A> {
        self.receive_with(version, |answer| Ok(answer))
    }

    /// Waits for the next response and passes it to `look` before its buffer is reused.
    pub fn receive_with<A: ApiMessage, T>(
        &mut self,
        version: i16,
        look: impl FnOnce(A) -> Result<T>,
    ) -> Result<T> {
        let body = self.receive_frame()?;
        let id = self.next_answer_id;
        self.next_answer_id = id.wrapping_add(1);
        let outcome = decode(&body, version, id)
            .with_context(|| format!("{}: an answer that cannot be read", self.address))
            .and_then(look);
        // The buffer is reused unless the response was kept; then a new one is allocated.
        self.buffer = body.try_into_mut().map(Vec::from).unwrap_or_default();
        outcome
    }

    fn receive_frame(&mut self) -> Result<Bytes> {
        let address = &self.address;
        let mut length = [0; LENGTH_SIZE];
        self.stream
            .read_exact(&mut length)
            .map_err(|error| lost(address, "waiting for an answer", error))?;
        let length = usize::try_from(i32::from_be_bytes(length)).unwrap_or(usize::MAX);
        ensure!(
            length <= MAX_FRAME,
            "{address}: an answer of impossible length"
        );
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(length, 0);
        self.stream
            .read_exact(&mut buffer)
            .map_err(|error| lost(address, "reading an answer", error))?;
        Ok(Bytes::from(buffer))
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.read(buffer),
            Stream::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.write(bytes),
            Stream::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(stream) => stream.flush(),
            Stream::Tls(stream) => stream.flush(),
        }
    }
}

fn connect(address: &str) -> Result<TcpStream> {
    let resolved = address
        .to_socket_addrs()
        .with_context(|| format!("{address}: not a broker's address; give host:port"))?;
    let mut last = None;
    for candidate in resolved {
        match TcpStream::connect_timeout(&candidate, CONNECT_TIMEOUT) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
                stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
                return Ok(stream);
            }
            Err(error) => last = Some(error),
        }
    }
    match last {
        Some(error) => Err(anyhow!(
            "{address}: cannot connect ({error}); start the broker or give another --bootstrap"
        )),
        None => bail!("{address}: the name does not resolve; give another --bootstrap"),
    }
}

fn lost(address: &str, doing: &str, error: io::Error) -> anyhow::Error {
    use io::ErrorKind::{TimedOut, UnexpectedEof, WouldBlock};
    match error.kind() {
        UnexpectedEof => {
            anyhow!("{address}: the broker closed the connection while {doing}; see its log")
        }
        TimedOut | WouldBlock => {
            anyhow!(
                "{address}: no progress in {} s while {doing}; see the broker's log",
                ANSWER_TIMEOUT.as_secs()
            )
        }
        _ => anyhow!("{address}: {error} while {doing}; see the broker's log"),
    }
}

/// A complete request frame with length and header. The correlation ID is set on send.
pub fn frame<R: ApiRequest>(request: &R, version: i16) -> Result<Vec<u8>> {
    let api_key = R::API_KEY;
    let header = RequestHeader {
        request_api_key: api_key.code(),
        request_api_version: version,
        client_id: Some(CLIENT_ID.into()),
        ..Default::default()
    };
    let mut encoder = Encoder::new();
    encoder.i32(0);
    header.encode(&mut encoder, api_key.request_header_version(version))?;
    request.encode(&mut encoder, version)?;
    let mut frame = encoder.finish().try_into_bytes()?.to_vec();
    let length = i32::try_from(frame.len() - LENGTH_SIZE).context("the request is too long")?;
    frame[..LENGTH_SIZE].copy_from_slice(&length.to_be_bytes());
    Ok(frame)
}

fn decode<A: ApiMessage>(body: &Bytes, version: i16, correlation_id: i32) -> Result<A> {
    let mut reader = Reader::new(body.clone());
    let header = ResponseHeader::decode(&mut reader, A::API_KEY.response_header_version(version))?;
    ensure!(
        header.correlation_id == correlation_id,
        "it answers request {} and not {correlation_id}",
        header.correlation_id
    );
    Ok(A::decode(&mut reader, version)?)
}

/// Fails with Kafka's name for the code, unless it is `NONE`.
pub fn check(error_code: i16, doing: impl std::fmt::Display, address: &str) -> Result<()> {
    match ottla_types::ErrorCode::from_code(error_code) {
        ottla_types::ErrorCode::None => Ok(()),
        code => bail!("{address}: {code} while {doing}"),
    }
}
