//! No record of a share partition is delivered more often than `share.delivery.count.limit` says, and how often it was is told truly.
//!
//! A new leader may know of fewer deliveries than there were, since they are persisted only with what became of them: each is
//! counted for itself.

use std::collections::BTreeMap;

use ottla_coordinator::share_partition::AcquiredBatch;
use ottla_types::{LeaderEpoch, TopicIdPartition};

use super::Finding;
use crate::simulation::share_partitions::SHARE_SETTINGS;

#[derive(Default)]
pub(crate) struct ShareDeliveryCounts {
    /// By leader and offset.
    deliveries: BTreeMap<((TopicIdPartition, LeaderEpoch), i64), i32>,
    pub(super) finding: Finding,
}

impl ShareDeliveryCounts {
    /// The leader gives the share partition up, and knows of it what is persisted if it takes it up again.
    pub(crate) fn on_closed(&mut self, of: (TopicIdPartition, LeaderEpoch)) {
        self.deliveries.retain(|(counted, _), _| *counted != of);
    }

    pub(crate) fn on_acquired(
        &mut self,
        of: (TopicIdPartition, LeaderEpoch),
        batch: &AcquiredBatch,
    ) {
        let (limit, told) = (
            SHARE_SETTINGS.delivery_count_limit,
            i32::from(batch.delivery_count),
        );
        for offset in batch.first_offset.0..=batch.last_offset.0 {
            let count = self.deliveries.entry((of, offset)).or_default();
            *count += 1;
            let count = *count;
            if told > limit || count > told {
                self.finding.report(|| {
                    let partition = of.0.partition;
                    format!(
                        "{offset} of partition {partition} is delivered for the {count}th time by its leader, with the count {told}, and the limit is {limit}"
                    )
                });
            }
        }
    }
}
