//! The cluster of a run, as configured on the command line.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use ottla_peers::{Cluster, InstalledPeer, Peer};

use crate::run_dir::SeededRun;
use crate::seeded::Seeded;

/// Partitions of each topic.
pub(super) const PARTITIONS: usize = 4;

/// Replicas of each partition, if there are as many brokers.
pub(super) const REPLICAS: usize = 3;

#[derive(clap::Args)]
pub struct Options {
    /// The transactional workload.
    #[arg(long, value_enum, default_value_t = Work::Copies)]
    pub(super) work: Work,
    /// The brokers, by the names of files in peers/. One is its own controller.
    #[arg(long, value_delimiter = ',', default_value = "ottla")]
    pub(super) brokers: Vec<String>,
    /// The controllers of several brokers, likewise.
    #[arg(long, value_delimiter = ',', default_value = "kafka")]
    pub(super) controllers: Vec<String>,
    /// Number of kills.
    #[arg(long, default_value_t = 8)]
    pub(super) kills: usize,
    /// The `transaction.version` of the cluster; by default the highest.
    #[arg(long)]
    pub(super) transaction_version: Option<u8>,
    #[command(flatten)]
    pub(super) run: SeededRun,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Work {
    Copies,
    Streams,
    StreamsGroup,
    Histories,
}

/// The cluster and its folders.
pub(super) struct Stage {
    pub(super) cluster: Cluster,
    pub(super) kafka: InstalledPeer,
    pub(super) dir: PathBuf,
    pub(super) began: Instant,
}

impl Stage {
    pub(super) fn begin(options: &Options, dir: &Path) -> Result<Stage> {
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

    pub(super) fn replicas(&self) -> usize {
        self.cluster.brokers.len().min(REPLICAS)
    }

    /// Kills a broker and restarts it after a while.
    pub(super) fn kill_broker(&mut self, random: &mut Seeded) -> Result<()> {
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
            // The next broker may be killed only after this one has caught up.
            self.cluster
                .wait_until_in_sync("__transaction_state", self.replicas())?;
        }
        Ok(())
    }

    pub(super) fn say(&self, what: &str) {
        println!("{:>5.1} s {what}", self.began.elapsed().as_secs_f64());
    }
}

/// Settings of every node: small internal topics replicated to all brokers, and short timeouts of
/// abandoned transactions.
pub(super) fn settings(brokers: usize) -> Vec<(&'static str, String)> {
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
        // A Streams application reads and stores records with old timestamps, which retention would
        // delete half a minute after a start.
        ("log.initial.task.delay.ms", "3600000".to_owned()),
    ]
}
