//! Committed metadata is never undone: one value a committed offset, whoever says that it is committed; nobody cuts it off;
//! and what the controller has answered is committed.

use std::collections::BTreeMap;

use super::Finding;
use crate::simulation::metadata_log::{MetadataBatch, MetadataLog};

#[derive(Default)]
pub(crate) struct MetadataCommitted {
    /// By base offset, without gaps.
    committed: BTreeMap<i64, MetadataBatch>,
    end: i64,
    /// Up to where each process has been looked at.
    seen: BTreeMap<(i32, u64), i64>,
    pub(super) finding: Finding,
}

impl MetadataCommitted {
    /// A process takes everything before `high_watermark` for committed.
    pub(crate) fn on_committed(
        &mut self,
        id: i32,
        life: u64,
        log: &MetadataLog,
        high_watermark: i64,
    ) {
        let seen = self.seen.entry((id, life)).or_insert(log.start());
        let from = (*seen).max(log.start());
        if high_watermark <= from {
            return;
        }
        *seen = high_watermark;
        for batch in log.batches_from(from) {
            if batch.end() > high_watermark {
                break;
            }
            match self.committed.get(&batch.base_offset) {
                Some(known) if known == batch => {}
                Some(known) => self
                    .finding
                    .report(|| format!("committed as {known:?} and, by node {id}, as {batch:?}")),
                None if batch.base_offset == self.end => {
                    self.end = batch.end();
                    self.committed.insert(batch.base_offset, batch.clone());
                }
                None => {
                    let end = self.end;
                    self.finding.report(|| {
                        format!("node {id} commits {batch:?}, and what is committed ends at {end}")
                    });
                }
            }
        }
    }

    pub(crate) fn on_truncated(&mut self, id: i32, cut: &[MetadataBatch]) {
        for batch in cut {
            if self.committed.get(&batch.base_offset) == Some(batch) {
                self.finding
                    .report(|| format!("node {id} cuts off {batch:?}, which is committed"));
            }
        }
    }

    pub(crate) fn on_snapshot_installed(&mut self, id: i32, end: i64) {
        if end > self.end {
            self.finding.report(|| {
                format!("node {id} installs a snapshot up to {end}, which is not committed")
            });
        }
    }

    /// The controller answers a request whose records end at `end`.
    pub(crate) fn on_answered(&mut self, id: i32, end: i64) {
        if end > self.end {
            let known = self.end;
            self.finding.report(|| {
                format!("controller {id} answers for records up to {end}; committed are those up to {known}")
            });
        }
    }

    /// The first committed offset that a log has not.
    pub(crate) fn first_missing(&self, log: &MetadataLog) -> Option<i64> {
        let mut batches = log.batches_from(log.start()).iter();
        self.committed
            .range(log.start()..)
            .find(|(_, committed)| batches.next() != Some(committed))
            .map(|(&base_offset, _)| base_offset)
    }

    pub(crate) fn end(&self) -> i64 {
        self.end
    }
}
