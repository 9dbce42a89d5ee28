//! A producer without a network, to measure the cost of encoding and batching.
//!
//! For the benchmark of this crate. Everything up to the bytes of a request is done: records are
//! checked, partitioned, encoded and batched; batches are taken, compressed, numbered and sealed.

use ottla_types::{ProducerEpoch, ProducerId};

use super::accumulator::Leader;
use super::delivery::{Delivery, Outcome, Written};
use super::record::RecordRef;
use super::sequences::Identity;
use super::{Producer, ProducerConfig, Shared, TrySendError};
use crate::client::Client;
use crate::config::ClientConfig;
use crate::error::ClientError;

const LEADER: Leader = Leader { node: 0, epoch: 0 };

/// See the module.
pub struct OfflineProducer {
    shared: Shared,
    identity: Option<Identity>,
    next_offset: i64,
}

impl OfflineProducer {
    pub fn new(
        config: ProducerConfig,
        topic: &str,
        partitions: usize,
    ) -> Result<OfflineProducer, ClientError> {
        let is_idempotent = config.is_idempotent();
        let client = Client::unconnected(ClientConfig::default());
        let shared = Producer::builder(client, config).shared()?;
        shared.accumulator.topics.set_partitions(topic, partitions);
        Ok(OfflineProducer {
            shared,
            identity: is_idempotent.then_some(Identity {
                id: ProducerId(1),
                epoch: ProducerEpoch(0),
            }),
            next_offset: 0,
        })
    }

    #[inline]
    pub fn try_send(&self, record: RecordRef<'_>) -> Result<Delivery, TrySendError> {
        self.shared.try_send_for_delivery(record)
    }

    #[inline]
    pub fn try_send_tagged(&self, record: RecordRef<'_>, tag: u64) -> Result<(), TrySendError> {
        self.shared.try_send_tagged(record, tag)
    }

    /// Takes every batch as the sender does, and completes it as written. Returns the number of
    /// bytes that would have been sent.
    pub fn deliver_all(&mut self) -> usize {
        let shared = &self.shared;
        let now = ottla_sync::time::now();
        let ready = shared
            .accumulator
            .ready(now, true, |_, _| Some(LEADER), |_| true);
        let mut bytes = 0;
        for queues in ready.nodes.values() {
            loop {
                let limit = shared.config.max_request_size;
                let drained =
                    shared
                        .accumulator
                        .drain(queues, 0, limit, self.identity, now, |_| true);
                if drained.is_empty() {
                    break;
                }
                for (queue, mut batch) in drained {
                    bytes += batch.records().len();
                    let mut state = queue.state.lock();
                    state.on_wire -= 1;
                    if let Some(ticket) = batch.ticket {
                        state.sequences.on_written(ticket);
                    }
                    drop(state);
                    let count = i64::from(batch.record_count);
                    batch.completion.set(Outcome::Done(Ok(Written {
                        base_offset: self.next_offset,
                        log_append_time: -1,
                    })));
                    self.next_offset += count;
                    shared.accumulator.on_completed(&batch.completion);
                    batch.release();
                }
            }
        }
        bytes
    }
}
