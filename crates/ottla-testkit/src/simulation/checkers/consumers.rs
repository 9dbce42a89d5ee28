//! No consumer is given what is not committed, and none misses anything: what it reads is what was committed, offset after offset.

use std::collections::BTreeMap;

use ottla_records::RecordBatch;
use ottla_types::{Offset, TopicIdPartition};

use super::Finding;
use super::committed_records::{CommittedRecords, shown};

#[derive(Default)]
pub(crate) struct Consumers {
    read: BTreeMap<i32, usize>,
    pub is_unclean: bool,
    pub(super) finding: Finding,
}

impl Consumers {
    /// A consumer at `offset` was given a batch by a broker.
    pub(crate) fn on_read(
        &mut self,
        consumer: i32,
        broker: i32,
        partition: TopicIdPartition,
        offset: Offset,
        batch: &RecordBatch,
        committed: &CommittedRecords,
    ) {
        *self.read.entry(consumer).or_default() += 1;
        if self.is_unclean {
            return;
        }
        let found = shown(batch);
        if batch.header.base_offset != offset {
            self.finding.report(|| {
                format!(
                    "consumer {consumer} at {offset} is given {found} by broker {broker}: a gap"
                )
            });
        }
        let known = committed.at(partition, batch.header.base_offset);
        if known != Some(batch) {
            let known = known.map(shown);
            self.finding.report(|| {
                format!("consumer {consumer} is given {found} by broker {broker}; committed is {known:?}")
            });
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.read.values().sum()
    }
}
