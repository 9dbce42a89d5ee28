//! One leader an epoch of a partition, and one process of it: a broker that was started anew does not lead on.

use std::collections::BTreeMap;

use ottla_types::{LeaderEpoch, TopicIdPartition};

use super::Finding;

#[derive(Default)]
pub(crate) struct PartitionLeaders {
    leaders: BTreeMap<(TopicIdPartition, LeaderEpoch), (i32, u64)>,
    pub(super) finding: Finding,
}

impl PartitionLeaders {
    pub(crate) fn on_leader(
        &mut self,
        id: i32,
        life: u64,
        partition: TopicIdPartition,
        epoch: LeaderEpoch,
    ) {
        let leader = (id, life);
        let known = *self.leaders.entry((partition, epoch)).or_insert(leader);
        if known != leader {
            let partition = partition.partition;
            self.finding.report(|| {
                format!(
                    "epoch {epoch} of partition {partition} is led by broker {} in its life {} and by broker \
                     {id} in its life {life}",
                    known.0, known.1
                )
            });
        }
    }

    pub(crate) fn epochs(&self) -> usize {
        self.leaders.len()
    }
}
