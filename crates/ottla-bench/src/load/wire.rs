//! A blocking connection to a broker: frames, and the API versions that both sides support.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use bytes::Bytes;
use ottla_protocol::messages::{ApiVersionsRequest, RequestHeader, ResponseHeader};
use ottla_protocol::{ApiKey, ApiMessage, ApiRequest, Encoder, Message, Reader};

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
    stream: TcpStream,
    address: String,
    /// The broker's APIs: API key, lowest and highest version.
    versions: Vec<(i16, i16, i16)>,
    next_correlation_id: i32,
    /// The correlation ID of the next response; responses arrive in request order.
    next_answer_id: i32,
    /// Reused for each response.
    buffer: Vec<u8>,
}

impl Connection {
    /// Connects to `host:port`.
    pub fn open(address: &str) -> Result<Connection> {
        let stream = connect(address)?;
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
        Ok(connection)
    }

    /// The same socket with separate correlation ID and buffer: one side to send, one to receive.
    pub fn try_clone(&self) -> Result<Connection> {
        Ok(Connection {
            stream: self.stream.try_clone()?,
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

fn lost(address: &str, doing: &str, error: std::io::Error) -> anyhow::Error {
    use std::io::ErrorKind::{TimedOut, UnexpectedEof, WouldBlock};
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
