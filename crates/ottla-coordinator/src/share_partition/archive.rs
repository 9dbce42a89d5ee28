//! Archives records that will not be delivered, because they are not in the log any more or were
//! aborted.
//!
//! None of that is persisted here: the next write contains the start offset, and a new leader
//! archives the same records again. Source: `SharePartition.updateCacheAndOffsets`,
//! `SharePartition.maybeArchiveStaleBatches`,
//! `SharePartition.filterAbortedTransactionalAcquiredRecords`.

use ottla_types::Offset;

use super::in_flight::RecordState;
use super::partition::SharePartition;

impl SharePartition {
    /// The log start offset has changed. Records before it that members hold stay acquired until
    /// they are released; available ones are archived. Returns whether the start offset has moved.
    pub fn on_log_start_offset(&mut self, log_start_offset: Offset) -> bool {
        let log_start_offset = log_start_offset.0;
        if log_start_offset <= self.start_offset {
            return false;
        }
        if self.in_flight.is_empty() {
            self.start_offset = log_start_offset;
            self.end_offset = log_start_offset;
            return true;
        }
        let archived = self.archive(
            self.start_offset,
            log_start_offset - 1,
            RecordState::Available,
        );
        self.looks_for_available |= archived > 0;
        self.start_offset = log_start_offset;
        self.end_offset = self.end_offset.max(self.start_offset);
        self.close_gap_before(log_start_offset);
        self.delivery_complete_count = self.count_terminal();
        self.advance_start_offset();
        true
    }

    /// A read at `fetch_offset` returned a first batch at `base_offset`: the records between them
    /// have been removed by compaction.
    pub(super) fn archive_compacted(&mut self, fetch_offset: i64, base_offset: i64) {
        if fetch_offset >= base_offset {
            return;
        }
        let archived = self.archive(fetch_offset, base_offset - 1, RecordState::Available);
        self.looks_for_available |= archived > 0;
        self.delivery_complete_count += archived;
    }

    /// Archives records of an aborted transaction that have just been acquired.
    pub(super) fn archive_aborted(&mut self, first_offset: i64, last_offset: i64) {
        let archived = self.archive(first_offset, last_offset, RecordState::Acquired);
        self.delivery_complete_count += archived;
    }

    /// Archives the records of the range that are in state `from`. Returns how many of them are at
    /// or after the start offset.
    pub(super) fn archive(
        &mut self,
        first_offset: i64,
        last_offset: i64,
        from: RecordState,
    ) -> i64 {
        let floor = self
            .floor(first_offset)
            .map_or(first_offset, |batch| batch.first_offset);
        let start_offset = self.start_offset;
        let mut archived = 0;
        for key in self.keys(floor, last_offset) {
            let batch = self.batch_mut(key);
            if batch.last_offset < first_offset {
                continue;
            }
            if batch.whole().is_some_and(|state| state.state() != from) {
                continue;
            }
            if !batch.is_within(first_offset, last_offset) {
                batch.split();
            }
            for (first, last, state) in batch.runs_mut() {
                if first >= first_offset && last <= last_offset && state.state() == from {
                    state.archive();
                    archived += (last - first.max(start_offset) + 1).max(0);
                }
            }
        }
        archived
    }
}
