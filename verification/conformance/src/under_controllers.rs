//! `cargo xtask under-controllers`: runs one Ottla broker under an Apache Kafka controller and
//! operates it with Kafka's tools: topics, records, settings, a clean stop, a kill, and a
//! controller that goes away and returns.
//!
//! `mixed-cluster` covers this with many brokers under load; this command goes step by step and
//! names the failing step.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::run_dir::RunDir;
use ottla_peers::{InstalledPeer, Node, NodeOptions, Peer, Place, Role, Voters};
use ottla_testkit::lease_range;
use ottla_workspace::process;
use ottla_workspace::report::Tally;

const BROKER: i32 = 1;
const CONTROLLER: i32 = 101;
const RECORDS: usize = 1000;
/// 4.5-IV0, an unstable version in Kafka 4.4.0.
const NEWER_METADATA_VERSION: i16 = 34;
/// The peer that knows it.
const NEWER_KAFKA: &str = "kafka44";
const NEWER_SAYS: &str = "metadata.version";
/// The session of a broker that was stopped or killed, which a restarted one waits for: shorter than
/// the default of nine seconds.
const SESSION_TIMEOUT: Duration = Duration::from_secs(4);
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(500);
/// How long the broker may take to apply a change, on a busy machine.
const APPLYING: Duration = Duration::from_secs(120);
/// For a broker that is refused for another reason, at its first registration.
const REGISTRATION_PATIENCE: Duration = Duration::from_secs(9);

#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    run_dir: RunDir,
}

pub fn run(options: &Options) -> Result<()> {
    let dir = options.run_dir.make("under-controllers")?;
    let mut cluster = Cluster::new(&dir)?;
    let steps: [(&str, fn(&mut Cluster) -> Result<String>); 11] = [
        ("a broker joins", Cluster::start_broker),
        ("a topic is created and filled", Cluster::fill_topic),
        ("the tools see broker and quorum", Cluster::describe),
        ("settings are judged and stored", Cluster::change_settings),
        ("a clean stop and a start", Cluster::stop_and_start),
        ("a kill and a start", Cluster::kill_and_start),
        (
            "the controller goes and comes back",
            Cluster::restart_controller,
        ),
        ("a node.id in use is refused", Cluster::start_twin),
        (
            "a directory of another cluster is refused",
            Cluster::start_stranger,
        ),
        (
            "a cluster of a newer release is left alone",
            Cluster::start_behind,
        ),
        (
            "controllers that nobody can reach are named",
            Cluster::start_without_controller,
        ),
    ];
    let mut tally = Tally::default();
    for (what, step) in steps {
        let began = Instant::now();
        let outcome = step(&mut cluster);
        let outcome = outcome.map(|seen| format!("{seen} ({:.1?})", began.elapsed()));
        // Each step continues from the state that the previous one left.
        if !tally.check(what, outcome) {
            break;
        }
    }
    // Stops the nodes first, because they write into the folder.
    drop(cluster);
    tally.conclude(&dir, options.run_dir.keep)
}

struct Cluster {
    kafka: InstalledPeer,
    ottla: InstalledPeer,
    controller_options: NodeOptions,
    controller: Option<Node>,
    broker_options: NodeOptions,
    broker: Option<Node>,
}

impl Cluster {
    fn new(dir: &Path) -> Result<Cluster> {
        let kafka = Peer::load("kafka")?.install()?;
        let ottla = Peer::load("ottla")?.install()?;
        let (controller_port, broker_port) = (lease_range(2)?, lease_range(2)?);
        let options = |role, node_id, port, name: &str| NodeOptions {
            dir: dir.join(name),
            port: Some(port),
            place: Place::Member {
                node_id,
                role,
                voters: Voters::Static(format!("{CONTROLLER}@127.0.0.1:{controller_port}")),
            },
            overrides: settings(),
            ..NodeOptions::default()
        };
        let controller_options =
            options(Role::Controller, CONTROLLER, controller_port, "controller");
        let controller = kafka.start(controller_options.clone())?;
        Ok(Cluster {
            controller: Some(controller),
            controller_options,
            broker_options: options(Role::Broker, BROKER, broker_port, "broker"),
            broker: None,
            kafka,
            ottla,
        })
    }

    fn bootstrap(&self) -> String {
        let port = self.broker_options.port.unwrap_or_default();
        format!("127.0.0.1:{port}")
    }

    /// One of Kafka's tools with the broker's address.
    fn tool(&self, class: &str) -> Command {
        let mut tool = self.kafka.tool(class);
        tool.args(["--bootstrap-server", &self.bootstrap()]);
        tool
    }

    fn start_broker(&mut self) -> Result<String> {
        let broker = self.ottla.start(self.broker_options.clone())?;
        let took = broker.time_to_first_answer();
        self.broker = Some(broker);
        Ok(format!("answers after {took:.1?}"))
    }

    fn fill_topic(&mut self) -> Result<String> {
        self.create_topic("orders")?;
        let mut produce = self.tool("org.apache.kafka.tools.ConsoleProducer");
        produce.args(["--topic", "orders"]);
        let lines: String = (0..RECORDS).map(|number| format!("{number}\n")).collect();
        let mut child = produce
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut input = child.stdin.take().context("a pipe")?;
        std::io::Write::write_all(&mut input, lines.as_bytes())?;
        drop(input);
        let output = child.wait_with_output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "the console producer: {errors}");
        self.check_records()
    }

    fn create_topic(&self, name: &str) -> Result<()> {
        let mut create = self.tool("org.apache.kafka.tools.TopicCommand");
        create.args(["--create", "--topic", name, "--partitions", "3"]);
        create.args(["--replication-factor", "1"]);
        process::output_of(&mut create).map(drop)
    }

    /// Checks that every record is there once. Uses a group, which needs a coordinator on this
    /// broker.
    fn check_records(&self) -> Result<String> {
        let mut consume = self.tool("org.apache.kafka.tools.consumer.ConsoleConsumer");
        let records = RECORDS.to_string();
        consume.args(["--topic", "orders", "--from-beginning"]);
        consume.args(["--max-messages", &records, "--timeout-ms", "180000"]);
        let printed = process::output_of(&mut consume)?;
        let mut numbers: Vec<usize> = printed
            .lines()
            .filter_map(|line| line.parse().ok())
            .collect();
        numbers.sort_unstable();
        ensure!(
            numbers == (0..RECORDS).collect::<Vec<_>>(),
            "{} records are read, of {RECORDS}",
            numbers.len()
        );
        // The consumer stops at this count; the log end offsets show whether there are more
        // records.
        let mut ends = self.tool("org.apache.kafka.tools.GetOffsetShell");
        ends.args(["--topic", "orders", "--time", "latest"]);
        let printed = process::output_of(&mut ends)?;
        let end_offsets = printed
            .lines()
            .filter_map(|line| line.rsplit(':').next()?.parse::<usize>().ok());
        let stored: usize = end_offsets.sum();
        ensure!(
            stored == RECORDS,
            "{stored} records are stored, of {RECORDS}"
        );
        Ok(format!("{RECORDS} records read"))
    }

    fn describe(&mut self) -> Result<String> {
        let mut versions = self.tool("org.apache.kafka.tools.BrokerApiVersionsCommand");
        let printed = process::output_of(&mut versions)?;
        let line = printed.lines().next().unwrap_or_default().to_owned();
        ensure!(line.contains(&format!("(id: {BROKER} ")), "{line}");
        let mut quorum = self.tool("org.apache.kafka.tools.MetadataQuorumCommand");
        quorum.args(["describe", "--status"]);
        let printed = process::output_of(&mut quorum)?;
        let leads = format!("LeaderId:               {CONTROLLER}");
        ensure!(printed.contains(&leads), "{printed}");
        Ok(line)
    }

    fn change_settings(&mut self) -> Result<String> {
        let id = BROKER.to_string();
        let config = |arguments: &[&str]| {
            let mut config = self.tool("kafka.admin.ConfigCommand");
            config.args(["--entity-type", "brokers", "--entity-name", &id]);
            config.args(arguments);
            config
        };
        process::output_of(&mut config(&[
            "--alter",
            "--add-config",
            "log.cleaner.threads=2",
        ]))?;
        // The broker applies it after the controller has answered.
        process::retried(APPLYING, "the setting is described", || {
            let described = process::output_of(&mut config(&["--describe"]))?;
            ensure!(described.contains("log.cleaner.threads=2"), "{described}");
            Ok(())
        })?;
        let mut wrong = config(&["--alter", "--add-config", "log.cleaner.threads=none"]);
        let wrong = process::run_captured(&mut wrong)?;
        let said = String::from_utf8_lossy(&wrong.stderr);
        ensure!(
            !wrong.status.success() && said.contains("log.cleaner.threads"),
            "a value that is no number is taken: {said}"
        );
        Ok("a number is stored, anything else refused".to_owned())
    }

    fn stop_and_start(&mut self) -> Result<String> {
        let mut broker = self.broker.take().context("it runs")?;
        let began = Instant::now();
        let status = broker.stop()?;
        let stopped = began.elapsed();
        ensure!(status.success(), "it ended with {status}");
        let marker = broker.data_dir().join(".kafka_cleanshutdown");
        ensure!(marker.exists(), "there is no marker of a clean stop");
        let started = self.start_broker()?;
        self.check_records()?;
        Ok(format!("stopped in {stopped:.1?}, {started}"))
    }

    fn kill_and_start(&mut self) -> Result<String> {
        self.broker.take().context("it runs")?.kill()?;
        let started = self.start_broker()?;
        self.check_records()?;
        Ok(format!("{started}, the old session included"))
    }

    fn restart_controller(&mut self) -> Result<String> {
        self.controller.take().context("it runs")?.kill()?;
        // Produce and fetch do not need a controller.
        self.check_records()?;
        let controller = self.kafka.start(self.controller_options.clone())?;
        self.controller = Some(controller);
        self.create_topic("later")?;
        Ok("records are read without it, a topic is created after it".to_owned())
    }

    fn start_twin(&mut self) -> Result<String> {
        let patience = SESSION_TIMEOUT * 2;
        self.start_refused("twin", BROKER, patience, "is in use")
    }

    /// A broker whose directory belongs to another cluster.
    fn start_stranger(&mut self) -> Result<String> {
        let data = self
            .broker_options
            .dir
            .with_file_name("stranger")
            .join("data");
        std::fs::create_dir_all(&data)?;
        let properties = "version=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAZA\nnode.id=2\ndirectory.id=AAAAAAAAAAAAAAAAAAAAZQ\n";
        std::fs::write(data.join("meta.properties"), properties)?;
        let says = "cluster AAAAAAAAAAAAAAAAAAAAZA";
        self.start_refused("stranger", BROKER + 1, REGISTRATION_PATIENCE, says)
    }

    /// A broker whose controller has finalized a feature level that no broker of this release
    /// supports.
    fn start_behind(&mut self) -> Result<String> {
        let port = lease_range(2)?;
        let voters = Voters::Static(format!("{CONTROLLER}@127.0.0.1:{port}"));
        let mut options = NodeOptions {
            dir: self.controller_options.dir.with_file_name("newer"),
            port: Some(port),
            features: vec![format!("metadata.version={NEWER_METADATA_VERSION}")],
            ..self.controller_options.clone()
        };
        let unstable = "unstable.feature.versions.enable".to_owned();
        options.overrides.push((unstable, "true".to_owned()));
        let mut broker = self.broker_options.clone();
        for place in [&mut options.place, &mut broker.place] {
            if let Place::Member {
                voters: of_place, ..
            } = place
            {
                *of_place = voters.clone();
            }
        }
        let _newer = Peer::load(NEWER_KAFKA)?.install()?.start(options)?;
        let own = std::mem::replace(&mut self.broker_options, broker);
        let refused = self.start_refused("behind", BROKER + 1, REGISTRATION_PATIENCE, NEWER_SAYS);
        self.broker_options = own;
        refused
    }

    fn start_without_controller(&mut self) -> Result<String> {
        self.controller.take().context("it runs")?.stop()?;
        let says = "initial.broker.registration.timeout.ms=1000";
        self.start_refused("alone", BROKER + 1, Duration::from_secs(1), says)
    }

    /// Starts another broker, which must exit with an error; the running one is not affected.
    fn start_refused(
        &mut self,
        name: &str,
        node_id: i32,
        patience: Duration,
        says: &str,
    ) -> Result<String> {
        let timeout = (
            "initial.broker.registration.timeout.ms",
            patience.as_millis(),
        );
        let mut options = NodeOptions {
            dir: self.broker_options.dir.with_file_name(name),
            port: Some(lease_range(2)?),
            ..self.broker_options.clone()
        };
        let setting = (timeout.0.to_owned(), timeout.1.to_string());
        options.overrides.push(setting);
        if let Place::Member { node_id: id, .. } = &mut options.place {
            *id = node_id;
        }
        let (status, output) = self.ottla.start_refused(options)?;
        let is_said = output.lines().any(|line| line.contains(says));
        let last = output.lines().last().unwrap_or_default().to_owned();
        ensure!(!status.success() && is_said, "{status}: {output}");
        self.check_records()?;
        Ok(last)
    }
}

/// The settings of all nodes on top of `peers/server.properties`.
fn settings() -> Vec<(String, String)> {
    [
        ("broker.session.timeout.ms", SESSION_TIMEOUT),
        ("broker.heartbeat.interval.ms", HEARTBEAT_INTERVAL),
        // Each check of the records starts a group.
        ("group.initial.rebalance.delay.ms", Duration::ZERO),
    ]
    .map(|(key, time)| (key.to_owned(), time.as_millis().to_string()))
    .to_vec()
}
