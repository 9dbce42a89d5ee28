//! Which logs are being cleaned, and who may keep the cleaner away from one.
//!
//! Owns the state of every partition that is not simply cleanable: being cleaned, asked to stop, paused, or
//! given up. The offsets up to which logs are clean are in `offsets`; the threads that clean belong to the partitions
//! (`ottla-partition`), and the cleaning of one log is `ottla_log::clean`.
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
    /// A cleaning has ended.
    ended: Condvar,
    is_stopping: AtomicBool,
}

#[derive(Debug, Default)]
struct Partitions {
    states: HashMap<TopicPartition, CleaningState>,
    /// Could not be cleaned, and are not tried again before the next start.
    uncleanable: HashSet<TopicPartition>,
}

/// Partitions that have no state may be cleaned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CleaningState {
    /// Being cleaned, or old segments are being deleted by the cleaner.
    InProgress,
    /// The same, but somebody waits for it to end, and then it is paused.
    Stopping,
    /// By so many.
    Paused(usize),
}

impl LogCleaner {
    /// Breaks off the cleaning of a log, whose files are about to be moved, and keeps the cleaner away from it.
    /// Blocks until the cleaning has ended, which may ask for the run token of the partition.
    pub fn pause(self: &Arc<Self>, topic_partition: &TopicPartition) -> CleaningPause {
        self.abort_and_pause(topic_partition);
        CleaningPause {
            cleaner: Arc::clone(self),
            topic_partition: topic_partition.clone(),
        }
    }

    /// Keeps the cleaner away from a partition until [`LogCleaner::resume`]; a cleaning that is under way is
    /// broken off. Blocks until it has ended.
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

    /// Lets the cleaner at a partition again that was paused once.
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

    /// Forgets what was found out about a partition that is deleted.
    pub(super) fn forget(&self, topic_partition: &TopicPartition) {
        self.partitions.lock().uncleanable.remove(topic_partition);
    }

    pub fn is_free(&self, topic_partition: &TopicPartition) -> bool {
        let partitions = self.partitions.lock();
        !partitions.states.contains_key(topic_partition)
            && !partitions.uncleanable.contains(topic_partition)
    }

    /// Takes a partition for a thread of the cleaner; `None` where another has it or it is paused.
    pub fn take(&self, topic_partition: &TopicPartition) -> Option<Taken<'_>> {
        let mut partitions = self.partitions.lock();
        let is_taken = partitions.states.contains_key(topic_partition);
        if is_taken || partitions.uncleanable.contains(topic_partition) {
            return None;
        }
        let state = CleaningState::InProgress;
        partitions.states.insert(topic_partition.clone(), state);
        Some(Taken {
            cleaner: self,
            topic_partition: topic_partition.clone(),
        })
    }

    /// Gives a partition up until the next start.
    pub fn mark_uncleanable(&self, topic_partition: &TopicPartition) {
        let uncleanable = &mut self.partitions.lock().uncleanable;
        uncleanable.insert(topic_partition.clone());
    }

    /// Whether a partition was given up.
    pub(super) fn is_uncleanable(&self, topic_partition: &TopicPartition) -> bool {
        self.partitions.lock().uncleanable.contains(topic_partition)
    }

    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    /// Makes every cleaning stop early, and lets none begin.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
    }
}

/// Keeps the cleaner away from the log of a partition until it is dropped.
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

/// A partition that a thread of the cleaner has to itself, until this is dropped.
pub struct Taken<'a> {
    cleaner: &'a LogCleaner,
    topic_partition: TopicPartition,
}

impl Taken<'_> {
    /// Whether the work is to end early.
    pub fn is_to_stop(&self) -> bool {
        let partitions = self.cleaner.partitions.lock();
        let state = partitions.states.get(&self.topic_partition);
        state == Some(&CleaningState::Stopping) || self.cleaner.is_stopping()
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut partitions = self.cleaner.partitions.lock();
        partitions.states.remove(&self.topic_partition);
        self.cleaner.ended.notify_all();
    }
}
