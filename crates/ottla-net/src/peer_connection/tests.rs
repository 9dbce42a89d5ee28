//! Tests against a peer that each test scripts.

use ottla_protocol::messages::{
    BrokerHeartbeatRequest, BrokerHeartbeatResponse, SaslHandshakeResponse, VoteRequest,
};
use ottla_sasl::{ClientCredentials, Mechanism, PeerCredentials, Secret, TokenSource};

use super::*;
use ottla_testkit::peer::{ReceivedRequest, peer};

const SERVED: &[(ApiKey, i16)] = &[(ApiKey::BrokerHeartbeat, 1)];

fn settings() -> PeerSettings {
    PeerSettings {
        client_id: ByteString::from_static("7"),
        request_timeout: Duration::from_secs(20),
        security: PeerSecurity::default(),
        connection_setup_timeout: Duration::from_secs(20),
        receive_limit: 1024,
    }
}

async fn connect(port: u16) -> PeerConnection {
    let connected = PeerConnection::open("127.0.0.1", port, &settings()).await;
    connected.unwrap()
}

/// The epoch of the request tells the peer whether to set `is_fenced` in its response.
fn heartbeat(broker_epoch: i64) -> BrokerHeartbeatRequest {
    BrokerHeartbeatRequest {
        broker_epoch,
        ..Default::default()
    }
}

fn answer(asked: &ReceivedRequest) -> Bytes {
    let request: BrokerHeartbeatRequest = asked.request();
    asked.answer(&BrokerHeartbeatResponse {
        is_fenced: request.broker_epoch == 1,
        ..Default::default()
    })
}

#[tokio::test]
async fn concurrent_requests_get_their_own_responses() {
    let react = |asked: ReceivedRequest| {
        assert_eq!(asked.header.client_id.as_deref(), Some("7"));
        Some(vec![answer(&asked)])
    };
    let connection = connect(peer(SERVED, react).await).await;
    let requests = [heartbeat(1), heartbeat(2), heartbeat(1)];
    let (first, second, third) = tokio::join!(
        connection.send(&requests[0]),
        connection.send(&requests[1]),
        connection.send_with(|version| {
            assert_eq!(version, 1);
            requests[2].clone()
        })
    );
    let answers = [first, second, third].map(|answer| answer.unwrap().is_fenced);
    assert_eq!(answers, [true, false, true]);
    assert!(!connection.is_closed());
}

#[tokio::test]
async fn an_older_peer_is_asked_again_in_a_supported_version() {
    const OLD: &[(ApiKey, i16)] = &[(ApiKey::ApiVersions, 2), (ApiKey::BrokerHeartbeat, 1)];
    let port = peer(OLD, |asked: ReceivedRequest| Some(vec![answer(&asked)])).await;
    let connection = connect(port).await;
    assert!(connection.send(&heartbeat(1)).await.unwrap().is_fenced);
}

#[tokio::test]
async fn an_unsupported_api_fails_without_a_request() {
    let connection = connect(peer(SERVED, |_| None).await).await;
    let error = connection.send(&VoteRequest::default()).await.unwrap_err();
    let PeerFailure::Unsupported { api, served, .. } = &error.failure else {
        panic!("{error}");
    };
    assert_eq!((*api, served.as_str()), (ApiKey::Vote, "none"));
    assert!(!connection.is_closed());
}

#[tokio::test]
async fn a_mismatched_response_closes_the_connection() {
    let mut kept = None;
    let the_wrong_way_round = move |asked: ReceivedRequest| match kept.take() {
        None => {
            kept = Some(answer(&asked));
            Some(Vec::new())
        }
        Some(first) => Some(vec![answer(&asked), first]),
    };
    let connection = connect(peer(SERVED, the_wrong_way_round).await).await;
    let requests = [heartbeat(1), heartbeat(2)];
    let (first, second) =
        tokio::join!(connection.send(&requests[0]), connection.send(&requests[1]));
    for answer in [first, second] {
        let failure = answer.unwrap_err().failure;
        let expected = PeerFailure::Closed("its answers are out of order".to_owned());
        assert_eq!(failure, expected);
    }
    assert!(connection.is_closed());
}

#[tokio::test]
async fn all_requests_fail_when_the_peer_closes_the_connection() {
    let connection = connect(peer(SERVED, |_| None).await).await;
    let error = connection.send(&heartbeat(1)).await.unwrap_err();
    assert!(matches!(error.failure, PeerFailure::Closed(_)), "{error}");
    assert!(connection.is_closed());
    assert_eq!(connection.send(&heartbeat(1)).await.unwrap_err(), error);
}

#[tokio::test]
async fn a_request_that_waits_for_a_login_fails_when_the_connection_closes() {
    // A token endpoint that takes connections, and does not answer.
    let endpoint = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/at", endpoint.local_addr().unwrap());
    let lookup = |key: &str| (key == "sasl.oauthbearer.token.endpoint.url").then(|| url.clone());
    let module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required \
                  clientId=\"me\" clientSecret=\"hush\";";
    let module = ottla_sasl::jaas::parse_property(module).unwrap();
    let source = TokenSource::read(lookup, Some(&module)).unwrap();
    let mut connection = connect(peer(SERVED, |_| None).await).await;
    connection.settings.security.sasl = Some(Arc::new(SaslPeer {
        mechanism: Mechanism::OAuthBearer,
        credentials: PeerCredentials::Token(Box::new(source)),
    }));
    let due = Some(ottla_sync::time::now());
    connection.next_login = ottla_sync::async_lock::Mutex::new(due);
    let closed = PeerFailure::Closed("it left".to_owned());
    let leave = async {
        ottla_sync::time::sleep(Duration::from_millis(100)).await;
        connection.in_flight.close(closed.clone());
    };
    let requests = [heartbeat(1), heartbeat(2)];
    let (first, second, ()) = tokio::join!(
        connection.send(&requests[0]),
        connection.send(&requests[1]),
        leave
    );
    // Not that they have timed out.
    assert_eq!(first.unwrap_err().failure, closed);
    assert_eq!(second.unwrap_err().failure, closed);
}

/// The peer would take the next request for a message of the login.
#[tokio::test]
async fn a_login_whose_caller_is_dropped_closes_the_connection() {
    const WITH_LOGINS: &[(ApiKey, i16)] = &[
        (ApiKey::BrokerHeartbeat, 1),
        (ApiKey::SaslHandshake, 1),
        (ApiKey::SaslAuthenticate, 2),
    ];
    let (begun, mut has_begun) = mpsc::unbounded_channel();
    let port = peer(WITH_LOGINS, move |asked| match asked.api {
        ApiKey::SaslHandshake => Some(vec![asked.answer(&SaslHandshakeResponse::default())]),
        api => {
            begun.send(api).expect("the test waits");
            Some(Vec::new())
        }
    });
    let mut connection = connect(port.await).await;
    let credentials = ClientCredentials::Password {
        username: "me".to_owned(),
        password: Secret::new("hush"),
        is_token: false,
    };
    connection.settings.security.sasl = Some(Arc::new(SaslPeer {
        mechanism: Mechanism::Plain,
        credentials: PeerCredentials::Known(credentials),
    }));
    let due = Some(ottla_sync::time::now());
    connection.next_login = ottla_sync::async_lock::Mutex::new(due);
    let request = heartbeat(1);
    tokio::select! {
        answer = connection.send(&request) => panic!("{answer:?}"),
        api = has_begun.recv() => assert_eq!(api, Some(ApiKey::SaslAuthenticate)),
    }
    assert!(connection.is_closed());
    let error = connection.send(&request).await.unwrap_err();
    assert!(matches!(error.failure, PeerFailure::Closed(_)), "{error}");
}

#[tokio::test]
async fn a_request_to_a_silent_peer_times_out() {
    let port = peer(SERVED, |_| Some(Vec::new())).await;
    let settings = PeerSettings {
        request_timeout: Duration::from_secs(3),
        ..settings()
    };
    let connection = PeerConnection::open("127.0.0.1", port, &settings);
    let connection = connection.await.unwrap();
    let error = connection.send(&heartbeat(1)).await.unwrap_err();
    let sentence = format!("127.0.0.1:{port}: no answer to BrokerHeartbeat within 3000 ms");
    assert_eq!(error.to_string(), sentence);
    assert!(connection.is_closed());
}

#[tokio::test]
async fn a_response_above_the_size_limit_is_not_read() {
    let too_much = |_| Some(vec![Bytes::from_static(&[0x7f, 0xff, 0xff, 0xff])]);
    let connection = connect(peer(SERVED, too_much).await).await;
    let error = connection.send(&heartbeat(1)).await.unwrap_err();
    assert!(
        error.to_string().ends_with("more than the maximum of 1024"),
        "{error}"
    );
}

#[tokio::test]
async fn the_error_names_an_address_that_refuses_connections() {
    let [port] = ottla_testkit::lease_ports().unwrap();
    let error = PeerConnection::open("127.0.0.1", port, &settings()).await;
    let error = error.unwrap_err();
    assert!(
        matches!(error.failure, PeerFailure::Unreachable(_)),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .starts_with(&format!("127.0.0.1:{port}: "))
    );
}
