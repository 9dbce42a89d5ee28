//! Writes records that are not delivered any more to the dead-letter queues of their groups
//! (KIP-1191).
//!
//! The records of one share partition are written in the order in which they were given up, as many
//! in one batch as `max.message.bytes` of the queue allows, and at most 1 MiB if they are several.
//! The batch goes to the leader of the queue's partition by a Produce request, also if that is this
//! broker, so that the queue is a topic like any other: authorised, validated, replicated to all
//! in-sync replicas and counted. How many are written at the same time, and on which connections, is
//! in `slots.rs`.
//!
//! Invariants: each letter is written, or given up after five attempts; a letter that the queue refuses takes no other
//! letters with it; no write of a share partition starts after it is closed. Kafka: `ShareGroupDLQStateManager`.

mod size_limits;

mod batch;
mod originals;
mod queue;
mod remote_originals;
mod slots;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use bytestring::ByteString;
use ottla_coordinator::dead_letter_queue::{
    AfterWrite, FailedAttempts, LetterSource, LettersPerBatch,
};
use ottla_coordinator::persister::SharePartitionKey;
use ottla_coordinator::share_partition::DeadLetters;
use ottla_metadata::ConfigResource;
use ottla_net::{BrokerPeers, PeerError, ProduceTo};
use ottla_partition::partition::Partition;
use ottla_sync::Mutex;
use ottla_types::{ErrorCode, PartitionIndex};

use crate::surroundings::Surroundings;
use batch::compose;
use originals::Originals;
use queue::{Queue, QueueFailure};
use size_limits::SizeLimits;
use slots::Slots;

/// The dead-letter queues that this broker writes to.
#[derive(Debug)]
pub struct DeadLetterQueues {
    surroundings: Arc<Surroundings>,
    slots: Slots,
    /// By group.
    counts: Mutex<BTreeMap<ByteString, DeadLetterCounts>>,
}

/// What happened to the dead letters of a group since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeadLetterCounts {
    pub records: u64,
    pub produce_requests: u64,
    /// Writes that were given up.
    pub failed_produce_requests: u64,
}

/// Whether the share partition whose letters are written is still open.
pub(super) type IsOpen<'a> = &'a (dyn Fn() -> bool + Send + Sync);

/// Why letters were not written.
struct Failure {
    reason: String,
    of: FailureOf,
    is_temporary: bool,
}

enum FailureOf {
    /// Nothing can be written at present.
    Queue,
    /// A batch with this many letters.
    Write { letters: i64 },
    /// A batch with this many letters, because of its contents.
    Content { letters: i64 },
    /// This broker stops, or the share partition is closed.
    Leader,
}

impl From<QueueFailure> for Failure {
    fn from(failure: QueueFailure) -> Self {
        Failure {
            reason: failure.reason,
            of: FailureOf::Queue,
            is_temporary: failure.is_temporary,
        }
    }
}

/// Letters that were given up one after the other for the same reason, which are reported together:
/// there may be thousands.
#[derive(Default)]
struct GivenUp {
    letters: i64,
    reason: String,
}

impl GivenUp {
    fn add(
        &mut self,
        letters: i64,
        reason: String,
        key: &SharePartitionKey,
        partition: &Partition,
    ) {
        if self.reason != reason {
            self.report(key, partition);
            self.reason = reason;
        }
        self.letters += letters;
    }

    fn report(&mut self, key: &SharePartitionKey, partition: &Partition) {
        let GivenUp { letters, reason } = std::mem::take(self);
        if letters > 0 {
            let (partition, group) = (&partition.topic_partition, &key.group_id);
            tracing::error!(%partition, "{letters} records that share group {group} has given up are not copied to its dead-letter queue: {reason}");
        }
    }
}

impl DeadLetterQueues {
    pub(super) fn new(surroundings: Arc<Surroundings>) -> Self {
        DeadLetterQueues {
            surroundings,
            slots: Slots::new(),
            counts: Mutex::default(),
        }
    }

    /// For metrics. Groups that have no dead-letter queue any more are forgotten, so that there are no
    /// more groups than in the metadata.
    pub fn counts(&self) -> BTreeMap<ByteString, DeadLetterCounts> {
        let image = self.surroundings.context.metadata().clone();
        let mut counts = self.counts.lock();
        counts.retain(|group_id, _| {
            let group = ConfigResource::group(group_id.to_string());
            let name = image
                .configs
                .value(&group, "errors.deadletterqueue.topic.name");
            name.is_some_and(|name| !name.trim().is_empty())
        });
        counts.clone()
    }

    fn count(&self, group_id: &ByteString, add: impl FnOnce(&mut DeadLetterCounts)) {
        let mut counts = self.counts.lock();
        add(counts.entry(group_id.clone()).or_default());
    }

    /// Returns when every letter was written or given up; `false` if this broker stops before, or the
    /// share partition is closed, so that the next leader writes them.
    pub(super) async fn write(
        &self,
        key: &SharePartitionKey,
        partition: &Arc<Partition>,
        letters: &[DeadLetters],
        is_open: IsOpen<'_>,
    ) -> bool {
        let mut pending: VecDeque<DeadLetters> = letters.iter().copied().collect();
        let mut per_batch = LettersPerBatch::default();
        let mut given_up = GivenUp::default();
        while !pending.is_empty() {
            let writing = self.write_batch(key, partition, &pending, per_batch, is_open);
            match writing.await {
                Ok(written) => {
                    self.count(&key.group_id, |counts| counts.records += written as u64);
                    advance(&mut pending, written);
                    per_batch.on_written();
                }
                Err(failure) => {
                    let letters = match failure.of {
                        FailureOf::Leader => {
                            given_up.report(key, partition);
                            return false;
                        }
                        FailureOf::Content { letters } => {
                            if per_batch.on_refused(letters) {
                                continue;
                            }
                            letters
                        }
                        FailureOf::Write { letters } if !failure.is_temporary => letters,
                        // The others would meet the same failure.
                        FailureOf::Write { .. } | FailureOf::Queue => letters_in(&pending),
                    };
                    if let FailureOf::Write { .. } | FailureOf::Content { .. } = failure.of {
                        self.count(&key.group_id, |counts| counts.failed_produce_requests += 1);
                    }
                    given_up.add(letters, failure.reason, key, partition);
                    advance(&mut pending, letters);
                }
            }
        }
        given_up.report(key, partition);
        true
    }

    /// Writes the next batch, and returns how many letters it holds.
    async fn write_batch(
        &self,
        key: &SharePartitionKey,
        partition: &Arc<Partition>,
        pending: &VecDeque<DeadLetters>,
        per_batch: LettersPerBatch,
        is_open: IsOpen<'_>,
    ) -> Result<i64, Failure> {
        let mut failed = FailedAttempts::default();
        loop {
            let trying = self.try_once(key, partition, pending, per_batch, is_open);
            let mut failure = match trying.await {
                Ok(written) => return Ok(written),
                Err(failure) => failure,
            };
            if self.surroundings.context.is_stopping() || !is_open() {
                failure.of = FailureOf::Leader;
                return Err(failure);
            }
            if !failure.is_temporary {
                return Err(failure);
            }
            let Some(pause_ms) = failed.next_pause_ms() else {
                return Err(failure);
            };
            ottla_sync::time::sleep(Duration::from_millis(pause_ms)).await;
        }
    }

    /// The originals are read again by each attempt, so that none stays in memory during a pause.
    ///
    /// The share partition may have been closed during a pause or during the turns of other share partitions. The next
    /// leader then writes all pending letters, and letters written here too would be in the queue twice.
    async fn try_once(
        &self,
        key: &SharePartitionKey,
        partition: &Arc<Partition>,
        pending: &VecDeque<DeadLetters>,
        per_batch: LettersPerBatch,
        is_open: IsOpen<'_>,
    ) -> Result<i64, Failure> {
        let source = LetterSource {
            group_id: &key.group_id,
            topic: &partition.topic_partition.topic,
            partition: PartitionIndex(key.partition),
        };
        let queue = queue::find(&self.surroundings, source).await?;
        let slot = self.slots.take(queue.topic_id).await;
        if !is_open() {
            return Err(Failure {
                reason: "the share partition is closed".to_owned(),
                of: FailureOf::Leader,
                is_temporary: false,
            });
        }
        // It may have another leader by now.
        let queue = queue::find(&self.surroundings, source).await?;
        let limits = SizeLimits::of_queue(queue.max_message_bytes);
        let mut originals = match queue.copies_records {
            true if remote_originals::has_first(partition, pending) => {
                let (surroundings, peers) = (&self.surroundings, slot.peers());
                remote_originals::read(surroundings, peers, partition, pending, limits).await
            }
            true => read_originals(partition, pending, limits).await,
            false => Originals::none(),
        };
        originals.letters = originals.letters.min(per_batch.max());
        let now = self.surroundings.context.timestamp();
        let composed = compose(source, pending, &originals, limits, now);
        let letters = composed.letters;
        self.count(&key.group_id, |counts| counts.produce_requests += 1);
        match self.produce(slot.peers(), &queue, composed.records).await {
            Ok(error) => match AfterWrite::of(error) {
                AfterWrite::Written => Ok(letters),
                after => Err(Failure {
                    reason: format!("topic {}: {error}", queue.topic),
                    of: match after {
                        AfterWrite::Split => FailureOf::Content { letters },
                        _ => FailureOf::Write { letters },
                    },
                    is_temporary: after == AfterWrite::TryAgain,
                }),
            },
            Err(error) => Err(Failure {
                reason: error.to_string(),
                of: FailureOf::Write { letters },
                is_temporary: true,
            }),
        }
    }

    async fn produce(
        &self,
        peers: &BrokerPeers,
        queue: &Queue,
        records: Bytes,
    ) -> Result<ErrorCode, PeerError> {
        let to = ProduceTo {
            leader: queue.leader,
            topic: queue.topic.clone(),
            topic_id: queue.topic_id,
            partition: queue.partition.0,
        };
        let context = &self.surroundings.context;
        let answer = peers.produce(context, to, records).await?;
        Ok(ErrorCode::from_code(answer.error_code))
    }
}

async fn read_originals(
    partition: &Arc<Partition>,
    pending: &VecDeque<DeadLetters>,
    limits: SizeLimits,
) -> Originals {
    let reader = partition.reader().clone();
    let threads = partition.log_location().threads.reads.clone();
    let wanted: Vec<DeadLetters> = pending.iter().copied().collect();
    let reading = threads.run(move || originals::read(&reader, &wanted, limits));
    // A panic was reported where it happened; the letters have no copies then.
    reading.await.unwrap_or_else(|_| Originals::none())
}

fn letters_in(pending: &VecDeque<DeadLetters>) -> i64 {
    pending.iter().map(length_of).sum()
}

fn length_of(letters: &DeadLetters) -> i64 {
    letters.last_offset.0 - letters.first_offset.0 + 1
}

/// Removes the first letters.
fn advance(pending: &mut VecDeque<DeadLetters>, mut letters: i64) {
    while let Some(first) = pending.front_mut() {
        let length = length_of(first);
        if letters < length {
            first.first_offset.0 += letters;
            return;
        }
        letters -= length;
        pending.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use ottla_coordinator::share_partition::DeadLetterCause;
    use ottla_types::Offset;

    use super::*;

    fn range(first: i64, last: i64) -> DeadLetters {
        DeadLetters {
            first_offset: Offset(first),
            last_offset: Offset(last),
            delivery_count: 1,
            cause: DeadLetterCause::Rejected,
        }
    }

    #[test]
    fn written_letters_are_removed_from_the_front() {
        let mut pending = VecDeque::from([range(0, 4), range(7, 7), range(9, 12)]);
        assert_eq!(letters_in(&pending), 10);
        advance(&mut pending, 2);
        assert_eq!(pending, [range(2, 4), range(7, 7), range(9, 12)]);
        advance(&mut pending, 4);
        assert_eq!(pending, [range(9, 12)]);
        advance(&mut pending, 4);
        assert!(pending.is_empty());
    }
}
