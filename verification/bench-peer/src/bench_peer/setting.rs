//! The selection and size of the measurements from the command line, and the environment of every
//! group.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;

use super::machine;
use super::rows::Row;
use super::table::Results;
use ottla_peers::{InstalledPeer, Peer, parse_override};

/// Measures that share a set-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Group {
    /// One node on an empty directory: throughput, CPU, latency, start-up and memory, row by row.
    Node,
    /// Start after a clean stop with 2,000 partitions (--partitions).
    #[value(name = "start-2000")]
    Start,
    /// Start after kill -9 with as many partitions and 10 GB (--gigabytes) after the recovery point.
    Recovery,
    /// Both cleaners on a log of 5 GB (--gigabytes), 1 KB records, 10 % live.
    Compaction,
    /// Produce latency at 150 MB/s over 100 segment rolls, with a CSV file of the time series for each broker and round.
    Rolls,
    /// Ottla's tools, Kafka's and librdkafka, producing to and consuming from one Ottla.
    Client,
    /// From kill -9 of a leader to the first write with acks=all, in clusters of Kafka's, of Ottla's, and of both.
    Failover,
    /// TLS, SCRAM and new connections, against plaintext and on one core; 4 GB of disk.
    Security,
    /// Three brokers and three replicas: producers, CPU, latency, memory, and 10,000 partitions (--partitions).
    Cluster,
    /// Thousands of partitions on one node (--partitions, --handles): created, written, read, idle, restarted.
    Partitions,
    /// CPU and memory against the number of partitions, connections and consumers.
    Scale,
    /// Produce, tail and catch-up reads, and start, with 1 %, 10 % and all of 10 GB (--gigabytes) stored.
    Stored,
    /// 100,000 members of 10,000 groups (--groups) that send heartbeats, and a group of 10,000 members
    /// (--group-members) that members leave.
    Groups,
    /// Remote storage in S3, Kafka's with Aiven's plugin: upload, cold reads, tail latency beside them, memory.
    Tiered,
}

#[derive(clap::Args)]
pub struct Options {
    /// The measurements to run; repeatable, or separated by commas.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "node")]
    pub(super) only: Vec<Group>,
    /// List the measurements, and run none.
    #[arg(long)]
    pub(super) list: bool,
    /// Number of rounds.
    #[arg(long, default_value_t = 3)]
    pub(super) rounds: usize,
    /// Only these rows of the group `node`; repeatable, or separated by commas.
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(super) rows: Vec<Row>,
    /// Records per run of Kafka's producer and consumer tools; by default 10,000,000, in a cluster
    /// 5,000,000.
    #[arg(long)]
    pub(super) records: Option<u64>,
    /// 10^9 bytes: of large batches for the node, by default 10; of recovery, 10; of the log to
    /// compact, 5; of the group security, 1; of a run of the group scale, 2; of the largest log of
    /// the group stored, 10; of the tiered topic, 2.
    #[arg(long)]
    pub(super) gigabytes: Option<f64>,
    /// Partitions of the groups start-2000 and recovery, by default 2000, and of the groups cluster
    /// and partitions, 10,000.
    #[arg(long)]
    pub(super) partitions: Option<usize>,
    /// File handles of a native broker in the group partitions, by default a tenth of the partitions
    /// and at least 1,024.
    #[arg(long)]
    pub(super) handles: Option<usize>,
    /// Segments of 64 MiB that the group rolls fills.
    #[arg(long, default_value_t = 100)]
    pub(super) rolls: u64,
    /// The rate of the group rolls, in 10^6 bytes per second.
    #[arg(long, default_value_t = 150.0)]
    pub(super) roll_megabytes_per_second: f64,
    /// Session timeout of the brokers in the group failover.
    #[arg(long, default_value_t = 3000)]
    pub(super) session_timeout_ms: u64,
    /// Only these parts of the group cluster; repeatable, or separated by commas.
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(super) parts: Vec<Part>,
    /// Replicas of the many partitions of the group cluster.
    #[arg(long, default_value_t = BROKERS)]
    pub(super) replicas: usize,
    /// How long the group cluster measures latency.
    #[arg(long, default_value_t = 30)]
    pub(super) latency_seconds: u64,
    /// Groups of 10 members in the group groups.
    #[arg(long, default_value_t = 10_000)]
    pub(super) groups: usize,
    /// Members and partitions of the large consumer group in the group groups.
    #[arg(long, default_value_t = 10_000)]
    pub(super) group_members: usize,
    /// A setting of both brokers that overrides peers/server.properties; repeatable.
    #[arg(long = "override", value_name = "KEY=VALUE", value_parser = parse_override)]
    pub(super) overrides: Vec<(String, String)>,
    /// The peer that Ottla is compared with: the name of a file in peers/.
    #[arg(long, default_value = "kafka")]
    pub(super) peer: String,
    /// Compare Ottla with another build of itself instead: the path of that build's binary.
    #[arg(long, value_name = "PATH", conflicts_with = "peer")]
    pub(super) other_build: Option<PathBuf>,
    /// A folder with the jars of Aiven's plugin and its dependencies, or with its source, for the
    /// group tiered; by default its published source is fetched and compiled.
    #[arg(long, value_name = "DIR")]
    pub(super) plugin: Option<PathBuf>,
    /// Also write the tables to this file, as Markdown.
    #[arg(long)]
    pub(super) out: Option<PathBuf>,
}

impl Options {
    pub(super) fn load_peer(&self) -> Result<Peer> {
        match &self.other_build {
            Some(binary) => Peer::other_build(binary),
            None => Peer::load(&self.peer),
        }
    }

    pub(super) fn gigabytes_or(&self, default: f64) -> f64 {
        self.gigabytes.unwrap_or(default)
    }

    pub(super) fn records_or(&self, default: u64) -> u64 {
        self.records.unwrap_or(default)
    }

    /// Records of a run of Kafka's tools with one broker.
    pub(super) fn node_records(&self) -> u64 {
        self.records_or(10_000_000)
    }

    pub(super) fn partitions_or(&self, default: usize) -> usize {
        self.partitions.unwrap_or(default)
    }

    /// Partitions of a handed-over directory.
    pub(super) fn directory_partitions(&self) -> usize {
        self.partitions_or(2000)
    }

    /// Page cache and memory that one turn uses, in bytes.
    pub(super) fn memory_of(&self, group: Group) -> u64 {
        let gigabytes = |default| (self.gigabytes_or(default) * 1e9) as u64;
        match group {
            Group::Node => self.node_records() * 110 + 2 * gigabytes(10.0),
            Group::Start => 2 << 30,
            // Their files are already cached, and allocating memory now would evict them.
            Group::Recovery | Group::Compaction => 0,
            Group::Rolls => 4 << 30,
            Group::Client => self.node_records() * 2 * 110,
            Group::Failover | Group::Groups => 1 << 30,
            Group::Security => 3 * gigabytes(1.0) + (2 << 30),
            Group::Cluster => self.memory_of_cluster(),
            Group::Partitions | Group::Stored => 4 << 30,
            Group::Scale => 4 * gigabytes(2.0),
            // The log and the store, and the broker.
            Group::Tiered => 2 * gigabytes(2.0) + (2 << 30),
        }
    }
}

impl Group {
    pub(super) fn needs_load_generator(&self) -> bool {
        match self {
            Group::Node
            | Group::Start
            | Group::Recovery
            | Group::Rolls
            | Group::Security
            | Group::Partitions
            | Group::Scale
            | Group::Stored
            | Group::Groups
            | Group::Tiered => true,
            Group::Compaction | Group::Client | Group::Failover | Group::Cluster => false,
        }
    }
}

/// The environment of every group.
pub(super) struct Setting<'a> {
    pub(super) options: &'a Options,
    pub(super) group: Group,
    /// The peer, and Ottla.
    pub(super) sides: [&'a InstalledPeer; 2],
    /// Has Kafka's own tools.
    pub(super) kafka: &'a InstalledPeer,
    /// Built if a group needs it.
    pub(super) load_generator: Option<&'a Path>,
}

impl Setting<'_> {
    /// Runs each side once in every round, rotating which side is first.
    pub(super) fn alternate(
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

    /// Keeps the outcome of a turn. A failure of the peer is noted, and the run continues. A
    /// failure of Ottla ends it.
    pub(super) fn or_noted(
        &self,
        side: usize,
        round: usize,
        results: &mut Results,
        outcome: Result<()>,
    ) -> Result<()> {
        match outcome {
            Err(error) if side != results.last_side() => {
                let name = &results.names()[side];
                let error = format!("{error:#}");
                let error: Vec<&str> = error.lines().take(NOTED_LINES).collect();
                let (round, error) = (round + 1, error.join(" "));
                let note = format!("not measured: {name}, round {round}: {error}");
                results.add_note(note);
                Ok(())
            }
            outcome => outcome,
        }
    }

    pub(super) fn load_generator(&self) -> Result<&Path> {
        self.load_generator
            .context("the group does not need the load generator")
    }

    pub(super) fn name(&self) -> String {
        let value = self.group.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// Lines of a peer's failure that the report shows.
const NOTED_LINES: usize = 3;

pub const BROKERS: usize = 3;

/// Bytes of a record on disk, per replica.
pub(super) const STORED_BYTES: u64 = 110;

/// The measurements of a cluster, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Kafka's producer tool and three of Ottla's: rates, CPU time and memory of the brokers.
    Producers,
    /// From producer to consumer at 5,000 records per second.
    Latency,
    /// The first second of new topics, elections and reassignments, at 20,000 records per second.
    FirstSecond,
    /// 10,000 partitions: creation, idling, restart of a broker, failover of all its leaders.
    ManyPartitions,
}

pub const ALL: [Part; 4] = [
    Part::Producers,
    Part::Latency,
    Part::FirstSecond,
    Part::ManyPartitions,
];

impl Options {
    pub(super) fn parts(&self) -> &[Part] {
        match self.parts.as_slice() {
            [] => &ALL,
            some => some,
        }
    }

    /// Records of each run of producers.
    pub(super) fn cluster_records(&self) -> u64 {
        self.records_or(5_000_000)
    }

    pub(super) fn cluster_partitions(&self) -> usize {
        self.partitions_or(10_000)
    }

    /// Memory that a turn uses, in bytes.
    pub fn memory_of_cluster(&self) -> u64 {
        3 * self.cluster_records() * STORED_BYTES * BROKERS as u64 + (4 << 30)
    }

    pub fn check_cluster(&self) -> Result<()> {
        ensure!(
            (2..=BROKERS).contains(&self.replicas),
            "--replicas is 2 or {BROKERS}"
        );
        ensure!(
            self.latency_seconds > 0,
            "--latency-seconds must be 1 or more"
        );
        Ok(())
    }
}
