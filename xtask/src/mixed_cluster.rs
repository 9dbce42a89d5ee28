//! `cargo xtask mixed-cluster`: brokers of several makers in one cluster, under controllers of either, while Kafka's own
//! `VerifiableProducer` (`acks=all`, idempotent) writes and `VerifiableConsumer` reads and one broker after the other is
//! stopped or killed and comes back.
//!
//! In the end nothing that was acknowledged may be lost, nothing stored twice, no offset left out and the order kept;
//! and the replicas' logs are the same byte for byte. The seed decides who meets with what, and when; what it takes until
//! all replicas are in sync again is printed. A run that finds something keeps its folder.

mod clients;
mod history;
mod replicas;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};

use crate::peer::{
    InstalledPeer, Node, NodeOptions, Peer, Place, Role, fewest_in_sync, free_port_pair,
};
use crate::report::Tally;
use crate::seeded::Seeded;
use crate::{process, workspace};
use clients::Clients;

const TOPIC: &str = "orders";
const PARTITIONS: usize = 3;
/// Brokers are numbered from 1, controllers from here.
const FIRST_CONTROLLER: i32 = 101;
/// Above what a broker that is started on two busy cores takes to be back in sync.
const SYNC_PATIENCE: Duration = Duration::from_secs(180);

#[derive(clap::Args)]
pub struct Options {
    /// The brokers, by the names of files in peers/.
    #[arg(long, value_delimiter = ',', default_value = "ottla,ottla,kafka")]
    brokers: Vec<String>,
    /// The controllers, likewise.
    #[arg(long, value_delimiter = ',', default_value = "kafka")]
    controllers: Vec<String>,
    /// How often a broker is stopped or killed; each in its turn.
    #[arg(long, default_value_t = 6)]
    troubles: usize,
    /// In place of troubles: each broker in turn is stopped, and started on its directory by this maker; and the same way
    /// back. No partition may have fewer replicas in sync meanwhile than a rolling restart leaves.
    #[arg(long, value_name = "PEER")]
    rolling: Option<String>,
    /// The same seed makes the same choices; one of its own for each run unless given.
    #[arg(long)]
    seed: Option<u64>,
    /// Where the run's folder is made, in place of the target directory.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Keep the folder of a run that found nothing too.
    #[arg(long)]
    keep: bool,
}

pub fn run(options: &Options) -> Result<()> {
    ensure!(
        options.brokers.len() > 1 && !options.controllers.is_empty(),
        "--brokers needs two names or more, and --controllers one"
    );
    let seed = options.seed.unwrap_or_else(chance);
    let dir = options
        .dir
        .clone()
        .unwrap_or_else(|| workspace::target_dir().join("mixed-cluster"))
        .join(format!("seed-{seed}"));
    if dir.exists() {
        std::fs::remove_dir_all(&dir)?;
    }
    std::fs::create_dir_all(&dir)?;
    let what = match &options.rolling {
        Some(peer) => format!("handed to {peer} one by one and back"),
        None => format!("{} troubles", options.troubles),
    };
    println!(
        "brokers {}, controllers {}, {what}, seed {seed}",
        options.brokers.join(", "),
        options.controllers.join(", "),
    );
    let outcome = Cluster::start(options, &dir).and_then(|mut cluster| {
        let wrong = cluster.story(options, &mut Seeded::new(seed), &dir);
        wrong.map(|wrong| (cluster, wrong))
    });
    let folder = dir.display();
    let (cluster, wrong) =
        outcome.with_context(|| format!("with --seed {seed}; outputs in {folder}"))?;
    drop(cluster);
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

/// A seed of its own for each run, short enough to be typed.
fn chance() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_micros() as u64 % 1_000_000
}

/// What happens to a broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    Stopped,
    Killed,
}

/// Whom a broker's directory is handed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// To the other maker.
    There,
    /// To the one that it came from.
    Back,
}

/// A broker that can be started again on its directory.
struct Member {
    /// Who wrote the directory first.
    first: InstalledPeer,
    /// Who runs, or ran last.
    peer: InstalledPeer,
    /// Who is started the next time.
    next: InstalledPeer,
    options: NodeOptions,
    /// None while it is down.
    node: Option<Node>,
    node_id: i32,
    port: u16,
}

impl Member {
    fn name(&self) -> String {
        format!("broker {} ({})", self.node_id, self.peer.name())
    }

    fn log_dir(&self) -> PathBuf {
        self.options.dir.join("data")
    }

    fn start(&mut self) -> Result<()> {
        self.peer = self.next.clone();
        let started = self.peer.start(self.options.clone());
        self.node = Some(started.with_context(|| self.name())?);
        Ok(())
    }
}

struct Cluster {
    controllers: Vec<Node>,
    brokers: Vec<Member>,
    kafka: InstalledPeer,
}

impl Cluster {
    /// Starts the controllers and then the brokers, and has the topic made by Kafka's own tool.
    fn start(options: &Options, dir: &Path) -> Result<Cluster> {
        let kafka = Peer::load("kafka")?.install()?;
        let ports = |count: usize| {
            (0..count)
                .map(|_| free_port_pair())
                .collect::<Result<Vec<_>>>()
        };
        let controller_ports = ports(options.controllers.len())?;
        let voters: Vec<String> = (FIRST_CONTROLLER..)
            .zip(&controller_ports)
            .map(|(id, port)| format!("{id}@127.0.0.1:{port}"))
            .collect();
        let node_options = |role, node_id: i32, port| NodeOptions {
            dir: dir.join(match role {
                Role::Broker => format!("broker-{node_id}"),
                Role::Controller => format!("controller-{node_id}"),
            }),
            port: Some(port),
            overrides: settings(options.brokers.len()),
            place: Place::Member {
                node_id,
                role,
                voters: voters.join(","),
            },
            ..NodeOptions::default()
        };
        let mut controllers = Vec::new();
        for ((name, port), id) in options
            .controllers
            .iter()
            .zip(controller_ports)
            .zip(FIRST_CONTROLLER..)
        {
            let peer = Peer::load(name)?.install()?;
            controllers.push(peer.start(node_options(Role::Controller, id, port))?);
        }
        let mut brokers = Vec::new();
        for ((name, port), node_id) in options
            .brokers
            .iter()
            .zip(ports(options.brokers.len())?)
            .zip(1..)
        {
            let peer = Peer::load(name)?.install()?;
            let mut broker = Member {
                first: peer.clone(),
                peer: peer.clone(),
                next: peer,
                options: node_options(Role::Broker, node_id, port),
                node: None,
                node_id,
                port,
            };
            broker.start()?;
            brokers.push(broker);
        }
        let cluster = Cluster {
            controllers,
            brokers,
            kafka,
        };
        cluster.create_topic()?;
        cluster.wait_until_in_sync()?;
        Ok(cluster)
    }

    fn bootstrap(&self) -> String {
        let addresses = self
            .brokers
            .iter()
            .map(|broker| format!("127.0.0.1:{}", broker.port));
        addresses.collect::<Vec<_>>().join(",")
    }

    fn create_topic(&self) -> Result<()> {
        let mut create = self.kafka.tool("org.apache.kafka.tools.TopicCommand");
        create.args(["--bootstrap-server", &self.bootstrap(), "--create"]);
        create.args(["--topic", TOPIC, "--partitions", &PARTITIONS.to_string()]);
        create.args(["--replication-factor", &self.brokers.len().to_string()]);
        // Segments end often, and each broker's where it likes.
        create.args([
            "--config",
            "min.insync.replicas=2",
            "--config",
            "segment.bytes=1048576",
        ]);
        process::output_of(&mut create)?;
        Ok(())
    }

    /// Waits until every broker that runs says that all replicas are in sync; how long that took.
    fn wait_until_in_sync(&self) -> Result<Duration> {
        let began = Instant::now();
        let replicas = self.brokers.len();
        while began.elapsed() < SYNC_PATIENCE {
            let running = self.brokers.iter().filter(|broker| broker.node.is_some());
            let says_so = |broker: &Member| {
                fewest_in_sync(broker.port, TOPIC).is_ok_and(|fewest| fewest == replicas)
            };
            if running.clone().all(says_so) {
                return Ok(began.elapsed());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        bail!("the replicas are not in sync after {SYNC_PATIENCE:?}");
    }

    /// All that happens between the start and the end; gives what is wrong.
    fn story(&mut self, options: &Options, random: &mut Seeded, dir: &Path) -> Result<Vec<String>> {
        let mut clients = Clients::start(&self.kafka, &self.bootstrap(), TOPIC, dir)?;
        let mut wrong = Vec::new();
        match &options.rolling {
            Some(peer) => wrong.extend(self.hand_over_and_back(peer)?),
            None => self.troubles(options.troubles, random)?,
        }
        clients.wait_for_more()?;
        let produced = clients.stop_producing()?;
        let expected = produced.acknowledged.len();
        let log = clients::read_all(&self.kafka, &self.bootstrap(), TOPIC, expected)?;
        let seen = clients.stop_consuming(&log)?;
        println!(
            "{} records acknowledged, {} failed, {} in the log, {} consumed meanwhile",
            produced.acknowledged.len(),
            produced.failed.len(),
            log.len(),
            seen.len()
        );
        ensure!(!produced.acknowledged.is_empty(), "nothing was written");
        wrong.extend(history::check_log(&produced, &log));
        wrong.extend(history::check_consumer(&seen, &log));
        self.wait_until_in_sync()?;
        let log_dirs: Vec<(String, PathBuf)> = self
            .brokers
            .iter()
            .map(|broker| (broker.name(), broker.log_dir()))
            .collect();
        for broker in &mut self.brokers {
            if let Some(mut node) = broker.node.take() {
                let status = node.stop()?;
                if broker.peer.id() == "ottla" && !status.success() {
                    wrong.push(format!("broker {} ended with {status}", broker.node_id));
                }
            }
        }
        let mut bytes = 0;
        for partition in 0..PARTITIONS {
            let of_partition = replicas::compare(&log_dirs, &format!("{TOPIC}-{partition}"))?;
            bytes += of_partition.0;
            wrong.extend(of_partition.1);
        }
        println!(
            "{bytes} bytes of log compared in {} replicas",
            self.brokers.len()
        );
        for controller in &mut self.controllers {
            controller.stop()?;
        }
        Ok(wrong)
    }

    fn troubles(&mut self, troubles: usize, random: &mut Seeded) -> Result<()> {
        for number in 0..troubles {
            std::thread::sleep(Duration::from_millis(1000 + random.below(2000)));
            let trouble = match random.one_in(2) {
                true => Trouble::Stopped,
                false => Trouble::Killed,
            };
            let down = Duration::from_millis(random.below(6000));
            let at = number % self.brokers.len();
            self.trouble(at, trouble, down)?;
        }
        Ok(())
    }

    /// Has each broker stopped and started by another maker, and then each by its first one. Gives what is wrong with
    /// the replicas in sync.
    fn hand_over_and_back(&mut self, peer: &str) -> Result<Option<String>> {
        let other = Peer::load(peer)?.install()?;
        let watch = InSyncWatch::start(self.brokers.iter().map(|broker| broker.port).collect());
        for way in [Way::There, Way::Back] {
            for at in 0..self.brokers.len() {
                std::thread::sleep(Duration::from_secs(2));
                let broker = &mut self.brokers[at];
                broker.next = match way {
                    Way::There => other.clone(),
                    Way::Back => broker.first.clone(),
                };
                watch.away.store(self.brokers[at].port, Ordering::SeqCst);
                self.trouble(at, Trouble::Stopped, Duration::ZERO)?;
                watch.away.store(0, Ordering::SeqCst);
            }
        }
        let fewest = watch.end();
        ensure!(
            fewest != usize::MAX,
            "no broker has said how many replicas are in sync"
        );
        let least = self.brokers.len() - 1;
        println!(
            "never fewer than {fewest} of {} replicas in sync",
            self.brokers.len()
        );
        Ok((fewest < least).then(|| format!("only {fewest} replicas were in sync at a time")))
    }

    fn trouble(&mut self, at: usize, trouble: Trouble, down: Duration) -> Result<()> {
        let broker = &mut self.brokers[at];
        let name = broker.name();
        let mut node = broker.node.take().context("it runs between troubles")?;
        let began = Instant::now();
        match trouble {
            Trouble::Killed => node.kill()?,
            Trouble::Stopped => {
                node.stop()?;
            }
        }
        let ended = began.elapsed();
        let output = broker.options.dir.join("output.log");
        let kept = format!("output-{}.log", output_number(&broker.options.dir)?);
        std::fs::rename(output, broker.options.dir.join(kept))?;
        std::thread::sleep(down);
        broker.start()?;
        let by = match broker.name() == name {
            true => String::new(),
            false => format!(" as {}", broker.peer.name()),
        };
        let start = broker.node.as_ref().map(Node::time_to_first_answer);
        let in_sync = self.wait_until_in_sync()?;
        println!(
            "{name} {} in {ended:.1?}, down for {down:.1?}, answers{by} after {:.1?}, all in sync {in_sync:.1?} later",
            format!("{trouble:?}").to_lowercase(),
            start.unwrap_or_default(),
        );
        Ok(())
    }
}

/// Looks again and again how many replicas are in sync, at all brokers but the one that is away: it comes back with what it
/// knew before.
struct InSyncWatch {
    /// The port of the broker that is away, 0 for none.
    away: Arc<AtomicU16>,
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<usize>,
}

impl InSyncWatch {
    fn start(ports: Vec<u16>) -> InSyncWatch {
        let away = Arc::new(AtomicU16::new(0));
        let is_over = Arc::new(AtomicBool::new(false));
        let (away_there, is_over_there) = (Arc::clone(&away), Arc::clone(&is_over));
        let thread = std::thread::spawn(move || {
            let mut fewest = usize::MAX;
            while !is_over_there.load(Ordering::Relaxed) {
                for &port in &ports {
                    let known = fewest_in_sync(port, TOPIC);
                    // Asked afterwards: it may have gone meanwhile.
                    if let Ok(known) = known
                        && away_there.load(Ordering::SeqCst) != port
                    {
                        fewest = fewest.min(known);
                    }
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            fewest
        });
        InSyncWatch {
            away,
            is_over,
            thread,
        }
    }

    fn end(self) -> usize {
        self.is_over.store(true, Ordering::Relaxed);
        // A panic in it has been reported where it happened, and nothing is known then.
        self.thread.join().unwrap_or(0)
    }
}

/// How many outputs were kept of a broker.
fn output_number(dir: &Path) -> Result<usize> {
    let mut kept = 0;
    for entry in std::fs::read_dir(dir)? {
        let name = entry?.file_name();
        kept += usize::from(name.to_string_lossy().starts_with("output-"));
    }
    Ok(kept)
}

/// What every node gets: internal topics on all brokers, and replicas that lag leave the ISR while the run lasts.
fn settings(brokers: usize) -> Vec<(String, String)> {
    let replicas = brokers.to_string();
    [
        ("offsets.topic.replication.factor", replicas.as_str()),
        ("offsets.topic.num.partitions", "5"),
        ("group.initial.rebalance.delay.ms", "0"),
        ("broker.session.timeout.ms", "6000"),
        ("replica.lag.time.max.ms", "5000"),
        ("controlled.shutdown.enable", "true"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .to_vec()
}
