//! Log matching: where two logs have a batch of the same epoch at the same offset, they are the same up to there. It holds
//! for the metadata log and for partitions, whatever was elected.

use std::collections::BTreeMap;

use ottla_types::TopicIdPartition;

use super::Finding;
use super::committed_records::shown;
use crate::simulation::node::{Node, name};

#[derive(Default)]
pub(crate) struct LogMatching {
    pub(super) finding: Finding,
}

impl LogMatching {
    pub(crate) fn check(&mut self, nodes: &BTreeMap<i32, Node>) {
        let nodes: Vec<&Node> = nodes.values().collect();
        for (index, one) in nodes.iter().enumerate() {
            for other in &nodes[index + 1..] {
                self.check_metadata(one, other);
                for partition in one.disk.partitions.keys() {
                    self.check_partition(*partition, one, other);
                }
            }
        }
    }

    fn check_metadata(&mut self, one: &Node, other: &Node) {
        let start = one.disk.metadata.start().max(other.disk.metadata.start());
        let pairs: Vec<_> = one
            .disk
            .metadata
            .batches_from(start)
            .iter()
            .zip(other.disk.metadata.batches_from(start))
            .collect();
        let agreed = pairs
            .iter()
            .rposition(|(a, b)| a.base_offset == b.base_offset && a.epoch == b.epoch);
        let differ = agreed.and_then(|last| pairs[..=last].iter().find(|(a, b)| a != b));
        if let Some((a, b)) = differ {
            self.finding.report(|| {
                format!(
                    "the metadata logs of {} and {} have {a:?} and {b:?}, and agree behind that",
                    name(one.id),
                    name(other.id)
                )
            });
        }
    }

    fn check_partition(&mut self, partition: TopicIdPartition, one: &Node, other: &Node) {
        let (Some(first), Some(second)) = (
            one.disk.partitions.get(&partition),
            other.disk.partitions.get(&partition),
        ) else {
            return;
        };
        let start = first.start().max(second.start());
        let pairs: Vec<_> = first
            .batches_from(start)
            .iter()
            .zip(second.batches_from(start))
            .collect();
        let agreed = pairs.iter().rposition(|(a, b)| {
            a.header.base_offset == b.header.base_offset
                && a.header.partition_leader_epoch == b.header.partition_leader_epoch
        });
        let differ = agreed.and_then(|last| pairs[..=last].iter().find(|(a, b)| a != b));
        if let Some((a, b)) = differ {
            self.finding.report(|| {
                format!(
                    "partition {} is {} on {} and {} on {}, and they agree behind that",
                    partition.partition,
                    shown(a),
                    name(one.id),
                    shown(b),
                    name(other.id)
                )
            });
        }
    }
}
