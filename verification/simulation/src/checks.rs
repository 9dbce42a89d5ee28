//! Invariants of the logs that must hold at every moment, and the state to which the cluster
//! converges when the faults are over.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ottla_sync::simulation::now;
use ottla_sync::thread::sleep;
use ottla_testkit::client_histories::workload::{PARTITIONS, TOPICS};

use crate::cluster::Cluster;
use crate::logs::{self, Batch};
use crate::movers;
use crate::node::Node;
use crate::outcome::Outcome;

const METADATA: &str = "__cluster_metadata";
/// How long a cluster without faults may take until all replicas are in sync and equal.
const CONVERGENCE: Duration = Duration::from_secs(60);

/// By epoch and offset.
type Written = BTreeMap<(i32, i64), (Batch, String)>;

/// Everything that has been on the disks.
#[derive(Default)]
pub(crate) struct LogChecks {
    /// By log: the batch that the leader of an epoch wrote at an offset, and a node that has it. It
    /// must be the same on all disks at all times.
    written: BTreeMap<String, Written>,
    /// The highest committed offset that any replica has reported, exclusive.
    committed: BTreeMap<String, i64>,
    finding: Option<String>,
}

impl LogChecks {
    /// Reads all disks. Logs that agree at an offset and epoch must agree there forever.
    pub fn observe(&mut self, cluster: &Cluster) {
        for node in &cluster.nodes {
            // Before the disk, which may lose uncommitted records in between.
            let committed = committed_in(node);
            for (log, batches) in &logs::on_disk(&node.disk, is_append_only) {
                self.on_batches(&node.name, log, batches);
                if let Some(end) = committed.get(log) {
                    let committed = batches.iter().take_while(|it| it.last_offset < *end);
                    self.check_markers(&node.name, log, committed);
                }
            }
            for (log, end) in committed {
                self.on_committed(log, end);
            }
        }
    }

    fn on_batches(&mut self, node: &str, log: &str, batches: &[Batch]) {
        let written = self.written.entry(log.to_owned()).or_default();
        // Most are known, and in this order: following the known ones is cheaper than a search for each.
        let mut known = written.iter().peekable();
        let is_new = |batch: &&Batch| {
            let key = (batch.epoch, batch.base_offset);
            while known.next_if(|(at, _)| **at < key).is_some() {}
            known
                .peek()
                .is_none_or(|(at, (it, _))| (**at, it) != (key, *batch))
        };
        let new: Vec<&Batch> = batches.iter().filter(is_new).collect();
        for batch in new {
            let (known, holder) = written
                .entry((batch.epoch, batch.base_offset))
                .or_insert_with(|| (*batch, node.to_owned()));
            if *known != *batch && self.finding.is_none() {
                self.finding = Some(format!(
                    "log matching: {log} has {known:?} on {holder} and {batch:?} on {node}"
                ));
            }
        }
    }

    /// A producer gets a new epoch with each transaction (KIP-890), so a record in another epoch
    /// than that of an open transaction shows that the marker of the latter is missing. Only what is
    /// committed is checked: the marker may be in the log of a new leader, while the old one, which
    /// does not know of it, still takes records that will be truncated.
    fn check_markers<'a>(
        &mut self,
        node: &str,
        log: &str,
        batches: impl Iterator<Item = &'a Batch>,
    ) {
        let mut open: BTreeMap<i64, i16> = BTreeMap::new();
        for batch in batches {
            let Some((id, epoch)) = batch.producer else {
                continue;
            };
            if batch.is_control {
                open.remove(&id);
                continue;
            }
            let before = *open.entry(id).or_insert(epoch);
            if before != epoch && self.finding.is_none() {
                let offset = batch.base_offset;
                self.finding = Some(format!(
                    "markers: {log} on {node} has a record of producer {id} in epoch {epoch} at offset {offset}, and no \
                     marker ends its transaction in epoch {before}"
                ));
            }
        }
    }

    fn on_committed(&mut self, log: String, up_to: i64) {
        let known = self.committed.entry(log).or_default();
        *known = up_to.max(*known);
    }

    pub fn finding(&mut self) -> Option<String> {
        self.finding.take()
    }

    /// Waits until the replicas are in sync and equal up to the committed offset.
    pub fn converge(&mut self, cluster: &Cluster) -> Result<(), String> {
        let deadline = now() + CONVERGENCE;
        let mut differs = None;
        while now() < deadline {
            sleep(Duration::from_millis(500));
            self.observe(cluster);
            differs = match cluster.is_in_sync() {
                true => self.difference(cluster),
                false => Some("not all replicas are in sync".to_owned()),
            };
            if differs.is_none() {
                return Ok(());
            }
        }
        let differs = differs.unwrap_or_default();
        Err(format!("convergence: after {CONVERGENCE:?}: {differs}"))
    }

    /// The first log that does not reach the committed offset or differs between two disks.
    fn difference(&self, cluster: &Cluster) -> Option<String> {
        let mut first: BTreeMap<String, (String, Vec<Batch>)> = BTreeMap::new();
        for node in &cluster.nodes {
            for (log, batches) in logs::on_disk(&node.disk, is_append_only) {
                if log.starts_with(METADATA) && !node.holds_metadata_vote() {
                    continue;
                }
                let end = batches.last().map_or(0, |batch| batch.last_offset + 1);
                let committed = self.committed.get(&log).copied().unwrap_or_default();
                if end < committed {
                    let name = &node.name;
                    return Some(format!(
                        "{log} ends at {end} on {name}, and {committed} offsets were committed"
                    ));
                }
                if log.starts_with(METADATA) {
                    // The metadata log keeps growing, and starts at the last snapshot.
                    continue;
                }
                let (holder, known) = first
                    .entry(log.clone())
                    .or_insert_with(|| (node.name.clone(), batches.clone()));
                if *known != batches {
                    let at = known.iter().zip(&batches).position(|(a, b)| a != b);
                    return Some(format!(
                        "{log} has {} batches on {holder} and {} on {}, alike up to batch {at:?}",
                        known.len(),
                        batches.len(),
                        node.name,
                    ));
                }
            }
        }
        None
    }

    /// Adds the number of written batches to the outcome.
    pub fn count(&self, cluster: &Cluster, outcome: &mut Outcome) {
        for (log, written) in &self.written {
            let epochs: BTreeSet<i32> = written.keys().map(|(epoch, _)| *epoch).collect();
            match log.starts_with(METADATA) {
                true => outcome.metadata_epochs += epochs.len() as u64,
                false => outcome.leader_epochs += epochs.len() as u64,
            }
        }
        let segments = |node: &Node| logs::count_segments(&node.disk);
        outcome.segments = cluster.nodes.iter().map(segments).sum();
    }
}

/// The high watermarks of this node's replicas, by log. None of a node that does not run.
fn committed_in(node: &Node) -> BTreeMap<String, i64> {
    let Some(broker) = node.broker() else {
        return BTreeMap::new();
    };
    let mut committed = BTreeMap::new();
    for topic in TOPICS.into_iter().chain([movers::TARGET]) {
        for index in 0..PARTITIONS {
            if let Ok(partition) = broker.local_partition(topic, index) {
                let end = partition.reader().high_watermark().0;
                committed.insert(format!("{topic}-{index}"), end);
            }
        }
    }
    if let Some(quorum) = broker.controller() {
        let end = quorum.status().high_watermark.0;
        committed.insert(format!("{METADATA}-0"), end);
    }
    committed
}

/// Whether the cleaner leaves the log as it is.
fn is_append_only(log: &str) -> bool {
    !log.starts_with("__") || log.starts_with(METADATA)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(epoch: i32, base_offset: i64, crc: u32) -> Batch {
        Batch {
            base_offset,
            last_offset: base_offset,
            epoch,
            crc,
            producer: None,
            is_control: false,
        }
    }

    #[test]
    fn a_batch_is_the_same_on_all_disks_and_at_all_times() {
        let log = [batch(1, 0, 7), batch(1, 1, 8), batch(3, 2, 9)];
        let finding_of = |other: &[Batch]| {
            let mut checks = LogChecks::default();
            checks.on_batches("broker-1", "a-0", &log);
            checks.on_batches("broker-1", "a-0", &log);
            checks.on_batches("broker-2", "b-0", other);
            assert_eq!(checks.finding(), None);
            checks.on_batches("broker-2", "a-0", other);
            let finding = checks.finding();
            let is_of_batch = |it: &String| it.starts_with("log matching: a-0 has Batch");
            assert!(finding.as_ref().is_none_or(is_of_batch), "{finding:?}");
            finding.is_some()
        };
        assert!(!finding_of(&log) && !finding_of(&log[1..]) && !finding_of(&[]));
        assert!(!finding_of(&[
            batch(1, 0, 7),
            batch(2, 1, 1),
            batch(4, 3, 1)
        ]));
        for at in 0..log.len() {
            let mut other = log;
            other[at].crc += 1;
            assert!(finding_of(&other) && finding_of(&other[at..]));
            // Also if the epochs of the log are out of order.
            other.reverse();
            assert!(finding_of(&other));
        }
    }
}
