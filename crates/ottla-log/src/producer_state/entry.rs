//! The state of one producer. Kafka: `ProducerStateEntry`, `BatchMetadata`.

use std::collections::VecDeque;

use ottla_records::BatchHeader;
use ottla_types::{Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};

/// The last batch of an active producer. The cleaner keeps it, because it holds the last sequence
/// number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LastRecord {
    /// `None` if only markers are known; the last marker then holds the epoch.
    pub last_data_offset: Option<Offset>,
    pub producer_epoch: ProducerEpoch,
}

/// The content of a transaction marker.
pub(super) struct Marker {
    pub(super) coordinator_epoch: i32,
    pub(super) timestamp: Timestamp,
    pub(super) is_abort: bool,
}

/// A producer has at most this many batches in flight, each of which may be retried.
const BATCHES_KEPT: usize = 5;

/// One of the last batches of a producer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchMetadata {
    pub last_sequence: Sequence,
    pub last_offset: Offset,
    /// Number of records minus one.
    pub offset_delta: i32,
    pub timestamp: Timestamp,
}

impl BatchMetadata {
    pub fn first_sequence(&self) -> Sequence {
        let Sequence(last) = self.last_sequence;
        if last < self.offset_delta {
            Sequence((i32::MAX - (self.offset_delta - last)).wrapping_add(1))
        } else {
            Sequence(last.wrapping_sub(self.offset_delta))
        }
    }

    pub fn first_offset(&self) -> Offset {
        Offset(
            self.last_offset
                .0
                .wrapping_sub(i64::from(self.offset_delta)),
        )
    }
}

/// One producer's state in one partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProducerStateEntry {
    pub producer_id: ProducerId,
    /// The epoch of its last batch or marker.
    pub producer_epoch: ProducerEpoch,
    /// Epoch of the coordinator that wrote the last marker; -1 if there was none.
    pub coordinator_epoch: i32,
    pub last_timestamp: Timestamp,
    /// First offset of its open transaction.
    pub current_txn_first_offset: Option<Offset>,
    /// The last batches of `producer_epoch`, oldest first.
    batches: VecDeque<BatchMetadata>,
}

impl ProducerStateEntry {
    pub(super) fn empty(producer_id: ProducerId) -> Self {
        Self::new(producer_id, ProducerEpoch::NONE, -1, Timestamp::NONE, None)
    }

    pub(super) fn new(
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        coordinator_epoch: i32,
        last_timestamp: Timestamp,
        current_txn_first_offset: Option<Offset>,
    ) -> Self {
        Self {
            producer_id,
            producer_epoch,
            coordinator_epoch,
            last_timestamp,
            current_txn_first_offset,
            batches: VecDeque::new(),
        }
    }

    pub fn batches(&self) -> impl ExactSizeIterator<Item = &BatchMetadata> {
        self.batches.iter()
    }

    /// Whether a transaction of this epoch is open.
    pub fn is_in_transaction(&self, producer_epoch: ProducerEpoch) -> bool {
        self.current_txn_first_offset.is_some() && self.producer_epoch == producer_epoch
    }

    pub fn last_sequence(&self) -> Sequence {
        self.batches
            .back()
            .map_or(Sequence::NONE, |batch| batch.last_sequence)
    }

    pub(super) fn last_batch(&self) -> Option<&BatchMetadata> {
        self.batches.back()
    }

    /// The earlier batch that `header` repeats.
    pub(super) fn find_duplicate(&self, header: &BatchHeader) -> Option<BatchMetadata> {
        if header.producer_epoch != self.producer_epoch {
            return None;
        }
        let is_same = |batch: &&BatchMetadata| {
            batch.first_sequence() == header.base_sequence
                && batch.last_sequence == header.last_sequence()
        };
        self.batches.iter().find(is_same).copied()
    }

    /// Adds a data batch. Returns whether it starts a transaction.
    pub(super) fn append_data(&mut self, header: &BatchHeader) -> bool {
        self.set_epoch(header.producer_epoch);
        self.add_batch(BatchMetadata {
            last_sequence: header.last_sequence(),
            last_offset: header.last_offset(),
            offset_delta: header.last_offset_delta,
            timestamp: header.max_timestamp,
        });
        self.last_timestamp = header.max_timestamp;
        if header.is_transactional() && self.current_txn_first_offset.is_none() {
            self.current_txn_first_offset = Some(header.base_offset);
            return true;
        }
        false
    }

    pub(super) fn add_batch(&mut self, batch: BatchMetadata) {
        if self.batches.len() == BATCHES_KEPT {
            self.batches.pop_front();
        }
        self.batches.push_back(batch);
    }

    /// Ends the open transaction. Returns its first offset.
    pub(super) fn append_marker(
        &mut self,
        producer_epoch: ProducerEpoch,
        marker: &Marker,
    ) -> Option<Offset> {
        self.set_epoch(producer_epoch);
        self.coordinator_epoch = marker.coordinator_epoch;
        self.last_timestamp = marker.timestamp;
        self.current_txn_first_offset.take()
    }

    fn set_epoch(&mut self, producer_epoch: ProducerEpoch) {
        if self.producer_epoch != producer_epoch {
            self.batches.clear();
            self.producer_epoch = producer_epoch;
        }
    }

    pub(super) fn is_expired(&self, now: Timestamp, expiration_ms: i64) -> bool {
        self.current_txn_first_offset.is_none()
            && now.0.saturating_sub(self.last_timestamp.0) >= expiration_ms
    }
}
