//! Listeners that are added and removed while the broker runs.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::time::Duration;

use bytestring::ByteString;
use ottla_config::BrokerConfig;
use ottla_net::{PeerConnection, PeerSecurity, PeerSettings};
use ottla_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use ottla_protocol::messages::{
    ApiVersionsRequest, IncrementalAlterConfigsRequest, SaslHandshakeRequest,
};
use ottla_sasl::Mechanism;
use ottla_testkit::certificates::{Authority, Wanted};
use ottla_testkit::lease_ports;
use ottla_types::ErrorCode;
use tokio::net::TcpStream;

use super::TestBroker;
use super::client::Client;
use super::sasl::log_in;
use crate::Broker;

const STATIC: &str = "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0";
const MAP: &str = "listener.security.protocol.map";
const PLAIN_USERS: &str =
    "org.apache.kafka.common.security.plain.PlainLoginModule required user_admin=\"a\";";
const BROKER: i8 = 4;
const SET: i8 = 0;
const DELETE: i8 = 1;

/// Listeners that the file does not advertise can be removed.
async fn start() -> TestBroker {
    TestBroker::start_with(&[("advertised.listeners", "PLAINTEXT://127.0.0.1:0")]).await
}

/// The listeners of the file, and one on this port.
fn with_extra(port: u16) -> String {
    format!("{STATIC},EXTRA://127.0.0.1:{port}")
}

fn map(extra: &str) -> String {
    format!("PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,EXTRA:{extra}")
}

/// The paths of a trust store and a key store in PEM.
fn stores(dir: &Path) -> [String; 2] {
    let authority = Authority::new("authority");
    let trusted = authority.write(&dir.join("trusted.pem"));
    let keys = authority
        .issue(Wanted::default())
        .write(&dir.join("keys.pem"));
    [trusted, keys].map(|path| path.display().to_string())
}

/// Changes settings of the broker. `None` removes one.
async fn alter(broker: &TestBroker, changes: &[(&str, Option<&str>)]) -> (ErrorCode, String) {
    let configs = changes.iter().map(|(key, value)| AlterableConfig {
        name: ByteString::from((*key).to_owned()),
        config_operation: if value.is_some() { SET } else { DELETE },
        value: value.map(|value| ByteString::from(value.to_owned())),
        ..Default::default()
    });
    let request = IncrementalAlterConfigsRequest {
        resources: vec![AlterConfigsResource {
            resource_type: BROKER,
            resource_name: "1".into(),
            configs: configs.collect(),
            ..Default::default()
        }],
        ..Default::default()
    };
    let mut client = broker.connect().await;
    let response = client.ask(1, &request).await.responses.remove(0);
    let message = response.error_message.unwrap_or_default().to_string();
    (ErrorCode::from_code(response.error_code), message)
}

fn extra(broker: &TestBroker) -> Option<SocketAddr> {
    let found = broker.broker().listeners.find("EXTRA");
    found.map(|info| info.local_addr)
}

/// Waits until the added listener is open, or until it is closed.
async fn wait_for(broker: &TestBroker, is_open: bool) {
    let changed = async {
        while extra(broker).is_some() != is_open {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let changed = tokio::time::timeout(Duration::from_secs(60), changed).await;
    changed.expect("the broker follows its settings");
}

const DONE: (ErrorCode, String) = (ErrorCode::None, String::new());

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_with_logins_is_added_kept_over_a_restart_and_removed() {
    let broker = start().await;
    let answer = alter(
        &broker,
        &[
            ("listeners", Some(with_extra(0).as_str())),
            (MAP, Some(map("SASL_PLAINTEXT").as_str())),
            ("listener.name.extra.sasl.enabled.mechanisms", Some("PLAIN")),
            (
                "listener.name.extra.plain.sasl.jaas.config",
                Some(PLAIN_USERS),
            ),
        ],
    )
    .await;
    assert_eq!(answer, DONE);
    wait_for(&broker, true).await;
    let address = extra(&broker).expect("it is open");
    log_in(address, Mechanism::Plain, "admin", "a")
        .await
        .expect("let in");
    assert!(
        log_in(address, Mechanism::Plain, "admin", "b")
            .await
            .is_err()
    );

    let broker = broker.restart().await;
    let address = extra(&broker).expect("it is open when the start is complete");
    let connection = log_in(address, Mechanism::Plain, "admin", "a")
        .await
        .expect("let in");
    let mut silent = Client::connect(address).await;
    let mut in_login = Client::connect(address).await;
    let handshake = SaslHandshakeRequest {
        mechanism: "PLAIN".into(),
    };
    assert_eq!(in_login.ask(1, &handshake).await.error_code, 0);
    let mut client = broker.connect().await;
    assert_eq!(alter(&broker, &[("listeners", None)]).await, DONE);
    wait_for(&broker, false).await;
    for unfinished in [&mut silent, &mut in_login] {
        let closed = tokio::time::timeout(Duration::from_secs(60), unfinished.is_closed()).await;
        assert_eq!(closed, Ok(true));
    }
    let request = ApiVersionsRequest::default();
    assert!(connection.send(&request).await.is_err());
    TcpStream::connect(address)
        .await
        .expect_err("nothing listens");
    // The other listener and its connections are as before.
    assert_eq!(client.ask(0, &request).await.error_code, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_with_tls_is_added_with_its_stores() {
    let dir = tempfile::tempdir().unwrap();
    let [trusted, keys] = stores(dir.path());
    let missing = dir.path().join("missing.pem").display().to_string();
    let broker = start().await;
    let listeners = with_extra(0);
    let map = map("SSL");
    let settings = |keys| {
        [
            ("listeners", Some(listeners.as_str())),
            (MAP, Some(map.as_str())),
            ("listener.name.extra.ssl.keystore.type", Some("PEM")),
            ("listener.name.extra.ssl.truststore.type", Some("PEM")),
            ("listener.name.extra.ssl.keystore.location", Some(keys)),
            (
                "listener.name.extra.ssl.truststore.location",
                Some(trusted.as_str()),
            ),
        ]
    };
    let (code, message) = alter(&broker, &settings(missing.as_str())).await;
    assert_eq!(code, ErrorCode::InvalidRequest);
    assert!(message.contains("missing.pem"), "{message}");
    assert_eq!(alter(&broker, &settings(keys.as_str())).await, DONE);
    wait_for(&broker, true).await;
    ask_over_tls(&broker).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_over_tls_are_answered_with_kernel_tls_whether_the_kernel_has_it_or_not() {
    let dir = tempfile::tempdir().unwrap();
    let [trusted, keys] = stores(dir.path());
    let (listeners, map) = (with_extra(0), map("SSL"));
    let broker = TestBroker::start_with(&[
        ("listeners", &listeners),
        (MAP, &map),
        ("advertised.listeners", "PLAINTEXT://127.0.0.1:0"),
        ("ssl.keystore.type", "PEM"),
        ("ssl.truststore.type", "PEM"),
        ("ssl.keystore.location", &keys),
        ("ssl.truststore.location", &trusted),
        ("ottla.ssl.kernel.enable", "true"),
    ])
    .await;
    ask_over_tls(&broker).await;
}

/// Connects to the extra listener, whose stores trust each other, and gets an answer.
async fn ask_over_tls(broker: &TestBroker) {
    let peer = PeerSettings {
        client_id: ByteString::from_static("test"),
        request_timeout: Duration::from_secs(60),
        security: PeerSecurity {
            // It trusts the authority.
            tls: broker.broker().context.tls.of("EXTRA"),
            ..PeerSecurity::default()
        },
        connection_setup_timeout: Duration::from_secs(60),
        receive_limit: 1024 * 1024,
    };
    let port = extra(broker).expect("it is open").port();
    let connection = PeerConnection::open("127.0.0.1", port, &peer)
        .await
        .expect("the certificate is trusted");
    let request = ApiVersionsRequest {
        client_software_name: ByteString::from_static("test"),
        client_software_version: ByteString::from_static("1"),
        ..ApiVersionsRequest::default()
    };
    let answer = connection.send(&request).await;
    assert_eq!(answer.expect("an answer").error_code, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_that_cannot_be_bound_is_reported_without_changes() {
    let broker = start().await;
    let [port] = lease_ports().unwrap();
    let occupied = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let listeners = with_extra(port);
    let map = map("PLAINTEXT");
    let changes = [
        ("listeners", Some(listeners.as_str())),
        (MAP, Some(map.as_str())),
    ];
    let (code, message) = alter(&broker, &changes).await;
    assert_eq!(code, ErrorCode::InvalidRequest);
    let expected = format!("listeners=EXTRA://127.0.0.1:{port}: port {port} is in use");
    assert!(message.starts_with(&expected), "{message}");
    assert_eq!(broker.broker().config().dynamic_settings().len(), 0);

    // If it is in use only when the broker starts again, the broker starts without it, and opens it
    // when the port is free.
    drop(occupied);
    assert_eq!(alter(&broker, &changes).await, DONE);
    wait_for(&broker, true).await;
    broker.running.stop().await;
    let occupied = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let broker = TestBroker::run(broker.config, broker.data).await;
    assert_eq!(extra(&broker), None);
    drop(occupied);
    wait_for(&broker, true).await;
}

/// A broker whose file has the extra listener, which is not advertised.
async fn start_with_extra() -> TestBroker {
    let [port] = lease_ports().unwrap();
    let (listeners, map) = (with_extra(port), map("PLAINTEXT"));
    TestBroker::start_with(&[
        ("listeners", &listeners),
        (MAP, &map),
        ("advertised.listeners", "PLAINTEXT://127.0.0.1:0"),
    ])
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_listener_of_the_file_does_not_count_as_open() {
    let broker = start_with_extra().await;
    let names = |broker: &TestBroker| {
        let listeners = broker.running.listeners().iter();
        listeners.map(|it| it.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&broker), ["PLAINTEXT", "CONTROLLER", "EXTRA"]);
    let answer = alter(&broker, &[("listeners", Some(STATIC))]).await;
    assert_eq!(answer, DONE);
    wait_for(&broker, false).await;
    let broker = broker.restart().await;
    assert_eq!(extra(&broker), None);
    assert_eq!(names(&broker), ["PLAINTEXT", "CONTROLLER"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_listener_of_the_file_needs_no_port() {
    let [port] = lease_ports().unwrap();
    let listeners = with_extra(port);
    let map = map("PLAINTEXT");
    let broker = TestBroker::start_with(&[
        ("listeners", &listeners),
        (MAP, &map),
        ("advertised.listeners", "PLAINTEXT://127.0.0.1:0"),
    ])
    .await;
    let answer = alter(&broker, &[("listeners", Some(STATIC))]).await;
    assert_eq!(answer, DONE);
    wait_for(&broker, false).await;
    broker.running.stop().await;
    let occupied = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let broker = TestBroker::run(broker.config, broker.data).await;
    assert_eq!(extra(&broker), None);
    // While a setting has it, the start fails.
    drop(occupied);
    assert_eq!(alter(&broker, &[("listeners", None)]).await, DONE);
    wait_for(&broker, true).await;
    broker.running.stop().await;
    let _occupied = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let error = Broker::start(broker.config)
        .await
        .expect_err("it is in use");
    let expected = format!("{port} is in use");
    assert!(error.to_string().contains(&expected), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_added_listener_is_listed_after_a_restart() {
    let broker = start().await;
    assert_eq!(broker.running.added_listeners().len(), 0);
    let (listeners, map) = (with_extra(0), map("PLAINTEXT"));
    let changes = [
        ("listeners", Some(listeners.as_str())),
        (MAP, Some(map.as_str())),
    ];
    assert_eq!(alter(&broker, &changes).await, DONE);
    wait_for(&broker, true).await;
    let broker = broker.restart().await;
    let added = broker.running.added_listeners();
    let names: Vec<&str> = added.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["EXTRA"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_removed_and_added_at_once_moves_to_its_new_address() {
    let broker = start().await;
    let [port] = lease_ports().unwrap();
    let listeners = with_extra(port);
    let map = map("PLAINTEXT");
    let changes = [
        ("listeners", Some(listeners.as_str())),
        (MAP, Some(map.as_str())),
    ];
    assert_eq!(alter(&broker, &changes).await, DONE);
    wait_for(&broker, true).await;
    let before = extra(&broker).expect("it is open");
    let port = move_at_once(&broker).await;
    assert_ne!(port, before.port());
    TcpStream::connect(before)
        .await
        .expect_err("nothing listens");
}

/// Removes the listener and adds it at another port, before the broker looks at its listeners. Returns
/// the port when it is open there.
async fn move_at_once(broker: &TestBroker) -> u16 {
    let [port] = lease_ports().unwrap();
    let node = broker.broker();
    let config = BrokerConfig::clone(&node.config());
    let mut settings = config.dynamic_settings().clone();
    settings.insert("listeners".to_owned(), with_extra(port));
    let (next, _) = config.with_dynamic(config.dynamic_default_settings(), &settings);
    node.context.set_config(next);
    node.listeners.on_settings_changed();
    let moved = async {
        while extra(broker).is_none_or(|it| it.port() != port) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let moved = tokio::time::timeout(Duration::from_secs(60), moved).await;
    moved.expect("it is open at its new address");
    port
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_of_the_file_moves_to_the_address_of_the_setting() {
    let broker = start_with_extra().await;
    let before = extra(&broker).expect("it is open");
    let port = move_at_once(&broker).await;
    TcpStream::connect(before)
        .await
        .expect_err("nothing listens");
    assert_eq!(alter(&broker, &[("listeners", Some(STATIC))]).await, DONE);
    wait_for(&broker, false).await;
    let moved = with_extra(port);
    let answer = alter(&broker, &[("listeners", Some(moved.as_str()))]).await;
    assert_eq!(answer, DONE);
    wait_for(&broker, true).await;
    let broker = broker.restart().await;
    assert_eq!(extra(&broker).map(|it| it.port()), Some(port));
}
