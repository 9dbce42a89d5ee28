//! TLS listeners as clients see them: accepted and rejected clients, their principals, and the
//! replacement of a certificate in use.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_client::admin::NewTopic;
use ottla_client::{Admin, Client, ClientError, Producer, RecordRef, properties};
use ottla_testkit::certificates::{Authority, Issued, Wanted, self_signed};
use ottla_testkit::{BrokerBuilder, BrokerProcess, lease_ports, ottla_binary, words};
use ottla_tls::{Given, Purpose, TlsContext, TlsSettings};
use ottla_types::ErrorCode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

const PATIENCE: Duration = Duration::from_secs(30);

/// A broker with a TLS listener beside the plaintext one.
struct Secured {
    broker: BrokerProcess,
    authority: Authority,
    /// The directory of the key stores and trust stores.
    dir: tempfile::TempDir,
    port: u16,
}

fn secured(key_store: &Issued, authority: Authority, settings: &[(&str, &str)]) -> Secured {
    let dir = tempfile::tempdir().expect("a folder");
    let [port, plain, controller] = lease_ports().expect("free ports");
    let text = |path: PathBuf| path.display().to_string();
    let key_store = text(key_store.write(&dir.path().join("broker.pem")));
    let trust_store = text(authority.write(&dir.path().join("authority.pem")));
    let listeners = format!(
        "PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}"
    );
    let advertised = format!("PLAINTEXT://127.0.0.1:{plain},SSL://localhost:{port}");
    let controllers = format!("127.0.0.1:{controller}");
    // Rejected clients and reloaded stores are logged at info.
    let mut builder = BrokerBuilder::new()
        .port(plain)
        .environment("OTTLA_LOG", "info");
    for (key, value) in [
        ("listeners", listeners.as_str()),
        ("advertised.listeners", &advertised),
        ("controller.quorum.bootstrap.servers", &controllers),
        (
            "listener.security.protocol.map",
            "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
        ),
        ("listener.name.ssl.ssl.keystore.type", "PEM"),
        ("listener.name.ssl.ssl.keystore.location", &key_store),
        ("listener.name.ssl.ssl.truststore.type", "PEM"),
        ("listener.name.ssl.ssl.truststore.location", &trust_store),
    ]
    .iter()
    .chain(settings)
    {
        builder = builder.property(key, value);
    }
    Secured {
        broker: builder.start(),
        authority,
        dir,
        port,
    }
}

impl Secured {
    fn with(settings: &[(&str, &str)]) -> Secured {
        let authority = Authority::new("authority");
        let issued = authority.issue(Wanted::default());
        secured(&issued, authority, settings)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The settings of a client that trusts the authority.
    fn client(&self) -> BTreeMap<String, String> {
        client(self.port, &self.path("authority.pem"))
    }

    fn client_as(&self, key_store: &Path) -> BTreeMap<String, String> {
        let mut settings = self.client();
        settings.insert("ssl.keystore.type".into(), "PEM".into());
        let path = key_store.display().to_string();
        settings.insert("ssl.keystore.location".into(), path);
        settings
    }

    fn wait_for(&self, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.broker.output().contains(text) {
            assert!(
                Instant::now() < deadline,
                "{text}:\n{}",
                self.broker.output()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn client(port: u16, trust_store: &Path) -> BTreeMap<String, String> {
    let given = [
        ("bootstrap.servers", format!("localhost:{port}")),
        ("security.protocol", "SSL".to_owned()),
        ("ssl.truststore.type", "PEM".to_owned()),
        ("ssl.truststore.location", trust_store.display().to_string()),
        // A refusal that is tried again takes as long.
        ("default.api.timeout.ms", "10000".to_owned()),
        ("request.timeout.ms", "5000".to_owned()),
    ];
    given.map(|(key, value)| (key.to_owned(), value)).into()
}

/// Produces values that span several TLS records, and reads them back.
async fn produce_and_consume(settings: &BTreeMap<String, String>) -> Result<(), ClientError> {
    let value = vec![7; 300_000];
    let (client, producer) = properties::producer(settings)?;
    let producer = Producer::new(Client::connect(client).await?, producer)?;
    let delivery = producer.send_ref(RecordRef::new("secured", &value)).await?;
    delivery.wait().await?;
    let mut settings = settings.clone();
    settings.insert("group.id".into(), "readers".into());
    settings.insert("auto.offset.reset".into(), "earliest".into());
    let (client, consumer) = properties::consumer(&settings)?;
    let client = Client::connect(client).await?;
    let mut consumer = ottla_client::Consumer::new(client, consumer);
    consumer.assign(&[("secured".to_owned(), 0)]);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let polled = consumer.poll(Duration::from_millis(500)).await?;
        if let Some(record) = polled.into_iter().next() {
            assert!(record.value.as_deref() == Some(&value[..]));
            return Ok(());
        }
        assert!(Instant::now() < deadline, "nothing was read");
    }
}

async fn connect(settings: &BTreeMap<String, String>) -> Result<Admin, ClientError> {
    let (client, _) = properties::producer(settings)?;
    Ok(Admin::new(Client::connect(client).await?))
}

async fn refusal(settings: &BTreeMap<String, String>) -> String {
    match connect(settings).await {
        Ok(_) => panic!("it was let in"),
        Err(error) => error.to_string(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn records_are_sent_over_tls_and_untrusted_clients_are_refused() {
    let secured = Secured::with(&[]);
    produce_and_consume(&secured.client())
        .await
        .expect("served");

    let other = Authority::new("other");
    let stranger = client(secured.port, &other.write(&secured.path("other.pem")));
    let refused = refusal(&stranger).await;
    assert!(refused.contains("UnknownIssuer"), "{refused}");
    assert!(refused.contains("set ssl.truststore.location"), "{refused}");

    // A client without TLS causes one line in the log.
    let mut plain = secured.client();
    plain.insert("security.protocol".into(), "PLAINTEXT".into());
    refusal(&plain).await;
    secured.wait_for("Failed authentication with /127.0.0.1 (channelId=");
    secured.wait_for("(SSL handshake failed)");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_needs_a_valid_certificate_which_gives_its_principal() {
    let secured = Secured::with(&[
        ("listener.name.ssl.ssl.client.auth", "required"),
        (
            "ssl.principal.mapping.rules",
            "RULE:^CN=(.*?),O=.*$/$1/U,DEFAULT",
        ),
        (
            "authorizer.class.name",
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        ),
        ("super.users", "User:ALICE;User:ANONYMOUS"),
    ]);
    let issue = |name: &str, wanted: Wanted<'_>| {
        let issued = secured.authority.issue(Wanted {
            common_name: name,
            names: &[],
            ..wanted
        });
        issued.write(&secured.path(&format!("{name}.pem")))
    };
    let alice = secured.client_as(&issue("alice", Wanted::default()));
    let bob = secured.client_as(&issue("bob", Wanted::default()));
    let topic = |name: &str| NewTopic {
        name: name.to_owned(),
        partitions: Some(1),
        ..NewTopic::default()
    };
    let as_alice = connect(&alice).await.expect("let in");
    let created = as_alice.create_topics(&[topic("hers")], false).await;
    assert!(
        created
            .expect("an answer")
            .iter()
            .all(|it| it.error_code == 0)
    );
    let as_bob = connect(&bob).await.expect("let in");
    let created = as_bob.create_topics(&[topic("his")], false).await;
    let denied = ErrorCode::TopicAuthorizationFailed.code();
    let created = created.expect("an answer");
    assert!(
        created.iter().all(|it| it.error_code == denied),
        "{created:?}"
    );
    secured.wait_for("Principal = User:BOB is Denied");

    let expired = issue(
        "carol",
        Wanted {
            is_expired: true,
            ..Wanted::default()
        },
    );
    refusal(&secured.client_as(&expired)).await;
    refusal(&secured.client()).await;
    let other = Authority::new("other").issue(Wanted::default());
    let other = other.write(&secured.path("other.pem"));
    refusal(&secured.client_as(&other)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_is_replaced_while_it_is_in_use() {
    let secured = Secured::with(&[]);
    produce_and_consume(&secured.client())
        .await
        .expect("served");
    let key_store = secured.path("broker.pem");
    // An unusable store changes nothing and is logged once.
    std::fs::write(&key_store, "no certificate").expect("written");
    secured.wait_for("the previous files stay in force");
    assert!(
        secured.broker.output().contains("broker.pem"),
        "the file is named"
    );
    connect(&secured.client()).await.expect("the old one");
    // Neither does a certificate with another subject.
    let other = Wanted {
        common_name: "mallory",
        ..Wanted::default()
    };
    secured.authority.issue(other).write(&key_store);
    secured.wait_for("Keystore DistinguishedName does not match");
    // A certificate from another authority with the same names replaces it.
    let next = Authority::new("next");
    next.issue(Wanted::default()).write(&key_store);
    secured.wait_for("is in force; sessions of the previous one");
    let trusting = client(secured.port, &next.write(&secured.path("next.pem")));
    produce_and_consume(&trusting).await.expect("the new one");
    refusal(&secured.client()).await;
}

/// How far a client of a listener with TLS and SASL gets before it sends nothing more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stall {
    Connected,
    HalfClientHello,
    HandshakeFinished,
    HalfLogin,
}

impl Stall {
    /// The time after which the broker closes the connection.
    fn limit(self) -> Duration {
        match self {
            Stall::Connected | Stall::HalfClientHello => Duration::from_secs(10),
            Stall::HandshakeFinished | Stall::HalfLogin => Duration::from_secs(30),
        }
    }

    fn connect(self, port: u16, config: &Arc<ClientConfig>) -> TcpStream {
        let mut socket = TcpStream::connect(("127.0.0.1", port)).expect("connected");
        let patience = Some(self.limit() + PATIENCE);
        socket.set_read_timeout(patience).expect("a socket");
        if self == Stall::Connected {
            return socket;
        }
        let name = ServerName::try_from("localhost").expect("a name");
        let mut session = ClientConnection::new(Arc::clone(config), name).expect("a session");
        if self == Stall::HalfClientHello {
            let mut hello = Vec::new();
            session.write_tls(&mut hello).expect("a ClientHello");
            socket.write_all(&hello[..hello.len() / 2]).expect("sent");
            return socket;
        }
        session.complete_io(&mut socket).expect("a handshake");
        let mut stream = rustls::Stream::new(&mut session, &mut socket);
        stream.flush().expect("the end of the handshake is sent");
        if self == Stall::HalfLogin {
            begin_login(&mut stream);
        }
        socket
    }
}

/// A SaslHandshake with its response, and a part of a SaslAuthenticate.
fn begin_login(stream: &mut (impl Read + Write)) {
    // API key 17, version 1, correlation ID 7, null client ID; the mechanism.
    let handshake = b"\0\x11\0\x01\0\0\0\x07\xff\xff\0\x05PLAIN";
    let mut frame = (handshake.len() as u32).to_be_bytes().to_vec();
    frame.extend_from_slice(handshake);
    stream.write_all(&frame).expect("sent");
    let mut length = [0; 4];
    stream.read_exact(&mut length).expect("an answer");
    let mut answer = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut answer).expect("an answer");
    let expected = [0, 0, 0, 7, 0, 0];
    assert_eq!(answer[..6], expected, "correlation ID and no error");
    // API key 36, version 1, correlation ID 8, null client ID, of a frame of 100 bytes.
    let begun = b"\0\0\0\x64\0\x24\0\x01\0\0\0\x08\xff\xff";
    stream.write_all(begun).expect("sent");
    stream.flush().expect("sent");
}

/// Reads until the broker closes the connection.
fn wait_for_close(mut socket: &TcpStream) {
    let mut bytes = [0; 1024];
    loop {
        match socket.read(&mut bytes) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return,
            Err(error) => panic!("it is still open: {error}"),
        }
    }
}

/// Lets this process have as many connections as it may.
fn raise_open_files_limit() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, raised).expect("raised to the hard limit");
}

/// While a thousand clients stall, another one logs in and is served. Then the stalled ones are
/// closed in time, and the broker has their file handles and memory back.
async fn a_thousand_stall(stall: Stall) {
    const STALLED: usize = 1_000;
    /// On a busy machine, the first may be closed before the other client has been served.
    const ATTEMPTS: usize = 5;
    /// Files that the broker opens or closes meanwhile for other reasons.
    const OTHER_HANDLES: usize = 50;
    const PLAIN: &str = "org.apache.kafka.common.security.plain.PlainLoginModule";
    raise_open_files_limit();
    let users = format!("{PLAIN} required user_alice=\"a\";");
    let secured = Secured::with(&[
        (
            "listener.security.protocol.map",
            "PLAINTEXT:PLAINTEXT,SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
        ),
        ("sasl.enabled.mechanisms", "PLAIN"),
        ("listener.name.ssl.plain.sasl.jaas.config", &users),
        ("offsets.topic.num.partitions", "1"),
        // With a full backlog, the kernel ignores a connection until it is tried again a second later.
        ("socket.listen.backlog.size", "1000"),
    ]);
    let mut client = secured.client();
    let login = format!("{PLAIN} required username=\"alice\" password=\"a\";");
    for (key, value) in [
        ("security.protocol", "SASL_SSL"),
        ("sasl.mechanism", "PLAIN"),
        ("sasl.jaas.config", &login),
    ] {
        client.insert(key.to_owned(), value.to_owned());
    }
    let trusted = secured.authority.pem();
    let settings = TlsSettings::read("the test", Purpose::Client, |key| {
        let value = match key {
            "ssl.truststore.type" => "PEM",
            "ssl.truststore.certificates" => &trusted,
            _ => return None,
        };
        Some(Given {
            key: key.to_owned(),
            value: value.to_owned(),
        })
    });
    let config = TlsContext::load(settings).expect("settings").client();

    produce_and_consume(&client).await.expect("served");
    std::thread::sleep(Duration::from_secs(1));
    let broker = &secured.broker;
    let (handles, memory) = (broker.open_handles(), broker.resident_bytes());
    let are_open = || broker.open_handles() >= handles + STALLED - OTHER_HANDLES;
    let mut further_attempts = 1..ATTEMPTS;
    let (began, stalled) = loop {
        let began = Instant::now();
        let connect = |_| stall.connect(secured.port, &config);
        let stalled: Vec<TcpStream> = (0..STALLED).map(connect).collect();
        // The broker accepts the last ones a little later.
        while !are_open() && began.elapsed() < stall.limit() {
            std::thread::sleep(Duration::from_millis(20));
        }
        produce_and_consume(&client).await.expect("served");
        if are_open() {
            break (began, stalled);
        }
        assert!(further_attempts.next().is_some(), "served too late");
        stalled.iter().for_each(wait_for_close);
    };

    wait_for_close(&stalled[0]);
    assert!(began.elapsed() >= stall.limit(), "{:?}", began.elapsed());
    stalled.iter().for_each(wait_for_close);
    let elapsed = began.elapsed();
    assert!(elapsed < stall.limit() + PATIENCE, "{elapsed:?}");
    // This end keeps its sockets until here.
    let closed = Instant::now();
    while broker.open_handles() > handles + OTHER_HANDLES {
        assert!(
            closed.elapsed() < PATIENCE,
            "{} of {handles} handles",
            broker.open_handles()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    broker.shrinks_to(2 * memory);
    produce_and_consume(&client).await.expect("served after it");
    let output = broker.output();
    let reported = match stall {
        Stall::Connected | Stall::HalfClientHello => "(SSL handshake failed)",
        Stall::HandshakeFinished | Stall::HalfLogin => "it has not logged in in time",
    };
    assert!(output.contains(reported), "{output}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_silent_connections_block_nobody() {
    a_thousand_stall(Stall::Connected).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_half_handshakes_block_nobody() {
    a_thousand_stall(Stall::HalfClientHello).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_clients_that_do_not_log_in_block_nobody() {
    a_thousand_stall(Stall::HandshakeFinished).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_half_logins_block_nobody() {
    a_thousand_stall(Stall::HalfLogin).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pinned_certificates_and_ca_certificates_are_accepted() {
    let itself = self_signed(Wanted {
        is_authority: true,
        ..Wanted::default()
    });
    let secured = secured(&itself, Authority::new("unused"), &[]);
    let trust_store = secured.path("itself.pem");
    std::fs::write(&trust_store, &itself.certificate).expect("written");
    connect(&client(secured.port, &trust_store))
        .await
        .expect("trusted");
}

#[test]
fn an_unusable_key_store_refuses_the_start_with_a_message() {
    let authority = Authority::new("authority");
    let dir = tempfile::tempdir().expect("a folder");
    let issued = authority.issue(Wanted::default());
    let mixed = Issued {
        key: authority.issue(Wanted::default()).key,
        ..issued
    };
    let mixed = mixed
        .write(&dir.path().join("mixed.pem"))
        .display()
        .to_string();
    let refused = |location: &str, more: &[(&str, &str)]| {
        let [port, ssl, controller] = lease_ports().expect("free ports");
        let listeners = format!(
            "PLAINTEXT://127.0.0.1:{port},SSL://127.0.0.1:{ssl},CONTROLLER://127.0.0.1:{controller}"
        );
        let map = "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT";
        let mut builder = BrokerBuilder::new()
            .port(port)
            .property("listeners", &listeners)
            .property(
                "advertised.listeners",
                &listeners.replace(&format!(",CONTROLLER://127.0.0.1:{controller}"), ""),
            )
            .property(
                "controller.quorum.bootstrap.servers",
                &format!("127.0.0.1:{controller}"),
            )
            .property("listener.security.protocol.map", map)
            .property("ssl.keystore.type", "PEM")
            .property("ssl.keystore.location", location);
        for (key, value) in more {
            builder = builder.property(key, value);
        }
        builder.start_refused().output
    };
    let output = refused("/nowhere/broker.pem", &[]);
    let expected = "ssl.keystore.location=/nowhere/broker.pem: cannot read the file";
    assert!(output.contains(expected), "{output}");
    let output = refused("", &[]);
    let expected = "listener SSL has no certificate; give ssl.keystore.location";
    assert!(output.contains(expected), "{output}");
    let output = refused(&mixed, &[]);
    assert!(
        output.contains(
            "mixed.pem: the private key does not match the certificate of CN=broker,O=Ottla (valid from "
        ),
        "{output}"
    );
    // Nodes could not connect to each other.
    let expired = authority.issue(Wanted {
        is_expired: true,
        ..Wanted::default()
    });
    let text = |path: PathBuf| path.display().to_string();
    let trusted = text(authority.write(&dir.path().join("authority.pem")));
    let output = refused(
        &text(expired.write(&dir.path().join("expired.pem"))),
        &[
            ("security.inter.broker.protocol", "SSL"),
            ("ssl.truststore.type", "PEM"),
            ("ssl.truststore.location", &trusted),
        ],
    );
    for part in [
        "expired.pem: A client SSLEngine created with the provided settings can't connect",
        "the certificate of CN=broker,O=Ottla (valid from ",
        "2021",
    ] {
        assert!(output.contains(part), "{part}: {output}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_certificate_is_reported_with_its_file_subject_and_dates() {
    let authority = Authority::new("authority");
    let expired = authority.issue(Wanted {
        is_expired: true,
        ..Wanted::default()
    });
    let secured = secured(&expired, authority, &[]);
    for part in [
        "broker.pem: the certificate of CN=broker,O=Ottla (valid from ",
        "cannot be used: it expired at ",
        "2021",
    ] {
        secured.wait_for(part);
    }
    let refused = refusal(&secured.client()).await;
    assert!(refused.to_lowercase().contains("expired"), "{refused}");
}

/// Three combined nodes that connect to each other over TLS only, each with its own certificate.
struct Cluster {
    nodes: Vec<BrokerProcess>,
    _dir: tempfile::TempDir,
}

fn cluster_of_three(authority: &Authority) -> Cluster {
    const CLUSTER_ID: &str = "MkU3OEVBNTcwNTJENDM2Qg";
    let dir = tempfile::tempdir().expect("a folder");
    let trust_store = authority.write(&dir.path().join("trust.pem"));
    let trust_store = trust_store.display().to_string();
    let ports: [[u16; 3]; 3] = [(); 3].map(|()| lease_ports().expect("free ports"));
    let voters: Vec<String> = ports
        .iter()
        .zip(1..)
        .map(|([.., controller], id)| format!("{id}@localhost:{controller}"))
        .collect();
    let voters = voters.join(",");
    let servers: Vec<&str> = voters
        .split(',')
        .filter_map(|it| it.split('@').nth(1))
        .collect();
    let servers = servers.join(",");
    let starting: Vec<_> = ports
        .iter()
        .zip(1..)
        .map(|([plain, nodes, controller], id)| {
            let folder = dir.path().join(id.to_string());
            std::fs::create_dir_all(&folder).expect("a folder");
            let key_store = authority
                .issue(Wanted::default())
                .write(&folder.join("key.pem"));
            let listeners = format!("PLAINTEXT://127.0.0.1:{plain},NODES://127.0.0.1:{nodes}");
            let settings = [
                ("process.roles", "broker,controller".to_owned()),
                ("node.id", id.to_string()),
                (
                    "listeners",
                    format!("{listeners},CONTROLLER://127.0.0.1:{controller}"),
                ),
                (
                    "advertised.listeners",
                    listeners.replace("NODES://127.0.0.1", "NODES://localhost"),
                ),
                (
                    "listener.security.protocol.map",
                    "PLAINTEXT:PLAINTEXT,NODES:SSL,CONTROLLER:SSL".to_owned(),
                ),
                ("controller.listener.names", "CONTROLLER".to_owned()),
                ("inter.broker.listener.name", "NODES".to_owned()),
                ("controller.quorum.voters", voters.clone()),
                ("controller.quorum.bootstrap.servers", servers.clone()),
                ("log.dirs", folder.join("data").display().to_string()),
                ("default.replication.factor", "3".to_owned()),
                ("offsets.topic.replication.factor", "3".to_owned()),
                ("ssl.keystore.type", "PEM".to_owned()),
                ("ssl.keystore.location", key_store.display().to_string()),
                ("ssl.truststore.type", "PEM".to_owned()),
                ("ssl.truststore.location", trust_store.clone()),
                ("ssl.client.auth", "required".to_owned()),
            ];
            let lines = settings
                .iter()
                .map(|(key, value)| format!("{key}={value}\n"));
            let file = folder.join("format.properties");
            std::fs::write(&file, lines.collect::<String>()).expect("written");
            let formatted = std::process::Command::new(ottla_binary())
                .args(["storage", "format", "--cluster-id", CLUSTER_ID, "--config"])
                .arg(&file)
                .output()
                .expect("the binary can be started");
            assert!(formatted.status.success(), "{formatted:?}");
            let mut builder = BrokerBuilder::new().port(*plain).dir(folder).unformatted();
            for (key, value) in &settings {
                builder = builder.property(key, value);
            }
            std::thread::spawn(move || builder.start())
        })
        .collect();
    let nodes = starting
        .into_iter()
        .map(|node| node.join().expect("it starts"));
    Cluster {
        nodes: nodes.collect(),
        _dir: dir,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_nodes_communicate_over_tls_and_survive_the_loss_of_one() {
    let authority = Authority::new("authority");
    let mut cluster = cluster_of_three(&authority);
    let settings = |node: &BrokerProcess| {
        let given = [
            ("bootstrap.servers", node.bootstrap()),
            ("default.api.timeout.ms", "30000".to_owned()),
        ];
        BTreeMap::from(given.map(|(key, value)| (key.to_owned(), value)))
    };
    let first = settings(&cluster.nodes[0]);
    produce_and_consume(&first).await.expect("replicated");
    let described = cluster.nodes[0].tool(&words(
        "topics --bootstrap-server {bootstrap} --describe --topic secured",
    ));
    let isr = described.split("Isr: ").nth(1).expect("an ISR");
    assert_eq!(
        isr.split_whitespace()
            .next()
            .map(|it| it.split(',').count()),
        Some(3),
        "{described}"
    );
    cluster.nodes[2].kill();
    produce_and_consume(&first).await.expect("two are left");
}

/// The settings in a properties file.
fn settings_of(path: &Path) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(path).expect("a properties file");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.map(|line| line.split_once('=').expect("a key and a value"));
    pairs
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// The level and the text of the doctor's check of a certificate.
fn certificate_check(arguments: &[&OsStr]) -> (String, String) {
    let looked = std::process::Command::new(ottla_binary())
        .args(["doctor", "--json"])
        .args(arguments)
        .output()
        .expect("the binary can be started");
    let json: serde_json::Value = serde_json::from_slice(&looked.stdout).expect("JSON");
    let is_meant = |check: &&serde_json::Value| {
        let subject = check["subject"].as_str().unwrap_or_default();
        subject.starts_with("certificate")
    };
    let mut checks = json["checks"].as_array().expect("checks").iter();
    let check = checks.find(is_meant);
    let check = check.unwrap_or_else(|| panic!("no certificate in {json:#}"));
    let text = |key: &str| check[key].as_str().unwrap_or_default().to_owned();
    (text("level"), text("what"))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_files_of_one_command_secure_a_broker_and_its_clients() {
    for store in ["pem", "pkcs12"] {
        let dir = tempfile::tempdir().expect("a folder");
        let dir = dir.path().join("tls");
        let [port, plain, controller] = lease_ports().expect("free ports");
        let init = || {
            std::process::Command::new(ottla_binary())
                .args(["tls", "init", "--store", store, "--days", "20", "--dir"])
                .arg(&dir)
                .args(["--port", &port.to_string()])
                .output()
                .expect("the binary can be started")
        };
        let made = init();
        assert!(made.status.success(), "{made:?}");
        let refused = init();
        assert!(!refused.status.success(), "{refused:?}");
        assert!(String::from_utf8_lossy(&refused.stderr).contains("exists already"));

        let mut settings = settings_of(&dir.join("broker-1.properties"));
        let mut append = |key: &str, more: String| {
            let value = settings.get_mut(key).expect("a setting");
            value.push_str(&more);
        };
        let also_plain = format!(",PLAINTEXT://127.0.0.1:{plain}");
        append("advertised.listeners", also_plain.clone());
        let others = format!("{also_plain},CONTROLLER://127.0.0.1:{controller}");
        append("listeners", others);
        append(
            "listener.security.protocol.map",
            ",PLAINTEXT:PLAINTEXT".to_owned(),
        );
        let controllers = format!("127.0.0.1:{controller}");
        let mut builder = BrokerBuilder::new()
            .port(plain)
            .property("controller.quorum.bootstrap.servers", &controllers);
        for (key, value) in &settings {
            builder = builder.property(key, value);
        }
        let mut broker = builder.start();
        let client = settings_of(&dir.join("client.properties"));
        assert_eq!(client["bootstrap.servers"], format!("localhost:{port}"));
        produce_and_consume(&client).await.expect("served");

        // Both the node's files and a client's connection show when the certificate expires.
        let of_node = broker.dir().join("server.properties");
        let of_client = dir.join("client.properties");
        let servers = &client["bootstrap.servers"];
        for arguments in [
            vec![of_node.as_os_str()],
            vec![
                OsStr::new("--bootstrap-server"),
                OsStr::new(servers),
                OsStr::new("--command-config"),
                of_client.as_os_str(),
            ],
        ] {
            let (level, what) = certificate_check(&arguments);
            assert_eq!(level, "warning", "{what}");
            // The first of the 20 days was yesterday.
            let is_right = ["expires in 18 days", "expires in 19 days"].map(|it| what.contains(it));
            assert!(is_right.contains(&true), "{what}");
        }
        assert!(broker.stop().success(), "{}", broker.output());
    }
}
