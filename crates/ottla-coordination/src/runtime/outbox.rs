//! Gives to the log what a coordinator has decided to write, and the coordinator the log's answers.
//!
//! Which writes go together, and when the next may, [`ottla_coordinator::CoordinatorRuntime`] decides: it hands out no
//! batch before the log has answered for the one before.

use std::sync::Arc;

use ottla_coordinator::{BATCH_HEADER_BYTES, OutboundBatch, PendingWrite, WriteId, WriteKind};
use ottla_records::control::{ControlRecordType, EndTxnMarker, end_txn_batch};
use ottla_records::{BatchHeader, RecordBatch, RecordBatchBuilder};
use ottla_replica::{AckOutcome, RequiredAcks};
use ottla_types::Sequence;
use tokio::sync::oneshot;

use super::Served;
use super::shard::Shard;
use ottla_partition::partition::{Ack, OfTransaction, PendingAppend};

const _: () = assert!(BatchHeader::SIZE == BATCH_HEADER_BYTES);

/// Whether the batch of a write is small enough for the log.
pub(super) fn fits<C: Served>(
    write: &PendingWrite,
    max_message_bytes: usize,
    host: &C::Host,
) -> bool {
    let fits = build::<C>(std::slice::from_ref(write), host).size_in_bytes() <= max_message_bytes;
    if !fits {
        tracing::error!(
            "a record of {} does not fit into {max_message_bytes} bytes; raise max.message.bytes of {}",
            C::WHAT,
            C::TOPIC
        );
    }
    fits
}

/// The batch of one write of a transaction, or of plain ones together.
fn build<C: Served>(writes: &[PendingWrite], host: &C::Host) -> RecordBatch {
    let now = host.surroundings.context.timestamp();
    let mut builder = RecordBatchBuilder::new(C::compression(host));
    for write in writes {
        match write.kind {
            WriteKind::Plain => {}
            WriteKind::Transactional { producer, .. } => {
                builder = RecordBatchBuilder::new(C::compression(host))
                    .producer(producer.id, producer.epoch, Sequence::NONE)
                    .transactional(true);
            }
            WriteKind::EndTransaction { producer, marker } => {
                let kind = match marker.is_commit {
                    true => ControlRecordType::Commit,
                    false => ControlRecordType::Abort,
                };
                let coordinator_epoch = marker.coordinator_epoch;
                let marker = EndTxnMarker { coordinator_epoch };
                return end_txn_batch(producer.id, producer.epoch, kind, marker, now);
            }
        }
        for (key, value) in &write.records {
            builder.append(now, Some(key), value.as_deref(), &[]);
        }
    }
    builder.build()
}

fn append_of<C: Served>(
    shard: &Shard<C>,
    outbound: &OutboundBatch,
    host: &C::Host,
    ack: Ack,
) -> PendingAppend {
    PendingAppend {
        batch: build::<C>(outbound.writes(), host),
        // Whether it is committed, the shard finds out by the high watermark.
        required_acks: match C::REQUIRES_MIN_ISR {
            true => RequiredAcks::LeaderWithMinIsr,
            false => RequiredAcks::Leader,
        },
        expected_leader_epoch: Some(shard.leader_epoch()),
        of_transaction: match outbound.kind() {
            WriteKind::Plain => OfTransaction::No,
            WriteKind::Transactional { guard, .. } => OfTransaction::Verified(guard),
            WriteKind::EndTransaction { marker, .. } => {
                OfTransaction::Marker(marker.transaction_version)
            }
        },
        // The log always answers, and those who wait are told when it takes long.
        deadline_ms: u64::MAX,
        ack,
    }
}

impl<C: Served> Shard<C> {
    /// Appends what there is to be appended, unless another thread is at it, and carries out what else is asked for.
    pub(super) fn run_outbox(self: &Arc<Self>, host: &Arc<C::Host>) {
        while let Some(outbound) = self.next_append(host) {
            let first = outbound.first();
            let (released, mut written) = oneshot::channel();
            let append = append_of(self, &outbound, host, Ack::Internal(released));
            self.partition.append(&host.surroundings.host, append);
            match written.try_recv() {
                Ok(outcome) => self.on_written(host, first, outcome),
                // Another thread has the run token of the partition, or the log has to be flushed.
                Err(_) => {
                    self.watch_deadlines();
                    let (shard, host) = (Arc::clone(self), Arc::clone(host));
                    tokio::spawn(async move {
                        // An append that is dropped was not written: the partition is gone.
                        let outcome = written.await.unwrap_or(AckOutcome::NotLeader);
                        shard.on_written(&host, first, outcome);
                        shard.run_outbox(&host);
                    });
                    return;
                }
            }
        }
    }

    fn on_written(&self, host: &C::Host, first: WriteId, outcome: AckOutcome) {
        let written = match outcome {
            AckOutcome::Appended { base_offset } | AckOutcome::Duplicate { base_offset, .. } => {
                Ok(base_offset)
            }
            refused => Err(refused.error_code()),
        };
        let high_watermark = self.partition.reader().high_watermark();
        self.step(host, |runtime, at| {
            runtime.on_written(first, written, high_watermark, at)
        });
    }
}
