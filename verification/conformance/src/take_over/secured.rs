//! A broker that is secured before it is taken over: its clients and the broker itself log in over TLS, with SCRAM and PLAIN, and
//! may do what ACLs allow. The plain listener stays, for the tools and for the beginning.

use std::path::{Path, PathBuf};

use anyhow::Result;

use ottla_peers::free_port_pair;
use ottla_testkit::certificates::{Authority, Wanted};

/// What makes a run a secured one.
pub struct Secured {
    /// Of the broker.
    pub settings: Vec<(String, String)>,
    /// A file with what the workload's clients need; the user is made when the broker runs.
    pub login: PathBuf,
}

/// Makes certificates and settings for a broker whose plain listener is at `port`.
pub fn prepare(port: u16, dir: &Path) -> Result<Secured> {
    let modules = "org.apache.kafka.common.security";
    let secured = free_port_pair()?;
    let authority = Authority::new("authority");
    let shown = |path: PathBuf| path.display().to_string();
    let trust_store = shown(authority.write(&dir.join("authority.pem")));
    let issued = authority.issue(Wanted::default());
    let key_store = shown(issued.write(&dir.join("broker.pem")));

    let login = dir.join("login.properties");
    std::fs::write(
        &login,
        format!(
            "bootstrap.servers=127.0.0.1:{secured}\nsecurity.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n\
             sasl.jaas.config={modules}.scram.ScramLoginModule required username=\"worker\" \
             password=\"worker-secret\";\n\
             ssl.truststore.type=PEM\nssl.truststore.location={trust_store}\n"
        ),
    )?;

    let clients = format!("PLAINTEXT://127.0.0.1:{port},SECURED://127.0.0.1:{secured}");
    let listeners = format!("{clients},CONTROLLER://127.0.0.1:{}", port + 1);
    let plain = format!(
        "{modules}.plain.PlainLoginModule required username=\"node\" password=\"node-secret\" \
         user_node=\"node-secret\";"
    );
    let scram = format!("{modules}.scram.ScramLoginModule required;");
    let settings = [
        ("listeners", &*listeners),
        ("advertised.listeners", &clients),
        (
            "listener.security.protocol.map",
            "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURED:SASL_SSL",
        ),
        ("inter.broker.listener.name", "SECURED"),
        ("sasl.mechanism.inter.broker.protocol", "PLAIN"),
        (
            "sasl.enabled.mechanisms",
            "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        ),
        ("listener.name.secured.plain.sasl.jaas.config", &plain),
        (
            "listener.name.secured.scram-sha-256.sasl.jaas.config",
            &scram,
        ),
        (
            "listener.name.secured.scram-sha-512.sasl.jaas.config",
            &scram,
        ),
        ("ssl.keystore.type", "PEM"),
        ("ssl.keystore.location", &key_store),
        ("ssl.truststore.type", "PEM"),
        ("ssl.truststore.location", &trust_store),
        (
            "authorizer.class.name",
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        ),
        ("super.users", "User:ANONYMOUS;User:node"),
        ("delegation.token.secret.key", "a secret of all nodes"),
    ];
    Ok(Secured {
        settings: settings
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        login,
    })
}
