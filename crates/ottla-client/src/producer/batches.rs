//! The batches that fill and wait, one queue a partition.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;
use ottla_records::{Compression, RecordBatchBuilder};
use ottla_types::{ProducerEpoch, ProducerId, Sequence, Timestamp};

use super::{ProducerRecord, Waiting};

/// A batch that still takes records.
struct OpenBatch {
    builder: RecordBatchBuilder,
    waiting: Vec<(Waiting, i64)>,
    opened: Instant,
}

/// A batch on its way.
pub(super) struct ReadyBatch {
    pub(super) topic: String,
    pub(super) partition: i32,
    /// Until the batch is sealed.
    builder: Option<RecordBatchBuilder>,
    /// From then on: attempts do not build it anew.
    pub(super) records: Bytes,
    /// Who waits for each record, and the record's timestamp.
    pub(super) waiting: Vec<(Waiting, i64)>,
}

impl ReadyBatch {
    /// Compresses the records and puts the header in front. Not under the accumulator's lock.
    pub(super) fn seal(&mut self) {
        if let Some(builder) = self.builder.take() {
            self.records = builder.build().to_bytes();
        }
    }
}

#[derive(Default)]
struct PartitionQueue {
    /// The last one takes records; those before it are full.
    batches: VecDeque<OpenBatch>,
    /// A batch is under way, so that no other may leave.
    is_busy: bool,
    next_sequence: i32,
}

/// Everything that has been handed in and is not yet sent.
pub(super) struct Accumulator {
    batch_size: usize,
    compression: Compression,
    queues: BTreeMap<(String, i32), PartitionQueue>,
    /// The partition of records without a key, and how many of their bytes it has taken.
    sticky: BTreeMap<String, (i32, usize)>,
    /// Who this producer is to the brokers, if it is idempotent.
    pub(super) producer: Option<(ProducerId, ProducerEpoch)>,
    /// Batches leave without lingering until everything that was there is sent.
    hurry: bool,
}

impl Accumulator {
    pub(super) fn new(batch_size: usize, compression: Compression) -> Accumulator {
        Accumulator {
            batch_size,
            compression,
            queues: BTreeMap::new(),
            sticky: BTreeMap::new(),
            producer: None,
            hurry: false,
        }
    }

    fn queue(&mut self, topic: &str, partition: i32) -> &mut PartitionQueue {
        self.queues
            .entry((topic.to_owned(), partition))
            .or_default()
    }

    /// The partition that records without a key go to for now: another one after each batch's worth of
    /// bytes.
    pub(super) fn sticky_partition(&mut self, topic: &str, partitions: usize, size: usize) -> i32 {
        let count = partitions as i32;
        if let Some((partition, bytes)) = self.sticky.get_mut(topic)
            && *partition < count
            && *bytes < self.batch_size
        {
            *bytes += size;
            return *partition;
        }
        let partition = rand::random_range(0..count);
        self.sticky.insert(topic.to_owned(), (partition, size));
        partition
    }

    /// Adds a record; true if that made something ready to be sent, or the first to be waited for.
    pub(super) fn append(
        &mut self,
        record: &ProducerRecord,
        partition: i32,
        timestamp: Timestamp,
        waiting: Waiting,
    ) -> bool {
        let (batch_size, compression) = (self.batch_size, self.compression);
        let (key, value) = (record.key.as_deref(), record.value.as_deref());
        let queue = self.queue(&record.topic, partition);
        let fits = queue.batches.back().is_some_and(|batch| {
            batch
                .builder
                .uncompressed_size_with(timestamp, key, value, &record.headers)
                <= batch_size
        });
        let mut is_news = false;
        if !fits {
            is_news = true;
            queue.batches.push_back(OpenBatch {
                builder: RecordBatchBuilder::new(compression),
                waiting: Vec::new(),
                opened: Instant::now(),
            });
        }
        let batch = queue.batches.back_mut().expect("there is one by now");
        batch.builder.append(timestamp, key, value, &record.headers);
        batch.waiting.push((waiting, timestamp.0));
        is_news
    }

    /// Lets everything go that is there now.
    pub(super) fn release_lingering(&mut self) {
        self.hurry = true;
    }

    /// Nothing waits and nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.queues
            .values()
            .all(|queue| queue.batches.is_empty() && !queue.is_busy)
    }

    /// The batches that may leave now, and how long it is until another may.
    pub(super) fn take_ready(
        &mut self,
        linger: Duration,
        now: Instant,
    ) -> (Vec<ReadyBatch>, Option<Duration>) {
        let mut ready = Vec::new();
        let mut next: Option<Duration> = None;
        for ((topic, partition), queue) in &mut self.queues {
            let Some(first) = queue.batches.front() else {
                continue;
            };
            if queue.is_busy {
                continue;
            }
            let age = now.saturating_duration_since(first.opened);
            let is_full =
                queue.batches.len() > 1 || first.builder.uncompressed_size() >= self.batch_size;
            if !is_full && !self.hurry && age < linger {
                let left = linger - age;
                next = Some(next.map_or(left, |next| next.min(left)));
                continue;
            }
            let batch = queue.batches.pop_front().expect("looked at above");
            queue.is_busy = true;
            let mut builder = batch.builder;
            if let Some((id, epoch)) = self.producer {
                let count = builder.record_count();
                builder = builder.producer(id, epoch, Sequence(queue.next_sequence));
                // Sequence numbers go round after 2^31 - 1.
                let next = i64::from(queue.next_sequence) + i64::from(count);
                queue.next_sequence = (next & 0x7fff_ffff) as i32;
            }
            ready.push(ReadyBatch {
                topic: topic.clone(),
                partition: *partition,
                builder: Some(builder),
                records: Bytes::new(),
                waiting: batch.waiting,
            });
        }
        if self.is_empty() {
            self.hurry = false;
        }
        (ready, next)
    }

    /// A batch has come to its end. Whether the records of a failed one are in the log is not known, so
    /// that an idempotent producer goes on as another one, with sequences from 0.
    pub(super) fn finished(&mut self, topic: &str, partition: i32, succeeded: bool) {
        self.queue(topic, partition).is_busy = false;
        if !succeeded && self.producer.take().is_some() {
            for queue in self.queues.values_mut() {
                queue.next_sequence = 0;
            }
        }
    }

    /// Whether anything waits to be sent.
    pub(super) fn is_empty(&self) -> bool {
        self.queues.values().all(|queue| queue.batches.is_empty())
    }

    /// Takes everything that waits, to be refused.
    pub(super) fn take_all(&mut self) -> Vec<Waiting> {
        let queues = self.queues.values_mut();
        let batches = queues.flat_map(|queue| queue.batches.drain(..));
        batches
            .flat_map(|batch| batch.waiting)
            .map(|(waiting, _)| waiting)
            .collect()
    }
}
