//! SASL listeners: authentication, principals, session lifetimes, and the errors of failed logins.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use bytestring::ByteString;
use ottla_metrics::Metric;
use ottla_net::{PeerConnection, PeerError, PeerSecurity, PeerSettings};
use ottla_protocol::messages::alter_user_scram_credentials_request::{
    ScramCredentialDeletion, ScramCredentialUpsertion,
};
use ottla_protocol::messages::*;
use ottla_protocol::metadata_records::{MetadataRecord, UserScramCredentialRecord};
use ottla_sasl::{ClientCredentials, Mechanism, PeerCredentials, SaslPeer, ScramMechanism, Secret};
use ottla_types::ErrorCode;
use tokio::io::AsyncWriteExt;

use super::client::Client;
use super::quorum_of_three::Quorum;
use super::{TestBroker, creation};

const PLAIN: &str = "org.apache.kafka.common.security.plain.PlainLoginModule";
const SCRAM: &str = "org.apache.kafka.common.security.scram.ScramLoginModule";
const SHA_256: Mechanism = Mechanism::Scram(ScramMechanism::Sha256);
const SHA_512: Mechanism = Mechanism::Scram(ScramMechanism::Sha512);

/// The user admin is a super user with a PLAIN password; the principal of the node is one too.
async fn start(more: &[(&str, &str)]) -> TestBroker {
    let jaas = format!(
        "{PLAIN} required username=\"node\" password=\"n\" user_node=\"n\" user_admin=\"a\" user_bob=\"b\";"
    );
    let mut settings = vec![
        (
            "listeners",
            "SASL_PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        ),
        (
            "listener.security.protocol.map",
            "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        ),
        ("security.inter.broker.protocol", "SASL_PLAINTEXT"),
        (
            "sasl.enabled.mechanisms",
            "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        ),
        ("sasl.mechanism.inter.broker.protocol", "PLAIN"),
        (
            "listener.name.sasl_plaintext.plain.sasl.jaas.config",
            jaas.as_str(),
        ),
        (
            "authorizer.class.name",
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        ),
        (
            "super.users",
            "User:admin;User:node;User:alice;User:ANONYMOUS",
        ),
    ];
    settings.extend(more);
    TestBroker::start_with(&settings).await
}

fn address(broker: &TestBroker) -> SocketAddr {
    broker.address(crate::Endpoint::Broker)
}

pub(super) async fn log_in(
    address: SocketAddr,
    mechanism: Mechanism,
    username: &str,
    password: &str,
) -> Result<PeerConnection, PeerError> {
    let credentials = ClientCredentials::password(username, password);
    let settings = peer_settings(mechanism, credentials);
    PeerConnection::open("127.0.0.1", address.port(), &settings).await
}

fn peer_settings(mechanism: Mechanism, credentials: ClientCredentials) -> PeerSettings {
    PeerSettings {
        client_id: ByteString::from_static("test"),
        request_timeout: Duration::from_secs(60),
        security: PeerSecurity {
            sasl: Some(Arc::new(SaslPeer {
                mechanism,
                credentials: PeerCredentials::Known(credentials),
            })),
            ..PeerSecurity::default()
        },
        connection_setup_timeout: Duration::from_secs(60),
        receive_limit: 1024 * 1024,
    }
}

async fn alter(
    admin: &PeerConnection,
    deletions: Vec<ScramCredentialDeletion>,
    upsertions: Vec<ScramCredentialUpsertion>,
) {
    let request = AlterUserScramCredentialsRequest {
        deletions,
        upsertions,
        ..Default::default()
    };
    let altered = admin.send(&request).await.expect("an answer");
    assert!(
        altered.results.iter().all(|result| result.error_code == 0),
        "{altered:?}"
    );
}

fn upsertion(mechanism: ScramMechanism, password: &str) -> ScramCredentialUpsertion {
    let salt = b"some salt";
    ScramCredentialUpsertion {
        name: "alice".into(),
        mechanism: mechanism.code(),
        iterations: 4096,
        salt: salt.as_slice().into(),
        salted_password: mechanism
            .salted_password(password.as_bytes(), salt, 4096)
            .into(),
        ..Default::default()
    }
}

/// The result of creating a topic.
async fn create(connection: &PeerConnection, name: &'static str) -> ErrorCode {
    let request = creation(name, 1, 1);
    let response = connection.send(&request).await.expect("an answer");
    ErrorCode::from_code(response.topics[0].error_code)
}

fn count(broker: &TestBroker, metric: Metric) -> u64 {
    broker.broker().context.metrics.get(metric)
}

fn refused(outcome: Result<PeerConnection, PeerError>) -> String {
    match outcome {
        Err(error) => error.to_string(),
        Ok(_) => panic!("it was let in"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_mechanism_authenticates_the_client_as_its_user() {
    let broker = start(&[]).await;
    let at = address(&broker);
    let admin = log_in(at, Mechanism::Plain, "admin", "a")
        .await
        .expect("let in");
    assert_eq!(create(&admin, "of-admin").await, ErrorCode::None);
    let bob = log_in(at, Mechanism::Plain, "bob", "b")
        .await
        .expect("let in");
    let denied = ErrorCode::TopicAuthorizationFailed;
    assert_eq!(create(&bob, "of-bob").await, denied);

    let unknown = refused(log_in(at, SHA_256, "alice", "s").await);
    for (mechanism, scram) in [
        (SHA_256, ScramMechanism::Sha256),
        (SHA_512, ScramMechanism::Sha512),
    ] {
        alter(&admin, vec![], vec![upsertion(scram, "s")]).await;
        let alice = log_in(at, mechanism, "alice", "s").await.expect("let in");
        let topic = if mechanism == SHA_256 { "t256" } else { "t512" };
        assert_eq!(create(&alice, topic).await, ErrorCode::None);
        let wrong = refused(log_in(at, mechanism, "alice", "t").await);
        assert!(
            wrong.contains("due to invalid credentials with SASL mechanism"),
            "{wrong}"
        );
    }
    let wrong = refused(log_in(at, SHA_256, "alice", "t").await);
    assert_eq!(wrong, unknown, "the error reveals whether the user exists");
    let wrong = refused(log_in(at, Mechanism::Plain, "admin", "b").await);
    assert!(
        wrong.contains("Authentication failed: Invalid username or password"),
        "{wrong}"
    );
    assert_eq!(
        wrong.replace("admin", "nobody"),
        refused(log_in(at, Mechanism::Plain, "nobody", "b").await)
    );

    // A deletion or change takes effect for later logins.
    let deletion = ScramCredentialDeletion {
        name: "alice".into(),
        mechanism: ScramMechanism::Sha256.code(),
        ..Default::default()
    };
    alter(&admin, vec![deletion], vec![]).await;
    refused(log_in(at, SHA_256, "alice", "s").await);
    alter(
        &admin,
        vec![],
        vec![upsertion(ScramMechanism::Sha512, "new")],
    )
    .await;
    refused(log_in(at, SHA_512, "alice", "s").await);
    log_in(at, SHA_512, "alice", "new").await.expect("let in");
    assert!(count(&broker, Metric::SuccessfulAuthentications) >= 5);
    assert!(count(&broker, Metric::FailedAuthentications) >= 7);

    // Credentials belong to the cluster and survive a restart.
    let broker = broker.restart().await;
    log_in(address(&broker), SHA_512, "alice", "new")
        .await
        .expect("let in");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delegation_token_authenticates_its_owner_until_it_expires() {
    let broker = start(&[("delegation.token.secret.key", "secret")]).await;
    let at = address(&broker);
    let admin = log_in(at, Mechanism::Plain, "admin", "a")
        .await
        .expect("let in");
    let create_token = CreateDelegationTokenRequest {
        max_lifetime_ms: -1,
        ..Default::default()
    };
    let created = admin.send(&create_token).await.expect("an answer");
    assert_eq!(created.error_code, 0);
    let hmac = base64::prelude::BASE64_STANDARD.encode(&created.hmac);
    let with_token = |mechanism, id: &str, hmac: &str| {
        let credentials = ClientCredentials::Password {
            username: id.to_owned(),
            password: Secret::new(hmac),
            is_token: true,
        };
        let settings = peer_settings(mechanism, credentials);
        async move { PeerConnection::open("127.0.0.1", at.port(), &settings).await }
    };
    for (mechanism, topic) in [(SHA_256, "t256"), (SHA_512, "t512")] {
        let owner = with_token(mechanism, &created.token_id, &hmac)
            .await
            .expect("let in");
        assert_eq!(create(&owner, topic).await, ErrorCode::None);
        // A token cannot create another one.
        let refused = owner.send(&create_token).await.expect("an answer");
        let not_allowed = ErrorCode::DelegationTokenRequestNotAllowed;
        assert_eq!(ErrorCode::from_code(refused.error_code), not_allowed);
        let wrong = refused_text(with_token(mechanism, &created.token_id, "wrong").await);
        let unknown = refused_text(with_token(mechanism, "unknown", &hmac).await);
        assert_eq!(wrong, unknown, "the error reveals whether the token exists");
        assert!(wrong.contains("due to invalid credentials"), "{wrong}");
    }
    // The HMAC is not a valid password of a user.
    refused(log_in(at, SHA_256, &created.token_id, &hmac).await);

    let broker = broker.restart().await;
    let at = address(&broker);
    let settings = peer_settings(
        SHA_256,
        ClientCredentials::Password {
            username: created.token_id.to_string(),
            password: Secret::new(&hmac),
            is_token: true,
        },
    );
    PeerConnection::open("127.0.0.1", at.port(), &settings)
        .await
        .expect("let in after a restart");
    let admin = log_in(at, Mechanism::Plain, "admin", "a")
        .await
        .expect("let in");
    let expire = ExpireDelegationTokenRequest {
        hmac: created.hmac.clone(),
        expiry_time_period_ms: -1,
        ..Default::default()
    };
    let expired = admin.send(&expire).await.expect("an answer");
    assert_eq!(expired.error_code, 0);
    refused(PeerConnection::open("127.0.0.1", at.port(), &settings).await);
}

/// The error message of a failed login, for any user.
fn refused_text(outcome: Result<PeerConnection, PeerError>) -> String {
    let text = refused(outcome);
    match text.find("Authentication failed") {
        Some(start) => text[start..].to_owned(),
        None => text,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unauthenticated_clients_are_not_served() {
    let broker = start(&[("connection.failed.authentication.delay.ms", "400")]).await;
    let at = address(&broker);
    let versions = ApiVersionsRequest {
        client_software_name: "test".into(),
        client_software_version: "1".into(),
        ..Default::default()
    };

    // ApiVersions is permitted once, and nothing else.
    let mut client = Client::connect(at).await;
    assert_eq!(client.ask(3, &versions).await.error_code, 0);
    client.send(0, &MetadataRequest::default()).await;
    assert!(client.is_closed().await);
    let mut client = Client::connect(at).await;
    client.ask(3, &versions).await;
    client.send(3, &versions).await;
    assert!(client.is_closed().await);

    // An unsupported mechanism: the response lists the supported ones after the delay, and the
    // connection is closed.
    let handshake = |mechanism: &'static str| SaslHandshakeRequest {
        mechanism: mechanism.into(),
    };
    let mut client = Client::connect(at).await;
    let began = Instant::now();
    let answer = client.ask(1, &handshake("GSSAPI")).await;
    assert!(began.elapsed() >= Duration::from_millis(400));
    assert_eq!(
        ErrorCode::from_code(answer.error_code),
        ErrorCode::UnsupportedSaslMechanism
    );
    assert_eq!(answer.mechanisms.len(), 3);
    assert!(client.is_closed().await);

    // The same for a wrong password.
    let mut client = Client::connect(at).await;
    client.ask(1, &handshake("PLAIN")).await;
    let began = Instant::now();
    let authenticate = |bytes: &'static [u8]| SaslAuthenticateRequest {
        auth_bytes: bytes.into(),
        ..Default::default()
    };
    let answer = client.ask(2, &authenticate(b"\0admin\0b")).await;
    assert!(began.elapsed() >= Duration::from_millis(400));
    assert_eq!(
        ErrorCode::from_code(answer.error_code),
        ErrorCode::SaslAuthenticationFailed
    );
    assert_eq!(
        answer.error_message.as_deref(),
        Some("Authentication failed: Invalid username or password")
    );
    assert!(client.is_closed().await);

    // Another request during a login, also a second handshake: its own error response, after the delay. Kafka's
    // response to Metadata names only the topics of the request.
    let illegal = ErrorCode::IllegalSaslState.code();
    let mut client = Client::connect(at).await;
    client.ask(1, &handshake("PLAIN")).await;
    let began = Instant::now();
    let answer = client.ask(4, &ListGroupsRequest::default()).await;
    assert_eq!(answer.error_code, illegal);
    assert!(began.elapsed() >= Duration::from_millis(400));
    assert!(client.is_closed().await);
    let mut client = Client::connect(at).await;
    client.ask(1, &handshake("PLAIN")).await;
    let answer = client.ask(1, &handshake("PLAIN")).await;
    assert_eq!((answer.error_code, answer.mechanisms.len()), (illegal, 0));
    assert!(client.is_closed().await);
    let mut client = Client::connect(at).await;
    client.ask(1, &handshake("PLAIN")).await;
    let answer = client.ask(1, &MetadataRequest::default()).await;
    assert!(answer.brokers.is_empty() && answer.topics.is_empty());
    assert!(client.is_closed().await);

    // A Produce has no place for an error without its partitions, which nobody has read.
    let mut client = Client::connect(at).await;
    client.ask(1, &handshake("PLAIN")).await;
    let began = Instant::now();
    client.send(9, &ProduceRequest::default()).await;
    assert!(client.is_closed().await);
    assert!(began.elapsed() >= Duration::from_millis(400));

    // Frames that are too long for a login, and malformed bytes.
    let failed = count(&broker, Metric::FailedAuthentications);
    for bytes in [&[0, 16, 0, 0, 1][..], &[0xff; 8]] {
        let mut client = Client::connect(at).await;
        client
            .stream
            .write_all(bytes)
            .await
            .expect("the broker reads");
        assert!(client.is_closed().await);
    }
    assert_eq!(count(&broker, Metric::FailedAuthentications), failed + 2);

    // A client cannot log in again if sessions do not expire.
    let mut client = Client::connect(at).await;
    client.ask(1, &handshake("PLAIN")).await;
    let answer = client.ask(2, &authenticate(b"\0admin\0a")).await;
    assert_eq!((answer.error_code, answer.session_lifetime_ms), (0, 0));
    let again = client.ask(1, &handshake("PLAIN")).await;
    assert_eq!(
        ErrorCode::from_code(again.error_code),
        ErrorCode::IllegalSaslState
    );
    assert!(
        !client
            .ask(1, &MetadataRequest::default())
            .await
            .brokers
            .is_empty()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_without_headers_are_answered_without_headers() {
    let broker = start(&[]).await;
    let mut client = Client::connect(address(&broker)).await;
    let handshake = SaslHandshakeRequest {
        mechanism: "PLAIN".into(),
    };
    client.ask(0, &handshake).await;
    client
        .stream
        .write_all(b"\0\0\0\x08\0admin\0a")
        .await
        .expect("the broker reads");
    let answer = client.receive_frame().await.expect("an answer");
    assert!(answer.is_empty());
    assert!(
        !client
            .ask(1, &MetadataRequest::default())
            .await
            .brokers
            .is_empty()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_reauthenticated_on_their_connection() {
    let broker = start(&[("connections.max.reauth.ms", "2500")]).await;
    let at = address(&broker);
    let node = log_in(at, Mechanism::Plain, "node", "n")
        .await
        .expect("let in");
    let mut client = Client::connect(at).await;
    let handshake = SaslHandshakeRequest {
        mechanism: "PLAIN".into(),
    };
    client.ask(1, &handshake).await;
    let authenticate = SaslAuthenticateRequest {
        auth_bytes: b"\0bob\0b".as_slice().into(),
        ..Default::default()
    };
    let answer = client.ask(2, &authenticate).await;
    assert_eq!((answer.error_code, answer.session_lifetime_ms), (0, 2500));
    tokio::time::sleep(Duration::from_millis(2600)).await;

    // A client that supports it re-authenticates before its next request; the other is
    // disconnected.
    assert_eq!(create(&node, "later").await, ErrorCode::None);
    assert_eq!(count(&broker, Metric::SuccessfulReauthentications), 1);
    client.send(1, &MetadataRequest::default()).await;
    assert!(client.is_closed().await);
    assert_eq!(count(&broker, Metric::ExpiredConnectionsKilled), 1);

    // The principal cannot change.
    let mut client = Client::connect(at).await;
    client.ask(1, &handshake).await;
    client.ask(2, &authenticate).await;
    assert_eq!(client.ask(1, &handshake).await.error_code, 0);
    let other = SaslAuthenticateRequest {
        auth_bytes: b"\0admin\0a".as_slice().into(),
        ..Default::default()
    };
    let answer = client.ask(2, &other).await;
    assert_eq!(
        answer.error_message.as_deref(),
        Some("Cannot change principals during re-authentication from User.bob: User.admin")
    );
    assert!(client.is_closed().await);
    assert_eq!(count(&broker, Metric::FailedReauthentications), 1);

    // A request during the second login is not served.
    let mut client = Client::connect(at).await;
    client.ask(1, &handshake).await;
    client.ask(2, &authenticate).await;
    assert_eq!(client.ask(1, &handshake).await.error_code, 0);
    let answer = client.ask(4, &ListGroupsRequest::default()).await;
    assert_eq!(answer.error_code, ErrorCode::IllegalSaslState.code());
    assert!(client.is_closed().await);
    assert_eq!(count(&broker, Metric::FailedReauthentications), 2);
}

/// Combined nodes that log in to each other with SCRAM on both listeners, with ACLs. Each was
/// formatted with the credential, because there is no leader before they have logged in.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_works_with_scram_on_all_listeners() {
    let credential = ScramMechanism::Sha512.credential("n", b"a salt".to_vec(), 8192);
    let record = MetadataRecord::UserScramCredential(UserScramCredentialRecord {
        name: "node".into(),
        mechanism: ScramMechanism::Sha512.code(),
        salt: credential.salt.into(),
        stored_key: credential.keys.stored_key.into(),
        server_key: credential.keys.server_key.into(),
        iterations: 8192,
        ..Default::default()
    });
    let jaas = format!("{SCRAM} required username=\"node\" password=\"n\";");
    let settings = [
        (
            "listener.security.protocol.map",
            "CLIENTS:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        ),
        ("inter.broker.listener.name", "CLIENTS"),
        ("sasl.enabled.mechanisms", "SCRAM-SHA-512"),
        ("sasl.mechanism.inter.broker.protocol", "SCRAM-SHA-512"),
        ("sasl.mechanism.controller.protocol", "SCRAM-SHA-512"),
        (
            "listener.name.clients.scram-sha-512.sasl.jaas.config",
            jaas.as_str(),
        ),
        (
            "listener.name.controller.scram-sha-512.sasl.jaas.config",
            jaas.as_str(),
        ),
        (
            "authorizer.class.name",
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        ),
        ("super.users", "User:node"),
    ];
    let mut quorum = Quorum::start_with_records(
        "broker,controller",
        "CLIENTS://127.0.0.1:0,",
        &settings,
        &[record],
    )
    .await;
    let at = |quorum: &Quorum, index: usize| {
        let running = quorum.nodes[index].as_ref().expect("it runs");
        let mut listeners = running.listeners().iter();
        let found = listeners.find(|listener| !listener.is_controller);
        found.expect("it listens").local_addr
    };
    let connect = async |address| log_in(address, SHA_512, "node", "n").await.expect("let in");
    let node = connect(at(&quorum, 0)).await;
    let request = creation("replicated", 3, 3);
    let created = node.send(&request).await.expect("an answer");
    assert_eq!(created.topics[0].error_code, 0, "{created:?}");
    let all_in_sync = async |node: &PeerConnection| {
        let of_all = MetadataRequest {
            topics: None,
            ..Default::default()
        };
        let metadata = node.send(&of_all).await.expect("an answer");
        let mut partitions = metadata.topics.iter().flat_map(|topic| &topic.partitions);
        metadata.topics.len() == 1 && partitions.all(|partition| partition.isr_nodes.len() == 3)
    };
    let until_in_sync = async |node: &PeerConnection| {
        let began = Instant::now();
        while !all_in_sync(node).await {
            assert!(
                began.elapsed() < Duration::from_secs(60),
                "not all are in sync"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    until_in_sync(&node).await;

    // Another SCRAM user is known on all nodes, and has no permissions without ACLs.
    alter(&node, vec![], vec![upsertion(ScramMechanism::Sha512, "s")]).await;
    let began = Instant::now();
    let alice = loop {
        match log_in(at(&quorum, 2), SHA_512, "alice", "s").await {
            Ok(alice) => break alice,
            Err(error) => assert!(began.elapsed() < Duration::from_secs(60), "{error}"),
        }
    };
    assert_eq!(
        create(&alice, "of-alice").await,
        ErrorCode::TopicAuthorizationFailed
    );
    refused(log_in(at(&quorum, 1), SHA_512, "node", "wrong").await);

    // The nodes find each other again with the credentials on their disks.
    for node in &mut quorum.nodes {
        node.take().expect("it runs").stop().await;
    }
    quorum.start_all().await;
    until_in_sync(&connect(at(&quorum, 1)).await).await;
}
