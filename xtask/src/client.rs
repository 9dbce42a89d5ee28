//! `cargo xtask client`: the native client's tests against Apache Kafka and against Ottla, the same ones.
//!
//! A broker is started, and `cargo test` told its address; the tests make topics of their own in it. What a broker
//! does not serve yet, the tests ask it about and check that the client says so.

use anyhow::{Result, bail};

use crate::peer::{NodeOptions, Peer};
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
        let mut node = peer.start(NodeOptions {
            dir: dir.path().to_path_buf(),
            overrides: overrides.to_vec(),
            ..NodeOptions::default()
        })?;
        let mut command = workspace::cargo();
        command
            .args(["test", "--package", "ottla-client", "--locked"])
            .args(["--test", "against_a_broker", "--"])
            .args(&options.filter)
            .env("OTTLA_CLIENT_BOOTSTRAP", node.bootstrap());
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
