//! `cargo xtask mixed-cluster`: runs Kafka and Ottla brokers in one cluster, under controllers of
//! either, while Kafka's `VerifiableProducer` (`acks=all`, idempotent) writes and
//! `VerifiableConsumer` reads. Brokers fail and recover in turn: stopped, killed, paused,
//! partitioned, slowed, or with a log directory removed or full. The disturbed network consists of
//! proxies or of network namespaces (`--namespaces`).
//!
//! At the end no acknowledged record may be lost, no record duplicated, no offset skipped and no
//! order changed, and the logs of all replicas must be byte-identical. With `--secured`, nodes and
//! clients log in over TLS, and brokers must still refuse unauthorized requests. The seed
//! determines which broker fails how and when. The time until all replicas are in sync again is
//! printed. The folder of a failed run is kept.

pub mod clients;
pub mod history;
mod links;
mod namespaces;
pub mod secured;
mod troubles;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::run_dir::SeededRun;
use crate::seeded::{self, Seeded};
use clients::{Access, Clients};
use links::Links;
use ottla_peers::{Cluster, InstalledPeer, Node, Peer, fewest_in_sync, replicas};
use ottla_testkit::{may_mount, mount_small, this_program_with_mounts, unmount};
use ottla_workspace::process;
use secured::{Secured, WayIn};
use troubles::{SMALL_MEBIBYTES, Trouble, USUAL, WITHOUT_NETWORK};

const TOPIC: &str = "orders";
const PARTITIONS: usize = 3;
/// Replicas of each partition, if there are as many brokers.
const REPLICAS: usize = 3;

#[derive(clap::Args)]
pub struct Options {
    /// The brokers, by the names of files in peers/.
    #[arg(long, value_delimiter = ',', default_value = "ottla,ottla,kafka")]
    brokers: Vec<String>,
    /// The controllers, likewise.
    #[arg(long, value_delimiter = ',', default_value = "kafka")]
    controllers: Vec<String>,
    /// Combined nodes: the brokers are the controllers as well.
    #[arg(long, conflicts_with = "controllers")]
    combined: bool,
    /// Number of faults; each hits one broker after the other.
    #[arg(long, default_value_t = 6)]
    troubles: usize,
    /// The kinds of faults; by default all but `full`.
    #[arg(long, value_enum, value_delimiter = ',')]
    kinds: Vec<Trouble>,
    /// Number of brokers that a fault hits at the same time.
    #[arg(long, default_value_t = 1)]
    at_once: usize,
    /// Run each broker in its own network namespace, so that packets are lost as on a real network;
    /// otherwise the network is simulated by proxies. Needs root or a user namespace.
    #[arg(long, conflicts_with = "combined")]
    namespaces: bool,
    /// Instead of faults: stop each broker in turn and replace it by a broker of this kind on its
    /// directory, and then back again. At no time may a partition have fewer replicas in sync than
    /// during a rolling restart.
    #[arg(long, value_name = "PEER")]
    rolling: Option<String>,
    /// Secure the cluster: nodes and clients log in over TLS, and ACLs restrict clients. With
    /// several values, one run for each.
    #[arg(long, value_enum, value_delimiter = ',', conflicts_with_all = ["combined", "namespaces"])]
    secured: Vec<WayIn>,
    #[command(flatten)]
    run: SeededRun,
}

impl Options {
    /// The controllers that are separate processes.
    fn controllers(&self) -> &[String] {
        if self.combined {
            &[]
        } else {
            &self.controllers
        }
    }
}

pub fn run(options: &Options) -> Result<()> {
    ensure!(
        options.brokers.len() > 1 && !options.controllers.is_empty(),
        "--brokers needs two names or more, and --controllers one"
    );
    ensure!(
        (1..=options.brokers.len()).contains(&options.at_once),
        "--at-once is between 1 and the number of brokers"
    );
    ensure!(
        !options.combined || !options.kinds.iter().any(|kind| kind.needs_network()),
        "--combined: brokers that are controllers as well have no network that could be harmed"
    );
    if options.kinds.contains(&Trouble::Full) && !may_mount() {
        let mut again = this_program_with_mounts();
        let status = again.args(std::env::args_os().skip(1)).status()?;
        std::process::exit(status.code().unwrap_or(1));
    }
    if options.namespaces && !namespaces::has_own_network() {
        // Installed before, because there is no network inside the namespace.
        for name in options.brokers.iter().chain(options.controllers()) {
            Peer::load(name)?.install()?;
        }
        Peer::load("kafka")?.install()?;
        let mut again = namespaces::this_program_with_own_network()?;
        let status = again.args(std::env::args_os().skip(1)).status()?;
        std::process::exit(status.code().unwrap_or(1));
    }
    let seed = options.run.seed();
    if options.secured.is_empty() {
        return run_once(options, None, seed);
    }
    let mut ways_in = options.secured.iter();
    ways_in.try_for_each(|way_in| run_once(options, Some(*way_in), seed))
}

fn run_once(options: &Options, way_in: Option<WayIn>, seed: u64) -> Result<()> {
    let dir = options.run.make("mixed-cluster", seed)?;
    let what = match &options.rolling {
        Some(peer) => format!("handed to {peer} one by one and back"),
        None => format!("{} troubles", options.troubles),
    };
    let controllers = match options.controllers() {
        [] => "the same".to_owned(),
        apart => apart.join(", "),
    };
    let open = match way_in {
        Some(WayIn::Passwords) => "with passwords, ",
        Some(WayIn::Certificates) => "with certificates, ",
        Some(WayIn::Tokens) => "with tokens, ",
        None => "",
    };
    println!(
        "brokers {}, controllers {controllers}, {open}{what}, seed {seed}",
        options.brokers.join(", "),
    );
    let outcome = Story::begin(options, way_in, &dir).and_then(|mut story| {
        let wrong = story.tell(options, &mut Seeded::new(seed), &dir);
        if !wrong.as_ref().is_ok_and(Vec::is_empty) {
            println!("{}", story.cluster.complaints());
        }
        wrong.map(|wrong| (story, wrong))
    });
    let outcome = outcome.map(|(story, wrong)| {
        if options.kinds.contains(&Trouble::Full) {
            for broker in &story.cluster.brokers {
                unmount(&troubles::second_dir(broker));
            }
        }
        wrong
    });
    seeded::conclude(outcome, seed, &dir, options.run.run_dir.keep)
}

/// The direction of a hand-over of a broker's directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// To the other peer.
    There,
    /// Back to the original peer.
    Back,
}

/// The cluster, and the topic that all clients use.
struct Story {
    cluster: Cluster,
    /// The network links of each broker.
    links: Vec<Links>,
    kafka: InstalledPeer,
    secured: Option<Secured>,
}

impl Story {
    /// Starts the cluster and creates the topic with Kafka's tool.
    fn begin(options: &Options, way_in: Option<WayIn>, dir: &Path) -> Result<Story> {
        let settings = settings(options.brokers.len());
        let mut cluster = Cluster::plan(&options.brokers, options.controllers(), dir, &settings)?;
        let links = if options.namespaces {
            namespaces::put_apart(&mut cluster)?
                .into_iter()
                .map(Links::Namespace)
                .collect()
        } else {
            Links::between(&mut cluster)
        };
        for broker in &mut cluster.brokers {
            let second = troubles::second_dir(broker);
            if options.kinds.contains(&Trouble::Full) {
                mount_small(&second, SMALL_MEBIBYTES);
            }
            let data = broker.options.dir.join("data");
            let dirs = format!("{},{}", data.display(), second.display());
            broker.set(&[("log.dirs", dirs)]);
        }
        let topic = secured::Topic {
            name: TOPIC,
            partitions: PARTITIONS,
        };
        let secured = way_in
            .map(|way_in| secured::secure(&mut cluster, way_in, topic, dir))
            .transpose()?;
        cluster.start()?;
        let kafka = Peer::load("kafka")?.install()?;
        let story = Story {
            cluster,
            links,
            kafka,
            secured,
        };
        story.create_topic()?;
        if let Some(secured) = &story.secured {
            secured.grant(&story.kafka)?;
        }
        // With ACLs also until every broker has applied them: the last one lets this probe see the
        // topic.
        story.wait_until_in_sync()?;
        Ok(story)
    }

    fn create_topic(&self) -> Result<()> {
        let administrator = match &self.secured {
            Some(secured) => secured.administrator.clone(),
            None => Access::plain(self.cluster.bootstrap()),
        };
        let mut create = administrator.tool(&self.kafka, "org.apache.kafka.tools.TopicCommand");
        create.args([
            "--create",
            "--topic",
            TOPIC,
            "--partitions",
            &PARTITIONS.to_string(),
        ]);
        create.args(["--replication-factor", &self.replicas().to_string()]);
        // Segments roll often, on each broker at different offsets.
        create.args([
            "--config",
            "min.insync.replicas=2",
            "--config",
            "segment.bytes=1048576",
        ]);
        process::output_of(&mut create)?;
        Ok(())
    }

    fn replicas(&self) -> usize {
        self.cluster.brokers.len().min(REPLICAS)
    }

    fn wait_until_in_sync(&self) -> Result<Duration> {
        self.cluster.wait_until_in_sync(TOPIC, self.replicas())
    }

    /// Runs the whole scenario and returns the violations.
    fn tell(&mut self, options: &Options, random: &mut Seeded, dir: &Path) -> Result<Vec<String>> {
        let access = match &self.secured {
            Some(secured) => secured.worker.clone(),
            None => Access::plain(self.cluster.bootstrap()),
        };
        let mut clients = Clients::start(&self.kafka, &access, TOPIC, dir)?;
        let mut wrong = Vec::new();
        match &options.rolling {
            Some(peer) => wrong.extend(self.hand_over_and_back(peer)?),
            None => self.troubles(options, random)?,
        }
        clients.wait_for_more()?;
        wrong.extend(clients.finish(&self.kafka, &access, TOPIC)?.1);
        self.wait_until_in_sync()?;
        if let Some(secured) = &self.secured {
            wrong.extend(secured.check_refusals(&self.cluster)?);
        }
        wrong.extend(self.cluster.stop()?);
        let mut bytes = 0;
        for partition in 0..PARTITIONS {
            let partition = format!("{TOPIC}-{partition}");
            let brokers = &self.cluster.brokers;
            let of_partition = replicas::compare_each(brokers, &partition, self.replicas())?;
            bytes += of_partition.0;
            wrong.extend(of_partition.1);
        }
        println!(
            "{bytes} bytes of log compared in {} replicas",
            self.replicas()
        );
        Ok(wrong)
    }

    fn troubles(&mut self, options: &Options, random: &mut Seeded) -> Result<()> {
        let kinds = match options.kinds.as_slice() {
            [] if options.combined => &WITHOUT_NETWORK[..],
            [] => &USUAL,
            some => some,
        };
        for number in 0..options.troubles {
            std::thread::sleep(Duration::from_millis(1000 + random.below(2000)));
            let brokers = self.cluster.brokers.len();
            let troubles: Vec<(usize, Trouble)> = (0..options.at_once)
                .map(|other| ((number + other) % brokers, *random.pick(kinds)))
                .collect();
            let longest = |random: &mut Seeded| {
                let durations = troubles.iter().map(|(_, trouble)| trouble.duration(random));
                durations.max().unwrap_or_default()
            };
            let lasting = longest(random);
            self.trouble(&troubles, lasting)?;
        }
        Ok(())
    }

    /// Applies a trouble to several brokers at the same time, and waits until all have recovered.
    fn trouble(&mut self, troubles: &[(usize, Trouble)], lasting: Duration) -> Result<()> {
        let (mut what, began) = (Vec::new(), Instant::now());
        for (at, trouble) in troubles {
            let broker = &mut self.cluster.brokers[*at];
            let name = broker.name();
            troubles::begin(*trouble, broker, &mut self.links[*at])
                .with_context(|| format!("{name}: {trouble:?}"))?;
            what.push((name, *trouble));
        }
        let begun = began.elapsed();
        std::thread::sleep(lasting);
        let began = Instant::now();
        for (at, trouble) in troubles {
            let broker = &mut self.cluster.brokers[*at];
            troubles::end(*trouble, broker, &mut self.links[*at])
                .with_context(|| format!("{}: {trouble:?}", broker.name()))?;
        }
        let ended = began.elapsed();
        let in_sync = self.wait_until_in_sync()?;
        let mut told = Vec::new();
        for ((name, trouble), (at, _)) in what.iter().zip(troubles) {
            let broker = &mut self.cluster.brokers[*at];
            let by = if broker.name() == *name {
                String::new()
            } else {
                format!(", now {}", broker.peer.name())
            };
            told.push(format!(
                "{name} {}{by}",
                format!("{trouble:?}").to_lowercase()
            ));
            let ended = broker.node.as_mut().map(Node::ended).transpose()?.flatten();
            ensure!(ended.is_none(), "{name} has ended by itself: {ended:?}");
        }
        println!(
            "{}: begun in {begun:.1?}, for {lasting:.1?}, ended in {ended:.1?}, all in sync {in_sync:.1?} later",
            told.join("; ")
        );
        Ok(())
    }

    /// Hands each broker over to another peer, and then back to the original one. Returns a
    /// violation of the ISR bound, if any.
    fn hand_over_and_back(&mut self, peer: &str) -> Result<Option<String>> {
        let other = Peer::load(peer)?.install()?;
        let watch = InSyncWatch::start(
            self.cluster
                .brokers
                .iter()
                .map(|broker| broker.port)
                .collect(),
        );
        for way in [Way::There, Way::Back] {
            for at in 0..self.cluster.brokers.len() {
                std::thread::sleep(Duration::from_secs(2));
                let broker = &mut self.cluster.brokers[at];
                broker.next = match way {
                    Way::There => other.clone(),
                    Way::Back => broker.first.clone(),
                };
                watch
                    .away
                    .store(self.cluster.brokers[at].port, Ordering::SeqCst);
                self.trouble(&[(at, Trouble::Stopped)], Duration::ZERO)?;
                watch.away.store(0, Ordering::SeqCst);
            }
        }
        let fewest = watch.end();
        ensure!(
            fewest != usize::MAX,
            "no broker has said how many replicas are in sync"
        );
        let least = self.cluster.brokers.len() - 1;
        println!(
            "never fewer than {fewest} of {} replicas in sync",
            self.cluster.brokers.len()
        );
        Ok((fewest < least).then(|| format!("only {fewest} replicas were in sync at a time")))
    }
}

/// Polls the ISR size from all brokers except the stopped broker, which starts with its old
/// metadata.
struct InSyncWatch {
    /// The port of the broker that is down; 0 for none.
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
                    // Checked after the request, because the broker may have been stopped in
                    // between.
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
        // A panic of the thread was already reported, and the value is then unknown.
        self.thread.join().unwrap_or(0)
    }
}

/// Settings of every node: internal topics on all brokers, and a replica lag limit short enough
/// that replicas leave the ISR during the run.
pub fn settings(brokers: usize) -> Vec<(&'static str, String)> {
    vec![
        ("offsets.topic.replication.factor", brokers.to_string()),
        ("offsets.topic.num.partitions", "5".to_owned()),
        ("group.initial.rebalance.delay.ms", "0".to_owned()),
        ("broker.session.timeout.ms", "6000".to_owned()),
        ("replica.lag.time.max.ms", "5000".to_owned()),
        ("controlled.shutdown.enable", "true".to_owned()),
    ]
}
