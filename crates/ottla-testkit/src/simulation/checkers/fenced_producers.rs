//! A fenced producer never writes: once a coordinator has given a transactional id a new epoch, nothing that a leader takes of
//! an older one is ever committed.

use std::collections::BTreeMap;

use ottla_coordinator::TransactionalProducer;
use ottla_records::RecordBatch;
use ottla_types::{ProducerEpoch, ProducerId, TopicIdPartition};

use super::Finding;
use super::committed_records::shown;

#[derive(Default)]
pub(crate) struct FencedProducers {
    /// The epoch that the newest instance was given.
    newest: BTreeMap<ProducerId, ProducerEpoch>,
    /// What leaders took of producers that were fenced, and by whom. One that leads no more in truth may.
    taken: Vec<(TopicIdPartition, RecordBatch, i32)>,
    pub(super) finding: Finding,
}

impl FencedProducers {
    /// An instance is told its epoch.
    pub(crate) fn on_initialized(&mut self, producer: TransactionalProducer) {
        let newest = self.newest.entry(producer.id).or_insert(producer.epoch);
        *newest = producer.epoch.max(*newest);
    }

    /// A leader takes a batch, of a producer or of a coordinator for its transaction.
    pub(crate) fn on_taken(
        &mut self,
        leader: i32,
        partition: TopicIdPartition,
        batch: &RecordBatch,
    ) {
        let header = &batch.header;
        if !header.is_transactional() || header.is_control() {
            return;
        }
        let newest = self.newest.get(&header.producer_id);
        if newest.is_some_and(|newest| header.producer_epoch < *newest) {
            self.taken.push((partition, batch.clone(), leader));
        }
    }

    pub(crate) fn on_committed(&mut self, partition: TopicIdPartition, batch: &RecordBatch) {
        let is_it =
            |it: &&(TopicIdPartition, RecordBatch, i32)| it.0 == partition && it.1 == *batch;
        if let Some((_, _, leader)) = self.taken.iter().find(is_it) {
            let found = shown(batch);
            let (id, epoch) = (batch.header.producer_id, batch.header.producer_epoch);
            self.finding.report(|| {
                format!(
                    "leader {leader} of partition {} took {found} of producer {id} in epoch {epoch}, which was fenced",
                    partition.partition
                )
            });
        }
    }
}
