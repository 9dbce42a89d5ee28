//! No acknowledged record is lost while one member of the ISR or the ELR keeps its disk and unclean election is off: whoever is
//! elected has it, and in the end it is where the producer was told.
//!
//! That one member keeps its disk, `faults` sees to: a member that was started again without what it had not flushed counts
//! as one that lost it.

use std::collections::BTreeMap;

use ottla_types::{LeaderEpoch, Offset, TopicIdPartition};

use super::Finding;
use crate::simulation::partition_log::PartitionLog;

#[derive(Default)]
pub(crate) struct Acknowledged {
    /// By partition and base offset: the value, and the epoch in which it was acknowledged first.
    acknowledged: BTreeMap<(TopicIdPartition, Offset), (u32, LeaderEpoch)>,
    pub is_unclean: bool,
    pub(super) finding: Finding,
}

impl Acknowledged {
    pub(crate) fn on_acknowledged(
        &mut self,
        partition: TopicIdPartition,
        base_offset: Offset,
        value: u32,
        epoch: LeaderEpoch,
    ) {
        let key = (partition, base_offset);
        let known = *self.acknowledged.entry(key).or_insert((value, epoch));
        if known.0 != value && !self.is_unclean {
            self.finding.report(|| {
                format!(
                    "{base_offset} is acknowledged for value {} and for value {value}",
                    known.0
                )
            });
        }
    }

    /// A leader was elected: it has what was acknowledged in the epochs before.
    pub(crate) fn on_elected(
        &mut self,
        id: i32,
        partition: TopicIdPartition,
        epoch: LeaderEpoch,
        log: &PartitionLog,
    ) {
        self.check(partition, epoch, log, || {
            format!("leader {id} of epoch {epoch} was elected without it")
        });
    }

    /// In the end.
    pub(crate) fn check_nothing_lost(&mut self, partition: TopicIdPartition, log: &PartitionLog) {
        let all = LeaderEpoch(i32::MAX);
        self.check(partition, all, log, || "it is gone in the end".to_owned());
    }

    fn check(
        &mut self,
        partition: TopicIdPartition,
        before: LeaderEpoch,
        log: &PartitionLog,
        what: impl Fn() -> String,
    ) {
        if self.is_unclean {
            return;
        }
        let range = (partition, Offset(0))..=(partition, Offset(i64::MAX));
        for (&(_, offset), &(value, epoch)) in self.acknowledged.range(range) {
            let found = log.batch_at(offset);
            let is_there = found.is_some_and(|batch| {
                batch.header.base_offset == offset && batch.header.crc == value
            });
            if epoch < before && !is_there {
                let found = found.map(super::committed_records::shown);
                let end = log.end();
                self.finding.report(|| {
                    format!(
                        "value {value} was acknowledged at {offset} in epoch {epoch}; {}: there is {found:?}, and \
                         the log ends at {end}",
                        what()
                    )
                });
                return;
            }
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.acknowledged.len()
    }
}
