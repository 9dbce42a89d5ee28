//! `cargo xtask bench-peer`: Ottla and Apache Kafka on this machine, with the same configuration, under the same
//! clients, interleaved over several rounds.
//!
//! One broker or cluster runs at a time, and the order changes from round to round. What is measured is in groups: a node on an
//! empty directory, which is what runs unless others are asked for; starts and recoveries of one directory with
//! thousands of partitions, handed from broker to broker; the cleaners; latency over segment rolls; three clients of one
//! broker, Ottla's; and clusters of three brokers: what they carry, and how they fail over. The memory that
//! a turn will touch is touched before it, since a virtual machine's host takes idle memory back and the first touch
//! costs more than the work that is measured. Each measure is given as the median over the rounds with its lowest and
//! highest value, and so is the ratio of the two brokers within a round; the machine's own noise stands beside, and the
//! goals with what became of them below. A broker or client that fails ends the command with an error.

mod clients;
mod cluster;
mod compaction;
mod disk;
mod failover;
mod goals;
mod handed_over;
mod machine;
mod node;
mod rolls;
mod rows;
mod table;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use crate::peer::{InstalledPeer, Peer, parse_override};
use crate::{process, workspace};

use rows::Row;
use table::Results;

/// Measures that share a set-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Group {
    /// One node on an empty directory: throughput, CPU, latency, start-up and memory, row by row.
    Node,
    /// Start after a clean stop with 2,000 partitions (--partitions).
    #[value(name = "start-2000")]
    Start,
    /// Start after kill -9 with as many partitions and 10 GB (--gigabytes) behind the recovery point.
    Recovery,
    /// Both cleaners on a log of 5 GB (--gigabytes), 1 KB records, 10 % live.
    Compaction,
    /// Produce latency at 150 MB/s over 100 segment rolls, with a time series as a CSV file a broker and round.
    Rolls,
    /// Ottla's tools, Kafka's and librdkafka, producing to and consuming from one Ottla.
    Client,
    /// From kill -9 of a leader to the first write with acks=all, in clusters of Kafka's, of Ottla's, and of both.
    Failover,
    /// Three brokers and three replicas: producers, CPU, latency, memory, and 10,000 partitions (--partitions).
    Cluster,
}

#[derive(clap::Args)]
pub struct Options {
    /// What is measured; may be repeated or separated by commas.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "node")]
    only: Vec<Group>,
    /// Print what can be measured, and measure nothing.
    #[arg(long)]
    list: bool,
    /// How often each broker is measured.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Only these rows of the group `node`; may be repeated or separated by commas.
    #[arg(long, value_enum, value_delimiter = ',')]
    rows: Vec<Row>,
    /// Records of a run of Kafka's producer and consumer tools: 10,000,000 unless given; in a cluster, 5,000,000.
    #[arg(long)]
    records: Option<u64>,
    /// 10^9 bytes: of large batches for the node, 10 unless given; of recovery, 10; of the log to compact, 5.
    #[arg(long)]
    gigabytes: Option<f64>,
    /// Partitions of the groups start-2000 and recovery, 2000 unless given, and of the group cluster, 10,000.
    #[arg(long)]
    partitions: Option<usize>,
    /// Segments of 64 MiB that the group rolls fills.
    #[arg(long, default_value_t = 100)]
    rolls: u64,
    /// The rate of the group rolls, in 10^6 bytes per second.
    #[arg(long, default_value_t = 150.0)]
    roll_megabytes_per_second: f64,
    /// How long the controllers of the group failover wait for a broker that is silent.
    #[arg(long, default_value_t = 3000)]
    session_timeout_ms: u64,
    /// Only these parts of the group cluster; may be repeated or separated by commas.
    #[arg(long, value_enum, value_delimiter = ',')]
    parts: Vec<cluster::Part>,
    /// Replicas of the many partitions of the group cluster.
    #[arg(long, default_value_t = cluster::BROKERS)]
    replicas: usize,
    /// How long the group cluster measures latency.
    #[arg(long, default_value_t = 30)]
    latency_seconds: u64,
    /// A setting of both brokers on top of peers/server.properties; may be repeated.
    #[arg(long = "override", value_name = "KEY=VALUE", value_parser = parse_override)]
    overrides: Vec<(String, String)>,
    /// The peer that Ottla is compared with: the name of a file in peers/.
    #[arg(long, default_value = "kafka")]
    peer: String,
    /// Writes the tables to this file as Markdown, too.
    #[arg(long)]
    out: Option<PathBuf>,
}

impl Options {
    fn gigabytes_or(&self, default: f64) -> f64 {
        self.gigabytes.unwrap_or(default)
    }

    fn records_or(&self, default: u64) -> u64 {
        self.records.unwrap_or(default)
    }

    /// Of Kafka's tools with one broker.
    fn node_records(&self) -> u64 {
        self.records_or(10_000_000)
    }

    fn partitions_or(&self, default: usize) -> usize {
        self.partitions.unwrap_or(default)
    }

    /// Of a directory that is handed over.
    fn directory_partitions(&self) -> usize {
        self.partitions_or(2000)
    }

    /// Page cache and memory that one turn goes through.
    fn memory_of(&self, group: Group) -> u64 {
        let gigabytes = |default| (self.gigabytes_or(default) * 1e9) as u64;
        match group {
            Group::Node => self.node_records() * 110 + 2 * gigabytes(10.0),
            Group::Start => 2 << 30,
            // Their files are in the page cache already, and memory taken now would drive them out.
            Group::Recovery | Group::Compaction => 0,
            Group::Rolls => 4 << 30,
            Group::Client => self.node_records() * 2 * 110,
            Group::Failover => 1 << 30,
            Group::Cluster => self.memory_of_cluster(),
        }
    }
}

impl Group {
    fn needs_load_generator(&self) -> bool {
        match self {
            Group::Node | Group::Start | Group::Recovery | Group::Rolls => true,
            Group::Compaction | Group::Client | Group::Failover | Group::Cluster => false,
        }
    }
}

/// What every group measures with.
struct Setting<'a> {
    options: &'a Options,
    group: Group,
    /// The peer, and Ottla.
    sides: [&'a InstalledPeer; 2],
    /// Brings Kafka's own tools.
    kafka: &'a InstalledPeer,
    /// Built where a group needs it.
    load_generator: Option<&'a Path>,
}

impl Setting<'_> {
    /// Gives each side its turn in every round, another first each time.
    fn alternate(
        &self,
        results: &mut Results,
        mut turn: impl FnMut(usize, usize, &mut Results) -> Result<()>,
    ) -> Result<()> {
        let rounds = self.options.rounds;
        let sides = results.names().len();
        for round in 0..rounds {
            for side in (0..sides).map(|place| (place + round) % sides) {
                let name = results.names()[side].clone();
                println!("{}, round {} of {rounds}: {name}", self.name(), round + 1);
                let memory = self.options.memory_of(self.group);
                machine::touch_memory(memory.min(machine::available_memory() / 2))?;
                results.add_noise(machine::noise());
                turn(side, round, results).with_context(|| format!("{}, {name}", self.name()))?;
                results.print_turn(side, round);
            }
        }
        Ok(())
    }

    fn load_generator(&self) -> Result<&Path> {
        self.load_generator
            .context("the group is not among those that need the load generator")
    }

    fn name(&self) -> String {
        let value = self.group.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

pub fn run(options: &Options) -> Result<()> {
    if options.list {
        list();
        return Ok(());
    }
    if options.rounds == 0 {
        bail!("--rounds must be 1 or more");
    }
    if options.gigabytes.is_some_and(|gigabytes| gigabytes <= 0.0) {
        bail!("--gigabytes must be more than 0");
    }
    options.check_cluster()?;
    let peer = Peer::load(&options.peer)?.install()?;
    let kafka = match options.peer.as_str() {
        "kafka" => peer.clone(),
        // The Java clients come with it whatever the peer is.
        _ => Peer::load("kafka")?.install()?,
    };
    let ottla = Peer::load("ottla")?.install()?;
    let load_generator = match options.only.iter().any(Group::needs_load_generator) {
        true => Some(workspace::release_binary("ottla-bench", "ottla-load")?),
        false => None,
    };
    let mut text = String::new();
    for group in &options.only {
        let setting = Setting {
            options,
            group: *group,
            sides: [&peer, &ottla],
            kafka: &kafka,
            load_generator: load_generator.as_deref(),
        };
        let mut results = match group {
            Group::Client => Results::new(&clients::NAMES),
            Group::Failover => Results::new(&failover::NAMES),
            _ => Results::new(&[peer.name(), ottla.name()]),
        };
        match group {
            Group::Node => node::measure(&setting, &mut results)?,
            Group::Start => handed_over::start(&setting, &mut results)?,
            Group::Recovery => handed_over::recovery(&setting, &mut results)?,
            Group::Compaction => compaction::measure(&setting, &mut results)?,
            Group::Rolls => rolls::measure(&setting, &mut results)?,
            Group::Client => clients::measure(&setting, &mut results)?,
            Group::Failover => failover::measure(&setting, &mut results)?,
            Group::Cluster => cluster::measure(&setting, &mut results)?,
        }
        let table = results.markdown(&conditions(&setting)?);
        let part = format!(
            "## {}\n\n{table}\n{}",
            setting.name(),
            goals::markdown(&results)
        );
        println!("\n{part}");
        text.push_str(&part);
        text.push('\n');
        // Group by group, so that what is there outlives a group that fails.
        if let Some(file) = &options.out {
            std::fs::write(workspace::root().join(file), &text)?;
        }
    }
    Ok(())
}

fn list() {
    fn show<T: ValueEnum>(values: &[T]) {
        for value in values.iter().filter_map(ValueEnum::to_possible_value) {
            let help = value.get_help().map(ToString::to_string);
            println!("  {:16} {}", value.get_name(), help.unwrap_or_default());
        }
    }
    println!("groups, for --only:");
    show(Group::value_variants());
    println!("rows of the group node, for --rows:");
    show(Row::value_variants());
    println!("parts of the group cluster, for --parts:");
    show(cluster::Part::value_variants());
}

/// What the numbers hold for.
fn conditions(setting: &Setting<'_>) -> Result<Vec<String>> {
    let options = setting.options;
    let commit = process::output_of(
        std::process::Command::new("git")
            .args(["describe", "--always", "--dirty"])
            .current_dir(workspace::root()),
    )?;
    let partitions = options.directory_partitions();
    let load = match setting.group {
        Group::Node => format!(
            "{} records of Kafka's tools, {} GB of the native load generator, files of deleted topics deleted after 1 s",
            options.node_records(),
            options.gigabytes_or(10.0)
        ),
        Group::Start => format!(
            "{partitions} partitions with a few records each, one directory handed from broker to broker, its files \
             written back and read before each start"
        ),
        Group::Recovery => format!(
            "{partitions} partitions and {} GB, all behind the recovery point, one directory handed from broker to \
             broker, its files written back and read before each start",
            options.gigabytes_or(10.0)
        ),
        Group::Compaction => format!(
            "{} GB of 1 KB records, 10 % live, the cleaners without their brokers, the log in the page cache",
            options.gigabytes_or(5.0)
        ),
        Group::Rolls => format!(
            "one partition, batches of 64 KiB at {} MB/s, {} segments of 64 MiB, retention 1 GiB looked at every 5 s",
            options.roll_megabytes_per_second, options.rolls
        ),
        Group::Client => format!(
            "{} records of 100 bytes, 6 partitions, one broker, {}; {}",
            options.node_records(),
            setting.sides[1].name(),
            clients::settings_in_words()
        ),
        Group::Failover => failover::settings_in_words(options.session_timeout_ms),
        Group::Cluster => cluster::settings_in_words(options),
    };
    let mut conditions = vec![
        format!("commit {}", commit.trim()),
        machine::description(),
        format!("{} rounds, {load}", options.rounds),
    ];
    for variable in ["OTTLA_BINARY", "OTTLA_LOAD_BINARY"] {
        if std::env::var_os(variable).is_some() {
            conditions.push(format!(
                "{variable} names a build that may be of another commit"
            ));
        }
    }
    for (key, value) in &options.overrides {
        conditions.push(format!("{key}={value}"));
    }
    Ok(conditions)
}
