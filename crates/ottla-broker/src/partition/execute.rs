//! Executes the effects of a replica's steps, one match over them, and gives the results back as events.
//!
//! Appends are not written one by one: `WriteLog` collects them, and they go to the log in one call when
//! the inbox is empty, or when something comes that has to see them written.

use std::sync::Arc;

use ottla_log::{AppendErrorReason, Log, StorageError};
use ottla_records::RecordBatch;
use ottla_replica::{AckOutcome, Append, Effect, Event, ProducerVerdict, Replica};
use ottla_types::{Offset, ProducerId};

use super::{Ack, Partition, PartitionEvent, PendingAppend};
use crate::Broker;

/// What only the holder of the run token touches.
pub(super) struct Stepped {
    replica: Replica<Ack>,
    log: Log,
    /// Batches that `WriteLog` asked for and that are not written.
    unwritten: Vec<RecordBatch>,
    /// Kept for its capacity.
    effects: Vec<Effect<Ack>>,
    flush: FlushState,
}

/// Flushes of one log run one at a time, so that those who wait for the same bytes share one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FlushState {
    Idle,
    /// One is under way; another is wanted up to here where there is an offset.
    Running(Option<Offset>),
}

impl Stepped {
    pub(super) fn new(replica: Replica<Ack>, log: Log) -> Self {
        Stepped {
            replica,
            log,
            unwritten: Vec::new(),
            effects: Vec::new(),
            flush: FlushState::Idle,
        }
    }

    /// Steps the replica with one event. Appends may stay unwritten until `finish`.
    pub(super) fn take(
        &mut self,
        partition: &Arc<Partition>,
        broker: &Arc<Broker>,
        event: PartitionEvent,
    ) {
        match event {
            PartitionEvent::Append(append) => self.on_append(partition, broker, append),
            PartitionEvent::Replica(event) => {
                self.write(partition, broker);
                self.step(partition, broker, event);
            }
            PartitionEvent::Work(work) => {
                self.write(partition, broker);
                work(&mut self.log);
            }
            PartitionEvent::FlushEnded(result) => {
                self.write(partition, broker);
                self.on_flush_ended(partition, broker, result);
            }
        }
    }

    /// Writes what is unwritten, and lets readers know how the replica stands.
    pub(super) fn finish(&mut self, partition: &Arc<Partition>, broker: &Arc<Broker>) {
        self.write(partition, broker);
        partition.publish(&self.replica);
        if let Some(deadline_ms) = self.replica.next_deadline_ms() {
            partition.set_timer(broker, deadline_ms);
        }
    }

    fn on_append(
        &mut self,
        partition: &Arc<Partition>,
        broker: &Arc<Broker>,
        append: PendingAppend,
    ) {
        let producer_id = append.batch.header.producer_id;
        // The producer state follows the file, so a producer's earlier batch has to be in it before the
        // next of the same producer can be judged.
        if producer_id != ProducerId::NONE
            && self
                .unwritten
                .iter()
                .any(|unwritten| unwritten.header.producer_id == producer_id)
        {
            self.write(partition, broker);
        }
        let verdict = self.verdict(&append.batch);
        let append = Append {
            batch: append.batch,
            required_acks: append.required_acks,
            expected_leader_epoch: append.expected_leader_epoch,
            deadline_ms: append.deadline_ms,
            verdict,
            ack: append.ack,
        };
        self.step(partition, broker, Event::Append(append));
    }

    fn verdict(&self, _batch: &RecordBatch) -> ProducerVerdict {
        ProducerVerdict::InSequence
    }

    fn step(&mut self, partition: &Arc<Partition>, broker: &Arc<Broker>, event: Event<Ack>) {
        let mut effects = std::mem::take(&mut self.effects);
        self.replica.step(event, &mut effects);
        for effect in effects.drain(..) {
            self.execute(partition, broker, effect);
        }
        self.effects = effects;
    }

    fn execute(&mut self, partition: &Arc<Partition>, broker: &Arc<Broker>, effect: Effect<Ack>) {
        match effect {
            Effect::AssignLeaderEpoch {
                leader_epoch: _,
                start_offset: _,
            } => {}
            Effect::WriteLog { batch } => self.unwritten.push(batch),
            Effect::Flush { up_to } => self.flush(partition, broker, up_to),
            Effect::AdvanceHighWatermark { high_watermark } => {
                self.log.set_high_watermark(high_watermark);
                partition.waiters.on_end_moved(high_watermark);
            }
            Effect::ReleaseAck { ack, outcome } => ack.release(outcome),
        }
    }

    /// Writes what `WriteLog` asked for and tells the replica how far that went.
    fn write(&mut self, partition: &Arc<Partition>, broker: &Arc<Broker>) {
        if self.unwritten.is_empty() {
            return;
        }
        let mut batches = std::mem::take(&mut self.unwritten);
        let written = self.log.append(&batches, broker.timestamp());
        batches.clear();
        self.unwritten = batches;
        let log_end_offset = self.log.log_end_offset();
        match written {
            Ok(_) => self.step(partition, broker, Event::LogWritten { log_end_offset }),
            Err(error) => {
                self.step(partition, broker, Event::WriteRefused { log_end_offset });
                match error.reason {
                    AppendErrorReason::Storage(error) => self.lose(partition, broker, &error),
                    reason => tracing::warn!(
                        partition = %partition.topic_partition,
                        "append refused: {reason}"
                    ),
                }
            }
        }
    }

    fn flush(&mut self, partition: &Arc<Partition>, broker: &Arc<Broker>, up_to: Offset) {
        if let FlushState::Running(_) = self.flush {
            self.flush = FlushState::Running(Some(up_to));
            return;
        }
        self.flush = FlushState::Running(None);
        let (partition, broker) = (Arc::clone(partition), Arc::clone(broker));
        tokio::task::spawn_blocking(move || {
            let result = Ok(up_to);
            partition.put(&broker, PartitionEvent::FlushEnded(result));
        });
    }

    fn on_flush_ended(
        &mut self,
        partition: &Arc<Partition>,
        broker: &Arc<Broker>,
        result: Result<Offset, StorageError>,
    ) {
        let wanted = match self.flush {
            FlushState::Running(wanted) => wanted,
            FlushState::Idle => None,
        };
        self.flush = FlushState::Idle;
        match result {
            Ok(flushed) => {
                if let Some(up_to) = wanted.filter(|&up_to| up_to > flushed) {
                    self.flush(partition, broker, up_to);
                }
                self.step(partition, broker, Event::Flushed { up_to: flushed });
            }
            Err(error) => self.lose(partition, broker, &error),
        }
    }

    /// The log directory has failed: nobody is told that anything is safe any more.
    fn lose(&mut self, partition: &Arc<Partition>, broker: &Arc<Broker>, error: &StorageError) {
        tracing::error!(partition = %partition.topic_partition, "log lost: {error}");
        self.step(partition, broker, Event::LogLost);
        partition.waiters.wake_all();
    }
}

/// What somebody is told who waits for an append to a partition that is gone.
impl Drop for Stepped {
    fn drop(&mut self) {
        let mut effects = std::mem::take(&mut self.effects);
        self.replica.step(Event::LogLost, &mut effects);
        for effect in effects {
            if let Effect::ReleaseAck { ack, .. } = effect {
                ack.release(AckOutcome::NotLeader);
            }
        }
    }
}
