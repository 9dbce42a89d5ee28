//! A log in memory, with one numbered record per batch, and the leader epoch checkpoint.

use ottla_records::RecordBatch;
use ottla_types::{LeaderEpoch, Offset};

use crate::EpochEnd;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Record {
    pub(super) leader_epoch: LeaderEpoch,
    pub(super) value: u32,
}

#[derive(Default)]
pub(super) struct ModelLog {
    start: i64,
    /// The records from `start` on.
    records: Vec<Record>,
    /// Epochs with their start offsets, both increasing.
    epochs: Vec<(LeaderEpoch, i64)>,
    flushed_end: i64,
    /// The value in the checkpoint file.
    pub(super) checkpointed_high_watermark: Offset,
    pub(super) high_watermark: Offset,
}

impl ModelLog {
    pub(super) fn start(&self) -> Offset {
        Offset(self.start)
    }

    pub(super) fn end(&self) -> Offset {
        Offset(self.start + self.records.len() as i64)
    }

    pub(super) fn get(&self, offset: i64) -> Option<Record> {
        let index = usize::try_from(offset - self.start).ok()?;
        self.records.get(index).copied()
    }

    pub(super) fn latest_epoch(&self) -> Option<LeaderEpoch> {
        self.epochs.last().map(|(epoch, _)| *epoch)
    }

    pub(super) fn assign_epoch(&mut self, epoch: LeaderEpoch, start: Offset) {
        if self
            .epochs
            .last()
            .is_some_and(|last| last.0 == epoch && last.1 <= start.0)
        {
            return;
        }
        self.epochs
            .retain(|known| known.0 < epoch && known.1 < start.0);
        self.epochs.push((epoch, start.0));
    }

    /// As `LeaderEpochs::end_offset_for` of the real log.
    pub(super) fn end_of_epoch(&self, epoch: LeaderEpoch) -> Option<EpochEnd> {
        let end = |leader_epoch, end_offset| {
            Some(EpochEnd {
                leader_epoch,
                end_offset,
            })
        };
        if self.latest_epoch() == Some(epoch) {
            return end(epoch, self.end());
        }
        let higher = self.epochs.iter().position(|known| known.0 > epoch)?;
        let found = higher.checked_sub(1).map_or(epoch, |i| self.epochs[i].0);
        end(found, Offset(self.epochs[higher].1))
    }

    pub(super) fn append(&mut self, batch: &RecordBatch) {
        let header = &batch.header;
        assert_eq!(header.base_offset, self.end(), "the model log has no gaps");
        self.assign_epoch(header.partition_leader_epoch, self.end());
        self.records.push(Record {
            leader_epoch: header.partition_leader_epoch,
            value: header.crc,
        });
    }

    pub(super) fn truncate_to(&mut self, to: Offset) {
        if to.0 < self.start {
            return self.truncate_fully(to);
        }
        self.records.truncate((to.0 - self.start) as usize);
        let end = self.end().0;
        self.epochs.retain(|known| known.1 < end);
        self.flushed_end = self.flushed_end.min(end);
        self.high_watermark = self.high_watermark.min(self.end());
        self.checkpointed_high_watermark = self.checkpointed_high_watermark.min(self.end());
    }

    pub(super) fn truncate_fully(&mut self, start: Offset) {
        *self = ModelLog {
            start: start.0,
            flushed_end: start.0,
            high_watermark: start,
            checkpointed_high_watermark: start,
            ..ModelLog::default()
        };
    }

    pub(super) fn increment_start(&mut self, start: Offset) {
        let start = start.0.min(self.high_watermark.0);
        if start <= self.start {
            return;
        }
        self.records.drain(..(start - self.start) as usize);
        self.start = start;
        self.flushed_end = self.flushed_end.max(start);
        self.checkpointed_high_watermark = self.checkpointed_high_watermark.max(Offset(start));
        if let Some(first) = self.epochs.iter().rposition(|known| known.1 <= start) {
            self.epochs.drain(..first);
            self.epochs[0].1 = start;
        }
    }

    pub(super) fn flush(&mut self) {
        self.flushed_end = self.end().0;
    }

    pub(super) fn flushed_end(&self) -> Offset {
        Offset(self.flushed_end)
    }

    pub(super) fn checkpoint_high_watermark(&mut self) {
        self.checkpointed_high_watermark = self.high_watermark;
    }

    /// Keeps the records that survive a power loss, and returns the lost ones.
    pub(super) fn lose_unflushed(&mut self) -> Vec<u32> {
        let lost = (self.flushed_end - self.start) as usize;
        let lost = self.records[lost..].iter().map(|record| record.value);
        let lost = lost.collect();
        self.truncate_to(Offset(self.flushed_end));
        self.high_watermark = self.checkpointed_high_watermark;
        lost
    }
}
