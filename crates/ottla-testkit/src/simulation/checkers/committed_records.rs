//! One value a committed offset: what a leader's high watermark has passed is the same for every later leader.

use std::collections::BTreeMap;

use ottla_records::RecordBatch;
use ottla_types::{LeaderEpoch, Offset, TopicIdPartition};

use super::Finding;
use crate::simulation::partition_log::PartitionLog;

#[derive(Default)]
pub(crate) struct CommittedRecords {
    /// By partition and offset: the batch that begins there.
    committed: BTreeMap<(TopicIdPartition, Offset), RecordBatch>,
    /// Up to where each leader was looked at.
    seen: BTreeMap<(TopicIdPartition, LeaderEpoch, i32), Offset>,
    pub is_unclean: bool,
    pub(super) finding: Finding,
}

impl CommittedRecords {
    /// Returns what was not known to be committed before.
    pub(crate) fn on_committed(
        &mut self,
        id: i32,
        partition: TopicIdPartition,
        epoch: LeaderEpoch,
        log: &PartitionLog,
        high_watermark: Offset,
    ) -> Vec<RecordBatch> {
        let mut found_first = Vec::new();
        let seen = self
            .seen
            .entry((partition, epoch, id))
            .or_insert(log.start());
        let from = std::mem::replace(seen, high_watermark.max(*seen));
        if log.end() < high_watermark {
            let end = log.end();
            self.finding.report(|| {
                format!("leader {id} has nothing from {end} on, below its high watermark {high_watermark}")
            });
        }
        for batch in log.batches_from(from) {
            if batch.header.next_offset() > high_watermark {
                break;
            }
            let key = (partition, batch.header.base_offset);
            let known = self.committed.entry(key).or_insert_with(|| {
                found_first.push(batch.clone());
                batch.clone()
            });
            if known == batch {
                continue;
            }
            if !self.is_unclean {
                let (known, found) = (shown(known), shown(batch));
                self.finding.report(|| {
                    format!("committed as {known} and, by leader {id} of epoch {epoch}, as {found}")
                });
            }
            *known = batch.clone();
        }
        found_first
    }

    /// What is committed of a partition from one offset to before another.
    pub(crate) fn between(
        &self,
        partition: TopicIdPartition,
        from: Offset,
        to: Offset,
    ) -> impl Iterator<Item = &RecordBatch> {
        let range = self.committed.range((partition, from)..(partition, to));
        range.map(|(_, batch)| batch)
    }

    /// What is committed at an offset at which a batch begins.
    pub(crate) fn at(&self, partition: TopicIdPartition, offset: Offset) -> Option<&RecordBatch> {
        self.committed.get(&(partition, offset))
    }

    pub(crate) fn count(&self) -> usize {
        self.committed.len()
    }
}

/// A batch for people.
pub(crate) fn shown(batch: &RecordBatch) -> String {
    let header = &batch.header;
    format!(
        "value {} of epoch {} at {}..{}",
        header.crc,
        header.partition_leader_epoch,
        header.base_offset,
        header.next_offset()
    )
}
