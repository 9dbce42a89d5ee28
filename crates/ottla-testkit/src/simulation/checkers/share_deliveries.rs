//! What is written to a partition that a share group reads is delivered at least once: in the end every record has been accepted or
//! rejected by a member that was given it, or has been given out as often as `share.delivery.count.limit` allows.

use std::collections::BTreeMap;

use ottla_coordinator::share_partition::{AcknowledgeType, AcknowledgementBatch, AcquiredBatch};
use ottla_types::{Offset, TopicIdPartition};

use super::Finding;
use super::committed_records::CommittedRecords;
use crate::simulation::share_partitions::SHARE_SETTINGS;

#[derive(Default)]
struct Fate {
    deliveries: i32,
    /// Accepted or rejected, by somebody who had it. Whether the member was told that this holds is left open.
    is_decided: bool,
}

#[derive(Default)]
pub(crate) struct ShareDeliveries {
    fates: BTreeMap<(TopicIdPartition, i64), Fate>,
    pub(super) finding: Finding,
}

impl ShareDeliveries {
    pub(crate) fn on_acquired(&mut self, partition: TopicIdPartition, batch: &AcquiredBatch) {
        for offset in batch.first_offset.0..=batch.last_offset.0 {
            self.fates
                .entry((partition, offset))
                .or_default()
                .deliveries += 1;
        }
    }

    /// The leader takes what a member says.
    pub(crate) fn on_acknowledged(
        &mut self,
        partition: TopicIdPartition,
        batch: &AcknowledgementBatch,
    ) {
        for (index, offset) in (batch.first_offset.0..=batch.last_offset.0).enumerate() {
            let said = batch.types.get(index).or(batch.types.first());
            if let Some(AcknowledgeType::Accept | AcknowledgeType::Reject) = said {
                let fate = self.fates.entry((partition, offset)).or_default();
                fate.is_decided |= fate.deliveries > 0;
            }
        }
    }

    /// In the end: of all that is committed before `end`.
    pub(crate) fn check_all_delivered(
        &mut self,
        partition: TopicIdPartition,
        end: Offset,
        committed: &CommittedRecords,
    ) {
        for batch in committed.between(partition, Offset(0), end) {
            for offset in batch.header.base_offset.0..=batch.header.last_offset().0 {
                let fate = self.fates.entry((partition, offset)).or_default();
                let (deliveries, is_decided) = (fate.deliveries, fate.is_decided);
                if !is_decided && deliveries < SHARE_SETTINGS.delivery_count_limit {
                    self.finding.report(|| {
                        let partition = partition.partition;
                        format!(
                            "{offset} of partition {partition} was delivered {deliveries} times, and nobody has accepted or rejected it"
                        )
                    });
                }
            }
        }
    }

    /// The records that somebody has accepted or rejected.
    pub(crate) fn count(&self) -> usize {
        self.fates.values().filter(|fate| fate.is_decided).count()
    }
}
