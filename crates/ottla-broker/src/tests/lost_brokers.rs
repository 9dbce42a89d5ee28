//! A broker whose connection to the controller is closed, with or without the end of its process.

use std::time::{Duration, Instant};

use ottla_controller::local_supported_features;
use ottla_protocol::messages::{
    BrokerHeartbeatRequest, BrokerRegistrationRequest, broker_registration_request,
};
use ottla_testkit::lease_ports;
use ottla_types::{BrokerId, Uuid};
use tokio::net::TcpListener;

use super::TestBroker;
use super::client::Client;
use crate::Endpoint;

const OTHER: i32 = 2;
/// Longer than the test may take.
const SESSION: [(&str, &str); 1] = [("broker.session.timeout.ms", "600000")];
/// Longer than it takes to detect that a process has ended.
const WHILE: Duration = Duration::from_millis(500);
/// The same for a process that still accepts connections.
const LONG_WHILE: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(60);

/// A registered, unfenced broker, and the connection with its heartbeats.
struct Other {
    epoch: i64,
    heartbeats: Client,
}

impl Other {
    async fn register(controller: &TestBroker, port: u16, life: u128) -> Other {
        let mut heartbeats = Client::connect(controller.address(Endpoint::Controller)).await;
        let features = local_supported_features().into_iter();
        let registration = BrokerRegistrationRequest {
            broker_id: OTHER,
            cluster_id: controller.broker().cluster_id(),
            incarnation_id: Uuid::from_u128(77_000 + life),
            listeners: vec![broker_registration_request::Listener {
                name: "PLAINTEXT".into(),
                host: "127.0.0.1".into(),
                port,
                ..Default::default()
            }],
            features: features
                .map(|feature| broker_registration_request::Feature {
                    name: feature.name,
                    min_supported_version: feature.min,
                    max_supported_version: feature.max,
                    ..Default::default()
                })
                .collect(),
            log_dirs: vec![Uuid::from_u128(78_000)],
            previous_broker_epoch: -1,
            ..Default::default()
        };
        let registered = heartbeats.ask(4, &registration).await;
        assert_eq!(registered.error_code, 0, "{registered:?}");
        let mut other = Other {
            epoch: registered.broker_epoch,
            heartbeats,
        };
        let begun = Instant::now();
        while is_fenced(controller) {
            assert!(begun.elapsed() < PATIENCE, "it stays fenced");
            other.beat().await;
        }
        other
    }

    async fn beat(&mut self) {
        let heartbeat = BrokerHeartbeatRequest {
            broker_id: OTHER,
            broker_epoch: self.epoch,
            // The highest possible offset, so that it is unfenced.
            current_metadata_offset: i64::MAX,
            ..Default::default()
        };
        let answer = self.heartbeats.ask(1, &heartbeat).await;
        assert_eq!(answer.error_code, 0, "{answer:?}");
    }

    /// Closes its connection and opens another one.
    async fn reconnect(&mut self, controller: &TestBroker) {
        self.heartbeats = Client::connect(controller.address(Endpoint::Controller)).await;
    }
}

fn is_fenced(controller: &TestBroker) -> bool {
    let image = controller.broker().metadata();
    let other = image.cluster.broker(BrokerId(OTHER));
    other.is_none_or(|other| other.fenced)
}

async fn until_fenced(controller: &TestBroker) {
    until(controller, true).await;
}

async fn until_unfenced(controller: &TestBroker) {
    until(controller, false).await;
}

async fn until(controller: &TestBroker, fenced: bool) {
    let begun = Instant::now();
    while is_fenced(controller) != fenced {
        assert!(begun.elapsed() < PATIENCE, "fenced: {}", !fenced);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A listener whose port refuses connections after it is dropped.
async fn listen() -> (TcpListener, u16) {
    let [port] = lease_ports().expect("a free port");
    let listener = TcpListener::bind(("127.0.0.1", port)).await;
    (listener.expect("a leased port"), port)
}

/// Like a process that has thousands of files to close.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_ends_slowly_is_probed_again() {
    let controller = TestBroker::start_with(&SESSION).await;
    let (listener, port) = listen().await;
    let mut other = Other::register(&controller, port, 1).await;
    other.beat().await;
    drop(other);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!is_fenced(&controller));
    drop(listener);
    until_fenced(&controller).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_whose_process_ends_is_fenced_before_its_session_expires() {
    let controller = TestBroker::start_with(&SESSION).await;
    let (listener, port) = listen().await;
    let mut other = Other::register(&controller, port, 1).await;

    // It lives, and opens another connection as soon as it likes.
    other.reconnect(&controller).await;
    tokio::time::sleep(LONG_WHILE).await;
    assert!(!is_fenced(&controller));

    // It does not listen any more, but the closed connection had no heartbeats.
    drop(listener);
    other.reconnect(&controller).await;
    tokio::time::sleep(WHILE).await;
    assert!(!is_fenced(&controller));

    // After a refused connection with another cause, it is fenced at most until its next heartbeat.
    other.beat().await;
    other.reconnect(&controller).await;
    until_fenced(&controller).await;
    other.beat().await;
    // A heartbeat is answered when its change is committed, which is before this node applies it.
    until_unfenced(&controller).await;

    drop(other);
    until_fenced(&controller).await;
    // Its next incarnation is not mistaken for a second process with its ID.
    let (_listener, port) = listen().await;
    Other::register(&controller, port, 2).await;
}
