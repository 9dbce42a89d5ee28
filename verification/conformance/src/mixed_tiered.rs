//! `cargo xtask mixed-tiered`: brokers of Kafka and of Ottla in one cluster keep the closed segments of
//! a topic in one `LocalTieredStorage`, while Kafka's `VerifiableProducer` (`acks=all`, idempotent)
//! writes and `VerifiableConsumer` reads. Brokers are killed one after the other, of each kind in turn,
//! so that leaders change between both while they copy segments.
//!
//! No acknowledged record may be lost, none duplicated, and no offset skipped: read with all
//! brokers, and then with the brokers of each kind alone, when these have many offsets only in the store.
//! All segments must be complete. Then all records expire, and no object may remain, including
//! objects of uploads that a kill interrupted or that two leaders made. The seed determines which
//! broker of a kind is killed and when. The folder of a failed run is kept.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::mixed_cluster;
use crate::mixed_cluster::clients::{self, Access, Clients};
use crate::mixed_cluster::history::{self, Produced};
use crate::run_dir::SeededRun;
use crate::seeded::{self, Seeded};
use crate::tiered::{described, tier_command};
use ottla_peers::{Cluster, InstalledPeer, Peer, tiered};
use ottla_workspace::process;

const TOPIC: &str = "archived";
const PARTITIONS: usize = 3;
const REPLICAS: usize = 3;
const STORE_CLASS: &str = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage";
const PATIENCE: Duration = Duration::from_secs(180);

#[derive(clap::Args)]
pub struct Options {
    /// The brokers, by the names of files in peers/.
    #[arg(long, value_delimiter = ',', default_value = "ottla,kafka,ottla")]
    brokers: Vec<String>,
    /// Number of kills; each hits one broker, of each kind in turn.
    #[arg(long, default_value_t = 6)]
    kills: usize,
    #[command(flatten)]
    run: SeededRun,
}

pub fn run(options: &Options) -> Result<()> {
    ensure!(
        options.brokers.len() >= REPLICAS,
        "--brokers needs {REPLICAS} names or more"
    );
    let seed = options.run.seed();
    let dir = options.run.make("mixed-tiered", seed)?;
    let brokers = options.brokers.join(", ");
    println!("brokers {brokers}, {} kills, seed {seed}", options.kills);
    let outcome = Story::begin(options, &dir).and_then(|mut story| {
        let wrong = story.tell(options, &mut Seeded::new(seed), &dir);
        if !wrong.as_ref().is_ok_and(Vec::is_empty) {
            println!("{}", story.cluster.complaints());
        }
        wrong
    });
    seeded::conclude(outcome, seed, &dir, options.run.run_dir.keep)
}

struct Story {
    cluster: Cluster,
    kafka: InstalledPeer,
    ottla: InstalledPeer,
    /// The settings of the store, for `ottla tier`.
    config: PathBuf,
    store: PathBuf,
}

impl Story {
    /// Starts the cluster and creates the topic.
    fn begin(options: &Options, dir: &Path) -> Result<Story> {
        let jars = tiered::store_jars(dir)?;
        let store = dir.join("store");
        let of_store = [
            (
                "remote.log.storage.manager.class.name",
                STORE_CLASS.to_owned(),
            ),
            ("rsm.config.dir", store.display().to_string()),
        ];
        let config = dir.join("store.properties");
        let text: String = of_store
            .iter()
            .map(|(key, value)| format!("{key}={value}\n"))
            .collect();
        std::fs::write(&config, text)?;
        let mut settings = mixed_cluster::settings(options.brokers.len());
        settings.extend(of_store);
        let more = [
            ("remote.log.storage.system.enable", "true"),
            ("remote.log.metadata.manager.listener.name", "PLAINTEXT"),
            (
                "rlmm.config.remote.log.metadata.topic.replication.factor",
                "3",
            ),
            ("rlmm.config.remote.log.metadata.topic.min.isr", "1"),
            ("rlmm.config.remote.log.metadata.topic.num.partitions", "3"),
            // The topic needs all brokers, which start one after the other. A broker gives up otherwise.
            (
                "rlmm.config.remote.log.metadata.initialization.retry.max.timeout.ms",
                "600000",
            ),
            ("remote.log.manager.task.interval.ms", "500"),
            tiered::LOCAL_RETENTION_SOON,
            ("log.retention.check.interval.ms", "500"),
        ];
        settings.extend(more.map(|(key, value)| (key, value.to_owned())));
        let controllers = ["kafka".to_owned()];
        let mut cluster = Cluster::plan(&options.brokers, &controllers, dir, &settings)?;
        for broker in &mut cluster.brokers {
            if broker.next.class_path().is_some() {
                // A class path understands `*` for all jars of a folder.
                broker.next = broker.next.clone().with_classes(&jars.join("*"));
            }
        }
        cluster.start()?;
        let story = Story {
            cluster,
            kafka: Peer::load("kafka")?.install()?,
            ottla: Peer::load("ottla")?.install()?,
            config,
            store,
        };
        let mut create = story
            .access()
            .tool(&story.kafka, "org.apache.kafka.tools.TopicCommand");
        create.args(["--create", "--topic", TOPIC]);
        create.args(["--partitions", &PARTITIONS.to_string()]);
        create.args(["--replication-factor", &REPLICAS.to_string()]);
        // Segments roll every second, and go from the brokers as soon as they are copied.
        for setting in [
            "remote.storage.enable=true",
            "min.insync.replicas=2",
            "segment.ms=1000",
            "local.retention.bytes=1",
        ] {
            create.args(["--config", setting]);
        }
        process::output_of(&mut create)?;
        story.cluster.wait_until_in_sync(TOPIC, REPLICAS)?;
        Ok(story)
    }

    fn access(&self) -> Access {
        Access::plain(self.cluster.bootstrap())
    }

    /// Runs the whole scenario and returns the violations.
    fn tell(&mut self, options: &Options, random: &mut Seeded, dir: &Path) -> Result<Vec<String>> {
        let access = self.access();
        let kinds: BTreeSet<&String> = options.brokers.iter().collect();
        let mut clients = Clients::start(&self.kafka, &access, TOPIC, dir)?;
        for kind in kinds.iter().cycle().take(options.kills) {
            // At any moment between two segments, of which there is one each second.
            std::thread::sleep(Duration::from_millis(1000 + random.below(2000)));
            self.kill(kind, random)?;
            clients.wait_for_more()?;
        }
        let (produced, mut wrong) = clients.finish(&self.kafka, &access, TOPIC)?;
        for kind in kinds {
            wrong.extend(self.read_from(kind, &produced)?);
        }
        wrong.extend(self.verify()?);
        wrong.extend(self.expire()?);
        wrong.extend(self.cluster.stop()?);
        Ok(wrong)
    }

    /// Kills a broker of a kind, starts it again, and gives it back its partitions.
    fn kill(&mut self, kind: &str, random: &mut Seeded) -> Result<()> {
        let brokers = self.cluster.brokers.iter().enumerate();
        let of_kind: Vec<usize> = brokers
            .filter(|(_, broker)| broker.peer.id() == kind)
            .map(|(at, _)| at)
            .collect();
        let at = *random.pick(&of_kind);
        let broker = &mut self.cluster.brokers[at];
        let mut node = broker.take()?;
        node.kill()?;
        std::thread::sleep(Duration::from_millis(1000 + random.below(6000)));
        broker.start()?;
        let name = broker.name();
        let in_sync = self.cluster.wait_until_in_sync(TOPIC, REPLICAS)?;
        println!("{name} killed; in sync after {in_sync:.1?}");
        let mut elect = self.ottla.tool("leader-election");
        elect.args(["--bootstrap-server", &self.cluster.bootstrap()]);
        elect.args(["--election-type", "preferred", "--all-topic-partitions"]);
        process::run_captured(&mut elect)?;
        Ok(())
    }

    /// Waits until the leaders have a third of the offsets of each partition only in the store, so that
    /// these are read from there. A leader that caught up late has the others in one segment.
    fn wait_until_tiered(&self) -> Result<()> {
        let is_tiered = |partition: &&Value| {
            let offset = |name: &str| partition[name].as_i64();
            let start = offset("logStartOffset");
            let bounds = start
                .zip(offset("localStartOffset"))
                .zip(offset("logEndOffset"));
            bounds
                .is_some_and(|((start, local_start), end)| 3 * (local_start - start) > end - start)
        };
        let began = Instant::now();
        loop {
            // Not all partitions may have a leader yet.
            let partitions = described(&self.ottla, &self.cluster.bootstrap(), &self.config, TOPIC);
            let tiered = partitions.iter().flatten().filter(is_tiered).count();
            if tiered == PARTITIONS {
                return Ok(());
            }
            ensure!(
                began.elapsed() < PATIENCE,
                "too many offsets are local after {PATIENCE:?}: {partitions:?}"
            );
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    /// Reads the topic while only the brokers of one kind run.
    fn read_from(&mut self, kind: &str, produced: &Produced) -> Result<Vec<String>> {
        let mut stopped = Vec::new();
        for (at, broker) in self.cluster.brokers.iter_mut().enumerate() {
            if broker.peer.id() != kind {
                broker.take()?.stop()?;
                stopped.push(at);
            }
        }
        self.wait_until_tiered()?;
        let log = clients::read_all(&self.kafka, &self.access(), TOPIC, produced);
        for at in stopped {
            self.cluster.brokers[at].start()?;
        }
        self.cluster.wait_until_in_sync(TOPIC, REPLICAS)?;
        let log = log.with_context(|| format!("read from {kind} alone"))?;
        println!("{} records read from {kind} alone", log.len());
        let wrong = history::check_log(produced, &log).into_iter();
        Ok(wrong.map(|it| format!("from {kind} alone: {it}")).collect())
    }

    fn verify(&self) -> Result<Vec<String>> {
        let bootstrap = self.cluster.bootstrap();
        let mut verify = tier_command(&self.ottla, &bootstrap, &self.config, "verify");
        let verified = process::run_captured(&mut verify)?;
        let printed = String::from_utf8_lossy(&verified.stdout).into_owned();
        let Some(sums) = printed.lines().last() else {
            bail!("{}", String::from_utf8_lossy(&verified.stderr));
        };
        println!("{sums}");
        let problems = printed.lines().filter(|line| line.starts_with("PROBLEM "));
        Ok(problems.map(str::to_owned).collect())
    }

    /// Lets all segments expire, and returns the logs that stay in the store.
    fn expire(&self) -> Result<Vec<String>> {
        let mut alter = self.ottla.tool("configs");
        alter.args(["--bootstrap-server", &self.cluster.bootstrap()]);
        alter.args(["--alter", "--topic", TOPIC]);
        alter.args(["--add-config", "retention.ms=1000"]);
        process::output_of(&mut alter)?;
        let began = Instant::now();
        loop {
            let left = self.logs()?;
            if left.is_empty() {
                println!("everything has expired after {:.1?}", began.elapsed());
                return Ok(Vec::new());
            }
            if began.elapsed() > PATIENCE {
                let left = left.into_iter();
                return Ok(left
                    .map(|it| format!("{it} is left in the store after its expiry"))
                    .collect());
            }
            std::thread::sleep(Duration::from_secs(1));
        }
    }

    /// The logs of segments that are in the store.
    fn logs(&self) -> Result<Vec<String>> {
        let mut logs = Vec::new();
        for partition in std::fs::read_dir(self.store.join("kafka-tiered-storage"))? {
            let folder = partition?.path();
            if !folder.is_dir() {
                continue;
            }
            for file in std::fs::read_dir(&folder)? {
                let path = file?.path();
                if path.extension().is_some_and(|extension| extension == "log") {
                    logs.push(path.display().to_string());
                }
            }
        }
        Ok(logs)
    }
}
