//! The topics that a producer has sent to, and the queues of their partitions.
//!
//! Read for every record, changed when a topic is used for the first time or gets more partitions.
//! Entries are never moved or removed: buckets are chains that only grow, and a lookup writes no
//! memory.

use ottla_sync::atomic::{AtomicU32, Ordering};
use std::hash::BuildHasher;
use std::sync::{Arc, OnceLock};

use ottla_records::Compression;
use ottla_sync::Mutex;
use ottla_sync::collections::RandomState;

use super::batch::{ProducerBatch, next_ratio};
use super::brief_lock::BriefLock;
use super::queue_state::{BatchRules, QueueState};
use super::sticky::Sticky;

const BUCKETS: usize = 256;

pub(super) struct TopicTable {
    hasher: RandomState,
    buckets: Box<[OnceLock<Arc<TopicQueues>>]>,
    /// The first topic, which is the only one of most producers: found without hashing its name.
    first: OnceLock<Arc<TopicQueues>>,
    /// Only one thread changes the table at a time.
    changing: Mutex<()>,
}

/// The queues of a topic's partitions.
pub(super) struct TopicQueues {
    pub(super) name: Arc<str>,
    pub(super) partitions: Box<[Arc<PartitionQueue>]>,
    pub(super) sticky: Arc<Sticky>,
    /// The same topic with more partitions, when it has them.
    grown: OnceLock<Arc<TopicQueues>>,
    /// The next topic of the same bucket.
    next: OnceLock<Arc<TopicQueues>>,
}

pub(super) struct PartitionQueue {
    pub(super) topic: Arc<str>,
    pub(super) partition: i32,
    pub(super) state: BriefLock<QueueState>,
    /// The estimated compression ratio of this topic, as bits of a float.
    ratio: Arc<AtomicU32>,
}

impl Default for TopicTable {
    fn default() -> TopicTable {
        TopicTable {
            hasher: Default::default(),
            buckets: (0..BUCKETS).map(|_| OnceLock::new()).collect(),
            first: OnceLock::new(),
            changing: Mutex::default(),
        }
    }
}

impl TopicTable {
    #[inline]
    pub(super) fn get(&self, name: &str) -> Option<&TopicQueues> {
        match self.first.get() {
            Some(first) if *first.name == *name => Some(first.newest()),
            _ => self.find(name),
        }
    }

    fn find(&self, name: &str) -> Option<&TopicQueues> {
        let mut topic = self.bucket(name).get()?;
        while *topic.name != *name {
            topic = topic.next.get()?;
        }
        Some(topic.newest())
    }

    #[inline]
    fn bucket(&self, name: &str) -> &OnceLock<Arc<TopicQueues>> {
        &self.buckets[self.hasher.hash_one(name) as usize % BUCKETS]
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &TopicQueues> {
        self.buckets
            .iter()
            .flat_map(|bucket| std::iter::successors(bucket.get(), |topic| topic.next.get()))
            .map(|topic| topic.newest())
    }

    /// Sets the number of partitions of a topic, which never decreases.
    pub(super) fn set_partitions(&self, name: &str, count: usize) {
        let _changing = self.changing.lock();
        match self.get(name) {
            Some(known) if known.partitions.len() < count => {
                let _ = known.grown.set(Arc::new(known.with_partitions(count)));
            }
            None if count > 0 => {
                let topic = Arc::new(TopicQueues::new(name, count));
                let mut place = self.bucket(name);
                while let Some(other) = place.get() {
                    place = &other.next;
                }
                let _ = place.set(topic.clone());
                let _ = self.first.set(topic);
            }
            _ => {}
        }
    }
}

impl TopicQueues {
    fn new(name: &str, count: usize) -> TopicQueues {
        TopicQueues {
            name: name.into(),
            partitions: Box::default(),
            sticky: Arc::new(Sticky::new(
                count,
                ottla_sync::random::random("sticky partitions"),
            )),
            grown: OnceLock::new(),
            next: OnceLock::new(),
        }
        .with_partitions(count)
    }

    fn with_partitions(&self, count: usize) -> TopicQueues {
        let ratio = match self.partitions.first() {
            Some(first) => first.ratio.clone(),
            None => Arc::new(AtomicU32::new(1f32.to_bits())),
        };
        let known = self.partitions.iter().cloned();
        let more = (self.partitions.len()..count).map(|partition| {
            Arc::new(PartitionQueue {
                topic: self.name.clone(),
                partition: partition as i32,
                state: BriefLock::default(),
                ratio: ratio.clone(),
            })
        });
        TopicQueues {
            name: self.name.clone(),
            partitions: known.chain(more).collect(),
            sticky: self.sticky.clone(),
            grown: OnceLock::new(),
            next: OnceLock::new(),
        }
    }

    #[inline]
    fn newest(&self) -> &TopicQueues {
        let mut topic = self;
        while let Some(grown) = topic.grown.get() {
            topic = grown;
        }
        topic
    }
}

impl PartitionQueue {
    /// The estimated compression ratio; `None` without compression.
    #[inline]
    pub(super) fn ratio(&self, rules: &BatchRules) -> Option<f32> {
        match rules.compression {
            Compression::None => None,
            _ => Some(f32::from_bits(self.ratio.load(Ordering::Relaxed))),
        }
    }

    pub(super) fn learn_ratio(&self, rules: &BatchRules, batch: &ProducerBatch) {
        if let Some(current) = self.ratio(rules) {
            let observed = batch.size() as f32 / batch.uncompressed_size().max(1) as f32;
            let next = next_ratio(current, observed);
            self.ratio.store(next.to_bits(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_keep_their_index() {
        let table = TopicTable::default();
        assert!(table.get("t0").is_none());
        for number in 0..1000 {
            table.set_partitions(&format!("t{number}"), 1 + number % 3);
        }
        table.set_partitions("none", 0);
        assert!(table.get("none").is_none());
        assert_eq!(table.all().count(), 1000);
        let before = table.get("t7").unwrap();
        assert_eq!(before.partitions.len(), 2);
        let first = Arc::as_ptr(&before.partitions[0]);
        table.set_partitions("t7", 5);
        table.set_partitions("t7", 3);
        let after = table.get("t7").unwrap();
        assert_eq!(after.partitions.len(), 5);
        assert_eq!(Arc::as_ptr(&after.partitions[0]), first);
        assert_eq!(table.all().count(), 1000);
    }
}
