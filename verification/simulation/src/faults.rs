//! Faults, drawn from the seed: processes are killed, machines lose their power, links are cut,
//! connections break, disks are slow, full or fail, handles run out, and nodes are stopped and
//! started in order.
//!
//! Kafka keeps records acknowledged with `acks=all` while only processes die, in any number. A
//! machine that loses its power may lose records that were not flushed. So power fails only while
//! every replica is in sync, and nothing else fails until all replicas are in sync again.

use std::ops::Range;
use std::time::Duration;

use ottla_sync::fs::{Faults, PowerLoss};
use ottla_sync::simulation::{LinkFaults, Network, Random, now, stream};
use ottla_sync::thread::sleep;

use crate::cluster::Cluster;
use crate::node::{DiskTrouble, Node};
use crate::outcome::Outcome;

/// How long the cluster is given to have all replicas in sync after a loss of power.
const RECOVERY: Duration = Duration::from_secs(30);
/// More files than a node has open.
const MOST_HANDLES: u64 = 64;

pub(crate) struct FaultInjector {
    random: Random,
    network: Network,
    /// Nodes that are down, and when they are started.
    down: Vec<(usize, Duration)>,
    /// The time at which links are restored.
    cut_until: Option<Duration>,
    /// Nodes whose disks are full or fail, and until when.
    without_disk: Vec<(usize, Duration)>,
}

impl FaultInjector {
    pub fn new() -> FaultInjector {
        FaultInjector {
            random: stream("faults"),
            network: Network::of_this_simulation(),
            down: Vec::new(),
            cut_until: None,
            without_disk: Vec::new(),
        }
    }

    /// Injects faults for this time. Calls `look` with the cluster before each fault.
    pub fn run(
        &mut self,
        cluster: &mut Cluster,
        time: Duration,
        outcome: &mut Outcome,
        look: &mut dyn FnMut(&Cluster),
    ) {
        let end = now() + time;
        while now() < end {
            sleep(self.millis(50..1_200));
            look(cluster);
            self.end_what_is_due(cluster);
            self.begin_one(cluster, outcome);
        }
    }

    /// Ends all faults and starts stopped nodes.
    pub fn heal(&mut self, cluster: &mut Cluster) {
        self.mend_links();
        self.without_disk.clear();
        for node in &mut cluster.nodes {
            node.mend_disk();
            if !node.is_running() {
                tracing::info!(node = node.name, "is started");
                node.start();
            }
        }
        self.down.clear();
        let deadline = now() + RECOVERY;
        while cluster.nodes.iter().any(Node::may_not_start) && now() < deadline {
            sleep(Duration::from_millis(100));
            cluster.nodes.iter_mut().for_each(start_again);
        }
    }

    fn millis(&mut self, range: Range<u64>) -> Duration {
        Duration::from_millis(range.start + self.random.below(range.end - range.start))
    }

    fn end_what_is_due(&mut self, cluster: &mut Cluster) {
        if self.cut_until.is_some_and(|until| until <= now()) {
            self.mend_links();
        }
        for index in take_due(&mut self.without_disk) {
            let node = &mut cluster.nodes[index];
            tracing::info!(node = node.name, "has a disk that works");
            let was_running = node.is_running();
            node.mend_disk();
            if was_running && !node.is_running() {
                self.down.push((index, now()));
            }
        }
        // Nodes that started on a faulty disk, and ended after it was repaired.
        for index in 0..cluster.nodes.len() {
            if self.without_disk.iter().all(|(node, _)| *node != index) {
                start_again(&mut cluster.nodes[index]);
            }
        }
        for index in take_due(&mut self.down) {
            tracing::info!(node = cluster.nodes[index].name, "is started");
            cluster.nodes[index].start();
        }
    }

    /// A disk that is full, one whose calls fail now and then, or a process that has no file handles left, for a while.
    /// A failing disk may stop the node.
    fn spoil_disk(&mut self, index: usize, cluster: &Cluster, outcome: &mut Outcome) {
        let node = &cluster.nodes[index];
        match self.random.below(3) {
            0 => {
                tracing::info!(node = node.name, "has a full disk");
                outcome.full_disks += 1;
                let full = Faults {
                    is_full: true,
                    ..Faults::default()
                };
                node.spoil_disk(DiskTrouble::Short, full);
            }
            1 => {
                tracing::info!(node = node.name, "has a disk that fails");
                outcome.failed_disks += 1;
                let failing = Faults {
                    reads_fail_one_in: 400,
                    writes_fail_one_in: 100,
                    syncs_fail_one_in: 40,
                    ..Faults::default()
                };
                node.spoil_disk(DiskTrouble::Failing, failing);
            }
            _ => {
                let handles = self.random.below(MOST_HANDLES) as u32;
                tracing::info!(node = node.name, handles, "is short of file handles");
                outcome.short_handles += 1;
                node.limit_handles(handles);
            }
        }
        let until = now() + self.millis(200..3_000);
        self.without_disk.push((index, until));
    }

    fn mend_links(&mut self) {
        if self.cut_until.take().is_some() {
            tracing::info!("links are mended");
            self.network.set_faults(LinkFaults::default());
            self.network.heal();
        }
    }

    fn begin_one(&mut self, cluster: &mut Cluster, outcome: &mut Outcome) {
        let index = self.random.index(cluster.nodes.len());
        let other = self.random.index(cluster.nodes.len());
        let is_running = cluster.nodes[index].is_running();
        let has_disk = self.without_disk.iter().all(|(node, _)| *node != index);
        let has_started = cluster.nodes[index].broker().is_some();
        let name = cluster.nodes[index].name.clone();
        match self.random.below(100) {
            0..30 if is_running => {
                tracing::info!(node = name, "is killed");
                cluster.nodes[index].kill();
                outcome.kills += 1;
                let until = now() + self.millis(0..4_000);
                self.down.push((index, until));
            }
            30..40 => {
                let is_calm = self.down.is_empty() && self.without_disk.is_empty();
                if self.cut_until.is_none() && is_calm && cluster.is_in_sync() {
                    self.lose_power(index, cluster);
                    outcome.losses_of_power += 1;
                }
            }
            // A node that cannot register yet keeps trying after a stop request.
            40..50 if has_started && has_disk && self.cut_until.is_none() => {
                tracing::info!(node = name, "is stopped in order");
                cluster.nodes[index].stop();
                outcome.clean_stops += 1;
                let until = now() + self.millis(0..2_000);
                self.down.push((index, until));
            }
            50..65 => {
                self.cut(cluster, index, other);
                outcome.cuts += 1;
            }
            65..75 if index != other => {
                tracing::info!(
                    node = name,
                    other = cluster.nodes[other].name,
                    "connections break"
                );
                self.network.reset(&name, &cluster.nodes[other].name);
            }
            75..85 => {
                let most = self.millis(1..40);
                tracing::info!(?most, "links are slow and break");
                self.network.set_faults(LinkFaults {
                    delay: Duration::from_micros(50)..most,
                    short_one_in: 4,
                    resets_one_in: 2_000,
                    window_bytes: 1 << 14,
                });
                self.cut_until = Some(now() + self.millis(300..3_000));
            }
            85..92 if has_disk => {
                let most = self.millis(1..30);
                tracing::info!(node = name, ?most, "has a slow disk");
                cluster.nodes[index].disk.set_faults(
                    "/data",
                    Faults {
                        delay: Some(Duration::ZERO..most),
                        short_writes_one_in: 8,
                        uncached_one_in: 4,
                        ..Faults::default()
                    },
                );
            }
            92..97 if has_disk => self.spoil_disk(index, cluster, outcome),
            _ if has_disk => {
                let disk = &cluster.nodes[index].disk;
                disk.set_faults("/data", Faults::default());
            }
            _ => {}
        }
    }

    /// Cuts a node off from all other nodes and clients, from all nodes but not from the clients,
    /// or from one node in one direction or both.
    fn cut(&mut self, cluster: &Cluster, index: usize, other: usize) {
        let until = now() + self.millis(100..6_000);
        self.cut_until = Some(self.cut_until.map_or(until, |before| before.max(until)));
        let (name, nodes) = (&cluster.nodes[index].name, cluster.nodes.iter());
        let to = &cluster.nodes[other].name;
        match self.random.below(4) {
            _ if index == other => {
                tracing::info!(node = name, "is cut off");
                self.network.isolate(name);
            }
            0 => {
                tracing::info!(from = name, to, "the link is cut one way");
                self.network.cut(name, to);
            }
            1 => {
                tracing::info!(one = name, other = to, "the link is cut");
                self.network.cut(name, to);
                self.network.cut(to, name);
            }
            // A leader or a controller that its clients still reach.
            2 => {
                tracing::info!(node = name, "is cut off from the nodes");
                for node in nodes.filter(|node| node.name != *name) {
                    self.network.cut(name, &node.name);
                    self.network.cut(&node.name, name);
                }
            }
            _ => {
                tracing::info!(node = name, "is cut off");
                self.network.isolate(name);
            }
        }
    }

    fn lose_power(&mut self, index: usize, cluster: &mut Cluster) {
        let kind = match self.random.one_in(2) {
            true => PowerLoss::Journalled,
            false => PowerLoss::Unordered,
        };
        tracing::info!(node = cluster.nodes[index].name, ?kind, "loses its power");
        cluster.nodes[index].lose_power(kind);
        sleep(self.millis(0..4_000));
        tracing::info!(node = cluster.nodes[index].name, "is started");
        cluster.nodes[index].start();
        let deadline = now() + RECOVERY;
        while !cluster.is_in_sync() && now() < deadline {
            sleep(Duration::from_millis(100));
        }
    }
}

/// Replaces a process that has ended by itself.
fn start_again(node: &mut Node) {
    if node.has_ended() {
        tracing::info!(node = node.name, "is started again");
        node.kill();
        node.start();
    }
}

/// Removes and returns the nodes whose time has passed.
fn take_due(waiting: &mut Vec<(usize, Duration)>) -> Vec<usize> {
    let (due, rest): (Vec<_>, _) = waiting.iter().partition(|(_, until)| *until <= now());
    *waiting = rest;
    due.into_iter().map(|(index, _)| index).collect()
}
