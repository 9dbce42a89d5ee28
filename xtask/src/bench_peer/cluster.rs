//! Clusters of three brokers and a controller: all of them Apache Kafka's, and all of them Ottla's, in turn.
//!
//! A turn starts a cluster on empty directories and goes through its parts in the order of [`Part`], so that everything that
//! a part measures it measures of brokers that have already worked. The topics of a part are deleted before the
//! next, and its files are gone then.

mod latency;
mod many_partitions;
mod producers;

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::disk::{self, Scratch};
use super::machine::ProcessReading;
use super::node::DELETE_SOON;
use super::table::Results;
use super::{Options, Setting};
use crate::peer::{Cluster, Member, Partition, connect};
use crate::{process, workspace};

pub const BROKERS: usize = 3;
const PARTITIONS: usize = 6;
const RECORD_BYTES: u64 = 100;
/// A record of that size as it lies on a disk, once for each replica.
const STORED_BYTES: u64 = 110;
/// Above what replicas need to catch up with a run, or a new topic to be led everywhere.
const PATIENCE: Duration = Duration::from_secs(120);

/// What is measured of a cluster, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Kafka's producer tool and three of Ottla's: rates, processor time and memory of the brokers.
    Producers,
    /// From producer to consumer at 5,000 records a second.
    Latency,
    /// 10,000 partitions: creation, idling, restart of a broker, failover of all its leaders.
    ManyPartitions,
}

pub const ALL: [Part; 3] = [Part::Producers, Part::Latency, Part::ManyPartitions];

pub fn measure(setting: &Setting<'_>, results: &mut Results) -> Result<()> {
    let options = setting.options;
    // Deleted when all has been measured: for minutes after a hundred thousand files were deleted, ext4 looks at each of
    // them whenever it makes a new one, and the next turn would pay for the files of the last.
    let mut done = Vec::new();
    setting.alternate(results, |side, round, results| {
        let scratch = Scratch::new(&format!("cluster-{round}-{side}"), disk_of(options))?;
        let mut bench = Bench::start(setting, side, scratch)?;
        for part in options.parts() {
            // What the last part wrote is on the disk: who has written more of it in less time does not pay for that now.
            rustix::fs::sync();
            match part {
                Part::Producers => producers::measure(&mut bench)?,
                Part::Latency => latency::measure(&mut bench)?,
                Part::ManyPartitions => many_partitions::measure(&mut bench)?,
            }
        }
        bench.cluster.stop()?;
        for (measure, value) in bench.measured {
            results.add(side, round, format!("cluster: {measure}"), value);
        }
        done.push(bench.scratch);
        Ok(())
    })
}

pub fn settings_in_words(options: &Options) -> String {
    let mut parts = Vec::new();
    for part in options.parts() {
        parts.push(match part {
            Part::Producers => producers::settings_in_words(options),
            Part::Latency => latency::settings_in_words(options),
            Part::ManyPartitions => many_partitions::settings_in_words(options),
        });
    }
    format!(
        "{BROKERS} brokers and one controller, each a process; {}",
        parts.join("; ")
    )
}

/// The most that lies on the disk at once.
fn disk_of(options: &Options) -> u64 {
    let replicas = BROKERS as u64;
    let of_records = options.cluster_records() * STORED_BYTES * replicas;
    let partitions = options.cluster_partitions() as u64 * options.replicas as u64;
    let of_part = |part: &Part| match part {
        Part::Producers => of_records,
        Part::Latency => options.latency_seconds * latency::RATE * STORED_BYTES * replicas,
        // Kafka's indexes are as large as they may become, and have blocks where something was written.
        Part::ManyPartitions => partitions * (32 << 10),
    };
    options.parts().iter().map(of_part).max().unwrap_or(0) + 1_000_000_000
}

/// One cluster under measurement.
struct Bench<'a> {
    setting: &'a Setting<'a>,
    cluster: Cluster,
    ottla: PathBuf,
    scratch: Scratch,
    measured: Vec<(String, f64)>,
}

impl Bench<'_> {
    fn start<'a>(setting: &'a Setting<'a>, side: usize, scratch: Scratch) -> Result<Bench<'a>> {
        let peer = setting.sides[side].id().to_owned();
        let mut settings = vec![
            (DELETE_SOON.0, DELETE_SOON.1.to_owned()),
            // Nothing but what is measured moves leaders.
            ("auto.leader.rebalance.enable", "false".to_owned()),
        ];
        let of_everybody = setting.options.overrides.iter();
        settings.extend(of_everybody.map(|(key, value)| (&**key, value.clone())));
        let brokers = vec![peer.clone(); BROKERS];
        let mut cluster = Cluster::plan(&brokers, &[peer], scratch.path(), &settings)?;
        cluster.start()?;
        Ok(Bench {
            setting,
            cluster,
            ottla: workspace::release_binary("ottla", "ottla")?,
            scratch,
            measured: Vec::new(),
        })
    }

    fn add(&mut self, measure: impl Into<String>, value: f64) {
        self.measured.push((measure.into(), value));
    }

    /// A command of Ottla's binary, which talks to both clusters alike and starts at once.
    fn tool(&self, name: &str) -> Command {
        let mut command = Command::new(&self.ottla);
        command.arg(name);
        command
    }

    fn create_topic(&self, topic: &str) -> Result<()> {
        let mut create = self.tool("topics");
        create
            .args(["--bootstrap-server", &self.cluster.bootstrap(), "--create"])
            .args(["--topic", topic, "--partitions", &PARTITIONS.to_string()])
            .args(["--replication-factor", &BROKERS.to_string()]);
        // Brokers that have just been started may not have been counted on yet.
        retried(|| process::output_of(&mut create))?;
        self.cluster.wait_until_in_sync(topic, BROKERS)?;
        Ok(())
    }

    fn delete_topic(&self, topic: &str) -> Result<()> {
        let mut delete = self.tool("topics");
        delete
            .args(["--bootstrap-server", &self.cluster.bootstrap(), "--delete"])
            .args(["--topic", topic]);
        process::output_of(&mut delete)?;
        for broker in &self.cluster.brokers {
            for log_dir in broker.log_dirs() {
                disk::wait_until_deleted(&log_dir, topic)?;
            }
        }
        Ok(())
    }

    /// Waits until all replicas in sync have so many records of a topic: what followers still have to do belongs to the run.
    fn wait_until_replicated(&self, topic: &str, records: u64) -> Result<()> {
        let began = Instant::now();
        loop {
            let replicated = self.high_watermarks(topic);
            if replicated.as_ref().is_ok_and(|sum| *sum >= records as i64) {
                return Ok(());
            }
            if began.elapsed() > PATIENCE {
                bail!(
                    "{replicated:?} of {records} records of {topic} are replicated after {PATIENCE:?}"
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn high_watermarks(&self, topic: &str) -> Result<i64> {
        let partitions = connect(self.cluster.brokers[0].port)?.partitions(topic)?;
        let mut sum = 0;
        for broker in &self.cluster.brokers {
            let led = led_by(&partitions, broker.node_id);
            sum += connect(broker.port)?.high_watermarks(topic, &led)?;
        }
        Ok(sum)
    }

    fn readings(&self) -> Result<Vec<ProcessReading>> {
        let reading = |broker: &Member| {
            let node = broker.node.as_ref();
            ProcessReading::of(node.with_context(|| broker.name())?.pid())
        };
        self.cluster.brokers.iter().map(reading).collect()
    }

    /// What all brokers together have used since.
    fn cpu_seconds_since(&self, before: &[ProcessReading]) -> Result<f64> {
        let now = self.readings()?;
        let used = now
            .iter()
            .zip(before)
            .map(|(now, before)| now.since(before));
        Ok(used.map(|it| it.cpu_seconds).sum())
    }
}

fn led_by(partitions: &[Partition], broker: i32) -> Vec<i32> {
    let led = partitions.iter().filter(|it| it.leader == Some(broker));
    led.map(|it| it.index).collect()
}

/// Tries again for a while what fails.
fn retried<T>(mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let began = Instant::now();
    loop {
        match attempt() {
            Err(_) if began.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(500)),
            outcome => return outcome,
        }
    }
}

impl Options {
    fn parts(&self) -> &[Part] {
        match self.parts.as_slice() {
            [] => &ALL,
            some => some,
        }
    }

    /// Of each run of producers.
    fn cluster_records(&self) -> u64 {
        self.records_or(5_000_000)
    }

    fn cluster_partitions(&self) -> usize {
        self.partitions_or(10_000)
    }

    /// What a turn goes through.
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
