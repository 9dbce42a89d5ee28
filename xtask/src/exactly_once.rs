//! `cargo xtask exactly-once`: applications that read, work and write in transactions, while brokers and they themselves are
//! killed (`kill -9`) and started again; in the end each record must have been worked on once.
//!
//! `copies` are three processes that copy a topic record by record, as Kafka's own TransactionalMessageCopier does: the
//! copies must hold each number once, in order. `streams` is a Kafka Streams application with joins, windows and state
//! stores, whose output must be that of a run without faults; `streams-group` is the same in a group of KIP-1071.
//! `histories` are clients of ours that do this and that, and `ottla_testkit::client_histories` says what may not be in
//! what they were told. All read only what is committed. With several brokers, coordinators fail over and markers go from
//! broker to broker. A run that finds something keeps its folder.

mod application;
mod copies;
mod histories;
mod streams;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};

use crate::peer::{Cluster, InstalledPeer, Peer};
use crate::report::Tally;
use crate::seeded::Seeded;
use crate::workspace;

/// Of each topic.
const PARTITIONS: usize = 4;
/// Of each partition, where there are as many brokers.
const REPLICAS: usize = 3;

#[derive(clap::Args)]
pub struct Options {
    /// What works in transactions.
    #[arg(long, value_enum, default_value_t = Work::Copies)]
    work: Work,
    /// The brokers, by the names of files in peers/. One is its own controller.
    #[arg(long, value_delimiter = ',', default_value = "ottla")]
    brokers: Vec<String>,
    /// The controllers of several brokers, likewise.
    #[arg(long, value_delimiter = ',', default_value = "kafka")]
    controllers: Vec<String>,
    /// How often somebody is killed.
    #[arg(long, default_value_t = 8)]
    kills: usize,
    /// The `transaction.version` of the cluster, where it is not to be the highest.
    #[arg(long)]
    transaction_version: Option<u8>,
    /// The same seed makes the same choices; one of its own for each run unless given.
    #[arg(long)]
    seed: Option<u64>,
    /// Keep the folder of a run that found nothing too.
    #[arg(long)]
    keep: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Work {
    Copies,
    Streams,
    StreamsGroup,
    Histories,
}

pub fn run(options: &Options) -> Result<()> {
    ensure!(!options.brokers.is_empty(), "--brokers needs a name");
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let chance = now.unwrap_or_default().as_micros() as u64 % 1_000_000;
    let seed = options.seed.unwrap_or(chance);
    let dir = workspace::target_dir()
        .join("exactly-once")
        .join(format!("seed-{seed}"));
    if dir.exists() {
        std::fs::remove_dir_all(&dir)?;
    }
    std::fs::create_dir_all(&dir)?;
    println!(
        "brokers {}, {} kills, seed {seed}",
        options.brokers.join(", "),
        options.kills
    );
    let folder = dir.display();
    let wrong = tell(options, &mut Seeded::new(seed), &dir)
        .with_context(|| format!("with --seed {seed}; outputs in {folder}"))?;
    for fault in &wrong {
        println!("wrong: {fault}");
    }
    println!("{}", Tally::of(wrong.is_empty()));
    if !wrong.is_empty() {
        bail!(
            "{} faults with --seed {seed}; the folder is kept: {folder}",
            wrong.len()
        );
    }
    if !options.keep {
        std::fs::remove_dir_all(&dir)?;
    }
    Ok(())
}

/// All that happens between the start and the end; gives what is wrong.
fn tell(options: &Options, random: &mut Seeded, dir: &Path) -> Result<Vec<String>> {
    let mut stage = Stage::begin(options, dir)?;
    let mut wrong = match options.work {
        Work::Copies => copies::run(&mut stage, options.kills, random)?,
        Work::Streams => streams::run(&mut stage, options.kills, random, "classic")?,
        Work::StreamsGroup => streams::run(&mut stage, options.kills, random, "streams")?,
        Work::Histories => histories::run(&mut stage, options.kills, random)?,
    };
    for (name, status) in stage.cluster.stop()? {
        // The Java virtual machine ends with 128 + SIGTERM after an orderly stop.
        if !status.success() && status.code() != Some(143) {
            wrong.push(format!("{name} ended with {status}"));
        }
    }
    Ok(wrong)
}

/// The cluster, and where everything lies.
struct Stage {
    cluster: Cluster,
    kafka: InstalledPeer,
    dir: PathBuf,
    began: Instant,
}

impl Stage {
    fn begin(options: &Options, dir: &Path) -> Result<Stage> {
        let brokers = options.brokers.len();
        let controllers = match brokers {
            1 => &[],
            _ => options.controllers.as_slice(),
        };
        let mut cluster = Cluster::plan(&options.brokers, controllers, dir, &settings(brokers))?;
        if let Some(level) = options.transaction_version {
            let members = cluster.controllers.iter_mut().chain(&mut cluster.brokers);
            for member in members {
                member.options.features = vec![format!("transaction.version={level}")];
            }
        }
        cluster.start()?;
        Ok(Stage {
            cluster,
            kafka: Peer::load("kafka")?.install()?,
            dir: dir.to_owned(),
            began: Instant::now(),
        })
    }

    fn replicas(&self) -> usize {
        self.cluster.brokers.len().min(REPLICAS)
    }

    /// Kills a broker, and starts it again after a while.
    fn kill_broker(&mut self, random: &mut Seeded) -> Result<()> {
        let at = random.below(self.cluster.brokers.len() as u64) as usize;
        let several = self.cluster.brokers.len() > 1;
        let broker = &mut self.cluster.brokers[at];
        broker.take()?.kill()?;
        let away = Duration::from_millis(random.below(if several { 4000 } else { 1000 }));
        std::thread::sleep(away);
        broker.start()?;
        let name = broker.name();
        self.say(&format!("{name} killed, away for {away:.1?}"));
        if several {
            // The next one may only go when this one has what the others have.
            self.cluster
                .wait_until_in_sync("__transaction_state", self.replicas())?;
        }
        Ok(())
    }

    fn say(&self, what: &str) {
        println!("{:>5.1} s {what}", self.began.elapsed().as_secs_f64());
    }
}

/// What every node gets: small internal topics on all brokers, and transactions that are soon found to be left.
fn settings(brokers: usize) -> Vec<(&'static str, String)> {
    let replicas = brokers.min(REPLICAS).to_string();
    let in_sync = brokers.min(REPLICAS).div_ceil(2).to_string();
    vec![
        ("offsets.topic.replication.factor", replicas.clone()),
        ("offsets.topic.num.partitions", "4".to_owned()),
        ("transaction.state.log.replication.factor", replicas),
        ("transaction.state.log.min.isr", in_sync.clone()),
        ("transaction.state.log.num.partitions", "4".to_owned()),
        (
            "transaction.abort.timed.out.transaction.cleanup.interval.ms",
            "500".to_owned(),
        ),
        ("min.insync.replicas", in_sync),
        ("group.initial.rebalance.delay.ms", "0".to_owned()),
        ("group.streams.initial.rebalance.delay.ms", "0".to_owned()),
        ("group.streams.min.session.timeout.ms", "6000".to_owned()),
        ("group.streams.session.timeout.ms", "6000".to_owned()),
        ("group.streams.min.heartbeat.interval.ms", "1000".to_owned()),
        ("group.streams.heartbeat.interval.ms", "1000".to_owned()),
        ("broker.session.timeout.ms", "6000".to_owned()),
        ("replica.lag.time.max.ms", "5000".to_owned()),
        // What a Streams application reads and keeps is from long ago: retention would delete it, half a minute after a start.
        ("log.initial.task.delay.ms", "3600000".to_owned()),
    ]
}
