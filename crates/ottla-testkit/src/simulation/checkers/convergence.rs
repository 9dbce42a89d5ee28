//! When nothing fails any more, everything comes together: one controller, the same image everywhere, every partition with its
//! preferred leader's replicas all in sync and the same, every producer done, every consumer at the end.

use std::collections::BTreeMap;

use ottla_types::{BrokerId, TopicIdPartition};

use super::Finding;
use super::acknowledged::Acknowledged;
use crate::simulation::broker_shell::registration_of;
use crate::simulation::node::{Node, name};

#[derive(Default)]
pub(crate) struct Convergence {
    pub(super) finding: Finding,
}

impl Convergence {
    pub(crate) fn report(&mut self, finding: impl FnOnce() -> String) {
        self.finding.report(finding);
    }

    pub(crate) fn check_nodes(&mut self, nodes: &BTreeMap<i32, Node>) {
        let up = nodes.values().filter_map(|node| {
            let process = node.process.as_ref()?;
            Some((node, process))
        });
        let up: Vec<_> = up.collect();
        if up.len() != nodes.len() {
            return self
                .finding
                .report(|| "healed, and not all nodes are up".to_owned());
        }
        let leaders: Vec<_> = up
            .iter()
            .filter(|(_, process)| process.quorum.quorum.is_active_leader())
            .collect();
        let [(leader, of_leader)] = leaders[..] else {
            let ids: Vec<i32> = leaders.iter().map(|(node, _)| node.id).collect();
            return self
                .finding
                .report(|| format!("healed, and controllers {ids:?} lead"));
        };
        for (node, process) in &up {
            let (known, epoch) = (
                process.quorum.quorum.leader(),
                process.quorum.quorum.epoch(),
            );
            if known != Some(BrokerId(leader.id)) || epoch != of_leader.quorum.quorum.epoch() {
                self.finding.report(|| {
                    format!(
                        "healed, and {} follows {known:?} in epoch {epoch}",
                        name(node.id)
                    )
                });
            }
        }
        let image = of_leader.quorum.committed_image();
        for (node, process) in &up {
            let other = process.quorum.committed_image();
            if other.provenance == image.provenance && other.to_records() != image.to_records() {
                self.finding.report(|| {
                    format!(
                        "{} and {} have different images of the same log",
                        name(node.id),
                        name(leader.id)
                    )
                });
            }
            let behind = image.provenance.last_contained_offset.value()
                - other.provenance.last_contained_offset.value();
            if behind > 20 {
                self.finding
                    .report(|| format!("healed, and {} is {behind} records behind", name(node.id)));
            }
        }
        for broker in image.cluster.brokers() {
            if broker.fenced {
                self.finding
                    .report(|| format!("healed, and broker {} is fenced", broker.id));
            }
        }
    }

    /// Returns false where nobody can come to lead the partition, by Kafka's rules: who is left in the ELR was moved away
    /// (`PartitionChangeBuilder.maybePopulateTargetElr` keeps it there), and while somebody is, the leader that was known
    /// last is not taken.
    pub(crate) fn check_partition(
        &mut self,
        key: TopicIdPartition,
        nodes: &BTreeMap<i32, Node>,
        acknowledged: &mut Acknowledged,
    ) -> bool {
        let processes = nodes.values().filter_map(|node| node.process.as_ref());
        let newest = processes
            .map(|process| process.quorum.committed_image())
            .max_by_key(|image| image.provenance.last_contained_offset);
        let registration = newest.and_then(|image| registration_of(image, key));
        let Some(registration) = registration else {
            self.finding
                .report(|| "healed, and a partition is gone".to_owned());
            return true;
        };
        let (isr, elr) = (&registration.isr, &registration.elr);
        let is_moved_away = |member: &BrokerId| !registration.is_replica(*member);
        if isr.is_empty() && !elr.is_empty() && elr.iter().all(is_moved_away) {
            return false;
        }
        let shown = || format!("partition {}: {registration:?}", key.partition);
        let leader = nodes.get(&registration.leader.value());
        let Some(of_leader) = leader.and_then(|node| node.disk.partitions.get(&key)) else {
            self.finding
                .report(|| format!("healed, and nobody leads {}", shown()));
            return true;
        };
        acknowledged.check_nothing_lost(key, of_leader);
        for replica in &registration.replicas {
            let Some(log) = nodes
                .get(&replica.value())
                .and_then(|node| node.disk.partitions.get(&key))
            else {
                self.finding
                    .report(|| format!("healed, and broker {replica} has no log of {}", shown()));
                continue;
            };
            if !registration.isr.contains(replica) {
                self.finding.report(|| {
                    format!(
                        "healed, and broker {replica} is not in sync, its log ends at {}, {}",
                        log.end(),
                        shown()
                    )
                });
            }
            if log.batches() != of_leader.batches() {
                self.finding.report(|| {
                    format!(
                        "healed, and broker {replica} has another log than its leader, {}",
                        shown()
                    )
                });
            }
            if log.last_stable_offset() != log.high_watermark() {
                self.finding.report(|| {
                    format!(
                        "healed, and a transaction is open from {} on at broker {replica}, {}",
                        log.last_stable_offset(),
                        shown()
                    )
                });
            }
            if log.high_watermark() != log.end() {
                self.finding.report(|| {
                    format!(
                        "healed, and the high watermark of broker {replica} is {} of {}, {}",
                        log.high_watermark(),
                        log.end(),
                        shown()
                    )
                });
            }
        }
        true
    }
}
