//! The queue of one partition, and the rules for its batches.

use std::collections::VecDeque;
use std::time::Duration;

use ottla_records::Compression;

use super::batch::ProducerBatch;
use super::sequences::Sequences;
use super::sticky::Produced;

/// The producer's settings for batches.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchRules {
    pub(super) batch_size: usize,
    pub(super) linger: Duration,
    pub(super) compression: Compression,
    pub(super) ignore_keys: bool,
    /// `partitioner.adaptive.partitioning.enable`.
    pub(super) is_adaptive: bool,
    /// Whether there is a listener that needs the tags.
    pub(super) keeps_tags: bool,
    pub(super) is_transactional: bool,
    /// Whether only one batch per partition can be in flight.
    pub(super) one_in_flight: bool,
}

#[derive(Default)]
pub(super) struct QueueState {
    /// Batches that are being retried, in the order in which they were first sent, then unsent
    /// batches. Records are appended to the last batch.
    pub(super) batches: VecDeque<ProducerBatch>,
    pub(super) sequences: Sequences,
    /// The number of batches that are in flight and therefore not in the queue.
    pub(super) on_wire: usize,
    pub(super) produced: Produced,
    /// The number of records in the last full batch, as an estimate for the next one.
    pub(super) last_record_count: usize,
}

impl QueueState {
    /// The position in the queue for a batch that is retried.
    pub(super) fn place_of(&self, batch: &ProducerBatch) -> usize {
        let position = |batch: &ProducerBatch| self.sequences.position(batch.ticket?);
        let own = position(batch);
        self.batches
            .iter()
            .take_while(|other| own.is_some() && position(other).is_some_and(|it| Some(it) < own))
            .count()
    }
}
