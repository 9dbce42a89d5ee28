//! `cargo xtask client`: the native client's tests against Apache Kafka and against Ottla, the same ones.
//!
//! A broker is started, and `cargo test` told its address; the tests make topics of their own in it. What a broker
//! does not serve yet, the tests ask it about and check that the client says so. Kafka has a listener with SASL besides.

use anyhow::{Result, bail};

use crate::peer::{NodeOptions, Peer, free_port_pair};
use crate::report::Tally;
use crate::workspace;

#[derive(clap::Args)]
pub struct Options {
    /// Only against this broker: the name of a file in peers/, without `.toml`.
    #[arg(long)]
    broker: Option<String>,
    /// Only tests with this in their names.
    filter: Option<String>,
}

/// What makes a small broker answer soon.
const SETTINGS: [(&str, &str); 5] = [
    ("group.initial.rebalance.delay.ms", "0"),
    ("offsets.topic.num.partitions", "1"),
    ("transaction.state.log.num.partitions", "1"),
    ("auto.create.topics.enable", "false"),
    ("num.partitions", "1"),
];

pub fn run(options: &Options) -> Result<()> {
    let brokers = match &options.broker {
        Some(broker) => vec![broker.as_str()],
        None => vec!["kafka", "ottla"],
    };
    let mut total = Tally::default();
    for broker in brokers {
        let peer = Peer::load(broker)?.install()?;
        let dir = tempfile::Builder::new().prefix("ottla-client-").tempdir()?;
        let overrides = SETTINGS.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let mut overrides = overrides.to_vec();
        let (port, sasl_port) = (free_port_pair()?, free_port_pair()?);
        if broker == "kafka" {
            overrides.extend(with_sasl(port, sasl_port));
        }
        let mut node = peer.start(NodeOptions {
            dir: dir.path().to_path_buf(),
            port: Some(port),
            overrides,
            ..NodeOptions::default()
        })?;
        let mut command = workspace::cargo();
        command
            .args(["test", "--package", "ottla-client", "--locked"])
            .args(["--test", "against_a_broker", "--test", "secured", "--"])
            .args(&options.filter)
            .env("OTTLA_CLIENT_BOOTSTRAP", node.bootstrap());
        if broker == "kafka" {
            command.env(
                "OTTLA_CLIENT_SASL_PLAINTEXT",
                format!("127.0.0.1:{sasl_port}"),
            );
        }
        let status = command.status()?;
        println!(
            "{} {}",
            if status.success() { "ok  " } else { "FAIL" },
            peer.name()
        );
        total.add(Tally::of(status.success()));
        node.stop()?;
    }
    if total.failed > 0 {
        bail!("the client's tests have failed");
    }
    Ok(())
}

/// A second listener, where clients log in: `alice` by PLAIN, by SCRAM whom the tests make.
fn with_sasl(port: u16, sasl_port: u16) -> Vec<(String, String)> {
    let (plain, sasl) = (
        format!("PLAINTEXT://127.0.0.1:{port}"),
        format!("SASL://127.0.0.1:{sasl_port}"),
    );
    let controller = format!("CONTROLLER://127.0.0.1:{}", port + 1);
    let modules = "org.apache.kafka.common.security";
    let jaas = |mechanism: &str| format!("listener.name.sasl.{mechanism}.sasl.jaas.config");
    let scram = format!("{modules}.scram.ScramLoginModule required;");
    vec![
        ("listeners".into(), format!("{plain},{controller},{sasl}")),
        ("advertised.listeners".into(), format!("{plain},{sasl}")),
        (
            "listener.security.protocol.map".into(),
            "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT".into(),
        ),
        (
            "sasl.enabled.mechanisms".into(),
            "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512".into(),
        ),
        (
            jaas("plain"),
            format!("{modules}.plain.PlainLoginModule required user_alice=\"alice-secret\";"),
        ),
        (jaas("scram-sha-256"), scram.clone()),
        (jaas("scram-sha-512"), scram),
    ]
}
