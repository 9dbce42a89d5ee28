use std::collections::BTreeMap;

use ottla_protocol::messages::api_versions_response::ApiVersion;
use ottla_protocol::messages::*;
use ottla_protocol::{Encoder, Reader};
use ottla_types::ErrorCode;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::client::{Client, CoordinatorKind};
use crate::properties;
use crate::slow_requests::SlowRequestListener;

/// How long a session lasts, in ms.
const LIFETIME_MS: i64 = 2_000;

/// The requests that arrived after the first ApiVersions.
type Log = Arc<Mutex<Vec<ApiKey>>>;

async fn next_request(socket: &mut TcpStream) -> Option<(ApiKey, i16, i32)> {
    let length = socket.read_i32().await.ok()?;
    let mut frame = vec![0; usize::try_from(length).unwrap()];
    socket.read_exact(&mut frame).await.ok()?;
    let mut reader = Reader::new(Bytes::from(frame));
    let header = RequestHeader::decode(&mut reader, 1).unwrap();
    let api = ApiKey::from_code(header.request_api_key).unwrap();
    Some((api, header.request_api_version, header.correlation_id))
}

async fn answer<M: Message>(
    socket: &mut TcpStream,
    (api, version, correlation_id): (ApiKey, i16, i32),
    response: M,
) {
    let mut encoder = Encoder::new();
    let header = ResponseHeader {
        correlation_id,
        ..Default::default()
    };
    let header_version = api.response_header_version(version);
    header.encode(&mut encoder, header_version).unwrap();
    response.encode(&mut encoder, version).unwrap();
    let frame: Vec<u8> = encoder.finish().chunks.iter().fold(vec![], |mut all, it| {
        let ottla_protocol::Chunk::Bytes(bytes) = it else {
            panic!("a file")
        };
        all.extend_from_slice(bytes);
        all
    });
    socket
        .write_i32(frame.len().try_into().unwrap())
        .await
        .unwrap();
    socket.write_all(&frame).await.unwrap();
}

/// A broker whose sessions last [`LIFETIME_MS`], and which believes that many logins.
async fn serve(listener: TcpListener, logins: usize, log: Log) {
    let (mut socket, _) = listener.accept().await.unwrap();
    let mut seen = 0;
    while let Some(request) = next_request(&mut socket).await {
        let socket = &mut socket;
        match request.0 {
            ApiKey::ApiVersions => {
                let served = [
                    (ApiKey::ApiVersions, 3),
                    (ApiKey::SaslHandshake, 1),
                    (ApiKey::SaslAuthenticate, 2),
                    (ApiKey::ListGroups, 0),
                ];
                answer(socket, request, versions(&served)).await;
                continue;
            }
            ApiKey::SaslHandshake => {
                let response = SaslHandshakeResponse {
                    mechanisms: vec!["PLAIN".into()],
                    ..Default::default()
                };
                answer(socket, request, response).await;
            }
            ApiKey::SaslAuthenticate => {
                seen += 1;
                let refused = ErrorCode::SaslAuthenticationFailed.code();
                let response = SaslAuthenticateResponse {
                    error_code: if seen <= logins { 0 } else { refused },
                    session_lifetime_ms: LIFETIME_MS,
                    ..Default::default()
                };
                answer(socket, request, response).await;
            }
            _ => answer(socket, request, ListGroupsResponse::default()).await,
        }
        log.lock().push(request.0);
    }
}

async fn connect(logins: usize) -> (Arc<Connection>, Log) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let log = Log::default();
    tokio::spawn(serve(listener, logins, log.clone()));
    let jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required \
                username=\"alice\" password=\"a\";";
    let given = [
        ("bootstrap.servers", address.as_str()),
        ("security.protocol", "SASL_PLAINTEXT"),
        ("sasl.mechanism", "PLAIN"),
        ("sasl.jaas.config", jaas),
    ];
    let given: BTreeMap<String, String> = given.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    let (config, _) = properties::producer(&given).unwrap();
    let network = Arc::new(NetworkSensors::new(config.metrics_windows()));
    let connection = Connection::open(&address, &config, network, Arc::default()).await;
    (Arc::new(connection.unwrap()), log)
}

fn logins(log: &Log) -> usize {
    let log = log.lock();
    log.iter()
        .filter(|it| **it == ApiKey::SaslHandshake)
        .count()
}

/// Four tasks send all the time, through several sessions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_renewed_before_it_expires_without_other_requests() {
    let began = std::time::Instant::now();
    let (connection, log) = connect(usize::MAX).await;
    let senders: Vec<_> = (0..4)
        .map(|_| {
            let (connection, log) = (connection.clone(), log.clone());
            tokio::spawn(async move {
                while logins(&log) < 4 && began.elapsed() < Duration::from_secs(60) {
                    let listed = connection.send(&ListGroupsRequest::default()).await;
                    listed.expect("an answer");
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            })
        })
        .collect();
    for sender in senders {
        sender.await.unwrap();
    }
    // The first, and one each time that at least 85 % of a lifetime have passed.
    let most = 1 + began.elapsed().as_millis() / (LIFETIME_MS as u128 * 85 / 100);
    let handshakes = logins(&log);
    assert!(
        handshakes >= 4 && handshakes as u128 <= most,
        "{handshakes} logins"
    );
    let log = log.lock();
    for pair in log.windows(2) {
        let is_login = pair[0] == ApiKey::SaslHandshake;
        assert_eq!(is_login, pair[1] == ApiKey::SaslAuthenticate, "{pair:?}");
    }
}

#[tokio::test]
async fn a_refused_renewal_fails_held_requests_and_closes_the_connection() {
    let (connection, log) = connect(1).await;
    let request = ListGroupsRequest::default();
    connection.send(&request).await.expect("the first session");
    tokio::time::sleep(Duration::from_millis(LIFETIME_MS as u64)).await;
    let refused = connection.send(&request).await.expect_err("refused");
    assert!(
        refused.to_string().contains("SASL_AUTHENTICATION_FAILED"),
        "{refused}"
    );
    assert!(connection.closed().is_some());
    let later = connection.send(&request).await.expect_err("closed");
    assert_eq!(later.to_string(), refused.to_string());
    let listed = log
        .lock()
        .iter()
        .filter(|it| **it == ApiKey::ListGroups)
        .count();
    assert_eq!(listed, 1);
}

/// The error of a client without TLS at a port that answers the first request with these bytes, and
/// closes the connection.
async fn answered_with(bytes: &'static [u8]) -> ClientError {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        next_request(&mut socket).await.expect("a request");
        socket.write_all(bytes).await.unwrap();
    });
    let config = ClientConfig::default();
    let network = Arc::new(NetworkSensors::new(config.metrics_windows()));
    let opened = Connection::open(&address, &config, network, Arc::default()).await;
    opened.err().expect("it is no Kafka broker")
}

#[tokio::test]
async fn the_error_for_a_tls_port_names_the_setting() {
    // A fatal alert: unexpected message.
    let alert = answered_with(&[0x15, 3, 3, 0, 2, 2, 10]).await;
    assert!(alert.to_string().contains("speaks TLS"), "{alert}");
    assert!(
        alert.to_string().contains("security.protocol=SSL"),
        "{alert}"
    );
    assert!(!alert.is_retriable(), "{alert}");
    let silent = answered_with(&[]).await;
    assert!(silent.to_string().contains("if it speaks TLS"), "{silent}");
    assert!(silent.is_retriable(), "{silent}");
}

/// A node that answers ApiVersions, with these APIs, denies groups, and answers nothing else. Returns
/// its address.
async fn node_serving(served: &'static [(ApiKey, i16)]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                while let Some(request) = next_request(&mut socket).await {
                    match request.0 {
                        ApiKey::ApiVersions => {
                            answer(&mut socket, request, versions(served)).await;
                        }
                        ApiKey::FindCoordinator => {
                            let denied = find_coordinator_response::Coordinator {
                                error_code: ErrorCode::GroupAuthorizationFailed.code(),
                                ..Default::default()
                            };
                            let response = FindCoordinatorResponse {
                                coordinators: vec![denied],
                                ..Default::default()
                            };
                            answer(&mut socket, request, response).await;
                        }
                        _ => {}
                    }
                }
            });
        }
    });
    address
}

fn versions(served: &[(ApiKey, i16)]) -> ApiVersionsResponse {
    let served = served.iter().map(|(api, max_version)| ApiVersion {
        api_key: api.code(),
        max_version: *max_version,
        ..Default::default()
    });
    ApiVersionsResponse {
        api_keys: served.collect(),
        ..Default::default()
    }
}

#[tokio::test]
async fn a_request_that_waits_for_the_controller_is_reported_once_and_explained() {
    let served = &[
        (ApiKey::ApiVersions, 3),
        (ApiKey::CreateTopics, 7),
        (ApiKey::ListGroups, 4),
    ];
    let address = node_serving(served).await;
    let reported = Arc::new(Mutex::new(Vec::new()));
    let to = reported.clone();
    let listener = SlowRequestListener::new(Duration::from_millis(300), move |slow| {
        to.lock().push((slow.address.clone(), slow.api));
    });
    let mut config = ClientConfig {
        request_timeout: Duration::from_secs(2),
        default_api_timeout: Duration::from_secs(2),
        slow_requests: Some(listener),
        ..ClientConfig::default()
    };
    config.set_bootstrap_servers(&address).unwrap();
    let client = Client::unconnected(config);
    let created = client.send(|_| CreateTopicsRequest::default()).await;
    let error = created.expect_err("no answer").to_string();
    assert!(
        error.contains("the metadata quorum seems to have none"),
        "{error}"
    );
    assert_eq!(*reported.lock(), [(address.clone(), ApiKey::CreateTopics)]);
    // Brokers answer this one themselves.
    let listed = client.send(|_| ListGroupsRequest::default()).await;
    let error = listed.expect_err("no answer").to_string();
    assert!(error.contains("may be overloaded or stopped"), "{error}");
}

/// Kafka's consumers and its admin client have different messages.
#[tokio::test]
async fn a_denied_group_has_the_message_of_kafka() {
    let served = &[
        (ApiKey::ApiVersions, 3),
        (ApiKey::FindCoordinator, 4),
        (ApiKey::Heartbeat, 4),
    ];
    let mut config = ClientConfig::default();
    config
        .set_bootstrap_servers(&node_serving(served).await)
        .unwrap();
    let client = Client::unconnected(config);
    let kind = CoordinatorKind::Group;
    let error = client.coordinator(kind, "g").await.expect_err("denied");
    assert_eq!(error.broker_message(), "Not authorized to access group: g");
    let asked = client.send_to_coordinator(kind, "g", |_| HeartbeatRequest::default(), |_| 0);
    let error = asked.await.expect_err("denied");
    assert_eq!(
        error.broker_message(),
        "FindCoordinator request for groupId `CoordinatorKey(idValue='g', type=GROUP)` failed due to \
         authorization failure"
    );
}

#[tokio::test]
async fn the_error_for_a_controller_names_the_listeners_of_brokers() {
    let served = &[(ApiKey::ApiVersions, 3), (ApiKey::BrokerRegistration, 4)];
    let mut config = ClientConfig::default();
    config
        .set_bootstrap_servers(&node_serving(served).await)
        .unwrap();
    let connected = Client::connect(config).await;
    let error = connected.err().expect("a controller").to_string();
    assert!(
        error.contains("is a listener of a controller, which does not serve Metadata"),
        "{error}"
    );
    assert!(error.contains("controller.listener.names"), "{error}");
}

#[tokio::test]
async fn the_error_for_a_sasl_listener_names_the_settings() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let request = next_request(&mut socket).await.expect("ApiVersions");
        let response = versions(&[(ApiKey::ApiVersions, 3), (ApiKey::ListGroups, 0)]);
        answer(&mut socket, request, response).await;
        next_request(&mut socket).await.expect("ListGroups");
    });
    let config = ClientConfig::default();
    let network = Arc::new(NetworkSensors::new(config.metrics_windows()));
    let opened = Connection::open(&address, &config, network, Arc::default()).await;
    let connection = opened.expect("ApiVersions is answered");
    let refused = connection.send(&ListGroupsRequest::default()).await;
    let refused = refused.expect_err("the broker hangs up").to_string();
    assert!(
        refused.contains("set security.protocol=SASL_PLAINTEXT, sasl.mechanism"),
        "{refused}"
    );
}
