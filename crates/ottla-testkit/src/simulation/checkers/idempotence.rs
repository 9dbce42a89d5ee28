//! What an idempotent producer sends, again and again where it has to, is stored once in every log, in the order in which it was
//! sent first.

use std::collections::BTreeMap;

use ottla_records::RecordBatch;
use ottla_types::{ProducerId, Sequence, TopicIdPartition};

use super::Finding;
use crate::simulation::partition_log::PartitionLog;

#[derive(Default)]
pub(crate) struct Idempotence {
    /// Whom an id was given to.
    producers: BTreeMap<ProducerId, i32>,
    pub(super) finding: Finding,
}

impl Idempotence {
    /// Values of a producer grow, so a log has it right where each is larger than the one of the same producer before it.
    pub(crate) fn on_written(
        &mut self,
        id: i32,
        partition: TopicIdPartition,
        log: &PartitionLog,
        batch: &RecordBatch,
    ) {
        if batch.header.base_sequence == Sequence::NONE {
            // What coordinators write has no order but that of the log.
            return;
        }
        let (producer, value) = (batch.header.producer_id, batch.header.crc);
        let is_of_same = |known: &&RecordBatch| {
            let header = &known.header;
            header.producer_id == producer && header.base_sequence != Sequence::NONE
        };
        let last = log.batches().iter().rev().find(is_of_same);
        if let Some(last) = last.filter(|last| last.header.crc >= value) {
            let (partition, last) = (partition.partition, last.header.crc);
            self.finding.report(|| {
                format!(
                    "broker {id} stores value {value} of producer {producer} in partition {partition} behind value {last}"
                )
            });
        }
    }

    /// A producer was given an id, which nobody else has.
    pub(crate) fn on_producer(&mut self, producer: ProducerId, client: i32) {
        let known = *self.producers.entry(producer).or_insert(client);
        if known != client {
            self.finding.report(|| {
                format!("producer id {producer} is given to clients {known} and {client}")
            });
        }
    }
}
