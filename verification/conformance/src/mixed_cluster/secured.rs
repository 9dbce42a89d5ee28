//! A secured cluster: nodes and clients log in over TLS, with passwords or with client
//! certificates, and an authorizer checks their permissions.
//!
//! Each broker keeps a plain listener for the probes, whose user `User:ANONYMOUS` may describe the
//! topic and nothing else.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::clients::Access;
pub use ottla_peers::secured::stores;
use ottla_peers::secured::{self, MODULES, trust};
use ottla_peers::{Cluster, InstalledPeer, Peer, connect, refuses_plaintext};
use ottla_testkit::certificates;
use ottla_testkit::lease_ports;
use ottla_testkit::tokens::{TokenEndpoint, TokenIssuer};
use ottla_workspace::process;
use ottla_workspace::toolchain::FIRST_COMPILER;

/// A super user: all nodes, and the administrator.
pub const NODE: &str = "node";
/// The user of the clients under test, with permissions on the topic.
pub const WORKER: &str = "worker";
/// How long a token is valid: sessions end while a run is under way.
const TOKEN_SECONDS: i64 = 60;
pub const AUTHORIZER: &str = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";
const TOPIC_AUTHORIZATION_FAILED: i16 = 29;
/// A broker on a busy machine may need several seconds to refuse a connection or a request.
const REFUSAL_PATIENCE: Duration = Duration::from_secs(120);

/// How nodes and clients authenticate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum WayIn {
    /// SASL_SSL: SCRAM for brokers and clients, PLAIN for controllers.
    Passwords,
    /// SSL with client certificates.
    Certificates,
    /// SASL_SSL: nodes with OAuth tokens that last a minute, and clients with SCRAM.
    Tokens,
}

impl WayIn {
    fn protocol(self) -> &'static str {
        match self {
            WayIn::Passwords | WayIn::Tokens => "SASL_SSL",
            WayIn::Certificates => "SSL",
        }
    }
}

/// The topic of the clients under test.
#[derive(Debug, Clone, Copy)]
pub struct Topic {
    pub name: &'static str,
    pub partitions: usize,
}

/// The ways in to a secured cluster.
pub struct Secured {
    topic: Topic,
    pub administrator: Access,
    pub worker: Access,
    /// Where nodes get tokens, if they do.
    tokens: Option<TokenEndpoint>,
    /// Ports of listeners that must not answer a client that proves nothing.
    closed: Vec<u16>,
}

/// Changes the properties of a cluster that was not started yet.
pub fn secure(cluster: &mut Cluster, way_in: WayIn, topic: Topic, dir: &Path) -> Result<Secured> {
    let dir = dir.canonicalize()?;
    issue_certificates(&dir);
    let tokens = (way_in == WayIn::Tokens).then(|| issue_tokens(&dir));
    let of_nodes = of_nodes(way_in, tokens.as_ref(), &dir);
    let mut closed = Vec::new();
    for controller in &mut cluster.controllers {
        controller.set(&of_nodes);
        controller.options.environment = environment(tokens.as_ref(), &dir);
        controller.options.is_port_secured = true;
        if way_in != WayIn::Certificates {
            let credential = |user| secured::scram_credential("SCRAM-SHA-512", user);
            controller.options.scram = [NODE, WORKER].map(credential).into();
        }
        closed.push(controller.port);
    }
    let mut addresses = Vec::new();
    for broker in &mut cluster.brokers {
        let [port] = lease_ports()?;
        let address = format!("127.0.0.1:{port}");
        for key in ["listeners", "advertised.listeners"] {
            let given = broker.options.overrides.iter().rfind(|(it, _)| it == key);
            let given = given
                .map(|(_, value)| format!("{value},"))
                .unwrap_or_default();
            broker.set(&[(key, format!("{given}CLIENTS://{address}"))]);
        }
        broker.set(&of_nodes);
        broker.options.environment = environment(tokens.as_ref(), &dir);
        closed.extend([broker.port + 1, port]);
        addresses.push(address);
    }
    let access = |user: &str| -> Result<Access> {
        let login = dir.join(user).with_extension("properties");
        std::fs::write(&login, login_of(user, way_in, &dir))?;
        Ok(Access {
            bootstrap: addresses.join(","),
            login: Some(login),
        })
    };
    Ok(Secured {
        administrator: access(NODE)?,
        worker: access(WORKER)?,
        topic,
        tokens,
        closed,
    })
}

impl Secured {
    /// Grants the worker the topic, and the probes its description: one grant with the tool of each
    /// maker.
    pub fn grant(&self, kafka: &InstalledPeer) -> Result<()> {
        let worker = format!("User:{WORKER}");
        let mut to_worker = self
            .administrator
            .tool(kafka, "org.apache.kafka.tools.AclCommand");
        to_worker.args(["--add", "--allow-principal", &worker]);
        to_worker.args(["--producer", "--consumer", "--topic", self.topic.name]);
        to_worker.args(["--group", "*"]);
        process::output_of(&mut to_worker)?;
        let mut to_probes = self
            .administrator
            .tool(&Peer::load("ottla")?.install()?, "acls");
        to_probes.args(["--add", "--allow-principal", "User:ANONYMOUS"]);
        to_probes.args(["--operation", "Describe", "--topic", self.topic.name]);
        process::output_of(&mut to_probes)?;
        Ok(())
    }

    /// Checks that every broker still refuses a write by a user without the permission, and
    /// connections without authentication.
    pub fn check_refusals(&self, cluster: &Cluster) -> Result<Vec<String>> {
        let mut wrong = Vec::new();
        let Topic {
            name: topic,
            partitions,
        } = self.topic;
        let indexes: Vec<i32> = (0..partitions as i32).collect();
        ensure!(
            cluster.running().count() == cluster.brokers.len(),
            "a broker that is down refuses nothing"
        );
        for broker in cluster.running() {
            let name = broker.name();
            let mut asker = connect(broker.port)?.patient(REFUSAL_PATIENCE)?;
            let codes = asker.produce_to_each(topic, &indexes, &[])?;
            ensure!(codes.len() == partitions, "{name} answers {codes:?}");
            for (partition, code) in codes {
                if code != TOPIC_AUTHORIZATION_FAILED {
                    wrong.push(format!(
                        "{name} answers a write to {topic}-{partition} without the right with {code}"
                    ));
                }
            }
        }
        if let Some(tokens) = &self.tokens {
            let nodes = cluster.controllers.len() + cluster.brokers.len();
            let granted = tokens.granted();
            println!("{granted} tokens granted");
            // Each node replaces its token before it expires.
            if granted <= nodes {
                wrong.push(format!("only {granted} tokens for {nodes} nodes"));
            }
        }
        wrong.extend(not_refusing(self.closed.iter().copied()));
        Ok(wrong)
    }
}

/// The listeners that do not refuse requests without TLS, with the reason. A missing answer is not
/// a refusal.
pub fn not_refusing(ports: impl Iterator<Item = u16>) -> Vec<String> {
    let refused = |port: u16| {
        process::retried(REFUSAL_PATIENCE, &format!("port {port}"), || {
            ensure!(
                refuses_plaintext(port),
                "it does not refuse a request without TLS"
            );
            Ok(())
        })
    };
    ports
        .filter_map(|port| refused(port).err())
        .map(|error| format!("{error:#}"))
        .collect()
}

/// The certificates of all nodes and of the worker, signed by one authority.
pub fn issue_certificates(dir: &Path) {
    certificates::write_stores(dir, &[NODE, WORKER]);
}

/// Settings of every node, the same for brokers and controllers.
fn of_nodes(
    way_in: WayIn,
    tokens: Option<&TokenEndpoint>,
    dir: &Path,
) -> Vec<(&'static str, String)> {
    let protocol = way_in.protocol();
    let map = ["CONTROLLER", "REPLICATION", "CLIENTS"].map(|name| format!("{name}:{protocol}"));
    let mut settings = vec![
        (
            "listener.security.protocol.map",
            format!("PLAINTEXT:PLAINTEXT,{}", map.join(",")),
        ),
        ("authorizer.class.name", AUTHORIZER.to_owned()),
        ("super.users", format!("User:{NODE}")),
    ];
    settings.extend(stores(NODE, dir));
    if let Some(tokens) = tokens {
        settings.extend(of_passwords());
        settings.extend(of_tokens(tokens.url(), dir));
    }
    match way_in {
        WayIn::Tokens => {}
        WayIn::Passwords => settings.extend(of_passwords()),
        WayIn::Certificates => settings.extend([
            ("ssl.client.auth", "required".to_owned()),
            (
                "ssl.principal.mapping.rules",
                "RULE:^CN=(.*?),O=.*$/$1/,DEFAULT".to_owned(),
            ),
        ]),
    }
    settings
}

/// The JAAS entry of a listener with PLAIN: nodes log in there, and to the listeners of other
/// nodes.
pub fn plain_entry() -> String {
    let login = format!("username=\"{NODE}\" password=\"{NODE}-secret\"");
    format!("{MODULES}.plain.PlainLoginModule required {login} user_{NODE}=\"{NODE}-secret\";")
}

/// The same with SCRAM, whose users are in the metadata.
pub fn scram_entry() -> String {
    secured::scram_entry(NODE)
}

fn of_passwords() -> Vec<(&'static str, String)> {
    vec![
        ("sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-512".to_owned()),
        ("sasl.mechanism.controller.protocol", "PLAIN".to_owned()),
        (
            "sasl.mechanism.inter.broker.protocol",
            "SCRAM-SHA-512".to_owned(),
        ),
        (
            "listener.name.controller.sasl.enabled.mechanisms",
            "PLAIN".to_owned(),
        ),
        (
            "listener.name.replication.sasl.enabled.mechanisms",
            "SCRAM-SHA-512".to_owned(),
        ),
        (
            "listener.name.clients.sasl.enabled.mechanisms",
            "SCRAM-SHA-512".to_owned(),
        ),
        (
            "listener.name.controller.plain.sasl.jaas.config",
            plain_entry(),
        ),
        (
            "listener.name.replication.scram-sha-512.sasl.jaas.config",
            scram_entry(),
        ),
        (
            "listener.name.clients.scram-sha-512.sasl.jaas.config",
            secured::scram_listener_entry(),
        ),
    ]
}

/// An issuer, whose keys are in a file.
fn issue_tokens(dir: &Path) -> TokenEndpoint {
    let issuer = TokenIssuer::new("key");
    issuer.write_keys(&dir.join("keys.json"));
    let claims = serde_json::json!({ "aud": "kafka", "iss": "https://issuer" });
    TokenEndpoint::start(issuer, TOKEN_SECONDS, claims)
}

fn keys_url(dir: &Path) -> String {
    format!("file://{}", dir.join("keys.json").display())
}

/// The environment of a node. Kafka and Ottla each read their own variables. A JVM that is soon
/// restarted compiles in the quick way only, and gets tokens and keys from the allowed URLs only.
/// Ottla logs refused principals.
pub fn environment(tokens: Option<&TokenEndpoint>, dir: &Path) -> Vec<(String, String)> {
    let mut of_jvm = FIRST_COMPILER.to_owned();
    if let Some(tokens) = tokens {
        let (tokens, keys) = (tokens.url(), keys_url(dir));
        let property = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls";
        of_jvm.push_str(&format!(" {property}={tokens},{keys}"));
    }
    let of_ottla = "warn,kafka.authorizer.logger=info,ottla_net=info".to_owned();
    vec![
        ("JAVA_TOOL_OPTIONS".to_owned(), of_jvm),
        ("OTTLA_LOG".to_owned(), of_ottla),
    ]
}

/// Nodes log in to each other with tokens; the listener of clients is left as it is.
fn of_tokens(url: &str, dir: &Path) -> Vec<(&'static str, String)> {
    const OAUTH: &str = "org.apache.kafka.common.security.oauthbearer";
    let entry = format!(
        "{OAUTH}.OAuthBearerLoginModule required clientId=\"{NODE}\" clientSecret=\"{NODE}-secret\";"
    );
    let login = format!("{OAUTH}.OAuthBearerLoginCallbackHandler");
    let server = format!("{OAUTH}.OAuthBearerValidatorCallbackHandler");
    let mechanism = "OAUTHBEARER".to_owned();
    vec![
        (
            "sasl.enabled.mechanisms",
            "OAUTHBEARER,SCRAM-SHA-512".to_owned(),
        ),
        ("sasl.mechanism.controller.protocol", mechanism.clone()),
        ("sasl.mechanism.inter.broker.protocol", mechanism.clone()),
        (
            "listener.name.controller.sasl.enabled.mechanisms",
            mechanism.clone(),
        ),
        (
            "listener.name.replication.sasl.enabled.mechanisms",
            mechanism,
        ),
        (
            "listener.name.controller.oauthbearer.sasl.jaas.config",
            entry.clone(),
        ),
        (
            "listener.name.controller.oauthbearer.sasl.login.callback.handler.class",
            login.clone(),
        ),
        (
            "listener.name.controller.oauthbearer.sasl.server.callback.handler.class",
            server.clone(),
        ),
        (
            "listener.name.replication.oauthbearer.sasl.jaas.config",
            entry,
        ),
        (
            "listener.name.replication.oauthbearer.sasl.login.callback.handler.class",
            login,
        ),
        (
            "listener.name.replication.oauthbearer.sasl.server.callback.handler.class",
            server,
        ),
        ("sasl.oauthbearer.token.endpoint.url", url.to_owned()),
        ("sasl.oauthbearer.jwks.endpoint.url", keys_url(dir)),
        ("sasl.oauthbearer.expected.audience", "kafka".to_owned()),
        (
            "sasl.oauthbearer.expected.issuer",
            "https://issuer".to_owned(),
        ),
    ]
}

/// The properties of a client.
pub fn login_of(user: &str, way_in: WayIn, dir: &Path) -> String {
    let mut settings = vec![("security.protocol", way_in.protocol().to_owned())];
    match way_in {
        WayIn::Passwords | WayIn::Tokens => {
            settings.extend(trust(dir));
            settings.push(("sasl.mechanism", "SCRAM-SHA-512".to_owned()));
            settings.push(("sasl.jaas.config", secured::scram_entry(user)));
        }
        WayIn::Certificates => settings.extend(stores(user, dir)),
    }
    secured::properties(&settings)
}
