//! Which logs are being cleaned, and which the cleaner must not touch.
//!
//! Owns the state of every partition that is not simply cleanable: being cleaned, stopping, paused,
//! or uncleanable. The clean offsets are in `offsets`; the cleaner threads are in
//! `ottla-partition`, and the cleaning of one log is `ottla_log::clean`.
//!
//! Kafka: `LogCleaner`, `LogCleanerManager`.

mod offsets;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ottla_sync::atomic::{AtomicBool, Ordering};
use ottla_sync::{Condvar, Mutex};
use ottla_types::TopicPartition;

#[derive(Debug, Default)]
pub struct LogCleaner {
    partitions: Mutex<Partitions>,
    /// Notified when a cleaning ends.
    ended: Condvar,
    is_stopping: AtomicBool,
}

#[derive(Debug, Default)]
struct Partitions {
    states: HashMap<TopicPartition, CleaningState>,
    /// Could not be cleaned; not retried before the next start.
    uncleanable: HashSet<TopicPartition>,
}

/// Partitions without a state may be cleaned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CleaningState {
    /// Being cleaned, or the cleaner is deleting its old segments.
    InProgress,
    /// In progress, but asked to end, after which it is paused.
    Stopping,
    /// The number of pauses.
    Paused(usize),
}

impl LogCleaner {
    /// Stops the cleaning of a log whose files are about to be moved, and prevents further
    /// cleaning. Blocks until the cleaning has ended, which may need the partition's run token.
    pub fn pause(self: &Arc<Self>, topic_partition: &TopicPartition) -> CleaningPause {
        self.abort_and_pause(topic_partition);
        CleaningPause {
            cleaner: Arc::clone(self),
            topic_partition: topic_partition.clone(),
        }
    }

    /// Prevents cleaning until [`LogCleaner::resume`] and stops a running cleaning. Blocks until it
    /// has ended.
    pub(super) fn abort_and_pause(&self, topic_partition: &TopicPartition) {
        let mut partitions = self.partitions.lock();
        loop {
            match partitions.states.get_mut(topic_partition) {
                None => {
                    let paused = CleaningState::Paused(1);
                    partitions.states.insert(topic_partition.clone(), paused);
                    return;
                }
                Some(CleaningState::Paused(count)) => {
                    *count += 1;
                    return;
                }
                Some(state) => *state = CleaningState::Stopping,
            }
            self.ended.wait(&mut partitions);
        }
    }

    /// Ends one pause of a partition.
    pub(super) fn resume(&self, topic_partition: &TopicPartition) {
        let mut partitions = self.partitions.lock();
        match partitions.states.get_mut(topic_partition) {
            Some(CleaningState::Paused(count)) if *count > 1 => *count -= 1,
            Some(CleaningState::Paused(_)) => {
                partitions.states.remove(topic_partition);
            }
            state => panic!("{topic_partition} is resumed, but not paused: {state:?}"),
        }
    }

    /// Forgets the state of a deleted partition.
    pub(super) fn forget(&self, topic_partition: &TopicPartition) {
        self.partitions.lock().uncleanable.remove(topic_partition);
    }

    pub fn is_free(&self, topic_partition: &TopicPartition) -> bool {
        let partitions = self.partitions.lock();
        !partitions.states.contains_key(topic_partition)
            && !partitions.uncleanable.contains(topic_partition)
    }

    /// Claims a partition for a cleaner thread; `None` if it is claimed or paused.
    pub fn take(&self, topic_partition: &TopicPartition) -> Option<CleaningClaim<'_>> {
        let mut partitions = self.partitions.lock();
        let is_taken = partitions.states.contains_key(topic_partition);
        if is_taken || partitions.uncleanable.contains(topic_partition) {
            return None;
        }
        let state = CleaningState::InProgress;
        partitions.states.insert(topic_partition.clone(), state);
        Some(CleaningClaim {
            cleaner: self,
            topic_partition: topic_partition.clone(),
        })
    }

    /// Marks a partition as uncleanable until the next start.
    pub fn mark_uncleanable(&self, topic_partition: &TopicPartition) {
        let uncleanable = &mut self.partitions.lock().uncleanable;
        uncleanable.insert(topic_partition.clone());
    }

    /// Whether a partition is uncleanable.
    pub(super) fn is_uncleanable(&self, topic_partition: &TopicPartition) -> bool {
        self.partitions.lock().uncleanable.contains(topic_partition)
    }

    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    /// Stops all cleanings and prevents new ones.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
    }
}

/// Prevents cleaning of a partition's log until it is dropped.
#[derive(Debug)]
pub struct CleaningPause {
    cleaner: Arc<LogCleaner>,
    topic_partition: TopicPartition,
}

impl Drop for CleaningPause {
    fn drop(&mut self) {
        self.cleaner.resume(&self.topic_partition);
    }
}

/// A cleaner thread's exclusive claim on a partition, until it is dropped.
pub struct CleaningClaim<'a> {
    cleaner: &'a LogCleaner,
    topic_partition: TopicPartition,
}

impl CleaningClaim<'_> {
    /// Whether the work must end early.
    pub fn is_to_stop(&self) -> bool {
        let partitions = self.cleaner.partitions.lock();
        let state = partitions.states.get(&self.topic_partition);
        state == Some(&CleaningState::Stopping) || self.cleaner.is_stopping()
    }
}

impl Drop for CleaningClaim<'_> {
    fn drop(&mut self) {
        let mut partitions = self.cleaner.partitions.lock();
        partitions.states.remove(&self.topic_partition);
        self.cleaner.ended.notify_all();
    }
}
