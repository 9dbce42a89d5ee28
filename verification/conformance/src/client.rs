//! `cargo xtask client`: runs the native client's tests against Apache Kafka and against Ottla.
//!
//! Starts a broker and passes its address to the test programs; they create their own topics. Where a
//! broker does not serve an API, the tests check that the client reports this.
//!
//! On Kafka the command also tests listeners with TLS and SASL, repeats the transaction tests at
//! older levels of `transaction.version`, compares the client's assignors with Kafka's on random
//! groups, and compares the names and defaults of its settings with Kafka's clients.

mod listeners;

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use listeners::Listeners;
use ottla_peers::java;
use ottla_peers::{InstalledPeer, Node, NodeOptions, Peer, QUICK_HEARTBEATS};
use ottla_testkit::lease_range;
use ottla_workspace::report::Tally;
use ottla_workspace::{process, test_programs, workspace};

#[derive(clap::Args)]
pub struct Options {
    /// Only against this broker: the name of a file in peers/, without `.toml`.
    #[arg(long)]
    broker: Option<String>,
    /// Only tests with this in their names.
    filter: Option<String>,
}

const PACKAGE: &str = "ottla-client";
const LIBRARY: &str = "ottla_client";
/// The test program that runs against the broker in `OTTLA_CLIENT_BOOTSTRAP`.
const AGAINST_A_BROKER: &str = "against_a_broker";

/// Settings that reduce the delays of a small broker.
const SETTINGS: [(&str, &str); 5] = [
    ("group.initial.rebalance.delay.ms", "0"),
    ("offsets.topic.num.partitions", "1"),
    ("transaction.state.log.num.partitions", "1"),
    ("auto.create.topics.enable", "false"),
    ("num.partitions", "1"),
];

/// For a broker on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// The levels of `transaction.version` below the newest. They use the first transaction protocol
/// (TV0, TV1).
const OLDER_TRANSACTION_VERSIONS: [&str; 2] = ["1", "0"];

pub fn run(options: &Options) -> Result<()> {
    let brokers = match &options.broker {
        Some(broker) => vec![broker.as_str()],
        None => vec!["kafka", "ottla"],
    };
    build_examples()?;
    let mut total = Tally::default();
    for broker in brokers {
        let peer = Peer::load(broker)?.install()?;
        if broker == "kafka" && options.filter.is_none() {
            total.add(compare_assignors(&peer)?);
            total.add(compare_settings(&peer)?);
        }
        total.add(test(&peer, options)?);
    }
    if total.failed > 0 {
        bail!("the client's tests have failed");
    }
    Ok(())
}

fn test(peer: &InstalledPeer, options: &Options) -> Result<Tally> {
    let dir = tempfile::Builder::new().prefix("ottla-client-").tempdir()?;
    let overrides = SETTINGS.into_iter().chain(QUICK_HEARTBEATS);
    let mut overrides: Vec<(String, String)> = overrides
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    let port = lease_range(2)?;
    let is_kafka = peer.id() == "kafka";
    let listeners = if is_kafka {
        Some(Listeners::prepare(port, dir.path())?)
    } else {
        None
    };
    if let Some(listeners) = &listeners {
        overrides.extend(listeners.settings());
    }
    let mut node = peer.start(NodeOptions {
        dir: dir.path().to_path_buf(),
        port: Some(port),
        overrides,
        ..NodeOptions::default()
    })?;
    let mut total = Tally::default();
    let mut commands = test_commands(&node, &[AGAINST_A_BROKER])?;
    for command in &mut commands {
        command.args(&options.filter);
        if let Some(listeners) = &listeners {
            command.envs(listeners.variables());
        }
    }
    total.add(told(peer.name(), commands)?);
    if is_kafka {
        for version in OLDER_TRANSACTION_VERSIONS {
            lower_transaction_version(peer, &node, version)?;
            let mut commands = test_commands(&node, &[AGAINST_A_BROKER])?;
            for command in &mut commands {
                command
                    .arg("transactions")
                    .env("OTTLA_CLIENT_TRANSACTION_VERSION", version);
            }
            let what = format!("{} with transaction.version={version}", peer.name());
            total.add(told(&what, commands)?);
        }
    }
    node.stop()?;
    Ok(total)
}

/// The examples, which one of the tests starts.
fn build_examples() -> Result<()> {
    if test_programs::built()?.is_some() {
        // They are built with the test programs.
        return Ok(());
    }
    let mut command = workspace::cargo();
    command.args(["build", "--locked"]);
    command.args(workspace::selection(PACKAGE, &[]));
    for name in test_programs::examples()? {
        command.arg("--example").arg(name);
    }
    if command.status()?.success() {
        Ok(())
    } else {
        bail!("the examples of ottla-client cannot be built")
    }
}

fn test_commands(node: &Node, targets: &[&str]) -> Result<Vec<Command>> {
    let mut commands = test_programs::commands(PACKAGE, &[], targets)?;
    for command in &mut commands {
        command.env("OTTLA_CLIENT_BOOTSTRAP", node.bootstrap());
    }
    Ok(commands)
}

/// Runs all commands, and counts them as one check.
fn told(what: &str, commands: Vec<Command>) -> Result<Tally> {
    let mut succeed = true;
    for mut command in commands {
        let status = command.status()?;
        if !status.success() {
            println!("error: {} ended with {status}", process::shown(&command));
        }
        succeed &= status.success();
    }
    println!("{} {what}", if succeed { "ok  " } else { "FAIL" });
    Ok(Tally::of(succeed))
}

/// Returns when the broker has applied the change, which is after the controller has answered.
fn lower_transaction_version(kafka: &InstalledPeer, node: &Node, version: &str) -> Result<()> {
    const FEATURE: &str = "transaction.version";
    let features = || {
        let mut command = kafka.tool("org.apache.kafka.tools.FeatureCommand");
        command.args(["--bootstrap-server", &node.bootstrap()]);
        command
    };
    let lowered = format!("{FEATURE}={version}");
    process::output_of(features().args(["downgrade", "--feature", &lowered]))?;
    process::retried(PATIENCE, "the feature is lowered", || {
        let printed = process::output_of(features().arg("describe"))?;
        let line = printed.lines().find(|line| line.contains(FEATURE));
        let words: Vec<&str> = line.unwrap_or_default().split_whitespace().collect();
        let is_lowered = words
            .windows(2)
            .any(|pair| pair == ["FinalizedVersionLevel:", version]);
        ensure!(is_lowered, "{printed}");
        Ok(())
    })
}

/// Compares the assignments of the client's assignors with Kafka's.
fn compare_assignors(kafka: &InstalledPeer) -> Result<Tally> {
    const SEED: &str = "1";
    const GROUPS: &str = "3000";
    let program = java::program(kafka, "assignors", "Assignments")?;
    let groups = process::output_of(
        Command::new(&program[0])
            .args(&program[1..])
            .args([SEED, GROUPS]),
    )?;
    compare("the assignors of Kafka", &ASSIGNORS, &groups)
}

/// Compares the client's settings with Kafka's.
fn compare_settings(kafka: &InstalledPeer) -> Result<Tally> {
    let program = java::program(kafka, "clientsettings", "ClientSettings")?;
    let settings = process::output_of(Command::new(&program[0]).args(&program[1..]))?;
    compare(
        "the settings of Kafka's clients",
        &SETTINGS_OF_CLIENTS,
        &settings,
    )
}

/// A test of the crate that reads the output of Kafka's classes.
struct Comparison {
    test: &'static str,
    /// The environment variable that names the file.
    variable: &'static str,
    file: &'static str,
}

const ASSIGNORS: Comparison = Comparison {
    test: "assignments_are_equal_to_assignments_of_kafka",
    variable: "OTTLA_ASSIGNMENTS",
    file: "assignments.txt",
};

const SETTINGS_OF_CLIENTS: Comparison = Comparison {
    test: "every_setting_of_kafkas_clients_is_known_with_its_default",
    variable: "OTTLA_CLIENT_SETTINGS",
    file: "client-settings.txt",
};

fn compare(what: &str, comparison: &Comparison, written: &str) -> Result<Tally> {
    let file = workspace::target_dir().join(comparison.file);
    std::fs::write(&file, written).with_context(|| file.display().to_string())?;
    let mut commands = test_programs::commands(PACKAGE, &[], &[LIBRARY])?;
    for command in &mut commands {
        command
            .args([comparison.test, "--nocapture"])
            .env(comparison.variable, &file);
    }
    told(what, commands)
}
