//! The queue of one partition, and the rules for its batches.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

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
    /// Ends the waits of batches that were refused in an earlier leader epoch than this one: the
    /// backoff is for a leader that cannot take them yet, and the next attempt goes to another one
    /// (`ProducerBatch.hasLeaderChangedForTheOngoingRetry`).
    pub(super) fn end_waits_for(&mut self, leader_epoch: i32, now: Instant) {
        let retried = self.batches.iter_mut().take_while(|it| it.attempts > 0);
        let waits =
            |it: &&mut ProducerBatch| it.leader_epoch < leader_epoch && it.waits_until > now;
        for batch in retried.filter(waits) {
            batch.waits_until = now;
            batch.early_repeats += 1;
        }
    }

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
