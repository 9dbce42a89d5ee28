//! The log of one simulated replica: batches, leader epochs, producers, and what of it survives a loss of power.
//!
//! Leader epochs and the state of producers are those of `ottla-log`; files are not. Mirrors `ottla-log/src/log`: what a crash tears
//! fails its checksum at recovery, epochs and producers are read back from the batches that are left.

use ottla_log::{
    AppendOrigin, LeaderEpochs, ProducerStage, ProducerState, ProducerVerdict as Checked,
    TransactionVersion,
};
use ottla_records::RecordBatch;
use ottla_replica::{EpochEnd, ProducerVerdict};
use ottla_types::{ErrorCode, LeaderEpoch, Offset};

use super::planted::{self, Bug};

pub(crate) struct PartitionLog {
    start: i64,
    batches: Vec<RecordBatch>,
    epochs: LeaderEpochs,
    producers: ProducerState,
    /// Up to where it survives a loss of power, exclusive.
    flushed: i64,
    /// Raised when it is cut.
    generation: u64,
    pub high_watermark: Offset,
    /// As in `replication-offset-checkpoint`.
    checkpointed: Offset,
}

impl PartitionLog {
    pub(crate) fn new() -> PartitionLog {
        PartitionLog {
            start: 0,
            batches: Vec::new(),
            epochs: LeaderEpochs::default(),
            producers: ProducerState::new(i64::MAX),
            flushed: 0,
            generation: 0,
            high_watermark: Offset(0),
            checkpointed: Offset(0),
        }
    }

    pub(crate) fn start(&self) -> Offset {
        Offset(self.start)
    }

    pub(crate) fn end(&self) -> Offset {
        self.batches
            .last()
            .map_or(Offset(self.start), |batch| batch.header.next_offset())
    }

    /// Up to where it survives a loss of power, exclusive.
    pub(crate) fn flushed(&self) -> Offset {
        Offset(self.flushed)
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn batches(&self) -> &[RecordBatch] {
        &self.batches
    }

    /// The batches from the one that holds `offset` on.
    pub(crate) fn batches_from(&self, offset: Offset) -> &[RecordBatch] {
        let first = self
            .batches
            .partition_point(|batch| batch.header.next_offset() <= offset);
        &self.batches[first..]
    }

    /// The batch that holds `offset`.
    pub(crate) fn batch_at(&self, offset: Offset) -> Option<&RecordBatch> {
        let batch = self.batches_from(offset).first()?;
        (batch.header.base_offset <= offset).then_some(batch)
    }

    pub(crate) fn latest_epoch(&self) -> Option<LeaderEpoch> {
        self.epochs.latest().map(|entry| entry.epoch)
    }

    pub(crate) fn assign_epoch(&mut self, epoch: LeaderEpoch, start: Offset) {
        self.epochs.assign(epoch, start);
    }

    pub(crate) fn end_of_epoch(&self, epoch: LeaderEpoch) -> Option<EpochEnd> {
        let (leader_epoch, end_offset) = self.epochs.end_offset_for(epoch, self.end())?;
        Some(EpochEnd {
            leader_epoch,
            end_offset,
        })
    }

    /// Mirrors `partition/execute.rs:verdict`.
    pub(crate) fn check_producer(
        &self,
        stage: &mut ProducerStage,
        batch: &RecordBatch,
    ) -> ProducerVerdict {
        if planted::has(Bug::TakeEveryBatch) {
            return ProducerVerdict::InSequence;
        }
        let (origin, version) = (AppendOrigin::Client, TransactionVersion::default());
        match self.producers.check(stage, batch, origin, version) {
            Ok(Checked::InSequence) => ProducerVerdict::InSequence,
            Ok(Checked::Duplicate(duplicate)) => ProducerVerdict::Duplicate {
                base_offset: duplicate.first_offset(),
                last_offset: duplicate.last_offset,
                log_append_time: duplicate.timestamp,
            },
            Err(error) => ProducerVerdict::Refused(match error.error_code() {
                ErrorCode::None => ErrorCode::UnknownServerError,
                code => code,
            }),
        }
    }

    pub(crate) fn append(&mut self, batch: RecordBatch) {
        let (base, epoch) = (
            batch.header.base_offset,
            batch.header.partition_leader_epoch,
        );
        assert_eq!(base, self.end(), "the log has no gaps");
        if self
            .epochs
            .latest()
            .is_none_or(|latest| latest.epoch < epoch)
        {
            self.epochs.assign(epoch, base);
        }
        self.producers.apply(&batch);
        self.batches.push(batch);
    }

    pub(crate) fn truncate_to(&mut self, to: Offset) {
        if to.0 < self.start {
            return self.truncate_fully(to);
        }
        let kept = self
            .batches
            .partition_point(|batch| batch.header.next_offset() <= to);
        self.batches.truncate(kept);
        self.generation += 1;
        let end = self.end();
        self.epochs.truncate_from_end(end);
        self.flushed = self.flushed.min(end.0);
        self.high_watermark = self.high_watermark.min(end);
        self.checkpointed = self.checkpointed.min(end);
        self.load_producers();
    }

    pub(crate) fn truncate_fully(&mut self, start: Offset) {
        *self = PartitionLog {
            start: start.0,
            flushed: start.0,
            generation: self.generation + 1,
            high_watermark: start,
            checkpointed: start,
            ..PartitionLog::new()
        };
    }

    fn load_producers(&mut self) {
        self.producers = ProducerState::new(i64::MAX);
        for batch in &self.batches {
            self.producers.apply(batch);
        }
    }

    pub(crate) fn flush(&mut self, up_to: Offset) {
        self.flushed = self.flushed.max(up_to.0.min(self.end().0));
    }

    pub(crate) fn checkpoint_high_watermark(&mut self) {
        self.checkpointed = self.high_watermark;
    }

    /// Keeps what a loss of power leaves: what was forced to disk, and by chance some of the rest. Returns whether
    /// anything was lost.
    pub(crate) fn lose_unflushed(&mut self, random: u64) -> bool {
        let unflushed = self.batches_from(Offset(self.flushed)).len() as u64;
        let lost = random % (unflushed + 1);
        let kept = self.batches.len() - lost as usize;
        let end = match kept.checked_sub(1) {
            Some(last) => self.batches[last].header.next_offset(),
            None => Offset(self.start),
        };
        self.truncate_to(end.max(Offset(self.flushed)));
        lost > 0
    }

    /// Opens what the last process left.
    pub(crate) fn open(&mut self) {
        self.high_watermark = self.checkpointed.min(self.end());
        self.epochs.truncate_from_end(self.end());
        self.load_producers();
    }
}
