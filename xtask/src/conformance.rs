//! `cargo xtask conformance`: clients that nobody here wrote run the same scripts against Ottla and against Apache
//! Kafka, and every difference is reported.
//!
//! A client's script prints one line of JSON a step; `known-differences.toml` names the steps where the brokers may
//! differ, each with its reason, and a named difference that no longer occurs is an error too. Some scripts need nodes
//! with several log directories and with somebody who takes clients' metrics, or lower the level of a feature; those
//! run on pairs of their own.
//! Besides the scripts, the advertised API tables are compared, Kafka's command line tools are run beside ours, each
//! broker's segments are read by both brokers' tools, and each broker is started on the directory that the other one
//! holds.

mod api_table;
mod clients;
pub mod comparison;
mod directory_in_use;
mod equipped;
pub mod printed;
mod run;
mod segments;
mod share_tools;
mod streams_tools;
mod tool_pairs;
pub mod tools;
mod transaction_tools;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Result, bail};

use crate::peer::{InstalledPeer, Node, NodeOptions, Peer};
use crate::report::Tally;
use crate::{java, workspace};
use clients::{Nodes, Prepared};
use comparison::KnownDifferences;

#[derive(clap::Args)]
pub struct Options {
    /// Only this client: java, tools, settings, confluent, aiokafka, franz, sarama, kafkajs, log-dirs, telemetry,
    /// transactions, shares or streams-groups; may be repeated.
    #[arg(long = "client", value_name = "NAME")]
    clients: Vec<String>,
    /// Which brokers to compare. `kafka` runs Apache Kafka twice, which shows whether the scripts are repeatable;
    /// `ottla` likewise.
    #[arg(long, value_enum, default_value_t = Brokers::Both)]
    broker: Brokers,
    /// Only Kafka's command line tools beside ours, without the clients' scripts.
    #[arg(long, conflicts_with = "clients")]
    tool_pairs_only: bool,
    /// How many scripts run at one time.
    #[arg(long, default_value_t = 4)]
    jobs: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Brokers {
    Both,
    Kafka,
    Ottla,
}

/// One side of the comparison.
pub struct Side {
    /// `kafka` or `ottla`; `-again` is added where one broker is compared with itself.
    label: String,
    peer: InstalledPeer,
    node: Node,
    /// What its scripts are told besides its address.
    arguments: Vec<String>,
}

pub fn run(options: &Options) -> Result<()> {
    let tally = run_counted(options)?;
    println!("{tally}");
    if tally.failed > 0 {
        bail!(
            "{} of the comparisons found differences that are not known",
            tally.failed
        );
    }
    Ok(())
}

fn run_counted(options: &Options) -> Result<Tally> {
    let began = Instant::now();
    let kafka = Peer::load("kafka")?.install()?;
    let selected = match options.tool_pairs_only {
        true => Vec::new(),
        false => clients::selected(&options.clients)?,
    };
    let prepared = clients::prepare(&selected, &kafka)?;
    println!("clients are ready after {:.0?}", began.elapsed());
    let on = |nodes: Nodes| -> Vec<Prepared> {
        let prepared = prepared.iter();
        prepared
            .filter(|prepared| prepared.client.nodes() == nodes)
            .cloned()
            .collect()
    };
    let (plain, equipped) = (on(Nodes::Plain), on(Nodes::Equipped));
    let transactional = on(Nodes::Transactional);
    let sharing = on(Nodes::Sharing);

    let comparison = Comparison {
        kafka,
        options,
        known: KnownDifferences::load(options.broker == Brokers::Both)?,
        out: workspace::target_dir().join("conformance"),
    };
    let mut tally = Tally::default();
    if !plain.is_empty() || options.tool_pairs_only {
        tally.add(comparison.of_plain_nodes(&plain)?);
    }
    if !equipped.is_empty() {
        tally.add(comparison.of_equipped_nodes(&equipped)?);
    }
    if !transactional.is_empty() {
        tally.add(comparison.of_transactional_nodes(&transactional)?);
    }
    if !sharing.is_empty() {
        tally.add(comparison.of_sharing_nodes(&sharing)?);
    }
    Ok(tally)
}

/// What all parts of a run share.
struct Comparison<'a> {
    kafka: InstalledPeer,
    options: &'a Options,
    known: KnownDifferences,
    out: PathBuf,
}

impl Comparison<'_> {
    /// Two brokers, each started by `start` under a label of its own.
    fn sides(
        &self,
        start: impl Fn(&InstalledPeer, &str, &Path) -> Result<Side>,
    ) -> Result<[Side; 2]> {
        let (kafka, out) = (&self.kafka, &self.out);
        if self.options.broker == Brokers::Kafka {
            return Ok([
                start(kafka, "kafka", out)?,
                start(kafka, "kafka-again", out)?,
            ]);
        }
        let ottla = Peer::load("ottla")?.install()?;
        Ok(match self.options.broker {
            Brokers::Ottla => [
                start(&ottla, "ottla", out)?,
                start(&ottla, "ottla-again", out)?,
            ],
            Brokers::Both | Brokers::Kafka => {
                [start(kafka, "kafka", out)?, start(&ottla, "ottla", out)?]
            }
        })
    }

    fn of_equipped_nodes(&self, clients: &[Prepared]) -> Result<Tally> {
        let reporter = java::classes(&self.kafka, "reporter")?;
        let mut sides =
            self.sides(|peer, label, out| equipped::start(peer, label, out, &reporter))?;
        let jobs = self.options.jobs;
        let tally = run::scripts(clients, &sides, jobs, &self.out, &self.known)?;
        stop(&mut sides)?;
        Ok(tally)
    }

    fn of_transactional_nodes(&self, clients: &[Prepared]) -> Result<Tally> {
        let mut sides = self.sides(|peer, label, out| {
            let interval = "transaction.abort.timed.out.transaction.cleanup.interval.ms";
            let dir = out.join(format!("transactional-{label}"));
            start_with(peer, label, dir, &[(interval, "100".to_owned())])
        })?;
        let (jobs, known) = (self.options.jobs, &self.known);
        let mut tally = run::scripts(clients, &sides, jobs, &self.out, known)?;
        if self.options.broker == Brokers::Both {
            let steps = transaction_tools::STEPS;
            tally.add(tool_pairs::compare_steps(steps, &sides, &self.out, known)?);
        }
        stop(&mut sides)?;
        Ok(tally)
    }

    fn of_sharing_nodes(&self, clients: &[Prepared]) -> Result<Tally> {
        let settings = [
            ("group.share.min.heartbeat.interval.ms", "200"),
            ("group.share.heartbeat.interval.ms", "200"),
            ("group.share.assignment.interval.ms", "0"),
            ("group.share.min.record.lock.duration.ms", "1000"),
            ("share.coordinator.state.topic.num.partitions", "4"),
            ("offsets.topic.num.partitions", "4"),
        ]
        .map(|(key, value)| (key, value.to_owned()));
        let mut sides = self.sides(|peer, label, out| {
            let dir = out.join(format!("sharing-{label}"));
            start_with(peer, label, dir, &settings)
        })?;
        let (jobs, known) = (self.options.jobs, &self.known);
        let mut tally = run::scripts(clients, &sides, jobs, &self.out, known)?;
        if self.options.broker == Brokers::Both {
            let steps = share_tools::STEPS;
            tally.add(tool_pairs::compare_steps(steps, &sides, &self.out, known)?);
        }
        stop(&mut sides)?;
        Ok(tally)
    }

    fn of_plain_nodes(&self, clients: &[Prepared]) -> Result<Tally> {
        let (options, out, known) = (self.options, &self.out, &self.known);
        let mut sides = self.sides(start)?;
        let compares_two = options.broker == Brokers::Both;
        let mut tally = Tally::default();
        if compares_two {
            tally.add(api_table::compare(&sides[0].node, &sides[1].node)?);
        }
        if !options.tool_pairs_only {
            tally.add(run::scripts(clients, &sides, options.jobs, out, known)?);
        }
        let has_streams_groups = clients
            .iter()
            .any(|it| it.client == clients::Client::StreamsGroups);
        if compares_two && has_streams_groups {
            let steps = streams_tools::STEPS;
            tally.add(tool_pairs::compare_steps(steps, &sides, out, known)?);
        }
        if compares_two && options.clients.is_empty() {
            tally.add(tool_pairs::compare(&sides, out, known)?);
        }
        if compares_two && options.clients.is_empty() && !options.tool_pairs_only {
            tally.add(directory_in_use::check(&sides, out)?);
        }
        stop(&mut sides)?;
        if compares_two && !options.tool_pairs_only {
            tally.add(segments::cross_read(&sides[0], &sides[1], out)?);
        }
        Ok(tally)
    }
}

fn stop(sides: &mut [Side; 2]) -> Result<()> {
    for side in sides {
        if let Some(status) = side.node.ended()? {
            bail!(
                "{} ended by itself ({status}):\n{}",
                side.label,
                side.node.output_tail()
            );
        }
        let status = side.node.stop()?;
        println!("{} stopped: {status}", side.label);
    }
    Ok(())
}

fn start(peer: &InstalledPeer, label: &str, out: &Path) -> Result<Side> {
    start_with(peer, label, out.join(label), &[])
}

fn start_with(
    peer: &InstalledPeer,
    label: &str,
    dir: PathBuf,
    settings: &[(&str, String)],
) -> Result<Side> {
    if dir.exists() {
        std::fs::remove_dir_all(&dir)?;
    }
    let overrides = [
        // Groups begin soon, and a second member's join is not held back for three seconds.
        ("group.initial.rebalance.delay.ms", "500".to_owned()),
        // Members of the consumer protocol hear of a new assignment with their next heartbeat.
        ("group.consumer.min.heartbeat.interval.ms", "300".to_owned()),
        ("group.consumer.heartbeat.interval.ms", "300".to_owned()),
        ("group.streams.min.heartbeat.interval.ms", "300".to_owned()),
        ("group.streams.heartbeat.interval.ms", "300".to_owned()),
        // Groups that are left to the comparison of the tools keep their members for so long.
        ("group.streams.max.session.timeout.ms", "600000".to_owned()),
        ("auto.create.topics.enable", "true".to_owned()),
        // The scripts' records are from long ago: retention, which begins half a minute after the start, would delete those
        // in topics that were made by asking for them, in slow runs before a script has looked.
        ("log.initial.task.delay.ms", "3600000".to_owned()),
    ];
    let overrides = overrides
        .iter()
        .chain(settings)
        .map(|(key, value)| ((*key).to_owned(), value.clone()))
        .collect();
    let node = peer.start(NodeOptions {
        dir,
        port: None,
        overrides,
        ..NodeOptions::default()
    })?;
    Ok(Side {
        label: label.to_owned(),
        peer: peer.clone(),
        node,
        arguments: Vec::new(),
    })
}

/// Shows a list of differences under a heading.
fn shown(heading: &str, lines: &[String]) -> String {
    let mut text = format!("{heading}\n");
    for line in lines {
        let _ = writeln!(text, "    {line}");
    }
    text
}
