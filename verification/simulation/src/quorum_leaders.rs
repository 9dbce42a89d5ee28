//! The leader of each epoch of the metadata quorum. An epoch has one leader, and a leader that
//! restarts does not lead its epoch again: it may have lost records that other nodes have read.

use std::collections::BTreeMap;

use ottla_types::LeaderEpoch;

use crate::cluster::Cluster;

#[derive(Default)]
pub(crate) struct QuorumLeaders {
    /// By epoch: the node, and the number of its process.
    led: BTreeMap<LeaderEpoch, (String, u64)>,
    finding: Option<String>,
}

impl QuorumLeaders {
    /// Asks each node whether it is the active controller.
    pub fn observe(&mut self, cluster: &Cluster) {
        for node in &cluster.nodes {
            if let Some(epoch) = node.led_epoch() {
                self.on_leader(epoch, node.process());
            }
        }
    }

    /// A process leads an epoch.
    pub fn on_leader(&mut self, epoch: LeaderEpoch, process: (String, u64)) {
        let known = self.led.entry(epoch).or_insert_with(|| process.clone());
        if *known != process && self.finding.is_none() {
            self.finding = Some(format!(
                "quorum leaders: process {} of {} leads epoch {epoch} of the metadata quorum, which process {} of {} led",
                process.1, process.0, known.1, known.0
            ));
        }
    }

    pub fn finding(&mut self) -> Option<String> {
        self.finding.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_has_one_leader_process() {
        let mut leaders = QuorumLeaders::default();
        let mut observe = |epoch: i32, name: &str, process: u64| {
            leaders.on_leader(LeaderEpoch(epoch), (name.to_owned(), process));
            leaders.finding()
        };
        assert_eq!(observe(1, "broker-1", 1), None);
        assert_eq!(observe(1, "broker-1", 1), None);
        assert_eq!(observe(2, "broker-1", 2), None);
        assert!(observe(2, "broker-1", 3).is_some());
        assert!(observe(1, "broker-2", 1).is_some());
    }
}
