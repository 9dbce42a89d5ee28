//! One cluster under measurement.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ottla_peers::{Cluster, Member, Partition, Quorum, connect};
use ottla_workspace::{process, workspace};

use crate::bench_peer::disk::{self, Scratch};
use crate::bench_peer::machine::ProcessReading;
use crate::bench_peer::node::DELETE_SOON;
use crate::bench_peer::setting::{BROKERS, Setting};

pub(super) const PARTITIONS: usize = 6;

pub(super) const RECORD_BYTES: u64 = 100;

/// More than replicas need to catch up after a run, or a new topic to have all its leaders.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);

/// One cluster under measurement.
pub(super) struct Bench<'a> {
    pub(super) setting: &'a Setting<'a>,
    pub(super) cluster: Cluster,
    pub(super) ottla: PathBuf,
    pub(super) scratch: Scratch,
    pub(super) measured: Vec<(String, f64)>,
}

impl Bench<'_> {
    pub(super) fn start<'a>(
        setting: &'a Setting<'a>,
        side: usize,
        scratch: Scratch,
    ) -> Result<Bench<'a>> {
        let peer = setting.sides[side];
        let mut settings = vec![
            (DELETE_SOON.0, DELETE_SOON.1.to_owned()),
            // Only the measurements move leaders.
            ("auto.leader.rebalance.enable", "false".to_owned()),
        ];
        let of_everybody = setting.options.overrides.iter();
        settings.extend(of_everybody.map(|(key, value)| (&**key, value.clone())));
        let mut cluster = Cluster::of_peers(
            Quorum::Static,
            vec![peer.clone(); BROKERS],
            vec![peer.clone()],
            scratch.path(),
            &settings,
        )?;
        cluster.start()?;
        Ok(Bench {
            setting,
            cluster,
            ottla: workspace::release_binary("ottla", "ottla")?,
            scratch,
            measured: Vec::new(),
        })
    }

    pub(super) fn add(&mut self, measure: impl Into<String>, value: f64) {
        self.measured.push((measure.into(), value));
    }

    /// A command of Ottla's binary, which works with both clusters alike and starts instantly.
    pub(super) fn tool(&self, name: &str) -> Command {
        let mut command = Command::new(&self.ottla);
        command.arg(name);
        command
    }

    pub(super) fn create_topic(&self, topic: &str) -> Result<()> {
        let mut create = self.tool("topics");
        create
            .args(["--bootstrap-server", &self.cluster.bootstrap(), "--create"])
            .args(["--topic", topic, "--partitions", &PARTITIONS.to_string()])
            .args(["--replication-factor", &BROKERS.to_string()]);
        // The controller may not have unfenced newly started brokers yet.
        process::retried(PATIENCE, "creating a topic", || {
            process::output_of(&mut create)
        })?;
        self.cluster.wait_until_in_sync(topic, BROKERS)?;
        Ok(())
    }

    pub(super) fn delete_topic(&self, topic: &str) -> Result<()> {
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

    /// Waits until all in-sync replicas have this many records of a topic. The followers' work
    /// counts towards the run.
    pub(super) fn wait_until_replicated(&self, topic: &str, records: u64) -> Result<()> {
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

    pub(super) fn high_watermarks(&self, topic: &str) -> Result<i64> {
        let partitions = connect(self.cluster.brokers[0].port)?.partitions(topic)?;
        let mut sum = 0;
        for broker in &self.cluster.brokers {
            let led = led_by(&partitions, broker.node_id);
            sum += connect(broker.port)?.high_watermarks(topic, &led)?;
        }
        Ok(sum)
    }

    pub(super) fn readings(&self) -> Result<Vec<ProcessReading>> {
        let reading = |broker: &Member| {
            let node = broker.node.as_ref();
            ProcessReading::of(node.with_context(|| broker.name())?.pid())
        };
        self.cluster.brokers.iter().map(reading).collect()
    }

    /// CPU time that all brokers together used since `before`.
    pub(super) fn cpu_seconds_since(&self, before: &[ProcessReading]) -> Result<f64> {
        let now = self.readings()?;
        let used = now
            .iter()
            .zip(before)
            .map(|(now, before)| now.since(before));
        Ok(used.map(|it| it.cpu_seconds).sum())
    }
}

pub(super) fn led_by(partitions: &[Partition], broker: i32) -> Vec<i32> {
    let led = partitions.iter().filter(|it| it.leader == Some(broker));
    led.map(|it| it.index).collect()
}
