//! A fake node whose responses a test determines.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use bytestring::ByteString;
use ottla_config::{BrokerConfig, Properties, SecurityProtocol};
use ottla_protocol::messages::api_versions_response::ApiVersion;
use ottla_protocol::messages::{ApiVersionsResponse, RequestHeader, ResponseHeader};
use ottla_protocol::{ApiKey, ApiMessage, Message, Reader, decode_request_header};
use ottla_types::ErrorCode;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use ottla_net::{Connection, ListenerInfo, RequestContext};

/// The configuration of a broker-only node, whose controllers are other processes, with these
/// additional settings.
pub fn broker_only_config(settings: &[(&str, &str)]) -> BrokerConfig {
    let properties = broker_only_properties(settings);
    let (config, _) = BrokerConfig::from_properties(&properties).expect("good settings");
    config
}

/// The properties file of [`broker_only_config`].
pub fn broker_only_properties(settings: &[(&str, &str)]) -> Properties {
    let mut properties = Properties::new("the test");
    let own = [
        ("process.roles", "broker"),
        ("node.id", "4"),
        ("controller.listener.names", "CONTROLLER"),
        (
            "listener.security.protocol.map",
            "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        ),
        ("controller.quorum.bootstrap.servers", "127.0.0.1:9093"),
        ("log.dirs", "/nowhere"),
        ("broker.heartbeat.interval.ms", "200"),
    ];
    for (key, value) in own.iter().chain(settings) {
        properties.set(key, value);
    }
    properties
}

/// A request context of a client at 10.0.0.9.
pub fn client_context(api_key: ApiKey, api_version: i16) -> RequestContext {
    let listener = ListenerInfo {
        name: "PLAINTEXT".to_owned(),
        protocol: SecurityProtocol::Plaintext,
        local_addr: ([127, 0, 0, 1], 9092).into(),
        is_controller: false,
    };
    let from = ([10, 0, 0, 9], 50_000).into();
    let connection = Arc::new(Connection::new(1, Arc::new(listener), from, 0));
    RequestContext {
        api_key,
        api_version,
        correlation_id: 77,
        client_id: Some(ByteString::from_static("admin")),
        identity: connection.identity(),
        connection,
        is_forwarded: false,
        request_bytes: 0,
        mutation_quota: None,
        received_at_ms: 0,
        decoded: None,
        waited: Default::default(),
        remote_memory: Default::default(),
    }
}

/// A received request.
pub struct ReceivedRequest {
    pub api: ApiKey,
    pub header: RequestHeader,
    body: Reader,
}

impl ReceivedRequest {
    pub fn of(api: ApiKey, header: RequestHeader, body: Reader) -> ReceivedRequest {
        ReceivedRequest { api, header, body }
    }

    pub fn request<R: ApiMessage>(&self) -> R {
        assert_eq!(self.api, R::API_KEY);
        let version = self.header.request_api_version;
        R::decode(&mut self.body.clone(), version).expect("a request")
    }

    /// Encodes the response as a frame.
    pub fn answer<M: ApiMessage>(&self, response: &M) -> Bytes {
        self.answer_in(response, self.header.request_api_version)
    }

    fn answer_in<M: ApiMessage>(&self, response: &M, version: i16) -> Bytes {
        let header = ResponseHeader {
            correlation_id: self.header.correlation_id,
            ..Default::default()
        };
        let header_version = M::API_KEY.response_header_version(version);
        let header = header.encode_to_bytes(header_version).expect("a header");
        let body = response.encode_to_bytes(version).expect("a response");
        let mut frame = BytesMut::new();
        frame.put_u32((header.len() + body.len()) as u32);
        frame.extend_from_slice(&header);
        frame.extend_from_slice(&body);
        frame.freeze()
    }
}

/// Listens and advertises these APIs up to these versions. `react` returns the frames to send for
/// each request, or `None` to close the connection. Returns the port.
pub async fn peer(
    served: &'static [(ApiKey, i16)],
    react: impl FnMut(ReceivedRequest) -> Option<Vec<Bytes>> + Send + 'static,
) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let react = Arc::new(Mutex::new(react));
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let react = Arc::clone(&react);
            tokio::spawn(async move {
                while let Some(asked) = receive(&mut socket).await {
                    let frames = match asked.api {
                        ApiKey::ApiVersions => Some(vec![api_versions(&asked, served)]),
                        _ => react.lock()(asked),
                    };
                    let Some(frames) = frames else { return };
                    for frame in frames {
                        socket
                            .write_all(&frame)
                            .await
                            .expect("the other side reads");
                    }
                }
            });
        }
    });
    port
}

async fn receive(socket: &mut TcpStream) -> Option<ReceivedRequest> {
    let length = socket.read_u32().await.ok()?;
    let mut frame = BytesMut::zeroed(length as usize);
    socket.read_exact(&mut frame).await.ok()?;
    let mut body = Reader::new(frame.freeze());
    let (api, header) = decode_request_header(&mut body).expect("a header");
    Some(ReceivedRequest { api, header, body })
}

fn api_versions(asked: &ReceivedRequest, served: &[(ApiKey, i16)]) -> Bytes {
    let mut response = ApiVersionsResponse {
        api_keys: served
            .iter()
            .map(|(api, max_version)| ApiVersion {
                api_key: api.code(),
                max_version: *max_version,
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    };
    let known = served.iter().find(|(api, _)| *api == ApiKey::ApiVersions);
    match known {
        Some((_, newest)) if *newest < asked.header.request_api_version => {
            response.error_code = ErrorCode::UnsupportedVersion.code();
            asked.answer_in(&response, 0)
        }
        _ => asked.answer(&response),
    }
}
