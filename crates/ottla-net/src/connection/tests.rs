//! Connections of clients to a service that answers each Produce at once, and others late.

use std::sync::atomic::{AtomicUsize, Ordering};

use ottla_config::SecurityProtocol;
use ottla_context::NodeContext;
use ottla_protocol::messages::{HeartbeatResponse, ProduceResponse};
use ottla_protocol::{Encoded, Message};
use ottla_testkit::certificates::{Authority, Issued, Wanted};
use ottla_testkit::peer::broker_only_config;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, HandshakeKind};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream as ClientStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::turn::YIELD_REQUESTS;
use super::*;
use crate::connections::{Limits, ListenerInfo};
use crate::request_memory::RequestMemory;
use crate::response::encode_response;
use crate::service::MisplacedRequest;

mod full_inboxes;
mod large_frames;
mod remote_answers;

const PRODUCE_VERSION: i16 = 9;
const HEARTBEAT_VERSION: i16 = 4;
/// How late a request other than Produce is answered.
const LATE: Duration = Duration::from_millis(30);
const PATIENCE: Duration = Duration::from_secs(60);

/// Answers each request, without looking at it.
#[derive(Default)]
struct Blind {
    requests: AtomicUsize,
}

impl Service for Blind {
    fn start_produce(
        self: &Arc<Self>,
        context: &RequestContext,
        _: Reader,
    ) -> Result<Answer, RequestError> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let (version, correlation_id) = (context.api_version, context.correlation_id);
        let response = ProduceResponse::default();
        let answer = encode_response(ApiKey::Produce, version, correlation_id, &response);
        Ok(Answer::Response {
            encoded: answer.expect("a response"),
            error: ErrorCode::None,
        })
    }

    async fn handle(
        self: &Arc<Self>,
        context: &RequestContext,
        _: Reader,
    ) -> Result<Answer, RequestError> {
        ottla_sync::time::sleep(LATE).await;
        let (version, correlation_id) = (context.api_version, context.correlation_id);
        let response = HeartbeatResponse::default();
        let answer = encode_response(context.api_key, version, correlation_id, &response);
        Ok(Answer::Response {
            encoded: answer.expect("a response"),
            error: ErrorCode::UnknownMemberId,
        })
    }

    fn refuse_during_login(&self, _: MisplacedRequest) -> Option<Encoded> {
        None
    }

    fn on_disconnected(self: &Arc<Self>, _: &Connection, _: bool) {}
}

/// Serves a connection whose client has already sent `first_bytes`.
async fn connect(service: &Arc<Blind>, first_bytes: &[u8]) -> (ClientStream, Arc<Network>) {
    let network = network(&[]);
    let plain = SecurityProtocol::Plaintext;
    let client = connect_to(&network, plain, service, first_bytes).await;
    (client, network)
}

fn network(settings: &[(&str, &str)]) -> Arc<Network> {
    let config = broker_only_config(settings);
    Arc::new(Network::new(
        Arc::new(NodeContext::new(config.clone())),
        &config,
    ))
}

async fn connect_to<S: Service>(
    network: &Arc<Network>,
    protocol: SecurityProtocol,
    service: &Arc<S>,
    first_bytes: &[u8],
) -> ClientStream {
    let socket = ottla_sync::net::TcpListener::bind("127.0.0.1:0").await;
    let socket = socket.unwrap();
    let listener = Arc::new(ListenerInfo {
        name: protocol.name().to_owned(),
        protocol,
        local_addr: socket.local_addr().unwrap(),
        is_controller: false,
    });
    let mut client = ClientStream::connect(listener.local_addr).await.unwrap();
    let (stream, peer_addr) = socket.accept().await.unwrap();
    client.write_all(first_bytes).await.unwrap();
    let limits = Limits::of(&network.context.config(), &listener, None);
    let registered = network
        .connections
        .register(listener, peer_addr, &limits, 0);
    let service = Arc::clone(service);
    start(Arc::clone(network), service, stream, registered.unwrap());
    client
}

/// With a listener for TLS, and a client that trusts the authority and has the listener's certificate.
fn tls_network(
    authority: &Authority,
    own: &Issued,
    protocol: SecurityProtocol,
    more: &[(&str, &str)],
) -> (Arc<Network>, Arc<ClientConfig>) {
    let name = protocol.name();
    let listeners = format!("PLAINTEXT://127.0.0.1:9092,{name}://127.0.0.1:9094");
    let protocols = format!("PLAINTEXT:PLAINTEXT,{name}:{name},CONTROLLER:PLAINTEXT");
    let trusted = authority.pem();
    let mut settings = vec![
        ("listeners", &*listeners),
        ("listener.security.protocol.map", &*protocols),
        ("ssl.keystore.type", "PEM"),
        ("ssl.keystore.key", &*own.key),
        ("ssl.keystore.certificate.chain", &*own.certificate),
        ("ssl.truststore.type", "PEM"),
        ("ssl.truststore.certificates", &*trusted),
    ];
    settings.extend(more);
    let network = network(&settings);
    let context = &network.context;
    context.tls.load(&context.config()).unwrap();
    let client = context.tls.of(name).unwrap().client();
    (network, client)
}

async fn connect_tls<S: Service>(
    network: &Arc<Network>,
    protocol: SecurityProtocol,
    service: &Arc<S>,
    client: &Arc<ClientConfig>,
) -> TlsStream<ClientStream> {
    let socket = connect_to(network, protocol, service, &[]).await;
    let name = ServerName::try_from("localhost").unwrap();
    let connecting = TlsConnector::from(Arc::clone(client)).connect(name, socket);
    connecting.await.unwrap()
}

fn request(api_key: ApiKey, version: i16, correlation_id: i32) -> Vec<u8> {
    let header = RequestHeader {
        request_api_key: api_key.code(),
        request_api_version: version,
        correlation_id,
        client_id: Some("client".into()),
        ..Default::default()
    };
    let header_version = api_key.request_header_version(version);
    let header = header.encode_to_bytes(header_version).unwrap();
    let length = (header.len() as u32).to_be_bytes();
    [&length[..], &header[..]].concat()
}

/// A Produce with this many bytes after its header, which [`Blind`] does not look at.
fn large_produce(correlation_id: i32, body_bytes: usize) -> Vec<u8> {
    let produce = request(ApiKey::Produce, PRODUCE_VERSION, correlation_id);
    let length = (produce.len() - 4 + body_bytes) as u32;
    let body = vec![0; body_bytes];
    [&length.to_be_bytes()[..], &produce[4..], &body[..]].concat()
}

async fn until(is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            ottla_sync::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let waited = ottla_sync::time::timeout(PATIENCE, waiting).await;
    waited.expect("it is so in time");
}

#[tokio::test]
async fn others_run_between_the_requests_that_one_read_returns() {
    const REQUESTS: usize = 600;
    let service = Arc::<Blind>::default();
    let produce = |correlation_id| request(ApiKey::Produce, PRODUCE_VERSION, correlation_id);
    let requests: Vec<u8> = (0..REQUESTS as i32).flat_map(produce).collect();
    let (mut client, _) = connect(&service, &requests).await;

    let taken = || service.requests.load(Ordering::Relaxed);
    let mut most_at_once = 0;
    while taken() < REQUESTS {
        let before = taken();
        ottla_sync::task::yield_now().await;
        most_at_once = most_at_once.max(taken() - before);
    }
    // Twice, because the runtime may poll the connection twice in a row.
    assert!(most_at_once <= 2 * YIELD_REQUESTS, "{most_at_once} at once");

    for correlation_id in 0..REQUESTS as i32 {
        receive(&mut client, correlation_id).await;
    }
}

async fn receive(client: &mut (impl AsyncRead + Unpin), correlation_id: i32) {
    let length = client.read_i32().await.unwrap() as usize;
    let mut answer = vec![0; length];
    client.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer[..4], correlation_id.to_be_bytes());
}

#[tokio::test]
async fn a_slow_request_is_kept_with_its_client_and_its_error() {
    let service = Arc::<Blind>::default();
    let requests = [7, 8].map(|id| request(ApiKey::Heartbeat, HEARTBEAT_VERSION, id));
    let (mut client, network) = connect(&service, &requests.concat()).await;
    receive(&mut client, 7).await;
    // The first is counted before the second is answered.
    receive(&mut client, 8).await;
    let slowest = network.context.metrics.requests().slowest();
    let slow = slowest.first().expect("a slow request");
    assert_eq!(slow.api_key, ApiKey::Heartbeat);
    assert!(slow.local >= LATE && slow.total >= slow.local, "{slow:?}");
    let origin = &slow.origin;
    assert_eq!(origin.api_version, HEARTBEAT_VERSION);
    assert_eq!(origin.client_id, "client");
    assert_eq!(origin.principal, "User:ANONYMOUS");
    assert_eq!(origin.peer, client.local_addr().unwrap());
    assert_eq!(origin.error, ErrorCode::UnknownMemberId);
}

#[tokio::test]
async fn a_session_is_not_resumed_after_the_certificate_of_its_client_has_expired() {
    const LASTS: Duration = Duration::from_secs(8);
    let authority = Authority::new("authority");
    let own = authority.issue(Wanted {
        lasts: Some(LASTS),
        ..Wanted::default()
    });
    let required = [("ssl.client.auth", "required")];
    let protocol = SecurityProtocol::Ssl;
    let (network, client) = tls_network(&authority, &own, protocol, &required);
    let service = Arc::<Blind>::default();
    let produce = request(ApiKey::Produce, PRODUCE_VERSION, 7);
    for kind in [HandshakeKind::Full, HandshakeKind::Resumed] {
        let mut served = connect_tls(&network, protocol, &service, &client).await;
        assert_eq!(served.get_ref().1.handshake_kind(), Some(kind));
        served.write_all(&produce).await.unwrap();
        served.flush().await.unwrap();
        receive(&mut served, 7).await;
    }
    let failed = || network.context.metrics.get(Metric::FailedAuthentications);
    let metrics = &network.context.metrics;
    assert_eq!(
        (metrics.get(Metric::SuccessfulAuthentications), failed()),
        (2, 0)
    );
    ottla_sync::time::sleep(LASTS + Duration::from_secs(1)).await;

    let mut refused = connect_tls(&network, protocol, &service, &client).await;
    let kind = refused.get_ref().1.handshake_kind();
    assert_eq!(kind, Some(HandshakeKind::Resumed));
    // The connection may be closed before this is sent.
    let _ = refused.write_all(&produce).await;
    let _ = refused.flush().await;
    refused.read_u8().await.expect_err("it is closed");
    assert_eq!(failed(), 1);
}

#[tokio::test]
async fn unfinished_logins_take_no_memory_from_clients() {
    const LOGINS: usize = 8;
    const LOGIN_BYTES: usize = 500_000;
    const SENT_BYTES: usize = 300_000;
    let network = network(&[
        ("queued.max.request.bytes", "1000000"),
        ("socket.request.max.bytes", "1000000"),
    ]);
    let service = Arc::<Blind>::default();
    let mut logins = Vec::new();
    for _ in 0..LOGINS {
        let sasl = SecurityProtocol::SaslPlaintext;
        let mut login = connect_to(&network, sasl, &service, &[]).await;
        let length = (LOGIN_BYTES as u32).to_be_bytes();
        login.write_all(&length).await.unwrap();
        login.write_all(&[0; SENT_BYTES]).await.unwrap();
        logins.push(login);
    }
    let taken = |of: &RequestMemory| of.total_bytes() - of.available_bytes();
    until(|| taken(&network.login_memory) >= LOGINS * SENT_BYTES).await;
    assert_eq!(taken(&network.request_memory), 0);

    let plain = SecurityProtocol::Plaintext;
    let mut client = connect_to(&network, plain, &service, &[]).await;
    let produce = large_produce(7, LOGIN_BYTES);
    client.write_all(&produce).await.unwrap();
    receive(&mut client, 7).await;
    assert_eq!(network.connections.count(), LOGINS + 1);
    drop(logins);
    until(|| taken(&network.login_memory) == 0).await;
}

#[tokio::test]
async fn a_client_that_logs_in_has_no_name_of_its_certificate() {
    let authority = Authority::new("authority");
    let own = authority.issue(Wanted::default());
    let protocol = SecurityProtocol::SaslSsl;
    let entry = "org.apache.kafka.common.security.plain.PlainLoginModule required user_a=\"a\";";
    let settings = [
        ("listener.name.sasl_ssl.ssl.client.auth", "required"),
        // For none of the names.
        ("ssl.principal.mapping.rules", "RULE:^OU=(.*)$/$1/"),
        ("sasl.enabled.mechanisms", "PLAIN"),
        ("listener.name.sasl_ssl.plain.sasl.jaas.config", entry),
    ];
    let (network, client) = tls_network(&authority, &own, protocol, &settings);
    let service = Arc::<Blind>::default();
    let mut client = connect_tls(&network, protocol, &service, &client).await;
    let versions = request(ApiKey::ApiVersions, 2, 7);
    client.write_all(&versions).await.unwrap();
    client.flush().await.unwrap();
    receive(&mut client, 7).await;
    network.connections.for_each(|connection| {
        let identity = connection.identity();
        assert_eq!(identity.principal.as_str(), "User:ANONYMOUS");
    });
}
