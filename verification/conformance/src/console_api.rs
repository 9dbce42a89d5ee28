//! `cargo xtask console-api`: does everything that the console's API offers, against Ottla and
//! against Apache Kafka, and asks the cluster with the command-line tools whether it happened.

pub mod access;
mod beside;
mod cluster;
mod groups;
pub mod http;
mod measure;
mod records;
mod registry;
mod schemas;
pub mod stage;
mod streams;
mod topics;
mod trouble;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Result, ensure};
use ottla_peers::{NodeOptions, Peer, QUICK_HEARTBEATS};
use ottla_workspace::report::Tally;
use ottla_workspace::workspace;

use http::Http;
use stage::{STOP_PATIENCE, Stage, start_console};

#[derive(clap::Args)]
pub struct Options {
    /// Only against this broker: the name of a file in peers/, without `.toml`.
    #[arg(long)]
    broker: Option<String>,
    /// Only steps with this in their names. Later steps need the objects of earlier steps.
    #[arg(long)]
    until: Option<String>,
}

const SETTINGS: [(&str, &str); 13] = [
    ("group.initial.rebalance.delay.ms", "0"),
    ("offsets.topic.num.partitions", "1"),
    ("transaction.state.log.num.partitions", "1"),
    ("share.coordinator.state.topic.num.partitions", "1"),
    // A streams group starts at once, and notices soon that its application was killed.
    ("group.streams.initial.rebalance.delay.ms", "0"),
    ("group.streams.min.session.timeout.ms", "6000"),
    ("group.streams.session.timeout.ms", "6000"),
    ("group.streams.min.heartbeat.interval.ms", "1000"),
    ("group.streams.heartbeat.interval.ms", "1000"),
    ("auto.create.topics.enable", "false"),
    (
        "authorizer.class.name",
        "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    ),
    ("super.users", "User:ANONYMOUS"),
    ("log.initial.task.delay.ms", "3600000"),
];

type Step = (&'static str, fn(&Stage) -> Result<()>);

/// In this order, because later steps use the objects of earlier steps.
const STEPS: &[Step] = &[
    ("the overview", cluster::overview),
    ("a topic is created", topics::create_topic),
    ("settings are changed", topics::change_settings),
    ("partitions are added", topics::add_partitions),
    ("records are produced", records::produce),
    ("records are read page by page", records::read_pages),
    ("records are found", records::search),
    ("all kinds of records are found", records::search_varied),
    ("a live tail", records::live_tail),
    ("records are exported", records::export),
    ("records are sent again", records::redrive),
    ("a record of 10 MB", records::large),
    ("records are decoded", schemas::decode),
    ("a group and its lag", groups::group_lag),
    ("offsets are reset", groups::reset_offsets),
    ("a group is deleted", groups::delete_group),
    ("a share group", groups::share_group),
    ("transactions", cluster::transactions),
    ("quotas", cluster::quotas),
    ("ACLs", cluster::acls),
    ("SCRAM users", cluster::users),
    ("a broker and its settings", cluster::broker),
    ("leaders are elected, replicas assigned", cluster::elections),
    ("a topic is emptied", topics::empty_topic),
    ("a topic is deleted", topics::delete_topic),
    ("series", cluster::series),
    ("a benchmark", measure::benchmark),
    ("a Streams application", streams::application),
];

pub fn run(options: &Options) -> Result<()> {
    let brokers = match &options.broker {
        Some(broker) => vec![broker.as_str()],
        None => vec!["ottla", "kafka"],
    };
    let binary = match std::env::var_os("OTTLA_BINARY") {
        Some(named) => PathBuf::from(named),
        None => workspace::release_binary("ottla", "ottla")?,
    };
    let mut tally = Tally::default();
    for broker in brokers {
        tally.add(against(broker, &binary, options)?);
    }
    println!("{tally}");
    ensure!(tally.failed == 0, "the console differs from the tools");
    Ok(())
}

fn against(broker: &str, binary: &std::path::Path, options: &Options) -> Result<Tally> {
    let peer = Peer::load(broker)?.install()?;
    let dir = tempfile::Builder::new()
        .prefix("ottla-console-")
        .tempdir()?;
    let overrides = SETTINGS.into_iter().chain(QUICK_HEARTBEATS);
    let overrides = overrides.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let mut node = peer.start(NodeOptions {
        dir: dir.path().join("node"),
        overrides: overrides.collect(),
        ..NodeOptions::default()
    })?;
    let mut command = Command::new(binary);
    command
        .args(["console", "--bootstrap-server", &node.bootstrap()])
        .args(["--listen", "127.0.0.1:0"])
        .args(["--schema-registry", &registry::start()?])
        .arg("--bench-dir")
        .arg(dir.path().join("bench"))
        .stdout(Stdio::piped());
    let (mut console, address) = start_console(&mut command)?;
    let stage = Stage {
        http: Http::new(address),
        binary: binary.to_owned(),
        bootstrap: node.bootstrap(),
        dir: dir.path().to_owned(),
    };
    let mut tally = Tally::default();
    let mut is_reached = false;
    for (name, step) in STEPS {
        tally.add(attempt(peer.name(), name, || step(&stage)));
        let until = options.until.as_ref();
        is_reached = until.is_some_and(|until| name.contains(until.as_str()));
        if is_reached {
            break;
        }
    }
    console.stop(STOP_PATIENCE)?;
    node.stop()?;
    if !is_reached {
        let check = || access::check(&peer, binary, dir.path());
        tally.add(attempt(peer.name(), "logins and rights", check));
        if peer.id() == "ottla" {
            let check = || beside::check(&peer, dir.path());
            tally.add(attempt(peer.name(), "the console beside a server", check));
        }
        // It waits for starts and timeouts; against Kafka, only if asked for.
        if peer.id() == "ottla" || options.broker.is_some() {
            let check = || trouble::check(&peer, binary, dir.path());
            tally.add(attempt(peer.name(), "a cluster in trouble", check));
        }
    }
    Ok(tally)
}

/// Does a step and prints how it went.
fn attempt(peer: &str, name: &str, step: impl FnOnce() -> Result<()>) -> Tally {
    let began = Instant::now();
    let result = step();
    let seconds = began.elapsed().as_secs_f64();
    match &result {
        Ok(()) => println!("ok   {peer}: {name} ({seconds:.1} s)"),
        Err(error) => println!("FAIL {peer}: {name} ({seconds:.1} s): {error:#}"),
    }
    Tally::of(result.is_ok())
}
