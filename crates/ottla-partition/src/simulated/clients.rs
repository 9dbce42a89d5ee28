//! Producers, with and without transactions, and the transaction coordinator.

use std::sync::{Arc, Weak};
use std::time::Duration;

use ottla_coordinator::TransactionalProducer;
use ottla_records::RecordBatch;
use ottla_records::control::{ControlRecordType, EndTxnMarker, end_txn_batch};
use ottla_replica::{AckOutcome, RequiredAcks};
use ottla_sync::simulation::{Random, stream};
use ottla_sync::task::Handle;
use ottla_sync::{Mutex, oneshot, task, thread, time};
use ottla_types::{ErrorCode, ProducerEpoch, ProducerId, Sequence, Timestamp, TopicPartition};

use super::cluster;
use super::running::{PATIENCE, Running};
use crate::partition::host::VerifyTransactions;
use crate::partition::producer_transaction::{AddedBy, AskedFor, ProducerTransaction};
use crate::partition::{Ack, AppendPlace, AwaitsAppends, OfTransaction, PendingAppend};

/// The transaction coordinator. The name of a transaction tells whether the partition is part of
/// it.
pub(super) struct Verifier;

impl VerifyTransactions for Verifier {
    fn verify(
        self: Arc<Self>,
        transaction: Arc<ProducerTransaction>,
        _: TopicPartition,
        answer: Box<dyn FnOnce(Result<(), ErrorCode>) + Send>,
    ) {
        let result = match transaction.transactional_id.starts_with("bad") {
            true => Err(ErrorCode::TransactionAbortable),
            false => Ok(()),
        };
        let wait_ms = ottla_sync::random::random::<u64>("verifier") % 12;
        task::spawn(async move {
            time::sleep(Duration::from_millis(wait_ms)).await;
            answer(result);
        });
    }
}

/// A request with one batch.
struct Request(Mutex<Option<oneshot::Sender<AckOutcome>>>);

impl AwaitsAppends for Request {
    fn on_released(&self, _: AppendPlace, outcome: AckOutcome) {
        let sender = self.0.lock().take().expect("it is answered once");
        // The client may have stopped waiting.
        let _ = sender.send(outcome);
    }
}

/// A batch whose result is awaited, unless this is dropped.
struct Sent {
    outcome: oneshot::Receiver<AckOutcome>,
    /// `None` for a marker.
    _request: Option<Arc<Request>>,
}

const ACK_TIMEOUT_MS: u64 = 150;

impl Running {
    fn send(&self, batch: RecordBatch, of_transaction: OfTransaction) -> Sent {
        let (sender, outcome) = oneshot::channel();
        let (ack, request) = match of_transaction {
            OfTransaction::Marker(_) => (Ack::Internal(sender), None),
            _ => {
                let request = Arc::new(Request(Mutex::new(Some(sender))));
                let weak: Weak<Request> = Arc::downgrade(&request);
                let place = AppendPlace {
                    topic: 0,
                    partition: 0,
                };
                let ack = Ack::Request {
                    request: weak,
                    place,
                };
                (ack, Some(request))
            }
        };
        let append = PendingAppend {
            batch,
            required_acks: RequiredAcks::All,
            expected_leader_epoch: None,
            of_transaction,
            deadline_ms: self.host.context.now_ms() + ACK_TIMEOUT_MS,
            ack,
        };
        self.partition.append(&self.host, append);
        Sent {
            outcome,
            _request: request,
        }
    }

    /// Waits for the result of a batch, which must come eventually.
    fn outcome(&self, batch: &RecordBatch, sent: Sent) -> AckOutcome {
        let released = Handle::current().block_on(time::timeout(PATIENCE, sent.outcome));
        let released = released.expect("an acknowledgement is never released");
        let released = released.expect("an acknowledgement was dropped");
        if let AckOutcome::Appended { base_offset } = released {
            self.cluster
                .with(|state| state.on_acknowledged(base_offset, batch));
        }
        released
    }
}

pub(super) fn produce(running: &Running, number: u64) {
    let mut random = stream(&format!("producer {number}"));
    while !running.is_over() {
        let value = running.cluster.with(|state| state.next_values());
        let mut sent = Vec::new();
        for more in 0..1 + random.below(3) {
            let batch = cluster::build(&mut random, "good", value + more * 3, |it| it);
            let one = running.send(batch.clone(), OfTransaction::No);
            sent.push((batch, one));
        }
        for (batch, one) in sent {
            running.outcome(&batch, one);
        }
        thread::sleep(Duration::from_millis(random.below(8)));
    }
}

/// One producer with one transaction after the other. It abandons some batches before they are
/// answered, and some transactions are unknown to the coordinator.
pub(super) fn transact(running: &Running, number: u64) {
    let mut random = stream(&format!("transactions {number}"));
    // Each process has its own producer ID.
    let id = ProducerId(1_000 + (ottla_sync::random::random::<u64>("producer id") >> 20) as i64);
    let (mut epoch, mut sequence) = (0, 0);
    while !running.is_over() {
        let producer = TransactionalProducer {
            id,
            epoch: ProducerEpoch(epoch),
        };
        let is_bad = random.one_in(4);
        let prefix = if is_bad { "bad" } else { "good" };
        let value = running.cluster.with(|state| state.next_values());
        let transaction = Arc::new(ProducerTransaction {
            transactional_id: format!("{prefix}-{value}").into(),
            producer,
            added_by: AddedBy::ClientThatMayAbort,
            asked_for: AskedFor::Produce,
        });
        let mut is_in_doubt = false;
        let mut has_written = false;
        for more in 0..1 + random.below(2) {
            let batch = cluster::build(&mut random, prefix, value + more * 3, |builder| {
                builder
                    .producer(id, producer.epoch, Sequence(sequence))
                    .transactional(true)
            });
            let of_transaction = OfTransaction::ToVerify(Arc::clone(&transaction));
            let sent = running.send(batch.clone(), of_transaction);
            if random.one_in(3) {
                // The batch is abandoned.
                is_in_doubt = true;
                thread::sleep(Duration::from_millis(random.below(3)));
                break;
            }
            match running.outcome(&batch, sent) {
                AckOutcome::Appended { .. } => {
                    sequence += batch.header.last_offset_delta + 1;
                    has_written = true;
                }
                AckOutcome::RefusedForProducer(ErrorCode::TransactionAbortable) if is_bad => {
                    running
                        .cluster
                        .with(|state| state.tally.refused_transactions += 1);
                    break;
                }
                _ => {
                    is_in_doubt = true;
                    break;
                }
            }
        }
        let ends_with = match is_in_doubt || is_bad || random.one_in(2) {
            true => ControlRecordType::Abort,
            false => ControlRecordType::Commit,
        };
        end(running, producer, ends_with);
        running.cluster.with(|state| {
            state.tally.transactions += u64::from(has_written);
            let is_aborted = has_written && ends_with == ControlRecordType::Abort;
            state.tally.aborted += u64::from(is_aborted);
        });
        // It is unknown whether an abandoned batch is written: half of such producers continue
        // regardless.
        if is_in_doubt && random.one_in(2) {
            (epoch, sequence) = (epoch + 1, 0);
        }
        thread::sleep(Duration::from_millis(random.below(6)));
    }
}

/// Writes the marker of a transaction, with retries.
fn end(running: &Running, producer: TransactionalProducer, ends_with: ControlRecordType) {
    let mut random: Random = stream("markers");
    while !running.is_over() {
        let marker = EndTxnMarker {
            coordinator_epoch: 1,
        };
        let time = Timestamp(1_767_225_600_000);
        let batch = end_txn_batch(producer.id, producer.epoch, ends_with, marker, time);
        let sent = running.send(batch.clone(), OfTransaction::Marker(1));
        match running.outcome(&batch, sent) {
            AckOutcome::Appended { .. } | AckOutcome::RefusedForProducer(_) => return,
            _ => thread::sleep(Duration::from_millis(1 + random.below(10))),
        }
    }
}
