//! `cargo xtask conformance`: runs the same scripts with third-party clients against Ottla and
//! Apache Kafka, and reports every difference.
//!
//! A client's script prints one line of JSON per step. `known-differences.toml` lists the steps
//! that may differ, each with a reason; a listed difference that no longer occurs is an error too.
//! Scripts that need several log directories, a receiver of client metrics, or a lower feature
//! level run on separate pairs of nodes, at the same time as those on plain nodes.
//!
//! The command also compares the advertised API tables, runs Kafka's command-line tools beside
//! Ottla's, reads each broker's segments with both brokers' tools, and starts each broker on a
//! directory that the other one holds. Scripts and tools that show a difference are run a second
//! time.

mod api_table;
mod clients;
pub mod comparison;
mod directory_in_use;
mod equipped;
pub mod printed;
mod repeated;
mod run;
mod secured;
mod secured_tools;
mod segments;
mod share_tools;
mod side;
mod streams_tools;
mod tool_pairs;
mod tool_server;
pub mod tools;
mod transaction_tools;

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, bail};

use clients::{Client, Nodes, Prepared};
use comparison::KnownDifferences;
use ottla_peers::java;
use ottla_peers::{InstalledPeer, Peer, reference};
use ottla_workspace::report::Tally;
use repeated::Found;
use side::{Side, shown, start_with, stop};

#[derive(clap::Args)]
pub struct Options {
    /// Only this client: java, tools, settings, confluent, aiokafka, franz, sarama, kafkajs,
    /// log-dirs, telemetry, transactions, shares, streams-groups, or the client of a language with
    /// the prefix `secured-`; or `pairs`: Kafka's command-line tools compared with Ottla's.
    /// Repeatable.
    #[arg(long = "client", value_name = "NAME")]
    clients: Vec<String>,
    /// Which brokers to compare. `kafka` runs Apache Kafka twice, which shows whether the scripts are repeatable;
    /// `ottla` likewise.
    #[arg(long, value_enum, default_value_t = Brokers::Both)]
    broker: Brokers,
    /// Only the scripts and tools on listeners with TLS and logins, with an authorizer and quotas.
    #[arg(long, conflicts_with = "clients")]
    secured: bool,
    /// Number of scripts that run in parallel: four, or eight with `--secured`, whose scripts
    /// mostly wait.
    #[arg(long)]
    jobs: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Brokers {
    Both,
    Kafka,
    Ottla,
}

impl Options {
    /// Whether to compare the tools that do not depend on a client's script.
    fn has_tools_alone(&self) -> bool {
        match self.clients.is_empty() {
            true => !self.secured,
            false => self.clients.iter().any(|name| name == clients::PAIRS),
        }
    }
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
    let selected = clients::selected(&options.clients, options.secured)?;
    let prepared = clients::prepare(&selected, &kafka)?;
    println!("clients are ready after {:.0?}", began.elapsed());
    let comparison = Comparison {
        kafka,
        options,
        known: KnownDifferences::load(options.broker == Brokers::Both)?,
    };
    // The scripts on plain nodes and the tools after them take as long as all other scripts
    // together.
    let (plain, others) = Nodes::ALL.split_at(1);
    std::thread::scope(|scope| {
        let others = scope.spawn(|| comparison.of_each(others, &prepared));
        let mut tally = comparison.of_each(plain, &prepared)?;
        tally.add(others.join().expect("a comparison does not panic")?);
        Ok(tally)
    })
}

/// The work for one pair of nodes.
struct Work {
    clients: Vec<Prepared>,
    /// Whether to compare the tools that do not depend on a client's script.
    has_tools_alone: bool,
}

impl Work {
    fn is_nothing(&self) -> bool {
        self.clients.is_empty() && !self.has_tools_alone
    }

    /// The part of this work in which a difference was found.
    fn again(&self, found: &[Found]) -> Work {
        let differed = |client: Option<Client>| {
            let mut differed = found.iter().filter(|it| it.has_differed());
            differed.any(|it| it.client == client)
        };
        let clients = self.clients.iter().filter(|it| differed(Some(it.client)));
        Work {
            clients: clients.cloned().collect(),
            has_tools_alone: differed(None),
        }
    }
}

/// State shared by all parts of a run.
struct Comparison<'a> {
    kafka: InstalledPeer,
    options: &'a Options,
    known: KnownDifferences,
}

impl Comparison<'_> {
    fn jobs(&self) -> usize {
        let default = if self.options.secured { 8 } else { 4 };
        self.options.jobs.unwrap_or(default)
    }

    fn is_of_two(&self) -> bool {
        self.options.broker == Brokers::Both
    }

    /// Runs the comparison on one pair of nodes of each of these kinds after the other.
    fn of_each(&self, kinds: &[Nodes], prepared: &[Prepared]) -> Result<Tally> {
        let mut tally = Tally::default();
        for &nodes in kinds {
            let clients = prepared.iter().filter(|it| it.client.nodes() == nodes);
            let work = Work {
                clients: clients.cloned().collect(),
                has_tools_alone: nodes == Nodes::Plain
                    && self.is_of_two()
                    && self.options.has_tools_alone(),
            };
            if !work.is_nothing() {
                tally.add(self.of(nodes, &work)?);
            }
        }
        Ok(tally)
    }

    /// Runs the comparison on a pair of nodes of this kind, and repeats the steps that differed.
    fn of(&self, nodes: Nodes, work: &Work) -> Result<Tally> {
        let is_checked = nodes == Nodes::Plain && self.is_of_two();
        let out = reference::run_dir("conformance");
        let mut sides = self.sides(nodes, &out)?;
        let mut tally = Tally::default();
        if is_checked {
            tally.add(api_table::compare(&sides[0].node, &sides[1].node)?);
        }
        let first = self.found(work, &sides, &out)?;
        if is_checked && self.options.clients.is_empty() {
            tally.add(directory_in_use::check(&sides, &out)?);
        }
        stop(&mut sides)?;
        if is_checked && !work.clients.is_empty() {
            tally.add(segments::cross_read(&sides[0], &sides[1], &out)?);
        }

        let again = work.again(&first);
        let mut second = Vec::new();
        if !again.is_nothing() {
            println!("steps that differed are compared once more, on new brokers");
            let out = out.join("again");
            let mut sides = self.sides(nodes, &out)?;
            second = self.found(&again, &sides, &out)?;
            stop(&mut sides)?;
        }
        let (judged, said) = repeated::judged(first, second);
        for line in said {
            println!("{line}");
        }
        tally.add(judged);
        Ok(tally)
    }

    /// The results of the scripts, then of the tools.
    fn found(&self, work: &Work, sides: &[Side; 2], out: &Path) -> Result<Vec<Found>> {
        std::fs::create_dir_all(out)?;
        let mut found = run::scripts(&work.clients, sides, self.jobs(), out, &self.known);
        if self.is_of_two() {
            let clients = work.clients.iter().map(|it| it.client);
            let after = clients.filter_map(|client| Some((tools_after(client)?, Some(client))));
            let alone = work.has_tools_alone.then_some((tool_pairs::STEPS, None));
            for (steps, client) in after.chain(alone) {
                found.push(tool_pairs::compare(steps, client, sides, out, &self.known)?);
            }
        }
        Ok(found)
    }

    /// Starts two brokers, each with its own label.
    fn sides(&self, nodes: Nodes, out: &Path) -> Result<[Side; 2]> {
        let kafka = &self.kafka;
        let start = |peer, label| self.start(nodes, peer, label, out);
        if self.options.broker == Brokers::Kafka {
            return Ok([start(kafka, "kafka")?, start(kafka, "kafka-again")?]);
        }
        let ottla = &Peer::load("ottla")?.install()?;
        Ok(match self.options.broker {
            Brokers::Ottla => [start(ottla, "ottla")?, start(ottla, "ottla-again")?],
            Brokers::Both | Brokers::Kafka => [start(kafka, "kafka")?, start(ottla, "ottla")?],
        })
    }

    fn start(&self, nodes: Nodes, peer: &InstalledPeer, label: &str, out: &Path) -> Result<Side> {
        match nodes {
            Nodes::Plain => start_with(peer, label, out.join(label), &[]),
            Nodes::Equipped => {
                let reporter = java::classes(&self.kafka, "reporter")?;
                equipped::start(peer, label, out, &reporter)
            }
            Nodes::Transactional => {
                let interval = "transaction.abort.timed.out.transaction.cleanup.interval.ms";
                let dir = out.join(format!("transactional-{label}"));
                start_with(peer, label, dir, &[(interval, "100".to_owned())])
            }
            Nodes::Secured => {
                let set_up = java::program(&self.kafka, "secured", "SetUp")?;
                secured::start(peer, label, out, &set_up)
            }
            Nodes::Sharing => {
                let settings = [
                    ("group.share.min.heartbeat.interval.ms", "200"),
                    ("group.share.heartbeat.interval.ms", "200"),
                    ("group.share.assignment.interval.ms", "0"),
                    ("group.share.min.record.lock.duration.ms", "1000"),
                    ("share.coordinator.state.topic.num.partitions", "4"),
                    ("offsets.topic.num.partitions", "4"),
                ]
                .map(|(key, value)| (key, value.to_owned()));
                let dir = out.join(format!("sharing-{label}"));
                start_with(peer, label, dir, &settings)
            }
        }
    }
}

/// The tools to compare on the state that this client's script left.
fn tools_after(client: Client) -> Option<&'static [tool_pairs::Step]> {
    match client {
        Client::StreamsGroups => Some(streams_tools::STEPS),
        Client::Transactions => Some(transaction_tools::STEPS),
        Client::Shares => Some(share_tools::STEPS),
        Client::SecuredJava => Some(secured_tools::STEPS),
        _ => None,
    }
}
