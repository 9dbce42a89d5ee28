//! A broker that is secured before it is taken over: its clients and the broker itself log in over
//! TLS, with SCRAM and PLAIN, and have only the permissions of ACLs. The plain listener stays, for
//! the tools and the first start.

use std::path::{Path, PathBuf};

use anyhow::Result;

use ottla_peers::secured::{self, MODULES};
use ottla_testkit::certificates;
use ottla_testkit::lease_ports;

const BROKER: &str = "broker";

/// The settings and files of a secured run.
pub struct Secured {
    /// Settings of the broker.
    pub settings: Vec<(String, String)>,
    /// A file with the login settings of the workload's clients. The user is created when the
    /// broker runs.
    pub login: PathBuf,
}

/// Makes certificates and settings for a broker whose plain listener is at `port`.
pub fn prepare(port: u16, dir: &Path) -> Result<Secured> {
    let [secured_port] = lease_ports()?;
    certificates::write_stores(dir, &[BROKER]);
    let login = dir.join("login.properties");
    let mut of_clients = vec![
        ("bootstrap.servers", format!("127.0.0.1:{secured_port}")),
        ("security.protocol", "SASL_SSL".to_owned()),
        ("sasl.mechanism", "SCRAM-SHA-512".to_owned()),
        ("sasl.jaas.config", secured::scram_entry("worker")),
    ];
    of_clients.extend(secured::trust(dir));
    std::fs::write(&login, secured::properties(&of_clients))?;

    let clients = format!("PLAINTEXT://127.0.0.1:{port},SECURED://127.0.0.1:{secured_port}");
    let listeners = format!("{clients},CONTROLLER://127.0.0.1:{}", port + 1);
    let plain = format!(
        "{MODULES}.plain.PlainLoginModule required username=\"node\" password=\"node-secret\" \
         user_node=\"node-secret\";"
    );
    let scram = secured::scram_listener_entry();
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
        (
            "authorizer.class.name",
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        ),
        ("super.users", "User:ANONYMOUS;User:node"),
        ("delegation.token.secret.key", "a secret of all nodes"),
    ];
    let mut settings: Vec<(String, String)> = settings
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
    let stores = secured::stores(BROKER, dir).into_iter();
    settings.extend(stores.map(|(key, value)| (key.to_owned(), value)));
    Ok(Secured { settings, login })
}
