//! What waits to be sent to one partition, and what decides about its batches.

use std::collections::VecDeque;
use std::time::Duration;

use ottla_records::Compression;

use super::batch::ProducerBatch;
use super::sequences::Sequences;
use super::sticky::Produced;

/// What of the producer's settings decides about batches.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchRules {
    pub(super) batch_size: usize,
    pub(super) linger: Duration,
    pub(super) compression: Compression,
    pub(super) ignore_keys: bool,
    /// `partitioner.adaptive.partitioning.enable`.
    pub(super) is_adaptive: bool,
    /// Somebody wants the tags of the records.
    pub(super) keeps_tags: bool,
    pub(super) is_transactional: bool,
    /// One batch of a partition at a time.
    pub(super) one_in_flight: bool,
}

#[derive(Default)]
pub(super) struct QueueState {
    /// Those that have left before, in the order in which they did, then those that have not; the last
    /// one takes records.
    pub(super) batches: VecDeque<ProducerBatch>,
    pub(super) sequences: Sequences,
    /// Batches that are not in the queue because they are on the wire.
    pub(super) on_wire: usize,
    pub(super) produced: Produced,
    /// How many records the last full batch had: the next one is likely to have as many.
    pub(super) last_record_count: usize,
}

impl QueueState {
    /// Where a batch that has left before belongs among those that wait.
    pub(super) fn place_of(&self, batch: &ProducerBatch) -> usize {
        let position = |batch: &ProducerBatch| self.sequences.position(batch.ticket?);
        let own = position(batch);
        self.batches
            .iter()
            .take_while(|other| own.is_some() && position(other).is_some_and(|it| Some(it) < own))
            .count()
    }
}
