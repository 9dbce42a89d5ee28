//! What a coordinator has decided to write, on its way into the log.
//!
//! Writes are appended in the order of the decisions, one batch at a time: the next batch starts when the
//! log has the one before, so that a failed append never has a successor in the log that was decided on
//! top of it. Decisions that pile up meanwhile share a batch, as with Kafka's adaptive
//! `group.coordinator.append.linger.ms`, except for those of a transaction, whose batches are its
//! producer's. That a batch is committed is not waited for: its replies are.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use ottla_coordinator::{EncodeRecord, Outcome, Write, WriteId, WriteKind};
use ottla_records::control::{ControlRecordType, EndTxnMarker, end_txn_batch};
use ottla_records::{BatchHeader, RecordBatch, RecordBatchBuilder};
use ottla_replica::{AckOutcome, RequiredAcks};
use ottla_types::{ErrorCode, Offset, Sequence};
use tokio::sync::oneshot;

use super::Served;
use super::shard::{Shard, State};
use ottla_partition::partition::{Ack, OfTransaction, PendingAppend, Waiter};

/// What a record costs in a batch besides key and value, at most: seven variable-length numbers.
const RECORD_OVERHEAD_BYTES: usize = 35;
/// Decisions share a batch only up to this size; Kafka's largest buffer by default.
const SHARED_BATCH_BYTES: usize = 1024 * 1024;

#[derive(Default)]
pub(super) struct Outbox {
    waiting: VecDeque<Encoded>,
    /// A batch is on its way into the log.
    is_appending: bool,
}

struct Encoded {
    id: WriteId,
    kind: WriteKind,
    records: Vec<(Bytes, Option<Bytes>)>,
    /// An upper bound of their uncompressed size in a batch.
    size: usize,
}

/// Writes that go to the log together.
struct OutboundBatch {
    first: WriteId,
    last: WriteId,
    batch: RecordBatch,
    of_transaction: OfTransaction,
}

impl Outbox {
    /// Takes writes in. One that does not fit into a batch is refused, with all that follow it.
    pub(super) fn accept<C: Served>(
        &mut self,
        writes: Vec<Write<C::Record>>,
        max_message_bytes: usize,
        host: &C::Host,
    ) -> Result<(), (WriteId, ErrorCode)> {
        for write in writes {
            let encoded = Encoded::of(&write).map_err(|error| (write.id, error))?;
            let is_too_large = encoded.size > max_message_bytes
                && build::<C>([&encoded], host).size_in_bytes() > max_message_bytes;
            if is_too_large {
                tracing::error!(
                    "a record of {} does not fit into {max_message_bytes} bytes; raise max.message.bytes of {}",
                    C::WHAT,
                    C::TOPIC
                );
                return Err((write.id, ErrorCode::RecordListTooLarge));
            }
            self.waiting.push_back(encoded);
        }
        Ok(())
    }

    fn next_batch<C: Served>(
        &mut self,
        max_message_bytes: usize,
        host: &C::Host,
    ) -> Option<OutboundBatch> {
        if self.is_appending {
            return None;
        }
        let limit = max_message_bytes.min(SHARED_BATCH_BYTES);
        let mut size = BatchHeader::SIZE;
        let mut count = 0;
        for encoded in &self.waiting {
            size += encoded.size;
            let is_plain = encoded.kind == WriteKind::Plain;
            if count > 0 && (size > limit || !is_plain) {
                break;
            }
            count += 1;
            if !is_plain {
                break;
            }
        }
        let batch = build::<C>(self.waiting.iter().take(count), host);
        let mut taken = self.waiting.drain(..count);
        let first = taken.next()?;
        let last = taken.next_back().map_or(first.id, |encoded| encoded.id);
        drop(taken);
        self.is_appending = true;
        Some(OutboundBatch {
            first: first.id,
            last,
            batch,
            of_transaction: match first.kind {
                WriteKind::Plain => OfTransaction::No,
                WriteKind::Transactional { guard, .. } => OfTransaction::Verified(guard),
                WriteKind::EndTransaction { marker, .. } => {
                    OfTransaction::Marker(marker.transaction_version)
                }
            },
        })
    }
}

impl Encoded {
    fn of<R: EncodeRecord>(write: &Write<R>) -> Result<Self, ErrorCode> {
        let mut records = Vec::with_capacity(write.records.len());
        let mut size = 0;
        for record in &write.records {
            // A string that is too long for its field, which no request can carry.
            let (key, value) = record.encode().map_err(|_| ErrorCode::UnknownServerError)?;
            size += RECORD_OVERHEAD_BYTES + key.len() + value.as_ref().map_or(0, Bytes::len);
            records.push((key, value));
        }
        Ok(Encoded {
            id: write.id,
            kind: write.kind,
            records,
            size,
        })
    }
}

/// The batch of one write of a transaction, or of plain ones together.
fn build<'a, C: Served>(
    writes: impl IntoIterator<Item = &'a Encoded>,
    host: &C::Host,
) -> RecordBatch {
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

impl<C: Served> Shard<C> {
    /// Appends what is in the outbox, unless somebody else is at it, and carries out what else is asked for.
    pub(super) fn run_outbox(self: &Arc<Self>, host: &Arc<C::Host>) {
        while let Some(outbound) = self.next_batch(host) {
            let records = i64::from(outbound.batch.header.record_count);
            let (released, mut written) = oneshot::channel();
            let append = PendingAppend {
                batch: outbound.batch,
                // Being written and being committed are told apart here: see `on_written`.
                required_acks: RequiredAcks::Leader,
                expected_leader_epoch: Some(self.leader_epoch()),
                of_transaction: outbound.of_transaction,
                // The log always answers; see `await_written`.
                deadline_ms: u64::MAX,
                ack: Ack::Internal(released),
            };
            self.partition.append(&host.surroundings.host, append);
            let (first, last) = (outbound.first, outbound.last);
            match written.try_recv() {
                Ok(outcome) => self.on_written(host, first, last, records, outcome),
                // Another thread has the run token of the partition, or the log has to be flushed.
                Err(_) => {
                    let (shard, host) = (Arc::clone(self), Arc::clone(host));
                    tokio::spawn(async move {
                        let outcome = shard.await_written(&host, first, last, written).await;
                        shard.on_written(&host, first, last, records, outcome);
                        shard.run_outbox(&host);
                    });
                    return;
                }
            }
        }
    }

    /// The next batch that may be appended. What was asked for before it is carried out.
    fn next_batch(self: &Arc<Self>, host: &Arc<C::Host>) -> Option<OutboundBatch> {
        let max_message_bytes = self.partition.settings().rules.max_message_bytes;
        let (commands, batch) = match &mut *self.state.lock() {
            State::Active(active) => (
                std::mem::take(&mut active.commands),
                active.outbox.next_batch::<C>(max_message_bytes, host),
            ),
            State::Loading | State::Failed | State::Closed => return None,
        };
        for command in commands {
            C::execute(self, host, command);
        }
        batch
    }

    /// A batch is in the log of the leader, or could not be written.
    fn on_written(
        self: &Arc<Self>,
        host: &Arc<C::Host>,
        first: WriteId,
        last: WriteId,
        records: i64,
        outcome: AckOutcome,
    ) {
        if let State::Active(active) = &mut *self.state.lock() {
            active.outbox.is_appending = false;
        }
        let (AckOutcome::Appended { base_offset } | AckOutcome::Duplicate { base_offset, .. }) =
            outcome
        else {
            self.on_refused(host, first, outcome.error_code());
            return;
        };
        let _ = self.step(host, |active| {
            active.coordinator.on_appended(first, last, base_offset);
            Outcome::default()
        });
        let end = base_offset.plus(records);
        if self.partition.reader().high_watermark() >= end {
            self.on_committed(host, last);
            return;
        }
        let (shard, host) = (Arc::clone(self), Arc::clone(host));
        tokio::spawn(async move { shard.await_commit(&host, first, last, end).await });
    }

    fn on_refused(&self, host: &C::Host, first: WriteId, error: ErrorCode) {
        // A shard that is closed has answered everybody.
        let _ = self.step(host, |active| {
            // What was decided on top of the failed write goes with it.
            active.outbox.waiting.clear();
            active
                .coordinator
                .on_write_failed(first, error, host.surroundings.context.timestamp())
        });
    }

    fn on_committed(self: &Arc<Self>, host: &Arc<C::Host>, last: WriteId) {
        let _ = self.step(host, |active| {
            active
                .coordinator
                .on_records_committed(last, host.surroundings.context.timestamp())
        });
    }

    /// Waits for the other replicas. Clients are told when that takes too long, those who come later as well, but the
    /// records stay in the log and still count when they are committed.
    pub(super) async fn await_commit(
        self: &Arc<Self>,
        host: &Arc<C::Host>,
        first: WriteId,
        last: WriteId,
        end: Offset,
    ) {
        let timeout = C::commit_timeout(host);
        let mut committed = std::pin::pin!(self.await_high_watermark(end));
        let is_committed = loop {
            match tokio::time::timeout(timeout, &mut committed).await {
                Ok(is_committed) => break is_committed,
                Err(_) => {
                    self.tell_of_delay(host, first, last);
                    self.run_outbox(host);
                }
            }
        };
        if is_committed {
            self.on_committed(host, last);
            self.run_outbox(host);
        }
    }

    /// Waits for the log, which may have to be forced to disk first. Clients are told when that takes too long, but as
    /// long as the log has not refused the records, they are not taken back: a start would find them.
    async fn await_written(
        self: &Arc<Self>,
        host: &Arc<C::Host>,
        first: WriteId,
        last: WriteId,
        mut written: oneshot::Receiver<AckOutcome>,
    ) -> AckOutcome {
        let timeout = C::commit_timeout(host);
        let outcome = match tokio::time::timeout(timeout, &mut written).await {
            Ok(outcome) => outcome,
            Err(_) => {
                self.tell_of_delay(host, first, last);
                written.await
            }
        };
        outcome.unwrap_or(AckOutcome::NotLeader)
    }

    fn tell_of_delay(&self, host: &Arc<C::Host>, first: WriteId, last: WriteId) {
        for id in first.0..=last.0 {
            let stepped = self.step(host, |active| {
                let now = host.surroundings.context.timestamp();
                active.coordinator.on_write_timed_out(WriteId(id), now)
            });
            if stepped.is_err() {
                // A shard that is closed has answered everybody.
                return;
            }
        }
    }

    /// Ends when everything below `end` is committed (`true`), or when the shard is closed.
    pub(super) async fn await_high_watermark(&self, end: Offset) -> bool {
        loop {
            let waiter = Waiter::default();
            // Wakes when the last record below `end` can be read, and when the shard is closed.
            self.partition.waiters.register(end.plus(-1), &waiter);
            let is_committed = self.partition.reader().high_watermark() >= end;
            if is_committed || self.is_closed() {
                self.partition.waiters.take_out(&waiter);
                return is_committed;
            }
            waiter.notified().await;
        }
    }
}
