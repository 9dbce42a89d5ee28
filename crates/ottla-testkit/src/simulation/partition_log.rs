//! The log of one simulated replica: batches, leader epochs, producers, and what of it survives a loss of power.
//!
//! Leader epochs and the state of producers are those of `ottla-log`; files are not. Mirrors `ottla-log/src/log`: what a crash tears
//! fails its checksum at recovery, epochs, producers and aborted transactions are read back from the batches that are left.

use ottla_log::{
    AppendOrigin, CompletedTxn, LeaderEpochs, ProducerStage, ProducerState, ProducerStateEntry,
    ProducerVerdict as Checked, TransactionVersion,
};
use ottla_records::RecordBatch;
use ottla_replica::{EpochEnd, ProducerVerdict};
use ottla_types::{ErrorCode, LeaderEpoch, Offset, ProducerId};

use super::planted::{self, Bug};

pub(crate) struct PartitionLog {
    start: i64,
    batches: Vec<RecordBatch>,
    epochs: LeaderEpochs,
    producers: ProducerState,
    /// As in the `.txnindex` files: in the order of their markers.
    aborted: Vec<CompletedTxn>,
    /// Up to where it survives a loss of power, exclusive.
    flushed: i64,
    /// Raised when it is cut.
    generation: u64,
    high_watermark: Offset,
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
            aborted: Vec::new(),
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

    pub(crate) fn high_watermark(&self) -> Offset {
        self.high_watermark
    }

    pub(crate) fn set_high_watermark(&mut self, high_watermark: Offset) {
        self.high_watermark = high_watermark;
        self.producers.on_high_watermark(high_watermark);
    }

    /// Below it every transaction is decided.
    pub(crate) fn last_stable_offset(&self) -> Offset {
        let unstable = self.producers.first_unstable_offset();
        let unstable = unstable.unwrap_or(self.high_watermark);
        unstable.min(self.high_watermark)
    }

    /// The aborted transactions with records in `[from, to)`: whose they were, and where they began.
    pub(crate) fn aborted_between(&self, from: Offset, to: Offset) -> Vec<(ProducerId, Offset)> {
        let among = |it: &&CompletedTxn| it.last_offset >= from && it.first_offset < to;
        let aborted = self.aborted.iter().filter(among);
        aborted
            .map(|it| (it.producer_id, it.first_offset))
            .collect()
    }

    /// What is known of a producer, with what is staged.
    pub(crate) fn staged_producer<'a>(
        &'a self,
        stage: &'a ProducerStage,
        producer_id: ProducerId,
    ) -> Option<&'a ProducerStateEntry> {
        self.producers.staged_producer(stage, producer_id)
    }

    /// Mirrors `partition/execute.rs:verdict`.
    pub(crate) fn check_producer(
        &self,
        stage: &mut ProducerStage,
        batch: &RecordBatch,
        origin: AppendOrigin,
        version: TransactionVersion,
    ) -> ProducerVerdict {
        if origin == AppendOrigin::Client && planted::has(Bug::TakeEveryBatch) {
            return ProducerVerdict::InSequence;
        }
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
        self.apply(&batch);
        self.batches.push(batch);
    }

    fn apply(&mut self, batch: &RecordBatch) {
        let Some(completed) = self.producers.apply(batch) else {
            return;
        };
        if completed.is_aborted || planted::has(Bug::CountCommitsAsAborts) {
            self.aborted.push(completed);
        }
        self.producers.complete(&completed);
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
        self.aborted.clear();
        let batches = std::mem::take(&mut self.batches);
        for batch in &batches {
            self.apply(batch);
        }
        self.batches = batches;
        self.producers.on_high_watermark(self.high_watermark);
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
