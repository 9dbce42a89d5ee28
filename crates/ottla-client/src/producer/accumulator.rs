//! The accumulator: all records that are not in flight, in one queue of batches per partition
//! (`org.apache.kafka.clients.producer.internals.RecordAccumulator`).
//!
//! Senders append on their own threads: they look up the topic without a lock, and hold the lock of
//! one partition while they encode a record. One task takes batches out, and puts back batches that
//! must be retried. Nothing here uses connections; time is an argument.

use ottla_sync::atomic::{AtomicUsize, Ordering};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use indexmap::IndexMap;
use ottla_records::RecordBatchBuilder;
use ottla_sync::Mutex;

use super::batch::ProducerBatch;
use super::buffer_pool::{BufferPool, Grant};
use super::delivery::{Completion, Delivery, DeliveryCallback, Outcome};
use super::queue_state::{BatchRules, QueueState};
use super::record::RecordRef;
use super::sequences::Identity;
use super::sticky::Load;
use super::topics::{PartitionQueue, TopicQueues, TopicTable};
use crate::partitioner::partition_for_key;

/// How the result of a record is reported. A type per kind, so that unused kinds cost nothing on
/// the path of every record.
pub(super) trait Interest: Sized {
    /// The result of `send`.
    type Answer;

    /// The record has this index in the batch.
    fn note(self, batch: &mut ProducerBatch, index: u32, timestamp: i64) -> Self::Answer;

    /// The tag for the listener.
    fn tag(&self) -> u64 {
        0
    }
}

/// The caller gets a [`Delivery`].
pub(super) struct AwaitDelivery;

impl Interest for AwaitDelivery {
    type Answer = Delivery;

    #[inline(always)]
    fn note(self, batch: &mut ProducerBatch, index: u32, timestamp: i64) -> Delivery {
        batch.delivery(index, timestamp)
    }
}

impl Interest for DeliveryCallback {
    type Answer = ();

    #[inline(always)]
    fn note(self, batch: &mut ProducerBatch, index: u32, timestamp: i64) {
        batch.callbacks.push((index, timestamp, self));
    }
}

/// Only the listener is notified, with this tag.
pub(super) struct Tagged(pub(super) u64);

impl Interest for Tagged {
    type Answer = ();

    #[inline(always)]
    fn note(self, _: &mut ProducerBatch, _: u32, _: i64) {}

    #[inline(always)]
    fn tag(&self) -> u64 {
        self.0
    }
}

pub(super) struct Appended<A> {
    pub(super) answer: A,
    /// Whether the sender must be woken up: for a full batch, or the first record of a new one.
    pub(super) is_news: bool,
}

/// Why a record was not appended.
pub(super) enum Refused<I> {
    NoSuchPartition {
        partition: i32,
        partitions: usize,
    },
    /// This many bytes of memory must be granted first.
    NoMemory {
        bytes: usize,
        interest: I,
    },
}

/// The leader of a partition, as the metadata names it.
#[derive(Clone, Copy)]
pub(super) struct Leader {
    pub(super) node: i32,
    pub(super) epoch: i32,
}

/// The next actions of the sender.
#[derive(Default)]
pub(super) struct Ready {
    /// Leaders with something to send, and all their partitions with batches.
    pub(super) nodes: BTreeMap<i32, Vec<Arc<PartitionQueue>>>,
    pub(super) topics_without_leader: BTreeSet<Arc<str>>,
    /// When there may be more to do, if there is no event before.
    pub(super) next_check: Option<Duration>,
}

pub(super) struct Accumulator {
    pub(super) rules: BatchRules,
    pub(super) pool: Arc<BufferPool>,
    pub(super) topics: TopicTable,
    /// The number of waiting flushes. While there is one, no batch lingers.
    flushes: AtomicUsize,
    incomplete: Mutex<IndexMap<usize, Arc<Completion>>>,
}

impl Accumulator {
    pub(super) fn new(rules: BatchRules, pool: Arc<BufferPool>) -> Accumulator {
        Accumulator {
            rules,
            pool,
            topics: TopicTable::default(),
            flushes: AtomicUsize::new(0),
            incomplete: Mutex::default(),
        }
    }

    /// Appends a record to the batch of its partition. `grant` is memory for a new batch, if the
    /// caller has waited for it; unused memory stays in it.
    #[inline(always)]
    pub(super) fn append<I: Interest>(
        &self,
        topic: &TopicQueues,
        record: &RecordRef<'_>,
        timestamp: i64,
        interest: I,
        grant: &mut Option<Grant>,
    ) -> Result<Appended<I::Answer>, Refused<I>> {
        let partitions = topic.partitions.len();
        let fixed = match (record.partition, record.key) {
            (Some(partition), _) if (0..partitions as i32).contains(&partition) => {
                Some(partition as usize)
            }
            (Some(partition), _) => {
                return Err(Refused::NoSuchPartition {
                    partition,
                    partitions,
                });
            }
            (None, Some(key)) if !self.rules.ignore_keys => {
                Some(partition_for_key(key, partitions))
            }
            (None, _) => None,
        };
        if let Some(index) = fixed {
            let queue = &topic.partitions[index];
            let mut state = queue.state.lock();
            let (appended, _) =
                self.append_to(queue, &mut state, record, timestamp, interest, grant)?;
            return Ok(appended);
        }
        loop {
            let choice = topic.sticky.choice();
            let queue = &topic.partitions[choice.partition()];
            let mut state = queue.state.lock();
            if topic.sticky.choice() != choice {
                // Another thread has filled the batch in the meantime.
                continue;
            }
            let (appended, bytes) =
                self.append_to(queue, &mut state, record, timestamp, interest, grant)?;
            let QueueState {
                batches, produced, ..
            } = &mut *state;
            let batch_size = self.rules.batch_size;
            // A batch that lingers should be filled rather than left half full.
            let may_move = || {
                let is_full =
                    |last: &ProducerBatch| last.is_full(batch_size, queue.ratio(&self.rules));
                appended.is_news || batches.back().is_none_or(is_full)
            };
            topic
                .sticky
                .on_produced(choice, produced, bytes, batch_size, may_move, partitions);
            return Ok(appended);
        }
    }

    /// Called for every record. A function that is not inlined returns its results through memory,
    /// which stalls. The code that only the first record of a batch needs is separate.
    #[inline(always)]
    fn append_to<I: Interest>(
        &self,
        queue: &PartitionQueue,
        state: &mut QueueState,
        record: &RecordRef<'_>,
        timestamp: i64,
        interest: I,
        grant: &mut Option<Grant>,
    ) -> Result<(Appended<I::Answer>, usize), Refused<I>> {
        if let Some(last) = state.batches.back_mut() {
            let ratio = queue.ratio(&self.rules);
            let batch_size = self.rules.batch_size;
            if let Some(placed) = last.try_append(record, timestamp, batch_size, ratio) {
                let answer = self.note(last, placed.index, timestamp, interest);
                let appended = Appended {
                    answer,
                    is_news: false,
                };
                return Ok((appended, placed.bytes));
            }
        }
        self.begin_batch(queue, state, record, timestamp, interest, grant)
    }

    /// The previous batch, if there is one, has no space for the record.
    #[cold]
    #[inline(never)]
    fn begin_batch<I: Interest>(
        &self,
        queue: &PartitionQueue,
        state: &mut QueueState,
        record: &RecordRef<'_>,
        timestamp: i64,
        interest: I,
        grant: &mut Option<Grant>,
    ) -> Result<(Appended<I::Answer>, usize), Refused<I>> {
        let BatchRules { batch_size, .. } = self.rules;
        if let Some(last) = state.batches.back_mut() {
            last.close();
            state.last_record_count = last.record_count as usize;
        }
        let wanted = batch_size.max(record.size_upper_bound() + ottla_records::BatchHeader::SIZE);
        let memory = match grant.take_if(|grant| grant.bytes() >= wanted) {
            Some(memory) => memory,
            None => match self.pool.try_grant(wanted) {
                Some(memory) => memory,
                None => {
                    return Err(Refused::NoMemory {
                        bytes: wanted,
                        interest,
                    });
                }
            },
        };
        let builder = RecordBatchBuilder::new(self.rules.compression);
        let mut batch = ProducerBatch::new(
            builder,
            Some(memory),
            queue.partition,
            ottla_sync::time::now(),
        );
        if self.rules.keeps_tags {
            batch.tags.reserve(state.last_record_count);
        }
        let placed = batch
            .try_append(record, timestamp, batch_size, queue.ratio(&self.rules))
            .expect("an empty batch takes any record");
        let answer = self.note(&mut batch, placed.index, timestamp, interest);
        self.track(&batch.completion);
        state.batches.push_back(batch);
        let appended = Appended {
            answer,
            is_news: true,
        };
        Ok((appended, placed.bytes))
    }

    #[inline(always)]
    fn note<I: Interest>(
        &self,
        batch: &mut ProducerBatch,
        index: u32,
        timestamp: i64,
        interest: I,
    ) -> I::Answer {
        if self.rules.keeps_tags {
            batch.tags.push(interest.tag());
        }
        interest.note(batch, index, timestamp)
    }

    /// The leaders with something to send now. Batches whose partition has a newer leader than at
    /// their last attempt do not wait (KIP-951).
    pub(super) fn ready(
        &self,
        now: Instant,
        sends_all: bool,
        leader_of: impl Fn(&str, i32) -> Option<Leader>,
        is_available: impl Fn(i32) -> bool,
    ) -> Ready {
        let sends_all =
            sends_all || self.flushes.load(Ordering::Acquire) > 0 || self.pool.is_exhausted();
        let mut ready = Ready::default();
        let mut holders: BTreeMap<i32, Vec<Arc<PartitionQueue>>> = BTreeMap::new();
        let mut ready_nodes = BTreeSet::new();
        for topic in self.topics.all() {
            let mut loads = Vec::new();
            for (index, queue) in topic.partitions.iter().enumerate() {
                let leader = leader_of(&topic.name, queue.partition);
                let mut state = queue.state.lock();
                if let Some(leader) = leader
                    && self.rules.is_adaptive
                    && is_available(leader.node)
                {
                    loads.push((index, state.batches.len()));
                }
                if let Some(leader) = leader {
                    state.end_waits_for(leader.epoch, now);
                }
                let Some(first) = state.batches.front() else {
                    continue;
                };
                let Some(Leader { node: leader, .. }) = leader else {
                    ready.topics_without_leader.insert(topic.name.clone());
                    continue;
                };
                if self.rules.one_in_flight && state.on_wire > 0 {
                    continue;
                }
                holders.entry(leader).or_default().push(queue.clone());
                let ratio = queue.ratio(&self.rules);
                let is_full =
                    state.batches.len() > 1 || first.is_full(self.rules.batch_size, ratio);
                let wait = if first.attempts > 0 {
                    first.waits_until.saturating_duration_since(now)
                } else if is_full || sends_all {
                    Duration::ZERO
                } else {
                    self.rules.linger.saturating_sub(first.age(now))
                };
                if wait.is_zero() {
                    ready_nodes.insert(leader);
                } else {
                    let next = ready.next_check.get_or_insert(wait);
                    *next = wait.min(*next);
                }
            }
            if self.rules.is_adaptive {
                let load = Load::of(&loads, topic.partitions.len());
                topic.sticky.set_load(load);
            }
        }
        holders.retain(|leader, _| ready_nodes.contains(leader));
        ready.nodes = holders;
        ready
    }

    /// Takes one batch of each partition, starting at `start`, as many as fit into a request. Only
    /// from partitions that `gate` lets through.
    pub(super) fn drain(
        &self,
        queues: &[Arc<PartitionQueue>],
        start: usize,
        max_request_size: usize,
        identity: Option<Identity>,
        now: Instant,
        mut gate: impl FnMut(&PartitionQueue) -> bool,
    ) -> Vec<(Arc<PartitionQueue>, ProducerBatch)> {
        let mut drained: Vec<(Arc<PartitionQueue>, ProducerBatch)> = Vec::new();
        let mut size = 0;
        for index in 0..queues.len() {
            let queue = &queues[(start + index) % queues.len()];
            let mut state = queue.state.lock();
            let Some(first) = state.batches.front() else {
                continue;
            };
            let is_waiting = first.attempts > 0 && first.waits_until > now;
            if is_waiting || !gate(queue) {
                continue;
            }
            if let Some(identity) = identity {
                let may_leave = match first.ticket {
                    Some(ticket) => state.sequences.may_repeat(ticket),
                    None => state.sequences.may_start(identity),
                };
                if !may_leave {
                    continue;
                }
            }
            if !drained.is_empty() && size + first.size() > max_request_size {
                break;
            }
            let mut batch = state.batches.pop_front().expect("looked at above");
            state.on_wire += 1;
            if batch.attempts == 0 {
                let producer = identity.map(|identity| {
                    let count = batch.record_count as i32;
                    let (ticket, sequence) = state.sequences.start(identity, count);
                    batch.ticket = Some(ticket);
                    (identity, sequence)
                });
                drop(state);
                batch.seal(producer, self.rules.is_transactional);
                queue.learn_ratio(&self.rules, &batch);
            }
            batch.attempts += 1;
            size += batch.size();
            drained.push((queue.clone(), batch));
        }
        drained
    }

    /// Puts a batch back for a retry, after the batches that were sent before it.
    pub(super) fn put_back(&self, queue: &PartitionQueue, batch: ProducerBatch) {
        let mut state = queue.state.lock();
        let at = state.place_of(&batch);
        state.batches.insert(at, batch);
    }

    /// Replaces a batch that was too large by its parts. Returns false if it cannot be split.
    pub(super) fn put_back_split(
        &self,
        queue: &PartitionQueue,
        batch: &mut ProducerBatch,
        identity: Option<Identity>,
        now: Instant,
    ) -> bool {
        let Some(parts) = batch.split(self.rules.compression, self.rules.batch_size, now) else {
            return false;
        };
        let mut state = queue.state.lock();
        let counts: Vec<i32> = parts.iter().map(|(_, it)| it.record_count as i32).collect();
        let places = batch
            .ticket
            .map(|ticket| state.sequences.split(ticket, &counts));
        let mut outcome = Vec::new();
        for (index, (first, mut part)) in parts.into_iter().enumerate() {
            let place = places.as_ref().and_then(|places| places.get(index));
            let producer = identity.zip(place).map(|(identity, (ticket, sequence))| {
                part.ticket = Some(*ticket);
                (identity, *sequence)
            });
            part.seal(producer, self.rules.is_transactional);
            part.attempts = 1;
            self.track(&part.completion);
            outcome.push((first, part.completion.clone()));
            let at = match part.ticket {
                Some(_) => state.place_of(&part),
                None => index,
            };
            state.batches.insert(at, part);
        }
        batch.completion.set(Outcome::Split(outcome));
        true
    }

    /// Takes the batches that have exceeded `delivery.timeout.ms`.
    pub(super) fn take_expired(
        &self,
        now: Instant,
        delivery_timeout: Duration,
    ) -> Vec<(Arc<PartitionQueue>, ProducerBatch)> {
        self.take_while(|batch| batch.age(now) >= delivery_timeout)
    }

    /// Takes all batches in order to fail them.
    pub(super) fn take_all(&self) -> Vec<(Arc<PartitionQueue>, ProducerBatch)> {
        self.take_while(|_| true)
    }

    fn take_while(
        &self,
        condition: impl Fn(&ProducerBatch) -> bool,
    ) -> Vec<(Arc<PartitionQueue>, ProducerBatch)> {
        let mut taken = Vec::new();
        for topic in self.topics.all() {
            for queue in &topic.partitions {
                let mut state = queue.state.lock();
                while state.batches.front().is_some_and(&condition) {
                    let batch = state.batches.pop_front().expect("looked at above");
                    taken.push((queue.clone(), batch));
                }
            }
        }
        taken
    }

    /// Starts again with a new identity if a partition cannot continue with the old one and none of
    /// its batches is in flight. Returns true if a partition must wait for that.
    pub(super) fn has_broken_sequences(&self) -> bool {
        self.topics.all().any(|topic| {
            topic
                .partitions
                .iter()
                .any(|queue| queue.state.lock().sequences.is_broken())
        })
    }

    /// Whether broken partitions can be restarted now.
    pub(super) fn broken_sequences_are_quiet(&self) -> bool {
        self.topics.all().all(|topic| {
            topic.partitions.iter().all(|queue| {
                let state = queue.state.lock();
                !state.sequences.is_broken() || state.on_wire == 0
            })
        })
    }

    /// Assigns new sequence numbers to the waiting batches of broken partitions.
    pub(super) fn begin_sequences_anew(&self, identity: Identity) {
        for topic in self.topics.all() {
            for queue in &topic.partitions {
                let mut state = queue.state.lock();
                let QueueState {
                    batches, sequences, ..
                } = &mut *state;
                if !sequences.is_broken() {
                    continue;
                }
                for (ticket, sequence) in sequences.begin_anew(identity) {
                    if let Some(batch) = batches.iter_mut().find(|it| it.ticket == Some(ticket)) {
                        batch.reseal(identity, sequence);
                    }
                }
            }
        }
    }

    pub(super) fn has_undrained(&self) -> bool {
        self.topics.all().any(|topic| {
            topic
                .partitions
                .iter()
                .any(|queue| !queue.state.lock().batches.is_empty())
        })
    }

    fn track(&self, completion: &Arc<Completion>) {
        let key = Arc::as_ptr(completion) as usize;
        self.incomplete.lock().insert(key, completion.clone());
    }

    pub(super) fn on_completed(&self, completion: &Arc<Completion>) {
        let key = Arc::as_ptr(completion) as usize;
        self.incomplete.lock().swap_remove(&key);
    }

    pub(super) fn is_idle(&self) -> bool {
        self.incomplete.lock().is_empty()
    }

    /// Makes every batch ready without lingering until the guard is dropped. Returns the
    /// completions to wait for.
    pub(super) fn begin_flush(&self) -> (FlushGuard<'_>, Vec<Arc<Completion>>) {
        self.flushes.fetch_add(1, Ordering::AcqRel);
        let incomplete = self.incomplete.lock().values().cloned().collect();
        (FlushGuard(self), incomplete)
    }
}

/// A waiting flush.
pub(super) struct FlushGuard<'a>(&'a Accumulator);

impl Drop for FlushGuard<'_> {
    fn drop(&mut self) {
        self.0.flushes.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests;
